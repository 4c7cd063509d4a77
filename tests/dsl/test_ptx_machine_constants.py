"""Constant dims that fit in a tile or a part of one, executed on the PTX machine: each part goes to its own place."""

from __future__ import annotations

import importlib.util

import pytest

pytest.importorskip("numpy")
pytest.importorskip("torch")

from gemm_specs import CONSTANTS, resolve_text
from ptx_machine import Simulation, assert_passes, load_resolution
from ptx_machine.host import missing_tool

from cutegen.run.shapes import legal_shape

pytestmark = [
    pytest.mark.dsl,
    pytest.mark.skipif(importlib.util.find_spec("cutlass") is None, reason="nvidia-cutlass-dsl is not installed"),
    pytest.mark.skipif(missing_tool() is not None, reason=str(missing_tool())),
]


@pytest.mark.parametrize("name", CONSTANTS)
def test_constants_that_fit_in_a_tile(name: str) -> None:
    subject = load_resolution(resolve_text(CONSTANTS[name]), Simulation(sm_count=2))
    assert_passes(subject, legal_shape(subject, {"m": 136, "n": 136, "k": 136, "t": 100, "g": 3}))
