"""Scratch that a plan owns: it grows, is not shared where it must not be, and is never freed under a graph."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from cutegen.runtime.scratch import OwnScratch  # noqa: E402

CPU = torch.device("cpu")


def make(device: Any, sizes: tuple[int, ...]) -> tuple[Any, ...]:
    return tuple(torch.zeros(size, device=device) for size in sizes)


def test_a_set_is_kept_and_grows_in_every_part() -> None:
    own = OwnScratch(make)
    first = own.find(CPU, (10, 3))
    assert own.find(CPU, (4, 3)) is first
    second = own.find(CPU, (4, 7))
    assert [t.numel() for t in second] == [10, 7]
    assert own.find(CPU, (10, 3)) is second


class Cuda:
    """What a CUDA device and torch.cuda look like to OwnScratch, on a machine that has none."""

    type = "cuda"
    index, current, stream, waits = 0, 0, 1, 0

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.captured: set[int] = set()  # devices whose current stream is being captured
        monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: self.current in self.captured)
        monkeypatch.setattr(torch.cuda, "current_device", lambda: self.current)
        monkeypatch.setattr(torch.cuda, "current_stream", lambda device: self)
        monkeypatch.setattr(torch._C, "_cuda_getCurrentRawStream", lambda index: self.stream, raising=False)
        monkeypatch.setattr(torch.cuda, "device", lambda device: self.switch(device.index))

    @contextmanager
    def switch(self, index: int) -> Iterator[None]:
        before, self.current = self.current, index
        yield
        self.current = before

    @contextmanager
    def capture(self, index: int = 0) -> Iterator[None]:
        self.captured.add(index)
        yield
        self.captured.remove(index)

    def synchronize(self) -> None:
        self.waits += 1

    @property
    def cuda_stream(self) -> int:
        return self.stream


def test_what_a_graph_has_captured_is_never_freed(monkeypatch: pytest.MonkeyPatch) -> None:
    device = Cuda(monkeypatch)
    own = OwnScratch(lambda device, sizes: make(CPU, sizes))
    own.find(device, (10,))
    with device.capture():
        captured = weakref.ref(own.find(device, (10,))[0])
    own.find(device, (20,))
    gc.collect()
    assert own._sets[device, "graphs"][0].numel() == 20
    assert captured() is not None


def test_what_no_graph_has_captured_is_freed_when_it_is_outgrown(monkeypatch: pytest.MonkeyPatch) -> None:
    device = Cuda(monkeypatch)
    own = OwnScratch(lambda device, sizes: make(CPU, sizes))
    made = []
    for rows in range(1, 9):
        own.find(device, (rows,))
        made.append(weakref.ref(own._sets[device, "graphs"][0]))
    gc.collect()
    assert [tensor() is not None for tensor in made] == [False] * 7 + [True]


def test_a_spare_set_for_graphs_that_does_not_fit_is_done_without(monkeypatch: pytest.MonkeyPatch) -> None:
    device = Cuda(monkeypatch)
    room = [1]

    def make_once(_: Any, sizes: tuple[int, ...]) -> tuple[Any, ...]:
        if not room:
            raise torch.cuda.OutOfMemoryError("out of memory")
        room.pop()
        return make(CPU, sizes)

    own = OwnScratch(make_once)
    found = own.find(device, (8,))
    assert own.find(device, (8,)) is found
    room.append(1)
    with device.capture():
        assert own.find(device, (8,)) is not found  # of its own, and not the stream's
    with pytest.raises(torch.cuda.OutOfMemoryError):  # what the call itself needs
        own.find(device, (9,))


def test_a_capture_on_another_device_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """The current device's stream is captured, and the call's tensors are on another device."""
    device = Cuda(monkeypatch)
    own = OwnScratch(lambda device, sizes: make(CPU, sizes))
    device.index, device.stream = 1, 7
    with device.capture(index=0):
        found = own.find(device, (8,))
    assert own._sets[device, 7] is found
    with device.capture(index=1):
        assert own.find(device, (8,)) is own._sets[device, "graphs"]
    assert device.current == 0


@pytest.mark.filterwarnings("ignore:Accessing the data pointer of FakeTensor")
def test_scratch_without_memory_is_never_kept() -> None:
    from torch._subclasses.fake_tensor import FakeTensorMode

    own = OwnScratch(make)
    with FakeTensorMode(), pytest.raises(RuntimeError, match="scratch would be of FakeTensor without memory"):
        own.find(CPU, (10,))
    assert type(own.find(CPU, (10,))[0]) is torch.Tensor


def test_streams_have_their_own_and_graphs_share_one(monkeypatch: pytest.MonkeyPatch) -> None:
    device = Cuda(monkeypatch)
    own = OwnScratch(lambda device, sizes: make(CPU, sizes))
    first = own.find(device, (8,))
    device.stream = 2
    second = own.find(device, (8,))
    with device.capture():
        graph = own.find(device, (8,))
        device.stream = 1
        assert own.find(device, (8,)) is graph
    assert len({id(first), id(second), id(graph)}) == 3
    assert device.waits == 1  # for the shared set; a stream zeroes its own in order


def test_a_graph_that_comes_first_or_is_larger_gets_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    device = Cuda(monkeypatch)
    own = OwnScratch(lambda device, sizes: make(CPU, sizes))
    with device.capture():
        assert own.find(device, (8,)) is not own.find(device, (8,))
    own.find(device, (8,))
    with device.capture():
        assert own.find(device, (8,)) is own.find(device, (8,))
        assert own.find(device, (9,)) is not own.find(device, (9,))
    assert device.waits == 1


def test_what_was_taken_is_taken_again_until_its_set_grows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tensors without elements are left out; captures, and devices that are not current, are looked at each time."""
    device, looks = Cuda(monkeypatch), []
    own = OwnScratch(lambda device, sizes: make(CPU, sizes))
    find = own.find
    monkeypatch.setattr(own, "find", lambda *given: looks.append(given) or find(*given))
    near = SimpleNamespace(device=device, get_device=lambda: device.index)
    (first,) = own.take(near, (8, 0))
    assert own.take(near, (8, 0))[0] is first
    assert len(looks) == 1
    with device.capture():
        (captured,) = own.take(near, (8, 0))
    assert captured is own._sets[device, "graphs"][0]
    assert captured is not first
    device.stream = 2
    (second,) = own.take(near, (8, 0))
    assert second is not first
    assert second is not captured
    device.index, device.stream = 1, 1
    (other,) = own.take(near, (8, 0))
    assert own.take(near, (8, 0))[0] is other
    assert len(looks) == 5
    device.index = 0
    assert own.take(near, (8, 0))[0] is first
    outgrown = weakref.ref(first)
    del first, other  # which is of the same set here
    assert own.take(near, (20, 0))[0].numel() == 20
    gc.collect()
    assert outgrown() is None
