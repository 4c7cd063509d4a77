"""Rules about how tiles of A and B are loaded: swizzles, and what CTAs of a cluster share."""

from __future__ import annotations

from cutegen.arch.architecture import SWIZZLES, Arch
from cutegen.diagnostics import Rule
from cutegen.families.gemm.candidate import Candidate
from cutegen.families.gemm.derived import contiguous_extent, sharing_ctas
from cutegen.families.gemm.problem import GemmProblem
from cutegen.families.gemm.rule_book import BOOK
from cutegen.families.refusal import Objection

CLUSTER_EXTENTS = (1, 2, 4)
MAX_CLUSTER = 4


def _swizzle(problem: GemmProblem, c: Candidate, side: str) -> Objection | None:
    operand, axis, width = (problem.a, 0, c.swizzle_a) if side == "a" else (problem.b, 1, c.swizzle_b)
    if width not in SWIZZLES:
        return f"swizzle {width} of `{operand.name}` is not one of {', '.join(map(str, SWIZZLES))} bytes", "use 128"
    mode = "k" if operand.major == "k" else "mn"[axis]
    extent = contiguous_extent(problem, c, side)
    parts = c.tile["mnk".index(mode)] // extent
    part = "half of " * (parts == 2)
    row = operand.dtype.size(extent)
    if row % width == 0:
        return None
    narrower = [w for w in SWIZZLES if row % w == 0]
    step = operand.dtype.fit(width)
    other = f", or swizzle {narrower[0]}" if narrower else ""
    return (
        f"`{operand.name}` is {mode.upper()}-major: {part}tile {mode} = {extent} x {operand.dtype.width} = {row} B "
        f"is not a multiple of the {width}-byte swizzled row",
        f"use a tile {mode} that is a multiple of {parts * step}{other}",
    )


_SWIZZLE = Rule(
    "swizzle",
    "the contiguous tile extent of A and B is a whole number of swizzled rows",
    "TMA writes and the MMA reads SMEM in rows of 128, 64 or 32 bytes along the contiguous mode: k for a K-major "
    "operand, m or n for an M- or N-major one. The tile must hold a whole number of them.",
    "tma: {a: {swizzle: 128}}\ntiling: {tile: [128, 256, 32]}",
)


@BOOK.declare_fit(_SWIZZLE, "swizzle_a", "tile")
def swizzle_a(problem: GemmProblem, c: Candidate, arch: Arch) -> Objection | None:
    return _swizzle(problem, c, "a")


@BOOK.declare_fit(_SWIZZLE, "swizzle_b", "tile")
def swizzle_b(problem: GemmProblem, c: Candidate, arch: Arch) -> Objection | None:
    return _swizzle(problem, c, "b")


@BOOK.declare_form(
    Rule(
        "cluster",
        "a cluster is 1, 2 or 4 CTAs along m and along n, and at most 4 in all",
        "CTAs of a cluster share their loads by multicast. More than 4 CTAs leave SMs idle when the GPU's groups of "
        "SMs are not full.",
        "tiling: {cluster: [4, 2]}",
    ),
    "cluster",
)
def cluster(problem: GemmProblem, c: Candidate, arch: Arch) -> Objection | None:
    m, n = c.cluster
    if m in CLUSTER_EXTENTS and n in CLUSTER_EXTENTS and m * n <= MAX_CLUSTER:
        return None
    reason = f"cluster {m} x {n} = {m * n} CTAs; each extent is 1, 2 or 4 and the product at most {MAX_CLUSTER}"
    return reason, "use [2, 1], [1, 2] or [1, 1]"


_MULTICAST = Rule(
    "multicast",
    "an operand is multicast to all CTAs of the cluster that share it, in slices of at least 8 rows",
    "CTAs along n share A, CTAs along m share B. Each of them loads its slice of the tile and sends it to all of them. "
    "A slice holds whole swizzle atoms: 8 rows of a K-major operand, one swizzled row of an M- or N-major one.",
    "tiling: {cluster: [2, 1]}\ntma: {a: {multicast: 2}}",
)


def _multicast(problem: GemmProblem, c: Candidate, side: str) -> Objection | None:
    operand, axis, value = (problem.a, 0, c.multicast_a) if side == "a" else (problem.b, 1, c.multicast_b)
    peers, along = sharing_ctas(c, side)
    if value == 1:
        return None
    if operand is problem.gathered:
        return f"`{operand.name}` is gathered: each CTA copies its own rows, without TMA", "use 1"
    if value != peers:
        have = f"the cluster {list(c.cluster)} has {peers} CTA{'s' * (peers != 1)} along {along} to share it"
        return f"multicast {value} of `{operand.name}`, but {have}", f"use {peers}" + " or 1" * (peers > 1)
    width = c.swizzle_a if side == "a" else c.swizzle_b
    step = 8 if operand.major == "k" else operand.dtype.fit(width)
    extent = c.tile[axis] // (c.mma_ctas if side == "b" else 1)
    if extent % (peers * step) == 0:
        return None
    return (
        f"multicast of `{operand.name}` to {peers} CTAs cuts tile {'mn'[axis]} = {extent} into slices of "
        f"{extent / peers:g}, not a multiple of {step}",
        f"use a tile {'mn'[axis]} that is a multiple of {peers * step}, or multicast 1",
    )


@BOOK.declare_fit(_MULTICAST, "multicast_a", "cluster", "tile")
def multicast_a(problem: GemmProblem, c: Candidate, arch: Arch) -> Objection | None:
    return _multicast(problem, c, "a")


@BOOK.declare_fit(_MULTICAST, "multicast_b", "cluster", "tile")
def multicast_b(problem: GemmProblem, c: Candidate, arch: Arch) -> Objection | None:
    return _multicast(problem, c, "b")
