"""Derived numbers: SMEM map, bytes, arrivals, registers."""

from __future__ import annotations

from dataclasses import fields, replace

import pytest
from gemm_specs import BLOCKS, FUSED, LABELS, PLAIN, SM90, bind_text, candidate

from cutegen.families.gemm.shared_memory import smem_map, smem_size
from cutegen.families.gemm.tiling_numbers import derive

PINGPONG = {"schedule": "pingpong", "tile": (128, 128, 64), "stages": 6, "store_stages": 2}


def test_plain_kernel() -> None:
    problem = bind_text(PLAIN)
    d = derive(problem, candidate(problem))
    assert (d.stage_bytes, d.threads, d.accumulator_registers, d.epilogue_tile) == (49152, 384, 128, (128, 32))
    assert d.smem_bytes == 1024 + 4 * 49152 + 4 * 8192 == 230400
    assert [(r.name, r.offset, r.bytes) for r in d.smem] == [
        ("ab_barriers", 0, 64),
        ("sA", 1024, 65536),
        ("sB", 66560, 131072),
        ("sD", 197632, 32768),
    ]


def test_fused_epilogue_fields_stand_in_the_order_of_shared_storage() -> None:
    problem = bind_text(FUSED)
    d = derive(problem, candidate(problem, stages=3, store_stages=2, load_stages=3))
    names = ["ab_barriers", "load_barriers", "sBias", "sScale", "sA", "sB", "sD", "sResidual"]
    assert [r.name for r in d.smem] == names
    sizes = {r.name: r.bytes for r in d.smem}
    assert sizes["sBias"] == 256 * 4
    assert sizes["sScale"] == 128 * 4
    assert sizes["load_barriers"] == 2 * 3 * 8
    assert sizes["sResidual"] == 3 * 128 * 32 * 2
    assert d.load_bytes == 128 * 32 * 2


def test_pingpong_has_a_ring_and_vectors_per_group() -> None:
    problem = bind_text(FUSED)
    d = derive(problem, candidate(problem, **PINGPONG, load_stages=4))
    sizes = {r.name: r.bytes for r in d.smem}
    assert (d.epilogue_tile, d.epilogue_groups, d.subtiles, d.accumulator_registers) == ((64, 32), 2, 8, 128)
    assert sizes["sBias"] == 2 * 128 * 4
    assert sizes["sD"] == 2 * 2 * 64 * 32 * 2
    assert sizes["sResidual"] == 4 * 64 * 32 * 2


@pytest.mark.parametrize(
    ("knobs", "arrivals"),
    [
        ({}, (1 + 2 - 1) * 8),
        ({"multicast_b": 1}, 8),
        ({"cluster": (2, 2), "multicast_a": 2}, (2 + 2 - 1) * 8),
        ({"consumers": 1, "tile": (64, 256, 64)}, (1 + 2 - 1) * 4),
        ({"consumers": 3, "tile": (192, 256, 64)}, (1 + 2 - 1) * 12),
        (PINGPONG, (1 + 2 - 1) * 4),
    ],
)
def test_empty_arrivals(knobs: dict[str, object], arrivals: int) -> None:
    problem = bind_text(PLAIN)
    assert derive(problem, candidate(problem, **knobs)).empty_arrivals == arrivals


def test_narrow_epilogue_tile_where_32_columns_do_not_divide() -> None:
    problem = bind_text(PLAIN)
    assert derive(problem, candidate(problem, tile=(128, 208, 64))).epilogue_tile == (128, 16)


def test_fields_are_aligned_disjoint_and_inside() -> None:
    problem = bind_text(FUSED)
    d = derive(problem, candidate(problem, stages=3))
    end = 0
    for region in d.smem:
        assert region.offset % region.align == 0
        assert region.offset >= end
        end = region.offset + region.bytes
    assert end <= d.smem_bytes <= SM90.smem_bytes


def test_scales_of_rows_and_blocks_are_part_of_a_slot() -> None:
    problem = bind_text(BLOCKS)
    d = derive(problem, candidate(problem, tile=(256, 128, 256), stages=2))
    assert d.stage_bytes == (256 + 128) * 256 + 256 * 2 * 4
    sizes = {r.name: (r.bytes, r.align, r.offset % 128) for r in d.smem}
    assert sizes["sSa"] == (256 * 2 * 4 * 2, 128, 0)
    assert "sSb" not in sizes
    assert d.accumulator_registers == 128 + 64


# Candidates that differ in one thing, each knob being another in one of them.
VARIED: tuple[dict[str, object], ...] = (
    {"schedule": "pingpong"}, {"consumers": 3}, {"tile": (256, 96, 64)}, {"cluster": (1, 1)}, {"stages": 2},
    {"store_stages": 3}, {"load_stages": 3}, {"producer_registers": 40}, {"consumer_registers": 160},
    {"multicast_a": 2}, {"multicast_b": 1}, {"swizzle_a": 64}, {"swizzle_b": 64}, {"raster_order": "along_n"},
    {"raster_group": 4}, {"scheduler": "dynamic_persistent"}, {"split_k": 3}, {"split_k_sum": "ordered_parallel"},
    {"split_k": 2, "split_k_sum": "ordered_cluster"}, {"split_k": 4, "split_k_sum": "ordered_cluster"},
    {"swap_ab": True}, {"pdl_wait": False}, {"pdl_trigger": "start"}, {"promote_every": 4}, {"gather": "cp_async"},
    {"load_ahead_a": True}, {"load_ahead_b": True}, {"last_tile": "stages"},
    {"mma_ctas": 2},
)  # fmt: skip


@pytest.mark.parametrize("text", [FUSED, BLOCKS, LABELS])
def test_a_size_that_is_known_already_is_that_of_the_candidate(text: str) -> None:
    problem = bind_text(text)
    start = candidate(problem, load_stages=2 if "residual" in text else 0)
    assert {name for knobs in VARIED for name in knobs} == {f.name for f in fields(start)}
    varied = [start, *(start.vary(**knobs) for knobs in VARIED)]
    for c in (*varied, *reversed(varied)):
        assert smem_size(problem, c) == smem_map(problem, c)[1]
        assert smem_size(problem, c, 5) == smem_map(problem, c.vary(stages=5))[1]


def test_a_variation_is_what_the_knobs_say_and_names_none_that_there_is_not() -> None:
    c = candidate(bind_text(PLAIN))
    assert c.vary(stages=2, swap_ab=True) == replace(c, stages=2, swap_ab=True) != c
    assert hash(c.vary()) == hash(c)
    with pytest.raises(KeyError, match="stage"):
        c.vary(stage=2)
