"""Rules about the knobs of sm_100a kernels, and about what those of other architectures lack."""

from __future__ import annotations

from typing import Any

from cutegen.arch.architecture import Arch
from cutegen.diagnostics import Rule
from cutegen.families.gemm.candidate import Candidate
from cutegen.families.gemm.derived import sharing_ctas
from cutegen.families.gemm.problem import GemmProblem
from cutegen.families.gemm.rule_book import BOOK
from cutegen.families.refusal import Objection, nearest

ROWS = 128  # lanes of tensor memory: of a CTA's tile

_TILE = Rule(
    "tensor-memory-tile",
    "a tile of sm_100a has 128 rows, and columns in steps of 16 up to 256, of a pair or a gated product in steps of 32",
    "Each of the 128 lanes of tensor memory has a row of the CTA's tile. A product has columns in steps of 16, that of "
    "a pair of CTAs, which multiplies 256 rows, in steps of 32; of a gated one twice as many. "
    "`tile` is that of one CTA.",
    "arch: sm_100a\ntiling: {tile: [64, 128, 64]}",
)


@BOOK.declare_form(_TILE, "tile", element=0, only="sm_100a")
def tensor_memory_rows(problem: GemmProblem, c: Candidate, arch: Arch) -> Objection | None:
    return None if c.tile[0] == ROWS else (f"tile m = {c.tile[0]}, tensor memory has {ROWS} lanes", f"use {ROWS}")


@BOOK.declare_form(_TILE, "tile", element=1, only="sm_100a")
def tensor_memory_columns(problem: GemmProblem, c: Candidate, arch: Arch) -> Objection | None:
    n, most = c.tile[1], arch.mma_n[1]
    step = arch.mma_n[2] * c.mma_ctas * (2 if problem.paired else 1)
    if n % step == 0 and n <= most:
        return None
    advice = f"use {nearest(n, range(step, most + 1, step))}"
    of = " of a gated product" * problem.paired + " of a pair" * (c.mma_ctas == 2)
    return f"tile n = {n}{of} is not a multiple of {step} in {step}..{most}", advice


@BOOK.declare_form(
    Rule(
        "cta-pair",
        "on sm_100a a product is that of one CTA, or of a pair along m: then m of the cluster is even",
        "tcgen05 lets two CTAs multiply together; they are neighbours along m, and each loads half of B. WGMMA, on "
        "sm_90a, has no such product. Pairs, or CTAs that multiply alone, may share loads with others of a cluster.",
        "arch: sm_100a\ntiling: {cluster: [1, 1], mma_ctas: 2}",
    ),
    "mma_ctas",
    "cluster",
)
def cta_pair(problem: GemmProblem, c: Candidate, arch: Arch) -> Objection | None:
    if not arch.tensor_memory:
        said = f"{c.mma_ctas} CTAs of one product: {arch.mma} on {arch.name} is one CTA's"
        return (said, "remove `mma_ctas`") if c.mma_ctas != 1 else None
    if c.cluster[0] % c.mma_ctas == 0:
        return None
    return (
        f"cluster {list(c.cluster)} with {c.mma_ctas} CTAs of one product",
        "use cluster [2, 1], [4, 1] or [2, 2], or `mma_ctas: 1`",
    )


_SHARED = Rule(
    "shared-loads",
    "CTAs of a cluster on sm_100a share the loads of what they have in common",
    "A slot is free when all products that it feeds have read it: tcgen05.commit says so to every CTA of the same rows "
    "and columns of the cluster, and would to those that load for themselves.",
    "arch: sm_100a\ntiling: {cluster: [2, 2]}\ntma: {a: {multicast: 1}}",
)


def _shared(c: Candidate, side: str, count: int) -> Objection | None:
    peers, along = sharing_ctas(c, side)
    if count == peers:
        return None
    said = f"cluster {list(c.cluster)} has {peers} CTAs along {along} with the same rows of {side.upper()}"
    return f"{said}, multicast is {count}", f"use {peers}"


@BOOK.declare_form(_SHARED, "multicast_a", "cluster", only="sm_100a")
def shared_a(problem: GemmProblem, c: Candidate, arch: Arch) -> Objection | None:
    return _shared(c, "a", c.multicast_a)


@BOOK.declare_form(_SHARED, "multicast_b", "cluster", only="sm_100a")
def shared_b(problem: GemmProblem, c: Candidate, arch: Arch) -> Objection | None:
    return _shared(c, "b", c.multicast_b)


_LAUNCH_CONTROL = Rule(
    "launch-control",
    "tiles are handed out by cluster launch control on sm_100a, and from a counter elsewhere",
    "`scheduler: clc` launches a cluster for each tile, and clusters that are done take the tiles of those that have "
    "not begun; sm_90a has no such instruction, and kernels of sm_120a do not use it. How many tiles groups of rows "
    "make is known when the kernel runs, so no launch has a cluster for each.",
    "arch: sm_90a\nscheduler: clc",
)


@BOOK.declare_form(_LAUNCH_CONTROL, "scheduler")
def launch_control(problem: GemmProblem, c: Candidate, arch: Arch) -> Objection | None:
    if not c.dynamic or (c.counts_tiles and not arch.tensor_memory):
        return None
    if c.counts_tiles:
        remedy = "use static_persistent" if problem.groups else "use clc, or static_persistent"
        return f"kernels of {arch.name} claim no tiles from a counter yet", remedy
    if not arch.tensor_memory:
        return f"kernels of {arch.name} take no tiles by cluster launch control", "use dynamic_persistent"
    if problem.groups:
        return "groups of rows make a number of tiles that no launch knows", "use static_persistent"
    return None


# What kernels of sm_100a do without so far, by candidate field, and in words.
_LACKING: dict[str, tuple[Any, str]] = {
    "load_ahead_a": (False, "loads ahead of the wait"),
    "load_ahead_b": (False, "loads ahead of the wait"),
}


def _refuse_lacking(field: str, value: Any, words: str) -> None:
    @BOOK.declare_form(LACKING, field, only="sm_100a")
    def lacking(problem: GemmProblem, c: Candidate, arch: Arch) -> Objection | None:
        if getattr(c, field) == value:
            return None
        return f"{words} are not supported yet on {arch.name}", "leave it `auto`, or use sm_90a"


LACKING = Rule(
    "sm100-knobs",
    "some knobs of sm_90a are not supported yet on sm_100a",
    "Parts of k meet in a cluster and not in global memory. Where kernels of sm_100a are transposed, pairs of a gated "
    "product would lie in lanes of tensor memory that other warps read, and so would blocks of columns and the two "
    "elements of 4 bits in a byte.",
    "arch: sm_100a\ntiling: {split_k: 2, split_k_sum: ordered_parallel}",
)


@BOOK.declare_form(LACKING, "gather", only="sm_100a")
def lacking_gather(problem: GemmProblem, c: Candidate, arch: Arch) -> Objection | None:
    if problem.gather is None or c.copies_rows:
        return None
    return f"rows that threads copy into the ring are not supported yet on {arch.name}", "use copy"


@BOOK.declare_form(LACKING, "split_k_sum", "split_k", only="sm_100a")
def lacking_scratch(problem: GemmProblem, c: Candidate, arch: Arch) -> Objection | None:
    if not c.through_scratch:
        return None
    said = f"split_k = {c.split_k} with {c.split_k_sum}: sums of parts by way of global memory are not supported yet"
    return f"{said} on {arch.name}", "use `split_k_sum: ordered_cluster`, which needs cluster [1, 1], or `split_k: 1`"


@BOOK.declare_form(LACKING, "swap_ab", only="sm_100a")
def lacking_transposed(problem: GemmProblem, c: Candidate, arch: Arch) -> Objection | None:
    program = problem.kernel_epilogue
    what = "a gated product" if problem.paired else "a value of blocks" if program.block else ""
    what = what or "an output of 4 bits" * any(o.dtype.packing > 1 for o in program.outputs)
    if not c.swap_ab or not what:
        return None
    return f"transposed, {what} is not supported yet on {arch.name}", "leave it `auto`, or use sm_90a"


for _field, (_value, _words) in _LACKING.items():
    _refuse_lacking(_field, _value, _words)
