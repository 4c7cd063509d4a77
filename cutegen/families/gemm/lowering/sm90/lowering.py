"""The lowering of sm_90a."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from cutegen.arch.architecture import WARPGROUP_THREADS, WARPS_PER_WARPGROUP
from cutegen.families.code_plan import MmaPlan
from cutegen.families.gemm.candidate import Candidate, Core
from cutegen.families.gemm.derived import warpgroups_per_tile
from cutegen.families.gemm.lowering.lowering import NVGPU, Cores
from cutegen.families.gemm.lowering.sm90.cores import CLUSTERS, CORES
from cutegen.families.gemm.lowering.sm90.roles import list_roles
from cutegen.families.gemm.pipelines import list_barriers, list_pipelines
from cutegen.families.gemm.problem import GemmProblem
from cutegen.families.gemm.resolved import ResolvedGemmTiling
from cutegen.families.gemm.tiling_numbers import Derived
from cutegen.model.kernel import NamedBarrier, Pipeline, Role
from cutegen.model.smem import SmemField


class Sm90:
    trigger_gain = "3% with up to 512 rows"
    claims_tiles = True
    clusters = CLUSTERS

    def list_cores(self, problem: GemmProblem) -> Cores:
        return CORES

    def list_flat_cores(self, problem: GemmProblem) -> Iterable[tuple[Core, str]]:
        return ()

    def import_mma(self, problem: GemmProblem) -> dict[str, tuple[str, ...]]:
        return {NVGPU: (*["OperandMajorMode"] * problem.mma.takes_majors, "cpasync", "warpgroup")}

    def list_modules(self, problem: GemmProblem) -> tuple[str, ...]:
        return ("accumulator",)

    def explain_sums(self, tiling: ResolvedGemmTiling, d: Derived) -> tuple[str, tuple[str, ...]]:
        c = tiling.candidate
        rest = c.consumer_registers - d.accumulator_registers
        used = WARPGROUP_THREADS * (c.producer_registers + c.consumers * c.consumer_registers)
        launched = tiling.problem.target.launch_registers(d.threads) * d.threads
        return "Registers", (
            f"a consumer thread: {d.accumulator_registers} accumulators + {rest} for the rest = {c.consumer_registers}",
            f"the CTA: {WARPGROUP_THREADS} x ({c.producer_registers} + {c.consumers} x {c.consumer_registers}) "
            f"= {used} of the {launched} it is launched with",
        )

    def list_roles(self, problem: GemmProblem, c: Candidate) -> tuple[Role, ...]:
        return list_roles(problem, c)

    def list_pipelines(self, problem: GemmProblem, c: Candidate, d: Derived) -> Iterator[Pipeline]:
        return list_pipelines(problem, c, d)

    def list_barriers(self, problem: GemmProblem, c: Candidate) -> tuple[NamedBarrier, ...]:
        return list_barriers(problem, c)

    def list_fields(self, problem: GemmProblem, c: Candidate) -> Iterator[SmemField]:
        return iter(())

    def empty_arrivals(self, c: Candidate) -> tuple[int, str]:
        peers = c.multicast_a + c.multicast_b - 1
        source = "({multicast_a} + {multicast_b} - 1) peers x {warps}"
        return peers * WARPS_PER_WARPGROUP * warpgroups_per_tile(c), source

    def numbers(self, problem: GemmProblem, c: Candidate) -> Mapping[str, tuple[Any, str]]:
        return {}

    def sources(self) -> Mapping[str, str]:
        return {}

    def operand_registers(self, problem: GemmProblem, c: Candidate) -> int:
        return 0

    def set_registers(self, c: Candidate) -> tuple[int, int]:
        return c.producer_registers, c.consumer_registers

    def count_mma_ctas(self, c: Candidate) -> int:
        return 1

    def count_scale_copies(self, problem: GemmProblem, c: Candidate) -> int:
        return 0

    def count_matrix_loads(self, problem: GemmProblem, c: Candidate) -> int:
        return 0

    def plan_mma(self, problem: GemmProblem, c: Candidate) -> MmaPlan:
        (m, n, k), arch = c.tile, problem.target
        mma_k = arch.mma_k(problem.a.dtype)
        waves = m // arch.mma_m // warpgroups_per_tile(c)
        return MmaPlan(f"{problem.mma.sass}.{arch.mma_m}x{n}x{mma_k}", waves * (k // mma_k))


LOWERING = Sm90()
