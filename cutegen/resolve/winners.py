"""The winners of a lock: which tiling was measured fastest, for which calls, by how much, and with what tools."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from cutegen.diagnostics import cut
from cutegen.families.tuned import Calls

DEFAULT = "default"  # in place of a tiling's name: nothing beat what the decisions say
REASONS_SHOWN = 20  # why winners are not used, and versions that they were measured with: a note each
MAX_REASON = 2000  # characters of any in a lock
Bounds: TypeAlias = tuple[float, float, float]
"""A median between the ends of its interval."""


@dataclass(frozen=True, slots=True)
class Winner:
    """The answer of one measured problem, which is the upper end of each range in `calls`. It answers for any number of
    rows to gather from, whatever was measured.

    device: as the driver names it. tiling: a name of the lock's tilings, or DEFAULT. us: microseconds. gain: speed
    relative to the default (None where that won), speed: to the baseline (None where there is none), each as (low end
    of the interval, median, high end). beside: what the default was, a hash. toolchain: what it was measured with.
    measured: what it computed and how, a hash (`binding`); "" in older locks. unused: why no call runs it, as of when
    the lock was written; "" where calls do.
    """

    device: str
    calls: Calls
    tiling: str
    us: float
    gain: Bounds | None
    baseline: str
    speed: Bounds | None
    beside: str
    toolchain: str
    measured: str = ""
    unused: str = ""

    @property
    def problem(self) -> Mapping[str, int]:
        return {dim: self.span(dim)[1] for dim in self.calls}

    def span(self, dim: str) -> tuple[int, int]:
        """The ends of the range in a dim, both of them in it."""
        extent = self.calls[dim]
        return (extent, extent) if isinstance(extent, int) else extent

    def to_items(self) -> list[str]:
        """The entries of a YAML map in flow style."""
        calls = ", ".join(f"{dim}: {json.dumps(extent)}" for dim, extent in self.calls.items())
        parts: dict[str, object] = {"device": self.device, "calls": None, "tiling": self.tiling, "us": self.us}
        parts |= {"gain": self.gain} if self.gain else {}
        parts |= {"baseline": self.baseline, "speed": self.speed} if self.speed else {}
        parts |= {"measured": self.measured} if self.measured else {}
        parts |= {"beside": self.beside, "toolchain": self.toolchain}
        parts |= {"unused": self.unused} if self.unused else {}
        shown = {key: json.dumps(value) for key, value in parts.items()} | {"calls": f"{{{calls}}}"}
        return [f"{key}: {text}" for key, text in shown.items()]


def read_winner(entry: object, tilings: Mapping[str, object]) -> Winner:
    """A winner from its plain data. ValueError: what is wrong with it."""
    if not isinstance(entry, dict):
        raise ValueError("is not a map")
    entry = dict(entry)
    winner = Winner(
        device=_text(entry, "device"),
        calls=_calls(entry),
        tiling=_text(entry, "tiling"),
        us=_number(entry.pop("us", None), "us"),
        gain=_bounds(entry, "gain"),
        baseline=_text(entry, "baseline") if "baseline" in entry else "",
        speed=_bounds(entry, "speed"),
        beside=_text(entry, "beside"),
        toolchain=_text(entry, "toolchain"),
        measured=_text(entry, "measured") if "measured" in entry else "",
        unused=_text(entry, "unused", MAX_REASON) if "unused" in entry else "",
    )
    if entry:
        raise ValueError(f"has an unknown key `{cut(min(entry))}`")
    if winner.tiling != DEFAULT and winner.tiling not in tilings:
        raise ValueError(f"names the tiling `{cut(winner.tiling)}`, which is not among `tilings`")
    return winner


def _text(entry: dict[str, object], key: str, longest: int = 200) -> str:
    value = entry.pop(key, None)
    if not isinstance(value, str) or not value or not value.isprintable() or len(value) > longest:
        raise ValueError(f"needs `{key}`, a line of text")
    return value


def _number(value: object, key: str) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < 1e12:
        raise ValueError(f"needs `{key}`, a positive number")
    return float(value)


def _bounds(entry: dict[str, object], key: str) -> Bounds | None:
    value = entry.pop(key, None)
    if value is None:
        return None
    if not isinstance(value, list) or len(value) != 3:
        raise ValueError(f"needs `{key}` as [low, median, high]")
    low, median, high = (_number(v, key) for v in value)
    return low, median, high


def _calls(entry: dict[str, object]) -> Calls:
    value = entry.pop("calls", None)
    if not isinstance(value, dict) or not value:
        raise ValueError("needs `calls`, the extent or range of each dim")
    calls: dict[str, int | tuple[int, int]] = {}
    for dim, extent in value.items():
        ends = extent if isinstance(extent, list) else [extent, extent]
        integers = all(isinstance(e, int) and not isinstance(e, bool) and 0 < e < 2**31 for e in ends)
        if len(ends) != 2 or not integers or ends[0] > ends[1]:
            raise ValueError(f"needs `calls.{cut(str(dim))}` as an extent or as [low, high]")
        calls[str(dim)] = ends[0] if not isinstance(extent, list) else (ends[0], ends[1])
    return calls
