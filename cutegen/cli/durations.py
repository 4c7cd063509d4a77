"""Times on the command line: 90s, 1h30m, 30d."""

from __future__ import annotations

import re

from cutegen.diagnostics import CutegenError

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 7 * 86_400}


def read_duration(option: str, text: str, examples: str) -> float:
    """Seconds of 90s, 5m, 1h30m, 30d or 2w. CutegenError (exit 2): it is not a duration."""
    parts = re.findall(r"(\d{1,6})([smhdw])", text)
    seconds = sum(int(n) * _UNITS[unit] for n, unit in parts)
    if not seconds or "".join(f"{n}{unit}" for n, unit in parts) != text.strip():
        raise CutegenError(f"{option}: `{text}` is not a time", f"write {examples}", exit_code=2)
    return float(seconds)
