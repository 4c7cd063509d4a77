"""The functions of the epilogue in the kernel module, and what they read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from cutegen.families.gemm.problem import GemmProblem
from cutegen.render.layout import statement

# Kinds of operands in the order in which functions take them.
ORDER = (("row_vector", "column_vector"), ("device_scalar",), ("host_scalar",), ("tile",), ("block_input",))


class Parameter(NamedTuple):
    """Of a method of the kernel, which is called with a variable of the same name."""

    name: str
    kind: str


class Value(NamedTuple):
    """What a function reads or gives. kind: of an operand; or where else it is, see values.py.jinja. op: of a
    reduction."""

    name: str
    kind: str
    op: str = ""


@dataclass(frozen=True, slots=True)
class FunctionText:
    """A function of f32 values, and the call of it: one value for every parameter and result."""

    name: str
    summary: str
    statements: tuple[str, ...]
    reads: tuple[Value, ...]
    gives: tuple[Value, ...]

    @property
    def lines(self) -> tuple[str, ...]:
        return tuple(statement(line, indent=4) for line in self.statements)

    @property
    def kinds(self) -> frozenset[str]:
        """Of what it reads and gives."""
        return frozenset(value.kind for value in (*self.reads, *self.gives))

    @property
    def names(self) -> frozenset[str]:
        return frozenset(value.name for value in self.reads)


def accumulators(problem: GemmProblem) -> dict[str, Value]:
    """By name: one of an element, or two of a pair."""
    kinds = {"acc_0": "first", "acc_1": "second"} if problem.paired else {"acc": "first"}
    return {name: Value(name, kind) for name, kind in kinds.items()}


def operands(problem: GemmProblem) -> dict[str, Value]:
    """By name, in the kernel's frame and in the order of ORDER."""
    every = problem.kernel_epilogue.operands
    return {o.name: Value(o.name, o.kind) for kinds in ORDER for o in every if o.kind in kinds}


def element_words(problem: GemmProblem) -> str:
    """What the functions of elements are computed for."""
    pair = f"pair of {'rows' if problem.paired_dim == 'm' else 'columns'}"
    return pair if problem.paired else "output element from its accumulator"
