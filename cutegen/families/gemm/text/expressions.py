"""Expressions of generated source."""

from __future__ import annotations


def factor(text: str) -> str:
    """An expression as it stands in a product, a quotient or a sum: a quotient in brackets."""
    return f"({text})" if "//" in text else text
