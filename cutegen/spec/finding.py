"""Findings about a spec without their place in its file: parsers of fields give them, `parse_spec` locates them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from cutegen.spec.document import KeyPath


@dataclass(frozen=True, slots=True)
class Finding:
    """path: steps below the field. span: offsets in its text. key: the finding is about the key of the last step."""

    rule: str
    message: str
    remedy: str = ""
    path: KeyPath = ()
    span: tuple[int, int] | None = None
    key: bool = False


@dataclass(frozen=True, slots=True)
class Unworded:
    """Findings at one place that are put in words only if they are shown: a file may have thousands. key: they are
    about the key of the last step."""

    path: KeyPath
    key: bool
    word: Callable[[], Iterable[Finding]]


class FieldError(ValueError):
    """Everything that is wrong with one field; pydantic collects it like any ValueError."""

    def __init__(self, findings: Iterable[Finding]) -> None:
        self.findings = tuple(findings)
        super().__init__("; ".join(f.message for f in self.findings))
