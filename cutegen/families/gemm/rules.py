"""Every rule about a GEMM's knobs, each one predicate. Validation, `auto`, `--why-not` and docs/rules.md use these."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from cutegen.arch.architecture import Arch
from cutegen.families.gemm import (
    budget_rules,
    form_rules,
    invariance,
    load_rules,
    promotion_rules,
)
from cutegen.families.gemm.candidate import Candidate
from cutegen.families.gemm.features import feature_list
from cutegen.families.gemm.lowering.sm100 import rules as sm100_rules
from cutegen.families.gemm.lowering.sm120 import rules as sm120_rules
from cutegen.families.gemm.orientation import EXCHANGED, kernel_frame
from cutegen.families.gemm.problem import GemmProblem
from cutegen.families.gemm.rule_book import BOOK
from cutegen.families.refusal import Refusal

__all__ = [
    "budget_rules",
    "feature_list",
    "form_rules",
    "invariance",
    "load_rules",
    "promotion_rules",
    "refusals",
    "sm100_rules",
    "sm120_rules",
]


def refusals(problem: GemmProblem, c: Candidate, arch: Arch) -> Iterator[Refusal]:
    """Every rule that refuses the candidate, lazily; the rules see it in the kernel's frame."""
    for refusal in BOOK.refusals(*kernel_frame(problem, c), arch):
        knobs = tuple(EXCHANGED.get(knob, knob) for knob in refusal.knobs) if c.swap_ab else refusal.knobs
        yield replace(refusal, knobs=knobs)
