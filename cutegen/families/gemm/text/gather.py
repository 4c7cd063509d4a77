"""Gathered rows in the generated text: the method `gather` of the kernel, and the reference's own gather."""

from __future__ import annotations

from dataclasses import dataclass

from cutegen.arch.architecture import WARP_THREADS, WARPS_PER_WARPGROUP
from cutegen.families.gemm.candidate import Candidate
from cutegen.families.gemm.derived import gather_warps
from cutegen.families.gemm.problem import GemmProblem
from cutegen.families.gemm.text.groups import GroupText


@dataclass(frozen=True, slots=True)
class GatheredScaleText:
    """A scale that is copied with the rows: gmem, smem: names of tensor and ring, modes, smem_modes: of both. depth:
    elements of k in a block."""

    name: str
    gmem: str
    smem: str
    modes: str
    smem_modes: str
    depth: int


@dataclass(frozen=True, slots=True)
class GatherText:
    """What the templates read as k.gather.

    index: the tensor that names them, index_gmem: in the kernel. matrix: whose rows; operand: A or B; gmem, smem: names
    of tensor and ring, smem_modes of the latter, swizzle: of it. along: m or n. rows: extent of a tile along them;
    extents, at: names for the extents of a tile, and for its place, "_" where not needed. first_row: of a tile.
    first_warp, first_thread, threads: who copies. scale: of blocks along k, copied beside.
    """

    index: str
    index_gmem: str
    matrix: str
    operand: str
    gmem: str
    smem: str
    smem_modes: str
    swizzle: str
    along: str
    rows: str
    extents: str
    at: str
    first_row: str
    first_warp: int
    first_thread: int
    threads: int
    scale: GatheredScaleText | None


def gather_text(problem: GemmProblem, c: Candidate, groups: GroupText | None) -> GatherText | None:
    """In the kernel's frame."""
    gather = problem.gather
    if gather is None or problem.gathered is None:
        return None
    warps, number = gather_warps(problem, c), "mn".index(gather.along)
    first_warp = WARPS_PER_WARPGROUP - warps
    begin = groups.row(gather.along) if groups else ""
    batch = "batch" if groups and groups.ragged else "_"
    along_m = gather.along == "m"
    return GatherText(
        index=gather.index,
        index_gmem=f"m_{gather.index}",
        matrix=problem.gathered.name,
        operand="AB"[number],
        gmem=f"m{'AB'[number]}",
        smem=f"s{'AB'[number]}",
        smem_modes=f"b{gather.along.upper()}, bK, stages",
        swizzle=f"t.swizzle[{number}]",
        along=gather.along,
        rows=f"tile_{gather.along}",
        extents="tile_m, _, tile_k" if along_m else "_, tile_n, tile_k",
        at=f"m, _, {batch}" if along_m else f"_, n, {batch}",
        first_row=f"{begin}{gather.along} * tile_{gather.along}",
        first_warp=first_warp,
        first_thread=first_warp * WARP_THREADS,
        threads=warps * WARP_THREADS,
        scale=_scale(problem),
    )


def _scale(problem: GemmProblem) -> GatheredScaleText | None:
    if problem.row_scale is None or not problem.gathers_row_scale:
        return None
    scale, side = problem.row_scale
    return GatheredScaleText(
        name=scale.name,
        gmem=f"m_{scale.name}",
        smem=f"s_{scale.name}",
        modes="rows, k blocks",
        smem_modes=f"b{side.upper()}, k blocks, stages",
        depth=scale.depth,
    )


def gather_overview(problem: GemmProblem) -> tuple[str, ...]:
    """Lines of the module docstring."""
    gather = problem.gather or problem.copied
    if gather is None:
        return ()
    name, index = (problem.a if gather.along == "m" else problem.b).name, gather.index
    own = " and ".join((name, *gather.scales))
    if problem.copied:
        copies = f"{own} is a copy that" if own == name else f"{own} are copies that"
        return (f"{copies} copy_rows.py made: row i is row {index}[i] of the call's.", "")
    return (f"Row i of the product is of row {index}[i] of {own}; one that {name} does not have is zero.", "")


def explain_gather(problem: GemmProblem) -> tuple[str, ...]:
    """In the words of the spec."""
    if problem.gather is None or problem.gathered is None:
        return ()
    extent = problem.gather.extent
    height = extent.name if extent.value is None else str(extent.value)
    name, index = problem.gathered.name, problem.gather.index
    own = " and ".join((name, *problem.gather.scales))
    has = "have" if problem.gather.scales else "has"
    return (f"row i of the product is of row {index}[i] of {own}, which {has} {height} of them",)
