"""Scratch that a plan owns, for calls that bring none."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

from cutegen.runtime.arguments import TensorArg, lacks_memory, torch_dtype

Sizes = tuple[int, ...]  # elements of each scratch tensor
Make = Callable[[Any, Sizes], tuple[Any, ...]]  # (torch device, sizes) -> tensors, counters zeroed
MOST_TAKEN = 1024  # sizes that are remembered


def make_scratch(args: Sequence[TensorArg], device: Any, sizes: Sizes) -> tuple[Any, ...]:
    """Of so many elements each, counters zeroed."""
    import torch

    return tuple(
        (torch.zeros if s.zeroed else torch.empty)(size, dtype=torch_dtype(s.dtype), device=device)
        for s, size in zip(args, sizes)
    )


def check_scratch(name: str, key: str, args: Sequence[TensorArg], given: Sequence[Any], sizes: Sizes) -> None:
    """ValueError: a tensor has fewer elements than tiling `key` takes."""
    for arg, tensor, size in zip(args, given, sizes):
        if tensor.numel() < size:
            raise ValueError(
                f"{name}: {arg.name} has {tensor.numel()} elements, tiling {key} needs {size}: "
                "size it by workspace_shapes"
            )


class OwnScratch:
    """One set of scratch tensors for each stream, and for each device one that all captured graphs share: graphs, and
    branches of one graph, that may run at the same time need scratch of their own, passed to launch_fn.

    A set grows when a call needs more and never shrinks. What a graph has captured is never freed, because the graph
    keeps its address.
    """

    def __init__(self, make: Make) -> None:
        self._make = make
        self._sets: dict[tuple[Any, Any], tuple[Any, ...]] = {}
        self._captured: dict[int, tuple[Any, ...]] = {}  # by id: a set is kept once, however many graphs have it
        # What `take` found, by device index, stream and sizes; it begins again when a set grows.
        self._taken: dict[tuple[int, int, Sizes], tuple[Any, ...]] = {}
        # Two threads that grow the graphs' set would lose one that a capture may hold, and so would one that grows it
        # while another captures.
        self._growing = threading.Lock()

    def take(self, near: Any, sizes: Sizes) -> tuple[Any, ...]:
        """Of what `find` finds on the device of the tensor `near`, the tensors that are to have any elements. What was
        found before costs little host time."""
        index = near.get_device()
        stream = _uncaptured_stream(index)
        if stream is not None and (taken := self._taken.get((index, stream, sizes))) is not None:
            return taken
        taken = tuple(tensor for tensor, size in zip(self.find(near.device, sizes), sizes) if size)
        if stream is not None:
            if len(self._taken) >= MOST_TAKEN:
                self._taken.clear()
            self._taken[index, stream, sizes] = taken
        return taken

    def find(self, device: Any, sizes: Sizes) -> tuple[Any, ...]:
        """Scratch of at least these sizes that no other stream uses. A graph that is captured before any plain call of
        such a size gets a set of its own, which it zeroes whenever it is replayed. RuntimeError: torch makes tensors
        without memory now, as under FakeTensorMode."""
        if device.type != "cuda":
            return self._grow(device, 0, sizes)
        if _is_capturing(device):
            with self._growing:
                shared = self._sets.get((device, "graphs"), ())
                if _suffices(shared, sizes):
                    return self._captured.setdefault(id(shared), shared)
            return self._checked(device, sizes)
        return self._grow(device, _current_stream(device), sizes)

    def _grow(self, device: Any, stream: int, sizes: Sizes) -> tuple[Any, ...]:
        """The set of a stream, made larger where it has to be, and then that of graphs as well."""
        found = self._sets.get((device, stream), ())
        if _suffices(found, sizes):
            return found
        found = self._sets[device, stream] = self._checked(device, _union(found, sizes))
        self._taken.clear()  # what is replaced shall be freed
        if device.type == "cuda":
            with self._growing:
                self._grow_shared(device, sizes)
        return found

    def _grow_shared(self, device: Any, sizes: Sizes) -> None:
        """Makes the set of graphs larger, if there is room: without it a graph gets one of its own. What no graph has
        captured is freed."""
        import torch

        shared = self._sets.get((device, "graphs"), ())
        if _suffices(shared, sizes):
            return
        try:
            made = self._checked(device, _union(shared, sizes))
        except torch.cuda.OutOfMemoryError:
            return
        torch.cuda.current_stream(device).synchronize()  # zeroed before any other stream can look
        self._sets[device, "graphs"] = made

    def _checked(self, device: Any, sizes: Sizes) -> tuple[Any, ...]:
        made = self._make(device, sizes)
        if any(lacks_memory(tensor) for tensor in made):
            kinds = ", ".join(sorted({type(tensor).__name__ for tensor in made}))
            raise RuntimeError(f"scratch would be of {kinds} without memory: call outside of FakeTensorMode")
        return made


def _current_stream(device: Any) -> int:
    """The handle of the stream that a launch on this device goes to. torch's public way makes an object of it, which
    takes as long as half a launch."""
    import torch

    read = getattr(torch._C, "_cuda_getCurrentRawStream", None)
    if read is None or device.index is None:
        return int(torch.cuda.current_stream(device).cuda_stream)
    return int(read(device.index))


def _uncaptured_stream(index: int) -> int | None:
    """The handle of the stream that a launch on CUDA device `index` goes to, 0 on the CPU. None: it is being captured,
    or another device is current, of which torch does not say it as quickly."""
    if index < 0:
        return 0
    import torch

    read, current = (getattr(torch._C, name, None) for name in ("_cuda_getCurrentRawStream", "_cuda_getDevice"))
    if (current or torch.cuda.current_device)() != index or torch.cuda.is_current_stream_capturing():
        return None
    return int(read(index)) if read else int(torch.cuda.current_stream(index).cuda_stream)


def _is_capturing(device: Any) -> bool:
    """Whether the stream that a launch on this device goes to is being captured."""
    import torch

    if torch.cuda.current_device() == device.index:
        return bool(torch.cuda.is_current_stream_capturing())
    with torch.cuda.device(device):
        return bool(torch.cuda.is_current_stream_capturing())


def _suffices(tensors: tuple[Any, ...], sizes: Sizes) -> bool:
    return len(tensors) == len(sizes) and all(t.numel() >= size for t, size in zip(tensors, sizes))


def _union(tensors: tuple[Any, ...], sizes: Sizes) -> Sizes:
    """At least the sizes of `tensors`, so that calls of two kinds do not replace each other's scratch."""
    return tuple(max(t.numel(), size) for t, size in zip(tensors, sizes)) if tensors else sizes
