"""A failing case made small: the least extents that fail, the step of the sum that is wrong first, and which knobs of
the spec the fault needs."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal, TypeAlias

from cutegen.diagnostics import CutegenError
from cutegen.families.registry import load_shrinking
from cutegen.families.shrinking import Shrinking, apply_changes
from cutegen.run.attempts import Fault
from cutegen.run.case_list import Case
from cutegen.run.shapes import Shape, shape_text
from cutegen.run.subject import Subject
from cutegen.runtime.arguments import legal_extent

MOST_TRIES = 60  # cases that are run to find a small one
Attempt: TypeAlias = Callable[[Case], "Fault | None"]
Outcome: TypeAlias = Literal["still fails", "fails otherwise", "passes", "refused"]
# Data of a spec -> what runs cases of its kernel. CutegenError: the spec is not legal, or does not compile.
OpenSpec: TypeAlias = Callable[[Mapping[str, Any]], AbstractContextManager[Attempt]]


@dataclass(frozen=True, slots=True)
class KnobResult:
    """What a plainer kernel did. detail: why it was refused, or how it fails."""

    name: str
    outcome: Outcome
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Shrunk:
    """case: the failing one. smallest, fault: what it was made to, and how that fails. tries: cases that were run.
    step: of the sum, which is wrong first; "" where it is not known. knobs: plainer kernels in the order that they were
    tried in, each on top of those that still fail; without: why none was. plainest: values by dotted key that make the
    spec's kernel the plainest that fails."""

    case: Case
    smallest: Case
    fault: Fault
    tries: int
    step: str = ""
    knobs: tuple[KnobResult, ...] = ()
    without: str = ""
    plainest: Mapping[str, object] | None = None

    def lines(self) -> Iterator[str]:
        """The report, a line each."""
        small = self.smallest
        tiling = f", tiling {small.tiling}" if small.tiling else ""
        yield f"shrunk: {self.case.name}, {self.case.mode}: {shape_text(self.case.shape)}"
        yield f"  fails from {shape_text(small.shape)} on, mode {small.mode}{tiling} ({self.tries} cases run)"
        yield from (f"  {self.fault.status}: {text}" for text in self.fault.detail[:1])
        if self.step:
            yield f"  first wrong: {self.step}"
        if self.without:
            yield f"  knobs: {self.without}"
        for result in self.knobs:
            yield f"  {result.name}: {result.outcome}{f': {result.detail}' if result.detail else ''}"
        if needed := [r.name for r in self.knobs if r.outcome == "passes"]:
            yield f"  the fault is gone with: {', '.join(needed)}"
        elif self.knobs:
            yield "  the fault is in what all kernels of the spec have: no plainer one passes"

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def choose_case(failing: Iterable[tuple[Case, Fault]]) -> tuple[Case, Fault]:
    """The one that is run soonest."""
    return min(failing, key=lambda pair: math.prod(pair[0].shape.values()))


def shrink(subject: Subject, case: Case, fault: Fault, attempt: Attempt) -> Shrunk:
    """The least extents, one dim after the other until none gets smaller, that fail with the same status; then the step
    of the sum."""
    search = _Search(case, fault, attempt)
    if case.mode != "numerics":
        search.accept(replace(case, mode="numerics"))
    before: Shape = {}
    while before != search.case.shape:
        before = dict(search.case.shape)
        for dim in before:
            _shrink_dim(subject, search, dim)
    step = _find_step(subject, search) if search.case.mode == "numerics" else ""
    return Shrunk(case, search.case, search.fault, search.tries, step)


class _Search:
    """case, fault: the least that fails so far."""

    def __init__(self, case: Case, fault: Fault, attempt: Attempt) -> None:
        self.case, self.fault, self.tries, self._attempt = case, fault, 0, attempt

    def run(self, case: Case) -> Fault | None:
        self.tries += 1
        return self._attempt(case)

    def accept(self, case: Case) -> bool:
        """Whether it fails alike; then it is the least. False, without a run, after MOST_TRIES."""
        if self.tries >= MOST_TRIES:
            return False
        found = self.run(case)
        if found is None or found.status != self.fault.status:
            return False
        self.case, self.fault = case, found
        return True


def _shrink_dim(subject: Subject, search: _Search, dim: str) -> None:
    """The least extent of a dim, where larger ones fail alike."""
    allowed, step = subject.dims[dim], subject.steps[dim]
    least = legal_extent(allowed, step, 1)

    def with_extent(extent: int) -> Case:
        return replace(search.case, shape={**search.case.shape, dim: extent})

    if search.case.shape[dim] <= least or search.accept(with_extent(least)):
        return
    passes = least
    while True:
        middle = legal_extent(allowed, step, (passes + search.case.shape[dim]) // 2)
        if not passes < middle < search.case.shape[dim]:
            middle = legal_extent(allowed, step, passes + step)
            if not passes < middle < search.case.shape[dim]:
                return
        if not search.accept(with_extent(middle)):
            passes = middle


def _find_step(subject: Subject, search: _Search) -> str:
    """The first step of the sum that is wrong, in words: with zeros behind it the result is wrong, and with zeros from
    it on it is right. "" where the family does not say."""
    shrinking = _shrinking(subject)
    if shrinking is None or subject.plan is None:
        return ""
    case = search.case
    key = case.tiling or subject.plan.dispatch(**case.shape)
    count = shrinking.count_steps(subject.plan, case.shape, key)
    if not count:
        return ""

    def wrong(kept: int) -> bool:
        found = search.run(replace(case, kept_steps=kept))
        return found is not None and found.status == search.fault.status

    last = (
        f"{shrinking.describe_step(subject.plan, case.shape, key, count - 1)}, the last of the least extent that fails"
    )
    if not shrinking.keeps:
        return last
    if wrong(0):
        return f"{last}; zeros fail as well, so it is not what is summed"
    low, high = 0, count  # right with `low` steps, wrong with `high`
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if wrong(middle) else (middle, high)
    return shrinking.describe_step(subject.plan, case.shape, key, high - 1)


def _shrinking(subject: Subject) -> Shrinking | None:
    found: Shrinking | None = load_shrinking(subject.plan.family) if subject.plan else None
    return found


def bisect_knobs(
    shrunk: Shrunk,
    subject: Subject,
    resolution: Any,
    open_spec: OpenSpec,
    on_try: Callable[[str], None] = lambda name: None,
) -> Shrunk:
    """The report with what plainer kernels of the spec do on the smallest case: each is tried on top of those that
    still fail. resolution: of the spec (resolve/chain.py)."""
    shrinking = _shrinking(subject)
    if shrinking is None:
        return replace(shrunk, without=f"family `{resolution.spec.kernel}` names no plainer kernels")
    assert subject.plan
    small = shrunk.smallest
    key = subject.plan.full_key(small.tiling or subject.plan.dispatch(**small.shape))
    changes = dict(shrinking.pin(resolution.spec, resolution.resolved, key, small.shape))
    data = resolution.document.data
    case = replace(small, tiling=None)
    base = _try("this tiling alone", apply_changes(data, changes), case, open_spec, shrunk.fault)
    if base.outcome != "still fails":
        why = f"the tiling alone {'cannot be made' if base.outcome == 'refused' else base.outcome}"
        return replace(shrunk, without=f"{why}{f': {base.detail}' if base.detail else ''}")
    results = []
    for plainer in shrinking.list_plainer(resolution.spec, resolution.resolved):
        changed, plain = apply_changes(data, changes), apply_changes(data, {**changes, **plainer.changes})
        if changed == plain:
            continue
        on_try(plainer.name)
        result = _try(plainer.name, plain, case, open_spec, shrunk.fault)
        results.append(result)
        if result.outcome == "still fails":
            changes |= plainer.changes
    return replace(shrunk, knobs=tuple(results), plainest=changes)


def _try(name: str, data: Mapping[str, Any], case: Case, open_spec: OpenSpec, fault: Fault) -> KnobResult:
    try:
        with open_spec(data) as attempt:
            found = attempt(case)
    except CutegenError as error:
        return KnobResult(name, "refused", error.message.splitlines()[0])
    if found is None:
        return KnobResult(name, "passes")
    if found.status != fault.status:
        return KnobResult(name, "fails otherwise", f"{found.status}, not {fault.status}")
    return KnobResult(name, "still fails")
