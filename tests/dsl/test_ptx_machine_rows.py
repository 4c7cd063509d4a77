"""Row kernels in every form of their templates, compiled and executed on the PTX machine."""

from __future__ import annotations

import importlib.util

import pytest

pytest.importorskip("numpy")
pytest.importorskip("torch")

from gemm_specs import resolve_text
from row_specs import FORMS, NORM

from cutegen.machine import Simulation, assert_equal_bits, assert_passes, load_resolution
from cutegen.machine.host import missing_tool

pytestmark = [
    pytest.mark.dsl,
    pytest.mark.skipif(importlib.util.find_spec("cutlass") is None, reason="nvidia-cutlass-dsl is not installed"),
    pytest.mark.skipif(missing_tool() is not None, reason=str(missing_tool())),
]
SHAPES = {
    "all_kinds": {"t": 3, "h": 2},
    "moments": {"m": 9},
    "one_warp": {"m": 5},
    "rounds": {"m": 3},
    "blocks": {"m": 3, "n": 912},
    "block_values": {"m": 2, "n": 4672},
    "parts": {"m": 3, "n": 9200},
}


@pytest.mark.parametrize("form", FORMS)
def test_every_form_is_right(form: str) -> None:
    subject = load_resolution(resolve_text(FORMS[form]), Simulation(sm_count=1))
    assert_passes(subject, SHAPES[form])


def test_a_row_does_not_depend_on_the_others() -> None:
    """Alone, and among others, at any place: equal bits, as is NaN in one row and none in the next."""
    import torch

    subject = load_resolution(resolve_text(NORM), Simulation(sm_count=1))
    plan = subject.plan
    assert plan
    x, w = plan.prepare_inputs(m=7, n=264)
    x[2, 5] = torch.nan
    y = plan.kernel_fn(x, w)
    assert y.isnan().all(-1).tolist() == [i == 2 for i in range(7)]
    for i in (0, 1, 3, 6):
        assert torch.equal(plan.kernel_fn(x[i : i + 1], w)[0], y[i])


def test_equal_bits_in_any_order_of_events() -> None:
    simulation = Simulation(sm_count=1)
    assert_equal_bits(load_resolution(resolve_text(NORM), simulation), simulation, m=5, n=4400)
