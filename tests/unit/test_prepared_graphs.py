"""Captured graphs of launches, on a torch whose graphs record nothing."""

from __future__ import annotations

import gc
import weakref
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from cutegen.run.device import CudaDevice  # noqa: E402
from cutegen.run.preceding import stand_behind  # noqa: E402


class Event:
    def record(self) -> None: ...

    def synchronize(self) -> None: ...

    def elapsed_time(self, end: Any) -> float:
        return 1.0


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> CudaDevice:
    for name, value in {
        "Stream": lambda: SimpleNamespace(wait_stream=lambda other: None),
        "current_stream": lambda: None,
        "stream": lambda side: nullcontext(),
        "synchronize": lambda: None,
        "CUDAGraph": lambda: SimpleNamespace(replay=lambda: None),
        "graph": lambda graph: nullcontext(),
        "Event": lambda enable_timing: Event(),
    }.items():
        monkeypatch.setattr(torch.cuda, name, value)
    return CudaDevice.__new__(CudaDevice)


def test_what_only_launches_hold_lives_as_long_as_the_graph(
    device: CudaDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Replays write to the copies that precede launches: freed, they would be another tensor's memory, and
    none at all once the next capture has emptied the allocator's cache."""
    copies: list[Any] = []
    empty_like = torch.empty_like

    def allocated(source: Any) -> Any:
        made = empty_like(source)
        copies.append(weakref.ref(made))
        return made

    monkeypatch.setattr(torch, "empty_like", allocated)
    inputs = [(torch.ones(3),), (torch.ones(3),)]
    prepared = device.prepare(stand_behind("plain", [lambda: None] * 2, inputs))
    gc.collect()
    assert prepared.launches >= 2
    assert [copy() is not None for copy in copies] == [True, True]
    del prepared
    gc.collect()
    assert [copy() for copy in copies] == [None, None]
