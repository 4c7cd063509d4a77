"""Candidates of an MLA decode for one problem: its variants, and the costs by which work is cut."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product
from typing import TYPE_CHECKING

from cutegen.arch import ARCHS
from cutegen.families.decide import Choice, written_knobs
from cutegen.families.knobs import plain
from cutegen.families.mla_decode.auto import choose_instance
from cutegen.families.mla_decode.candidate import (
    BOTH,
    KEYS_ON_M,
    MAX_UNIT,
    REGISTERS,
    Candidate,
    Kernel,
    keep_single,
    list_knobs,
)
from cutegen.families.mla_decode.derived import FEW_ROWS
from cutegen.families.mla_decode.lowering import lowering_of
from cutegen.families.mla_decode.resolved import CALL_DIMS, ResolvedMla
from cutegen.families.mla_decode.rules import refusals
from cutegen.families.refusal import Refusal
from cutegen.families.resolved import dispatch
from cutegen.families.tuning import Proposal

if TYPE_CHECKING:
    from cutegen.families.mla_decode.spec import MlaSpec


FEW_CALLS: tuple[Kernel, ...] = ("seesaw", KEYS_ON_M)  # variants for calls of up to FEW_ROWS rows


class MlaSpace:
    """The TuningSpace of a spec and what it resolves to."""

    def __init__(self, spec: MlaSpec, resolved: ResolvedMla) -> None:
        self.spec, self.resolved, self.problem = spec, resolved, resolved.problem
        self.arch = ARCHS[spec.arch]
        self.knobs, self.search = list_knobs(self.arch), lowering_of(spec.arch).search
        self.along = self.problem.length
        self.dims = (*CALL_DIMS, self.along)

    @property
    def listed(self) -> Mapping[str, Sequence[object]]:
        return {
            k.key: values for k in self.knobs if k.field in self.search and (values := getattr(self.spec.tune, k.field))
        }

    def settle(self, device: str) -> None:
        """The order of candidates is that of all devices."""

    def find_default(self, problem: Mapping[str, int]) -> Candidate:
        requests, rows = self.problem.work(*(problem[dim] for dim in CALL_DIMS))
        name = dispatch(self.resolved.dispatch, {**problem, self.problem.requests: requests, "rows": rows})
        return next(t.candidate for t in self.resolved.tilings if t.name == name)

    def propose(self, problem: Mapping[str, int], unordered: bool = False) -> Iterator[Proposal]:
        """Those nearest to the default first: there is no cost model. All of them give the same bits every time."""
        default = self.find_default(problem)
        written = keep_single(written_knobs(self.spec, self.knobs), self.resolved.decided)
        few = self._variants()
        if self.resolved.variant != BOTH and not few:
            written["variant"] = self.resolved.variant
        listed = {field: getattr(self.spec.tune, field) for field in self.search}
        any_listed = bool(self.listed)
        values = {}
        for field, tried in {**self.search, **few}.items():
            own = (getattr(default, field),) if any_listed else tried
            values[field] = (written[field],) if field in written else listed[field] or own
        chosen = [dict(zip(values, combination)) for combination in product(*values.values())]
        found = [c for knobs in chosen if (c := self._with(default, knobs, written, any_listed))]
        if not any_listed:  # what nobody asked for is not to be refused either
            found = [c for c in found if c.cluster == 1 or not c.split_columns]
            if self.problem.piece:  # cut by lengths alone, so that no other cost bounds how finely
                found = [c for c in found if (c.unit, c.join_ratio) == (MAX_UNIT, default.join_ratio)]
                found = [c for c in found if not c.split_columns]
        for candidate in sorted(found, key=lambda c: sum(getattr(c, f) != getattr(default, f) for f in self.search)):
            why = "listed in the spec" if any_listed else "beside the default"
            yield Proposal(candidate, self.describe(candidate), why, tuple(self._refuse(candidate, problem)))

    def _variants(self) -> dict[str, tuple[Kernel, ...]]:
        """What `variant` may be where every call has few rows, in place of what there is to search else."""
        return {"variant": FEW_CALLS} if self.problem.rows[1] <= FEW_ROWS and not self.arch.tensor_memory else {}

    def _with(
        self, default: Candidate, knobs: Mapping[str, object], written: Mapping[str, object], listed: bool
    ) -> Candidate | None:
        """The default with other knobs; of another variant with what that needs of registers. None: it is not legal,
        and nobody asked for it."""
        changed = replace(default, **knobs)  # type: ignore[arg-type]
        if KEYS_ON_M not in (default.variant, changed.variant) or default.variant == changed.variant:
            return changed
        kept = {k.field: getattr(changed, k.field) for k in self.knobs if k.field not in REGISTERS}
        found = choose_instance(self.problem, {**kept, **written, **knobs}, self.arch)
        return found.candidate if isinstance(found, Choice) else changed if listed else None

    def renew(self, candidate: Candidate, default: Candidate) -> Candidate:
        pdl = ("pdl_wait", "pdl_trigger", "pdl_schedule_ahead", "pdl_load_ahead")
        return replace(candidate, **{field: getattr(default, field) for field in pdl})

    def describe(self, candidate: Candidate) -> Mapping[str, object]:
        return {knob.key: plain(getattr(candidate, knob.field)) for knob in self.knobs}

    def _refuse(self, c: Candidate, problem: Mapping[str, int]) -> Iterator[Refusal]:
        """What refuses it for calls of this problem: other ones may go to another kernel."""
        query_len, heads = problem["query_len"], problem["heads"]
        calls = replace(self.problem, query_len=(query_len, query_len), heads=(heads, heads))
        return refusals(calls, c, self.arch)
