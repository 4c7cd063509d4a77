"""Every rule about a GEMM's knobs, each one predicate. Validation, `auto`, `--why-not` and docs/rules.md use these."""

from __future__ import annotations

from collections.abc import Iterator

from cutegen.families.gemm import budget_rules, form_rules
from cutegen.families.gemm.candidate import Candidate
from cutegen.families.gemm.problem import GemmProblem
from cutegen.families.gemm.refusal import FIT, FORM, Refusal
from cutegen.hardware.arch import Arch

__all__ = ["budget_rules", "form_rules", "refusals"]


def refusals(problem: GemmProblem, candidate: Candidate, arch: Arch) -> Iterator[Refusal]:
    """Every rule that refuses the candidate, lazily; what fits is asked once the form is right."""
    formed = True
    for predicate in FORM:
        if refusal := predicate(problem, candidate, arch):
            formed = False
            yield refusal
    for predicate in FIT if formed else ():
        if refusal := predicate(problem, candidate, arch):
            yield refusal
