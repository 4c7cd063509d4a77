"""The lowering of sm_100a."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from cutegen.arch import ARCHS
from cutegen.arch.architecture import Arch
from cutegen.families.code_plan import CodePlan, MmaPlan
from cutegen.families.decide import Choice
from cutegen.families.mla_decode.auto import INVARIANT
from cutegen.families.mla_decode.candidate import ANY, REGISTERS, Candidate
from cutegen.families.mla_decode.code_plan import JOIN_LOADS, VECTOR
from cutegen.families.mla_decode.lowering.sm100.derived import (
    OUT_CHUNK,
    OUT_COLUMNS,
    PAIR,
    SCORE_COLUMNS,
    STAGES,
    TMEM_COLUMNS,
    VALUE_COLUMNS,
    group_keys,
    lay_out_most,
    operands,
)
from cutegen.families.mla_decode.lowering.sm100.rules import FIXED
from cutegen.families.mla_decode.lowering.sm100.text import PairText, pair_text
from cutegen.families.mla_decode.lowering.sm100.tiling import describe
from cutegen.families.mla_decode.problem import MlaProblem
from cutegen.families.mla_decode.resolved import ResolvedMla, ResolvedMlaTiling
from cutegen.families.pdl import PDL_TRIGGER, PDL_WAIT, WHY_WAIT, why_trigger
from cutegen.families.section import Section
from cutegen.runtime.mla_decode.tiling import KEY_BLOCK

BUDGETS = "sm_100a"  # whose shared and tensor memory all architectures of this lowering have
LIKE_SM90 = "as on sm_90a; not measured"
# Knob -> value and reason; nobody has measured others.
CHOSEN: dict[str, tuple[object, str]] = {
    "variant": ("pair", "two CTAs multiply together, and each loads half of the keys, and of their columns"),
    "max_splits": (ANY, "balances the SMs; 1 makes each request's result independent of the others"),
    "overhead": (2, LIKE_SM90),
    "join_ratio": (100, LIKE_SM90),
    "pdl_wait": (PDL_WAIT, WHY_WAIT),
    "pdl_trigger": (PDL_TRIGGER, why_trigger("")),
}


class MlaSm100:
    explain_tiles: tuple[Callable[[ResolvedMlaTiling], Section], ...] = ()
    search: Mapping[str, tuple[Any, ...]] = {
        "variant": ("pair",),
        "prefetch": (FIXED["prefetch"][0],),
        "unit": (FIXED["unit"][0],),
        "split_columns": (FIXED["split_columns"][0],),
        "overhead": (1, 2, 4),
        "join_ratio": (25, 100),
    }

    def candidates(self, problem: MlaProblem, fixed: Mapping[str, Any], arch: Arch) -> Iterator[Choice]:
        """The only one."""
        values = {field: value for field, (value, _) in (*CHOSEN.items(), *FIXED.items())}
        reasons = {field: reason for field, (_, reason) in CHOSEN.items()}
        reasons |= dict.fromkeys(FIXED, "kernels of sm_100a have no other yet")
        if problem.piece:
            values |= {field: value for field, (value, _) in INVARIANT.items()}
            reasons |= {field: reason for field, (_, reason) in INVARIANT.items()}
        candidate = Candidate(**{**dict.fromkeys(REGISTERS, 0), **values, **fixed})
        yield Choice(candidate, reasons)

    def describe_tiling(self, problem: MlaProblem, c: Candidate, name: str) -> ResolvedMlaTiling:
        return describe(problem, c, name, ARCHS[BUDGETS])

    def count_smem(self, problem: MlaProblem, c: Candidate) -> int:
        return lay_out_most(problem, ARCHS[BUDGETS])[2]

    def plan_code(self, resolved: ResolvedMla, tiling: ResolvedMlaTiling) -> CodePlan:
        numbers, problem, arch, of = tiling.numbers, resolved.problem, ARCHS[resolved.arch], operands(resolved.problem)
        queries, group, mma_k = (2 if problem.q == "split" else 1), group_keys(problem), arch.mma_k(of.dtype)
        mma = arch.find_mma(of.dtype, of.dtype)
        assert mma
        columns = VALUE_COLUMNS // PAIR // of.tile
        boxes = KEY_BLOCK // group + max(1, of.value_keys // group) * columns
        # S of a tile, and O of a slot for each of its products, of which keys and columns are in no loop
        products = of.tile // mma_k + problem.latent_dim // VALUE_COLUMNS * (of.value_keys // mma_k)
        return CodePlan(
            arch=resolved.arch,
            threads=numbers.threads,
            smem_bytes=numbers.smem_bytes,
            mma=(MmaPlan(f"{mma.sass}.2CTA", of.terms * products),),
            tma_loads=boxes if problem.cache else queries + boxes,
            wide_stores=2 * OUT_CHUNK // VECTOR,  # of partial results, and of those of whole requests
            wide_loads=JOIN_LOADS,
            pdl_wait=tiling.candidate.pdl_wait,
            pdl_trigger=tiling.candidate.pdl_trigger != "none",
            mbarriers=tiling.model.count_mbarriers(),
        )

    def kernel_text(self, resolved: ResolvedMla) -> PairText:
        return pair_text(resolved)

    def explain_sums(self, resolved: ResolvedMla, tiling: ResolvedMlaTiling) -> Section:
        scores = STAGES * SCORE_COLUMNS
        launched = ARCHS[resolved.arch].launch_registers(tiling.numbers.threads)
        columns = f"{scores}..{scores + OUT_COLUMNS - 1}"
        held = "lanes 0..63 have the first half of a row, 64..127 the second"
        return Section(
            "Tensor memory",
            (
                f"columns 0..{scores - 1}: S, {STAGES} blocks x {SCORE_COLUMNS}; {held}",
                f"columns {columns}: O, {resolved.problem.latent_dim // VALUE_COLUMNS} products "
                f"x {VALUE_COLUMNS // 2}; {held} of a product",
                f"{scores + OUT_COLUMNS} of {TMEM_COLUMNS} columns allocated, of "
                f"{ARCHS[BUDGETS].tensor_memory} that there are",
                f"registers: {launched} a thread, as launched",
            ),
        )


LOWERING = MlaSm100()
