"""Golden picks as tests of Python and C read them; golden/test_picks.py says what is in the file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from cutegen.runtime.gemm.cost_model import Form, Instance
from cutegen.runtime.gemm.portfolio import Portfolio, Traits

FILE = Path(__file__).with_name("golden") / "picks.json"
# A device that no table has: 78 SMs, which clusters of 4 do not divide.
UNKNOWN = SimpleNamespace(
    name="NVIDIA H20", multi_processor_count=78, clock_rate=1_980_000, memory_clock_rate=2_619_000,
    memory_bus_width=6144, L2_cache_size=60 * 2**20,
)  # fmt: skip


def read_sets(data: dict[str, Any]) -> Iterator[tuple[Portfolio, dict[str, Any]]]:
    """A portfolio, and its tilings as a plan has them."""
    shared = Instance._fields[:7]
    for given in data["sets"]:
        form = Form(**{**given["form"], "moved": tuple(map(tuple, given["form"]["moved"]))})
        tilings, traits = {}, {}
        for number, values in enumerate(given["instances"]):
            knobs = dict(zip(Instance._fields, (tuple(v) if isinstance(v, list) else v for v in values)))
            tilings[str(number)] = SimpleNamespace(**{name: knobs.pop(name) for name in shared})
            traits[str(number)] = Traits(**knobs)
        yield Portfolio(data["model"], form, traits, tuple(tilings)), tilings
