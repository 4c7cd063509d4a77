"""What remedies about a tile name: extents that the other rules accept as well."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from cutegen.arch.architecture import Arch
from cutegen.families.gemm.candidate import Candidate
from cutegen.families.gemm.problem import GemmProblem
from cutegen.families.gemm.rule_book import BOOK


def legal_extents(problem: GemmProblem, c: Candidate, arch: Arch, axis: int, extents: Iterable[int]) -> list[int]:
    """Of extents of the tile along an axis (0: m, 1: n, 2: k) those that the fewest rules about tiles refuse beside the
    rest of the candidate; mostly, none does. Of what fits only that is asked which `auto` cannot mend: rules that blame
    the tile, and the memory of the rings, which should be as short as they may be."""
    others = [with_extent(c, axis, extent) for extent in extents]
    return [other.tile[axis] for other in fewest_faults(problem, others, arch)]


def fewest_faults(problem: GemmProblem, candidates: Iterable[Candidate], arch: Arch) -> list[Candidate]:
    """Of candidates those that the fewest rules refuse, in the sense of `legal_extents`."""
    counts = [(c, _faults(problem, c, arch)) for c in candidates]
    least = min((count for _, count in counts), default=None)
    return [c for c, count in counts if count == least]


def with_extent(c: Candidate, axis: int, extent: int) -> Candidate:
    """The candidate with another extent of its tile."""
    m, n, k = (extent if i == axis else own for i, own in enumerate(c.tile))
    return replace(c, tile=(m, n, k))


def _faults(problem: GemmProblem, c: Candidate, arch: Arch) -> tuple[int, int]:
    """How many rules about the form of the tile refuse it, and about what fits."""
    found = [refusal for predicate in BOOK.form if (refusal := predicate(problem, c, arch))]
    if found:
        return sum("tile" in refusal.knobs for refusal in found), 0
    fits = (predicate(problem, c, arch) for predicate in BOOK.fit)
    return 0, sum(refusal is not None and refusal.knobs[0] in ("tile", "stages") for refusal in fits)
