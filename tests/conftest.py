"""What all tests share."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable
from pathlib import Path

import hypothesis
import pytest

# No deadline: the machine may be busy, and the tests say nothing about time. The same examples each time, so that what
# fails once fails again; with CUTEGEN_RANDOM=1 others, as a nightly run has them.
hypothesis.settings.register_profile("cutegen", deadline=None, derandomize=os.environ.get("CUTEGEN_RANDOM") != "1")
hypothesis.settings.load_profile("cutegen")

# Tests run on all cores, and what they start does: one thread each, also of what imports torch.
os.environ.setdefault("OMP_NUM_THREADS", "1")
ACCEPT = os.environ.get("CUTEGEN_ACCEPT") == "1"


def pytest_configure(config: pytest.Config) -> None:
    """Workers of xdist take files in the order of the folders: those that compile take longest, and come first. Its own
    order, by how many tests a file has, leaves a file of a few long ones for the end, when other cores have no work."""
    if hasattr(config.option, "loadscopereorder"):
        config.option.loadscopereorder = False


def pytest_collection_finish() -> None:
    """What was imported and collected stays: looking through it again and again took 3% of the time of the tests. Much
    is imported later, and stays as well: looking for cycles a tenth as often saves 4% more."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Of whole folders, the thorough ones are left out where `-m` does not ask for them."""
    if config.option.markexpr or any(arg.partition("::")[0].endswith(".py") for arg in config.args):
        return
    thorough = [item for item in items if item.get_closest_marker("thorough")]
    if thorough:
        config.hook.pytest_deselected(items=thorough)
        items[:] = [item for item in items if not item.get_closest_marker("thorough")]


@pytest.fixture
def golden() -> Callable[[Path, str], None]:
    """Compare text with the file that holds what is expected; CUTEGEN_ACCEPT=1 writes the file instead."""

    def compare(path: Path, text: str) -> None:
        if ACCEPT:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        assert path.is_file(), f"{path} is missing; CUTEGEN_ACCEPT=1 writes it"
        assert path.read_text(encoding="utf-8") == text

    return compare
