"""The kernels and baselines of one bench problem, bound to inputs that do not stay in L2."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Protocol

from cutegen.diagnostics import CutegenError, describe_error, suggest
from cutegen.families.proving import Baseline
from cutegen.families.registry import FAMILIES, load_proving
from cutegen.run.best_variant import bind_launches
from cutegen.run.output_check import OutputError, judge, reference_outputs
from cutegen.run.patience import Patience, TimeUp
from cutegen.run.shapes import Shape
from cutegen.run.subject import Subject, as_tuple
from cutegen.runtime.base import BasePlan

# What the launches of a candidate, one on each set of inputs and outputs, together exceed L2 by in what they read and
# write; how much of the free memory the sets may take.
L2_FACTOR, MEMORY_SHARE, MAX_SETS = 2, 0.5, 256

NO_BASELINE = "none"  # asked for as one: the targets alone


class Memory(Protocol):
    """What of a device decides how many sets of inputs there are."""

    l2_bytes: int

    def free_bytes(self) -> int: ...
    def synchronize(self) -> None: ...


@dataclass
class Candidate:
    """Something to time. launches: one call per set of inputs. results: the outputs of each set.

    subject: whose outputs these should be; None where they are not comparable. is_baseline: it is no kernel of ours;
    is_bound: nor one that computes anything.
    rival: whose baseline it is; "" for a kernel, and for a baseline that is no rival. signature: of the plan that it
    is, or is a baseline of. does: what it computes. tiling, numbers: the dispatch's choice, and what it consists of.
    flops, moved: of one launch; None where unknown. step: what a model runs once per step beside, for all its layers.
    references: those computed so far, by number of the set; candidates with the same inputs share them. sets: how many
    there were, also after they were let go.
    """

    name: str
    does: str
    launches: list[Callable[[], Any]]
    results: list[tuple[Any, ...]]
    inputs: list[tuple[Any, ...]]
    subject: Subject | None
    shape: Shape
    is_baseline: bool = False
    is_bound: bool = False
    tiling: str = ""
    numbers: Any = None
    rival: str = ""
    signature: tuple[object, ...] | None = None
    flops: int | None = None
    moved: int | None = None
    errors: list[OutputError] = field(default_factory=list)
    step: Callable[[], Any] | None = None
    references: dict[int, tuple[Any, ...]] = field(default_factory=dict)
    sets: int = 0

    def __post_init__(self) -> None:
        self.sets = len(self.inputs)

    def compares_with(self, kernel: Candidate) -> bool:
        """It is a rival's baseline of that kernel, on the same inputs; a file has none, and is compared with all."""
        return bool(self.rival) and (kernel.signature is None or kernel.signature == self.signature)

    def release(self) -> None:
        """Lets go of all tensors: the figures stay."""
        self.launches, self.results, self.inputs, self.step, self.references = [], [], [], None, {}

    def launch_all(self) -> None:
        """Every set once, into poisoned outputs."""
        self.poison()
        for launch in self.launches:
            launch()

    def poison(self) -> None:
        for index in range(len(self.results)):
            self._poison(index)

    def _poison(self, index: int) -> None:
        """NaN in the outputs of one set; what a launch updates in place gets its input's value again."""
        updated = _updated(self.subject, self.inputs[index])
        for i, tensor in enumerate(self.results[index]):
            if i in updated:
                tensor.copy_(updated[i])
            else:
                tensor.fill_(float("nan"))

    def judge(self) -> None:
        """Compares the first and the last set's outputs with the reference."""
        if self.subject is None:
            return
        self.errors = []
        for index in sorted({0, len(self.results) - 1}):
            inputs = self.inputs[index]
            if _updated(self.subject, inputs):  # it was updated by every launch since
                self._poison(index)
                self.launches[index]()
            if index not in self.references:
                self.references[index] = reference_outputs(self.subject, inputs)
            for i, (result, reference) in enumerate(zip(self.results[index], self.references[index])):
                self.errors.append(judge(i, result, reference, inputs, self.subject, self.shape)[0])

    @property
    def right(self) -> bool | None:
        """None: not compared."""
        return not any(e.mismatches for e in self.errors) if self.errors else None


def count_sets(held: int, moved: int, memory: Memory, copies: int) -> int:
    """Sets of inputs and outputs, of which what launches move exceeds L2 twice, as far as memory allows; at least 2, so
    that none stays hot.

    held, moved: bytes of a set, and those of them that a launch reads or writes: not pages and rows of nobody. copies:
    how many candidates hold sets of their own."""
    wanted = L2_FACTOR * memory.l2_bytes // max(min(held, moved), 1) + 1
    fitting = int(memory.free_bytes() * MEMORY_SHARE) // max(held * copies, 1)
    return max(2, min(wanted, fitting, MAX_SETS))


def bind_kernel(
    subject: Subject,
    shape: Shape,
    memory: Memory,
    copies: int,
    sets: int | None,
    tiling: str = "",
    alike: Sequence[Candidate] = (),
    draw: Any = None,
) -> Candidate:
    """A kernel with its rotating inputs. sets: how many, or None to follow from L2. tiling: of a plan; "" for what it
    dispatches to. alike: kernels bound before; the inputs of one that takes the same are used again, so that both have
    the same work where that depends on values. draw: what else decides the inputs, for the plan's draw_inputs."""
    signature = subject.plan.signature() if subject.plan else None
    twin = next((other for other in alike if signature and other.signature == signature), None)
    first = twin.inputs[0] if twin else subject.inputs(shape, draw)
    plan = subject.plan
    outputs = plan.allocate_outputs(*first) if plan else as_tuple(subject.kernel_fn(*first))
    size = tensor_bytes((*first, *outputs))
    roles, flops, moved = subject.roles, None, size
    if plan:
        flops, moved = plan.count_work(shape, first)
    elif roles.m and roles.n and roles.k:
        flops = 2 * shape[roles.m] * shape[roles.n] * shape[roles.k] * shape.get(roles.batch, 1)
    count = sets or count_sets(size, moved, memory, copies)
    inputs = twin.inputs if twin else [first] + [subject.inputs(shape, draw) for _ in range(count - 1)]
    key = tiling or (plan.choose_instance(first, shape) if plan else None)
    scratch = plan.allocate_scratch(*first, key=key) if plan else ()  # one for all sets, as in a model
    results: list[tuple[Any, ...]] = []
    launches: list[Callable[[], Any]] = []
    for index, values in enumerate(inputs):
        if subject.launch_fn is None:
            results.append(as_tuple(subject.kernel_fn(*values)))
            launches.append(_keeping(partial(subject.kernel_fn, *values), results, index))
        else:
            own = _make_results(plan, values) if plan else as_tuple(subject.kernel_fn(*values))
            results.append(own)
            passed = plan.place_results(values, own) if plan else (*values, *own)
            launches.append(_launching(subject.launcher(tiling) or subject.launch_fn, (*passed, *scratch)))
    tiling = tiling or (plan.dispatch(**shape) if plan else "")
    return Candidate(
        subject.name,
        "",
        launches,
        results,
        inputs,
        subject,
        shape,
        tiling=tiling,
        numbers=plan.tilings[tiling] if plan else None,
        signature=signature,
        flops=flops,
        moved=moved,
        references=twin.references if twin else {},
    )


def _make_results(plan: BasePlan, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
    """Tensors for the results of a launch: new outputs, and copies of what it updates in place."""
    copies = [v.clone() if a.name in plan.in_place else v for a, v in zip(plan.inputs, inputs)]
    return plan.order_results(copies, plan.allocate_outputs(*inputs))


def _updated(subject: Subject | None, inputs: tuple[Any, ...]) -> dict[int, Any]:
    """Of the results that a launch updates in place, by number: what they are made from."""
    plan = subject.plan if subject else None
    if plan is None:
        return {}
    held = {a.name: v for a, v in zip(plan.inputs, inputs)}
    return {i: held[o.name] for i, o in enumerate(plan.outputs) if o.name in plan.in_place}


def with_tiling(kernel: Candidate, tiling: str) -> Candidate:
    """The kernel of a plan with another tiling, on the same inputs and into the same outputs."""
    subject = kernel.subject
    assert subject is not None
    assert subject.plan is not None
    launch, plan = subject.launcher(tiling), subject.plan
    assert launch is not None
    scratch = plan.allocate_scratch(*kernel.inputs[0], key=tiling)
    passed = (plan.place_results(i, o) for i, o in zip(kernel.inputs, kernel.results))
    launches = [_launching(launch, (*values, *scratch)) for values in passed]
    numbers = plan.tilings[tiling]
    return replace(kernel, name=tiling, launches=launches, tiling=tiling, numbers=numbers, errors=[])


def bind_first_baseline(kernel: Candidate) -> Candidate:
    """What ratios refer to, on the same inputs. Raises whatever its library does; LookupError: there is none."""
    assert kernel.subject is not None
    first = next(iter(_baselines_of(kernel.subject)), None)
    if first is None:
        raise LookupError("this kernel has none")
    return _bind_baseline(first, kernel, kernel.subject, "")


def bind_baselines(
    kernel: Candidate,
    names: Sequence[str],
    seen: set[tuple[object, ...]],
    skipped: dict[str, str],
    patience: Patience,
    on_progress: Callable[[str], None],
) -> Iterator[Candidate]:
    """The baselines of a plan on the same inputs; none where those of an equal plan are already `seen`.

    skipped: gets the reason for every baseline that is left out.
    """
    subject = kernel.subject
    if subject is None or subject.plan is None or subject.plan.signature() in seen:
        return
    prefix = f"{subject.name}: " if seen else ""
    seen.add(subject.plan.signature())
    chosen, left_out = choose(_baselines_of(subject), names)
    skipped.update({prefix + name: reason for name, reason in left_out.items()})
    for baseline in chosen:
        name = prefix + baseline.name
        if name in patience.late:
            skipped[name] = f"{patience.late[name]} on an earlier problem"
            continue
        on_progress(f"{name}, which gets {patience.seconds:g} s")
        try:
            with patience.spend(name):
                bound = _bind_baseline(baseline, kernel, subject, prefix)
        except TimeUp as late:
            skipped[name] = str(late)
        except Exception as error:  # whatever a foreign library raises is the reason
            skipped[name] = describe_error(error)
        else:
            yield bound


def _bind_baseline(baseline: Baseline, kernel: Candidate, subject: Subject, prefix: str) -> Candidate:
    assert subject.plan is not None
    copied = baseline.complete and not baseline.returns
    results: list[tuple[Any, ...]] = [tuple(t.clone() for t in o) for o in kernel.results] if copied else []
    targets = results or kernel.results
    launches = bind_launches(baseline, kernel.inputs, targets)
    launches[0]()  # what the library refuses, it refuses now
    if baseline.returns:
        results = [as_tuple(launch()) for launch in launches]
        launches = [_keeping(launch, results, i) for i, launch in enumerate(launches)]
    return Candidate(
        prefix + baseline.name,
        baseline.does,
        launches,
        results,
        kernel.inputs,
        subject if baseline.complete else None,
        kernel.shape,
        is_baseline=True,
        is_bound=baseline.bound,
        rival=baseline.rival,
        signature=subject.plan.signature(),
        flops=None if baseline.bound else kernel.flops,
        moved=kernel.moved,
        step=baseline.step(kernel.inputs[0], kernel.results[0]) if baseline.step else None,
        references=kernel.references,
    )


def choose(baselines: Sequence[Baseline], names: Sequence[str]) -> tuple[list[Baseline], Mapping[str, str]]:
    """Those that were asked for (all, without names; the first one always, but for `NO_BASELINE`), and why the others
    are left out."""
    asked = {n.lower() for n in names}
    if NO_BASELINE in asked:
        return [], {}
    chosen = [b for b in baselines if not asked or _is_asked(b.name, asked) or b is baselines[0]]
    return chosen, {b.name: "not asked for" for b in baselines if b not in chosen}


def check_names(subjects: Sequence[Subject], baselines: Sequence[str], against: str) -> None:
    """CutegenError (exit 2): a baseline is asked for that no subject has, or `against` names nothing measured."""
    known = list(dict.fromkeys(b.name for s in subjects for b in _baselines_of(s)))
    short = list(dict.fromkeys(name.partition(".")[0].partition(" ")[0] for name in known))
    there = ", ".join(dict.fromkeys([*short, *known, NO_BASELINE]))
    listed = f"there are {there}" if known else "these kernels have none"
    asked = [name for name in baselines if name.lower() != NO_BASELINE]
    if asked and len(asked) < len(baselines):
        said = f"--baseline {NO_BASELINE} and --baseline {asked[0]} contradict each other"
        raise CutegenError(said, f"leave out --baseline {NO_BASELINE}, or the others", exit_code=2)
    for name in asked:
        if not any(_is_asked(b, {name.lower()}) for b in known):
            if meant := baselines_for().get(name.lower()):
                said = f"the baseline `{name}` does not fit {'this kernel' if len(subjects) == 1 else 'these kernels'}"
                raise CutegenError(f"{said}: it is for {meant}", listed, exit_code=2)
            remedy = suggest(name, [*short, *known]) or listed
            raise CutegenError(f"there is no baseline `{name}`", remedy, exit_code=2)
    names = [*(s.name for s in subjects), *known]
    if against and against.partition(" #")[0].rpartition(": ")[2] not in names:
        remedy = suggest(against, names) or f"choose from {', '.join(names)}"
        raise CutegenError(f"--against {against}: nothing of that name is measured", remedy, exit_code=2)


def _baselines_of(subject: Subject) -> list[Baseline]:
    """In the order in which they are measured; none where the plan is not known."""
    return list(subject.proving.list_baselines(subject.plan)) if subject.plan and subject.proving else []


def baselines_for() -> dict[str, str]:
    """What baselines are for that do not go with every kernel, by name: why one is not there that a caller knows."""
    found: dict[str, str] = {}
    for family in FAMILIES:
        if proving := load_proving(family, BasePlan.proving):
            for name, what in proving.baselines_for.items():
                found[name] = f"{found[name]}, and {what}" if name in found else what
    return found


def _is_asked(name: str, asked: set[str]) -> bool:
    return bool({name.lower(), name.lower().partition(".")[0], name.lower().partition(" ")[0]} & asked)


def tensor_bytes(values: Sequence[Any]) -> int:
    return sum(v.numel() * v.element_size() for v in values if hasattr(v, "element_size"))


def _launching(launch: Callable[..., Any], values: tuple[Any, ...]) -> Callable[[], Any]:
    return lambda: launch(*values)


def _keeping(launch: Callable[[], Any], results: list[Any], index: int) -> Callable[[], Any]:
    """A launch that allocates its outputs: the last ones are kept for judging."""

    def keep() -> None:
        results[index] = as_tuple(launch())

    return keep


def common_dims(subjects: Sequence[Subject]) -> Mapping[tuple[str, ...], list[Subject]]:
    """Subjects that can be compared on one problem, by the names of their dims, in the given order."""
    groups: dict[tuple[str, ...], list[Subject]] = {}
    for subject in subjects:
        groups.setdefault(tuple(sorted(subject.dims)), []).append(subject)
    return groups
