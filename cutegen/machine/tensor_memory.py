"""Tensor memory of a CTA: 128 lanes x 512 columns of 32 bits, its allocator, and who used it.

Everything starts as NaN. Races are looked for in units of 16 lanes of one column: nothing smaller is read or written.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from cutegen.machine.barriers import Waitable
from cutegen.machine.parser import PtxError
from cutegen.machine.races import Agent, Shadow

LANES, COLUMNS, GRAIN = 128, 512, 32
HALVES = LANES // 16
NAN = 0xFFFFFFFF


class TensorMemory(Waitable):
    """writing: per unit, products and copies on their way that write it. What reads it meanwhile finds NaN."""

    def __init__(self, name: str, actors: int, describe: Any) -> None:
        super().__init__(actors)
        self.name = name
        self.cells = np.full((LANES, COLUMNS), NAN, np.uint32)
        self.f32, self.s32 = self.cells.view(np.float32), self.cells.view(np.int32)
        self.columns = np.zeros(COLUMNS, np.int32)  # the allocation that each belongs to; 0: none
        self.sizes: dict[int, int] = {}
        self.count = 0
        self.permit = True
        self.wanted = 0  # columns that a warp of this CTA waits for
        self.granted: int | None = None
        self.writing = np.zeros((HALVES, COLUMNS), np.int32)
        self.shadow = Shadow(HALVES * COLUMNS, self._place, describe) if describe else None

    def __str__(self) -> str:
        free = COLUMNS - int(np.count_nonzero(self.columns))
        return f"tensor memory of {self.name}, of which {free} columns are free"

    def _place(self, unit: int) -> str:
        return f"tensor memory lanes {unit // COLUMNS * 16} .. column {unit % COLUMNS} of {self.name}"

    def allocate(self, count: int) -> int | None:
        """The first column, or None: there are not enough next to each other."""
        if not self.permit:
            raise PtxError("tcgen05.alloc after relinquish_alloc_permit")
        if count not in (32, 64, 128, 256, 512):
            raise PtxError(f"tcgen05.alloc of {count} columns: a power of two from 32 on is needed")
        for first in range(0, COLUMNS - count + 1, GRAIN):
            if not self.columns[first : first + count].any():
                self.count += 1
                self.columns[first : first + count] = self.count
                self.sizes[first] = count
                return first
        return None

    def free(self, first: int, count: int, agent: Agent) -> None:
        if self.sizes.get(first) != count:
            raise PtxError(f"tcgen05.dealloc of {count} columns at {first}; allocated are {self.sizes}")
        if self.writing[:, first : first + count].any():
            raise PtxError("tcgen05.dealloc while products write there")
        if self.shadow:
            self.shadow.write(self.units(range(HALVES), first, count), 1, agent)
        self.cells[:, first : first + count] = NAN
        self.columns[first : first + count] = 0
        del self.sizes[first]
        self.wake()

    def units(self, halves: Any, first: int, count: int) -> Any:
        return (np.asarray(halves)[:, None] * COLUMNS + np.arange(first, first + count)).ravel()

    def check(self, first: int, count: int) -> None:
        held = self.columns[first : first + count]
        if first < 0 or first + count > COLUMNS or not held.all() or (held != held[0]).any():
            raise PtxError(f"columns {first} .. {first + count} of {self.name} are not one allocation: {self.sizes}")

    def note_read(self, units: Any, *agents: Agent) -> None:
        if self.shadow:
            self.shadow.read(units, 1, *agents)

    def note_write(self, units: Any, agent: Agent) -> None:
        if self.shadow:
            self.shadow.write(units, 1, agent)
