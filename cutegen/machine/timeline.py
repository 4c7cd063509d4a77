"""Roles over time, from what a run on the machine noted.

Time is in steps: an instruction takes a warp one, and a wait ends at the step in which what it waits for is signalled,
or what was issued then arrives. Nothing takes longer than something else, so lengths are not times: what can be seen is
who waits for whom, and what may go on at once.
"""

from __future__ import annotations

from typing import Any

from cutegen.run.warp_timeline import WARPS, TimeUnit, Wait, WarpRow

STEPS = TimeUnit("steps", "by steps of the PTX machine, not by time", marks=True)
KINDS = {"load": "loads", "product": "multiplies", "store": "stores"}


def collect(machine: Any) -> tuple[WarpRow, ...]:
    """Of a machine that was told to take notes."""
    rows = []
    for warp in machine.all_warps[:WARPS]:
        waits = tuple(Wait(start, end, what) for start, end, what in warp.waits if end > start)
        kinds = dict.fromkeys(KINDS[kind] for _, kind in warp.marks)
        rows.append(WarpRow(warp.cta.where, warp.index, ", ".join(kinds), warp.time, waits, tuple(warp.marks)))
    return tuple(rows)
