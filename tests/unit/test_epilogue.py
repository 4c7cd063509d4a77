"""From assignments to statements, source text and cost."""

from __future__ import annotations

import itertools
import math

import pytest

from cutegen.dtypes import DTYPES
from cutegen.epilogue import (
    EpilogueProgram,
    Operand,
    Output,
    cost,
    device_imports,
    device_lines,
    parse_epilogue,
    torch_lines,
    torch_operand_lines,
)
from cutegen.epilogue.installed import find_op
from cutegen.epilogue.ops import BUILT_IN_MODULE

BF16, F32 = DTYPES["bf16"], DTYPES["f32"]


def findings(assignments: dict[str, str], inputs: tuple[str, ...] = (), outputs: tuple[str, ...] = ("d",)) -> list[str]:
    found: list[str] = []

    def report(rule, path, message, remedy="", *, key=False, span=None):  # type: ignore[no-untyped-def]
        found.append(f"{path[-1]} {rule}")

    assert parse_epilogue(assignments, inputs, outputs, report) is None
    return found


def program(
    assignments: dict[str, str], operands: tuple[Operand, ...] = (), outputs: tuple[Output, ...] = ()
) -> EpilogueProgram:
    outputs = outputs or (Output("d", BF16, False, (0, 1), "n"),)
    names = [[tensor.name for tensor in group] for group in (operands, outputs)]
    statements = parse_epilogue(assignments, *names, lambda *finding, **place: pytest.fail(f"{finding}"))
    assert statements is not None
    return EpilogueProgram(statements, operands, outputs)


def operand(name: str, kind: str, batched: bool = False, axes: tuple[int, ...] = ()) -> Operand:
    return Operand(name, kind, F32, batched, axes, "n" if kind == "tile" else None)  # type: ignore[arg-type]


BIAS = operand("bias", "row_vector", axes=(0,))


def test_order_is_by_need_and_not_by_key() -> None:
    assignments = {"d": "x + y", "x": "acc * s", "y": "relu(x)", "s": "0.5", "e": "y - d"}
    outputs = (Output("d", BF16, False, (0, 1), "n"), Output("e", F32, False, (0, 1), "n"))
    expected = ("s = 0.5", "x = acc * s", "y = relu(x)", "d = x + y", "e = y - d")
    for keys in itertools.permutations(assignments):
        shuffled = program({key: assignments[key] for key in keys}, outputs=outputs)
        assert device_lines(shuffled) == expected
    assert [s.kind for s in shuffled.statements] == ["local", "local", "local", "output", "output"]


@pytest.mark.parametrize(
    ("assignments", "found"),
    [
        ({"d": "acc + c"}, ["d undefined-name"]),
        ({"d": "acc + relu"}, ["d undefined-name"]),
        ({"d": "x + acc", "x": "d * 2"}, ["d epilogue-cycle"]),
        ({"d": "acc @ acc"}, ["d expression-syntax"]),
        ({"d": "acc", "x": "acc"}, ["x unused-local"]),
        ({"d": "x", "x": "y", "y": "x + acc"}, ["x epilogue-cycle"]),
        ({"d": "acc", "x": "x + acc"}, ["x epilogue-cycle"]),
        ({"d": "acc + stored(d)"}, ["d epilogue-cycle"]),
        ({"d": "stored(x) + acc", "x": "acc"}, ["d stored-output"]),
        ({"d": "1.0"}, ["d output-without-acc"]),
        ({"d": "x * 2", "x": "0.5"}, ["d output-without-acc"]),
        ({"d": "acc / 0"}, ["d constant-expression"]),
        ({"d": "acc * x", "x": "1 / (2 - 2)"}, ["x constant-expression"]),
        ({"d": "acc + relu(1)"}, ["d constant-expression"]),
        ({"d": "acc * (1e30 * 1e30)"}, ["d constant-expression"]),
        ({"d": "where(1 > 0, acc, 0)"}, ["d constant-expression"]),
        ({"d": "where(acc > 0 and not 1 < x, acc, 0)", "x": "2"}, ["d constant-expression"]),
        ({"d": "leaky_relu(acc, acc)"}, ["d constant-expression"]),
        ({"d": "leaky_relu(acc, relu(1))"}, ["d constant-expression", "d constant-expression"]),
        ({"d": "acc +", "e": "foo(acc)"}, ["d expression-syntax", "e unknown-op"]),
        ({f"x{i}": "acc" for i in range(65)}, ["epilogue epilogue-size"]),
    ],
)
def test_findings(assignments: dict[str, str], found: list[str]) -> None:
    assert findings(assignments) == found


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("gelu_tanh(acc+bias)", "gelu_tanh(acc + bias)"),
        ("(acc)", "acc"),
        ("2*acc + 1", "2.0 * acc + 1.0"),
        ("((acc * bias)) + (acc)", "acc * bias + acc"),
        ("acc - (bias - acc)", "acc - (bias - acc)"),
        ("acc + (bias + acc)", "acc + (bias + acc)"),
        ("(acc - bias) - acc", "acc - bias - acc"),
        ("acc * (bias * acc)", "acc * (bias * acc)"),
        ("-(acc * bias)", "-(acc * bias)"),
        ("-acc * bias", "-acc * bias"),
        ("acc - -1", "acc - -1.0"),
        ("--acc", "--acc"),
        ("acc / (bias + 1)", "divide(acc, bias + 1.0)"),
        ("acc * (2 / bias)", "acc * divide(2.0, bias)"),
        ("acc * (1 / 3)", "acc * (1.0 / 3.0)"),
        ("min(acc, 6, bias)", "minimum(minimum(acc, 6.0), bias)"),
        ("abs(acc) * 1e-7", "absolute(acc) * 1e-07"),
        ("clamp(acc, -1, bias) - leaky_relu(acc, 1/8)", "clamp(acc, -1.0, bias) - leaky_relu(acc, 1.0 / 8.0)"),
        ("where(acc>0, acc, -bias)*2", "where(acc > 0.0, acc, -bias) * 2.0"),
        (
            "where((acc>0 or bias<1) and not acc==2, 1, 0)",
            "where(((acc > 0.0) | (bias < 1.0)) & ~(acc == 2.0), 1.0, 0.0)",
        ),
        ("where(not(acc>0 and bias<=1), acc+1, 0)", "where(~((acc > 0.0) & (bias <= 1.0)), acc + 1.0, 0.0)"),
        ("where(-1 < acc + bias < 1, acc, 0)", "where((acc + bias > -1.0) & (acc + bias < 1.0), acc, 0.0)"),
        ("where(0 < acc, acc, -bias)", "where(acc > 0.0, acc, -bias)"),
        ("where(1 / 2 >= acc or 1 == bias, 1, 0)", "where((acc <= 1.0 / 2.0) | (bias == 1.0), 1.0, 0.0)"),
    ],
)
def test_device_source(text: str, line: str) -> None:
    assert device_lines(program({"d": text}, (BIAS,))) == (f"d = {line}",)


def test_device_source_of_stored_values() -> None:
    outputs = [Output(name, dtype, False, (0, 1), "n") for name, dtype in (("d", BF16), ("e", F32), ("e2", F32))]
    p = program({"d": "acc", "e": "stored(d) + stored(e2)", "e2": "acc * 2"}, outputs=tuple(outputs))
    assert device_lines(p) == ("d = acc", "e2 = acc * 2.0", "e = stored(d, cutlass.BFloat16) + e2")
    assert device_imports(p) == {BUILT_IN_MODULE: ("stored",)}


def test_device_imports_are_what_the_lines_call() -> None:
    called = device_imports(program({"d": "relu(max(acc, 0.1) / bias)"}, (BIAS,)))
    assert called == {BUILT_IN_MODULE: ("divide", "maximum", "relu")}
    assert device_imports(program({"d": "acc + bias"}, (BIAS,))) == {}


def test_torch_source() -> None:
    p = program({"d": "gelu_tanh(acc + bias) + min(0.5, acc, half * 2) / max(acc, bias)", "half": "1 / 2"}, (BIAS,))
    assert torch_lines(p) == (
        "half = 1.0 / 2.0",
        'd = torch.nn.functional.gelu(acc + bias, approximate="tanh") + torch.clamp(torch.clamp(acc, max=0.5), '
        "max=half * 2.0) / torch.maximum(acc, bias)",
        "d = d.to(torch.bfloat16)",
    )
    p = program({"d": "clamp(bias, acc, 2) + where(acc != 1, leaky_relu(acc, 0.1), clamp(acc, 0, bias))"}, (BIAS,))
    assert torch_lines(p)[0] == (
        "d = torch.clamp(torch.maximum(bias, acc), max=2.0) + torch.where(acc != 1.0, "
        "torch.nn.functional.leaky_relu(acc, 0.1), torch.minimum(torch.clamp(acc, min=0.0), bias))"
    )
    p = program({"d": "round_bf16(acc + bias) * round_f16(acc) + round_bf16(-acc)"}, (BIAS,))
    assert torch_lines(p)[0] == (
        "d = (acc + bias).to(torch.bfloat16).to(acc.dtype) * acc.to(torch.float16).to(acc.dtype) "
        "+ (-acc).to(torch.bfloat16).to(acc.dtype)"
    )
    assert torch_lines(program({"d": "relu(stored(e))", "e": "acc"}, outputs=(
        Output("d", F32, True, (1, 2, 0), "n"), Output("e", BF16, True, (2, 0, 1), "m"),
    ))) == (
        "e = acc",
        "d = torch.relu(e.to(torch.bfloat16).to(e.dtype))",
        "d = d.to(torch.float32)",
        "e = e.to(torch.bfloat16).permute(2, 0, 1)",
    )  # fmt: skip


def test_eight_bit_outputs_saturate_in_the_reference() -> None:
    torch = pytest.importorskip("torch")
    outputs = (Output("d", DTYPES["e4m3"], False, (0, 1), "n"), Output("e", DTYPES["e5m2"], False, (0, 1), "n"))
    p = program({"d": "acc", "e": "stored(d) * 1000"}, outputs=outputs)
    assert torch_lines(p) == (
        "d = acc",
        "e = d.clamp(-448.0, 448.0).to(torch.float8_e4m3fn).to(d.dtype) * 1000.0",
        "d = d.clamp(-448.0, 448.0).to(torch.float8_e4m3fn)",
        "e = e.clamp(-57344.0, 57344.0).to(torch.float8_e5m2)",
    )
    scope = {"torch": torch, "acc": torch.tensor([[1e9, -500.0, 449.0, 0.3, math.nan]])}
    exec("\n".join(torch_lines(p)), scope)
    assert scope["d"].float()[0, :4].tolist() == [448.0, -448.0, 448.0, 0.3125]
    assert scope["e"].float()[0, :4].tolist() == [57344.0, -57344.0, 57344.0, 320.0]
    assert scope["d"].float()[0, 4].isnan()
    assert device_lines(p)[1] == "e = stored(d, cutlass.Float8E4M3FN) * 1000.0"


def test_operands_and_outputs_change_places_with_torch() -> None:
    """Every order of dims, on real tensors: what goes in by the declared order comes out by it."""
    torch = pytest.importorskip("torch")
    sizes = {"m": 2, "n": 3, "batch": 5}
    for dims in itertools.permutations(("m", "n", "batch")):
        axes = tuple(dims.index(role) for role in ("m", "n", "batch"))
        p = program({"d": "acc + c"}, (operand("c", "tile", True, axes),), (Output("d", F32, True, axes, "n"),))
        given = torch.rand([sizes[role] for role in dims])
        scope = {"torch": torch, "acc": torch.zeros(5, 2, 3), "c": given}
        exec("\n".join((*torch_operand_lines(p), *torch_lines(p))), scope)
        assert torch.equal(scope["d"], given)
    acc = torch.rand(5, 2, 3)
    for kind, role in (("row_vector", "n"), ("column_vector", "m")):
        for order in (("batch", role), (role, "batch"), (role,)):
            axes = tuple(order.index(r) for r in (role, "batch") if r in order)
            p = program({"d": "acc + v"}, (operand("v", kind, "batch" in order, axes),))
            given = torch.rand([sizes[r] for r in order])
            scope = {"torch": torch, "acc": acc, "v": given}
            exec("\n".join((*torch_operand_lines(p), *torch_lines(p)[:1])), scope)
            for batch, m, n in itertools.product(range(5), range(2), range(3)):
                index = {"m": m, "n": n, "batch": batch}
                expected = acc[batch, m, n] + given[tuple(index[r] for r in order)]
                assert scope["d"][batch, m, n] == expected


def test_cost() -> None:
    scalar, column = operand("s", "host_scalar"), operand("v", "column_vector", True, (1, 0))
    tile = Operand("c", "tile", BF16, True, (1, 2, 0), "n")
    output = Output("d", F32, True, (1, 2, 0), "n")
    p = program({"d": "min(s * acc, v, 1) + c - -acc / 2"}, (scalar, column, tile), (output,))
    work = cost(p)
    assert work.flops == 1 + 2 + 1 + 1 + 1 + 1
    assert [(t.name, t.total(m=10, n=20, batch=3)) for t in work.reads] == [("v", 4 * 10 * 3), ("c", 2 * 600)]
    assert [t.total(m=10, n=20, batch=3) for t in work.writes] == [4 * 600]
    assert work.errors == {"d": 0.0}


def test_an_output_may_err_by_what_it_comes_from_and_by_nothing_else() -> None:
    outputs = (Output("d", BF16, False, (0, 1), "n"), Output("e", F32, False, (0, 1), "n"))

    def errors(**statements: str) -> tuple[float, float]:
        found = cost(program(statements, outputs=outputs)).errors
        return found["d"], found["e"]

    silu, sigmoid = find_op("silu").error, find_op("sigmoid").error
    assert silu > sigmoid > 0.0
    flip = 6 * 2.0**-7
    assert errors(d="acc", e="stored(d)") == (0.0, flip)
    assert errors(e="acc", d="stored(e)") == (0.0, 0.0)
    assert errors(d="silu(acc)", e="acc") == (silu, 0.0)
    assert errors(d="silu(acc)", e="stored(d)") == (silu, silu + flip)
    # A local counts once, however often it is read.
    assert errors(x="silu(acc)", d="x * x + sigmoid(acc)", e="2 * x") == (silu + sigmoid, silu)
