"""A few cases of each attack; CONTRIBUTING.md tells how to run many."""

from __future__ import annotations

import pytest
from attacks import cache, calls, kills, sizes


@pytest.mark.parametrize(("attack", "count"), [(cache, 60), (sizes, 4), (calls, 400), (kills, 4)])
def test_nothing_falls_short(attack: object, count: int) -> None:
    assert list(attack.attack(count, 1)) == []  # type: ignore[attr-defined]
