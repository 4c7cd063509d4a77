"""What a row kernel computes."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import asdict, dataclass, replace
from functools import cached_property

from cutegen.epilogue import EpilogueProgram, Operand, omit, split_pairs
from cutegen.epilogue.cost import cost
from cutegen.epilogue.rounds import RowProgram, cut_rounds, find_element_names
from cutegen.families.optional_operands import list_omissions, suffix
from cutegen.families.tensor_problem import declared
from cutegen.runtime.arguments import Argument, Extent, TensorArg


@dataclass(frozen=True)
class RowProblem:
    """dims: extents by name: a constant, or an inclusive range. rows: names of the dims that number rows; columns: that
    of a row's elements. inputs, outputs: in order of a call; outputs are allocated by it. program: its kinds `tile`,
    `row_vector` and `column_vector` have a value for each element, for each column, and for each row. vector: elements
    of one load or store. ready: names of what is written before the kernel in front could start.
    aliases: (output, input) that a call may pass one storage for."""

    dims: dict[str, Extent]
    rows: tuple[str, ...]
    columns: str
    inputs: tuple[Argument, ...]
    outputs: tuple[TensorArg, ...]
    program: EpilogueProgram
    vector: int
    ready: tuple[str, ...] = ()
    aliases: tuple[tuple[str, str], ...] = ()

    @property
    def optional(self) -> tuple[str, ...]:
        """Inputs that a call may leave out."""
        return tuple(a.name for a in self.inputs if a.optional)

    @property
    def sources(self) -> tuple[str, ...]:
        """Inputs with rows."""
        return tuple(o.name for o in self.program.operands if o.kind in ("tile", "column_vector"))

    def without(self, omitted: Collection[str]) -> RowProblem:
        """The problem of a call that passes None for these operands."""
        if not omitted:
            return self
        return replace(
            self,
            inputs=tuple(a for a in self.inputs if a.name not in omitted),
            program=replace(omit(self.program, omitted, sources=self.sources), scaled=()),
            ready=tuple(name for name in self.ready if name not in omitted),
        )

    def of_tiling(self, name: str) -> RowProblem:
        """The problem of a tiling, whose name ends in what it does without."""
        omitted = (names for names in list_omissions(self.optional) if name.endswith(suffix(names)))
        return self.without(max(omitted, key=len, default=()))

    @cached_property
    def computed(self) -> EpilogueProgram:
        """As the kernel runs it: of what has all columns one value for each half of them, where the spec has halves."""
        return split_pairs(self.program)

    @property
    def halved(self) -> bool:
        return self.program.pairing is not None

    @property
    def interleaved(self) -> bool:
        """Whether pairs are neighbours, of even and odd columns."""
        return self.program.pairing == "interleaved"

    @property
    def step(self) -> int:
        """Elements of a row of which a thread has one vector of each operand."""
        return self.vector * (1 + self.halved)

    @cached_property
    def elements(self) -> frozenset[str]:
        """Names of what has a value for each element of a row, or for each of a half of them."""
        return frozenset(find_element_names(self.program)) | find_element_names(self.computed)

    @cached_property
    def cut(self) -> RowProgram:
        return cut_rounds(self.computed, (*self.dims, *self.kinds))

    @cached_property
    def streamed_cut(self) -> RowProgram:
        """Of rows that are not held: as few rounds as can be."""
        return cut_rounds(self.computed, (*self.dims, *self.kinds), online=True)

    @property
    def read_once(self) -> bool:
        """Whether a row is read no more when its reductions are joined, in one round, though a maximum be among them
        that exponentials are relative to."""
        cut = self.streamed_cut
        reduced = sum(bool(r.reduced) for r in cut.rounds)
        return reduced == 1 and not (cut.blocks or cut.after or self.program.reductions)

    @property
    def held_cut(self) -> RowProgram:
        """Of rows that are held."""
        return self.streamed_cut if self.read_once else self.cut

    @property
    def held(self) -> bool:
        """Whether a row has to be in registers as a whole, because it is read again after a reduction, or because its
        elements are joined with those of other rows."""
        return any(r.reduced for r in self.cut.rounds) or bool(self.program.reductions)

    @property
    def most_columns(self) -> int | None:
        """The promised bound of a row's elements."""
        extent = self.dims[self.columns]
        return extent if isinstance(extent, int) else extent[1]

    @property
    def kinds(self) -> dict[str, str]:
        """Which names of the spec are inputs, outputs, dims and locals."""
        outputs = {a.name for a in self.outputs}
        names = dict.fromkeys(self.dims, "dim") | dict.fromkeys((a.name for a in self.inputs), "input")
        return (
            names
            | dict.fromkeys(outputs, "output")
            | {s.name: "local" for s in self.program.statements if s.name not in outputs}
        )

    @property
    def names(self) -> tuple[str, ...]:
        """Those of the spec that stand in generated source."""
        return tuple(self.kinds)

    @property
    def formula(self) -> str:
        """Inputs and outputs in one line."""
        sides = (", ".join(self.describe(a) for a in side) for side in (self.inputs, self.outputs))
        return " -> ".join(sides)

    def describe(self, arg: Argument) -> str:
        return f"{arg.name}: {declared(arg, self.dims) if isinstance(arg, TensorArg) else 'f32'}"

    @property
    def exponents(self) -> tuple[str, ...]:
        """Outputs that are powers of two, as e8m0."""
        dtypes = {o.name: o.dtype for o in self.program.outputs}
        dtypes |= {o.name: o.dtype for o in self.program.block_outputs}
        return tuple(name for name, dtype in dtypes.items() if dtype.name == "e8m0")

    def operands(self, *kinds: str) -> tuple[Operand, ...]:
        return tuple(o for o in self.computed.operands if o.kind in kinds)

    @property
    def flops(self) -> int:
        """For each element."""
        return cost(self.program).flops // (1 + self.halved)

    @property
    def errors(self) -> dict[str, float]:
        """Of each output, what approximated functions and roundings that others read may add."""
        return dict(cost(self.program).errors)


def describe_problem(problem: RowProblem) -> object:
    """The problem in plain data, expressions as they are written."""
    return {
        "dims": problem.dims,
        "inputs": [asdict(a) for a in problem.inputs],
        "outputs": [asdict(a) for a in problem.outputs],
        "rows": {s.name: s.text for s in problem.program.statements},
        "columns": problem.columns,
        "vector": problem.vector,
        "ready": problem.ready,
        **({"aliases": problem.aliases} if problem.aliases else {}),
    }


def first_number(cut: RowProgram) -> int:
    """Of the rounds: 0 where something is computed before anything is reduced."""
    return int(bool(cut.rounds and cut.rounds[0].reduced))
