"""Globs of pyproject.toml: whoever wrote one need not be trusted, so none takes long to compare."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePath

MAX_GLOB = 200  # characters
_ANY = "**"  # a segment: any number of folders, or none
_RANGE = re.compile(r"(?=(.)-(.))", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Glob:
    """segments: of `_ANY`, or for the name of a file or folder; a `*` of those never goes back (`fnmatch`)."""

    segments: tuple[re.Pattern[str] | None, ...]

    def fits(self, path: PurePath) -> bool:
        """path: from the folder of pyproject.toml."""
        return _fits(self.segments, path.parts)


def compile_glob(text: str) -> Glob:
    """`*` and `?` stop at `/`, `**` at the beginning of a name does not. A glob without `/` is for names in any folder;
    one with `/` inside is for the whole path. ValueError: it is too long, or a range in it is backwards."""
    if len(text) > MAX_GLOB:
        raise ValueError(f"a glob has at most {MAX_GLOB} characters")
    for inner in re.findall(r"\[!?(\]?[^\]]*)\]", text):
        if backwards := next((f"{a}-{b}" for a, b in _RANGE.findall(inner) if a > b), ""):
            raise ValueError(f"the range {backwards} is backwards")
    whole = re.sub(r"(^|/)\*\*+(?=[^/*]|$)", r"\1**/*", text.strip("/"))
    segments = (["**"] if "/" not in text.strip("/") else []) + whole.split("/")
    return Glob(tuple(None if s == _ANY else re.compile(fnmatch.translate(s)) for s in segments))


def _fits(segments: Sequence[re.Pattern[str] | None], parts: Sequence[str]) -> bool:
    """Where one does not fit, only the last `**` takes another part: an earlier one would leave less for the rest."""
    s = p = 0
    again: tuple[int, int] | None = None
    while p < len(parts):
        if s < len(segments) and segments[s] is None:
            s += 1
            again = s, p
        elif s < len(segments) and (name := segments[s]) and name.match(parts[p]):
            s, p = s + 1, p + 1
        elif again:
            s, p = again[0], again[1] + 1
            again = s, p
        else:
            return False
    return all(segment is None for segment in segments[s:])
