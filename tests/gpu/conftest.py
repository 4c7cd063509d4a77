"""Tests with the marker `gpu` are skipped where shipped kernels do not run, with the reason."""

from __future__ import annotations

import pytest

from cutegen.runtime.gpu import probe_gpu


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    # A tune trusts no figures while another process is on the GPU, which this one is after any other test here.
    items.sort(key=lambda item: item.path.name != "test_tune.py" or "gpu" not in item.path.parts)
    status = probe_gpu("sm_90a")
    if not status.ok:
        for item in items:
            if item.get_closest_marker("gpu"):
                item.add_marker(pytest.mark.skip(reason=status.reason))
