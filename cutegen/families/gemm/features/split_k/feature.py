"""What splitting k adds to a GEMM, seam by seam. Each CTA computes one part of a tile's k; with `ordered_cluster` the
parts are the CTAs of a cluster, which hand sums to one another through shared memory, else they go through scratch."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from cutegen.arch import Arch, Device
from cutegen.arch.architecture import ACCESS_BYTES, WARPGROUP_THREADS, WARPS_PER_WARPGROUP
from cutegen.families.gemm.candidate import Candidate, Core, cluster_size
from cutegen.families.gemm.cost_model import Shape, Work
from cutegen.families.gemm.derived import accumulators, epilogue_tile, part_registers, subtiles, warpgroups_per_tile
from cutegen.families.gemm.features.feature import Buffer, Feature, Settling
from cutegen.families.gemm.features.split_k.choice import (
    MOST_IN_CLUSTER,
    SPLIT_MARGIN,
    choose_sum,
    say_why,
    split_evenly,
    split_in_clusters,
    split_through_scratch,
)
from cutegen.families.gemm.features.split_k.knobs import IN_PLACES, SPLIT_K_SUMS, UNORDERED
from cutegen.families.gemm.problem import GemmProblem
from cutegen.model.kernel import Pipeline, Warps
from cutegen.model.smem import MBARRIER, Element, SmemField, SmemRegion
from cutegen.runtime.gemm.cost_model import PARTIAL_BYTES

# On top of accumulators: in a cooperative schedule, and in pingpong where scales vary along k (one is fetched ahead).
REGISTERS, SCALE_REGISTERS = 8, 16
SUM_IS = {
    "ordered_turnstile": "each part adds to the sum of those before it; the same bits every time",
    "ordered_parallel": "each part has a place of its own and the last one adds all; the same bits every time",
    "ordered_cluster": "parts are CTAs of a cluster and meet in shared memory; the same bits every time",
    "unordered_atomic": "parts add atomically, as they come; bits may differ from run to run",
}
FINISHES = "the CTA of a tile's last part finishes it; it waits for those before, never for later ones"
FINISHES_IN_CLUSTER = "each CTA finishes its share of a tile's subtiles; they wait for one another"
GIVEN = "sum_given"  # the field of shared memory with what other CTAs give


class SplitKFeature(Feature):
    register_knobs = ("split_k",)
    smem_knobs = ("exchanging",)

    # -- what is proposed, ranked and chosen --

    def propose(
        self, problem: GemmProblem, fixed: Mapping[str, Any], core: Core, works: Sequence[Work], device: Device
    ) -> Iterator[Core]:
        if "split_k" not in fixed and problem.groups is None:
            yield from split_evenly(core, works, device)

    def propose_in_portfolio(
        self, problem: GemmProblem, fixed: Mapping[str, Any], core: Core, shape: Shape, device: Device
    ) -> Iterator[Core]:
        if "split_k" not in fixed and problem.groups is None and not problem.batch_invariant:
            yield from split_in_clusters(core, shape, device.sms)
            yield from split_through_scratch(core, shape, device)

    def propose_unrated(self, problem: GemmProblem, core: Core, shape: Shape, sms: int) -> Iterator[tuple[Core, str]]:
        if problem.groups is None and not problem.batch_invariant:
            for split in reversed(list(split_in_clusters(core, shape, sms))):
                yield split, f"{split.split_k} parts of k make use of more SMs"

    def fixed_where_open(self, problem: GemmProblem) -> Mapping[str, Any]:
        # How many parts of k pay depends on all extents, and a split where none does costs scratch.
        return {"split_k": 1} if problem.groups is None else {}

    def sketch(self, problem: GemmProblem, c: Candidate, arch: Arch) -> Candidate:
        return c if c.split_k == 1 else c.vary(split_k_sum=choose_sum(problem, c, arch)[0])

    def sketch_smem(self, core: Core) -> int:
        m, n, _ = core.tile
        return m * n * PARTIAL_BYTES if 1 < core.split_k <= MOST_IN_CLUSTER else 0  # of the other parts in a cluster

    def handicap(self, c: Candidate) -> int:
        return SPLIT_MARGIN if c.through_scratch else 0

    def ctas_per_tile(self, c: Candidate | Core) -> int:
        return c.split_k

    def settle(self, settling: Settling) -> None:
        problem, c = settling.problem, settling.c
        settling.settle(say_why(problem, c, settling.shapes), split_k=c.split_k)
        how, why = choose_sum(problem, c, settling.arch, settling.fits)
        settling.settle(why, split_k_sum=how)

    def kind(self, c: Candidate) -> object:
        return c.split_k > 1

    def vary(self, problem: GemmProblem, c: Candidate, arch: Arch, unordered: bool) -> Iterator[dict[str, Any]]:
        if c.split_k > 1:
            others = (s for s in SPLIT_K_SUMS if s != c.split_k_sum and (unordered or s != UNORDERED))
            yield from ({"split_k_sum": s} for s in others)

    # -- what a kernel has --

    def consumer_registers(self, problem: GemmProblem, c: Candidate) -> int:
        if c.split_k == 1:
            return 0
        return REGISTERS if c.schedule == "cooperative" else SCALE_REGISTERS if problem.scaled_k else 0

    def list_barriers(self, c: Candidate) -> Iterator[SmemField]:
        if c.in_cluster:
            yield SmemField("sum_barriers", MBARRIER, 2, "2", "mbarriers of sums: given and taken")

    def list_buffers(self, problem: GemmProblem, c: Candidate) -> Iterator[SmemField]:
        """Sums that the other parts of a product store in this CTA."""
        if not c.in_cluster:
            return
        (sub_m, sub_n), count, element = epilogue_tile(problem, c), given_subtiles(problem, c), problem.mma.accumulator
        halves = [" // 2" * (problem.paired_dim == dim) for dim in "mn"]
        m, n = (f"(t.tile[{i}]{half} // t.epilogue_tile[{i}])" for i, half in enumerate(halves))
        pair = ", 2" * bool(problem.paired_dim)
        source = f"cluster_sum.elements(t.epilogue_tile, {m} * {n}, t.split_k{pair})"
        holds = f"{element} ({sub_m}, {sub_n}) x {count} sums of other parts"
        yield SmemField(GIVEN, Element.of(element), sub_m * sub_n * count, source, holds, ACCESS_BYTES)

    def list_pipelines(
        self, problem: GemmProblem, c: Candidate, smem: Sequence[SmemRegion], consumers: str, warps: tuple[Warps, ...]
    ) -> Iterator[Pipeline]:
        if c.in_cluster:
            size = next(region.bytes for region in smem if region.name == GIVEN)
            others = WARPS_PER_WARPGROUP * warpgroups_per_tile(c) * (c.split_k - 1)
            full, empty = (f"{others} warps of other CTAs have {done}" for done in ("stored", "read"))
            yield Pipeline("sum", "Cluster", "those of the other CTAs", consumers, 1, size, full, empty, warps, warps)

    def finishes(self, c: Candidate) -> str:
        return " of its share" * c.in_cluster

    def numbers(self, problem: GemmProblem, c: Candidate) -> Mapping[str, tuple[Any, str]]:
        return {"split_k": (c.split_k, "tiling.split_k")} if c.split_k > 1 else {}

    def scratch(self, problem: GemmProblem, c: Candidate) -> Iterator[Buffer]:
        if c.through_scratch:
            elements = c.tile[0] * c.tile[1] * cluster_size(c) * partial_tiles(c)
            source = "f32 {tile_m} x {tile_n} x {ctas} x {partials} for each cluster tile"
            yield Buffer("sums" if c.split_k_sum == UNORDERED else "workspace", (0, elements), source)
            yield Buffer("semaphores", (0, cluster_size(c)), "{counters} for each cluster tile")

    def terms(self, problem: GemmProblem, c: Candidate) -> Mapping[str, tuple[object, str]]:
        return {
            "partials": (partial_tiles(c), "tiles of partial sums"),
            "counters": (cluster_size(c), "CTAs of a cluster"),
        }

    def atomics(self, problem: GemmProblem, c: Candidate) -> int:
        """One publication of partial sums; additions of four values."""
        return c.through_scratch + (sums(problem, c) // 4 if c.split_k_sum == UNORDERED else 0)

    def cluster_stores(self, problem: GemmProblem, c: Candidate) -> int:
        return sums(problem, c) // 4 if c.in_cluster else 0

    # -- what is said of it --

    def describe(self, c: Candidate) -> str:
        return f"k in {c.split_k} parts" if c.split_k > 1 else ""

    def explain(self, c: Candidate) -> tuple[str, ...]:
        if c.split_k == 1:
            return ()
        how = f"{self.describe(c)}, {c.split_k_sum}: {SUM_IS[c.split_k_sum]}"
        return how, FINISHES_IN_CLUSTER if c.in_cluster else FINISHES

    def rank_columns(self, c: Candidate) -> Mapping[str, str]:
        return {"split_k": str(c.split_k)}

    def note_ranking(self, shown: Sequence[Candidate], written: Collection[str]) -> tuple[str, ...]:
        if any(c.through_scratch for c in shown) and "split_k" not in written:
            return (f"`auto` splits k through scratch only where that gains over {SPLIT_MARGIN}%",)
        return ()


def given_subtiles(problem: GemmProblem, c: Candidate) -> int:
    """Subtiles of sums that other CTAs of the cluster give a CTA, as device/cluster_sum.py has them: two for each of
    the output where pairs of sums make an element."""
    return -(-subtiles(problem, c) // c.split_k) * (c.split_k - 1) * (2 if problem.paired else 1)


def partial_tiles(c: Candidate) -> int:
    """Tiles of partial sums that an output tile keeps in global memory."""
    if not c.through_scratch:
        return 0
    return c.split_k - 1 if c.split_k_sum == IN_PLACES else 1


def sums(problem: GemmProblem, c: Candidate) -> int:
    """That a thread has of a tile, without those of the part that is being promoted."""
    if problem.target.tensor_memory:
        return c.tile[0] * c.tile[1] // WARPGROUP_THREADS
    return accumulators(problem, c) - part_registers(problem, c)
