"""Values of blocks of columns: what is computed in which pass, and the reference's exact functions."""

from __future__ import annotations

import math

import pytest
from gemm_specs import PLAIN, bind_text, resolve_text

from cutegen.diagnostics import SpecError
from cutegen.epilogue import Passes, after_lines, before_lines, find_passes, once_lines
from cutegen.families.gemm.problem import GemmProblem
from cutegen.render import render_package

HEAD = "cutegen: 1\nkernel: gemm\narch: sm_90a\ntensors:\n  a: bf16[m, k]\n  b: bf16[n, k]\n"
QUANTISED = HEAD + "  q: e4m3[m, n]\n  s: f32[m, ceil(n/128)]@m\n"


def passes(text: str) -> tuple[Passes, GemmProblem]:
    problem = bind_text(text)
    found = find_passes(problem.kernel_epilogue)
    assert isinstance(found, Passes)
    return found, problem


def test_each_pass_computes_what_the_next_one_needs() -> None:
    found, problem = passes(QUANTISED + "epilogue: {s: 'max(max_abs(acc, n, 128), 1e-4) / 448', q: acc / s}\n")
    program = problem.kernel_epilogue
    assert before_lines(program, found) == ("max_abs_acc = absolute(acc)",)
    assert once_lines(program, found) == (
        "s = exact_divide(maximum(max_abs_acc, 0.0001), 448.0)",
        "inverse_s = exact_inverse(s)",
    )
    assert after_lines(program, found) == ("q = exact_quotient(acc, s, inverse_s)",)
    assert (found.kept, found.given) == ((("acc", "acc"),), ("s",))


def test_what_is_expensive_takes_the_place_of_the_accumulator() -> None:
    text = QUANTISED + "epilogue: {x: gelu_erf(acc), y: x * 2, s: 'max_abs(y, n, 128)', q: y / (s + 1)}\n"
    found, problem = passes(text)
    assert (found.kept, found.repeated) == ((("acc", "y"),), 0)
    assert once_lines(problem.kernel_epilogue, found) == (
        "divisor_of_q = s + 1.0",
        "inverse_divisor_of_q = exact_inverse(divisor_of_q)",
    )
    # Two values read again and one place: the cheaper one is computed again.
    both = QUANTISED + "epilogue: {x: gelu_erf(acc), y: x * 2, s: 'max_abs(y, n, 128)', q: y / s + x}\n"
    found, problem = passes(both)
    assert found.kept == (("acc", "x"),)
    assert after_lines(problem.kernel_epilogue, found)[0] == "y = x * 2.0"
    assert found.repeated == 1


def test_a_gated_product_has_room_for_two() -> None:
    text = HEAD + "  h: bf16[m, n]\n  q: e4m3[m, n/2]\n  s: f32[m, n/256]\nepilogue:\n  h: acc\n"
    text += "  x: silu(h[:, :n/2]) * h[:, n/2:]\n  s: max_abs(x, n, 128)\n  q: x / s\n"
    found, _ = passes(text)
    assert {name for _, name in found.kept} == {"h_0", "h_1"}  # x is computed again from them
    assert [place for place, _ in found.kept] == ["acc_0", "acc_1"]
    assert found.repeated == 1


def test_the_name_of_a_maximum_is_refused_to_a_tensor() -> None:
    text = QUANTISED.replace("  q:", "  max_abs_acc: f32[n]\n  q:")
    with pytest.raises(SpecError, match="`max_abs_acc` is a name of generated source"):
        passes(text + "epilogue: {s: 'max_abs(acc, n, 128) + 1', q: acc / s * max_abs_acc}\n")


def test_operands_are_passed_where_they_are_read() -> None:
    text = QUANTISED.replace("  q:", "  c: bf16[m, n]\n  bias: f32[n]\n  row: f32[m]\n  q:")
    text += "epilogue: {x: acc + bias + c, s: 'max_abs(x, n, 128) * row', q: x / s}\n"
    source = render_package(resolve_text(text).resolved).files["kernel.py"]
    assert "def before_block(acc: Float32, bias: Float32, c: Float32):" in source
    assert "def of_block(max_abs_x: Float32, row: Float32):" in source
    assert "def epilogue(x: Float32, s: Float32, inverse_s: Float32):" in source


@pytest.mark.parametrize(("tile_n", "fits"), [(128, True), (192, False), (256, True), (64, False)])
def test_a_tile_holds_whole_blocks(tile_n: int, fits: bool) -> None:
    from cutegen.diagnostics import CutegenError

    text = QUANTISED + f"epilogue: {{s: 'max_abs(acc, n, 128)', q: acc / s}}\ntiling: {{tile: [128, {tile_n}, 64]}}\n"
    if fits:
        resolve_text(text)
        return
    with pytest.raises(CutegenError, match=f"tile n = {tile_n} does not hold whole blocks of 128 columns"):
        resolve_text(text)


def test_references_are_exact() -> None:
    torch = pytest.importorskip("torch")
    from cutegen.runtime.epilogue import ceil_pow2, divide, reduce_blocks

    x = torch.tensor([1.0, 3.0, 2.0**-126, 448.0, math.nextafter(4.0, 5.0), -5.0, 0.0, math.inf, math.nan])
    expected = [1.0, 4.0, 2.0**-126, 512.0, 8.0 if x[4] > 4 else 4.0, 8.0, 0.0, math.inf, math.nan]
    torch.testing.assert_close(ceil_pow2(x), torch.tensor(expected), rtol=0, atol=0, equal_nan=True)
    above = torch.tensor([4.0]).nextafter(torch.tensor([5.0]))
    assert ceil_pow2(above).item() == 8.0
    numerators = torch.rand(1000, generator=torch.Generator().manual_seed(3)) * 7
    exact = (numerators.double() / 448).float()
    assert torch.equal(divide(numerators, 448.0), exact)
    assert torch.equal(divide(7.0, numerators), (7.0 / numerators.double()).float())
    columns = torch.tensor([[1.0, -2.0, 3.0, -4.0, -5.0]])
    assert reduce_blocks(columns, 2, "max_abs").tolist() == [[2.0, 2.0, 4.0, 4.0, 5.0]]
    assert reduce_blocks(columns, 2, "max").tolist() == [[1.0, 1.0, 3.0, 3.0, -5.0]]
    assert reduce_blocks(columns, 2, "sum").tolist() == [[-1.0, -1.0, -1.0, -1.0, -5.0]]
    assert reduce_blocks(torch.tensor([[1.0, math.nan]]), 2, "max_abs").isnan().all()


@pytest.mark.parametrize(("block", "remedy"), [(96, "use 384"), (160, "tile m would be 640, it is at most 384")])
def test_tiles_of_rows_that_are_proposed_are_legal(block: int, remedy: str) -> None:
    text = (
        PLAIN
        + f"epilogue: {{d: 'acc / (1 + max_abs(acc, n, {block}))'}}\ntiling: {{swap_ab: true, tile: [256, 32, 64]}}\n"
    )
    with pytest.raises(SpecError, match=remedy):
        resolve_text(text + "warpgroups: {consumer: {count: 2}, schedule: cooperative}\n")
