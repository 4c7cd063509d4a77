"""How the work is cut and handed out, for the templates: output tiles or parts of them, in static or dynamic order."""

from __future__ import annotations

from dataclasses import dataclass

from cutegen.families.argument_text import FakeArgument, Symbol
from cutegen.families.gemm.candidate import Candidate
from cutegen.families.gemm.problem import GemmProblem
from cutegen.families.gemm.tiling import scheduler_warp
from cutegen.runtime.arguments import TensorArg
from cutegen.runtime.gemm import SCRATCH, GemmTiling


@dataclass(frozen=True, slots=True)
class WorkText:
    """What the templates read as k.work.

    unit: of work, in words; consume: what MMA warpgroups do with it. count, kernel_count: units, in a role and in the
    kernel. raster: the class of the order of tiles; order: names and classes of what else a role needs to go through
    its units. following: for pingpong, the other group's next unit; steps_of_*, subtiles_of_*: what it takes from the
    rings. sum: the function that adds partial sums, buffer: where they lie, counter: a tile's, as an offset.
    in_cluster: CTAs of a cluster have the parts of a tile, exchange sums, and share out its epilogue; last_finishes:
    the CTA of the last part runs all of it. splitting: the function that makes k_split.KSplit. scratch: names of the
    scratch arguments.
    """

    dynamic: bool
    split: bool
    in_cluster: bool
    last_finishes: bool
    splitting: str
    unit: str
    consume: str
    count: str
    kernel_count: str
    raster: str
    order: tuple[tuple[str, str], ...]
    following: str
    steps_of_following: str
    subtiles_of_following: str
    sum: str
    buffer: str
    buffer_modes: str
    counter: str
    scheduler_warp: int
    scratch: tuple[str, ...]
    fakes: tuple[FakeArgument, ...]
    device_modules: tuple[str, ...]


def work_text(problem: GemmProblem, structure: Candidate, first: GemmTiling) -> WorkText:
    """All in the kernel's frame; first: of the instances of the kernel, which take the same scratch."""
    dynamic, split = structure.dynamic, structure.split_k_sum != "none"
    scratch = tuple(s for s in SCRATCH if s.name in first.scratch)
    order = [("split", "k_split.KSplit")] if split else []
    order += [("queue", "tile_queue.TileQueue")] if dynamic else []
    times_parts = " * {}split.parts" if split else ""
    places = "parts - 1, tiles" if structure.split_k_sum == "ordered_parallel" else "tiles"
    following = "following" if dynamic or split else "index + step"
    return WorkText(
        dynamic=dynamic,
        split=split,
        in_cluster=structure.in_cluster,
        last_finishes=split and not structure.in_cluster,
        splitting="split_always" if structure.in_cluster else "split_evenly",
        unit="part of a tile" if split else "tile",
        consume=_consume(structure),
        count="o.raster.count()" + times_parts.format("o."),
        kernel_count="raster.count()" + times_parts.format(""),
        raster="GroupedRaster" if problem.groups else "RasterOrder",
        order=tuple(order),
        following=following,
        steps_of_following=f"o.split.steps({following})" if split else "o.k_tiles",
        subtiles_of_following=f"subtiles * o.split.finishes({following})" if split else "subtiles",
        sum=f"sum_{structure.split_k_sum}",
        buffer=next((s.name for s in scratch if s.dtype == "float32"), ""),
        buffer_modes=f"4, threads, vectors, {places}",
        counter="(tile_queue.COUNTERS + number)" if dynamic else "number",
        scheduler_warp=scheduler_warp(problem),
        scratch=tuple(s.name for s in scratch),
        fakes=tuple(map(_fake, scratch)),
        device_modules=(
            *(["k_split"] if split else []),
            *(["cluster_sum"] if structure.in_cluster else []),
            *(["tile_queue"] if dynamic else []),
        ),
    )


def _consume(structure: Candidate) -> str:
    if structure.in_cluster:
        return "adds up a part of a tile, exchanges sums with the other parts, and runs the epilogue of its share"
    if structure.split_k_sum != "none":
        return "adds up the parts of a tile; who has the last one runs its epilogue"
    return "accumulates a tile, then runs its epilogue"


def _fake(s: TensorArg) -> FakeArgument:
    dtype = {"float32": "Float32", "int32": "Int32"}[s.dtype]
    return FakeArgument(s.text(), dtype, (Symbol("", s.name),), align=s.align)
