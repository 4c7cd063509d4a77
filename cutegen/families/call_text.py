"""The function that a generated package offers: its signature, docstring and body, for packages of all families."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from cutegen.render.layout import bracketed

TENSOR = "torch.Tensor"
MOST_LISTED = 4  # results of a tuple that an annotation lists one by one
OFFERED = ("PLAN", "Plan", "get_inputs", "kernel_fn", "launch_fn", "plan", "reference_fn")


@dataclass(frozen=True, slots=True)
class OperandText:
    """One input or result of a call. scalar: a number. says: shape, dtype and layout in words."""

    name: str
    says: str
    scalar: bool = False
    optional: bool = False


@dataclass(frozen=True, slots=True)
class CallText:
    """What init.py.jinja reads as c. signature: from `def` to the colon. lines: of the docstring behind the formula.
    body: one statement. offered: the value of __all__."""

    signature: str
    lines: tuple[str, ...]
    body: str
    offered: str


def call_text(
    function: str, inputs: Sequence[OperandText], results: Sequence[OperandText], fresh: Sequence[str]
) -> CallText:
    """inputs: in order of a call. fresh: names of the results that a call allocates, or takes as `out`; the others are
    updated in place."""
    parameters = list(_parameters(inputs, fresh))
    offered = [f'"{name}"' for name in sorted((*OFFERED, function), key=_all_order)]
    values = [o.name for o in inputs] + ["out=out"] * bool(fresh) + ["sms=sms"]
    return CallText(
        signature=bracketed(f"def {function}(", parameters, f") -> {_tensors(len(results))}:", indent=0),
        lines=tuple(_lines(inputs, results, fresh)),
        body=bracketed("return PLAN(", values, ")", indent=4),
        offered=bracketed("__all__ = [", offered, "]", indent=0, literal=True),
    )


def _parameters(inputs: Sequence[OperandText], fresh: Sequence[str]) -> Iterator[str]:
    """An optional operand that precedes one that every call passes has no place among the positional ones."""
    last = max((i for i, o in enumerate(inputs) if not o.optional), default=-1)
    early = [o for o in inputs[:last] if o.optional]
    yield from (_parameter(o) for o in inputs if o not in early)
    yield "*"
    yield from map(_parameter, early)
    if fresh:
        yield f"out: {_tensors(len(fresh))} | None = None"
    yield "sms: int | None = None"


def _parameter(operand: OperandText) -> str:
    kind = "float" if operand.scalar else TENSOR
    return f"{operand.name}: {kind} | None = None" if operand.optional else f"{operand.name}: {kind}"


def _tensors(count: int) -> str:
    if count == 1:
        return TENSOR
    return f"tuple[{', '.join([TENSOR] * count) if count <= MOST_LISTED else f'{TENSOR}, ...'}]"


def _lines(inputs: Sequence[OperandText], results: Sequence[OperandText], fresh: Sequence[str]) -> Iterator[str]:
    for operand in inputs:
        yield f"{operand.name}: {operand.says}{', or None' if operand.optional else ''}."
    yield ""
    lines = [f"{r.name}: {r.says}{'' if r.name in fresh else ', the tensor that was passed'}." for r in results]
    if len(lines) == 1:
        yield f"Returns {lines[0]}"
    else:
        yield "Returns a tuple:"
        yield from (f"    {line}" for line in lines)
    yield ""
    if fresh:
        given = "a tuple of tensors to write them" if len(fresh) > 1 else "tensor to write it"
        yield f"out: {given} into; allocated if None."
    yield "sms: SMs that the launch may use; None: as PLAN.sms says."
    yield "The launch goes to torch's current stream."


def _all_order(name: str) -> tuple[int, list[str | int]]:
    """The order that linters want: constants, classes, functions; numbers in names count as numbers."""
    kind = 0 if len(name) > 1 and name.isupper() else 1 if name[0].isupper() else 2
    return kind, [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", name)]
