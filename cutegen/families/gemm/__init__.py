"""The GEMM family. FAMILY is what the registry loads; everything behind it is imported when it is used."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cutegen.families.code_plan import CodePlan
    from cutegen.families.decide import Locked
    from cutegen.families.family import Family
    from cutegen.families.gemm.problem import GemmProblem
    from cutegen.families.gemm.resolved import ResolvedGemm, ResolvedGemmTiling, RowCopyKernel
    from cutegen.families.gemm.spec import GemmSpec
    from cutegen.families.resolved import Outcome, Portfolio
    from cutegen.families.section import Section
    from cutegen.families.tuned import TunedRow
    from cutegen.families.tuning import TuningSpace
    from cutegen.spec import SpecDocument


class GemmFamily:
    """See `families/family.py`."""

    @property
    def spec_model(self) -> type[GemmSpec]:
        from cutegen.families.gemm.spec import GemmSpec

        return GemmSpec

    def bind(self, spec: GemmSpec, doc: SpecDocument) -> GemmProblem:
        from cutegen.families.gemm.problem import bind

        return bind(spec, doc)

    def resolve(
        self,
        spec: GemmSpec,
        doc: SpecDocument,
        problem: GemmProblem,
        locked: Locked,
        tuned: Sequence[TunedRow] = (),
        portfolio: Portfolio | None = None,
    ) -> Outcome:
        from cutegen.families.gemm.resolve import resolve

        return resolve(spec, doc, problem, locked, tuned=tuned, portfolio=portfolio)

    def describe_problem(self, problem: GemmProblem) -> object:
        from cutegen.families.gemm.resolve import describe

        return describe(problem)

    def tuning_space(self, spec: GemmSpec, resolved: ResolvedGemm) -> TuningSpace:
        from cutegen.families.gemm.tuning import GemmSpace

        return GemmSpace(spec, resolved)

    def render(self, resolved: ResolvedGemm) -> dict[str, str]:
        from cutegen.families.gemm.rendering import render

        return render(resolved)

    def plan_code(self, resolved: ResolvedGemm, tiling: ResolvedGemmTiling | RowCopyKernel) -> CodePlan:
        from cutegen.families.gemm.code_plan import plan_code

        return plan_code(resolved, tiling)

    def explain(self, resolved: ResolvedGemm, shape: Mapping[str, int] | None) -> tuple[Section, ...]:
        from cutegen.families.gemm.explain import explain

        return explain(resolved, shape)

    def estimate(
        self, resolved: ResolvedGemm, instance: str | Mapping[str, object], shape: Mapping[str, int]
    ) -> float | None:
        from cutegen.families.gemm.explain import read_shape
        from cutegen.families.gemm.ranking import estimate_seconds

        return estimate_seconds(resolved, instance, read_shape(resolved.problem, shape))

    def why_not(self, spec: GemmSpec, resolved: ResolvedGemm, wish: str, shape: Mapping[str, int] | None) -> Section:
        from cutegen.families.gemm.why_not import why_not

        return why_not(spec, resolved, wish, shape)


FAMILY: Family = GemmFamily()
