"""The dense GEMM family. FAMILY is what the registry loads; everything behind it is imported when it is used."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cutegen.families.code_plan import CodePlan
    from cutegen.families.explanation import Section
    from cutegen.families.gemm.problem import GemmProblem
    from cutegen.families.gemm.resolved import ResolvedGemm, ResolvedGemmTiling, RowCopyKernel
    from cutegen.families.gemm.spec import GemmSpec
    from cutegen.families.resolved import Outcome
    from cutegen.families.tuned import TunedRow
    from cutegen.families.tuning import TuningSpace
    from cutegen.spec import SpecDocument


class GemmFamily:
    """What the chain asks a kernel family for."""

    name = "gemm"

    @property
    def spec_model(self) -> type[GemmSpec]:
        from cutegen.families.gemm.spec import GemmSpec

        return GemmSpec

    def bind(self, spec: GemmSpec, doc: SpecDocument) -> GemmProblem:
        """What the spec computes; SpecError with every finding about dims, tensors and expressions."""
        from cutegen.families.gemm.problem import bind

        return bind(spec, doc)

    def resolve(
        self,
        spec: GemmSpec,
        doc: SpecDocument,
        problem: GemmProblem,
        locked: Mapping[str, tuple[object, str]],
        tuned: Sequence[TunedRow] = (),
    ) -> Outcome:
        """Every number of the kernels; SpecError when the written knobs are illegal."""
        from cutegen.families.gemm.resolve import resolve

        return resolve(spec, doc, problem, locked, tuned=tuned)

    def tuning_space(self, spec: GemmSpec, resolved: ResolvedGemm) -> TuningSpace:
        """Candidates for a tuner of what the spec resolves to."""
        from cutegen.families.gemm.tuning import GemmSpace

        return GemmSpace(spec, resolved)

    def render(self, resolved: ResolvedGemm) -> dict[str, str]:
        """The text of each generated module, by file name."""
        from cutegen.families.gemm.rendering import render

        return render(resolved)

    def plan_code(self, resolved: ResolvedGemm, tiling: ResolvedGemmTiling | RowCopyKernel) -> CodePlan:
        """What one instance is planned to compile to; `build` compares it with what the compiler made."""
        from cutegen.families.gemm.code_plan import plan_code

        return plan_code(resolved, tiling)

    def explain(self, resolved: ResolvedGemm, shape: Mapping[str, int] | None) -> tuple[Section, ...]:
        """The plan in words, tables and a picture; with a shape (dim name -> extent) its roofline as well."""
        from cutegen.families.gemm.explain import explain

        return explain(resolved, shape)

    def estimate(
        self, resolved: ResolvedGemm, instance: str | Mapping[str, object], shape: Mapping[str, int]
    ) -> float | None:
        """The cost model's seconds for an instance (a tiling's name, or knobs by dotted key in place of the default's);
        None: there is no such instance."""
        from cutegen.families.gemm.explain import read_shape
        from cutegen.families.gemm.ranking import estimate_seconds

        return estimate_seconds(resolved, instance, read_shape(resolved.problem, shape))

    def explain_decisions(self, resolved: ResolvedGemm) -> Section:
        """Every knob with value, origin and reason."""
        from cutegen.families.explanation import explain_decisions

        return explain_decisions(resolved.decisions)

    def why_not(self, spec: GemmSpec, resolved: ResolvedGemm, wish: str, shape: Mapping[str, int] | None) -> Section:
        """What stands against other knob values, such as `tile=256x256 stages=3`, or what they would give."""
        from cutegen.families.gemm.why_not import why_not

        return why_not(spec, resolved, wish, shape)


FAMILY = GemmFamily()
