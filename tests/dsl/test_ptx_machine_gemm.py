"""Shipped GEMMs, executed on the PTX machine: several tiles per CTA, tails in all dims; and constants below a tile."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("numpy")
pytest.importorskip("torch")

from gemm_specs import CONSTANTS, resolve_text

from cutegen.machine import Simulation, assert_passes, load, load_resolution, promise
from cutegen.machine.host import missing_tool
from cutegen.resolve import resolve_file
from cutegen.run.shapes import product_space

pytestmark = [
    pytest.mark.dsl,
    pytest.mark.skipif(importlib.util.find_spec("cutlass") is None, reason="nvidia-cutlass-dsl is not installed"),
    pytest.mark.skipif(missing_tool() is not None, reason=str(missing_tool())),
]
ROOT = Path(__file__).parents[2]
PACKAGES = sorted(p.parent for p in (ROOT / "generated").glob("gemm_*/plan.py"))
RAGGED = {"m": 300, "n": 272, "k": 200, "batch": 2, "l": 2}


@pytest.mark.parametrize("package", PACKAGES, ids=lambda p: p.name)
def test_shipped_gemm_over_several_tiles_per_cta(package: Path) -> None:
    """Its default, and what it picks for the shape."""
    simulation = Simulation(sm_count=2)
    subject = load(package, simulation)
    promise(simulation, subject, resolve_file(ROOT / "specs" / f"{package.name}.yaml").resolved.problem.ready)
    shape = product_space(subject).legal(RAGGED)
    plan: Any = subject.plan
    for tiling in dict.fromkeys((next(iter(plan.tilings)), plan.dispatch(**shape))):
        simulation.sm_count = max(2, plan.least_sms(tiling))
        assert_passes(subject, shape, tiling=tiling)
    assert simulation.unknown() == []


@pytest.mark.parametrize("name", CONSTANTS)
def test_constants_that_fit_in_a_tile(name: str) -> None:
    """Each part of the tile goes to its own place."""
    subject = load_resolution(resolve_text(CONSTANTS[name]), Simulation(sm_count=2))
    assert_passes(subject, product_space(subject).legal({"m": 136, "n": 136, "k": 136, "t": 100, "g": 3}))
