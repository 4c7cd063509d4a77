"""The fastest of several ways in which a library can do the same, chosen as `bench` measures: no input stays in L2."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from statistics import median
from typing import Any, Generic, TypeVar

Sets = TypeVar("Sets")
Way = Callable[[Sets], Any]
# Passes over all sets of inputs, of which the median counts, after one that is not timed; and how long all of it may
# take for each way, so that large problems do not take minutes.
PASSES, SECONDS = 5, 0.25


def time_on_device(action: Callable[[], Any]) -> float:
    """Seconds on the current CUDA stream."""
    import torch

    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    action()
    end.record()
    end.synchronize()
    return float(start.elapsed_time(end)) / 1e3


class Contest(Generic[Sets]):
    """Launches that wait with the choice of a way for the first call, when all sets of inputs are known.

    ways: lists them for one set; one that raises is out, and when all are, the first reason is raised.
    """

    def __init__(
        self,
        ways: Callable[[Sets], Iterable[Way[Sets]]],
        clock: Callable[[Callable[[], Any]], float] | None = None,
    ) -> None:
        self._ways, self._clock = ways, clock or time_on_device
        self._sets: list[Sets] = []
        self._best: Way[Sets] | None = None

    def enter(self, values: Sets) -> Callable[[], Any]:
        """The launch of one more set."""
        self._sets.append(values)

        def launch() -> Any:
            if self._best is None:
                self._best = self._choose()
            return self._best(values)

        return launch

    def _choose(self) -> Way[Sets]:
        best, least, reason = None, float("inf"), Exception("it has no way to do this")
        for way in self._ways(self._sets[0]):
            try:
                seconds = self._seconds(way, self._sets)
            except Exception as error:  # whatever a foreign library raises
                reason = error if best is None else reason
                continue
            if seconds < least:
                best, least = way, seconds
        if best is None:
            raise reason
        return best

    def _seconds(self, way: Way[Sets], sets: Sequence[Sets]) -> float:
        def go_through() -> None:
            for values in sets:
                way(values)

        once = self._clock(go_through)  # compiles, allocates
        samples: list[float] = []
        while len(samples) < PASSES and (not samples or once + sum(samples) < SECONDS):
            samples.append(self._clock(go_through))
        return median(samples)
