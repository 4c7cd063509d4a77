"""Reductions of sm_100a kernels on the PTX machine, strict: of rows, columns and all, which tiles join, and of blocks;
and breaks in how tiles wait for each other."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Callable

import pytest

pytest.importorskip("numpy")
pytest.importorskip("torch")

from gemm_specs import OFFSETS, resolve_text

from cutegen.machine import Simulation, assert_equal_bits, assert_passes, load_resolution, run
from cutegen.machine.forms import uncalibrated
from cutegen.machine.host import missing_tool
from cutegen.runtime.gemm.row_groups import Deal

pytestmark = [
    pytest.mark.dsl,
    pytest.mark.thorough,
    pytest.mark.skipif(importlib.util.find_spec("cutlass") is None, reason="nvidia-cutlass-dsl is not installed"),
    pytest.mark.skipif(missing_tool() is not None, reason=str(missing_tool())),
]
EVERY = """\
cutegen: 1
kernel: gemm
arch: sm_100a
tensors:
  a: bf16[l, m, k]
  b: bf16[l, n, k]
  c: bf16[l, m, n]
  d: bf16[l, m, n]
  biggest: f32[l, m]
  squares: f32[l, m]
  column: f32[l, n]
  whole: f32[l]
  total: f32[]
epilogue:
  d: acc + c
  biggest: max_abs(d, n)
  squares: sum(square(acc), n)
  column: sum(acc, m)
  whole: max_abs(acc, m, n)
  total: sum(acc, l, m, n)
tiling: {tile: [128, 64, 64], mma_ctas: 2}
"""
ALONE = """\
cutegen: 1
kernel: gemm
arch: sm_100a
tensors: {a: "bf16[m, k]", b: "bf16[n, k]", d: "bf16[m, n]", biggest: "f32[m]"}
epilogue: {d: acc, biggest: "max(acc, n)"}
tiling: {tile: [128, 32, 64], cluster: [1, 1]}
"""
GROUPED = OFFSETS.replace("sm_90a", "sm_100a").replace("  d:", "  r: f32[m]\n  d:")
GROUPED += "epilogue: {d: acc, r: 'sum(acc * acc, n)'}\ntiling: {tile: [128, 32, 64], cluster: [1, 1]}\n"
BLOCKS = """\
cutegen: 1
kernel: gemm
arch: sm_100a
tensors: {a: "bf16[m, k]", b: "bf16[n, k]", q: "e4m3[m, n/2]", scale: "f32[m, ceil(n/256)]@m"}
epilogue:
  x: round_bf16(silu(acc[:, :n/2]) * acc[:, n/2:])
  scale: max(max_abs(x, n, 128), 1e-4) / 448
  q: x / scale
tiling: {tile: [128, 256, 64], mma_ctas: 2}
"""
SMALL_BLOCKS = """\
cutegen: 1
kernel: gemm
arch: sm_100a
tensors:
  a: bf16[l, m, k]
  b: bf16[l, n, k]
  w: f32[n]
  beta: f32[]
  d: bf16[l, m, n]
  s: f32[l, m, n/32]
  r: f32[l, m]
epilogue:
  x: acc * w + beta
  s: max_abs(x, n, 32) / 448
  d: x / s
  r: max(acc, n)
tiling: {tile: [128, 64, 64], cluster: [1, 1]}
"""
SHAPE = {"m": 264, "n": 72, "k": 72}
LAST = r"(?=(?:(?!bar\.sync)[\s\S])*?"  # of its kind before what follows
# What is broken; the PTX that is replaced, and by what.
BREAKS = [
    ("tiles are counted before all have published", rf"bar\.sync\s+1, 128;{LAST}atom\.)", ""),
    ("the ticket is read at once", r"(atom\.[^;]*;(?:(?!bar\.sync)[\s\S])*?)bar\.sync\s+1, 128;", r"\1"),
    ("counting orders nothing", r"atom\.global\.acq_rel", "atom.global.relaxed"),
    ("a tile is not counted", r"(atom\.global\.acq_rel\.add[^;]*), 1;", r"\1, 0;"),
]


def test_every_kind_is_right_in_five_orders_and_repeats() -> None:
    simulation = Simulation(sm_count=4, strict=True)
    subject = load_resolution(resolve_text(EVERY), simulation)
    for simulation.seed in range(5):
        assert_passes(subject, {"l": 2, **SHAPE})
    assert_equal_bits(subject, simulation, l=2, **SHAPE)
    assert uncalibrated(simulation.forms()) == ()


def test_rows_of_groups_that_begin_anywhere() -> None:
    simulation = Simulation(sm_count=4, strict=True)
    subject = load_resolution(resolve_text(GROUPED), simulation)
    for simulation.seed, kind in enumerate(("random", "ones", "one")):
        assert_passes(subject, {**SHAPE, "g": 5}, draw=Deal(kind), seed=simulation.seed)


@pytest.mark.parametrize(
    ("text", "shape"),
    [(BLOCKS, {"m": 264, "n": 544, "k": 72}), (SMALL_BLOCKS, {"l": 2, "m": 136, "n": 160, "k": 72})],
    ids=["gated, pairs, 128 columns", "alone, 32 columns"],
)
def test_values_of_blocks_are_right_in_five_orders(text: str, shape: dict[str, int]) -> None:
    simulation = Simulation(sm_count=4, strict=True)
    subject = load_resolution(resolve_text(text), simulation)
    for simulation.seed in range(5):
        assert_passes(subject, shape)


def replacing(pattern: str, by: str) -> Callable[[str], str]:
    def mutate(ptx: str) -> str:
        changed, count = re.subn(pattern, by, ptx)
        assert count, f"nothing in the PTX matches {pattern}"
        return changed

    return mutate


@pytest.mark.parametrize(("pattern", "by"), [b[1:] for b in BREAKS], ids=[b[0] for b in BREAKS])
def test_each_break_is_reported(pattern: str, by: str) -> None:
    simulation = Simulation(sm_count=4, strict=True, mutate=replacing(pattern, by))
    subject = load_resolution(resolve_text(ALONE), simulation)
    said = []
    for simulation.seed in range(4):
        result = run(subject, SHAPE, seed=1)
        said.append("\n".join(result.detail))
        if re.search("race|wrong|deadlock|mismatch|of .* elements", said[-1]):
            return
    pytest.fail(f"not reported: {said}")
