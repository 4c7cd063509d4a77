"""8-bit products on the PTX machine, whose tensor core sums fp8 with 14 bits: fast and promoted, and integers."""

from __future__ import annotations

import importlib.util
import re

import pytest

pytest.importorskip("numpy")
pytest.importorskip("torch")

from gemm_specs import BLOCKS, EDGES, FP8, PINGPONG, resolve_text

from cutegen.machine import Simulation, assert_passes, load_resolution, run
from cutegen.machine.host import missing_tool
from cutegen.run.shapes import product_space
from cutegen.runtime.call_faults import find_faults

pytestmark = [
    pytest.mark.dsl,
    pytest.mark.thorough,
    pytest.mark.skipif(importlib.util.find_spec("cutlass") is None, reason="nvidia-cutlass-dsl is not installed"),
    pytest.mark.skipif(missing_tool() is not None, reason=str(missing_tool())),
]
CASES = [name for name, text in EDGES.items() if ("e4m3" in text or "i8" in text) and "gathered" not in name]


@pytest.mark.parametrize("name", CASES)
def test_an_edge_over_several_tiles_per_cta(name: str) -> None:
    resolution = resolve_text(EDGES[name], name=name)  # under its name: test_register_limits.py builds the same kernel
    chosen = resolution.resolved.default.candidate
    rows, columns, k = chosen.tile
    extents = (rows + 48, 2 * columns + 16)  # 2 x 3 tiles
    m, n = reversed(extents) if chosen.swap_ab else extents
    sms = max(2, chosen.split_k if chosen.in_cluster else 0)
    subject = load_resolution(resolution, Simulation(sm_count=sms))
    assert_passes(subject, product_space(subject).legal({"m": m, "n": n, "k": k + 16}))


ONE = "warpgroups: {consumer: {count: 1}}\n"
SMALL = "tiling: {tile: [64, 128, 128]}\n"
GATED = BLOCKS.replace("m, n]", "m, n/2]")
PAIRS = "epilogue: {d: 'silu(acc[:, 0::2]) * acc[:, 1::2]'}\n"
HALVES = "epilogue: {d: 'silu(acc[:, :n/2]) * acc[:, n/2:]'}\n"
BATCHED = BLOCKS.replace("[m,", "[l, m,").replace("b: e5m2[n", "b: e5m2[l, n").replace("sb: f32[", "sb: f32[l, ")
# Scales of blocks with pairs of columns, side by side and in blocks of two halves, and with a batch: spec, extents.
BLOCKED: dict[str, tuple[str, dict[str, int]]] = {
    "pairs": (GATED + PAIRS + SMALL, {"m": 70, "n": 272, "k": 272}),
    "halves": (GATED.replace("ceil(n/128)", "n/128") + HALVES + SMALL, {"m": 70, "n": 512, "k": 272}),
    "pairs_transposed": (
        GATED + PAIRS + "tiling: {swap_ab: true, tile: [256, 32, 128], cluster: [1, 1]}\n",
        {"m": 40, "n": 656, "k": 272},
    ),
    "halves_transposed": (
        GATED.replace("ceil(n/128)", "n/128")
        + HALVES
        + PINGPONG
        + "tiling: {swap_ab: true, tile: [128, 32, 128], cluster: [1, 1]}\n",
        {"m": 70, "n": 1280, "k": 272},
    ),
    # A warp holds the scales of 32 blocks of k at a time, and loads the next 32 meanwhile.
    "many": (BLOCKS + "tiling: {tile: [64, 64, 128]}\n" + ONE, {"m": 40, "n": 40, "k": 8976}),
    "many_of_several_rows": (
        BLOCKS + "tiling: {swap_ab: true, tile: [256, 16, 128], cluster: [1, 1], split_k: 2}\n",
        {"m": 16, "n": 264, "k": 9104},
    ),
    "batch": (BATCHED + PINGPONG + "tiling: {tile: [64, 64, 128]}\n", {"l": 3, "m": 70, "n": 136, "k": 272}),
    "batch_transposed": (
        BATCHED.replace("sb: f32[l, ceil(n/128), ceil(k/128)]", "sb: f32[ceil(k/128), ceil(n/128)]")
        + "tiling: {swap_ab: true, tile: [128, 48, 128]}\n",
        {"l": 3, "m": 70, "n": 136, "k": 272},
    ),
}


@pytest.mark.parametrize("name", BLOCKED)
def test_scales_of_blocks_with_pairs_and_batches(name: str) -> None:
    text, shape = BLOCKED[name]
    assert_passes(load_resolution(resolve_text(text), Simulation(sm_count=2)), shape)


def test_halves_that_are_no_whole_blocks_are_refused() -> None:
    plan = load_resolution(resolve_text(BLOCKED["halves"][0]), Simulation()).plan
    assert plan
    a, b, sa, sb = plan.prepare_inputs(m=16, n=512, k=128)
    values = (a, b[:384], sa, sb[:3])
    with pytest.raises(ValueError, match=r"sb: shape\[0\] \(n/128\) is 3, needs a multiple of 2"):
        plan.kernel_fn(*values)
    (fault,) = find_faults(plan.dims, plan.inputs, values, "cpu", plan.reduced)
    assert fault.text == "sb: shape[0] (n/128) is 3, needs a multiple of 2: n a multiple of 256"


ASKED = r"mbarrier\.test_wait\.\S+\s+(%p\d+), \[%r\d+\], %r\d+;"


@pytest.mark.parametrize(
    ("pattern", "replacement"),
    [
        # The next slot is taken for full.
        (ASKED, r"setp.eq.u32 \1, 0, 0;"),
        # The first MMA of a part goes on with the last part's sum.
        (r"(mov\.b32\s+%r\d+), 0;(?=\s*// begin inline asm\s*\{\s*\.reg \.pred p;)", r"\1, 1;"),
        # The part is added before it is there.
        (r"wgmma\.wait_group\.sync\.aligned\s+0;", ""),
    ],
)
def test_a_wrong_promotion_is_seen(pattern: str, replacement: str) -> None:
    def mutate(text: str) -> str:
        changed, count = re.subn(pattern, replacement, text)
        assert count
        return changed

    subject = load_resolution(resolve_text(FP8), Simulation(sm_count=2, mutate=mutate))
    assert run(subject, {"m": 128, "n": 128, "k": 1024}).status in ("wrong", "raised")


def test_a_slot_that_was_not_full_when_asked_about_is_awaited() -> None:
    simulation = Simulation(sm_count=2, mutate=lambda text: re.sub(ASKED, r"setp.ne.u32 \1, 0, 0;", text))
    assert_passes(load_resolution(resolve_text(FP8), simulation), {"m": 128, "n": 128, "k": 1024})
