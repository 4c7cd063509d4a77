"""Any text is a tree or a finding; every tree means the same in device source, in PyTorch and by hand."""

from __future__ import annotations

import json
import math
import operator
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from cutegen.diagnostics import RULES, SpecError
from cutegen.dtypes import DTYPES
from cutegen.epilogue import (
    OPS,
    EpilogueProgram,
    Operand,
    Output,
    device_imports,
    device_lines,
    parse_epilogue,
    parse_expression,
    torch_lines,
)
from cutegen.families.gemm.binding import bind
from cutegen.spec import load_text, parse_spec

TOKENS = st.sampled_from(
    [
        *("acc", "bias", "d", "x", "1", "0.5", "1e999", "relu", "min", "stored", "sum", "n", "True", "lambda", "if"),
        *("where", "not", "and", "or", "<=", "==", "clamp"),
        *("(", ")", "[", "]", ",", ":", ".", "+", "-", "*", "/", "**", "//", "@", "%", "=", ":=", "<", "not ", "~"),
        *(" ", "\n", "\t", "#", "\\", "\0", "é", "'", '"', "f'{acc}'", "await ", "yield ", "for x in acc", "9" * 400),
    ]
)
HOSTILE = st.one_of(st.text(max_size=80), st.lists(TOKENS, max_size=25).map("".join))


@given(HOSTILE)
@example("(" * 600)
@example("-" * 1023 + "1")
@example("1if 2else 3")
@example("acc\x0c+ 1")
def test_any_text_is_a_tree_or_a_finding_inside_the_text(text: str) -> None:
    found: list[tuple[str, tuple[int, int]]] = []
    tree = parse_expression(text, lambda rule, span, message, remedy: found.append((rule, span)))
    assert (tree is None) == bool(found)
    for rule, (start, end) in found:
        assert rule in RULES
        assert 0 <= start <= end <= max(len(text), 1)


@given(HOSTILE, HOSTILE, HOSTILE)
@settings(deadline=None)
def test_only_findings_leave_the_binder(mainloop: str, local: str, output: str) -> None:
    sections = {"mainloop": mainloop, "epilogue": {"x": local, "d": output}}
    tensors = {"a": "bf16[m, k]", "b": "bf16[n, k]", "bias": "f32[n]", "d": "bf16[m, n]"}
    spec = {"cutegen": 1, "kernel": "gemm", "arch": "sm_90a", "tensors": tensors, **sections}
    try:
        doc = load_text(json.dumps(spec), "spec")
        problem = bind(parse_spec(doc), doc)  # type: ignore[arg-type]
        compile("\n".join(device_lines(problem.epilogue)), "device", "exec")
    except SpecError as error:
        error.report()


# A tree as the tests see it: a number, a name, ("-", x), (operator, x, y) or (op, *arguments).
Tree = Any
NAMES = st.sampled_from(["acc", "row", "scalar", "tile"])
NUMBERS = st.one_of(st.floats(0.0, 8.0, allow_subnormal=False).map(lambda x: round(x, 3)), st.integers(0, 9))
LEAVES = st.one_of(NAMES, NAMES, NAMES, NUMBERS)


def grow(parts: st.SearchStrategy[Tree]) -> st.SearchStrategy[Tree]:
    unary = [op.name for op in OPS.values() if op.arguments == 1]
    return st.one_of(
        st.tuples(st.just("neg"), parts),
        st.tuples(st.sampled_from("+-*/"), parts, parts),
        st.tuples(st.sampled_from(unary), parts),
        st.tuples(st.sampled_from(["min", "max"]), parts, parts),
        st.tuples(st.sampled_from(["min", "max", "clamp"]), parts, parts, parts),
        st.tuples(st.just("leaky_relu"), parts, st.sampled_from([0.01, 0.25])),
        st.tuples(st.just("where"), conditions(parts), parts, parts),
    )


def conditions(parts: st.SearchStrategy[Tree]) -> st.SearchStrategy[Tree]:
    compared = st.tuples(st.sampled_from(["<", "<=", ">", ">=", "==", "!="]), parts, parts)
    joined = st.tuples(st.sampled_from(["and", "or"]), compared, compared)
    return st.one_of(compared, joined, st.tuples(st.just("not"), st.one_of(compared, joined)))


TREES = st.recursive(LEAVES, grow, max_leaves=12)
SPACE = st.sampled_from(["", " ", "  "])
LEVELS = {"or": -4, "and": -3, "not": -2, **dict.fromkeys(("<", "<=", ">", ">=", "==", "!="), -1)}
LEVELS |= {"+": 0, "-": 0, "*": 1, "/": 1, "neg": 2}


@st.composite
def written(draw: st.DrawFn, tree: Tree, level: int = -4) -> str:
    """The text of a tree, with blanks anywhere and more parentheses than needed now and then."""
    blank = draw(SPACE)
    if not isinstance(tree, tuple):
        return f"{blank}{tree}"
    head, *parts = tree
    own = LEVELS.get(head, 3)
    if head == "neg":
        text = f"-{draw(written(parts[0], 2))}"
    elif head == "not":
        text = f"not {draw(written(parts[0], own))}"
    elif head in LEVELS:
        infix = f" {head} " if head.isalpha() else f"{blank}{head}{blank}"
        # A comparison of a comparison would be a chain; at equal precedence the left side binds first.
        left = own + 1 if own == LEVELS["<"] else own
        text = f"{draw(written(parts[0], left))}{infix}{draw(written(parts[1], own + 1))}"
    else:
        text = f"{head}({','.join(draw(written(part)) for part in parts)})"
    return f"({blank}{text}{blank})" if own < level or draw(st.integers(0, 9)) == 0 else f"{blank}{text}"


def logistic(x: float) -> float:
    return 1.0 / (1.0 + math.exp(-x)) if x > -700.0 else 0.0


FUNCTIONS: dict[str, Callable[..., float]] = {
    "min": min,
    "max": max,
    "relu": lambda x: max(x, 0.0),
    "gelu_tanh": lambda x: 0.5 * x * (1.0 + math.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * x * x * x))),
    "gelu_erf": lambda x: 0.5 * x * math.erfc(-x / math.sqrt(2.0)),
    "normal_cdf": lambda x: 0.5 * math.erfc(-x / math.sqrt(2.0)),
    "silu": lambda x: x * logistic(x),
    "sigmoid": logistic,
    "tanh": math.tanh,
    "exp": lambda x: math.exp(min(x, 700.0)),
    "abs": abs,
    "square": lambda x: x * x,
    "clamp": lambda x, low, high: min(max(x, low), high),
    "leaky_relu": lambda x, slope: x if x > 0.0 else slope * x,
    "elu": lambda x: x if x > 0.0 else math.exp(x) - 1.0,
    "softplus": lambda x: max(x, 0.0) + math.log1p(math.exp(-abs(x))),
    "mish": lambda x: x * math.tanh(max(x, 0.0) + math.log1p(math.exp(-abs(x)))),
    "hardsigmoid": lambda x: min(max(x + 3.0, 0.0), 6.0) / 6.0,
    "hardswish": lambda x: x * min(max(x + 3.0, 0.0), 6.0) / 6.0,
    "log": lambda x: math.log(positive(x)),
    "sqrt": lambda x: math.sqrt(positive(x)),
    "rsqrt": lambda x: 1.0 / math.sqrt(positive(x)),
    "ceil_pow2": lambda x: ceil_pow2(x),
    "round_bf16": lambda x: rounded(x, "bfloat16"),
    "round_f16": lambda x: rounded(x, "float16"),
}
COMPARISONS: dict[str, Callable[[float, float], bool]] = {
    "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge, "==": operator.eq, "!=": operator.ne,
}  # fmt: skip


def ceil_pow2(x: float) -> float:
    mantissa, exponent = math.frexp(abs(x))
    return max(math.ldexp(1.0 if mantissa > 0.5 else 0.5, exponent), 2.0**-126) if x else 0.0


def rounded(x: float, dtype: str) -> float:
    import torch

    return float(torch.tensor(x, dtype=torch.float64).to(getattr(torch, dtype)))


def positive(x: float) -> float:
    assume(x > 1e-2)
    return x


def divide(x: float, y: float) -> float:
    # Small divisors would turn rounding into large differences between the three.
    assume(abs(y) > 1e-2)
    return x / y


def evaluate(tree: Tree, values: dict[str, float]) -> float:
    if isinstance(tree, str):
        return values[tree]
    if not isinstance(tree, tuple):
        return float(tree)
    head, *parts = tree
    x, *rest = (evaluate(part, values) for part in parts)
    if head in COMPARISONS:
        # The three may disagree about values that are equal but for rounding.
        assume(x == rest[0] or abs(x - rest[0]) > 1e-6)
        return COMPARISONS[head](x, rest[0])
    if head in ("and", "or", "not"):
        return not x if head == "not" else (x and rest[0] if head == "and" else x or rest[0])
    if head == "where":
        return rest[0] if x else rest[1]
    y = rest[0] if rest else 0.0
    infix = {"neg": lambda: -x, "+": lambda: x + y, "-": lambda: x - y, "*": lambda: x * y, "/": lambda: divide(x, y)}
    result = infix[head]() if head in infix else FUNCTIONS[head](x, *rest)
    assume(abs(result) < 1e4)
    return result


OPERANDS = (
    Operand("row", "row_vector", DTYPES["f32"], False, (0,), None),
    Operand("scalar", "host_scalar", DTYPES["f32"], False, (), None),
    Operand("tile", "tile", DTYPES["bf16"], False, (0, 1), "n"),
)
OUTPUTS = tuple(Output(name, DTYPES[dtype], False, (0, 1), "n") for name, dtype in (("d", "f32"), ("e", "bf16")))
ROWS = {"acc": [0.7, -1.3], "row": [0.25, 3.0], "scalar": [-0.6, -0.6], "tile": [1.9, -2.2]}


def parse(assignments: dict[str, str]) -> EpilogueProgram:
    found: list[str] = []
    names = [o.name for o in OPERANDS], [o.name for o in OUTPUTS]
    statements = parse_epilogue(assignments, *names, lambda rule, *finding, **place: found.append(rule))
    # The only finding that a random tree may earn: ops of numbers alone, and numbers that leave f32.
    assume(not (found and set(found) <= {"constant-expression"}))
    assert not found
    assert statements is not None
    return EpilogueProgram(statements, OPERANDS, OUTPUTS)


def choose(condition: bool, x: float, y: float) -> float:
    return x if condition else y


@given(st.data(), TREES, TREES)
@settings(deadline=None, max_examples=250)
def test_device_source_and_reference_compute_the_tree(data: st.DataObject, local: Tree, output: Tree) -> None:
    torch, runtime = pytest.importorskip("torch"), pytest.importorskip("cutegen.runtime.epilogue")
    numpy = pytest.importorskip("numpy")
    texts = [data.draw(written(tree)) for tree in (local, output)]
    program = parse({"x": texts[0], "d": f"x + ({texts[1]}) + acc", "e": "stored(d) * acc"})
    expected = []
    for i in range(2):
        values = {name: row[i] for name, row in ROWS.items()}
        expected.append(evaluate(local, values) + evaluate(output, values) + values["acc"])

    # numpy's booleans have the operators of the DSL's.
    functions = {op.device: FUNCTIONS[op.name] for op in OPS.values()} | {"divide": divide, "where": choose}
    device = {name: lambda *args, f=f: numpy.float64(f(*args)) for name, f in functions.items()}
    assert {name for names in device_imports(program).values() for name in names} <= set(device)
    for i in range(2):
        values = {name: numpy.float64(row[i]) for name, row in ROWS.items()}
        scope: dict[str, Any] = {**device, "cutlass": SimpleNamespace(), **values}
        exec("\n".join(device_lines(program)), scope)
        # The same operations in the same order: equal to the last bit.
        assert scope["d"] == expected[i]
        assert scope["e"] == expected[i] * scope["acc"]

    tensors = {name: torch.tensor([row], dtype=torch.float64) for name, row in ROWS.items()}
    tensors["scalar"] = tensors["scalar"][0, 0]
    scope = {"torch": torch, "ceil_pow2": runtime.ceil_pow2, **tensors}
    exec("\n".join(line for line in torch_lines(program) if line != "e = e.to(torch.bfloat16)"), scope)
    torch.testing.assert_close(scope["d"], torch.tensor([expected], dtype=torch.float32), rtol=1e-5, atol=1e-5)
    assert scope["e"].dtype == torch.float64
