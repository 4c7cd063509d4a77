"""The epilogue of a spec as data: its statements in the order in which they are computed, its operands and outputs."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, Protocol

from cutegen.dtypes import DType
from cutegen.epilogue.tree import Expr, Pairing, Reduce, ReduceOp, Span, reads, walk

Path = tuple[str | int, ...]
ACCUMULATORS = ("acc", "acc_0", "acc_1")  # names that statements read: the product, or a pair of a gated one
OperandKind = Literal["host_scalar", "device_scalar", "row_vector", "column_vector", "tile", "block_input", "index"]


class Report(Protocol):
    """Takes one finding: where in the document, and which part (span) of the scalar there."""

    def __call__(
        self, rule: str, path: Path, message: str, remedy: str = "", *, key: bool = False, span: Span | None = None
    ) -> None: ...


@dataclass(frozen=True, slots=True)
class Assign:
    """One statement. text: the expression as written in the spec."""

    name: str
    expr: Expr
    kind: Literal["local", "output"]
    text: str


def needed_for(
    names: Iterable[str], statements: Sequence[Assign], among: Collection[str] | None = None
) -> tuple[Assign, ...]:
    """The statements that these names are computed by, in order. among: names of those that count; by default all."""
    needed, own = set(names), [s for s in statements if among is None or s.name in among]
    for s in reversed(own):
        if s.name in needed:
            needed.update(reads(s.expr))
    return tuple(s for s in own if s.name in needed)


@dataclass(frozen=True, slots=True)
class Part:
    """One half (index 0 or 1) of the columns of tensor `name`."""

    name: str
    index: int


@dataclass(frozen=True, slots=True)
class Operand:
    """An input of the epilogue.

    row_vector: one value per column n, the same for all rows; column_vector: one per row m; block_input: one for each
    `block` (rows, columns) of elements; index: the column itself, which no tensor has.
    axes: torch axes in kernel order: (m, n[, batch]) of a tile, (n[, batch]) of a row vector, (m[, batch]) of a column
    vector, () of scalars. major: the contiguous dim of a tile, None otherwise. batched: whether it has the batch dim.
    half: whether it has half of the product's columns. part_of: the tensor that this is one part of, see `columns`.
    updates: the output whose value before it is, see `in_place`; "" for an input. up: whether the last block along
    (m, n) may be a part; inner: the contiguous dim of a block_input; missing: the one that it lacks, along which its
    values are the same. padded: rows of a tile are multiples of 16 bytes apart, but need not be full.
    """

    name: str
    kind: OperandKind
    dtype: DType
    batched: bool
    axes: tuple[int, ...]
    major: Literal["n", "m"] | None
    half: bool = False
    part_of: Part | None = None
    updates: str = ""
    block: tuple[int, int] = (1, 1)
    up: tuple[bool, bool] = (False, False)
    inner: Literal["n", "m"] | None = None
    missing: Literal["n", "m"] | None = None
    padded: bool = False

    @property
    def present(self) -> str:
        """The dims of a block_input, m before n."""
        return "mn".replace(self.missing or "-", "")

    @property
    def tensor(self) -> str:
        """The argument that it is read from."""
        return self.updates or self.name


@dataclass(frozen=True, slots=True)
class Output:
    """A stored (m, n[, batch]) tensor; axes: torch axes in that order; major: the contiguous dim. direct: stored by
    threads, at any alignment, and not by TMA. half, part_of: as of an Operand. adds: TMA adds to what is there; the
    statement is what it adds."""

    name: str
    dtype: DType
    batched: bool
    axes: tuple[int, ...]
    major: Literal["n", "m"]
    direct: bool = False
    half: bool = False
    part_of: Part | None = None
    adds: bool = False

    @property
    def tensor(self) -> str:
        """The argument that it is stored to."""
        return self.name


@dataclass(frozen=True, slots=True)
class Reduction:
    """A stored tensor with one value for all columns, for all rows, or for both. kept: the dim of m and n that it has,
    "" if neither. axes: torch axes in the order ([kept][, batch]). half: whether it has half of the product's columns.
    """

    name: str
    op: ReduceOp
    dtype: DType
    batched: bool
    axes: tuple[int, ...]
    kept: Literal["m", "n", ""] = "m"
    half: bool = False


@dataclass(frozen=True, slots=True)
class BlockOutput:
    """A stored tensor with one value for each row and block of columns. axes: torch axes in the order (m, n[, batch]);
    major: the contiguous dim. divisor: columns of the product that have one value; up: the last ones may be fewer.
    packed: exponents of powers of two, those of four blocks in one i32. chunks: those of 128 rows and 4 blocks lie
    together, as block-scaled products read scales."""

    name: str
    dtype: DType
    batched: bool
    axes: tuple[int, ...]
    major: Literal["n", "m"]
    divisor: int
    up: bool
    packed: bool = False
    chunks: bool = False


@dataclass(frozen=True)
class EpilogueProgram:
    """statements: each after those it reads, in an order that does not depend on the order of keys in the spec.
    operands, outputs, reductions, block_outputs: in the order of declaration. pairing: of its slices; None where it has
    none. scaled: (tile, scalar) of each tile that counts, and is read, only where the scalar is not 0, see
    `scaling`."""

    statements: tuple[Assign, ...]
    operands: tuple[Operand, ...]
    outputs: tuple[Output, ...]
    pairing: Pairing | None = None
    reductions: tuple[Reduction, ...] = ()
    scaled: tuple[tuple[str, str], ...] = ()
    block_outputs: tuple[BlockOutput, ...] = ()

    @cached_property
    def block(self) -> int:
        """Columns, of those that outputs have, whose values are reduced to one that the epilogue reads; 0: none are."""
        return max(
            (node.block for s in self.statements for node in walk(s.expr) if isinstance(node, Reduce)), default=0
        )

    @property
    def chunks(self) -> tuple[BlockOutput, ...]:
        """Outputs that are scales of block-scaled products."""
        return tuple(o for o in self.block_outputs if o.chunks)

    @cached_property
    def tiles(self) -> tuple[Operand, ...]:
        """Operands that one warp loads, an epilogue tile at a time."""
        return tuple(o for o in self.operands if o.kind == "tile")

    @property
    def updated(self) -> tuple[str, ...]:
        """Outputs that are read, too."""
        return tuple(o.updates for o in self.operands if o.updates)

    @property
    def added(self) -> tuple[str, ...]:
        """Outputs that TMA adds to."""
        return tuple(o.name for o in self.outputs if o.adds)

    @property
    def tile_switches(self) -> tuple[str, ...]:
        """Scalars of which one is not 0 where any tile is read; () where some tile always is, or where a scalar has a
        value for each batch index."""
        switches = tuple(dict.fromkeys(s for _, s in self.scaled))
        varies = any(o.batched for o in self.operands if o.name in switches)
        return switches if len(self.scaled) == len(self.tiles) and not varies else ()
