"""Gathered rows, executed on the PTX machine: copies by threads beside those by TMA."""

from __future__ import annotations

import importlib.util
import re
from functools import cache
from typing import Any

import pytest

pytest.importorskip("numpy")
pytest.importorskip("torch")

import torch
from gemm_specs import (
    BLOCKS,
    DYNAMIC,
    FUSED,
    LABELS,
    OFFSETS,
    PINGPONG,
    PLAIN,
    ROW_SCALES,
    gathered,
    gathered_scales,
    group_fused,
    group_quantised,
    group_scaled,
    resolve_text,
)

from cutegen.machine import Simulation, assert_passes, load_resolution, run
from cutegen.machine.host import missing_tool
from cutegen.run.subject import Subject
from cutegen.runtime.gemm.row_groups import Deal

pytestmark = [
    pytest.mark.dsl,
    pytest.mark.thorough,
    pytest.mark.skipif(importlib.util.find_spec("cutlass") is None, reason="nvidia-cutlass-dsl is not installed"),
    pytest.mark.skipif(missing_tool() is not None, reason=str(missing_tool())),
]
SIMULATION = Simulation(sm_count=3)
NARROW = "tma: {a: {gather: cp_async, swizzle: 32}}\ntiling: {tile: [64, 32, 64], cluster: [1, 1]}\n"
SWAPPED = "tiling: {swap_ab: true, tile: [128, 32, 128], cluster: [1, 2]}\n"
# Over the rows of the product, of which there are more than of `a`.
REDUCED = PLAIN.replace("  d:", "  r: f32[n]\n  d:") + "epilogue: {d: acc, r: 'sum(acc, m)'}\n"
# Spec, extents, draw: rows that there are not are among those that an index names.
SPECS: dict[str, tuple[str, dict[str, int], Any]] = {
    "plain": (
        gathered(PLAIN) + "tiling: {tile: [64, 64, 64], cluster: [2, 1]}\n",
        {"m": 300, "n": 72, "k": 200},
        "lost",
    ),
    "by_one_warp": (
        gathered(FUSED) + DYNAMIC + "tiling: {tile: [128, 64, 64], cluster: [2, 1]}\n",
        {"m": 300, "n": 72, "k": 136},
        "lost",
    ),
    "swizzled_by_32_and_reduced": (gathered(REDUCED, "") + NARROW, {"m": 130, "n": 72, "k": 136}, "lost"),
    "short_rows": (gathered(PLAIN) + "tiling: {tile: [128, 32, 16]}\n", {"m": 130, "n": 72, "k": 40}, "lost"),
    # Six chunks of 16 bytes are copied by two threads.
    "rows_of_96_bytes": (
        gathered(PLAIN) + "tiling: {tile: [64, 32, 48], cluster: [1, 1]}\n",
        {"m": 70, "n": 72, "k": 72},
        "lost",
    ),
    "split": (gathered(PLAIN) + "tiling: {tile: [64, 64, 64], split_k: 2}\n", {"m": 70, "n": 72, "k": 328}, "lost"),
    "blocks_transposed": (gathered(BLOCKS) + SWAPPED, {"m": 70, "n": 136, "k": 272}, "lost"),
    "labels": (
        gathered(LABELS) + "tiling: {tile: [64, 64, 64]}\n",
        {"m": 500, "n": 72, "k": 72, "g": 4},
        Deal("random"),
    ),
    "offsets_fused_pingpong": (
        gathered(group_fused(OFFSETS)) + DYNAMIC + PINGPONG + "tiling: {tile: [64, 64, 64], cluster: [2, 1]}\n",
        {"m": 300, "n": 72, "k": 72, "g": 5},
        Deal("edges"),
    ),
    # Scales that are gathered with their rows. The last k tile has one block of two.
    "scales_and_labels": (
        gathered_scales(group_scaled(LABELS)) + PINGPONG + "tiling: {tile: [64, 64, 256]}\n",
        {"m": 300, "n": 72, "k": 272, "g": 3},
        Deal("random"),
    ),
    "scales_by_one_warp_and_offsets": (
        gathered_scales(group_scaled(OFFSETS), True).replace("  d:", "  c: bf16[m, n]\n  d:")
        + "epilogue: {d: acc + c}\n"
        + DYNAMIC
        + "tiling: {tile: [64, 64, 128], cluster: [2, 1]}\n",
        {"m": 200, "n": 72, "k": 144, "g": 5},
        Deal("edges"),
    ),
    "scales_transposed_and_split": (
        gathered_scales(BLOCKS) + "tiling: {swap_ab: true, tile: [64, 32, 128], split_k: 2}\n",
        {"m": 70, "n": 72, "k": 400},
        "lost",
    ),
    "scales_of_rows": (
        gathered_scales(ROW_SCALES) + "tiling: {tile: [64, 64, 128]}\n",
        {"m": 70, "n": 72, "k": 144},
        "lost",
    ),
    "scales_gated_and_quantised": (
        gathered_scales(group_quantised(LABELS)),
        {"m": 200, "n": 256, "k": 144, "g": 2},
        Deal("random"),
    ),
}
# Rows that a launch in front copies.
COPIED: dict[str, tuple[str, dict[str, int], Any]] = {
    "multicast": (
        gathered(PLAIN, "copy") + "tiling: {tile: [64, 64, 64], cluster: [1, 2]}\n",
        {"m": 300, "n": 72, "k": 200},
        "lost",
    ),
    # More 16-byte pieces in a row than a warp copies in one turn.
    "long_rows_transposed_and_split": (
        gathered(FUSED, "copy") + "tiling: {swap_ab: true, tile: [64, 32, 64], split_k: 3}\n",
        {"m": 5, "n": 72, "k": 2120},
        "lost",
    ),
    "scales_and_labels": (
        gathered_scales(group_scaled(LABELS), how="copy") + PINGPONG + "tiling: {tile: [64, 64, 256]}\n",
        {"m": 300, "n": 72, "k": 272, "g": 3},
        Deal("random"),
    ),
    "scales_contiguous_along_rows_and_offsets": (
        gathered_scales(group_scaled(OFFSETS), True, how="copy") + "tiling: {tile: [64, 64, 128]}\n",
        {"m": 201, "n": 72, "k": 144, "g": 5},
        Deal("edges"),
    ),
    "scales_of_rows": (
        gathered_scales(ROW_SCALES, how="copy") + "tiling: {tile: [64, 64, 128]}\n",
        {"m": 70, "n": 72, "k": 144},
        "lost",
    ),
    "a_constant_dim_and_rows_of_another_order": (
        gathered(PLAIN, "copy").replace("[t, k]", "[k, t]@k") + "dims: {k: 72}\ntiling: {tile: [64, 64, 64]}\n",
        {"m": 70, "n": 72, "k": 72},
        "lost",
    ),
}


@cache
def subject(name: str) -> Subject:
    return load_resolution(resolve_text(SPECS[name][0]), SIMULATION)


@pytest.mark.parametrize("name", COPIED)
def test_rows_are_copied_in_the_order_of_the_index(name: str) -> None:
    text, shape, draw = COPIED[name]
    copied = load_resolution(resolve_text(text), SIMULATION)
    for seed in (0, 2):
        SIMULATION.seed = seed
        assert_passes(copied, {"t": 90, **shape}, draw=draw, seed=seed)
    assert not SIMULATION.unknown()


@pytest.mark.parametrize("seed", [0, 2])
@pytest.mark.parametrize("name", SPECS)
def test_rows_are_those_that_the_index_names(name: str, seed: int) -> None:
    SIMULATION.seed = seed
    _, shape, draw = SPECS[name]
    assert_passes(subject(name), {"t": 90, **shape}, draw=draw, seed=seed)


def test_a_copy_keeps_to_the_sms_that_it_is_given() -> None:
    plan = load_resolution(resolve_text(COPIED["multicast"][0]), SIMULATION).plan
    assert plan
    inputs = plan.prepare_inputs(t=90, m=70, n=72, k=72)  # nine turns of eight rows
    outputs = plan.allocate_outputs(*inputs)
    plan.launch_fn(*inputs, *outputs, sms=2)
    assert torch.allclose(outputs[0].float(), plan.reference_fn(*inputs).float(), rtol=0.02, atol=0.02)


@pytest.mark.parametrize("how", ["cp_async", "copy"])
def test_from_no_rows_at_all_come_zeros(how: str) -> None:
    found = subject("plain") if how == "cp_async" else load_resolution(resolve_text(COPIED["multicast"][0]), SIMULATION)
    plan = found.plan
    assert plan
    inputs = plan.prepare_inputs(t=0, m=70, n=72, k=72)
    assert (plan.kernel_fn(*inputs) == 0).all()


@pytest.mark.parametrize("how", ["cp_async", "copy"])
def test_the_first_row_that_is_not_there_is_zero(how: str) -> None:
    found = subject("plain") if how == "cp_async" else load_resolution(resolve_text(COPIED["multicast"][0]), SIMULATION)
    plan = found.plan
    assert plan
    inputs = plan.prepare_inputs(t=90, m=70, n=72, k=72)
    (index,) = (value for value in inputs if value.dtype is torch.int32)
    index[:] = torch.tensor([89, 90]).repeat(35)
    product = plan.kernel_fn(*inputs)
    assert (product[1::2] == 0).all()
    assert (product[::2] != 0).any(1).all()


@pytest.mark.parametrize(
    ("name", "pattern", "said"),
    [
        ("plain", r"fence\.proxy\.async\.shared::cta;", "cp.async wrote, without fence.proxy.async"),
        ("plain", r"cp\.async\.mbarrier\.arrive\.noinc[^;]*;", "deadlock"),
        ("scales_transposed_and_split", r"cp\.async\.ca[^;]*;", "7200 of 7200 wrong"),
    ],
    ids=["no fence", "no arrival", "no scales"],
)
def test_a_broken_protocol_is_told(name: str, pattern: str, said: str) -> None:
    def mutate(text: str) -> str:
        changed, count = re.subn(pattern, "", text)
        assert count
        return changed

    broken = load_resolution(resolve_text(SPECS[name][0]), Simulation(sm_count=2, mutate=mutate))
    result = run(broken, {"t": 90, "m": 100, "n": 72, "k": 208})
    assert result.status in ("raised", "wrong")
    assert said in "".join(result.detail)


def test_an_arrival_before_the_copies_is_told() -> None:
    def mutate(text: str) -> str:
        arrival = re.search(r"cp\.async\.mbarrier\.arrive\.noinc[^;]*;", text)
        copy = text.index("// begin inline asm\n\tcp.async.cg")
        assert arrival
        early = text[:copy] + arrival[0] + "\n\t" + text[copy:].replace(arrival[0], "", 1)
        assert early.count("noinc") == 1
        return early

    broken = load_resolution(resolve_text(SPECS["plain"][0]), Simulation(sm_count=2, mutate=mutate))
    result = run(broken, {"t": 90, "m": 100, "n": 72, "k": 200})
    assert result.status in ("raised", "wrong")
