"""A result as it is kept: what was measured, and nothing that follows from it.

Medians, intervals, rates and geomeans are computed again whenever a file is read, so a table made from it shows what
its samples say. Times are in microseconds with DIGITS significant digits; a problem is a line, and so is each distinct
tiling, which candidates refer to by its place in `tilings`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import cache
from math import isfinite
from typing import Any

from cutegen.defaults import MOST_ROUNDS
from cutegen.run.intervals import median_interval, speed_ratio
from cutegen.run.measured import STORED_VERSION, VERSION, summarise

DIGITS = 5
MAX_LIBRARIES = 64  # that a candidate is compared with
# Of a candidate: kept as it is; kept in microseconds under another name.
_KEPT = ("name", "baseline", "library", "does", "tiling", "digest", "sets", "flops", "bytes", "right")
_SECONDS = {"host_seconds": "host_us", "step_seconds": "step_us"}


def pack(data: Mapping[str, Any]) -> str:
    """The text of a file. data: of `BenchReport.to_json`."""
    tilings: dict[str, int] = {}
    problems = [_dump(_pack_problem(p, tilings)) for p in data["problems"]]
    head = {k: v for k, v in data.items() if k not in ("summaries", "problems", "left_out")}
    head["version"] = STORED_VERSION
    lists = {"tilings": list(tilings), "problems": problems, "left_out": [_dump(x) for x in data["left_out"]]}
    lines = [f" {json.dumps(key)}: {_dump(value)}" for key, value in head.items()]
    lines += [f" {json.dumps(key)}: [{_lines(texts)}]" for key, texts in lists.items()]
    return "{\n" + ",\n".join(lines) + "\n}\n"


def unpack(data: Mapping[str, Any]) -> dict[str, Any]:
    """What `pack` was given, with all that follows from the samples. ValueError, KeyError, TypeError, IndexError,
    AttributeError, OverflowError: it is damaged."""
    tilings = data["tilings"]
    problems = [_unpack_problem(p, tilings) for p in data["problems"]]
    named = (
        {c["name"]: (c["samples"], {r: speed["against"] for r, speed in c["speeds"].items()}) for c in p["candidates"]}
        for p in problems
    )
    summaries = {kernel: {r: asdict(s) for r, s in by.items()} for kernel, by in summarise(named).items()}
    whole = {**data, "version": VERSION, "problems": problems, "summaries": summaries}
    del whole["tilings"]
    return whole


def _lines(texts: Sequence[str]) -> str:
    return "\n" + ",\n".join(texts) + "\n" if texts else ""


def _dump(value: object) -> str:
    return json.dumps(value, separators=(",", ":"))


def _pack_problem(problem: Mapping[str, Any], tilings: dict[str, int]) -> dict[str, Any]:
    packed = {k: v for k, v in problem.items() if k not in ("candidates", "first")}
    packed["warm_up_seconds"] = _rounded(problem.get("warm_up_seconds", 0.0))
    for key in ("candidates", "first"):
        if problem.get(key):
            packed[key] = [_pack_candidate(c, tilings) for c in problem[key]]
    return packed


def _pack_candidate(c: Mapping[str, Any], tilings: dict[str, int]) -> dict[str, Any]:
    packed = {key: c[key] for key in _KEPT if c[key] not in (None, "")}
    if c["numbers"] is not None:
        packed["numbers"] = tilings.setdefault(_dump(c["numbers"]), len(tilings))
    packed |= {name: _rounded(c[key] * 1e6) for key, name in _SECONDS.items() if c[key]}
    packed |= {key: _rounded(c[key]) for key in ("share_of_floor", "max_error", "allowed") if _is_finite(c.get(key))}
    if c["tflops"] is None and c["terabytes_per_second"] is None and (c["flops"] or c["bytes"]):
        packed["rated"] = False  # its times hold more than its own work
    if c["speeds"]:
        packed["against"] = {library: speed["against"] for library, speed in c["speeds"].items()}
    packed |= {key: [round(v) for v in c[key]] for key in ("sm_mhz", "watts") if c[key]}
    packed |= {"celsius": [min(c["celsius"]), max(c["celsius"])]} if c.get("celsius") else {}
    return packed | {"us": [_rounded(s * 1e6) for s in c["samples"]]}


def _is_finite(value: float | None) -> bool:
    return value is not None and isfinite(value)


def _rounded(value: float) -> float:
    return float(f"{value:.{DIGITS}g}")


def _unpack_problem(problem: Mapping[str, Any], tilings: Sequence[Any]) -> dict[str, Any]:
    found = dict(problem)
    for key in ("candidates", "first"):
        if key in problem:
            found[key] = _unpack_candidates(problem[key], problem["against"], tilings)
    return found


def _unpack_candidates(
    packed: Sequence[Mapping[str, Any]], against: str, tilings: Sequence[Any]
) -> list[dict[str, Any]]:
    samples = {c["name"]: [us * 1e-6 for us in c["us"]] for c in packed}
    if len(samples) < len(packed):
        raise ValueError("two candidates of a problem have one name")
    if not all(isfinite(s) and s > 0 for own in samples.values() for s in own) or not all(samples.values()):
        raise ValueError("a time is a positive number, and every candidate has some")
    if max(map(len, samples.values()), default=0) > MOST_ROUNDS:
        raise ValueError(f"a candidate has more than {MOST_ROUNDS} samples")
    if max((len(c.get("against", ())) for c in packed), default=0) > MAX_LIBRARIES:
        raise ValueError(f"a candidate is compared with more than {MAX_LIBRARIES} libraries")
    return [_unpack_candidate(c, samples, against, tilings) for c in packed]


def _unpack_candidate(
    c: Mapping[str, Any], samples: Mapping[str, list[float]], against: str, tilings: Sequence[Any]
) -> dict[str, Any]:
    own = samples[c["name"]]
    seconds = median_interval(own)
    absent: dict[str, Any] = {"library": "", "does": "", "tiling": "", "digest": None, "right": None}
    found = absent | dict.fromkeys(("flops", "bytes", "share_of_floor", "max_error", "allowed")) | dict(c)
    del found["us"]
    relative = found.pop("against", {})
    flops, moved = (found["flops"], found["bytes"]) if found.pop("rated", True) else (None, None)

    @cache
    def speed(name: str) -> dict[str, Any]:
        return asdict(speed_ratio(samples[name], own))

    found |= {key: found.pop(name, 0.0 if key == "host_seconds" else None) for key, name in _SECONDS.items()}
    return found | {
        "numbers": tilings[c["numbers"]] if "numbers" in c else None,
        "seconds": asdict(seconds),
        "tflops": flops / seconds.median / 1e12 if flops else None,
        "terabytes_per_second": moved / seconds.median / 1e12 if moved else None,
        "speed": speed(against) if c["name"] != against else None,
        "speeds": {library: {"against": name, **speed(name)} for library, name in relative.items()},
        "host_seconds": found["host_seconds"] * 1e-6,
        "step_seconds": None if found["step_seconds"] is None else found["step_seconds"] * 1e-6,
        "sm_mhz": found.get("sm_mhz", []),
        "watts": found.get("watts", []),
        "samples": own,
    }
