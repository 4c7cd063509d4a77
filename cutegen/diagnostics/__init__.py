"""Findings, their places, their rules, and how they are shown."""

from cutegen.diagnostics.diagnostic import (
    MAX_KEPT,
    CutegenError,
    Diagnostic,
    Location,
    SpecError,
    describe_error,
    raised_together,
    suggest,
)
from cutegen.diagnostics.printable import MAX_QUOTED, cut, plain_lines, printable, printable_data, printable_lines
from cutegen.diagnostics.rules import NOT_YET_SUPPORTED, RULES, Rule, declare, register

__all__ = [
    "MAX_KEPT",
    "MAX_QUOTED",
    "NOT_YET_SUPPORTED",
    "RULES",
    "CutegenError",
    "Diagnostic",
    "Location",
    "Rule",
    "SpecError",
    "cut",
    "declare",
    "describe_error",
    "plain_lines",
    "printable",
    "printable_data",
    "printable_lines",
    "raised_together",
    "register",
    "suggest",
]
