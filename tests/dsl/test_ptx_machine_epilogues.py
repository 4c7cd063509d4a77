"""Epilogues beyond the shipped ones, executed on the PTX machine: tails in all dims, several tiles each."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

pytest.importorskip("numpy")
pytest.importorskip("torch")

from gemm_specs import DYNAMIC, bind_text, resolve_text
from op_packages import install, on_path

from cutegen.families.gemm.gradient import gradient_text
from cutegen.machine import Simulation, assert_equal_bits, assert_passes, load_resolution
from cutegen.machine.host import missing_tool
from cutegen.run.case_list import list_cases
from cutegen.spec.yaml_text import write_yaml

pytestmark = [
    pytest.mark.dsl,
    pytest.mark.thorough,
    pytest.mark.skipif(importlib.util.find_spec("cutlass") is None, reason="nvidia-cutlass-dsl is not installed"),
    pytest.mark.skipif(missing_tool() is not None, reason=str(missing_tool())),
]
HEAD = "cutegen: 1\nkernel: gemm\narch: sm_90a\ntensors:\n"
PINGPONG = "warpgroups: {schedule: pingpong}\n"
SMALL = "tiling: {tile: [128, 64, 64]}\n"
SPECS = {
    "choices": """\
  a: bf16[m, k]
  b: bf16[n, k]
  bias: f32[n]
  d: bf16[m, n]
epilogue:
  x: acc + bias
  d: where(x > 0 and not x >= 2 or x < -1, x, 0.5 * x) * softplus(x) + clamp(x, -1, bias) - leaky_relu(x, 0.1)
"""
    + SMALL,
    "stored_choices": """\
  a: bf16[m, k]
  b: bf16[n, k]
  h: bf16[m, n]
  d: bf16[m, n]
epilogue:
  h: where(acc > 0, acc, 0.1 * acc)
  d: stored(h) * 2 + round_bf16(ceil_pow2(acc))
"""
    + SMALL,
    "scalars_by_batch_index_and_reductions": """\
  a: bf16[l, m, k]
  b: bf16[n, k]
  scale: f32[l]
  largest: f32[m, l]
  squares: f32[l, m]
  d: f32[n, l, m]
epilogue:
  d: acc * scale
  largest: max_abs(d - 1, n)
  squares: sum(square(acc) + 1, n)
"""
    + SMALL,
    "reduction_of_gated_values": """\
  a: bf16[m, k]
  b: bf16[n, k]
  low: f32[m]
  d: bf16[m, n/2]
epilogue:
  d: silu(acc[:, :n/2]) * acc[:, n/2:]
  low: max(-d, n)
tiling: {tile: [128, 96, 64]}
"""
    + PINGPONG,
    "scaled_tiles": """\
  a: bf16[m, k]
  b: bf16[n, k]
  c: bf16[m, n]
  e: f32[n, m]
  alpha: f32
  beta: f32
  gamma: f32[]
  d: bf16[m, n]
epilogue: {d: alpha * acc + beta * c - e * gamma}
tiling: {tile: [128, 64, 64], cluster: [1, 1]}
"""
    + PINGPONG,
    "in_place": """\
  a: bf16[m, k]
  b: bf16[n, k]
  beta: f32
  h: f32[n, m]
  d: bf16[m, n/2]
epilogue:
  h: acc + beta * h
  d: d + silu(h[:, :n/2]) * h[:, n/2:]
tiling: {tile: [128, 64, 64]}
"""
    + PINGPONG,
    "added_by_tma": """\
  a: bf16[m, k]
  b: bf16[n, k]
  bias: f32[n]
  d: bf16[n, m]
  h: f32[m, n]
epilogue:
  d: acc + d - bias
  h: h - acc
tma: {d: {store: reduce_add}, h: {store: reduce_add}}
tiling: {split_k: 2, tile: [128, 64, 64]}
""",
    "blocks_of_elements": """\
  a: bf16[m, k]
  b: bf16[n, k]
  s: f32[m, ceil(n/128)]
  w: f32[ceil(n/48), ceil(m/128)]
  z: bf16[m/8, n]
  v: f32[m/16]
  d: bf16[m, n]
epilogue: {d: acc * s + w * z - v}
tiling: {tile: [128, 96, 64]}
"""
    + PINGPONG,
    "eight_bits_saturate": """\
  a: bf16[m, k]
  b: bf16[n, k]
  inv_scale: f32[]
  h: e5m2[n, m]
  d: e4m3[m, n]
epilogue:
  h: acc * 1e5
  d: acc * inv_scale * 200 + stored(h) * 0.001
"""
    + SMALL,
    "gated_interleaved_with_limits": """\
  a: bf16[m, k]
  b: bf16[n, k]
  bias: f32[n]
  d: bf16[m, n/2]
epilogue:
  x: acc + bias
  gate: min(x[:, 0::2], 7)
  up: clamp(x[:, 1::2], -7, 7)
  d: (up + 1) * gate / (1 + exp(-1.702 * gate))
"""
    + SMALL,
    "gated_n_major_b": """\
  a: bf16[k, m]
  b: bf16[k, n]
  d: bf16[m, n/2]
epilogue: {d: "relu(acc[:, :n/2]) * acc[:, n/2:]"}
tiling: {tile: [128, 64, 64], cluster: [1, 1]}
"""
    + PINGPONG,
    "gated_with_everything": """\
  a: bf16[m, k]
  b: bf16[n, k]
  c: bf16[m, n]
  s: f32[n/2]
  r: bf16[m, n/2]
  h: bf16[m, n]
  d: f32[n/2, m]
epilogue:
  h: acc + c
  d: silu(h[:, :n/2]) * h[:, n/2:] * s + r
tiling: {tile: [128, 96, 64], cluster: [1, 2]}
"""
    + PINGPONG,
    "gated_whole_output_by_threads": """\
  a: bf16[m, k]
  b: bf16[n, k]
  h: f16[m, n]
  d: bf16[m, n/2]
epilogue:
  h: acc
  d: gelu_erf(acc[:, 1::2]) * acc[:, 0::2]
tiling: {tile: [128, 64, 64]}
""",
    "gated_batch": """\
  a: bf16[l, m, k]
  b: bf16[l, n, k]
  bias: f32[l, n]
  h: bf16[l, m, n]
  d: bf16[l, m, n/2]
epilogue:
  h: acc + bias
  d: gelu_tanh(h[..., :n/2]) * h[:, :, n/2:]
tiling: {tile: [256, 96, 64]}
""",
}
SHAPE = {"m": 304, "n": 144, "k": 136, "l": 2}


@pytest.mark.parametrize("name", SPECS)
def test_epilogue(name: str) -> None:
    subject = load_resolution(resolve_text(HEAD + SPECS[name]), Simulation(sm_count=2))
    shape = {dim: extent for dim, extent in SHAPE.items() if dim in subject.dims}
    assert_passes(subject, shape)
    assert_passes(subject, {**shape, "m": 64, "n": 32}, mode="strides")


def test_tiles_of_any_extent_in_padded_rows() -> None:
    spec = """\
  a: bf16[m, k]
  b: bf16[n, k]
  c: bf16[m, n]
  e: f32[n, m]
  d: bf16[m, n]
epilogue: {d: acc + c * e}
tma: {d: {store: direct}}
tiling: {tile: [128, 64, 64]}
"""
    subject = load_resolution(resolve_text(HEAD + spec), Simulation(sm_count=2))
    assert_passes(subject, {"m": 67, "n": 43, "k": 72}, mode="strides")


def test_optional_operands() -> None:
    spec = """\
  a: bf16[m, k]
  b: bf16[n, k]
  c: bf16[m, n]?
  beta: f32
  bias: f32[n]
  d: bf16[m, n]
epilogue: {d: relu(acc + bias - beta * c)}
"""
    subject = load_resolution(resolve_text(HEAD + spec + SMALL), Simulation(sm_count=2))
    for key in ("", "_without_c"):
        tiling = next(iter(subject.tilings)) + key
        assert_passes(subject, {"m": 136, "n": 72, "k": 72}, tiling=tiling)
        assert_passes(subject, {"m": 136, "n": 72, "k": 72}, tiling=tiling, mode="zeroed")


@pytest.mark.parametrize("name", ["scaled_tiles", "in_place"])
def test_a_check_sets_scalars_of_tiles_to_zero(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    subject = load_resolution(resolve_text(HEAD + SPECS[name]), Simulation(sm_count=2))
    shape = {"m": 136, "n": 128, "k": 72}
    assert "zeroed" in {case.mode for case in list_cases(subject)}
    assert_passes(subject, shape, mode="zeroed")
    assert subject.plan
    monkeypatch.setattr(subject.plan, "scaled_tiles", {})  # what the check would not know then
    assert "zeroed" not in {case.mode for case in list_cases(subject)}


def test_an_op_of_an_installed_package(tmp_path: Path) -> None:
    install(tmp_path)
    spec = """\
  a: bf16[m, k]
  b: bf16[n, k]
  bias: f32[n]
  d: bf16[m, n]
epilogue: {d: "softsign(acc + bias) * 2 + blend(acc, relu(bias), 0.25)"}
"""
    with on_path(tmp_path):
        subject = load_resolution(resolve_text(HEAD + spec + SMALL), Simulation(sm_count=2))
        assert_passes(subject, {"m": 72, "n": 40, "k": 48})


def test_one_storage_for_an_output_and_an_input() -> None:
    spec = """\
  a: bf16[m, k]
  b: bf16[n, k]
  c: f16[m, n]
  e: bf16[m, n]
  d: f16[m, n]
epilogue: {d: acc + c, e: e * 0.5 + acc * c}
alias: {d: c}
"""
    subject = load_resolution(resolve_text(HEAD + spec + SMALL), Simulation(sm_count=2))
    assert_passes(subject, {"m": 136, "n": 136, "k": 72}, mode="alias")


@pytest.mark.parametrize("scheduler", ["static", "dynamic", "dynamic, split"])
@pytest.mark.parametrize(("beta", "gamma"), [(0.0, 0.0), (0.0, 2.0), (-0.0, 0.0), (0.5, 0.0)])
def test_tiles_scaled_by_zero_count_for_nothing(beta: float, gamma: float, scheduler: str) -> None:
    """Nor does the warp that would load them keep the scheduler waiting: it reads every tile index."""
    import torch

    spec = HEAD + SPECS["scaled_tiles"] + ("" if scheduler == "static" else DYNAMIC)
    if scheduler == "dynamic, split":
        spec = spec.replace("cluster: [1, 1]", "cluster: [2, 1], split_k: 2")
    subject = load_resolution(resolve_text(spec), Simulation(sm_count=2))
    assert subject.plan
    a, b, c, e, alpha, _, _ = subject.plan.prepare_inputs(m=200, n=136, k=72)
    for tile, scale in ((c, beta), (e, gamma)):
        if scale == 0.0:
            tile.fill_(torch.nan)
    inputs = (a, b, c, e, alpha, beta, torch.tensor(gamma))
    found, expected = subject.plan.kernel_fn(*inputs), subject.plan.reference_fn(*inputs)
    assert not found.isnan().any()
    torch.testing.assert_close(found, expected, rtol=2**-7, atol=2**-7)


@pytest.mark.parametrize(
    ("text", "shape"),
    [
        # Both halves of a tile, whole and sliced, by one scalar.
        (
            "  a: bf16[m, k]\n  b: bf16[n, k]\n  c: bf16[m, n]\n  beta: f32\n  d: bf16[m, n/2]\n"
            "epilogue:\n  x: acc + beta * c\n  d: x[:, :n/2] * (1 + beta * c[:, n/2:])\n",
            {"m": 72, "n": 144, "k": 72},
        ),
        # A scalar for each batch index, and for each group.
        (
            "  a: bf16[l, m, k]\n  b: bf16[n, k]\n  c: bf16[l, m, n]\n  beta: f32[l]\n  d: bf16[l, m, n]\n"
            "epilogue: {d: acc + beta * c}\n",
            {"m": 72, "n": 136, "k": 72, "l": 3},
        ),
        (
            "  a: bf16[m, k]\n  b: bf16[g, n, k]\n  ends: i32[g]\n  c: bf16[m, n]\n  beta: f32[g]\n  d: bf16[m, n]\n"
            "epilogue: {d: acc + c * beta}\ngroups: {offsets: ends}\n",
            {"m": 200, "n": 136, "k": 72, "g": 3},
        ),
    ],
    ids=["sliced", "batch", "groups"],
)
def test_a_tile_counts_for_nothing_where_its_scalar_is_zero(text: str, shape: dict[str, int]) -> None:
    import torch

    subject = load_resolution(resolve_text(HEAD + text + SMALL), Simulation(sm_count=2))
    plan = subject.plan
    assert plan
    inputs = {arg.name: value for arg, value in zip(plan.inputs, plan.prepare_inputs(**shape))}
    inputs["c"].fill_(torch.nan)
    if isinstance(inputs["beta"], float):
        inputs["beta"] = 0.0
    else:
        inputs["beta"].copy_(torch.tensor([0.0, 2.0, 0.0]))
        if "l" in shape:
            inputs["c"][1].fill_(0.5)
        else:
            ends = inputs["ends"].tolist()
            inputs["c"][ends[0] : ends[1]] = 0.5
    values = tuple(inputs.values())
    found, expected = plan.kernel_fn(*values), plan.reference_fn(*values)
    rows = int(inputs["ends"][-1]) if "ends" in inputs else None  # further ones are of no group
    assert not expected[:rows].isnan().any()
    torch.testing.assert_close(found[:rows], expected[:rows], rtol=2**-7, atol=2**-7)


def test_reductions_have_equal_bits_in_any_order_of_events() -> None:
    simulation = Simulation(sm_count=4)
    text = HEAD + SPECS["scalars_by_batch_index_and_reductions"]
    assert_equal_bits(load_resolution(resolve_text(text), simulation), simulation, m=136, n=200, k=72, l=2)


def test_the_kernels_of_a_gradient() -> None:
    """A product with a bias, an activation and a residual: the product again with the chain rule, in which the bias is
    summed, and the products with transposed operands."""
    spec = """\
  a: bf16[m, k]
  b: bf16[n, k]
  bias: f32[n]
  c: bf16[m, n]
  d: bf16[m, n]
epilogue: {d: gelu_erf(acc + bias) + c * silu(acc)}
"""
    text = gradient_text(bind_text(HEAD + spec), ("a", "b", "bias", "c"))
    assert text.local
    for kernel in (text.local, *text.products.values()):
        resolution = resolve_text(write_yaml(kernel.data) + "tiling: {tile: [128, 64, 64]}\nportfolio: 1\n")
        subject = load_resolution(resolution, Simulation(sm_count=2))
        assert_passes(subject, {"m": 72, "n": 40, "k": 48})
