"""The MLA decode family. FAMILY is what the registry loads; everything behind it is imported when it is used."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cutegen.families.code_plan import CodePlan
    from cutegen.families.decide import Locked
    from cutegen.families.family import Family
    from cutegen.families.mla_decode.problem import MlaProblem
    from cutegen.families.mla_decode.resolved import ResolvedMla, ResolvedMlaTiling
    from cutegen.families.mla_decode.spec import MlaSpec
    from cutegen.families.resolved import Outcome, Portfolio
    from cutegen.families.section import Section
    from cutegen.families.tuned import TunedRow
    from cutegen.families.tuning import TuningSpace
    from cutegen.spec import SpecDocument


class MlaFamily:
    """See `families/family.py`."""

    @property
    def spec_model(self) -> type[MlaSpec]:
        from cutegen.families.mla_decode.spec import MlaSpec

        return MlaSpec

    def bind(self, spec: MlaSpec, doc: SpecDocument) -> MlaProblem:
        from cutegen.families.mla_decode.problem import bind

        return bind(spec, doc)

    def resolve(
        self,
        spec: MlaSpec,
        doc: SpecDocument,
        problem: MlaProblem,
        locked: Locked,
        tuned: Sequence[TunedRow] = (),
        portfolio: Portfolio | None = None,
    ) -> Outcome:
        from cutegen.families.mla_decode.resolve import resolve

        return resolve(spec, doc, problem, locked, tuned)

    def describe_problem(self, problem: MlaProblem) -> object:
        from dataclasses import asdict

        return asdict(problem)

    def tuning_space(self, spec: MlaSpec, resolved: ResolvedMla) -> TuningSpace:
        from cutegen.families.mla_decode.tuning import MlaSpace

        return MlaSpace(spec, resolved)

    def render(self, resolved: ResolvedMla) -> dict[str, str]:
        from cutegen.families.mla_decode.rendering import render

        return render(resolved)

    def plan_code(self, resolved: ResolvedMla, tiling: ResolvedMlaTiling) -> CodePlan:
        from cutegen.families.mla_decode.code_plan import plan_code

        return plan_code(resolved, tiling)

    def explain(self, resolved: ResolvedMla, shape: Mapping[str, int] | None) -> tuple[Section, ...]:
        from cutegen.families.mla_decode.explain import explain

        return explain(resolved, shape)

    def estimate(
        self, resolved: ResolvedMla, instance: str | Mapping[str, object], shape: Mapping[str, int]
    ) -> float | None:
        return None  # no cost model: candidates are in the order that was measured

    def why_not(self, spec: MlaSpec, resolved: ResolvedMla, wish: str, shape: Mapping[str, int] | None) -> Section:
        from cutegen.families.mla_decode.explain import why_not

        return why_not(spec, resolved, wish, shape)


FAMILY: Family = MlaFamily()
