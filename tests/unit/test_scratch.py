"""Scratch that a plan owns: it grows, is not shared where it must not be, and is never freed under a graph."""

from __future__ import annotations

import gc
import weakref
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


def test_what_graphs_may_have_captured_is_never_freed() -> None:
    own = OwnScratch(make)
    own.find(CPU, (10,))
    shared = own._sets[CPU, "graphs"]
    assert shared is not own.find(CPU, (10,))
    alive = weakref.ref(shared[0])
    del shared
    own.find(CPU, (20,))
    gc.collect()
    assert own._sets[CPU, "graphs"][0].numel() == 20
    assert alive() is not None


class Cuda:
    """What a CUDA device and torch.cuda look like to OwnScratch, on a machine that has none."""

    type = "cuda"
    stream, capturing, waits = 1, False, 0

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: self.capturing)
        monkeypatch.setattr(torch.cuda, "current_stream", lambda device: self)
        monkeypatch.setattr(torch.cuda, "synchronize", lambda device: setattr(self, "waits", self.waits + 1))

    @property
    def cuda_stream(self) -> int:
        return self.stream


def test_streams_have_their_own_and_graphs_share_one(monkeypatch: pytest.MonkeyPatch) -> None:
    device = Cuda(monkeypatch)
    own = OwnScratch(lambda device, sizes: make(CPU, sizes))
    first = own.find(device, (8,))
    device.stream = 2
    second = own.find(device, (8,))
    device.capturing = True
    graph = own.find(device, (8,))
    device.stream = 1
    assert own.find(device, (8,)) is graph
    assert len({id(first), id(second), id(graph)}) == 3
    assert device.waits == 1  # for the shared set; a stream zeroes its own in order


def test_a_graph_that_comes_first_or_is_larger_gets_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    device = Cuda(monkeypatch)
    own = OwnScratch(lambda device, sizes: make(CPU, sizes))
    device.capturing = True
    assert own.find(device, (8,)) is not own.find(device, (8,))
    device.capturing = False
    own.find(device, (8,))
    device.capturing = True
    assert own.find(device, (8,)) is own.find(device, (8,))
    assert own.find(device, (9,)) is not own.find(device, (9,))
    assert device.waits == 1
