"""The problems of a product of two matrices: those that break its kernels, and those to measure, for the kernels of a
family and the functions of a Python file alike."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from cutegen.arch import MOST_SMS
from cutegen.families.proving import WAVES, Mode, Problem, Roles, thorough_modes
from cutegen.runtime.arguments import Extent, legal_extent

# Ring buffers hold at most this many k tiles: 227 KiB of SMEM over the smallest stage.
DEEPEST_RING = 12
# Problems that every mode runs on: tails in all dims, and rings that carry over from tile to tile.
THOROUGH = ("ragged", "several waves", "defaults")
# Problems of which rows are computed by themselves.
ROWS_ALONE = ("ragged", "around the ring", "several waves")
# Measured where nobody says what: squares, and two layers of language models.
BENCH_SHAPES = (
    (4096, 4096, 4096),
    (8192, 8192, 8192),
    (16384, 4096, 14336),
    (4096, 28672, 8192),
)
BENCH_BATCH = 8


@dataclass(frozen=True, slots=True)
class ProductSpace:
    """dims: a constant or an inclusive range each; steps: what each is varied in; defaults: extents of those that have
    any."""

    dims: Mapping[str, Extent]
    steps: Mapping[str, int]
    roles: Roles
    defaults: Mapping[str, int] = field(default_factory=dict)

    def legal(self, wanted: Mapping[str, int]) -> dict[str, int]:
        """The extents that are nearest to what is wanted, for those dims that there are: constants, and others up to
        the next multiple of what they are varied in."""
        return {d: legal_extent(self.dims[d], self.steps[d], n) for d, n in wanted.items() if d in self.dims}

    def edges(self, tiling: Any) -> Iterator[tuple[str, dict[str, int]]]:
        """(name, extents) of the problems where kernels of this tiling go wrong, without repetitions. Dims without a
        role are among them if they have a default; where roles are not known, there is one problem, "defaults".

        Extents follow from the CTA tile and from the step that alignment leaves; constants and promised ranges hold.
        """
        roles = self.roles
        if not (roles.m and roles.n and roles.k):
            yield "defaults", dict(self.defaults)
            return
        tm, tn, tk = tiling.tile
        n_step, k_step = self.steps[roles.n], self.steps[roles.k]
        ring = getattr(tiling, "stages", DEEPEST_RING) * tk
        side = math.ceil(math.sqrt(WAVES * MOST_SMS))
        wanted = {
            "one row": (1, tn, tk),
            "below a tile": (tm // 2 - 3, tn // 2 - n_step, k_step),
            "one tile": (tm, tn, tk),
            "ragged m": (tm + 1, tn, 2 * tk),
            "ragged n": (tm, tn + n_step, 2 * tk),
            "ragged k": (tm, tn, 2 * tk + k_step),
            "ragged": (2 * tm + tm // 2 + 1, tn + tn // 2 + n_step, 5 * tk + k_step),
            "around the ring": (2 * tm, 2 * tn, 2 * ring + tk),
            "several waves": (side * tm - 1, side * tn - n_step, 3 * tk),
        }
        seen: set[tuple[int, ...]] = set()
        for name, (m, n, k) in wanted.items():
            batch = 1 if name == "one tile" else 3
            wanted_of = {roles.gathered: m // 2 + 3, roles.m: m, roles.n: n, roles.k: k, roles.batch: batch}
            shape = {**self.defaults, **self.legal(wanted_of)}
            if (key := tuple(shape.values())) not in seen:
                seen.add(key)
                yield name, {d: shape[d] for d in self.dims if d in shape}

    def list_problems(self, tilings: Mapping[Any, Any], plan: Any = None) -> Iterator[Problem]:
        """The problems to check, for each tiling. plan: None for functions of a file."""
        thorough, roles = thorough_modes(plan), self.roles
        for key, tiling in tilings.items():
            for name, shape in self.edges(tiling):
                draw = "lost" if roles.gathered else None
                yield Problem(name, shape, key, thorough if name in THOROUGH else ("numerics",), draw)
        if getattr(plan, "batch_invariant", False):
            tallest = max(tilings.values(), key=lambda tiling: tiling.tile[0])
            for name, shape in self.edges(tallest):
                if name in ROWS_ALONE:
                    yield Problem(name, shape, None, ("rows",))
        if plan is not None:
            base = next(shape for _, shape in self.edges(next(iter(tilings.values()))))
            for dim in dict.fromkeys((roles.m, roles.gathered, roles.n, roles.batch, roles.k)):
                if dim and not isinstance(self.dims[dim], int):
                    yield Problem(f"{dim} = 0", {**base, dim: 0}, None, ("empty",))

    def small_problems(self, tilings: Mapping[Any, Any], sms: int, plan: Any = None) -> Iterator[Problem]:
        """What `list_problems` gives in small, for a GPU of so few SMs that the kernel is executed on a CPU: ragged in
        every dim, several waves; wide on 2 of them, and tall on more: two columns of tiles, and on 4 SMs more rows of
        tiles than a raster's band has."""
        modes: list[Mode] = [mode for mode in thorough_modes(plan) if mode in ("alias", "zeroed")]
        roles = self.roles
        if not (roles.m and roles.n and roles.k):
            yield Problem("defaults", dict(self.defaults), next(iter(tilings)))
            return
        for key, tiling in tilings.items():
            tm, tn, tk = tiling.tile
            n_step, k_step = self.steps[roles.n], self.steps[roles.k]
            waves = math.ceil(WAVES * max(sms, getattr(tiling, "cluster_size", 1)))  # a cluster takes as many SMs
            ring = getattr(tiling, "stages", DEEPEST_RING)
            wanted: dict[str, tuple[tuple[int, int, int], tuple[Mode, ...]]]
            if sms > 2:
                wanted = {"tall": ((waves * tm - tm // 2 + 1, tn + n_step, tk + k_step), ("numerics",))}
            else:
                deep = (tm + tm // 2 + 1, tn // 2 + n_step, (ring + 1) * tk + k_step)
                wanted = {
                    "wide": ((tm // 2 + 1, waves * tn - tn // 2 + n_step, tk + k_step), ("strides",)),
                    "around the ring": (deep, ("numerics", *modes)),
                }
            for name, ((m, n, k), ways) in wanted.items():
                extents = {roles.gathered: m // 2 + 3, roles.m: m, roles.n: n, roles.k: k, roles.batch: 2}
                shape = {**self.defaults, **self.legal(extents)}
                draw = "lost" if roles.gathered else None
                yield Problem(name, {d: shape[d] for d in self.dims if d in shape}, key, ways, draw)

    def bench_dims(self) -> Iterator[dict[str, int]]:
        """What to measure when nobody says."""
        roles = self.roles
        for m, n, k in BENCH_SHAPES:
            batch = BENCH_BATCH if roles.batch else 1
            wanted = {roles.gathered: m // batch, roles.m: m // batch, roles.n: n, roles.k: k, roles.batch: batch}
            yield {**self.defaults, **self.legal(wanted)}


def locate_in_tile(m: int, n: int, tiling: Any, band: int) -> str:
    """CTA tile (row, column of tiles), and inside of it the warpgroup and the subtile. band: rows of an MMA."""
    tile_m, tile_n, _ = tiling.tile
    row, column = m % tile_m, n % tile_n
    text = f"CTA tile ({m // tile_m}, {n // tile_n}), row {row}, column {column} of it"
    subtile = getattr(tiling, "epilogue_tile", None)
    if subtile:
        # Warpgroups that share a tile split its rows in bands; with less rows than that per subtile group they
        # take turns at whole tiles instead.
        together = subtile[0] // band
        group = f"warpgroup {row % subtile[0] // band}" if together == tiling.consumers else "either warpgroup"
        text += f"; {group}, epilogue subtile ({row // subtile[0]}, {column // subtile[1]})"
    return text
