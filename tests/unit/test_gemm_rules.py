"""Every rule about knobs refuses what it should, in numbers, and lets its neighbour pass."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest
from gemm_specs import (
    BLOCKS,
    COUNTS,
    FP8,
    FUSED,
    LABELS,
    PLAIN,
    SM90,
    TWICE,
    bind_text,
    candidate,
    gathered,
    gathered_scales,
    resolve_text,
)

from cutegen.diagnostics import SpecError
from cutegen.families.gemm.budget_rules import smem_capacity
from cutegen.families.gemm.rule_book import BOOK
from cutegen.families.gemm.rules import refusals
from cutegen.families.gemm.shared_memory import smem_size

N_MAJOR_B = PLAIN.replace("bf16[n, k]", "bf16[n, k]@n")
M_MAJOR_A = PLAIN.replace("bf16[m, k]", "bf16[m, k]@m")
GATED = PLAIN.replace("d: bf16[m, n]", "d: bf16[m, n/2]") + "epilogue: {d: 'relu(acc[:, :n/2]) * acc[:, n/2:]'}\n"
QUANTISED = PLAIN + "epilogue: {d: 'acc / max_abs(acc, n, 128)'}\n"
GATED_QUANTISED = PLAIN.replace("d: bf16[m, n]", "d: bf16[m, n/2]") + (
    "epilogue: {x: 'relu(acc[:, :n/2]) * acc[:, n/2:]', d: 'x / max_abs(x, n, 128)'}\n"
)
GATED_N_MAJOR = GATED.replace("b: bf16[n, k]", "b: bf16[k, n]")
BYTES_OUT = PLAIN.replace("d: bf16", "d: e4m3")
INTEGERS = PLAIN.replace("a: bf16", "a: i8").replace("b: bf16", "b: i8")
READY = PLAIN + "pdl: {ready: [b]}\n"
INVARIANT = PLAIN + "invariance: batch\n"
PINGPONG: dict[str, Any] = {"schedule": "pingpong", "tile": (128, 128, 64)}
IN_CLUSTER: dict[str, Any] = {
    "split_k": 2, "split_k_sum": "ordered_cluster", "cluster": (1, 1), "multicast_b": 1, "tile": (64, 64, 64),
    "schedule": "cooperative", "consumers": 1,
}  # fmt: skip
C3: dict[str, Any] = {
    "tile": (192, 192, 64), "stages": 3, "consumers": 3, "producer_registers": 32, "consumer_registers": 160,
}  # fmt: skip

# (rule, spec, illegal knobs, what the reason and the remedy say, legal neighbour)
CASES: list[tuple[str, str, dict[str, Any], tuple[str, ...], dict[str, Any]]] = [
    ("cta-pair", PLAIN, {"mma_ctas": 2}, ("wgmma on sm_90a is one CTA's", "remove"), {}),
    ("launch-control", PLAIN, {"scheduler": "clc"}, ("take no tiles by cluster launch control", "dynamic_persistent"),
     {"scheduler": "dynamic_persistent"}),
    ("consumer-count", PLAIN, {"consumers": 4}, ("1 to 3", "not 4"), {"consumers": 2}),
    ("consumer-count", PLAIN, PINGPONG | {"consumers": 1}, ("pingpong", "2", "not 1"), PINGPONG),
    ("tile-m", PLAIN, {"tile": (64, 256, 64)}, ("tile m = 64", "2 warpgroups x 64 rows = 128", "use 128"), {}),
    ("tile-m", PLAIN, {"tile": (192, 128, 64)}, ("192", "128 or 256"), {"tile": (256, 128, 64)}),
    ("tile-m", PLAIN, PINGPONG | {"tile": (96, 128, 64)}, ("96", "64 or 128"), PINGPONG),
    ("tile-m", PLAIN, {"tile": (512, 32, 64), "stages": 2}, ("512 rows", "use 384"),
     {"tile": (384, 32, 64), "stages": 2}),
    ("tile-n", PLAIN, {"tile": (128, 204, 64)}, ("tile n = 204", "200 or 208"), {"tile": (128, 200, 64)}),
    ("tile-n", PLAIN, {"tile": (128, 4, 64)}, ("4 is not a multiple of 8 in 8..256", "use 8"),
     {"tile": (128, 8, 64), "cluster": (1, 1), "multicast_b": 1}),
    ("tile-n", BYTES_OUT, {"tile": (128, 24, 64)}, ("8 elements = 8 B of `d`", "at least 16 B", "16 or 32"),
     {"tile": (128, 24, 64), "swap_ab": True}),
    ("tile-n", INTEGERS, {"tile": (128, 40, 64)}, ("i8 product", "over 32", "32 or 48"),
     {"tile": (128, 24, 64)}),
    ("tile-n", PLAIN, {"tile": (128, 272, 64)}, ("272", "use 256"), {"tile": (128, 256, 64)}),
    ("paired-tile", GATED, {"tile": (128, 208, 64)}, ("208", "multiple of 32", "192 or 224"), {"tile": (128, 224, 64)}),
    ("swizzle", GATED_N_MAJOR, {"tile": (128, 192, 64), "multicast_b": 1},
     ("half of tile n = 96 x 2 B = 192 B", "multiple of 128", "swizzle 64"),
     {"tile": (128, 192, 64), "multicast_b": 1, "swizzle_b": 64}),
    ("block-tile", GATED_QUANTISED, {"swap_ab": True, "tile": (384, 16, 64), "consumers": 3},
     ("tile m = 384", "blocks of 256 columns"), {"swap_ab": True, "tile": (256, 16, 64)}),
    ("block-tile", QUANTISED, {"tile": (128, 192, 64)}, ("192", "whole blocks of 128", "128 or 256"),
     {"tile": (128, 256, 64)}),
    ("block-tile", GATED_QUANTISED, {"tile": (128, 128, 64)}, ("128", "blocks of 256 columns"), {}),
    ("paired-tile", GATED, {"swap_ab": True, "tile": (128, 32, 64)},
     ("tile m = 128", "2 warpgroups x 64 pairs = 256 rows", "use 256"), {"swap_ab": True, "tile": (256, 32, 64)}),
    ("tile-k", PLAIN, {"tile": (128, 256, 72)}, ("tile k = 72", "16", "64 or 80"), {"tile": (128, 256, 64)}),
    ("swizzle", PLAIN, {"tile": (128, 256, 32), "swizzle_b": 64}, ("K-major", "32 x 2 B = 64 B", "128-byte"),
     {"tile": (128, 256, 32), "swizzle_a": 64, "swizzle_b": 64}),
    ("swizzle", PLAIN, {"swizzle_a": 96}, ("96", "128, 64, 32"), {"swizzle_a": 64}),
    ("swizzle", N_MAJOR_B, {"tile": (128, 208, 64), "multicast_b": 1}, ("N-major", "208 x 2 B = 416 B", "swizzle 32"),
     {"tile": (128, 192, 64)}),
    ("swizzle", M_MAJOR_A, {"tile": (128, 128, 96), "swizzle_b": 64, "swizzle_a": 96}, ("96",),
     {"tile": (128, 128, 96), "swizzle_b": 64}),
    ("cluster", PLAIN, {"cluster": (3, 1), "multicast_b": 1}, ("3 x 1 = 3",), {"cluster": (4, 1), "multicast_b": 4}),
    ("cluster", PLAIN, {"cluster": (4, 2), "multicast_b": 4}, ("4 x 2 = 8", "at most 4"), {}),
    ("multicast", PLAIN, {"multicast_a": 2}, ("multicast 2 of `a`", "1 CTA along n", "use 1"), {}),
    ("multicast", PLAIN, {"multicast_b": 4}, ("multicast 4", "2 CTAs along m", "use 2 or 1"), {"multicast_b": 1}),
    ("multicast", PLAIN, {"tile": (128, 16, 64), "cluster": (4, 1), "multicast_b": 4}, ("slices of 4", "of 32"),
     {"tile": (128, 32, 64), "cluster": (4, 1), "multicast_b": 4}),
    ("multicast", N_MAJOR_B, {"tile": (128, 64, 64)}, ("slices of 32", "multiple of 64"), {"tile": (128, 128, 64)}),
    ("group-alignment", LABELS, {"tile": (256, 128, 64), "cluster": (1, 1), "multicast_a": 1},
     ("tile m = 256", "multiples of 128 rows", "divides 128"), {}),
    ("group-alignment", LABELS, {"cluster": (2, 1), "multicast_a": 1},
     ("tile m = 128 x 2 CTAs of a cluster = 256 rows", "no cluster along it"), {"cluster": (1, 2)}),
    ("group-alignment", LABELS, {"swap_ab": True, "tile": (128, 48, 64)}, ("tile n = 48", "multiples of 128"),
     {"swap_ab": True, "tile": (128, 64, 64), "cluster": (2, 1)}),
    ("stages", PLAIN, {"stages": 1}, ("1 stages", "2 to 16"), {"stages": 2}),
    ("stages", PLAIN, {"stages": 17, "tile": (128, 16, 16), "swizzle_a": 32, "swizzle_b": 32}, ("17",), {}),
    ("epilogue-stages", PLAIN, {"store_stages": 1}, ("1 epilogue stages", "2 to 16"), {"store_stages": 2}),
    ("load-stages", PLAIN, {"load_stages": 2}, ("2 load stages", "no (m, n) tensor"), {"load_stages": 0}),
    ("load-stages", FUSED, {"load_stages": 17, "stages": 2}, ("17 load stages",), {"load_stages": 2, "stages": 2}),
    ("register-values", PLAIN, {"producer_registers": 42}, ("42 producer", "40 or 48"), {"producer_registers": 40}),
    ("register-values", PLAIN, {"consumer_registers": 264}, ("264 consumer", "24..256", "256"), {}),
    ("register-values", PLAIN, {"producer_registers": 176, "consumer_registers": 160}, ("176", "384", "168"), {}),
    ("batch-invariance", INVARIANT, {"split_k": 2}, ("split_k = 2 adds up 2 sums", "use split_k 1"), {}),
    ("split-k", PLAIN, {"split_k": 129, "split_k_sum": "ordered_parallel"}, ("129", "at most 128"),
     {"split_k": 128, "split_k_sum": "ordered_parallel"}),
    ("split-k", PLAIN + "dims: {k: 200}\n", {"split_k": 5, "split_k_sum": "unordered_atomic"},
     ("k = 200 has 4 tiles of 64", "split_k = 5", "at most 4"), {"split_k": 4, "split_k_sum": "unordered_atomic"}),
    ("split-k", PLAIN + "dims: {k: 256}\n", {"split_k": 5, "split_k_sum": "unordered_atomic"},
     ("k = 256 has 4 tiles of 64",), {"split_k": 4, "split_k_sum": "unordered_atomic"}),
    ("not-yet-supported", COUNTS, {"split_k": 2, "split_k_sum": "ordered_parallel"}, ("split_k = 2 of a grouped",), {}),
    ("split-k-cluster", PLAIN, {"cluster": (2, 2), "split_k": 2, "split_k_sum": "ordered_parallel"},
     ("cluster of 4 CTAs", "never begins"), {"cluster": (2, 1)}),
    ("cluster-sum", PLAIN, IN_CLUSTER | {"split_k": 9}, ("split_k = 9 CTAs", "at most 8"), IN_CLUSTER | {"split_k": 8}),
    ("cluster-sum", PLAIN, IN_CLUSTER | {"cluster": (2, 1), "multicast_b": 2},
     ("cluster of 2", "tiles of their own", "cluster: [1, 1]"), IN_CLUSTER),
    ("cluster-sum", PLAIN, IN_CLUSTER | {"schedule": "pingpong"}, ("pingpong", "schedule: cooperative"), IN_CLUSTER),
    ("cluster-sum", PLAIN, IN_CLUSTER | {"scheduler": "dynamic_persistent"},
     ("fixed order", "scheduler: static_persistent", "or split_k_sum: ordered_parallel"), IN_CLUSTER),
    ("not-yet-supported", QUANTISED, IN_CLUSTER, ("with a reduction in the epilogue", "use ordered_parallel"), {}),
    ("not-yet-supported", BLOCKS, IN_CLUSTER | {"tile": (64, 64, 128), "promote_every": 4},
     ("with scales that vary along k",), {}),
    ("not-yet-supported", gathered(PLAIN), IN_CLUSTER, ("with gathered rows",), {}),
    ("last-tile", PLAIN, {"last_tile": "stages", "scheduler": "dynamic_persistent"},
     ("none is known to be the last", "use static_persistent"), {"last_tile": "stages"}),
    ("last-tile", PLAIN, {"last_tile": "stages", "split_k": 2, "split_k_sum": "ordered_parallel"},
     ("split_k = 2", "split_k: 1"), {"split_k": 2, "split_k_sum": "ordered_parallel"}),
    ("last-tile", PLAIN, {"last_tile": "stages", "tile": (128, 48, 64)},
     ("16384 B, of bf16 128 rows x 64 columns, more than the 48", "a wider tile"),
     {"last_tile": "stages", "tile": (128, 64, 64)}),
    ("last-tile", PLAIN, {"last_tile": "stages", "tile": (128, 256, 32), "swizzle_a": 64, "swizzle_b": 64},
     ("8192 B, of bf16 128 rows x 32 columns", "rows of 64 B, no multiple of 128"),
     {"tile": (128, 256, 32), "swizzle_a": 64, "swizzle_b": 64}),
    ("last-tile", PLAIN, {"last_tile": "stages", "stages": 3}, ("takes 4 of them", "the ring has 3", "more stages"),
     {"last_tile": "stages", "stages": 4}),
    ("last-tile", PLAIN + "tma: {d: {store: direct}}\n", {"last_tile": "stages"}, ("threads store `d`",), {}),
    ("last-tile", PLAIN.replace("  d: bf16", "  h: bf16[m, n]\n  d: bf16") + "epilogue: {h: acc, d: 2 * acc}\n",
     {"last_tile": "stages"}, ("stores 2 tiles: only one can go",), {}),
    ("not-yet-supported", LABELS, {"last_tile": "stages"}, ("`last_tile: stages` with a grouped product",), {}),
    ("not-yet-supported", QUANTISED, {"last_tile": "stages"}, ("with values of blocks",), {}),
    ("not-yet-supported", gathered(PLAIN), {"last_tile": "stages"}, ("with rows that threads gather",), {}),
    ("split-k-sum", PLAIN, {"split_k_sum": "ordered_turnstile"}, ("split_k is 1", "one part"), {}),
    ("split-k-sum", PLAIN, {"split_k": 2}, ("split_k is 2", "ordered_parallel"),
     {"split_k": 2, "split_k_sum": "ordered_turnstile"}),
    ("register-file", PLAIN, {"consumer_registers": 240}, ("40 + 2 x 240", "66560", "64512", "at most 232"), {}),
    ("accumulator-registers", PLAIN, {"tile": (256, 256, 64), "stages": 2},
     ("256 x 256 / (128 x 2) = 256", "232 - 32", "200", "widest tile n is 200"), {"tile": (256, 192, 64), "stages": 2}),
    ("accumulator-registers", PLAIN, {"tile": (256, 208, 64), "stages": 2}, ("208", "200"),
     {"tile": (256, 208, 64), "stages": 2, "producer_registers": 24, "consumer_registers": 240}),
    ("accumulator-registers", FP8, {"tile": (128, 256, 128), "stages": 2},
     ("128 x 256 / (128 x 2) + 128 of the part to promote = 256", "widest tile n is 200"),
     {"tile": (128, 200, 128), "stages": 2}),
    ("tile-k", FP8, {"tile": (256, 128, 48), "promote_every": 1}, ("tile k = 48", "32", "32 or 64", "128 fills"),
     {"promote_every": 2}),
    ("promotion", FP8, {"promote_every": 3}, ("3 x 32 = 96", "tile k = 128", "1, 2, 4"), {"promote_every": 2}),
    ("promotion", PLAIN, {"promote_every": 4}, ("bf16 @ bf16", "f32", "remove"), {}),
    ("promotion", BLOCKS, {"promote_every": 2}, ("2 x 32 = 64", "scales change every 128", "use 4"), {}),
    ("promotion", BLOCKS, {"promote_every": "never"}, ("scales change every 128", "use 4"), {}),
    ("scale-blocks", BLOCKS, {"tile": (128, 192, 128)}, ("tile n = 192", "128 columns", "64, 128"),
     {"tile": (128, 64, 128)}),
    ("gather-step", gathered(PLAIN), {"tile": (128, 16, 16), "swap_ab": True, "swizzle_a": 32, "swizzle_b": 32},
     ("2 warps copy 32 rows of tile k = 16", "tile n = 16", "multiple of 32"),
     {"tile": (128, 32, 64), "swap_ab": True}),
    ("load-ahead", PLAIN, {"load_ahead_b": True}, ("does not name `b`", "`pdl: {ready: [b]}` if `b` was written"), {}),
    ("load-ahead", READY, {"load_ahead_a": True, "pdl_wait": False}, ("`a`", "`pdl: {wait: true, ready: [b, a]}`"), {}),
    ("load-ahead", READY, {"load_ahead_b": True, "pdl_wait": False}, ("pdl.wait is false", "`pdl: {wait: true}`, or"),
     {"load_ahead_b": True}),
    ("load-ahead", gathered(PLAIN), {"load_ahead_a": True}, ("`a` are gathered", "drop load_ahead"), {}),
    ("not-yet-supported", LABELS, {"load_ahead_b": True}, ("ahead of the wait", "drop load_ahead"), {}),
    ("gather-way", PLAIN, {"gather": "copy"}, ("gather is copy", "no index"), {"gather": "none"}),
    ("gather-way", gathered(PLAIN), {"gather": "none"}, ("nothing says how", "use copy"), {"gather": "copy"}),
    ("gather-registers", gathered(PLAIN), {"producer_registers": 40, "consumer_registers": 232},
     ("copies 16 rows", "16 + 32", "not 40", "use 48"), {"producer_registers": 48, "consumer_registers": 224}),
    ("gather-registers", gathered(FUSED), {"scheduler": "dynamic_persistent"}, ("copies 32 rows", "use 64"), {}),
    ("gather-registers", gathered_scales(BLOCKS), PINGPONG | {"tile": (128, 128, 128), "producer_registers": 48},
     ("copies 16 rows", "scales of 2", "16 + 40", "not 48", "use 56"), {"producer_registers": 56}),
    ("multicast", gathered(PLAIN), {"cluster": (1, 2), "multicast_a": 2}, ("`a` is gathered", "use 1"),
     {"cluster": (1, 2), "multicast_a": 1, "multicast_b": 1}),
    ("accumulator-registers", BLOCKS, {"swap_ab": True, "tile": (128, 192, 128)}, ("232 - 80", "tile n is 160"), {}),
    ("accumulator-registers", BLOCKS,
     PINGPONG | {"tile": (128, 128, 128), "split_k": 2, "split_k_sum": "ordered_turnstile"},
     ("192 accumulator registers", "232 - 48 for the rest"),
     PINGPONG | {"tile": (128, 128, 128), "split_k": 1}),
    ("accumulator-registers", TWICE.replace("64)", "128)").replace("n/64", "n/128"), {"tile": (128, 256, 64)},
     ("128 accumulator registers", "232 - 128 for the rest", "widest tile n is 128"), {"tile": (128, 128, 64)}),
    ("mma-registers", PLAIN, C3 | {"tile": (192, 208, 64)}, ("104 + 26 = 130", "512 threads", "128", "n is 200"), C3),
    ("smem-capacity", PLAIN, {"stages": 7}, ("7 stages x 48 KiB + 33 KiB = 369 KiB", "227 KiB", "fits is 4"),
     {"stages": 4}),
    ("smem-capacity", PLAIN, {"tile": (128, 256, 256), "stages": 2}, ("2 stages x 192 KiB", "smaller tile"), {}),
]  # fmt: skip


@pytest.mark.parametrize(("rule", "spec", "illegal", "said", "legal"), CASES, ids=[case[0] for case in CASES])
def test_rule(rule: str, spec: str, illegal: dict[str, Any], said: tuple[str, ...], legal: dict[str, Any]) -> None:
    problem = bind_text(spec)
    found = list(refusals(problem, candidate(problem, **illegal), SM90))
    assert rule in [r.rule for r in found]
    told = next(f"{r.reason}; {r.remedy}" for r in found if r.rule == rule)
    for part in said:
        assert part in told
    assert not [r for r in refusals(problem, candidate(problem, **legal), SM90) if r.rule == rule]


PROMOTED = FP8 + "accumulate: {promote_every: 4}\n"


@pytest.mark.parametrize(
    ("text", "tile", "axis", "legal"),
    [
        (PLAIN, (100, 128, 64), 0, (64, 128)),
        (PLAIN, (200, 192, 64), 0, (192, 256)),  # 192 rows with three consumers
        (PLAIN, (512, 256, 64), 0, (128,)),  # registers hold no more beside so many columns
        (PLAIN, (128, 100, 64), 1, (96, 104)),
        (BYTES_OUT, (128, 100, 64), 1, (96, 112)),  # a row of 8 elements would have 8 bytes
        (GATED, (128, 100, 64), 1, (96, 128)),
        (QUANTISED, (128, 100, 64), 1, (128,)),
        (INTEGERS, (128, 100, 128), 1, (96, 112)),
        (BLOCKS, (128, 100, 128), 1, (64, 128)),
        (PLAIN, (256, 250, 64), 1, (208,)),
        (PLAIN, (128, 128, 8), 2, (16,)),
        (FP8, (128, 128, 8), 2, (32,)),
        (PROMOTED, (128, 128, 8), 2, (128,)),
        (BLOCKS, (128, 128, 8), 2, (128,)),
        (PLAIN, (128, 128, 1000), 2, (208,)),  # shared memory has no room for two stages of more
    ],
)
def test_a_remedy_names_what_the_other_rules_accept(
    text: str, tile: tuple[int, ...], axis: int, legal: tuple[int, ...]
) -> None:
    def write(extent: int) -> str:
        return f"{text}tiling: {{tile: {[*tile[:axis], extent, *tile[axis + 1 :]]}}}\n"

    with pytest.raises(SpecError) as caught:
        resolve_text(write(tile[axis]))
    words = [re.sub(r" \(with .*?\)", "", d.remedy.partition(";")[0]) for d in caught.value.diagnostics]
    assert f"use {' or '.join(map(str, legal))}" in words
    for extent in legal:
        resolve_text(write(extent))


@pytest.mark.parametrize(
    ("text", "remedy"),
    [
        (BLOCKS, "use a tile k that is a multiple of 128"),
        (PROMOTED, "use one of 1, 5, or a tile k that is a multiple of 128"),
    ],
)
def test_promotions_that_do_not_divide_a_tile(text: str, remedy: str) -> None:
    with pytest.raises(SpecError) as caught:
        resolve_text(text + "tiling: {tile: [128, 128, 160]}\n")
    assert [d.remedy for d in caught.value.diagnostics] == [remedy]


@pytest.mark.parametrize(
    ("text", "knobs", "remedy"),
    [
        (PLAIN, "", "with tile m = 128 and tile n = 256 use 160 consumer registers"),
        (PLAIN, "tiling: {tile: [64, 64, 64]}\n", "with tile m = 64 and tile n = 64 use 64 consumer registers"),
        (FP8, "", "with tile m = 128 and 240 consumer registers the widest tile n is 208"),
    ],
)
def test_few_consumer_registers_are_told_how_many_are_needed(text: str, knobs: str, remedy: str) -> None:
    with pytest.raises(SpecError) as caught:
        resolve_text(f"{text}{knobs}warpgroups: {{consumer: {{registers: 24}}}}\n")
    assert [d.remedy for d in caught.value.diagnostics] == [remedy]


GATED_QUANT = """\
cutegen: 1
kernel: gemm
arch: sm_90a
dims: {n: 8192}
tensors: {x: "e4m3[m, k]", w: "e4m3[n, k]", sx: "f32[m]", sw: "f32[n]", scale: "f32[m, n/256]@m", q: "e4m3[m, n/2]"}
mainloop: (x * sx) @ (w * sw)
epilogue:
  y: round_bf16(silu(acc[:, :n/2]) * acc[:, n/2:])
  scale: max(max_abs(y, n, 128), 1e-4) / 448
  q: y / scale
"""


@pytest.mark.parametrize(
    ("knobs", "remedy", "followed"),
    [
        ("tiling: {tile: [128, 256, 128]}", "use `swap_ab`, with a tile of 256 x 136 at most",
         "tiling: {swap_ab: true, tile: [256, 136, 128]}"),
        ("tiling: {tile: [64, 256, 128]}\nwarpgroups: {consumer: {count: 1}}",
         "use `swap_ab`, with a tile of 256 x 80 at most",
         "tiling: {swap_ab: true, tile: [256, 80, 128]}\nwarpgroups: {consumer: {count: 1}}"),
        ("tiling: {tile: [256, 256, 128]}\naccumulate: {promote_every: never}",
         "with tile n = 256 the largest tile m is 128",
         "tiling: {tile: [128, 256, 128]}\naccumulate: {promote_every: never}"),
    ],
)  # fmt: skip
def test_blocks_that_leave_no_room_have_a_remedy_that_holds(knobs: str, remedy: str, followed: str) -> None:
    with pytest.raises(SpecError) as caught:
        resolve_text(f"{GATED_QUANT}{knobs}\n")
    assert [d.remedy for d in caught.value.diagnostics if d.rule == "accumulator-registers"] == [remedy]
    resolve_text(f"{GATED_QUANT}{followed}\n")


def test_transposed_the_rows_of_an_mma_lie_in_one_block_of_scales() -> None:
    c = candidate(bind_text(BLOCKS), swap_ab=True, tile=(128, 32, 128))
    for rows, refused in ((32, True), (64, False), (96, True), (128, False), (256, False)):
        problem = bind_text(BLOCKS.replace("n/128", f"n/{rows}"))
        found = [r for r in refusals(problem, c, SM90) if r.rule == "scale-blocks"]
        assert bool(found) == refused
        assert all(f"{rows} rows, no multiple of the 64 of an MMA" in r.reason for r in found)
    gated = BLOCKS.replace("m, n]", "m, n/2]").replace("n/128", "n/64")
    pairs = bind_text(gated + "epilogue: {d: 'silu(acc[:, 0::2]) * acc[:, 1::2]'}\n")
    halves = bind_text(gated.replace("ceil(n/64)", "n/64") + "epilogue: {d: 'silu(acc[:, :n/2]) * acc[:, n/2:]'}\n")
    told = [r.reason for r in refusals(pairs, c, SM90) if r.rule == "scale-blocks"]
    assert told == ["a block of `sb` has 64 rows, no multiple of the 128 of the pairs of an MMA"]
    assert not [r for r in refusals(halves, c, SM90) if r.rule == "scale-blocks"]


ELSEWHERE = {"sm_100a", "sm_120a", "packed-scales"}  # test_sm100_gemm, test_sm120_gemm, test_packed_scales


def test_every_rule_has_a_case() -> None:
    import inspect

    rules = set()
    for predicate in (*BOOK.form, *BOOK.fit):
        of = inspect.getclosurevars(predicate).nonlocals
        rules |= set() if {of["only"], of["rule"].id} & ELSEWHERE else {of["rule"].id}
    assert rules == {case[0] for case in CASES}


def test_budgets_are_not_asked_about_illegal_forms() -> None:
    problem = bind_text(PLAIN)
    found = [r.rule for r in refusals(problem, candidate(problem, tile=(100, 204, 72), stages=16), SM90)]
    assert found == ["tile-m", "tile-n", "tile-k"]


def test_shared_memory_is_held_to_the_byte() -> None:
    problem = bind_text(PLAIN)
    chosen = candidate(problem)
    size = smem_size(problem, chosen)
    assert smem_capacity(problem, chosen, replace(SM90, smem_bytes=size)) is None
    assert smem_capacity(problem, chosen, replace(SM90, smem_bytes=size - 1))
    assert smem_capacity(problem, chosen, replace(SM90, smem_bytes=size - 1024))
