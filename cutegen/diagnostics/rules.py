"""The rules: every diagnostic carries the id of one; `cutegen explain RULE` and docs/rules.md print them."""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Rule:
    """What a diagnostic with this id means.

    id: kebab-case. summary: one line, without a full stop. explanation: why the rule exists and how to satisfy it.
    example: a spec fragment that breaks it, or "".
    """

    id: str
    summary: str
    explanation: str
    example: str = ""


RULES: dict[str, Rule] = {}


def register(rule: Rule) -> Rule:
    """Add a rule to RULES and return it; a second rule with the same id is a programming error."""
    assert re.fullmatch(r"[a-z][a-z0-9]*(-[a-z0-9]+)*", rule.id), rule.id
    assert RULES.get(rule.id, rule) == rule, f"rule {rule.id} is registered twice"
    RULES[rule.id] = rule
    return rule


def declare(id: str, summary: str, explanation: str, example: str = "") -> str:
    """Register a rule, for those who need no more of it than its id."""
    return register(Rule(id, summary, explanation, example)).id


# Here, because expressions, tensors and knobs of every family refuse with it.
NOT_YET_SUPPORTED = register(
    Rule(
        "not-yet-supported",
        "this part of the language has no lowering in this release",
        "The language has room for what comes later. What is refused here parses, and the message names what is "
        "supported today.",
        "groups: {counts: rows}\nepilogue: {d: acc, bias_grad: sum(d, m)}",
    )
)
