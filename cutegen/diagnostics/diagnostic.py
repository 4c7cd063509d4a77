"""Findings with a place in a file, and the two exceptions that carry a message to the user."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice

from cutegen.diagnostics.printable import MAX_LINE, cut, printable
from cutegen.diagnostics.rules import RULES

# A terminal line; longer source lines are cut around the caret.
MAX_SOURCE_COLUMNS = 160
# Findings of one file that are printed; a file that is wrong throughout would scroll the first ones away.
MAX_SHOWN = 50
# Words that a name is compared with, in letters and then in full, and the longest of them: a file may have thousands.
MAX_CANDIDATES, MAX_COMPARED, MAX_WORD = 200, 4, 64
# Of one file that are kept: a tool that reads JSON needs no more of a file that is wrong throughout.
MAX_KEPT = 300


@dataclass(frozen=True, slots=True, order=True)
class Location:
    """A span within one line. line, column: 1-based; end_column: exclusive. Columns count characters."""

    file: str
    line: int
    column: int
    end_column: int

    def __str__(self) -> str:
        return f"{printable(self.file)}:{self.line}:{self.column}"


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """One finding. rule: id of a registered Rule. source_line: the text of `location.line`, without its line break."""

    rule: str
    message: str
    location: Location | None
    remedy: str = ""
    source_line: str = ""

    def __post_init__(self) -> None:
        assert self.rule in RULES, f"rule {self.rule!r} is not registered"
        object.__setattr__(self, "message", cut(self.message, MAX_LINE))
        object.__setattr__(self, "remedy", cut(self.remedy, MAX_LINE))

    def render(self) -> str:
        """`file:line:col: error[rule]: message`, the source line with a caret underline, and the remedy."""
        head = f"{self.location}: " if self.location else ""
        lines = [f"{head}error[{self.rule}]: {printable(self.message)}"]
        if self.location and self.source_line:
            lines += _excerpt(self.source_line, self.location)
        if self.remedy:
            lines.append(f"  = help: {printable(self.remedy)}")
        return "\n".join(lines)

    def to_json(self) -> dict[str, object]:
        place = self.location
        return {
            "rule": self.rule,
            "message": self.message,
            "file": place.file if place else None,
            "line": place.line if place else None,
            "column": place.column if place else None,
            "end_column": place.end_column if place else None,
            "remedy": self.remedy,
        }


def _excerpt(source: str, place: Location) -> list[str]:
    start = place.column - 1
    width = max(1, min(place.end_column, len(source) + 1) - place.column)
    cut = max(0, start - MAX_SOURCE_COLUMNS // 2) if len(source) > MAX_SOURCE_COLUMNS else 0
    shown = source[cut : cut + MAX_SOURCE_COLUMNS]
    # Tabs and control characters take one column each, or the caret would stand elsewhere than the terminal's cursor.
    shown = "".join(c if c.isprintable() else " " if c.isspace() else "\N{REPLACEMENT CHARACTER}" for c in shown)
    number = str(place.line)
    carets = "^" * min(width, MAX_SOURCE_COLUMNS - (start - cut))
    return [f" {number} | {shown}".rstrip(), f" {' ' * len(number)} | {' ' * (start - cut)}{carets}"]


class CutegenError(Exception):
    """Something the user can mend. message: what is wrong, in numbers; details: lines below it; remedy: what to do;
    exit_code: the process's. Each is a line that may quote anything, and is cut where it is long."""

    def __init__(self, message: str, remedy: str = "", exit_code: int = 1, details: Iterable[str] = ()) -> None:
        lines = [message, *details]
        shown = [cut(line, MAX_LINE) for line in lines[: 1 + MAX_SHOWN]]
        shown += [f"... and {left} more"] if (left := len(lines) - len(shown)) else []
        self.message = "\n  ".join(map(printable, shown))
        super().__init__(self.message)
        self.remedy = printable(cut(remedy, MAX_LINE))
        self.exit_code = exit_code

    def __str__(self) -> str:
        return f"{self.message}\n  = help: {self.remedy}" if self.remedy else self.message

    def report(self) -> str:
        """What is printed when the error ends a command."""
        return f"error: {self}"


class SpecError(CutegenError):
    """The findings of one file, in source order. more: how many there are besides those that are kept."""

    def __init__(self, diagnostics: Iterable[Diagnostic], more: int = 0) -> None:
        unplaced = Location("", 0, 0, 0)
        found = sorted(dict.fromkeys(diagnostics), key=lambda d: d.location or unplaced)
        assert found
        self.diagnostics, self.more = tuple(found[:MAX_KEPT]), more + len(found[MAX_KEPT:])
        shown = [d.render() for d in self.diagnostics[:MAX_SHOWN]]
        if left := len(self.diagnostics[MAX_SHOWN:]) + self.more:
            shown.append(f"... and {left} more findings")
        super().__init__("")
        self.message = "\n".join(shown)

    def report(self) -> str:
        return str(self)


@contextmanager
def raised_together(findings: Sequence[Diagnostic]) -> Iterator[None]:
    """Raises findings that are known already, together with those that come up inside."""
    try:
        yield
    except SpecError as error:
        raise SpecError((*findings, *error.diagnostics), error.more) if findings else error from None
    except CutegenError as error:
        raise SpecError(findings) if findings else error from None
    if findings:
        raise SpecError(findings)


def describe_error(error: BaseException) -> str:
    """An exception of somebody else's code in a line: its type, and the first line of what it says, if it says any."""
    said = str(error).strip().partition("\n")[0]
    return f"{type(error).__name__}: {said}" if said else type(error).__name__


def suggest(word: str, candidates: Iterable[str], most: int = MAX_CANDIDATES) -> str:
    """``did you mean `stages`?`` for the candidates that `word` begins, else the closest one; "" when none is close.
    most: candidates that are looked at, of which a file may bring any number."""
    by_lower = {c.lower(): c for c in islice(candidates, most) if len(c) <= MAX_WORD}
    asked = word.lower()
    if len(asked) > MAX_WORD:
        return ""
    close = [c for c in by_lower if c.startswith(asked)] if len(asked) > 2 else []
    if not close:
        letters = [(letter, asked.count(letter)) for letter in set(asked)]
        alike = sorted(by_lower, key=lambda c: -sum(min(n, c.count(x)) for x, n in letters) / (len(asked) + len(c) + 1))
        close = difflib.get_close_matches(asked, alike[:MAX_COMPARED], n=1, cutoff=0.6)
    return f"did you mean {' or '.join(f'`{by_lower[c]}`' for c in close[:3])}?" if close else ""
