"""The lowering of sm_100a."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import accumulate
from typing import Any

from cutegen.families.code_plan import MmaPlan
from cutegen.families.gemm.candidate import Candidate, Core
from cutegen.families.gemm.lowering.lowering import NVGPU, Cores
from cutegen.families.gemm.lowering.sm100.cores import CLUSTERS, CORES, SCALED_CORES, list_flat_cores
from cutegen.families.gemm.lowering.sm100.pipelines import list_barriers, list_pipelines, list_roles
from cutegen.families.gemm.lowering.sm100.tensor_memory import COPIED_COLUMNS, accumulators, columns, scale_columns
from cutegen.families.gemm.problem import GemmProblem
from cutegen.families.gemm.resolved import ResolvedGemmTiling
from cutegen.families.gemm.tiling_numbers import Derived
from cutegen.model.kernel import NamedBarrier, Pipeline, Role
from cutegen.model.smem import I32, MBARRIER, SmemField

UNSET = "no setmaxnreg: a thread has what the CTA is launched with"


class Sm100:
    trigger_gain = ""
    claims_tiles = False
    clusters = CLUSTERS

    def list_cores(self, problem: GemmProblem) -> Cores:
        return SCALED_CORES if problem.packed_scales else CORES

    def list_flat_cores(self, problem: GemmProblem) -> Iterable[tuple[Core, str]]:
        return list_flat_cores(problem)

    def import_mma(self, problem: GemmProblem) -> dict[str, tuple[str, ...]]:
        return {NVGPU: (*["OperandMajorMode"] * problem.mma.takes_majors, "cpasync", "tcgen05")}

    def list_modules(self, problem: GemmProblem) -> tuple[str, ...]:
        return ("tensor_memory",)

    def explain_sums(self, tiling: ResolvedGemmTiling, d: Derived) -> tuple[str, tuple[str, ...]]:
        problem, c, n = tiling.problem, tiling.framed, tiling.numbers
        launched = problem.target.launch_registers(d.threads)
        ends = list(accumulate((n.accumulators * c.tile[1], *scale_columns(problem, c))))
        scales = (
            f"columns {first}..{end - 1}: {s.name}, scales of a k tile"
            for s, first, end in zip(problem.packed_scales, ends, ends[1:])
        )
        return "Tensor memory", (
            f"{n.accumulators} x {c.tile[1]} of {n.tmem_columns} columns allocated, "
            f"of {problem.target.tensor_memory} that there are",
            *scales,
            f"registers: {launched} a thread, as launched; an epilogue thread has {d.accumulator_registers} sums at "
            "once",
        )

    def list_roles(self, problem: GemmProblem, c: Candidate) -> tuple[Role, ...]:
        return list_roles(problem, c)

    def list_pipelines(self, problem: GemmProblem, c: Candidate, d: Derived) -> Iterator[Pipeline]:
        return list_pipelines(problem, c, d)

    def list_barriers(self, problem: GemmProblem, c: Candidate) -> tuple[NamedBarrier, ...]:
        return list_barriers()

    def list_fields(self, problem: GemmProblem, c: Candidate) -> Iterator[SmemField]:
        count = accumulators(problem, c)
        holds = f"full and empty mbarriers of {count} sum{'s' * (count > 1)} in tensor memory"
        yield SmemField("acc_barriers", MBARRIER, 2 * count, "2 * t.accumulators", holds)
        if c.mma_ctas == 2:
            yield SmemField("done_barrier", MBARRIER, 1, "1", "mbarrier: the other CTA has read its tensor memory")
        yield SmemField("tmem_address", I32, 1, "1", "where tensor memory was allocated")

    def empty_arrivals(self, c: Candidate) -> tuple[int, str]:
        peers = c.multicast_a + c.multicast_b - 1
        return peers, "tcgen05.commit by {multicast_a} + {multicast_b} - 1 products"

    def numbers(self, problem: GemmProblem, c: Candidate) -> Mapping[str, tuple[Any, str]]:
        scales = " + {scale_columns}" * bool(problem.packed_scales)
        of_scales = scales + " for scales" * bool(scales)
        return {
            **({"mma_ctas": (2, "tiling.mma_ctas")} if c.mma_ctas == 2 else {}),
            "accumulators": (
                accumulators(problem, c),
                f"2 where 2 x {{tile_n}}{scales} columns of tensor memory suffice",
            ),
            "tmem_columns": (columns(problem, c), f"accumulators x {{tile_n}}{of_scales}, up to a power of 2"),
        }

    def sources(self) -> Mapping[str, str]:
        return {
            "epilogue_tile": "the 128 lanes of tensor memory, {columns}: {widest}",
            "consumers": "one warpgroup reads tensor memory",
            "threads": "128 that load and multiply + 128 of the epilogue",
            "producer_registers": UNSET,
            "consumer_registers": UNSET,
        }

    def operand_registers(self, problem: GemmProblem, c: Candidate) -> int:
        return 0

    def set_registers(self, c: Candidate) -> tuple[int, int]:
        return 0, 0

    def count_mma_ctas(self, c: Candidate) -> int:
        return 2 if c.cluster[0] % 2 == 0 else 1

    def count_scale_copies(self, problem: GemmProblem, c: Candidate) -> int:
        return sum(scale_columns(problem, c)) // COPIED_COLUMNS

    def count_matrix_loads(self, problem: GemmProblem, c: Candidate) -> int:
        return 0

    def plan_mma(self, problem: GemmProblem, c: Candidate) -> MmaPlan:
        opcode = problem.mma.sass + ".2CTA" * (c.mma_ctas == 2)
        return MmaPlan(opcode, c.tile[2] // problem.target.mma_k(problem.a.dtype))


LOWERING = Sm100()
