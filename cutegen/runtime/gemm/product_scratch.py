"""The scratch of a GEMM plan: what its tilings take beside inputs and outputs, how much of it, and whose it is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

from cutegen.runtime.arguments import TensorArg
from cutegen.runtime.base import Table
from cutegen.runtime.gemm.row_copy import RowCopy
from cutegen.runtime.gemm.tiling import SCRATCH
from cutegen.runtime.scratch import OwnScratch, check_scratch, make_scratch

MAX_ELEMENTS = 2**31  # of one tensor, that kernels can count
MAX_POINTS = 4096  # problems whose needs are remembered: a server sees any number of rows


class GemmScratch:
    """args: partial results of reductions with their counters, then what the tilings take of SCRATCH, then copies of
    gathered rows.

    Where a call brings none, it uses the plan's own (runtime/scratch.py). takers: the tilings that take any.
    """

    def __init__(
        self,
        name: str,
        tilings: Mapping[str, Any],
        reductions: Mapping[str, str],
        rows_anywhere: bool = False,
        copy: RowCopy | None = None,
        copied_tilings: Sequence[str] = (),
    ) -> None:
        """reductions: of each the dim of m and n that it keeps, "" if neither. rows_anywhere: tiles may begin at any
        row, so that each row has a counter. copy: of gathered rows, in front of the kernels of copied_tilings."""
        self.name, self.tilings = name, tilings
        self.copy, self.copied_tilings = copy, frozenset(copied_tilings)
        taken = {name for tiling in tilings.values() for name in getattr(tiling, "scratch", ())}
        partials = [TensorArg(f"{r}_partials", "float32", (f"{r}_partials",), 0, 4) for r in reductions]
        counters = [TensorArg("arrivals", "int32", ("arrivals",), 0, 4, zeroed=True)] if reductions else []
        self.args = (*partials, *counters, *(s for s in SCRATCH if s.name in taken), *(copy.args if copy else ()))
        self.kept, self.rows_anywhere = tuple(reductions.values()), rows_anywhere
        some = {key for key, t in tilings.items() if getattr(t, "scratch", ()) or key in self.copied_tilings}
        self.takers = frozenset(tilings if reductions else some)
        self.own = OwnScratch(self.make)
        self._needs = Table(lambda point: self._find_needs(*point), MAX_POINTS)

    def needs(self, key: str, extents: Sequence[int], k: int) -> tuple[int, ...]:
        """Elements of each tensor of a call of tiling `key`, 0 of those that it does not take. extents: of the product,
        m, n[, batch]. k: of the product, where rows are copied."""
        point = (key, k if key in self.copied_tilings else 0, *extents)
        return self._needs[point]  # type: ignore[no-any-return]

    def largest(self, extents: Sequence[int], k: int) -> tuple[int, ...]:
        """Elements that suffice for any tiling."""
        return tuple(map(max, zip(*(self.needs(key, extents, k) for key in self.tilings))))

    def make(self, device: Any, sizes: tuple[int, ...]) -> tuple[Any, ...]:
        return make_scratch(self.args, device, sizes)

    def fit(self, key: str, extents: Sequence[int], k: int, given: Sequence[Any]) -> tuple[int, ...]:
        """Elements of each tensor of a call of tiling `key`, () where it takes none. given: those that the call brings.
        ValueError: one is too small."""
        needs = self.needs(key, extents, k)
        check_scratch(self.name, key, self.args, given, needs)
        return needs if any(needs) else ()

    def _find_needs(self, key: str, k: int, m: int, n: int, batch: int = 1) -> tuple[int, ...]:
        tiling = self.tilings[key]
        rows = self._for_reductions(m, n, batch) if self.kept else ()
        work = tiling.scratch_sizes(m, n, batch) if getattr(tiling, "scratch", ()) else {}
        copies = dict(zip((a.name for a in self.copy.args), self.copy.sizes(m, k))) if self.copy and k else {}
        sizes = (*rows, *({**work, **copies}.get(s.name, 0) for s in self.args[len(rows) :]))
        for arg, size in zip(self.args, sizes):
            if size >= MAX_ELEMENTS:
                remedy = "splits k into fewer parts" if arg.name in work else "has larger tiles"
                if arg.name in copies:
                    remedy = "gathers rows by cp_async"
                raise ValueError(
                    f"{self.name}: {key} needs {size} elements of {arg.name} for {m} x {n} x {batch} accumulators, "
                    f"more than {MAX_ELEMENTS - 1}: use a tiling that {remedy} for such problems"
                )
        return sizes

    def _for_reductions(self, m: int, n: int, batch: int) -> tuple[int, ...]:
        """Elements that suffice for any tiling: partial results of each reduction, one per tile and row or column that
        it keeps, and counters, one per row and column of tiles, one for each batch index and one for all."""
        tiles_m, tiles_n = (-(-e // least) + self.spare_tiles for e, least in zip((m, n), self.least_tile))
        partials = (count_partials(kept, m, n, batch, tiles_m, tiles_n) for kept in self.kept)
        each = ("m" in self.kept, "n" in self.kept, "" in self.kept)
        return (*partials, count_arrivals(*each, self.rows_anywhere, m, batch, tiles_m, tiles_n))

    @cached_property
    def least_tile(self) -> tuple[int, int]:
        """Elements along m and n of the product that a CTA tile of any tiling has at least."""
        tilings = self.tilings.values()
        return min(_tile_extent(t, 0) for t in tilings), min(_tile_extent(t, 1) for t in tilings)

    @cached_property
    def spare_tiles(self) -> int:
        """Tiles along m and n that a grid may have beyond those of the product: it is rounded up to whole clusters."""
        return max(max(t.cluster) for t in self.tilings.values()) - 1


def count_partials(kept: str, m: int, n: int, batch: int, tiles_m: int, tiles_n: int) -> int:
    """Elements of the partial results of a reduction that keeps m, n or, with "", neither."""
    return batch * (tiles_n * m if kept == "m" else tiles_m * n if kept == "n" else tiles_m * tiles_n)


def count_arrivals(
    keep_m: bool, keep_n: bool, keep_none: bool, rows_anywhere: bool, m: int, batch: int, tiles_m: int, tiles_n: int
) -> int:
    """Counters of all reductions, of which some keep m, some n, and some neither."""
    rows = m if rows_anywhere else tiles_m
    return batch * ((rows if keep_m else 0) + (tiles_n if keep_n else 0) + (2 if keep_none else 0))


def _tile_extent(tiling: Any, axis: int) -> int:
    """Elements along m or n of the product that a CTA tile has at least. A transposed tiling tells what its clusters
    cover."""
    covered = getattr(tiling, "covers", (0, 0))[axis]
    return covered // max(tiling.cluster) if covered else tiling.tile[axis]  # type: ignore[no-any-return]


def product_extents(divisors: Sequence[int], shape: Sequence[int]) -> tuple[int, ...]:
    """Extents of the product from those of an output, of whose dims some are parts."""
    return tuple(divisor * extent for divisor, extent in zip(divisors, shape))
