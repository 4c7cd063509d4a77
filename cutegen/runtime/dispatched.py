"""A plan of a product that chooses among its tilings: first what was measured, then the cost model's pick.

Importing this module imports neither torch nor cutlass.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from operator import itemgetter
from typing import Any, ClassVar, Literal

from cutegen.runtime.ahead import can_compile_ahead, compile_ahead
from cutegen.runtime.base import Table
from cutegen.runtime.cost_model import Rates
from cutegen.runtime.device_rates import RATES, find_rates
from cutegen.runtime.measured import MeasuredPlan, current_device
from cutegen.runtime.portfolio import Portfolio

MOST_PICKS = 4096  # shapes that a plan remembers the pick of
# Extents that `warm_up` samples of a range: all of few, else this many of each power of two.
EVERY, STEPS = 64, 8


class DispatchedPlan(MeasuredPlan):
    """portfolio: None where there is one tiling. The order is winners, memory, model: what `tune` measured for such
    calls on this device, what was picked for this shape before, and the tiling of the portfolio that takes least by
    the cost model at the rates of the device."""

    portfolio: ClassVar[Portfolio | None] = None

    def __init__(self, on_miss: Literal["compile", "warn", "error"] = "compile", sms: int | None = None) -> None:
        self._picks = Table(self._pick, MOST_PICKS)
        self._rates = Table(self._find_rates)
        self._told: set[str] = set()
        m, n, k, batch = self.roles
        self._extents_of = itemgetter(m, n, k, *batch)
        super().__init__(on_miss, sms)

    @property
    def roles(self) -> tuple[str, str, str, tuple[str, ...]]:
        """Names of the dims m, n and k, and of the batch, if there is one."""
        raise NotImplementedError

    def dispatch(self, device: int | None = None, /, **dims: int) -> str:
        """The key of the tiling for a problem on a CUDA device (None: the current one; without any, the first device
        that the model knows)."""
        if self.portfolio is None:
            return next(iter(self.tilings))
        call = (device, *self._extents_of(dims))
        key: str = self._picks[call]
        return key

    def _pick(self, call: tuple[int | None, ...]) -> str:
        device, m, *others = call
        batch = others[2:]
        if self.winners and (winner := self.find_winner(device, (*batch, *others[:2]), m)):  # type: ignore[arg-type]
            return winner
        if self.portfolio and len(self.portfolio.keys) == 1:  # nothing to rank, so the device's rates are not asked for
            return self.portfolio.keys[0]
        return self.rank_tilings(device, m, *others)[0]  # type: ignore[arg-type]

    def rank_tilings(
        self, device: int | None, m: int, n: int, k: int, batch: int = 1, *, keys: Sequence[str] = ()
    ) -> list[str]:
        """Keys, by default those of the portfolio, by the cost model's time for a problem on a device."""
        assert self.portfolio
        rates = self._rates[current_device() if device is None else device]
        return [key for _, key in self.portfolio.rank(self.tilings, rates, (m, n, k, batch), keys)]

    def _find_rates(self, device: int) -> Rates:
        if device >= 0:
            import torch

            return find_rates(torch.cuda.get_device_properties(device), self.arch)[0]
        return next(rates for arch, rates in RATES.values() if arch == self.arch)

    def choose_ready(self, device: int, dims: Mapping[str, int], ending: str = "") -> tuple[str, bool]:
        """(the key for a launch, whether it is what dispatch chooses). Where kernels may not be compiled now, during
        the capture of a graph or by on_miss, it is the best that is loaded; RuntimeError: none is. ending: of the
        kernels without the optional operands that the call leaves out."""
        best = self.dispatch(device, **dims)
        if best + ending in self._kernels or not self._must_not_compile(device):
            return best, True
        m, n, k, batch = self.roles
        loaded = [key for key in self.tilings if self.full_key(key) == key and key + ending in self._kernels]
        sizes = ", ".join(f"{dim}={dims[dim]}" for dim in (*batch, m, n, k) if not isinstance(self.dims[dim], int))
        what = f"{self.name}: kernel {best + ending!r}, which {sizes} runs, is not compiled"
        remedy = f"call warm_up({sizes}), or with ranges such as {m}=(1, {dims[m]}),"
        when = "before the capture of a graph" if self.on_miss != "error" else "before serving"
        if not loaded or self.portfolio is None:
            raise RuntimeError(f"{what}; {remedy} {when}")
        extents = [dims[d] for d in (m, n, k, *batch)]
        instead = self.rank_tilings(device, *extents, keys=loaded)[0]
        if best not in self._told:
            self._told.add(best)
            warnings.warn(f"{what}; {instead!r} runs instead: {remedy} {when}", RuntimeWarning, stacklevel=4)
        return instead, False

    def _must_not_compile(self, device: int) -> bool:
        if self.on_miss == "error":
            return True
        if device < 0:
            return False
        import torch

        return bool(torch.cuda.is_current_stream_capturing())

    def warm_up(
        self,
        keys: Sequence[str] | None = None,
        *,
        processes: int | None = None,
        **ranges: int | tuple[int, int] | Sequence[int],
    ) -> None:
        """Compiles (or loads from the cache) the kernels of `keys`, or of all that calls of such extents can run, by
        default of any, so that no launch has to.

        ranges: of each dim an extent, a list of extents, or an inclusive range as a tuple of two, such as m=(1, 4096);
        see pick_keys. processes: how many compile at once, by default one for each CPU; 1: this one compiles.
        TypeError, ValueError: they are not dims of this plan, or keys are given as well."""
        if keys is not None and ranges:
            raise TypeError(f"{self.name}: warm_up takes keys, or extents of dims, not both")
        wanted = self.pick_keys(**ranges) if ranges else self.get_warmup_keys() if keys is None else tuple(keys)
        missing = [key for key in wanted if key not in self._kernels]
        count = min(len(missing), processes or os.cpu_count() or 1)
        module = type(self).__module__
        if count > 1 and can_compile_ahead(module, self):
            compile_ahead(module, missing, count)
        super().warm_up(wanted)

    def pick_keys(self, **ranges: int | tuple[int, int] | Sequence[int]) -> tuple[str, ...]:
        """The keys that dispatch chooses on the current device for calls of these extents: of each dim one, several in
        a list, or an inclusive range as a tuple of two, of which few extents are sampled where there are many: all
        ends of winners, and STEPS of each power of two. TypeError, ValueError: they are not dims of this plan."""
        names = [d for d, e in self.dims.items() if not isinstance(e, int)]
        needed = set(names) & {*self.roles[:3], *self.roles[3]}
        if set(ranges) - set(self.dims) or needed - set(ranges):
            raise TypeError(f"{self.name}: warm_up takes extents of {', '.join(sorted(needed))}, not {sorted(ranges)}")
        listed = {d: list(self._extents(d, ranges.get(d, self.dims[d]))) for d in {*needed, *ranges}}  # type: ignore[arg-type]
        constants = {d: e for d, e in self.dims.items() if isinstance(e, int)}
        chosen = {self.dispatch(**constants, **dict(zip(listed, point))) for point in product(*listed.values())}
        return tuple(key for key in self.tilings if self.full_key(key) in chosen)

    def _extents(self, dim: str, given: Any) -> Iterator[int]:
        if isinstance(given, int):
            given = [given]
        if not isinstance(given, tuple):
            yield from given
            return
        if len(given) != 2 or not 0 < given[0] <= given[1]:
            raise ValueError(f"{self.name}: {dim}={given!r} is not a range: pass (first, last), or a list of extents")
        low, high = given
        known = [last for table in self.winners.values() for rows in table.values() for last, _ in rows]
        ends = {low, high, *(e for last in known for e in (last, last + 1) if dim == self.roles[0])}
        step = 1
        for extent in range(low, min(high, low + EVERY) + 1):
            ends.add(extent)
        while step <= high:
            ends.update(step + step * i // STEPS for i in range(STEPS))
            step *= 2
        yield from sorted(e for e in ends if low <= e <= high)
