"""The vocabulary of rules about knobs: a refusal, the predicate that gives it, and how one is declared."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from cutegen.arch.architecture import Arch
from cutegen.diagnostics import RULES, Rule, register


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a candidate is illegal. knobs: candidate fields involved, the most to blame first; element: of the first one,
    which number of it, None for all. form: it is about the form of a number, so what fits was not even asked. advice:
    the remedy, or what finds it, which may ask the other rules about other values."""

    rule: str
    knobs: tuple[str, ...]
    reason: str
    advice: Advice
    element: int | None
    form: bool

    def __post_init__(self) -> None:
        assert self.rule in RULES, f"rule {self.rule!r} is not registered"

    @property
    def remedy(self) -> str:
        return self.advice if isinstance(self.advice, str) else self.advice()


Advice: TypeAlias = str | Callable[[], str]
Objection: TypeAlias = tuple[str, Advice]  # reason, advice
Check: TypeAlias = Callable[[Any, Any, Arch], "Objection | None"]  # problem, candidate, arch
Predicate: TypeAlias = Callable[[Any, Any, Arch], "Refusal | None"]


@dataclass(frozen=True, slots=True)
class RuleBook:
    """A family's rules about knobs. form: whether each number has the right form; fit: computed with numbers that
    have."""

    form: list[Predicate] = field(default_factory=list)
    fit: list[Predicate] = field(default_factory=list)

    def refusals(self, problem: object, candidate: object, arch: Arch) -> Iterator[Refusal]:
        """Every rule of the architecture that refuses the candidate, lazily; what fits is asked once the form is
        right."""
        formed = True
        for predicate in self.form:
            if refusal := predicate(problem, candidate, arch):
                formed = False
                yield refusal
        for predicate in self.fit if formed else ():
            if refusal := predicate(problem, candidate, arch):
                yield refusal

    def declare_form(
        self, rule: Rule, *knobs: str, element: int | None = None, only: str = ""
    ) -> Callable[[Check], Predicate]:
        """Register `rule`, and turn a function that returns (reason, advice) into its predicate, which blames
        `knobs`. only: the architecture that it is a rule of, and of those that have its rules; "": of
        all."""
        return _declare(self.form, True, rule, knobs, element, only)

    def declare_fit(self, rule: Rule, *knobs: str, only: str = "") -> Callable[[Check], Predicate]:
        """The same for a rule about what fits."""
        return _declare(self.fit, False, rule, knobs, None, only)


def _declare(
    tier: list[Predicate], form: bool, rule: Rule, knobs: tuple[str, ...], element: int | None, only: str
) -> Callable[[Check], Predicate]:
    register(rule)

    def wrap(check: Check) -> Predicate:
        def predicate(problem: Any, candidate: Any, arch: Arch) -> Refusal | None:
            others = only and only not in (arch.name, arch.like, arch.rules_of)
            found = None if others else check(problem, candidate, arch)
            return Refusal(rule.id, knobs, *found, element, form) if found else None

        predicate.__name__ = check.__name__
        predicate.__doc__ = rule.summary
        tier.append(predicate)
        return predicate

    return wrap


def kib(size: int) -> str:
    """Bytes as KiB, with one decimal where it matters: 49152 -> `48 KiB`."""
    return f"{size / 1024:.1f}".removesuffix(".0") + " KiB"


def nearest(value: int, legal: Collection[int], show: Callable[[int], str] = str) -> str:
    """The legal values on both sides of one that is not."""
    below, above = [x for x in legal if x < value], [x for x in legal if x > value]
    return " or ".join(show(x) for x in (*sorted(below)[-1:], *sorted(above)[:1]))
