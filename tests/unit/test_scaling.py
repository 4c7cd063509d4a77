"""Tiles that count only where a scalar is not 0: found by structure, in device source and in the reference."""

from __future__ import annotations

import math

import pytest
from gemm_specs import bind_text

from cutegen.epilogue import device_lines, torch_lines, torch_operand_lines

TENSORS = """\
cutegen: 1
kernel: gemm
arch: sm_90a
tensors:
  a: bf16[m, k]
  b: bf16[n, k]
  c: bf16[m, n]
  e: bf16[m, n]
  v: f32[n]
  beta: f32
  gamma: f32[]
  d: bf16[m, n]
epilogue:
  d: """


@pytest.mark.parametrize(
    ("text", "scaled", "switches"),
    [
        ("acc + beta * c + gamma * e + v", {"c": "beta", "e": "gamma"}, ("beta", "gamma")),
        ("acc + c * beta - e * beta + v * gamma", {"c": "beta", "e": "beta"}, ("beta",)),
        ("relu(acc + beta * c) + max(beta * c, v) + e + gamma", {"c": "beta"}, ()),
        ("acc + beta * c + gamma * c + e + v", {}, ()),
        ("acc + beta * c + c + e * gamma + v", {"e": "gamma"}, ()),
        ("acc + c * 2 * beta + v * e + gamma", {}, ()),
    ],
)
def test_structure_decides(text: str, scaled: dict[str, str], switches: tuple[str, ...]) -> None:
    program = bind_text(TENSORS + text + "\n").epilogue
    assert dict(program.scaled) == scaled
    assert program.tile_switches == switches


def test_nothing_of_a_tile_scaled_by_zero_is_left() -> None:
    torch = pytest.importorskip("torch")
    program = bind_text(TENSORS + "acc + beta * c + gamma * e + v\n").epilogue
    assert device_lines(program) == (
        "d = acc + where(beta != 0.0, beta * c, 0.0) + where(gamma != 0.0, gamma * e, 0.0) + v",
    )
    ones = torch.ones(2, 2)
    values = {"c": ones * math.nan, "e": ones, "v": torch.zeros(2), "beta": 0.0, "gamma": torch.tensor(2.0)}
    scope = {"torch": torch, "acc": ones, **values}
    exec("\n".join((*torch_operand_lines(program), *torch_lines(program))), scope)
    assert scope["d"].tolist() == [[3.0, 3.0], [3.0, 3.0]]


@pytest.mark.parametrize(
    ("text", "scaled"),
    [
        ("x[:, :n/2] * (beta * c[:, n/2:])", (("c_0", "beta"), ("c_1", "beta"))),
        ("x[:, :n/2] * c[:, n/2:]", ()),
        ("x[:, :n/2] * c[:, n/2:] * beta", ()),
    ],
)
def test_a_slice_is_an_occurrence(text: str, scaled: tuple[tuple[str, str], ...]) -> None:
    """Else a tile would not be loaded that another expression reads."""
    gated = TENSORS.replace("d: bf16[m, n]", "d: bf16[m, n/2]").replace("  e: bf16[m, n]\n  v: f32[n]\n", "")
    gated = gated.replace("  gamma: f32[]\n", "") + text + "\n  x: acc + beta * c\n"
    program = bind_text(gated).kernel_epilogue
    assert program.scaled == scaled
    assert program.tile_switches == (("beta",) if scaled else ())


def test_a_scalar_for_each_batch_index_switches_no_loads() -> None:
    batched = TENSORS.replace("[m,", "[l, m,").replace("gamma: f32[]", "gamma: f32[l]")
    program = bind_text(batched + "acc + beta * c + gamma * e + v\n").epilogue
    assert dict(program.scaled) == {"c": "beta", "e": "gamma"}
    assert program.tile_switches == ()


def test_halves_of_a_tile_are_scaled_as_the_tile_is() -> None:
    text = TENSORS.replace("d: bf16[m, n]", "d: bf16[m, n/2]").replace("  e: bf16[m, n]\n  v: f32[n]\n", "")
    text = text.replace("  gamma: f32[]\n", "") + "x[:, :n/2] * x[:, n/2:]\n  x: acc + beta * c\n"
    program = bind_text(text).kernel_epilogue
    assert program.scaled == (("c_0", "beta"), ("c_1", "beta"))
    assert device_lines(program)[1] == "x_1 = acc_1 + where(beta != 0.0, beta * c_1, 0.0)"
