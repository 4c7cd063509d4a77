"""The vocabulary of rules about a GEMM's knobs: a refusal, the predicate that gives it, and how one is declared."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from cutegen.diagnostics import Rule, register
from cutegen.families.gemm.candidate import Candidate
from cutegen.families.gemm.problem import GemmProblem
from cutegen.hardware.arch import Arch


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a candidate is illegal. knobs: Candidate fields involved, the most to blame first; element: of the first one,
    which number of it, None for all. form: it is about the form of a number, so what fits was not even asked."""

    rule: str
    knobs: tuple[str, ...]
    reason: str
    remedy: str
    element: int | None
    form: bool


Finding: TypeAlias = "tuple[str, str] | None"  # reason, remedy
Check: TypeAlias = Callable[[GemmProblem, Candidate, Arch], Finding]
Predicate: TypeAlias = Callable[[GemmProblem, Candidate, Arch], "Refusal | None"]

# FORM rules ask whether each number has the right form; FIT rules compute with numbers that have.
FORM: list[Predicate] = []
FIT: list[Predicate] = []


def declare(tier: list[Predicate], rule: Rule, *knobs: str, element: int | None = None) -> Callable[[Check], Predicate]:
    """Register `rule`, and turn a function that returns (reason, remedy) into its predicate, which blames `knobs`."""
    register(rule)

    def wrap(check: Check) -> Predicate:
        def predicate(problem: GemmProblem, candidate: Candidate, arch: Arch) -> Refusal | None:
            found = check(problem, candidate, arch)
            return Refusal(rule.id, knobs, *found, element, tier is FORM) if found else None

        predicate.__name__ = check.__name__
        predicate.__doc__ = rule.summary
        tier.append(predicate)
        return predicate

    return wrap


def kib(size: int) -> str:
    """Bytes as KiB, with one decimal where it matters: 49152 -> `48 KiB`."""
    return f"{size / 1024:.1f}".removesuffix(".0") + " KiB"


def near(value: int, step: int, low: int, high: int) -> str:
    """The legal values on both sides of one that is not."""
    below = min(max(value // step * step, low), high)
    above = min(max(below + step, low), high) if value > low else below
    return f"{below}" if below == above else f"{below} or {above}"
