"""Where to look between the problems a lock has answers for: a winner was measured at the upper end of its range."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
from typing import Any

from cutegen.resolve import Lock, Resolution
from cutegen.resolve.winners import DEFAULT, Winner
from cutegen.run.shapes import Shape, shape_text
from cutegen.tune.stages import NEWCOMER, OTHER
from cutegen.tune.tune_winners import legal

# A range of fewer extents, or of less than this share of its upper end, is not divided any more: tiles are 64 rows high
# at least, and of many rows the last tile is a small part.
NARROW, SHARE = 64, 8
# A range is divided at a round extent: a multiple of some power of two that goes into it this often.
STEPS = 4


def middles(
    winners: Sequence[Winner], dims: Collection[str], along: str, step: int, within: Iterable[Winner]
) -> list[Shape]:
    """A problem in the middle of each range of one device's winners that lies in a range of `within`, and in which
    another kernel may be faster: it is wide, and its winner is not that of the range below as well. What wins at both
    ends is taken to win between them.

    dims, along: as TuningSpace has them. step: what extents are multiples of.
    """

    def others(winner: Winner) -> tuple[int, ...]:
        return tuple(winner.span(dim)[1] for dim in dims if dim != along)

    ends = {(others(w), w.span(along)[1]): w.tiling for w in winners}
    spans = [(others(w), *w.span(along)) for w in within]
    found: list[Shape] = []
    for winner in winners:
        low, high = winner.span(along)
        width = high - low + 1
        if width < max(NARROW, high // SHARE) or ends.get((others(winner), low - 1)) == winner.tiling:
            continue
        if not any(others(winner) == o and first <= low and high <= last for o, first, last in spans):
            continue
        round_to = math.lcm(1 << (width // STEPS).bit_length() - 1, step)
        middle = (low - 1 + high) // 2 // round_to * round_to
        if middle >= low:
            found.append({**winner.problem, along: middle})
    return found


def measurable(resolution: Resolution, lock: Lock, winners: Iterable[Winner]) -> list[Shape]:
    """The problems of winners, but for those that the default won, and those whose tilings a rule refuses."""
    winners = list(winners)
    known = {w.tiling: lock.tilings[w.tiling] for w in winners if w.tiling != DEFAULT}
    can = {name for name, knobs in known.items() if legal(resolution, [knobs])}
    return list({shape_text(w.problem): dict(w.problem) for w in winners if w.tiling in can}.values())


class Handicaps:
    """What candidates are behind by, as it were, between problems: the winner of the range by nothing, other kernels of
    the lock by less than new ones. lock: None where nobody has a handicap. along: as TuningSpace has it."""

    def __init__(self, resolution: Resolution, lock: Lock | None, along: str) -> None:
        self.lock, self.along = lock, along
        tilings = lock.tilings if lock else {}
        self.built = {name: legal(resolution, [knobs]) for name, knobs in tilings.items()}
        self.everyone = [c for candidates in self.built.values() for c in candidates]

    def find(self, problem: Shape, candidate: Any, neighbours: Sequence[Winner]) -> float:
        """neighbours: answers to problems that differ in the one dim alone."""
        if self.lock is None:
            return 1.0
        near = [w for w in neighbours if not w.unused and w.problem[self.along] >= problem[self.along]]
        now = min(near, key=lambda w: w.problem[self.along]).tiling
        return 1.0 if candidate in self.built.get(now, []) else OTHER if candidate in self.everyone else NEWCOMER
