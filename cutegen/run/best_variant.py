"""The fastest of several ways in which a library can do the same, chosen as `bench` measures: as CUDA graphs, so that
the host does not count, and through all sets of inputs, so that none stays in L2."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from statistics import median
from typing import Any, Generic, TypeVar

from cutegen.families.proving import Baseline
from cutegen.run.device import CudaDevice, Launch

Sets = TypeVar("Sets")
Way = Callable[[Sets], Any]
SAMPLES, SLICE_SECONDS = 3, 0.01


def time_launches(launches: Sequence[Launch]) -> float:
    """Seconds per launch on the current CUDA device."""
    device = CudaDevice()
    prepared = device.prepare(launches)
    return median(device.sample(prepared, SLICE_SECONDS)[0] for _ in range(SAMPLES))


class Contest(Generic[Sets]):
    """Launches that wait with the choice of a way for the first call, when all sets of inputs are known.

    ways: lists them for one set; one that raises is out, and when all are, the last reason is raised.
    """

    def __init__(
        self, ways: Callable[[Sets], Iterable[Way[Sets]]], clock: Callable[[Sequence[Launch]], float] | None = None
    ) -> None:
        self._ways, self._clock = ways, clock or time_launches
        self._sets: list[Sets] = []
        self._best: Way[Sets] | None = None

    def enter(self, values: Sets) -> Launch:
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
                seconds = self._clock([partial(way, values) for values in self._sets])
            except Exception as error:  # whatever a foreign library raises
                reason = error
                continue
            if seconds < least:
                best, least = way, seconds
        if best is None:
            raise reason
        return best


def bind_launches(
    baseline: Baseline, inputs: Sequence[tuple[Any, ...]], outputs: Sequence[tuple[Any, ...]]
) -> list[Launch]:
    """The launch of a baseline on each set of tensors."""
    bound = [baseline.bind(*values) for values in zip(inputs, outputs)]
    if baseline.ways is None:
        return bound
    contest = Contest[Any](baseline.ways)
    return [contest.enter(values) for values in bound]
