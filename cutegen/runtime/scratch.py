"""Scratch that a plan owns, for calls that bring none."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

Sizes = tuple[int, ...]  # elements of each scratch tensor
Make = Callable[[Any, Sizes], tuple[Any, ...]]  # (torch device, sizes) -> tensors, counters zeroed


class OwnScratch:
    """One set of scratch tensors for each stream, and for each device one that all captured graphs share: graphs, and
    branches of one graph, that may run at the same time need scratch of their own, passed to launch_fn.

    A set grows when a call needs more and never shrinks. What graphs may have captured is never freed, because they
    keep its address.
    """

    def __init__(self, make: Make) -> None:
        self._make = make
        self._sets: dict[tuple[Any, Any], tuple[Any, ...]] = {}
        self._outgrown: list[tuple[Any, ...]] = []
        self._growing = threading.Lock()  # two threads that grow the graphs' set would lose one that a capture may hold

    def find(self, device: Any, sizes: Sizes) -> tuple[Any, ...]:
        """Scratch of at least these sizes that no other stream uses. A graph that is captured before any plain call of
        such a size gets a set of its own, which it zeroes whenever it is replayed."""
        import torch

        if device.type != "cuda":
            capturing, stream = False, 0
        else:
            capturing = torch.cuda.is_current_stream_capturing()
            stream = torch.cuda.current_stream(device).cuda_stream
        found = self._sets.get((device, "graphs" if capturing else stream), ())
        if _suffices(found, sizes):
            return found
        if capturing:
            return self._make(device, sizes)
        found = self._sets[device, stream] = self._make(device, _union(found, sizes))
        with self._growing:
            shared = self._sets.get((device, "graphs"), ())
            if not _suffices(shared, sizes):
                made = self._make(device, _union(shared, sizes))
                if device.type == "cuda":
                    torch.cuda.synchronize(device)  # zeroed before any other stream can look
                self._outgrown.append(shared)
                self._sets[device, "graphs"] = made
        return found


def _suffices(tensors: tuple[Any, ...], sizes: Sizes) -> bool:
    return len(tensors) == len(sizes) and all(t.numel() >= size for t, size in zip(tensors, sizes))


def _union(tensors: tuple[Any, ...], sizes: Sizes) -> Sizes:
    """At least the sizes of `tensors`, so that calls of two kinds do not replace each other's scratch."""
    return tuple(max(t.numel(), size) for t, size in zip(tensors, sizes)) if tensors else sizes
