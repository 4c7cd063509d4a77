"""Where the rules about an MLA decode's knobs are declared."""

from cutegen.families.refusal import RuleBook

BOOK = RuleBook()
