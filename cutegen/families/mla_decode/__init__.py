"""The MLA decode family. FAMILY is what the registry loads; everything behind it is imported when it is used."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cutegen.families.code_plan import CodePlan
    from cutegen.families.explanation import Section
    from cutegen.families.mla_decode.problem import MlaProblem
    from cutegen.families.mla_decode.resolved import ResolvedMla, ResolvedMlaTiling
    from cutegen.families.mla_decode.spec import MlaSpec
    from cutegen.families.resolved import Outcome
    from cutegen.families.tuned import TunedRow
    from cutegen.families.tuning import TuningSpace
    from cutegen.spec import SpecDocument


class MlaFamily:
    """What the chain asks a kernel family for."""

    name = "mla_decode"

    @property
    def spec_model(self) -> type[MlaSpec]:
        from cutegen.families.mla_decode.spec import MlaSpec

        return MlaSpec

    def bind(self, spec: MlaSpec, doc: SpecDocument) -> MlaProblem:
        """What the spec computes; SpecError with every finding about its extents."""
        from cutegen.families.mla_decode.problem import bind

        return bind(spec, doc)

    def resolve(
        self,
        spec: MlaSpec,
        doc: SpecDocument,
        problem: MlaProblem,
        locked: Mapping[str, tuple[object, str]],
        tuned: Sequence[TunedRow] = (),
    ) -> Outcome:
        """Every number of the kernel; SpecError when the written knobs are illegal."""
        from cutegen.families.mla_decode.resolve import resolve

        return resolve(spec, doc, problem, locked, tuned)

    def tuning_space(self, spec: MlaSpec, resolved: ResolvedMla) -> TuningSpace:
        """Candidates for a tuner of what the spec resolves to."""
        from cutegen.families.mla_decode.tuning import MlaSpace

        return MlaSpace(spec, resolved)

    def render(self, resolved: ResolvedMla) -> dict[str, str]:
        """The text of each generated module, by file name."""
        from cutegen.families.mla_decode.rendering import render

        return render(resolved)

    def plan_code(self, resolved: ResolvedMla, tiling: ResolvedMlaTiling) -> CodePlan:
        """What one instance is planned to compile to; `build` compares it with what the compiler made."""
        from cutegen.families.mla_decode.code_plan import plan_code

        return plan_code(resolved, tiling)

    def explain(self, resolved: ResolvedMla, shape: Mapping[str, int] | None) -> tuple[Section, ...]:
        """The plan in words, tables and a picture; with a shape (dim name -> extent) its roofline as well."""
        from cutegen.families.mla_decode.explain import explain

        return explain(resolved, shape)

    def estimate(
        self, resolved: ResolvedMla, instance: str | Mapping[str, object], shape: Mapping[str, int]
    ) -> float | None:
        """None: this family has no cost model; its candidates are in the order that was measured."""
        return None

    def explain_decisions(self, resolved: ResolvedMla) -> Section:
        """Every knob with value, origin and reason."""
        from cutegen.families.explanation import explain_decisions

        return explain_decisions(resolved.decisions)

    def why_not(self, spec: MlaSpec, resolved: ResolvedMla, wish: str, shape: Mapping[str, int] | None) -> Section:
        """What stands against other knob values, such as `variant=seesaw_2cta`, or what they would give."""
        from cutegen.families.mla_decode.explain import why_not

        return why_not(spec, resolved, wish, shape)


FAMILY = MlaFamily()
