"""Expressions of generated source."""

from __future__ import annotations

# Which of the rows that a thread holds of a tile element i of its fragment is of: two of every 16, in each wave of 64.
ROW_OF_ELEMENT = "2 * subtile_m + i // 2 % 2"


def factor(text: str) -> str:
    """An expression as it stands in a product, a quotient or a sum: a quotient in brackets."""
    return f"({text})" if "//" in text else text
