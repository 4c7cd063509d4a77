"""GEMMs whose rows fall into groups, executed on the PTX machine: sizes around every edge, and tensors that lie."""

from __future__ import annotations

import importlib.util
from functools import cache
from typing import Any

import pytest

pytest.importorskip("numpy")
pytest.importorskip("torch")

import torch
from gemm_specs import COUNTS, LABELS, OFFSETS, PINGPONG, group_fused, group_scaled, resolve_text

from cutegen.machine import Simulation, assert_passes, load_resolution
from cutegen.machine.host import missing_tool
from cutegen.run.case_list import list_cases
from cutegen.run.guard import guarded_like
from cutegen.run.subject import Subject
from cutegen.runtime.gemm.row_groups import Deal

pytestmark = [
    pytest.mark.dsl,
    pytest.mark.skipif(importlib.util.find_spec("cutlass") is None, reason="nvidia-cutlass-dsl is not installed"),
    pytest.mark.skipif(missing_tool() is not None, reason=str(missing_tool())),
]
SMALL = "tiling: {tile: [64, 64, 64], cluster: [2, 1]}\n"
SWAPPED = "tiling: {swap_ab: true, tile: [128, 32, 64], cluster: [1, 2]}\n"
WIDE = "tiling: {swap_ab: true, tile: [256, 32, 64], cluster: [1, 1]}\n"
THREADS = "tma: {d: {store: direct}}\ntiling: {tile: [64, 64, 64]}\n"
COOPERATIVE = "tiling: {tile: [128, 64, 64]}\n"
GATED = LABELS.replace("m, n]", "m, n/2]") + "epilogue: {d: 'silu(acc[:, :n/2]) * acc[:, n/2:]'}\n"
# A weight for each place in a group, the same for all groups.
WEIGHTED = COUNTS.replace("  d:", "  w: f32[m]\n  d:") + "epilogue: {d: acc * w}\n"
E4M3 = (
    LABELS.replace("a: bf16[m, k]", "a: e4m3[m, k]\n  sa: f32[m]").replace("b: bf16[", "sb: f32[g, n]\n  b: e4m3[")
    + "mainloop: (a * sa) @ (b * sb)\n"
)


def fused(text: str) -> str:
    return group_fused(text) + PINGPONG + SMALL


# Spec, and extents: several tiles for each of the CTAs, groups in two windows of the table.
SPECS: dict[str, tuple[str, dict[str, int]]] = {
    "labels": (LABELS + COOPERATIVE, {"m": 600, "n": 72, "k": 72, "g": 5}),
    "labels_fused_pingpong": (fused(LABELS), {"m": 400, "n": 72, "k": 72, "g": 5}),
    "labels_swapped": (LABELS.replace("group}", "group, align: 64}") + SWAPPED, {"m": 500, "n": 200, "k": 72, "g": 6}),
    "labels_gated": (GATED + COOPERATIVE, {"m": 300, "n": 144, "k": 72, "g": 3}),
    "labels_e4m3": (E4M3 + COOPERATIVE, {"m": 500, "n": 72, "k": 144, "g": 5}),
    "counts": ("dims: {g: 40}\n" + COUNTS + COOPERATIVE, {"m": 140, "n": 40, "k": 40, "g": 40}),
    "counts_as_shipped": (COUNTS + WIDE, {"m": 50, "n": 520, "k": 136, "g": 5}),
    "counts_swapped": (WEIGHTED + SWAPPED, {"m": 50, "n": 136, "k": 72, "g": 5}),
    "offsets": (OFFSETS + COOPERATIVE, {"m": 500, "n": 72, "k": 72, "g": 5}),
    "offsets_fused_pingpong": (fused(OFFSETS), {"m": 500, "n": 72, "k": 72, "g": 6}),
    "offsets_swapped": (OFFSETS.replace("d: bf16", "d: f32") + SWAPPED, {"m": 300, "n": 200, "k": 72, "g": 6}),
    "offsets_stored_by_threads": (
        OFFSETS.replace("bf16[m, k]", "bf16[k, m]") + THREADS,
        {"m": 200, "n": 72, "k": 72, "g": 6},
    ),
}
BLOCKS = "tiling: {tile: [64, 64, 128]}\n"
SPECS |= {
    "labels_blocks": (group_scaled(LABELS) + BLOCKS, {"m": 400, "n": 136, "k": 272, "g": 3}),
    "counts_blocks_as_shipped": (
        group_scaled(COUNTS) + WIDE.replace("64]", "128]"),
        {"m": 50, "n": 264, "k": 272, "g": 4},
    ),
    "offsets_blocks": (group_scaled(OFFSETS) + BLOCKS, {"m": 200, "n": 136, "k": 272, "g": 4}),
    "offsets_blocks_swapped": (
        group_scaled(OFFSETS).replace("d: bf16", "d: f32") + SWAPPED.replace("64]", "128]"),
        {"m": 140, "n": 136, "k": 272, "g": 4},
    ),
}
# A constant that is no whole number of tiles, and wider than one.
SPECS |= {
    "offsets_constant_columns": (fused(OFFSETS) + "dims: {n: 392}\n", {"m": 200, "n": 392, "k": 72, "g": 3}),
    "offsets_constant_swapped": (
        "dims: {n: 392, k: 72, g: 3}\n" + OFFSETS.replace("d: bf16", "d: f32") + SWAPPED,
        {"m": 140, "n": 392, "k": 72, "g": 3},
    ),
}
DYNAMIC = "scheduler: dynamic_persistent\n"
SPECS |= {
    "labels_dynamic": (LABELS + SMALL + DYNAMIC, {"m": 500, "n": 72, "k": 72, "g": 5}),
    "offsets_dynamic_pingpong": (fused(OFFSETS) + DYNAMIC, {"m": 400, "n": 72, "k": 72, "g": 6}),
}
SIMULATION = Simulation(sm_count=4)
EDGES, NONE, ANY = Deal("edges"), Deal("none"), Deal("random")


@cache
def subject(name: str) -> Subject:
    return load_resolution(resolve_text(SPECS[name][0]), SIMULATION)


@pytest.mark.parametrize(("deal", "seed"), [(ANY, 0), (EDGES, 1)], ids=["random", "edges"])
@pytest.mark.parametrize("name", SPECS)
def test_rows_meet_the_matrix_of_their_group(name: str, deal: Deal, seed: int) -> None:
    SIMULATION.seed = seed
    assert_passes(subject(name), SPECS[name][1], draw=deal, seed=seed)


@pytest.mark.parametrize("scheduler", ["", DYNAMIC], ids=["static", "dynamic"])
def test_tiles_of_groups_scaled_by_zero(scheduler: str) -> None:
    text = OFFSETS.replace("  d:", "  c: bf16[m, n]\n  beta: f32\n  d:") + "epilogue: {d: acc + beta * c}\n"
    scaled = load_resolution(resolve_text(text + SMALL + scheduler), SIMULATION)
    assert "zeroed" in {case.mode for case in list_cases(scaled)}
    assert_passes(scaled, {"m": 400, "n": 72, "k": 72, "g": 6}, draw=ANY, mode="zeroed")


@pytest.mark.parametrize("deal", [NONE, Deal("one"), Deal("ones"), Deal("full")], ids=lambda d: d.kind)
@pytest.mark.parametrize("name", ["labels_fused_pingpong", "counts_swapped", "offsets_dynamic_pingpong"])
def test_groups_of_extreme_sizes(name: str, deal: Deal) -> None:
    assert_passes(subject(name), SPECS[name][1], draw=deal)


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("labels", [7, -(2**31), 2**31 - 1, 5, 0, 3, 0]),
        ("counts", [2**31 - 1, -(2**31), 141, -1, 10**9]),
        ("offsets_fused_pingpong", [2**31 - 1, -(2**31), 90, -5, 501, 20]),
    ],
)
def test_no_values_make_a_kernel_leave_its_tensors(
    name: str, values: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The machine refuses an access outside of the arguments; guard bands tell of writes beside the output. Groups that
    overlap are written by several CTAs."""
    monkeypatch.setattr(SIMULATION, "races", False)
    kernel, shape = subject(name), SPECS[name][1]
    plan = kernel.plan
    assert plan
    inputs = list(plan.prepare_inputs(**shape))
    index = next(v for v in inputs if v.dtype is torch.int32)
    index.copy_(torch.tensor(values * (len(index) // len(values) + 1))[: len(index)])
    (output,) = (guarded_like(o, padded=False) for o in plan.allocate_outputs(*inputs))
    plan.launch_fn(*inputs, output.tensor)
    assert not output.damage()


@pytest.mark.parametrize("dim", ["g", "m"])
def test_without_groups_or_rows_nothing_is_launched(dim: str) -> None:
    plan = subject("labels").plan
    assert plan
    inputs = plan.prepare_inputs(**{**SPECS["labels"][1], dim: 0})
    (output,) = plan.allocate_outputs(*inputs)
    SIMULATION.machine = None
    plan.launch_fn(*inputs, output)
    assert SIMULATION.machine is None


def test_an_empty_contraction_is_refused() -> None:
    plan = subject("labels").plan
    assert plan
    inputs: Any = plan.prepare_inputs(**{**SPECS["labels"][1], "k": 0})
    with pytest.raises(ValueError, match="k is 0"):
        plan.launch_fn(*inputs, *plan.allocate_outputs(*inputs))
