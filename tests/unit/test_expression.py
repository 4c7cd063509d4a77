"""Text to tree: what is accepted, what is refused, and where the finding points."""

from __future__ import annotations

import pytest

from cutegen.epilogue.expression import parse_expression
from cutegen.epilogue.tree import (
    Binary,
    Call,
    Compare,
    Expr,
    Logic,
    Name,
    Negate,
    Number,
    Slice,
    Stored,
    Where,
    fold,
    is_constant,
    walk,
)

NOWHERE = (0, 0)
ACC, X = Name("acc", NOWHERE), Name("x", NOWHERE)


def number(value: float) -> Number:
    return Number(value, NOWHERE)


def compare(op: str, left: Expr, right: float) -> Compare:
    return Compare(op, left, number(right), NOWHERE)


def parse(text: str) -> Expr:
    findings: list[object] = []
    tree = parse_expression(text, lambda *finding: findings.append(finding))
    assert tree is not None, findings
    assert not findings
    return tree


def refusals(text: str) -> list[tuple[str, str]]:
    """(rule, the text it points at) of each finding."""
    found: list[tuple[str, str]] = []
    tree = parse_expression(text, lambda rule, span, message, remedy: found.append((rule, text[slice(*span)])))
    assert tree is None
    return found


@pytest.mark.parametrize(
    ("text", "tree"),
    [
        ("acc", ACC),
        ("  acc  ", ACC),
        ("acc - x - 1", Binary("-", Binary("-", ACC, X, NOWHERE), number(1.0), NOWHERE)),
        ("acc - (x - 1)", Binary("-", ACC, Binary("-", X, number(1.0), NOWHERE), NOWHERE)),
        ("acc + x * 2", Binary("+", ACC, Binary("*", X, number(2.0), NOWHERE), NOWHERE)),
        ("-acc / x", Binary("/", Negate(ACC, NOWHERE), X, NOWHERE)),
        ("-(acc / x)", Negate(Binary("/", ACC, X, NOWHERE), NOWHERE)),
        ("relu(acc)", Call("relu", (ACC,), NOWHERE)),
        ("min(acc, x, .5)", Call("min", (ACC, X, number(0.5)), NOWHERE)),
        ("stored(x)", Stored("x", NOWHERE)),
        ("1_000 * acc", Binary("*", number(1000.0), ACC, NOWHERE)),
        ("relu(\n  acc\n)", Call("relu", (ACC,), NOWHERE)),
        (
            "where(acc > 0 and not x == 1, acc, x)",
            Where(
                Logic("and", (compare(">", ACC, 0.0), Logic("not", (compare("==", X, 1.0),), NOWHERE)), NOWHERE),
                ACC,
                X,
                NOWHERE,
            ),
        ),
        (
            "where(acc < 0 <= x or x != 1, 1, 0)",
            Where(
                Logic(
                    "or",
                    (
                        Logic("and", (compare("<", ACC, 0.0), Compare("<=", number(0.0), X, NOWHERE)), NOWHERE),
                        compare("!=", X, 1.0),
                    ),
                    NOWHERE,
                ),
                number(1.0),
                number(0.0),
                NOWHERE,
            ),
        ),
        ("acc[:, ::2]", Slice("acc", "interleaved", 0, 1, None, NOWHERE)),
        ("x[1::2]", Slice("x", "interleaved", 1, 0, None, NOWHERE)),
        ("acc[..., :n/2]", Slice("acc", "concatenated", 0, None, "n", NOWHERE)),
        ("acc[:, :, n/2:]", Slice("acc", "concatenated", 1, 2, "n", NOWHERE)),
        ("a @ b", Binary("@", Name("a", NOWHERE), Name("b", NOWHERE), NOWHERE)),
    ],
)
def test_trees(text: str, tree: Expr) -> None:
    assert parse(text) == tree


def test_spans_count_from_the_start_of_the_text() -> None:
    text = "  relu(acc\n   + bias) * 0.5"
    spans = {type(node).__name__ + text[slice(*node.span)] for node in walk(parse(text))}
    assert spans == {
        "Binaryrelu(acc\n   + bias) * 0.5", "Callrelu(acc\n   + bias)", "Binaryacc\n   + bias", "Nameacc", "Namebias",
        "Number0.5",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", [("expression-syntax", "")]),
        ("   ", [("expression-syntax", " ")]),
        ("acc +", [("expression-syntax", "+")]),
        ("acc bias", [("expression-syntax", "b")]),
        ("acc # x", [("expression-syntax", "#")]),
        ("acc \\ x", [("expression-syntax", "\\")]),
        ("acc\x00", [("expression-syntax", "\x00")]),
        ("acc × 2", [("expression-syntax", "×")]),
        ("ａcc", [("expression-syntax", "ａ")]),
        ("'acc'", [("expression-syntax", "'acc'")]),
        ("acc ** 2 + True", [("expression-syntax", "acc ** 2"), ("expression-syntax", "True")]),
        ("acc.x", [("expression-syntax", "acc.x")]),
        ("lambda: acc", [("expression-syntax", "lambda: acc")]),
        ("(y := acc)", [("expression-syntax", "y := acc")]),
        ("[acc]", [("expression-syntax", "[acc]")]),
        ("acc, x", [("expression-syntax", "acc, x")]),
        ("relu(*acc)", [("expression-syntax", "*acc")]),
        ("relu(x=acc)", [("expression-syntax", "acc")]),
        ("relu(**acc)", [("expression-syntax", "acc")]),
        ("acc(1)", [("unknown-op", "acc")]),
        ("__import__('os')", [("unknown-op", "__import__")]),
        ("relu.f(acc)", [("expression-syntax", "relu.f")]),
        ("relu()", [("op-arity", "relu()")]),
        ("max(acc)", [("op-arity", "max(acc)")]),
        ("stored(1)", [("op-arity", "stored(1)")]),
        ("1e39 + 1e999 - acc", [("expression-number", "1e39"), ("expression-number", "1e999")]),
        ("acc / 1e-39", [("expression-number", "1e-39")]),
        ("acc[0]", [("slice", "acc[0]")]),
        ("acc[::2, 0::2]", [("slice", "acc[::2, 0::2]")]),
        ("acc[:, n/2:n]", [("slice", "acc[:, n/2:n]")]),
        ("acc[:, :n/3]", [("slice", "acc[:, :n/3]")]),
        ("relu(acc)[:, 0::2]", [("expression-syntax", "relu(acc)[:, 0::2]")]),
        ("acc > x", [("condition", "acc > x")]),
        ("not acc", [("condition", "not acc")]),
        ("1 + (acc > x and x > 0)", [("condition", "acc > x and x > 0")]),
        ("relu(acc > x)", [("condition", "acc > x")]),
        ("where((acc > x) > 0, 1, 0)", [("condition", "acc > x")]),
        ("where(acc, x, 0)", [("condition", "acc")]),
        ("where(acc > 0 and x, x, 0)", [("condition", "x")]),
        ("where(not x, x, acc < 1)", [("condition", "x"), ("condition", "acc < 1")]),
        ("where(acc > 0, x)", [("op-arity", "where(acc > 0, x)")]),
        ("where(acc is x, acc, x)", [("expression-syntax", "acc is x")]),
        ("where(acc in x, acc, x)", [("expression-syntax", "acc in x")]),
        ("acc if acc > 0 else x", [("expression-syntax", "acc if acc > 0 else x")]),
        ("sum(acc, n) + foo(x)", [("op-arity", "sum(acc, n)"), ("unknown-op", "foo")]),
        ("(" * 65 + "acc" + ")" * 65, [("expression-syntax", "(")]),
        ("(" * 300 + "acc" + ")" * 300, [("expression-syntax", "(")]),
    ],
)
def test_refusals(text: str, found: list[tuple[str, str]]) -> None:
    assert refusals(text) == found


@pytest.mark.parametrize(
    "text",
    [
        "x" * 1025,
        "-" * 1000 + "x",
        "(" * 500 + "x" + ")" * 500,
        "relu(" * 200 + "x" + ")" * 200,
        "+".join("x" * 100),
        "x" + "[0]" * 300,
        "x" + ".y" * 500,
        "9" * 1000,
        "0x" + "f" * 1000,
    ],
)
def test_large_input_is_refused_and_survived(text: str) -> None:
    assert len(refusals(text)) == 1


def test_unknown_ops_are_suggested() -> None:
    remedies: list[str] = []
    for text in ("gelu(acc)", "sigmod(acc)", "zzz(acc)"):
        parse_expression(text, lambda rule, span, message, remedy: remedies.append(remedy))
    assert remedies[0].startswith("did you mean `gelu_tanh` or `gelu_erf`?")
    assert remedies[1].startswith("did you mean `sigmoid`?")
    assert remedies[2].startswith("ops: ")


def test_folding() -> None:
    assert fold(parse("2 * (x + 1) / -4"), {"x": 3.0}) == -2.0
    assert fold(parse("1 / (x - 3)"), {"x": 3.0}) is None
    assert fold(parse("1e38 * 10"), {}) is None
    assert fold(parse("1e-30 * 1e-30"), {}) is None
    assert fold(parse("1 - 1"), {}) == 0.0
    assert fold(parse("relu(1)"), {}) is None
    assert fold(parse("acc"), {}) is None
    assert is_constant(parse("x * relu(2)"), {"x"})
    assert not is_constant(parse("stored(x)"), {"x"})


def test_the_bounds_that_a_remedy_names_are_within_the_range() -> None:
    remedies: list[str] = []
    parse_expression("acc * 1e39", lambda rule, span, message, remedy: remedies.append(remedy))
    assert remedies == ["use 0, or a number from 1.1755e-38 to 3.4028e+38"]
    for text in remedies[0].partition("from ")[2].split(" to "):
        assert parse(f"acc * {text}") == Binary("*", ACC, number(float(text)), NOWHERE)
