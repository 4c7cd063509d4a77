"""How `cutegen cache` and `cutegen doctor` speak of the cache."""

from __future__ import annotations

OFF = "off (CUTEGEN_CACHE=0, or there is no home directory)"


def show_size(count: int) -> str:
    """In the unit that leaves one to three digits before the point: 1.2 MB."""
    for unit, size in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if count >= size:
            return f"{count / size:.1f} {unit}"
    return f"{count} B"
