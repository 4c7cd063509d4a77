"""The lowering of sm_90a; its candidates, numbers and texts are modules of the family."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from cutegen.arch import ARCHS
from cutegen.arch.architecture import WARPGROUP_THREADS, Arch
from cutegen.families.code_plan import CodePlan
from cutegen.families.decide import Choice
from cutegen.families.mla_decode.auto import candidates
from cutegen.families.mla_decode.candidate import Candidate
from cutegen.families.mla_decode.code_plan import plan_code
from cutegen.families.mla_decode.derived import CONSUMERS, derive, loaders
from cutegen.families.mla_decode.problem import MlaProblem
from cutegen.families.mla_decode.rendering import KernelText, kernel_text
from cutegen.families.mla_decode.resolved import ResolvedMla, ResolvedMlaTiling
from cutegen.families.mla_decode.tiling import describe_tiling
from cutegen.families.section import Section


def _free_groups(tiling: ResolvedMlaTiling) -> Section:
    rows = tuple(
        (f"k{g.buffer}", ", ".join(map(str, g.tiles)), f"consumer {g.warpgroup}", f"{g.arrivals} warps")
        for g in tiling.free_groups
    )
    lines = ("A pair of blocks is loaded in this order; each group as soon as its last reader has left it.",)
    return Section("Groups of tiles that are freed together", lines, ("buffer", "tiles", "freed by", "arrivals"), rows)


class MlaSm90:
    explain_tiles: tuple[Callable[[ResolvedMlaTiling], Section], ...] = (_free_groups,)
    # `seesaw` and `seesaw_2cta`, as the kernels of `both` are tried by themselves.
    search: Mapping[str, tuple[Any, ...]] = {
        "variant": ("seesaw", "seesaw_2cta"),
        "prefetch": (0, 1),
        "unit": (1, 2),
        "split_columns": (True, False),
        "overhead": (1, 2, 4),
        "join_ratio": (25, 100),
    }

    def candidates(self, problem: MlaProblem, fixed: Mapping[str, Any], arch: Arch) -> Iterator[Choice]:
        return candidates(problem, fixed, arch)

    def describe_tiling(self, problem: MlaProblem, c: Candidate, name: str) -> ResolvedMlaTiling:
        return describe_tiling(problem, c, name)

    def count_smem(self, problem: MlaProblem, c: Candidate) -> int:
        return derive(problem, c).smem_bytes

    def plan_code(self, resolved: ResolvedMla, tiling: ResolvedMlaTiling) -> CodePlan:
        return plan_code(resolved, tiling)

    def kernel_text(self, resolved: ResolvedMla) -> KernelText:
        return kernel_text(resolved)

    def explain_sums(self, resolved: ResolvedMla, tiling: ResolvedMlaTiling) -> Section:
        numbers, arch = tiling.numbers, ARCHS[resolved.arch]
        d = derive(resolved.problem, tiling.candidate)
        output, score = d.output_registers, d.score_registers
        producer, consumer = numbers.producer_registers, numbers.consumer_registers
        rest = consumer - output - score
        producers = loaders(resolved.problem, tiling.candidate)
        used = WARPGROUP_THREADS * (producers * producer + CONSUMERS * consumer)
        each = f"{producers} x " * (producers > 1)
        launched = arch.launch_registers(numbers.threads) * numbers.threads
        return Section(
            "Registers",
            (
                f"a consumer thread: O {output} + S {score} + {rest} for P and the rest = {consumer}",
                f"the CTA: {WARPGROUP_THREADS} x ({each}{producer} + {CONSUMERS} x {consumer}) "
                f"= {used} of the {launched} it is launched with",
            ),
        )


LOWERING = MlaSm90()
