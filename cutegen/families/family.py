"""What the chain asks a kernel family for. `registry` names the families; nothing else knows them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from cutegen.families.c_entry import CEntry, Translator
from cutegen.families.code_plan import CodePlan
from cutegen.families.decide import Locked
from cutegen.families.resolved import Outcome, Portfolio
from cutegen.families.section import Section
from cutegen.families.tuned import TunedRow
from cutegen.families.tuning import TuningSpace
from cutegen.spec import KernelSpec, SpecDocument


class Family(Protocol):
    """The types of specs, problems and resolved kernels are the family's own. Asking for a member imports what it
    needs (families/lazy.py): listing families and showing help load nothing of it."""

    @property
    def spec_model(self) -> type[KernelSpec]:
        """The pydantic model of its specs."""
        ...

    def bind(self, spec: Any, doc: SpecDocument) -> Any:
        """The problem, what the spec computes; SpecError with every finding about its extents, tensors and
        expressions."""
        ...

    def resolve(
        self,
        spec: Any,
        doc: SpecDocument,
        problem: Any,
        locked: Locked,
        tuned: Sequence[TunedRow] = (),
        portfolio: Portfolio | None = None,
    ) -> Outcome:
        """Every number of the kernels; SpecError when the written knobs are illegal. portfolio: that of the lock."""
        ...

    def describe_problem(self, problem: Any) -> object:
        """The problem in plain data, for digests: equal for equal kernels and results."""
        ...

    def tuning_space(self, spec: Any, resolved: Any) -> TuningSpace | None:
        """Candidates for a tuner of what the spec resolves to; None: the family has nothing to tune."""
        ...

    def render(self, resolved: Any) -> dict[str, str]:
        """The text of each generated module, by file name. Where the model has `by_arch`, more follow, positional: what
        the spec resolves to for its other architectures."""
        ...

    def plan_code(self, resolved: Any, tiling: Any) -> CodePlan:
        """What one instance, of `built`, is planned to compile to; `build` compares it with what the compiler made."""
        ...

    def explain(self, resolved: Any, shape: Mapping[str, int] | None) -> tuple[Section, ...]:
        """The plan in words, tables and a picture; with a shape (dim name -> extent) its roofline as well."""
        ...

    def estimate(self, resolved: Any, instance: str | Mapping[str, object], shape: Mapping[str, int]) -> float | None:
        """The cost model's seconds for an instance (a tiling's name, or knobs by dotted key in place of the default's);
        None: there is no such instance, or no cost model."""
        ...

    def why_not(self, spec: Any, resolved: Any, wish: str, shape: Mapping[str, int] | None) -> Section:
        """What stands against other knob values, such as `tile=256x256 stages=3`, or what they would give."""
        ...

    def c_entry(self, plan: Any, translate: Translator) -> CEntry | str:
        """What C calls of a plan, for bundles; why there is nothing to call."""
        ...
