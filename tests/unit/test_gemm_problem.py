"""Which tensor and which dim plays which role in a GEMM."""

from __future__ import annotations

import pytest

from cutegen.diagnostics import SpecError
from cutegen.epilogue import Operand, Output, device_lines
from cutegen.families.gemm.binding import bind
from cutegen.families.gemm.problem import GemmProblem, MatrixOperand, ProblemDim
from cutegen.families.gemm.spec import GemmSpec
from cutegen.spec import load_text, parse_spec


def problem(tensors: str, rest: str = "") -> GemmProblem:
    """tensors: one declaration a line, `a: bf16[m, k]`; rest: further sections."""
    lines = "".join(f"  {line.strip()}\n" for line in tensors.strip().splitlines())
    doc = load_text(f"cutegen: 1\nkernel: gemm\narch: sm_90a\ntensors:\n{lines}{rest}\n", "spec")
    spec = parse_spec(doc)
    assert isinstance(spec, GemmSpec)
    return bind(spec, doc)


def rules(tensors: str, rest: str = "") -> list[str]:
    with pytest.raises(SpecError) as caught:
        problem(tensors, rest)
    return [finding.rule for finding in caught.value.diagnostics]


PLAIN = "a: bf16[m, k]\nb: bf16[n, k]\nd: bf16[m, n]"


def test_plain_product() -> None:
    p = problem(PLAIN)
    assert (p.m, p.n, p.k, p.batch) == (*(ProblemDim(name, None, 1, None) for name in "mnk"), None)
    assert p.a == MatrixOperand("a", p.a.dtype, "k", (0, 1), False)
    assert p.b == MatrixOperand("b", p.b.dtype, "k", (0, 1), False)
    assert p.epilogue.outputs == (Output("d", p.a.dtype, False, (0, 1), "n"),)
    assert [(s.name, s.kind, s.text) for s in p.epilogue.statements] == [("d", "output", "acc")]
    assert (p.inputs, p.outputs) == (("a", "b"), ("d",))


def test_constants_and_ranges() -> None:
    p = problem(PLAIN, "dims: {n: 4096, m: [1, 64]}")
    assert (p.m, p.n) == (ProblemDim("m", None, 1, 64), ProblemDim("n", 4096, 4096, 4096))


def test_integer_dims_take_the_name_of_their_role() -> None:
    p = problem("a: bf16[rows, 512]\nb: bf16[4096, 512]\nd: bf16[rows, 4096]")
    assert (p.m.name, p.n, p.k) == ("rows", ProblemDim("n", 4096, 4096, 4096), ProblemDim("k", 512, 512, 512))


@pytest.mark.parametrize(
    ("a", "b", "d", "majors", "axes"),
    [
        ("[m, k]@m", "[n, k]@n", "[m, n]@m", ("m", "n", "m"), ((0, 1), (0, 1), (0, 1))),
        ("[k, m]", "[k, n]", "[n, m]", ("m", "n", "m"), ((1, 0), (1, 0), (1, 0))),
        ("[k, m]@k", "[k, n]@k", "[n, m]@n", ("k", "k", "n"), ((1, 0), (1, 0), (1, 0))),
        ("[l, m, k]", "[l, n, k]", "[l, m, n]", ("k", "k", "n"), ((1, 2, 0), (1, 2, 0), (1, 2, 0))),
        ("[m, l, k]", "[l, k, n]", "[n, l, m]", ("k", "n", "m"), ((0, 2, 1), (2, 1, 0), (2, 0, 1))),
        ("[l, m, k]", "[n, k]", "[l, m, n]", ("k", "k", "n"), ((1, 2, 0), (0, 1), (1, 2, 0))),
        ("[m, k]", "[l, n, k]", "[l, m, n]", ("k", "k", "n"), ((0, 1), (1, 2, 0), (1, 2, 0))),
    ],
)
def test_layouts(a: str, b: str, d: str, majors: tuple[str, ...], axes: tuple[tuple[int, ...], ...]) -> None:
    p = problem(f"a: f16{a}\nb: f16{b}\nd: f32{d}")
    output = p.epilogue.outputs[0]
    assert (p.a.major, p.b.major, output.major) == majors
    assert (p.a.axes, p.b.axes, output.axes) == axes
    assert (p.a.batched, p.b.batched, output.batched) == ("l" in a, "l" in b, "l" in d)
    assert (p.m.name, p.n.name, p.k.name, p.batch and p.batch.name) == ("m", "n", "k", "l" if "l" in d else None)


def test_epilogue_operands() -> None:
    p = problem(
        """
        c: bf16[n, l, m]
        alpha: f32
        x: bf16[l, m, k]
        beta: f32[]
        w: bf16[n, k]
        row: f32[n]
        rows: f16[l, n]
        col: bf16[m]
        cols: f32[l, m]
        e: f32[l, m, n]
        d: bf16[l, m, n]
        """,
        "mainloop: x @ w\n"
        "epilogue:\n  d: stored(e) * rows + cols\n  e: alpha * acc + beta * c + row * col\n",
    )  # fmt: skip
    kinds = {o.name: (o.kind, o.batched, o.axes, o.major) for o in p.epilogue.operands}
    assert kinds == {
        "c": ("tile", True, (2, 0, 1), "m"),
        "alpha": ("host_scalar", False, (), None),
        "beta": ("device_scalar", False, (), None),
        "row": ("row_vector", False, (0,), None),
        "rows": ("row_vector", True, (1, 0), None),
        "col": ("column_vector", False, (0,), None),
        "cols": ("column_vector", True, (1, 0), None),
    }
    assert list(kinds) == ["c", "alpha", "beta", "row", "rows", "col", "cols"]
    assert p.inputs == ("c", "alpha", "x", "beta", "w", "row", "rows", "col", "cols")
    assert p.outputs == ("e", "d")
    assert [s.name for s in p.epilogue.statements] == ["e", "d"]
    assert all(isinstance(o, Operand) for o in p.epilogue.operands)


@pytest.mark.parametrize(
    ("dims", "found"),
    [
        ("{k: 4096}", []),
        ("{k: 8}", []),
        ("{k: 4}", ["tma-alignment", "tma-alignment"]),
        ("{k: [1, 4]}", []),
        ("{n: 12}", []),  # stored by threads
        ("{m: 3}", []),
    ],
)
def test_alignment_of_constants(dims: str, found: list[str]) -> None:
    if found:
        assert rules(PLAIN, f"dims: {dims}") == found
    else:
        problem(PLAIN, f"dims: {dims}")


def test_alignment_counts_bytes() -> None:
    assert problem("a: bf16[m, k]\nb: bf16[n, k]\nd: f32[m, n]", "dims: {n: 12}").n.value == 12
    c = "a: bf16[m, k]\nb: bf16[n, k]\nc: bf16[m, n]\nv: bf16[n]\nd: f32[m, n]"
    assert rules(c, "dims: {n: 12}\nepilogue: {d: acc + c + v}") == ["tma-alignment"]


def test_everything_is_reported_at_once() -> None:
    found = rules(
        "a: bf16[m, k]\nb: f16[n, k]\nv: f32[nn]\nw: i32[n]\nd: bf16[m, n]\nu: f32[m]",
        "dims: {k: 100}\nepilogue: {d: acc + v + w + foo(v), x: 'acc[0]'}",
    )
    once = ["mma-dtypes", "epilogue-shape", "unknown-op", "slice", "not-yet-supported"]
    assert sorted(found) == sorted([*once, "tma-alignment", "tma-alignment"])


@pytest.mark.parametrize("text", ["summ(acc, n)", "max_(acc, m , n)", "sum(acc)", "row_sum(relu(acc), n, 4)"])
def test_a_slip_in_a_reduction_is_not_judged_as_a_tile(text: str) -> None:
    found = rules("a: bf16[m, k]\nb: bf16[n, k]\nr: f32[m]\nd: bf16[m, n]", f"epilogue: {{d: acc, r: '{text}'}}")
    assert found in (["unknown-op"], ["op-arity"])


@pytest.mark.parametrize(
    ("sa", "sb", "mainloop", "kinds"),
    [
        ("f32[m]", "f32[n]", "(a * sa) @ (b * sb)", {"sa": "column_vector", "sb": "row_vector"}),
        ("f32[]", "f32", "(sa * a) @ (b * sb)", {"sa": "device_scalar", "sb": "host_scalar"}),
        ("f32[l, m]", "f32[n]", "(a * sa) @ (sb * b)", {"sa": "column_vector", "sb": "row_vector"}),
    ],
)
def test_scales_that_factor_out_of_the_sum(sa: str, sb: str, mainloop: str, kinds: dict[str, str]) -> None:
    tail = f"mainloop: {mainloop}\nepilogue: {{d: relu(acc)}}\n"
    p = problem(f"a: e4m3[l, m, k]\nb: e5m2[n, k]\nsa: {sa}\nsb: {sb}\nd: bf16[l, m, n]", tail)
    assert {o.name: o.kind for o in p.epilogue.operands} == kinds
    assert [(s.name, s.text) for s in p.epilogue.statements] == [("acc", "acc * sa * sb"), ("d", "relu(acc)")]
    assert (p.scales, p.inputs) == (("sa", "sb"), ("a", "b", "sa", "sb"))
    assert device_lines(p.epilogue) == ("acc = acc * sa * sb", "d = relu(acc)")


def test_a_scale_may_serve_both_operands_and_the_epilogue() -> None:
    tail = "mainloop: (a * s) @ (b * s)\nepilogue: {d: acc + s}\n"
    p = problem("a: e4m3[m, k]\nb: e4m3[n, k]\ns: f32[]\nd: bf16[m, n]", tail)
    assert [s.text for s in p.epilogue.statements] == ["acc * s * s", "acc + s"]
    assert [o.name for o in p.epilogue.operands] == ["s"]
