"""MLA decode over a quantised cache, executed on the PTX machine: formats, lengths, wrong pages, and breaks."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("numpy")
pytest.importorskip("torch")

import torch
from gemm_specs import resolve_text
from mla_machine import UNIT_1, assert_right, dims, loaded_in, unchanged
from mla_specs import EDGES

from cutegen.families.proving import Mode
from cutegen.machine import Simulation, assert_passes, load_resolution, run
from cutegen.machine.host import missing_tool
from cutegen.run.subject import Subject
from cutegen.runtime.mla_decode.inputs import Draw

pytestmark = [
    pytest.mark.dsl,
    pytest.mark.thorough,
    pytest.mark.skipif(importlib.util.find_spec("cutlass") is None, reason="nvidia-cutlass-dsl is not installed"),
    pytest.mark.skipif(missing_tool() is not None, reason=str(missing_tool())),
]
V32 = "mla_decode_v32_sm90a"
E4M3 = "mla_decode_e4m3_sm90a"
NOTHING = {"before": unchanged}  # that the spec promises; parts are guessed by lengths


@pytest.mark.parametrize(
    ("name", "tiling", "shape", "draw", "sm_count"),
    [
        (V32, "seesaw", dims(9, 1, 3, 257), Draw("edges", peaked=True), 2),
        (V32, "seesaw", dims(1, 2, 16, 900), Draw(), 4),
        (V32, "seesaw", dims(3, 1, 70, 300), Draw("random", pitch=True), 4),
        (V32, UNIT_1, dims(3, 2, 20, 330), Draw("edges", peaked=True), 11),
        (V32, UNIT_1, dims(7, 1, 1, 450), Draw("random"), 2),
        (E4M3, "seesaw", dims(5, 1, 3, 257), Draw("edges", peaked=True), 2),
        (E4M3, "seesaw", dims(1, 2, 16, 500), Draw(), 4),
        (E4M3, "seesaw", dims(3, 2, 20, 330), Draw("random", pitch=True), 11),
    ],
)
def test_shipped_cache(name: str, tiling: str, shape: dict[str, int], draw: Draw, sm_count: int) -> None:
    simulation = Simulation(sm_count, 1, **NOTHING)
    assert_passes(loaded_in(simulation, name), shape, tiling=tiling, draw=draw)
    assert simulation.unknown() == []


@pytest.fixture(scope="module")
def invariant() -> Subject:
    """Parts of the cache in another order with other scales, and small pages; pieces of 256 keys, up to 3."""
    simulation = Simulation(5, 1, before=lambda q_nope, q_pe, cache, table, lengths, *others: {4: lengths})
    return load_resolution(resolve_text(EDGES["quantised"], name="quantised"), simulation)


@pytest.mark.parametrize(
    ("shape", "draw", "mode"),
    [
        (dims(5, 2, 5, 200), Draw("edges", peaked=True), "numerics"),
        (dims(1, 1, 3, 450), Draw(peaked=True), "numerics"),  # two pieces, for which there are five parts
        (dims(2, 1, 3, 900), Draw("spread", peaked=True), "numerics"),  # a part has the end of one and begins the other
        (dims(3, 1, 3, 450), Draw("random", peaked=True), "alone"),
    ],
)
def test_parts_in_another_order_cut_by_lengths_alone(
    shape: dict[str, int], draw: Draw, mode: Mode, invariant: Subject
) -> None:
    assert_passes(invariant, shape, draw=draw, mode=mode)


def test_a_cut_that_depends_on_the_number_of_sms_is_found(invariant: Subject, monkeypatch: pytest.MonkeyPatch) -> None:
    """A launch of few parts that is given wrong lengths of one piece."""
    plan: Any = invariant.plan
    launch = plan.make_launch("seesaw")

    def loses_a_key(*values: Any, sms: int | None = None) -> None:
        lengths = values[4]
        launch(*values[:4], lengths - 1 if sms else lengths, *values[5:], sms=sms)

    monkeypatch.setattr(plan, "make_launch", lambda key=None: loses_a_key)
    result = run(invariant, dims(2, 1, 3, 300), draw=Draw(peaked=True), mode="alone")
    assert result.status == "wrong"
    assert "differ when the batch is in reverse, on 1 SMs with tiling seesaw" in "\n".join(result.detail)


def test_rows_without_a_rotary_part_and_scales_behind_small_pages() -> None:
    simulation = Simulation(3, 1, before=unchanged)
    subject = load_resolution(resolve_text(EDGES["no_rope"], name="no_rope"), simulation)
    assert_passes(subject, dims(5, 2, 5, 200), draw=Draw("edges", peaked=True, pitch=True))
    assert_passes(subject, dims(1, 1, 70, 450))  # in parts


def test_pages_that_do_not_exist_are_keys_of_zeros() -> None:
    """A broken table reads nothing outside of the cache."""
    plan = loaded_in(Simulation(**NOTHING), V32).plan
    assert plan
    q, cache, table, lengths, scale = plan.draw_inputs(Draw(), **dims(2, 1, 4, 150))
    cache = torch.cat((cache, plan.pack(torch.zeros(1, 64, 576))))
    zeros = len(cache) - 1
    wrong = table.clone()
    wrong[0, 1], wrong[1, 0], wrong[1, 2] = len(cache), -1, 2**31 - 1
    right = table.clone()
    right[0, 1] = right[1, 0] = right[1, 2] = zeros
    outputs = plan.kernel_fn(q, cache, wrong, lengths, scale)
    assert_right(plan, (q, cache, right, lengths, scale), outputs)


def removing(pattern: str) -> Callable[[str], str]:
    def mutate(ptx: str) -> str:
        changed, n = re.subn(pattern, "", ptx)
        assert n, f"nothing in the PTX matches {pattern}"
        return changed

    return mutate


@pytest.mark.parametrize(
    ("pattern", "told"),
    [
        (r"fence\.proxy\.async\.shared::cta;(?=\s+bar\.warp\.sync)", "without fence.proxy.async"),
        (r"bar\.(?:cta\.)?sync\s+6, 384;", "race|deadlock|wrong|uninitialised|before"),
    ],
    ids=["no proxy fence", "the part is not waited for"],
)
def test_breaks_are_told(pattern: str, told: str) -> None:
    simulation = Simulation(mutate=removing(pattern), **NOTHING)
    result = run(loaded_in(simulation, V32), dims(1, 2, 16, 500), tiling="seesaw")
    assert re.search(told, "\n".join(result.detail)), result.detail
