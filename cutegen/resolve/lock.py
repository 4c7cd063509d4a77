"""The lock of a spec, NAME.lock.yaml: every decision that the spec leaves open, with its reason, and winners."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from cutegen.diagnostics import CutegenError, SpecError, cut, printable_data
from cutegen.families.resolved import Portfolio
from cutegen.families.tuned import TunedRow
from cutegen.files import LOCK_SUFFIX, lock_stem
from cutegen.resolve.winners import DEFAULT, MAX_REASON, Winner, read_winner
from cutegen.roots import read_file
from cutegen.spec import SpecDocument, load_text
from cutegen.spec.base import IDLE_KEYS
from cutegen.spec.document import Data
from cutegen.spec.load import own_line
from cutegen.spec.text_rules import MAX_BYTES

VERSION = 1
_KEYS = ("cutegen", "spec", "decisions", "written", "portfolio", "dsl", "tilings", "winners")
_OWN = ("spec", "decisions")  # of every lock; a file without a line for each is something else, and is not quoted
# Keys of older locks, which are passed over, and why.
GONE = {"evidence": "nothing was ever written to it; each winner has what it measured"}
_WIDTH = 120
CONFLICT = "<<<<<<< "  # how git marks the first side of a merge conflict
_HEADER = "# Decisions of cutegen for the spec next to this file; `cutegen lock --upgrade` decides again.\n"


@dataclass(frozen=True, slots=True)
class Lock:
    """spec: hash of the spec's meaning when the decisions were made. decisions: (value, reason) by dotted knob path.

    tilings: knob values by dotted path, of what `tune` found faster than the decisions; winners: for which calls.
    written: what the spec wrote when the decisions were made with it, by dotted path; another value of it may take
    them along. dsl: the release of CuTe DSL that `tune` last measured with, which winners are bound to; "" before that.
    portfolio: what calls choose among that nobody measured.
    """

    spec: str
    decisions: Mapping[str, tuple[object, str]]
    tilings: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    winners: tuple[Winner, ...] = ()
    written: Mapping[str, object] = field(default_factory=dict)
    dsl: str = ""
    portfolio: Portfolio | None = None

    def to_text(self) -> str:
        """YAML, one decision a line; equal for equal content."""
        lines = [
            f"{_HEADER}cutegen: {VERSION}",
            f"spec: {self.spec}",
            "decisions:" if self.decisions else "decisions: {}",
        ]
        for key, (value, reason) in self.decisions.items():
            lines.append(f"  {key}: {{value: {json.dumps(value)}, reason: {json.dumps(reason)}}}")
        lines += ["written:"] if self.written else []
        lines += [f"  {key}: {json.dumps(value)}" for key, value in self.written.items()]
        if self.portfolio:
            chosen = self.portfolio
            lines += ["portfolio:", f"  model: {chosen.model}", f"  reason: {json.dumps(chosen.reason)}"]
            lines.append("  tilings:" if chosen.tilings else "  tilings: []")
            for knobs in chosen.tilings:
                lines += _flow("    - ", [f"{key}: {json.dumps(value)}" for key, value in knobs.items()])
        lines += [f"dsl: {json.dumps(self.dsl)}"] if self.dsl and self.winners else []
        lines += ["tilings:"] if self.tilings else []
        for name, knobs in self.tilings.items():
            lines += [f"  {name}:", *_flow("    ", [f"{key}: {json.dumps(value)}" for key, value in knobs.items()])]
        lines += ["winners:"] if self.winners else []
        lines += [line for winner in self.winners for line in _flow("  - ", winner.to_items())]
        return "\n".join(lines) + "\n"

    def tuned(self) -> tuple[TunedRow, ...]:
        """A row for each winner, in order."""
        knobs = {**self.tilings, DEFAULT: None}
        return tuple(TunedRow(w.device, w.calls, w.tiling, knobs[w.tiling]) for w in self.winners)

    def mark(self, unused: Mapping[int, str]) -> Lock:
        """With the reason in each winner, by index, that no call runs, and in no other."""
        marked = (replace(w, unused=_line(unused.get(i, ""))) for i, w in enumerate(self.winners))
        return replace(self, winners=tuple(marked))

    def without_unused(self) -> Lock:
        """Less the winners that no call runs, and less tilings that no other one names."""
        return self.with_winners(self.tilings, [w for w in self.winners if not w.unused])

    def with_winners(self, tilings: Mapping[str, Mapping[str, object]], winners: Collection[Winner]) -> Lock:
        """With these winners, and of the tilings those that they name."""
        named = {w.tiling for w in winners}
        kept = {name: knobs for name, knobs in tilings.items() if name in named}
        return replace(self, tilings=kept, winners=tuple(winners), dsl=self.dsl if winners else "")


def _line(text: str) -> str:
    """What `read_winner` takes as a reason: a name that stands in one may have any characters."""
    return "".join(c if c.isprintable() else "?" for c in text)[:MAX_REASON]


def _flow(start: str, items: Sequence[str]) -> list[str]:
    """A YAML map in flow style that begins behind `start`, on as many lines as it takes."""
    lines, line = [], start + "{"
    indent = " " * len(line)
    for number, item in enumerate(items):
        piece = item + ("}" if number + 1 == len(items) else ",")
        if line.strip(" -{") and len(line) + 1 + len(piece) > _WIDTH:
            lines.append(line)
            line = indent + piece
        else:
            line += (" " if line.strip(" -{") else "") + piece
    return [*lines, line] if items else [start + "{}"]


def lock_path(spec: Path, arch: str = "") -> Path:
    """NAME.lock.yaml next to NAME.yaml; arch: NAME.ARCH.lock.yaml, of one of its several architectures."""
    return spec.with_suffix(f".{arch}{LOCK_SUFFIX}" if arch else LOCK_SUFFIX)


def read_lock(path: Path) -> Lock | None:
    """The lock at `path`, None when there is none; CutegenError when it is torn, of another version or mistyped, or a
    link out of its folder."""
    try:
        text = read_file(path, MAX_BYTES).decode("utf-8")
    except FileNotFoundError:
        return None
    except OSError as error:
        raise _damaged(path, f"cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise _damaged(path, "is damaged: it is not UTF-8 text") from None
    if not text.strip():
        raise _damaged(path, "is empty")
    if any(line.startswith(CONFLICT) for line in text.splitlines()):
        remedy = f"take one side of it, then run `cutegen lock {_spec_path(path)}`"
        raise CutegenError(f"{path} has a merge conflict", remedy)
    try:
        # What it says is printed in many places; nothing in it is more than a line.
        data: Any = printable_data(load_text(text, "lock", path.as_posix()).data)
    except SpecError as error:
        found = error.diagnostics[0]
        line = f"line {found.location.line}: " if found.location else ""
        ours = all(own_line((key,)).search(text) for key in _OWN)
        raise _damaged(path, f"is damaged: {line}{found.message if ours else 'it does not read as a lock'}") from None
    version = data.get("cutegen")
    if version != VERSION:
        said = str(version) if isinstance(version, int) else "without a number"
        raise _damaged(path, f"was written by another version ({said}; this one writes {VERSION})")
    for key in _OWN:
        if key not in data:
            raise _damaged(path, f"is torn: `{key}` is missing")
    spec, decisions = data["spec"], data["decisions"]
    if not isinstance(spec, str) or not isinstance(decisions, dict):
        raise _damaged(path, "is damaged: `spec` is text, `decisions` a map")
    if extra := set(data) - {*_KEYS, *GONE}:
        raise _damaged(path, f"is damaged: unknown key `{cut(min(extra))}`")
    if not isinstance(written := data.get("written", {}), dict):
        raise _damaged(path, "is damaged: `written` is a map")
    made = {key: _decision(path, key, entry) for key, entry in decisions.items()}
    tilings, winners = _winners(path, data.get("tilings", {}), data.get("winners", []))
    if not isinstance(dsl := data.get("dsl", ""), str) or len(dsl) > MAX_REASON:
        raise _damaged(path, "is damaged: `dsl` is a release")
    chosen = _portfolio(path, data.get("portfolio"))
    return Lock(spec, made, tilings, winners, written, dsl if winners else "", chosen)


def _portfolio(path: Path, entry: Data) -> Portfolio | None:
    if entry is None:
        return None
    if isinstance(entry, dict) and set(entry) == {"model", "reason", "tilings"}:
        model, reason, tilings = entry["model"], entry["reason"], entry["tilings"]
        if type(model) is int and isinstance(reason, str) and isinstance(tilings, list):
            maps = tuple(knobs for knobs in tilings if isinstance(knobs, dict))
            if len(maps) == len(tilings) and len(reason) <= MAX_REASON:
                return Portfolio(model, reason, maps)
    raise _damaged(path, "is damaged: `portfolio` is a map with `model`, a number, `reason` and `tilings`, maps")


def _winners(path: Path, tilings: Data, winners: Data) -> tuple[dict[str, dict[str, Data]], tuple[Winner, ...]]:
    if not isinstance(tilings, dict) or not all(isinstance(knobs, dict) for knobs in tilings.values()):
        raise _damaged(path, "is damaged: `tilings` is a map of maps")
    if not isinstance(winners, list):
        raise _damaged(path, "is damaged: `winners` is a list")
    found = []
    for number, entry in enumerate(winners, 1):
        try:
            found.append(read_winner(entry, tilings))
        except ValueError as error:
            raise _damaged(path, f"is damaged: winner {number} {error}") from None
    return {name: knobs for name, knobs in tilings.items() if isinstance(knobs, dict)}, tuple(found)


def _decision(path: Path, key: str, entry: Data) -> tuple[object, str]:
    if isinstance(entry, dict) and set(entry) == {"value", "reason"} and isinstance(reason := entry["reason"], str):
        if len(reason) > MAX_REASON:
            raise _damaged(path, f"is damaged: the reason of `{cut(key)}` has more than {MAX_REASON} characters")
        return entry["value"], reason
    raise _damaged(path, f"is damaged: decision `{cut(key)}` is not a {{value, reason}}")


def _damaged(path: Path, what: str) -> CutegenError:
    again = f"decide again with `cutegen lock --upgrade {_spec_path(path)}`, which loses its winners"
    return CutegenError(f"{path} {what}", f"restore it from version control, or {again}")


def _spec_path(lock: Path) -> Path:
    return Path(f"{lock_stem(lock)}.yaml")


def meaning(doc: SpecDocument) -> str:
    """Hash of what a spec says: no comments, no key order, no sections without meaning, `auto` as if absent.

    The order of `tensors` is the order of a call's arguments, so it counts.
    """
    data: dict[str, object] = {key: value for key, value in doc.data.items() if key not in IDLE_KEYS}
    tensors = data.get("tensors")
    if isinstance(tensors, dict):
        data["tensors"] = [[name, text] for name, text in tensors.items()]
    return hashlib.sha256(json.dumps(_explicit(data), sort_keys=True).encode()).hexdigest()


def _explicit(data: object) -> object:
    """Without values that mean `auto`, maps that hold nothing else, and blanks."""
    if isinstance(data, dict):
        kept = {key: _explicit(value) for key, value in data.items()}
        return {key: value for key, value in kept.items() if value not in ("auto", None, {})}
    if isinstance(data, str):
        return "".join(data.split())  # declarations and expressions mean the same with any blanks
    return [_explicit(value) for value in data] if isinstance(data, list) else data
