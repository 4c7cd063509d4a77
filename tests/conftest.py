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

ACCEPT = os.environ.get("CUTEGEN_ACCEPT") == "1"


def pytest_collection_finish() -> None:
    """What was imported and collected stays: looking through it again and again took 3% of the time of the tests. Much
    is imported later, and stays as well: looking for cycles a tenth as often saves 4% more."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20)


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
