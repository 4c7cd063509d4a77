"""Dimensions as written in tensor declarations: a name, an integer, `x/c`, `ceil(x/c)`; `x*c` is read to be refused."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Literal

from cutegen.diagnostics import Rule, register
from cutegen.spec.finding import Finding
from cutegen.spec.names import name_problem

MAX_EXTENT = 2**31 - 1

DIM_SYNTAX = register(Rule(
    "dim-syntax", "a dim is a name, an integer, `x/c` or `ceil(x/c)`",
    "The shape of a tensor names its dims. `n/2` promises that n is even; `ceil(k/128)` rounds up; c is a positive "
    "integer. Other arithmetic is not needed for shapes.",
    "a: bf16[m + 1, k]",
))  # fmt: skip
BAD_NAME = register(Rule(
    "bad-name", "names are identifiers",
    "Dims, tensors and locals become names in generated Python source: ASCII letters, digits and `_`, a letter first, "
    "no Python keyword.",
    "tensors: {my-input: ...}",
))  # fmt: skip


@dataclass(frozen=True, slots=True)
class Dim:
    """One extent of a shape.

    text: canonical spelling. name: the dim it is made of; None for kind "int". factor: the integer itself for kind
    "int", else the multiplier or divisor (1 for kind "name").
    """

    text: str
    kind: Literal["name", "int", "mul", "div", "ceil_div"]
    name: str | None
    factor: int

    @property
    def base(self) -> str:
        """The dim that it is made of; an integer is one of its own."""
        return self.name or self.text

    @property
    def divided(self) -> bool:
        """Whether it is a quotient: one index for several of the dim `name`."""
        return self.kind in ("div", "ceil_div")

    @property
    def rounds_up(self) -> bool:
        """Whether it is a quotient whose last part may be smaller."""
        return self.kind == "ceil_div"

    def __str__(self) -> str:
        return self.text


_FORM = re.compile(
    r"(?P<int>[0-9]+)"
    r"|(?P<name>\w+)(?:\s*(?P<op>[*/])\s*(?P<factor>[0-9]+))?"
    r"|ceil\s*\(\s*(?P<ceil_name>\w+)\s*/\s*(?P<ceil_factor>[0-9]+)\s*\)"
)
_CHAIN = re.compile(r"([A-Za-z_]\w*)((?:\s*//?\s*[0-9]{1,9})+)")
_DIVISOR = re.compile("[0-9]+")


def parse_dim(text: str, offset: int = 0) -> Dim | Finding:
    """A Dim, or the finding that says why not, with a span that starts at `offset` + the place in `text`."""
    stripped = text.strip()
    start = offset + len(text) - len(text.lstrip())
    span = (start, start + max(1, len(stripped)))

    def refuse(message: str, remedy: str = "a dim is a name, an integer, x/c or ceil(x/c)") -> Finding:
        return Finding(DIM_SYNTAX.id, message, remedy, span=span)

    if not stripped:
        return refuse("a dim is missing")
    form = _FORM.fullmatch(stripped)
    if form is None:
        said = f"`{stripped}` is not a dim"
        if chain := _CHAIN.fullmatch(stripped):  # n/2/128, blocks of half the columns, or n//2
            divisor = math.prod(map(int, _DIVISOR.findall(chain[2])))
            if 1 < divisor <= MAX_EXTENT:
                return refuse(said, f"write {chain[1]}/{divisor}")
        return refuse(said)
    name = form["name"] or form["ceil_name"]
    digits = form["int"] or form["factor"] or form["ceil_factor"] or "1"
    if len(digits) > 10 or not 1 <= (factor := int(digits)) <= MAX_EXTENT:
        return refuse(f"`{digits}` is not from 1 to {MAX_EXTENT}")
    if name is None:
        return Dim(str(factor), "int", None, factor)
    problem = name_problem(name)
    if problem:
        return Finding(BAD_NAME.id, f"`{name}` {problem}", span=span)
    if form["ceil_name"]:
        return Dim(f"ceil({name}/{factor})", "ceil_div", name, factor)
    if form["op"] == "*":
        return Dim(f"{name}*{factor}", "mul", name, factor)
    if form["op"] == "/":
        return Dim(f"{name}/{factor}", "div", name, factor)
    return Dim(name, "name", name, 1)
