"""Candidates of a GEMM for one problem: the combinations that the spec lists, or what the cost model ranks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import product
from typing import TYPE_CHECKING, Any

from cutegen.arch import ARCHS, DEVICES
from cutegen.families.decide import Choice, written_knobs
from cutegen.families.gemm.auto import choose
from cutegen.families.gemm.candidate import Candidate, idle_knobs, knobs_of
from cutegen.families.gemm.cost_model import Shape
from cutegen.families.gemm.invariance import other_sum
from cutegen.families.gemm.ranking import rank_picks
from cutegen.families.gemm.resolved import ResolvedGemm
from cutegen.families.gemm.search_space import explore
from cutegen.families.knobs import Knob, plain, show
from cutegen.families.refusal import Refusal
from cutegen.families.tuning import Proposal
from cutegen.runtime.device_rates import is_named

if TYPE_CHECKING:
    from cutegen.families.gemm.spec import GemmSpec


class GemmSpace:
    """The TuningSpace of a spec and what it resolves to, whose device's cost model orders candidates."""

    def __init__(self, spec: GemmSpec, resolved: ResolvedGemm) -> None:
        self.spec, self.problem, self.default = spec, resolved.problem, resolved.default.candidate
        self.resolved = resolved
        self.device, self.arch = DEVICES[resolved.device], ARCHS[spec.arch]

    @property
    def dims(self) -> tuple[str, ...]:
        return tuple(d.name for d in self.problem.dispatch_dims)

    @property
    def along(self) -> str:
        return self.problem.m.name

    @property
    def listed(self) -> Mapping[str, Sequence[object]]:
        return {k.key: values for k in self._knobs if (values := getattr(self.spec.tune, k.short))}

    @cached_property
    def _knobs(self) -> tuple[Knob, ...]:
        return knobs_of(self.problem)

    @cached_property
    def _written(self) -> dict[str, Any]:
        return written_knobs(self.spec, self._knobs)

    def settle(self, device: str) -> None:
        self.device = next((d for name, d in DEVICES.items() if is_named(device, name)), self.device)

    def find_default(self, problem: Mapping[str, int]) -> Candidate:
        if len(self.resolved.picks) < 2:
            return self.default
        name, _ = rank_picks(self.resolved, self._shape(problem), self.device)[0]
        return next(t.candidate for t in self.resolved.tilings if t.name == name)

    def _shape(self, problem: Mapping[str, int]) -> Shape:
        p = self.problem
        return Shape(*(problem[d.name] for d in (p.m, p.n, p.k, p.batch) if d))

    def propose(self, problem: Mapping[str, int], unordered: bool = False) -> Iterator[Proposal]:
        _ = self.device.known_rates  # what orders candidates
        shape = self._shape(problem)
        listed = {k.field: self.listed[k.key] for k in self._knobs if k.key in self.listed}
        seen: set[Candidate] = set()
        for proposal in self._combinations(listed, shape) if listed else self._ranked(shape, unordered):
            if proposal.candidate not in seen:
                seen.add(proposal.candidate)
                yield proposal

    def renew(self, candidate: Candidate, default: Candidate) -> Candidate:
        return replace(candidate, pdl_wait=default.pdl_wait, pdl_trigger=default.pdl_trigger)

    def describe(self, candidate: Candidate) -> Mapping[str, object]:
        idle = idle_knobs(self.problem, candidate)
        return {k.key: plain(getattr(candidate, k.field)) for k in self._knobs if k.field not in idle}

    def _ranked(self, shape: Shape, unordered: bool) -> Iterator[Proposal]:
        for found in explore(self.problem, self._written, self.arch, self.device, shape, unordered, self._refuse):
            clocks = float(found.time.clocks) if found.time else None
            yield Proposal(found.candidate, self.describe(found.candidate), found.why, found.refusals, clocks)

    def _combinations(self, listed: Mapping[str, Sequence[Any]], shape: Shape) -> Iterator[Proposal]:
        for values in product(*listed.values()):
            fixed = {**self._written, **dict(zip(listed, values))}
            result = choose(self.problem, fixed, self.arch, self.device, (shape,), self._refuse)
            if isinstance(result, Choice):
                yield Proposal(result.candidate, self.describe(result.candidate), "listed in the spec", ())
            else:
                keys = {k.field: k.key for k in self._knobs}
                knobs = {keys[field]: plain(value) for field, value in zip(listed, values)}
                text = ", ".join(f"{key} {show(value)}" for key, value in knobs.items())
                yield Proposal(text, knobs, "listed in the spec", result)

    def _refuse(self, candidate: Candidate) -> Refusal | None:
        return other_sum(self.problem, self.default, candidate)
