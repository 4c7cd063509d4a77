"""Derivatives of epilogues: of every op against torch's autograd in float64, and of whole expressions."""

from __future__ import annotations

import re
from typing import Any

import pytest
from gemm_specs import bind_text

from cutegen.epilogue import OPS, EpilogueProgram, parse_expression
from cutegen.epilogue.derivative import differentiate, new_names, write
from cutegen.epilogue.source import TorchWriter
from cutegen.runtime import epilogue as reference
from cutegen.runtime.autograd import NotDifferentiable

torch = pytest.importorskip("torch")

DECLARED = {"u": '"f32[n]"', "v": '"f32[m]"', "alpha": "f32", "e": '"f32[m, n]"'}
SHAPES = {"acc": (6, 10), "u": (1, 10), "v": (6, 1), "alpha": (), "e": (6, 10)}
# Ops whose values are the same around almost every argument.
FLAT = {"ceil_pow2"}


def program_of(epilogue: str) -> EpilogueProgram:
    words = set(re.findall(r"\w+", epilogue))
    read = "".join(f"{name}: {kind}, " for name, kind in DECLARED.items() if name in words)
    tensors = f'{{a: "bf16[m, k]", b: "bf16[n, k]", {read}d: "f32[m, n]"}}'
    text = f"cutegen: 1\nkernel: gemm\narch: sm_90a\ntensors: {tensors}\nepilogue: {{{epilogue}}}\n"
    return bind_text(text).epilogue


def run(lines: list[str], values: dict[str, Any]) -> dict[str, Any]:
    scope = {"torch": torch, "divide": reference.divide, "ceil_pow2": reference.ceil_pow2, **values}
    for line in lines:
        exec(line, scope)
    return scope


def compare(epilogue: str, *, positive: bool = False) -> None:
    """The gradient with respect to all that is read, element by element, is torch's."""
    program = program_of(epilogue)
    wanted = ["acc", *(o.name for o in program.operands)]
    torch.manual_seed(3)
    values = {n: 2 * torch.randn(SHAPES[n], dtype=torch.float64).expand(6, 10).clone() for n in wanted}
    if positive:
        values = {name: value.abs() + 0.1 for name, value in values.items()}
    grad = torch.randn(6, 10, dtype=torch.float64)
    tracked = {name: value.clone().requires_grad_() for name, value in values.items()}
    d = run(TorchWriter(program).lines, tracked)["d"]
    expected = torch.autograd.grad(d, list(tracked.values()), grad, allow_unused=True)
    adjoints = differentiate(program, wanted, {"d": "grad"}, new_names([*values, "d", "x", "y", "grad"]))
    # As the spec of a gradient kernel has it: written, and read again.
    results = {f"result_{name}": expr for (name, _), expr in adjoints.results.items()}
    texts = {name: write(expr) for name, expr in {**adjoints.statements, **results}.items()}
    found: list[str] = []
    trees = {name: parse_expression(text, lambda *finding: found.append(str(finding))) for name, text in texts.items()}
    assert found == []
    writer = TorchWriter(program)
    scope = run([f"{name} = {writer.text(tree)}" for name, tree in trees.items()], {**values, "grad": grad})
    for name, theirs in zip(wanted, expected):
        ours = scope.get(f"result_{name}", torch.zeros((), dtype=torch.float64))
        theirs = torch.zeros(6, 10, dtype=torch.float64) if theirs is None else theirs
        # A cast of torch's rounds the gradient, too.
        near = 2.0**-7 if "round_" in epilogue else 1e-12
        torch.testing.assert_close(ours.expand(6, 10), theirs, rtol=near, atol=near, msg=lambda m, n=name: f"{n}: {m}")


@pytest.mark.parametrize("name", OPS)
def test_of_each_op(name: str) -> None:
    op = OPS[name]
    if name in FLAT:
        with pytest.raises(NotDifferentiable, match=f"the op `{name}` has no derivative"):
            compare(f"d: {name}(acc)")
        return
    arguments = ["acc", "e", "u"][: op.arguments or 2]
    for index in op.numbers:
        arguments[index] = "0.25"
    compare(f'd: "{name}({", ".join(arguments)})"', positive=name in ("log", "sqrt", "rsqrt"))


@pytest.mark.parametrize(
    "epilogue",
    [
        "d: acc + u",
        "d: alpha * acc + v * e - u",
        "d: -acc / v + (2 - u) * acc * acc",
        'd: "max(acc, 0) + max(0.5, acc) + min(acc, u, e, 1)"',
        'd: "clamp(acc, -1, 1.5) * u"',
        'd: "where(acc > u and not e <= 0, acc * e, v)"',
        "x: silu(acc + u), y: x * x, d: y * v + gelu_erf(x) / (1 + exp(e))",
        "d: round_bf16(relu(acc)) * 3 + alpha",
        "d: acc * sigmoid(e) + u * 2 + tanh(v)",
    ],
)
def test_of_expressions(epilogue: str) -> None:
    compare(epilogue)


def test_where_torch_puts_a_bound() -> None:
    """At a bound that is a number the gradient is 1, as that of torch.clamp; between two tensors half each."""
    for text, at in (('"max(acc, 0)"', 0.0), ('"min(1, acc)"', 1.0)):
        program = program_of(f"d: {text}")
        adjoints = differentiate(program, ["acc"], {"d": "grad"}, new_names(["acc", "d", "grad"]))
        texts = {**adjoints.statements, "result": adjoints.results["acc", None]}
        acc = torch.full((6, 10), at, dtype=torch.float64)
        writer = TorchWriter(program)
        lines = [f"{name} = {writer.text(expr)}" for name, expr in texts.items()]
        assert (run(lines, {"acc": acc, "grad": acc + 1})["result"] == acc + 1).all()
