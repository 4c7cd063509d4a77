"""Candidates of rows of one extent: other numbers of threads, and so of loads in each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from cutegen.arch import ARCHS
from cutegen.arch.architecture import WARP_THREADS
from cutegen.families.decide import written_knobs
from cutegen.families.knobs import plain
from cutegen.families.resolved import dispatch
from cutegen.families.rowwise.candidate import (
    MOST_CLUSTER,
    MOST_CTA_THREADS,
    Candidate,
    fit_threads,
    has_clusters,
    least_threads,
)
from cutegen.families.rowwise.tiling import KNOBS
from cutegen.families.rowwise.tiling_rules import RULES
from cutegen.families.tuning import Proposal

if TYPE_CHECKING:
    from cutegen.families.rowwise.spec import RowSpec
    from cutegen.families.single import SingleKernel

MOST_VECTORS = 8  # of each tensor, that a thread of a candidate has


class RowSpace:
    """The TuningSpace of a spec whose rows are reduced. A winner is for rows of a range of extents, whatever their
    number: of several that were measured with rows of one extent, the one with most rows counts."""

    def __init__(self, spec: RowSpec, resolved: SingleKernel) -> None:
        self.spec, self.resolved, self.problem = spec, resolved, resolved.problem
        self.along = self.problem.columns
        self.dims = (self.along,)

    @property
    def listed(self) -> Mapping[str, Sequence[object]]:
        return {}

    def settle(self, device: str) -> None:
        """The order of candidates is that of all devices."""

    def find_default(self, problem: Mapping[str, int]) -> Candidate:
        name = dispatch(self.resolved.dispatch, problem)
        found: Candidate = next(t.candidate for t in self.resolved.tilings if t.name == name)
        return found

    def propose(self, problem: Mapping[str, int], unordered: bool = False) -> Iterator[Proposal]:
        """As many threads as have so many loads, for rows of up to this extent; those nearest to the default first."""
        p, columns, default = self.problem, problem[self.along], self.find_default(problem)
        written = written_knobs(self.spec, KNOBS)
        if default.bounds[-1:] < (columns,) or written.get("bounds", (columns,)) != (columns,):
            return  # streamed, or of a bound that the spec writes
        loads = -(-columns // p.step)
        counts = {fit_threads(p, -(-loads // vectors)) for vectors in range(1, MOST_VECTORS + 1)} | {least_threads(p)}
        if has_clusters(self.resolved.candidate):
            step = WARP_THREADS * MOST_CLUSTER
            shared = {-(-loads // (vectors * step)) * step for vectors in range(1, MOST_VECTORS + 1)}
            counts |= {threads for threads in shared if threads > MOST_CTA_THREADS}
        counts = {written["threads"]} if "threads" in written else counts
        for threads in sorted(counts, key=lambda n: (abs(n - default.threads), n)):
            candidate = replace(default, threads=threads, bounds=(columns,))
            refused = tuple(RULES.refusals(p, candidate, ARCHS[self.spec.arch]))
            yield Proposal(candidate, self.describe(candidate), f"{threads} threads a row", refused)

    def renew(self, candidate: Candidate, default: Candidate) -> Candidate:
        return replace(default, threads=candidate.threads, bounds=candidate.bounds)

    def describe(self, candidate: Candidate) -> Mapping[str, object]:
        return {knob.key: plain(getattr(candidate, knob.field)) for knob in KNOBS}


def tuning_space(spec: RowSpec, resolved: SingleKernel) -> RowSpace | None:
    """None: rows are not reduced, and a thread has the same part of each."""
    return RowSpace(spec, resolved) if resolved.problem.held else None
