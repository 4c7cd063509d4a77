"""A plan of a product that chooses among its tilings: first what was measured, then the cost model's pick.

Importing this module imports neither torch nor cutlass.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from operator import itemgetter
from typing import Any, ClassVar, Literal

from cutegen.runtime.ahead import can_compile_ahead, compile_ahead, usable_cpus
from cutegen.runtime.arguments import MAX_EXTENT, complete_dims, step_of
from cutegen.runtime.base import Table, current_device
from cutegen.runtime.device_rates import RATES, Rates, find_rates
from cutegen.runtime.gemm.portfolio import Portfolio
from cutegen.runtime.measured import MeasuredPlan

MOST_PICKS = 4096  # shapes that a plan remembers the pick of
# Extents that `warm_up` samples of a range: so many from its first on, and of each power of two; so many calls at most.
EVERY, STEPS, MOST_SAMPLES = 64, 8, 4096


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
        that the model knows), of a launch on all its SMs. Constants need no extent. TypeError, ValueError: those given
        are not a problem of this plan."""
        if self.portfolio is None:
            return next(iter(self.tilings))
        device = current_device() if device is None else device
        try:
            extents = self._extents_of(dims)
        except KeyError:
            extents = self._extents_of(complete_dims(self.dims, dims))
        call = (device, None, *extents)
        key: str = self._picks[call]
        return key

    def dispatch_within(self, budget: int | None, device: int, dims: Mapping[str, int]) -> str:
        """What `dispatch` chooses for a launch on at most so many SMs: among tilings whose clusters they can run."""
        if budget is None or self.portfolio is None:
            return self.dispatch(device, **dims)
        call = (device, budget, *self._extents_of(dims))
        key: str = self._picks[call]
        return key

    def _pick(self, call: tuple[int | None, ...]) -> str:
        device, budget, m, *others = call
        assert device is not None
        batch = others[2:]
        winner = self.find_winner(device, (*batch, *others[:2]), m) if self.winners else ""  # type: ignore[arg-type]
        if winner and (budget is None or self.least_sms(winner) <= budget):
            return winner
        if self.portfolio and len(self.portfolio.keys) == 1:  # nothing to rank, so the device's rates are not asked for
            return self.portfolio.keys[0]
        return self.rank_tilings(device, m, *others, budget=budget)[0]  # type: ignore[arg-type]

    def rank_tilings(
        self,
        device: int,
        m: int,
        n: int,
        k: int,
        batch: int = 1,
        *,
        keys: Sequence[str] = (),
        budget: int | None = None,
    ) -> list[str]:
        """Keys, by default those of the portfolio, by the cost model's time for a problem on a device. budget: SMs of
        the launch; tilings whose clusters they cannot run are left out, unless that leaves none."""
        assert self.portfolio
        rates, keys = self._rates[device], keys or self.portfolio.keys
        if budget is not None:
            rates = rates.of_part(budget)
            least = min(map(self.least_sms, keys))
            keys = [key for key in keys if self.least_sms(key) <= max(budget, least)]
        return [key for _, key in self.portfolio.rank(self.tilings, rates, (m, n, k, batch), keys)]

    def _find_rates(self, device: int) -> Rates:
        if device >= 0:
            import torch

            return find_rates(torch.cuda.get_device_properties(device), self.arch)[0]
        return next(rates for arch, rates in RATES.values() if arch == self.arch)

    def choose_ready(
        self, device: int, dims: Mapping[str, int], ending: str = "", budget: int | None = None
    ) -> tuple[str, bool]:
        """(the key for a launch, whether it is what dispatch chooses). Where kernels may not be compiled now, during
        the capture of a graph or by on_miss, it is the best that is loaded; RuntimeError: none is. ending: of the
        kernels without the optional operands that the call leaves out. budget: SMs of the launch; None: all."""
        best = self.dispatch_within(budget, device, dims)
        if self.is_loaded(best + ending) or not self._must_not_compile(device):
            return best, True
        m, n, k, batch = self.roles
        loaded = [key for key in self.tilings if self.full_key(key) == key and self.is_loaded(key + ending)]
        sizes = ", ".join(f"{dim}={dims[dim]}" for dim in (*batch, m, n, k) if not isinstance(self.dims[dim], int))
        what = f"{self.name}: kernel {best + ending!r}, which {sizes} runs, is not compiled"
        remedy = f"call warm_up({sizes}), or with ranges such as {m}=(1, {dims[m]}),"
        when = "before the capture of a graph" if self.on_miss != "error" else "before serving"
        if not loaded or self.portfolio is None:
            raise RuntimeError(f"{what}; {remedy} {when}")
        extents = [dims[d] for d in (m, n, k, *batch)]
        instead = self.rank_tilings(device, *extents, keys=loaded, budget=budget)[0]
        if best not in self._told:
            self._told.add(best)
            warnings.warn(f"{what}; {instead!r} runs instead: {remedy} {when}", RuntimeWarning, stacklevel=4)
        return instead, False

    def is_loaded(self, key: str) -> bool:
        """Whether a launch of tiling `key` compiles nothing."""
        return key in self._kernels

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
        """Compiles (or loads from the cache) the kernels of `keys`, or those that dispatch chooses for such extents, by
        default for any.

        ranges: of each dim an extent, a list of extents, or an inclusive range as a tuple of two, such as m=(1, 4096);
        see pick_keys. processes: how many compile at once, by default one for each CPU; 1: this one compiles.
        TypeError, ValueError: they are not dims of this plan, or keys are given as well."""
        if keys is not None and ranges:
            raise TypeError(f"{self.name}: warm_up takes keys, or extents of dims, not both")
        wanted = self.pick_keys(**ranges) if ranges else self.get_warmup_keys() if keys is None else tuple(keys)
        missing = [key for key in wanted if key not in self._kernels]
        count = min(len(missing), processes or usable_cpus())
        module = type(self).__module__
        if count > 1 and can_compile_ahead(module, self):
            compile_ahead(module, missing, count)
        super().warm_up(wanted)

    def pick_keys(self, **ranges: int | tuple[int, int] | Sequence[int]) -> tuple[str, ...]:
        """The keys that dispatch chooses on the current device for calls of these extents: of each dim one, several in
        a list, or an inclusive range as a tuple of two, of which few extents are sampled where there are many: the ends
        of winners, the first EVERY, and STEPS of each power of two, all of them fewer where several dims are ranges.
        TypeError, ValueError: they are not extents of this plan."""
        constants = {d: e for d, e in self.dims.items() if isinstance(e, int)}
        m, n, k, batch = self.roles
        needed = [d for d in (*batch, m, n, k) if d not in constants]
        if set(ranges) - set(self.dims) or set(needed) - set(ranges):
            raise TypeError(f"{self.name}: warm_up takes extents of {', '.join(needed)}, not {sorted(ranges)}")
        for dim in constants.keys() & ranges.keys():
            if ranges[dim] not in (constants[dim], [constants[dim]], (constants[dim], constants[dim])):
                said = f"{dim}={ranges[dim]!r}, and it is specialised for {dim}={constants[dim]}"
                raise ValueError(f"{self.name}: {said}")
        share = 1
        while True:
            listed = [list(self._listed(dim, ranges[dim], share)) for dim in needed]
            if math.prod(map(len, listed)) <= MOST_SAMPLES or share > MOST_SAMPLES:
                break
            share *= 2
        device, found = current_device(), set()
        for point in product(*listed):
            dims = constants | dict(zip(needed, point))
            # Not by `dispatch`, whose memory is for shapes that calls have.
            found.add(self._pick((device, None, *self._extents_of(dims))) if self.portfolio else self.dispatch(device))
        return tuple(key for key in self.tilings if self.full_key(key) in found)

    def _listed(self, dim: str, given: Any, share: int) -> Iterator[int]:
        """The extents of a dim that are looked at; of a range one of so many."""
        extents = list(given) if isinstance(given, (tuple, list, range)) else [given]
        low, high = (e, e) if isinstance(e := self.dims[dim], int) else e
        for extent in extents:
            if isinstance(extent, bool) or not isinstance(extent, int):
                raise TypeError(f"{self.name}: {dim}={given!r}: an extent is a number")
            most = MAX_EXTENT if high is None else high
            if not max(low, 1) <= extent <= most:
                promise = f"from {max(low, 1)}" + (f" to {most}" if extent > most or high is not None else "")
                raise ValueError(f"{self.name}: {dim}={extent}, and {dim} is {promise} here")
        if not isinstance(given, tuple):
            yield from extents
            return
        if len(extents) != 2 or extents[0] > extents[1]:
            raise ValueError(f"{self.name}: {dim}={given!r} is not a range: pass (first, last), or a list of extents")
        first, last = extents
        known = [end for table in self.winners.values() for rows in table.values() for end, _ in rows]
        ends = {first, last, *(e for end in known for e in (end, end + 1) if dim == self.roles[0])}
        multiple = step_of(dim, (*self.inputs, *self.outputs))
        sampled = {*range(first, min(last, first + EVERY * multiple) + 1, multiple)}
        power = 1
        while power <= last:
            sampled.update(-(-(power + power * i // STEPS) // multiple) * multiple for i in range(STEPS))
            power *= 2
        yield from sorted(e for e in {*ends, *sorted(sampled)[::share]} if first <= e <= last)
