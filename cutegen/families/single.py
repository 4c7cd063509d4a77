"""Families whose packages have one kernel, mostly with one tiling, for a problem of declared tensors.

Such a family says what its knobs are, in which order candidates are tried, what refuses one, and which numbers it gives
the kernel; what is resolved, rendered, explained and refused follows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, TypeAlias

from cutegen.arch import ARCHS, DEVICES, Device
from cutegen.arch.architecture import Arch
from cutegen.families.argument_text import FakeArgument, Symbol, fake_argument, list_symbols
from cutegen.families.asked_knobs import answer_wish
from cutegen.families.call_text import OperandText, call_text
from cutegen.families.decide import Choice, Decided, Locked, decide, first_legal, kernel_digest, written_knobs
from cutegen.families.explanation import explain_decisions, explain_smem, read_dims, roofline_memory
from cutegen.families.knobs import Knob
from cutegen.families.package_text import package_modules
from cutegen.families.plain import describe_problem
from cutegen.families.plan_text import TilingsText, tilings_text
from cutegen.families.refusal import Refusal, RuleBook
from cutegen.families.resolved import (
    Decision,
    DeviceRow,
    DispatchRow,
    Outcome,
    Portfolio,
    ResolvedTiling,
    When,
    dispatch,
)
from cutegen.families.section import Section
from cutegen.families.tensor_problem import declared, dtype_of
from cutegen.families.tuned import Reading, TunedRow
from cutegen.model.kernel import KernelModel
from cutegen.model.smem import SmemField, lay_out
from cutegen.render.environment import render_template
from cutegen.runtime.arguments import Extent, TensorArg, tensor_bytes
from cutegen.runtime.tensor_plan import TensorPlan
from cutegen.spec import KernelSpec, SpecDocument

NAME = "default"  # of the tiling that runs what no other does


@dataclass(frozen=True, slots=True)
class SingleInstance(ResolvedTiling[Any]):
    """candidate: what gives it its numbers."""

    candidate: Any = field(kw_only=True)


@dataclass(frozen=True, slots=True)
class SingleKernel:
    """A resolved kernel. problem: a TensorProblem, or what else has dims, names, inputs, outputs and a formula.
    tilings: the default last. digest: hash of the meaning of spec and decisions. function: that the package offers."""

    family: str
    name: str
    arch: str
    device: str
    problem: Any
    candidate: Any
    tilings: tuple[SingleInstance, ...]
    dispatch: tuple[DispatchRow, ...]
    decisions: tuple[Decision, ...]
    digest: str
    function: str

    @property
    def dims(self) -> Mapping[str, Extent]:
        extents: Mapping[str, Extent] = self.problem.dims
        return extents

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self.problem.names)

    @property
    def tiling(self) -> SingleInstance:
        """The default."""
        return self.tilings[-1]

    @property
    def built(self) -> tuple[SingleInstance, ...]:
        return self.tilings

    @property
    def sample(self) -> tuple[SingleInstance, ...]:
        """One kernel of each module, the default among them: the others differ from it in numbers alone."""
        return tuple({tiling.module: tiling for tiling in self.tilings}.values())


@dataclass(frozen=True, slots=True)
class Numbers:
    """What a candidate gives the kernel. numbers: a dataclass of the family's runtime module. sources: for each field
    of it the knob, or the formula with its values. smem: fields of SharedStorage in order. module: the generated one
    that it is an instance of."""

    numbers: Any
    sources: dict[str, str]
    smem: tuple[SmemField, ...] = ()
    module: str = "kernel"

    def tiling(self, name: str, candidate: Any) -> SingleInstance:
        model = KernelModel((), (), lay_out(self.smem)[0])
        return SingleInstance(name, self.numbers, self.sources, model, module=self.module, candidate=candidate)


# (problem, fixed knobs by candidate field, arch) -> candidates with these, the best first
Candidates: TypeAlias = Callable[[Any, Mapping[str, Any], Arch], Iterator[Choice]]


@dataclass(frozen=True, slots=True)
class SingleTiling:
    """How such a family decides: `resolve`, `explain`, `why_not` and `render` are members of the family. knobs: of the
    candidate. plan: the class that generated plans derive from. folder: where `kernel.py.jinja` lies. plain: the
    problem in plain data, for digests."""

    knobs: tuple[Knob, ...]
    rules: RuleBook
    candidates: Candidates
    describe: Callable[[Any, Any], Numbers]
    plan: type[TensorPlan]
    folder: Path
    plain: Callable[[Any], Any] = describe_problem

    def _choose(
        self, problem: Any, arch: Arch, fixed: Mapping[str, Any], device: Device
    ) -> Choice | tuple[Refusal, ...]:
        choices = self.candidates(problem, fixed, arch)
        return first_legal(choices, lambda candidate: self.rules.refusals(problem, candidate, arch))

    def resolve(
        self,
        spec: KernelSpec,
        doc: SpecDocument,
        problem: Any,
        locked: Locked,
        tuned: Sequence[TunedRow] = (),
        portfolio: Portfolio | None = None,
    ) -> Outcome:
        """SpecError with every finding when the written knobs are illegal."""
        arch = ARCHS[spec.arch]
        decided = decide(spec, doc, self.knobs, locked, lambda *of: self._choose(problem, arch, *of), (), "kernel")
        instances = self.instances(problem, decided.candidate, decided.device)
        read = self.read_tuned(spec, problem, decided, tuned)
        tilings, names = self.join_tuned(
            problem,
            decided.candidate,
            tuple(own.tiling(name, self.own_candidate(decided.candidate, own)) for name, (_, own) in instances.items()),
            [c for _, c in read.kept],
        )
        measured = tuple(DeviceRow(row.when, names[c], row.device) for row, c in read.kept if row.device)
        plain: Any = self.plain(problem)
        resolved = SingleKernel(
            family=spec.kernel,
            name=doc.name,
            arch=spec.arch,
            device=decided.device.name,
            problem=problem,
            candidate=decided.candidate,
            tilings=tilings,
            dispatch=(
                *measured,
                *(DispatchRow(when, name) for name, (when, _) in instances.items() if when is not None),
            ),
            decisions=decided.decisions,
            digest=kernel_digest(spec, doc.name, plain, decided.decisions, *(t.numbers for t in tilings), *measured),
            function=spec.function or doc.name,
        )
        return Outcome(resolved, decided.notes, read.unfit, {row.name: names[c] for row, c in read.kept})

    def read_tuned(self, spec: KernelSpec, problem: Any, decided: Decided, tuned: Sequence[TunedRow]) -> Reading:
        """Winners of a lock. A family that is not tuned has none."""
        return Reading((), dict.fromkeys(range(len(tuned)), f"`{spec.kernel}` is not tuned"))

    def own_candidate(self, candidate: Any, own: Numbers) -> Any:
        """What a tuner calls one tiling of a candidate that gives several."""
        return candidate

    def join_tuned(
        self, problem: Any, candidate: Any, tilings: tuple[SingleInstance, ...], tuned: Sequence[Any]
    ) -> tuple[tuple[SingleInstance, ...], Mapping[Any, str]]:
        """The tilings of a candidate and those of `tuned` ones, before them; and the name of each of the latter."""
        return tilings, {}

    def instances(self, problem: Any, candidate: Any, device: Device) -> Mapping[str, tuple[When | None, Numbers]]:
        """The tilings of a candidate by name, and which calls run each: the first that holds, the default last. None:
        those that leave out operands, and would else run another."""
        return {NAME: ((), self.describe(problem, candidate))}

    def facts(self, problem: Any, dims: Mapping[str, int]) -> Mapping[str, int]:
        """What decides which tiling a call runs; dims: its extents."""
        return dims

    def explain(self, resolved: SingleKernel, shape: Mapping[str, int] | None) -> tuple[Section, ...]:
        """Tensors, shared memory and decisions; with a shape the time that its bytes take at least."""
        p, args = resolved.problem, (*resolved.problem.inputs, *resolved.problem.outputs)
        sections = list(self.explain_problem(resolved))
        if resolved.tiling.model.smem:
            sections.append(explain_smem(resolved.arch, resolved.tiling))
        if shape is not None:
            device, dims = DEVICES[resolved.device], read_dims(p.dims, shape)
            said = " ".join(f"{name}={extent}" for name, extent in dims.items())
            rows = roofline_memory(device, tensor_bytes(args, dims))
            if len(resolved.tilings) > 1:
                rows = (("runs", dispatch(resolved.dispatch, self.facts(p, dims))), *rows)
            sections.append(Section(f"{said} on {device.name} (data-sheet rates)", (), ("", ""), rows))
        return (*sections, explain_decisions(resolved.decisions))

    def explain_problem(self, resolved: SingleKernel) -> Iterator[Section]:
        """Tensors by role, and numbers."""
        p, title = resolved.problem, f"{resolved.name}: {resolved.family} for {resolved.arch}"
        own = [a.name for a in (*p.inputs, *p.outputs)]
        rows = tuple(
            (role, f"{name}: {declared(p.tensor(role), p.dims)}") for role, name in p.roles.items() if name in own
        )
        numbers = tuple((name, repr(value)) for name, value in p.numbers.items())
        yield Section(title, (), ("is", "tensor"), rows + numbers)

    def why_not(self, spec: KernelSpec, resolved: SingleKernel, wish: str, shape: Mapping[str, int] | None) -> Section:
        """What stands against other knob values, or what they would change; see `answer_wish`."""
        p, arch = resolved.problem, ARCHS[resolved.arch]

        def compare(now: Any, then: Any) -> list[tuple[str, str, str]]:
            before, after = (self.describe(p, candidate).numbers for candidate in (now, then))
            names = [f.name for f in fields(before) if f.name not in [knob.field for knob in self.knobs]]
            return [(name, str(getattr(before, name)), str(getattr(after, name))) for name in names]

        def choose(fixed: Mapping[str, Any], device: Device) -> Choice | tuple[Refusal, ...]:
            return self._choose(p, arch, fixed, device)

        device, written = DEVICES[resolved.device], written_knobs(spec, self.knobs)
        return answer_wish(wish, resolved.candidate, self.knobs, device, choose, written, compare, lambda _, n: n)

    def render(self, resolved: SingleKernel) -> dict[str, str]:
        """The text of the package's modules, by file name."""
        p = resolved.problem
        operands, results = (
            [OperandText(a.name, f"{declared(a, p.dims)}, row-major") for a in side] for side in (p.inputs, p.outputs)
        )
        return package_modules(
            resolved,
            call=call_text(resolved.function, operands, results, [r.name for r in results]),
            template="_shared/plan.py.jinja",
            plan=self._plan_text,
            kernels=lambda r: {"kernel.py": render_template("kernel.py.jinja", self.folder, k=_kernel_text(r))},
        )

    def _plan_text(self, resolved: SingleKernel) -> PlanText:
        p = resolved.problem
        numbers = type(resolved.tiling.numbers)
        modules = sorted({self.plan.__module__, numbers.__module__})
        own = {m: sorted(c.__name__ for c in (self.plan, numbers) if c.__module__ == m) for m in modules}
        return PlanText(
            name=resolved.name,
            arch=resolved.arch,
            formula=p.formula,
            imports=tuple(f"from {module} import {', '.join(names)}" for module, names in own.items()),
            plan=self.plan.__name__,
            family=resolved.family,
            dims=p.dims,
            inputs=p.inputs,
            outputs=p.outputs,
            roles=p.roles,
            numbers=p.numbers,
            tilings=tilings_text(resolved.tilings),
        )


@dataclass(frozen=True, slots=True)
class PlanText:
    """What _shared/plan.py.jinja, init.py.jinja and main.py.jinja read. imports: of the classes of plan and tiling."""

    name: str
    arch: str
    formula: str
    imports: tuple[str, ...]
    plan: str
    family: str
    dims: Mapping[str, Extent]
    inputs: tuple[TensorArg, ...]
    outputs: tuple[TensorArg, ...]
    roles: Mapping[str, str]
    numbers: Mapping[str, float]
    tilings: TilingsText


@dataclass(frozen=True, slots=True)
class KernelText:
    """What a family's kernel.py.jinja reads as k. tiling, module: the class of the numbers, and where it is. dtype: in
    cutlass, by role of the tensor; dtypes: all of them, and those that every kernel needs. symbols, fakes: see
    _shared/fake_arguments.py.jinja; model: _shared/shared_storage.py.jinja. names: of the tensors, in order of a call.
    """

    name: str
    title: str
    tiling: str
    module: str
    dtype: dict[str, str]
    dtypes: tuple[str, ...]
    symbols: tuple[Symbol, ...]
    fakes: tuple[FakeArgument, ...]
    names: tuple[str, ...]
    numbers: dict[str, float]
    model: KernelModel


def _kernel_text(resolved: SingleKernel) -> KernelText:
    p, numbers = resolved.problem, type(resolved.tiling.numbers)
    args = (*p.inputs, *p.outputs)
    dtypes = {role: dtype_of(a).cutlass for role, name in p.roles.items() for a in args if a.name == name}
    return KernelText(
        name=resolved.name,
        title=f"{p.formula}, for {resolved.arch}.",
        tiling=numbers.__name__,
        module=numbers.__module__,
        dtype=dtypes,
        dtypes=tuple(sorted({*dtypes.values(), "Float32", "Int32"})),
        symbols=tuple(list_symbols(p.dims, args)),
        fakes=tuple(fake_argument(f"{a.name}: {declared(a, p.dims)}", dtype_of(a), a, p.dims) for a in args),
        names=tuple(a.name for a in args),
        numbers=p.numbers,
        model=resolved.tiling.model,
    )
