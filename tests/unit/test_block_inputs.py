"""Epilogue inputs with one value for a block of elements: declarations, reference, bytes and kernel text."""

from __future__ import annotations

import pytest
from gemm_specs import PLAIN, bind_text, resolve_text

from cutegen.diagnostics import SpecError
from cutegen.epilogue import cost, torch_imports, torch_operand_lines
from cutegen.families.gemm.arguments import tensor_shapes
from cutegen.families.gemm.budget_rules import FREE_BLOCK_VALUES, OTHER_REGISTERS, other_registers
from cutegen.families.gemm.derived import block_values, epilogue_tile
from cutegen.families.gemm.orientation import transpose
from cutegen.families.gemm.spec_rules import alignments
from cutegen.render import render_package

torch = pytest.importorskip("torch")

SPEC = """\
cutegen: 1
kernel: gemm
arch: sm_90a
tensors:
  a: bf16[l, m, k]
  b: bf16[n, k]
  s: f32[ceil(n/128), l, m]
  w: bf16[m/16, n/64]
  d: bf16[l, m, n]
epilogue: {d: acc * s + w}
"""


def spec(swap: bool = False) -> str:
    return SPEC + "tiling: {swap_ab: true, tile: [128, 64, 64]}\n" * swap


def test_blocks_and_alignment_together_ask_for_their_least_common_multiple() -> None:
    text = PLAIN.replace("d: bf16[m, n]", "s: f32[m, n/24]\n  d: e4m3[m, n]") + "epilogue: {d: acc * s}\n"
    assert alignments(bind_text(text))["n"][0] == 48
    with pytest.raises(SpecError, match="multiple of 48"):
        resolve_text(text + "bench: {shapes: [{m: 128, n: 72, k: 128}]}\n")


def test_what_is_known_of_the_blocks() -> None:
    problem = bind_text(spec())
    s, w = problem.epilogue.operands
    assert (s.block, s.up, s.axes, s.inner, s.batched) == ((1, 128), (False, True), (2, 0, 1), "m", True)
    assert (w.block, w.up, w.axes, w.inner, w.batched) == ((16, 64), (False, False), (0, 1), "n", False)
    turned = transpose(problem).kernel_epilogue.operands[0]
    assert (turned.block, turned.up, turned.axes, turned.inner) == ((128, 1), (True, False), (0, 2, 1), "n")
    shapes = tensor_shapes(problem)
    assert shapes["s"].text == "s: f32[ceil(n/128), l, m]"
    assert shapes["w"].text == "w: bf16[m/16, n/64]"
    assert {name: step for name, (step, _) in alignments(problem).items()} == {"m": 16, "n": 64, "k": 8}
    reads = {t.name: t.total(160, 320, 3) for t in cost(problem.epilogue).reads}
    assert reads == {"s": 4 * 3 * 160 * 3, "w": 2 * 10 * 5}


def test_the_reference_spreads_each_value_over_its_block() -> None:
    program = bind_text(spec()).epilogue
    assert torch_imports(program) == ("spread_values",)
    assert torch_operand_lines(program) == (
        "s = spread_values(s.float().permute(1, 2, 0), (1, 128), acc)",
        "w = spread_values(w.float(), (16, 64), acc)",
    )
    from cutegen.runtime.epilogue import spread_values

    x = torch.arange(6.0).reshape(2, 3)
    spread = spread_values(x, (4, 2), torch.empty(7, 5))
    assert spread.shape == (7, 5)
    assert spread.tolist() == [[0, 0, 1, 1, 2]] * 4 + [[3, 3, 4, 4, 5]] * 3


@pytest.mark.parametrize(
    ("declared", "values"),
    [
        ("f32[m, n/128]", 2),
        ("f32[m/16, n/128]", 1),
        ("f32[m/8, n/16]", 4),
        ("f32[m/8, n]", 16),
        ("f32[m/32]", 1),
        ("f32[n/8]", 4),
    ],
)
def test_registers_for_the_values_of_a_subtile(declared: str, values: int) -> None:
    text = SPEC.replace("f32[ceil(n/128), l, m]", declared).replace("bf16[m/16, n/64]", "f32[n]")
    resolved = resolve_text(text + "warpgroups: {schedule: pingpong}\ntiling: {tile: [64, 192, 64]}\n").resolved
    candidate = resolved.default.candidate
    assert epilogue_tile(resolved.problem, candidate) == (64, 32)
    assert block_values(resolved.problem, candidate) == values
    assert other_registers(resolved.problem, candidate) == OTHER_REGISTERS + max(0, values - FREE_BLOCK_VALUES)


def test_blocks_along_one_dim() -> None:
    text = spec().replace("w: bf16[m/16, n/64]", "w: bf16[l, n/64]")
    problem = bind_text(text)
    w = problem.epilogue.operands[1]
    assert (w.block, w.axes, w.missing, transpose(problem).epilogue.operands[1].missing) == ((1, 64), (1, 0), "m", "n")
    assert tensor_shapes(problem)["w"].text == "w: bf16[l, n/64]"
    assert torch_operand_lines(problem.epilogue)[1] == "w = spread_values(w.float().unsqueeze(-2), (1, 64), acc)"
    assert cost(problem.epilogue).reads[1].total(160, 320, 3) == 2 * 5 * 3
    lines = render_package(resolve_text(text).resolved).files["kernel.py"].splitlines()
    assert "        w = block_input.widen(w, 0)  # (m blocks, n blocks, batch)" in lines
    assert "                (0, 64)," in lines


@pytest.mark.parametrize("swap", [False, True])
def test_what_a_kernel_fetches(swap: bool) -> None:
    kernel = render_package(resolve_text(spec(swap)).resolved).files["kernel.py"]
    blocks = ["(128, 1)", "(64, 16)"] if swap else ["(1, 128)", "(16, 64)"]
    lines = [line.strip() for line in kernel.splitlines()]
    fetches = [i for i, line in enumerate(lines) if line.endswith("= block_input.fetch(")]
    assert [lines[i + 2] for i in fetches] == [f"{block}," for block in blocks]
    assert [lines[i + 1] for i in fetches] == ["p.mS[None, None, batch],", "p.mW,"]
    assert [lines[i + 6] for i in fetches] == ["aligned=(True, True),"] * 2
