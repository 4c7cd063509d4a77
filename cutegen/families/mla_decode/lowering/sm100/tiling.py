"""The kernel of a pair as a ResolvedMlaTiling: its numbers, where each comes from, SMEM map, pipelines and roles."""

from __future__ import annotations

from collections.abc import Iterator

from cutegen.arch.architecture import WARPS_PER_WARPGROUP, Arch
from cutegen.families.mla_decode.candidate import Candidate
from cutegen.families.mla_decode.knob_numbers import describe_numbers
from cutegen.families.mla_decode.lowering.sm100.derived import (
    CORRECTION,
    KEYS,
    LOAD_WARP,
    MEET_WARP,
    MMA_WARP,
    PAIR,
    SLOT_BYTES,
    SOFTMAX,
    STAGES,
    THREADS,
    lay_out_most,
    list_mbarriers,
    list_named_barriers,
    operands,
)
from cutegen.families.mla_decode.problem import MlaProblem
from cutegen.families.mla_decode.resolved import ResolvedMlaTiling
from cutegen.model.kernel import Event, KernelModel, Pipeline, Role
from cutegen.runtime.mla_decode.tiling import ROW_BLOCK

REQUEST, BLOCK = "each request", "each block"


def describe(problem: MlaProblem, c: Candidate, name: str, arch: Arch) -> ResolvedMlaTiling:
    stages, regions, smem_bytes = lay_out_most(problem, arch)
    launched = "no setmaxnreg: a thread has what the CTA is launched with"
    own = {
        "threads": (THREADS, "32 x (4 softmax, 4 correction, MMA, load and meet warps)"),
        "producer_registers": (c.producer_registers, launched),
        "consumer_registers": (c.consumer_registers, launched),
        "smem_bytes": (smem_bytes, "end of sP, rounded up to 1024"),
        "stages": (stages, "the most that fit SMEM next to Q and P"),
    }
    numbers, sources = describe_numbers(problem, c, own)
    return ResolvedMlaTiling(
        name=name,
        numbers=numbers,
        sources=sources,
        model=KernelModel(
            roles=_roles(problem),
            pipelines=tuple(_pipelines(problem, stages)),
            smem=regions,
            mbarriers=list_mbarriers(problem, stages),
            barriers=list_named_barriers(problem),
        ),
        candidate=c,
        free_groups=(),
        q_bytes=_q_bytes(problem),
        tile_bytes=SLOT_BYTES,
    )


def _q_bytes(problem: MlaProblem) -> int:
    of = operands(problem)
    return ROW_BLOCK * problem.head_dim * of.terms * of.dtype.bytes


def _pipelines(problem: MlaProblem, stages: int) -> Iterator[Pipeline]:
    both, warps = "1 arrival by tcgen05.commit at both CTAs", WARPS_PER_WARPGROUP
    slot, q, row, of = SLOT_BYTES, _q_bytes(problem), 4 * ROW_BLOCK, operands(problem)

    def landed(size: int) -> str:
        return f"1 arrival and {PAIR * size} bytes by TMA, to both CTAs, at the first one"

    of_both = f"{PAIR * warps} warps of both CTAs arrive at the first one"
    scored = "with s full of the block after the next, as its scores are issued behind P V of this one"
    if problem.cache:
        last = "with s full of a request's last block"
        yield Pipeline("q", "AsyncUmma", "softmax warps", "MMA warp", 1, q, of_both, last, (SOFTMAX,), (MMA_WARP,),
                       own_empty=False)  # fmt: skip
    else:
        yield Pipeline("q", "TmaUmma", "load warp", "MMA warp", 1, q, landed(q), both, (LOAD_WARP,), (MMA_WARP,))
    yield Pipeline(
        "kv", "TmaUmma", "load warp", "MMA warp", stages, slot, landed(slot), both, (LOAD_WARP,), (MMA_WARP,)
    )
    yield Pipeline("s", "UmmaAsync", "MMA warp", "softmax warps", STAGES, row * KEYS, both,
                   "with p full, as P is stored behind them", (MMA_WARP,), (SOFTMAX,), own_empty=False)  # fmt: skip
    yield Pipeline("fade", "mbarrier", "softmax warps", "correction warps", STAGES, row,
                   f"{warps // 2} warps arrive, those of the first halves", scored,
                   (SOFTMAX,), (CORRECTION,), own_empty=False)  # fmt: skip
    yield Pipeline("p", "AsyncUmma", "softmax warps", "MMA warp", STAGES, ROW_BLOCK * KEYS * of.terms * of.dtype.bytes,
                   of_both, scored, (SOFTMAX,), (MMA_WARP,), own_empty=False)  # fmt: skip
    yield Pipeline("o", "UmmaAsync", "MMA warp", "correction warps", 1, row * problem.latent_dim, both, of_both,
                   (MMA_WARP,), (CORRECTION,))  # fmt: skip
    yield Pipeline("sum", "mbarrier", "softmax warps", "correction warps", 1, 3 * row, f"{warps} warps arrive",
                   f"{warps} warps arrive", (SOFTMAX,), (CORRECTION,))  # fmt: skip


def _events(*steps: tuple[str, str]) -> tuple[Event, ...]:
    """Of (how often, `<what` that is waited for or `>what` that is signalled)."""
    return tuple(Event(each, what[0] == "<", what[1:]) for each, what in steps)


def _roles(problem: MlaProblem) -> tuple[Role, ...]:
    of_q = ((REQUEST, "<q empty"), (REQUEST, ">q full"))
    of_softmax: tuple[tuple[str, str], ...] = ()
    of_load: tuple[tuple[str, str], ...] = of_q
    converts, loads = "", "Q of each request, "
    if problem.cache:
        of_softmax, of_load = ((REQUEST, ">q full"), (REQUEST, "<EXCHANGED_0")), ()
        converts, loads = "Q of each request, as terms of e4m3, and ", ""
    scores, product = ((BLOCK, "<kv full"), (BLOCK, ">kv empty"), (BLOCK, ">s full")), (
        (BLOCK, "<o empty"), (BLOCK, "<p full"), (BLOCK, "<kv full"), (BLOCK, ">kv empty"), (BLOCK, ">o full"),
    )  # fmt: skip
    softmax = ((BLOCK, "<s full"), (BLOCK, "<EXCHANGED_0"), (BLOCK, ">fade full"), (BLOCK, ">p full"),
               (REQUEST, "<sum empty"), (REQUEST, ">sum full"), ("", "<MET"))  # fmt: skip
    correct = ((BLOCK, "<fade full"), (BLOCK, "<o full"), (BLOCK, ">o empty"),
               (REQUEST, "<sum full"), (REQUEST, ">sum empty"), ("", "<MET"))  # fmt: skip
    return (
        Role(
            SOFTMAX, 0, f"{converts}P of each block from its scores, to SMEM; then join the parts of cut requests",
            _events(*of_softmax, *softmax),
        ),
        Role(
            CORRECTION, 0,
            "rescale O in tensor memory where a row's reference has moved; write the result of each request; then join "
            "the parts of cut requests", _events(*correct),
        ),
        Role(
            MMA_WARP, 0,
            "allocates tensor memory; in the first CTA: S = Q K^T of each block, then O += P V of the one before",
            _events((REQUEST, "<q full"), *scores, *product, *(() if problem.cache else ((REQUEST, ">q empty"),))),
        ),
        Role(
            LOAD_WARP, 0,
            f"loads {loads}half of the keys of each block as K, and half of their columns as V",
            _events(*of_load, (BLOCK, "<kv empty"), (BLOCK, ">kv full")),
        ),
        Role(
            MEET_WARP, 0,
            "finds the pair's part of the work; then which pairs share its requests, and whether they are resident",
            _events(("", ">MET")),
        ),
    )  # fmt: skip
