"""Where the rules about a GEMM's knobs are declared."""

from cutegen.families.refusal import RuleBook

BOOK = RuleBook()
