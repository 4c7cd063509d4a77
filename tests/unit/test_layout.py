"""The formatter's layout of lines that names of a spec made too long."""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys

import pytest

from cutegen.render.layout import WIDTH, lay_out

A, B = "a" * 48, "b" * 48
LINES = {
    "a call": f"x = function({A}, {B}, 1, 2, 3, 4, 5, 6)",
    "arguments that need a line each": f"x = function({A}, {B}, {A}, (1, 2))",
    "a call in a call": f"x = outer(inner({A}, {B}), another, and_another, and_one_more)",
    "a head that is too long": f"{A} = {B}.{A}.get(1)",
    "a subscript": f"{A}: Align[MemRange[Float32, cosize({A}_layout_of_it)], 1024]",
    "a tuple": f"x = ({A}, {B}, {A})",
    "a function": f"def f({A}: Float32, {B}: Float32, c: Float32):\n    return 1",
    "strings with brackets": f'x = f("({A}", "[{B}", "\\\\", "]", 1234567890)',
    "a comment behind": f"x = function({A}, {B}, 1)  # (m, n)",
    "a comment too long for its line": f"x = function({A}, {B}, 1)  # {A}, {B}, {A}",
    "arithmetic in brackets": f"x = f(a * -(-{A} // 128) * -(-{B} // 128) * 4, 1)",
    "a sum of products": f"return 2 * {A} * {B} * abc + 5 * {A} * {B}",
    "a product with a call in it": f"return min({A}, {B}) * {A} * 2",
    "a call behind one operator": f"x = {A} * function({A}, {B})",
    "conditions": f"if {A} is None and {B} is None and {A} > 128:\n    x += {A} * {B} * {A}",
    "one calls what another returns": f"x = {A}.get_slice(thread).partition({B}.get_slice(1))",
    "one is reached after the other": f"{B} = {A}.get_slice(thread).partition({B})",
    "a value": f"{B} = {A}.slices[batch].to(Float32)",
    "targets": f"abcdef_{A}, abcdef_{B} = partition({A})",
    "targets of a call that other lines close": f"abcde_{A}, abcde_{B} = call(\n    {A},\n    {B},\n)\nx = 1",
    "results": f"def f():\n    return {A}, {B}, {A}",
    "imports": f"from abc import {A}, {B}, c",
    "a string alone": f'x = [\n    "{A}{A}{A}",\n]',
    "indented": f"if 1:\n    if 2:\n        x, y = function({A}, b={B}[1])",
    "short": "x = f(a)  # short",
}


@pytest.mark.parametrize("kind", LINES)
def test_it_is_stable_and_means_the_same(kind: str) -> None:
    ruff = shutil.which("ruff", path=os.pathsep.join([os.path.dirname(sys.executable), os.environ.get("PATH", "")]))
    if ruff is None:
        pytest.skip("ruff is not installed")
    text = lay_out(LINES[kind] + "\n")
    assert ast.dump(ast.parse(text)) == ast.dump(ast.parse(LINES[kind]))
    assert all(len(line) <= WIDTH or " " not in line.strip() for line in text.splitlines())
    command = [ruff, "format", "--isolated", f"--line-length={WIDTH}", "-"]
    assert subprocess.run(command, input=text, capture_output=True, text=True, check=True).stdout == text


def test_comments_go_above() -> None:
    assert lay_out(f"    x = function({A}, {B})  # (m, n)").splitlines()[0] == "    # (m, n)"


def test_prose_is_wrapped_and_literals_are_left_alone() -> None:
    assert lay_out(f'"""{A} and {B} and {A}."""') == f'"""{A} and {B} and\n{A}."""'
    assert lay_out(f'd = {{\n    "x": "{A}{B}{A}",\n}}').splitlines()[1].endswith(",  # noqa: E501")
    assert lay_out(f'"""{A} and {A} -> d: bf16[rows, columns]."""').endswith('->\nd: bf16[rows, columns]."""')
    long = lay_out(f'"""{A} and {A} -> d: bf16[{A}, {B}, {A}]."""').splitlines()
    assert all(len(line) <= WIDTH for line in long)
    kept = f"    d = {A} + {B} + {A}  # fmt: skip  # noqa: E501"
    assert lay_out(kept) == kept


def test_what_another_line_closes_is_left_alone() -> None:
    """As the row of a tiling whose name is too long: `tune` names a candidate by all that is new in it."""
    first, *rest = lay_out(f'd = {{\n    "{A}{A}{A}": Tiling(\n        1,\n    ),\n}}').splitlines()[1:]
    assert first == f'    "{A}{A}{A}": Tiling(  # noqa: E501'
    assert rest == ["        1,", "    ),", "}"]


def test_methods_of_what_methods_return_take_a_line_each_where_one_is_too_short() -> None:
    name, long = "x" * 55, "y" * 100
    assert lay_out(f"{name} = {name}.float().unsqueeze(-2)").splitlines() == [
        f"{name} = (", f"    {name}.float().unsqueeze(-2)", ")"
    ]  # fmt: skip
    assert lay_out(f"x = ({long}).to(torch.bfloat16).to(acc.dtype)").splitlines() == [
        "x = (", f"    ({long})", "    .to(torch.bfloat16)", "    .to(acc.dtype)", ")"
    ]  # fmt: skip
