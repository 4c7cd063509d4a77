"""Every rule about a GEMM's knobs, each one predicate. Validation, `auto`, `--why-not` and docs/rules.md use these."""

from __future__ import annotations

from cutegen.families.gemm import budget_rules, form_rules
from cutegen.families.gemm.rule_book import BOOK

__all__ = ["budget_rules", "form_rules", "refusals"]

refusals = BOOK.refusals
