"""Rows cut into rounds: what is reduced together, what is computed once, and what of each element."""

from __future__ import annotations

import pytest

from cutegen.dtypes import DTYPES
from cutegen.epilogue import EpilogueProgram, parse_epilogue
from cutegen.epilogue.context import ROWS
from cutegen.epilogue.program import Operand, Output
from cutegen.epilogue.rounds import RowProgram, cut_rounds

F32 = DTYPES["f32"]
KINDS = {"x": "tile", "z": "tile", "w": "row_vector", "s": "column_vector", "c": "host_scalar"}


def cut(outputs: str, online: bool = False, **rows: str) -> RowProgram:
    operands = [Operand(name, kind, F32, False, (), None) for name, kind in KINDS.items()]  # type: ignore[arg-type]
    found = parse_epilogue(
        rows, list(KINDS), outputs.split(), lambda *f, **p: pytest.fail(f"{f}"), (), ("m", "n"), ROWS, ("x", "z", "s")
    )
    assert found
    stored = tuple(Output(name, F32, False, (0, 1), "n") for name in outputs.split())
    return cut_rounds(EpilogueProgram(found, tuple(operands), stored), (), online)


def described(program: RowProgram) -> list[tuple[dict[str, str], list[str], tuple[str, ...]]]:
    """(op by name, names of what is computed once, what of it is read) of each round."""
    return [({x.name: x.op for x in r.reduced}, [s.name for s in r.once], r.gives) for r in program.rounds]


def test_a_norm_has_one_round() -> None:
    program = cut("y", y="x * rsqrt(mean(square(x), n) + 1e-6) * w")
    assert described(program) == [({"mean_y": "mean"}, [], ())]
    assert [s.name for s in program.after] == ["y"]


def test_reductions_of_reductions_take_a_round_each() -> None:
    program = cut("y", mu="mean(x, n)", v="mean(square(x - mu), n)", y="(x - mu) * rsqrt(v + 1e-5) * w")
    assert described(program) == [({"mu": "mean"}, [], ()), ({"v": "mean"}, [], ())]


def test_reductions_of_one_level_share_an_exchange_and_equal_ones_are_one() -> None:
    program = cut("y", a="max(x, n)", y="x * sum(square(x), n) + max(x, n) - a + max(z, n)")
    assert described(program) == [({"a": "max", "sum_y": "sum", "max_z": "max"}, [], ())]


def test_an_absolute_value_is_what_elements_contribute() -> None:
    (only,) = cut("y", y="x / max_abs(x, n)").rounds
    assert str(only.each[-1].expr).startswith("Call(op='abs'")


def test_what_depends_on_no_element_is_computed_once() -> None:
    """Before any reduction, and between them; a constant goes wherever it is read."""
    program = cut("y r", k="2 * 3", a="s * c", r="max(x * a, n) * k", y="x - r")
    assert described(program) == [({}, ["a"], ("a",)), ({"max_r": "max"}, ["k", "r"], ("r",))]
    assert [s.name for s in program.rounds[1].each] == ["max_r"]


def test_elements_are_computed_again_where_they_are_read() -> None:
    program = cut("y", e="exp(x - max(x, n))", y="e / sum(e, n)")
    first, second = program.rounds
    assert [s.name for s in first.each] == ["max_x"]
    assert [s.name for s in second.each] == ["e", "sum_e"]
    assert [s.name for s in program.after] == ["e", "y"]


def test_blocks_are_joined_when_all_rounds_are_done() -> None:
    """Once a block: what depends on no element of it; a value of the row that it reads is one of the round before."""
    program = cut("q", i="rsqrt(mean(square(x), n))", s="max(max_abs(x * i, n, 128), c) / 448", q="x * i / s")
    assert described(program) == [({"mean_i": "mean"}, ["i"], ("i",))]
    assert program.blocks
    assert [(r.name, r.op) for r in program.blocks.reduced] == [("max_abs_s", "max_abs")]
    assert ([s.name for s in program.blocks.once], program.blocks.gives) == (["s"], ("s",))
    assert [s.name for s in program.after] == ["q"]


def test_without_reductions_there_are_no_rounds() -> None:
    program = cut("y", y="silu(x) * z")
    assert program.rounds == ()
    assert len(program.after) == 1


@pytest.mark.parametrize(
    "rows",
    [
        {"e": "exp(x - max(x, n))", "y": "e / sum(e, n)"},
        {"top": "max(x, n)", "y": "exp(x - top) / sum(exp(x - top), n)"},
        {"t": "x * s", "u": "t", "y": "exp(t - max(u, n)) / sum(exp(u - max(t, n)), n)"},
    ],
)
def test_a_sum_of_exponentials_is_joined_with_its_maximum(rows: dict[str, str]) -> None:
    """Where that is asked for; however the spec names what they are of."""
    assert [len(r.reduced) for r in cut("y", **rows).rounds] in ([1, 1], [2, 1])
    found = cut("y", online=True, **rows).rounds
    ops = [x.op for r in found for x in r.reduced]
    assert "exp_sum" in ops
    assert ops[ops.index("exp_sum") - 1] == "max"
    assert len(found) == 1


@pytest.mark.parametrize(
    "value", ["exp(z - max(x, n))", "exp(max(x, n) - x)", "exp(x - max_abs(x, n))", "2 * exp(x - max(x, n))"]
)
def test_other_sums_have_a_round_of_their_own(value: str) -> None:
    found = cut("y", online=True, y=f"x / sum({value}, n)").rounds
    assert [[x.op for x in r.reduced] for r in found][-1] == ["sum"]
    assert len(found) == 2
