"""A CTA's last tile through stages of A, executed on the PTX machine: what is loaded, what is stored, and both."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

pytest.importorskip("numpy")
pytest.importorskip("torch")

from gemm_specs import resolve_text

from cutegen.machine import Simulation, assert_equal_bits, assert_passes, load, load_resolution, run
from cutegen.machine.host import missing_tool
from cutegen.render import render_package, write_package

pytestmark = [
    pytest.mark.dsl,
    pytest.mark.thorough,
    pytest.mark.skipif(importlib.util.find_spec("cutlass") is None, reason="nvidia-cutlass-dsl is not installed"),
    pytest.mark.skipif(missing_tool() is not None, reason=str(missing_tool())),
]
HEAD = "cutegen: 1\nkernel: gemm\narch: sm_90a\npipeline: {last_tile: stages}\ntensors:\n"
OPERANDS = "  a: bf16[m, k]\n  b: bf16[n, k]\n"
RESIDUAL = OPERANDS + "  c: bf16[m, n]\n  d: bf16[m, n]\nepilogue: {d: acc + c}\n"
PLAIN = OPERANDS + "  d: bf16[m, n]\n"
PINGPONG = "warpgroups: {schedule: pingpong}\n"
SPECS = {
    # A box of 64 columns, and 16 behind it.
    "residual_pingpong": RESIDUAL + PINGPONG + "tiling: {tile: [128, 80, 64], cluster: [2, 1]}\n",
    "residual_transposed": RESIDUAL + PINGPONG + "tiling: {tile: [128, 72, 64], cluster: [1, 2], swap_ab: true}\n",
    # And a tensor whose name the kernel has for something else.
    "residual_cooperative": RESIDUAL.replace("  c:", "  box:").replace("+ c", "+ box")
    + "tiling: {tile: [128, 128, 64]}\n",
    "residual_of_one_warpgroup": RESIDUAL + "tiling: {tile: [64, 96, 64]}\nwarpgroups: {consumer: {count: 1}}\n",
    "a_box_of_128_columns": RESIDUAL + "tiling: {tile: [128, 136, 128]}\n",
    "residual_of_f32": OPERANDS + "  c: f32[m, n]\n  d: f32[m, n]\nepilogue: {d: acc + c}\n"
    "tiling: {tile: [128, 48, 64]}\n",
    "residual_along_m": OPERANDS + "  c: f16[n, m]\n  d: f16[n, m]\nepilogue: {d: acc * c}\n"
    "tiling: {tile: [128, 96, 64]}\n",
    "another_dtype_is_stored": OPERANDS + "  c: bf16[m, n]\n  d: e4m3[m, n]\nepilogue: {d: acc + c}\n"
    "tiling: {tile: [128, 80, 64]}\n" + PINGPONG,
    "several_are_stored": OPERANDS
    + "  c: bf16[m, n]\n  h: bf16[m, n]\n  d: f32[n, m]\nepilogue: {h: acc + c, d: acc}\n"
    "tiling: {tile: [128, 64, 64]}\n",
    "stored_by_threads": OPERANDS + "  c: bf16[m, n]\n  d: bf16[m, n]\nepilogue: {d: acc + c}\n"
    "tma: {d: {store: direct}}\ntiling: {tile: [128, 64, 64]}\n",
    "rows_reduced": OPERANDS + "  c: bf16[m, n]\n  bias: f32[n]\n  d: bf16[m, n]\n  squares: f32[m]\n"
    "epilogue: {d: acc + bias + c, squares: 'sum(square(d), n)'}\ntiling: {tile: [128, 80, 64]}\n" + PINGPONG,
    "columns_reduced": OPERANDS + "  c: bf16[m, n]\n  d: bf16[m, n]\n  most: f32[n]\n  amax: f32[]\n"
    "epilogue: {d: acc + c, most: 'max(d, m)', amax: 'max_abs(d, m, n)'}\ntiling: {tile: [128, 64, 64]}\n",
    "batches": "  a: bf16[l, m, k]\n  b: bf16[n, k]\n  c: bf16[m, l, n]\n  d: bf16[l, m, n]\nepilogue: {d: acc + c}\n"
    "tiling: {tile: [128, 80, 64]}\n" + PINGPONG,
    "batches_share_the_tile": "  a: bf16[l, m, k]\n  b: bf16[n, k]\n  c: bf16[m, n]\n  d: bf16[l, m, n]\n"
    "epilogue: {d: acc + c}\ntiling: {tile: [128, 80, 64]}\n" + PINGPONG,
    "in_place": OPERANDS + "  c: bf16[m, n]\nepilogue: {c: acc + c}\ntiling: {tile: [128, 64, 64]}\n",
    "added_by_tma": OPERANDS + "  c: f32[m, n]\nepilogue: {c: acc + c}\ntma: {c: {store: reduce_add}}\n"
    "tiling: {tile: [128, 48, 64]}\n",
    "gated": OPERANDS + "  c: bf16[m, n/2]\n  d: bf16[m, n/2]\nepilogue: {d: 'silu(acc[:, :n/2]) * acc[:, n/2:] + c'}\n"
    "tiling: {tile: [128, 160, 64]}\n" + PINGPONG,
    "gated_transposed": OPERANDS + "  d: bf16[m, n/2]\nepilogue: {d: 'silu(acc[:, 0::2]) * acc[:, 1::2]'}\n"
    "tiling: {tile: [256, 136, 64], swap_ab: true}\n",
    "eight_bits": "  a: e4m3[m, k]\n  b: e4m3[n, k]\n  c: bf16[m, n]\n  d: bf16[m, n]\nepilogue: {d: acc + c}\n"
    "tiling: {tile: [128, 80, 128]}\n" + PINGPONG,
    "scaled_by_what_may_be_zero": OPERANDS + "  c: bf16[m, n]\n  alpha: f32\n  beta: f32[]\n  d: bf16[m, n]\n"
    "epilogue: {d: alpha * acc + beta * c}\ntiling: {tile: [128, 80, 64]}\npdl: {ready: [b]}\n"
    "tma: {b: {load_ahead: true}}\n" + PINGPONG,
    "plain_pingpong": PLAIN + PINGPONG + "tiling: {tile: [128, 208, 64], cluster: [2, 1]}\n",
    "plain_cooperative": PLAIN + "tiling: {tile: [256, 128, 64]}\n",
    "plain_transposed": PLAIN + PINGPONG + "tiling: {tile: [128, 80, 64], swap_ab: true}\n",
    "more_rows_than_a_box_has": PLAIN + "tiling: {tile: [320, 64, 64]}\n",
    "f32_is_stored": OPERANDS + "  bias: f32[n]\n  d: f32[m, n]\nepilogue: {d: gelu_tanh(acc + bias)}\n"
    "tiling: {tile: [128, 80, 64]}\n",
}
SHAPE = {"m": 304, "n": 224, "k": 144, "l": 2}


@pytest.mark.parametrize("name", SPECS)
def test_last_tile(name: str) -> None:
    resolution = resolve_text(HEAD + SPECS[name])
    assert resolution.resolved.default.numbers.box != (0, 0)
    subject = load_resolution(resolution, Simulation(sm_count=2, ready=(1,) if "load_ahead" in SPECS[name] else ()))
    shape = {dim: extent for dim, extent in SHAPE.items() if dim in subject.dims}
    assert_passes(subject, shape)
    assert_passes(subject, {**shape, "m": 64, "n": 32, "k": 528}, mode="strides")
    assert subject.plan
    if subject.plan.scaled_tiles:
        assert_passes(subject, shape, mode="zeroed")


def test_bits_do_not_depend_on_the_order_of_events() -> None:
    simulation = Simulation(sm_count=2)
    subject = load_resolution(resolve_text(HEAD + SPECS["rows_reduced"]), simulation)
    assert_equal_bits(subject, simulation, m=264, n=168, k=200)


@pytest.mark.parametrize(("stored", "box"), [("bf16", (128, 64)), ("f32", (0, 0))])
def test_calls_without_the_tile(stored: str, box: tuple[int, int]) -> None:
    """What is stored goes through boxes still, and waits for its stages by itself; but not where a tile has more of
    them than the ring has stages: 6 of f32, where c has 3."""
    spec = OPERANDS + f"  c: bf16[m, n]?\n  d: {stored}[m, n]\nepilogue: {{d: acc + c}}\n"
    head = HEAD.replace("last_tile", "stages: 3, last_tile")
    resolution = resolve_text(head + spec + "tiling: {tile: [128, 192, 64]}\nwarpgroups: {schedule: cooperative}\n")
    with_c, without_c = (kernel.tilings[0] for kernel in resolution.resolved.kernels)
    assert (with_c.numbers.box, without_c.numbers.box) == ((128, 64), box)
    subject = load_resolution(resolution, Simulation(sm_count=2))
    for tiling in (with_c, without_c):
        assert_passes(subject, {"m": 200, "n": 200, "k": 136}, tiling=tiling.name)


def test_ctas_of_a_cluster_that_share_no_operand() -> None:
    """In a cluster of 2 x 2, the CTA across has nothing of a third one, and may be past k tiles that the third still
    reads."""
    spec = RESIDUAL + "scheduler: static_persistent\ntiling: {tile: [128, 128, 64], cluster: [2, 2]}\n" + PINGPONG
    resolution = resolve_text(HEAD.replace("last_tile", "stages: 2, last_tile") + spec)
    assert resolution.resolved.default.numbers.multicast == (2, 2)
    assert_passes(load_resolution(resolution, Simulation(sm_count=8)), {"m": 64, "n": 32, "k": 8})


@pytest.mark.parametrize(
    ("spec", "line"),
    [
        ("residual_pingpong", "pipeline_state.wait_empty(p.ab_pipeline, state)"),
        ("residual_pingpong", "p.ab_pipeline.consumer_wait(stage)"),
        ("plain_pingpong", "pipeline_state.wait_released(p.ab_pipeline, stage)"),
    ],
)
def test_a_wait_that_is_left_out_is_found(spec: str, line: str, tmp_path: Path) -> None:
    few = HEAD.replace("last_tile", "stages: 4, last_tile")  # so that a stage was the other warpgroup's a moment ago
    resolved = resolve_text(few + SPECS[spec]).resolved
    write_package(render_package(resolved), tmp_path)
    kernel = tmp_path / resolved.name / "kernel.py"
    text = kernel.read_text(encoding="utf-8")
    assert text.count(line) == 1
    kernel.write_text(text.replace(line, "pass"), encoding="utf-8")
    result = run(load(tmp_path / resolved.name, Simulation(sm_count=2)), {"m": 304, "n": 600, "k": 144})
    assert "race" in "".join(result.detail)
