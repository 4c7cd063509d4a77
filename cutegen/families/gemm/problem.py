"""What a GEMM spec computes: dims, operands, layouts and epilogue, bound to the roles m, n, k and batch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, wraps
from typing import Literal, TypeVar

from cutegen.arch import ARCHS, Arch, Mma
from cutegen.dtypes import DType
from cutegen.epilogue import EpilogueProgram


@dataclass(frozen=True, slots=True)
class ProblemDim:
    """One extent, in elements. value: the compile-time constant, or None; lo, hi: promised range, hi None: open.

    base, divisor: of an extent such as `n/2`, n and 2. up: the last part may be smaller, as in `ceil(n/2)`.
    """

    name: str
    value: int | None
    lo: int
    hi: int | None
    base: str = ""
    divisor: int = 1
    up: bool = False

    def over(self, divisor: int, *, up: bool = False) -> ProblemDim:
        """The extent of `divisor` times fewer elements; `exact-division` has seen that a constant divides."""
        value = None if self.value is None else -(-self.value // divisor)
        hi = None if self.hi is None else -(-self.hi // divisor) if up else self.hi // divisor
        name = f"ceil({self.name}/{divisor})" if up else f"{self.name}/{divisor}"
        return ProblemDim(name, value, -(-self.lo // divisor), hi, self.name, divisor, up)


@dataclass(frozen=True, slots=True)
class MatrixOperand:
    """A (m, k[, batch]) or B (n, k[, batch]) of the product.

    major: the contiguous dim. axes: torch axes in that order. batched: whether it has the batch dim.
    """

    name: str
    dtype: DType
    major: Literal["m", "n", "k"]
    axes: tuple[int, ...]
    batched: bool

    @property
    def tensor(self) -> str:
        """The argument that it is read from."""
        return self.name


GroupForm = Literal["labels", "counts", "offsets"]


@dataclass(frozen=True, slots=True)
class RowGroups:
    """Rows that fall into groups, each of which has a batch index: its matrix of the other operand.

    form, tensor: what says so, and the name of the i32 tensor. along: the dim of rows. align: rows that each group
    begins at a multiple of. expected_rows: of a group, for `auto`.
    """

    form: GroupForm
    tensor: str
    along: Literal["m", "n"]
    align: int
    expected_rows: int | None

    @property
    def flat(self) -> bool:
        """Whether the rows of all groups are one dim, and only what belongs to a whole group has the batch dim."""
        return self.form != "counts"


@dataclass(frozen=True, slots=True)
class RowGather:
    """Rows of the product that lie anywhere in their operand: index, i32 over the rows, names the row of each.

    along: the dim of rows. extent: rows that the operand has. scales: those of its rows, which are gathered with them.
    """

    index: str
    along: Literal["m", "n"]
    extent: ProblemDim
    scales: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class BlockScale:
    """f32 factors of one operand, one for each `rows` x `depth` of its elements along (m or n, k).

    axes: torch axes of (rows, k[, batch]). up: whether the last block along each of the first two may be a part.
    k_major: whether blocks along k are contiguous, else those along the rows are.
    """

    name: str
    dtype: DType
    rows: int
    depth: int
    axes: tuple[int, ...]
    up: tuple[bool, bool]
    k_major: bool

    @property
    def by_row(self) -> bool:
        """Whether each row has factors of its own: a column of them comes with each k tile by TMA."""
        return self.rows == 1

    @property
    def batched(self) -> bool:
        return len(self.axes) > 2


@dataclass(frozen=True, slots=True)
class PackedScale:
    """8-bit factors of one operand, one for each row and `block` elements of k, by which the tensor core multiplies.

    They lie as device/gemm/packed_scales.py reads them: those of 128 rows and 4 blocks together.
    """

    name: str
    dtype: DType
    block: int
    batched: bool

    @property
    def kind(self) -> tuple[str, int]:
        """What decides the instruction."""
        return self.dtype.name, self.block


@dataclass(frozen=True)
class GemmProblem:
    """acc[m, n] = sum over k of a[m, k] b[n, k], for each batch index, then the epilogue.

    inputs, outputs: names of tensors in order of declaration; host scalars are among the inputs, and what is updated
    in place is among both. epilogue: as the spec has it; kernel_epilogue: as the kernel runs it, `split_pairs` of it.
    batch_invariant: a row's bits may not depend on m. groups: rows are those of groups, and the batch index is that of
    a row's group. scales: names of the mainloop's scales, left to right; those that vary along k are a_scale and
    b_scale, or, both of them or none, a_packed and b_packed, by which the tensor core multiplies. aliases: (output,
    input) of each pair that a call may pass one storage for. optional: inputs that may be None.
    transposed: m and n are each other's of the spec. gather: an index names the rows of an operand; copied: it did,
    and the kernel gets a copy that has them in order. ready: names of operands that were written before the kernel in
    front could start.
    """

    arch: str
    m: ProblemDim
    n: ProblemDim
    k: ProblemDim
    batch: ProblemDim | None
    a: MatrixOperand
    b: MatrixOperand
    epilogue: EpilogueProgram
    kernel_epilogue: EpilogueProgram
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    batch_invariant: bool = False
    groups: RowGroups | None = None
    scales: tuple[str, ...] = ()
    a_scale: BlockScale | None = None
    b_scale: BlockScale | None = None
    aliases: tuple[tuple[str, str], ...] = ()
    transposed: bool = False
    optional: tuple[str, ...] = ()
    gather: RowGather | None = None
    copied: RowGather | None = None
    ready: tuple[str, ...] = ()
    a_packed: PackedScale | None = None
    b_packed: PackedScale | None = None

    @property
    def arguments(self) -> tuple[str, ...]:
        """Of a call: the inputs, then the outputs that are not among them."""
        return (*self.inputs, *(name for name in self.outputs if name not in self.inputs))

    @property
    def extents(self) -> dict[str, ProblemDim]:
        return {"m": self.m, "n": self.n, "k": self.k}

    @property
    def gathered_dims(self) -> tuple[ProblemDim, ...]:
        """The dim of the gathered operand's own rows, where it is none of the product."""
        return (self.gather.extent,) if self.gather and self.gather.extent not in (self.m, self.n) else ()

    @property
    def dims(self) -> tuple[ProblemDim, ...]:
        """Those that a call has extents of."""
        return (*self.gathered_dims, *self.dispatch_dims)

    @property
    def dispatch_dims(self) -> tuple[ProblemDim, ...]:
        """Those that decide which kernel runs a call. Rows to gather from do not: their number changes from call to
        call, and what a kernel does is as much with any."""
        return (*([self.batch] if self.batch else []), self.m, self.n, self.k)

    @property
    def gathered(self) -> MatrixOperand | None:
        """The operand whose rows an index names."""
        return None if self.gather is None else self.a if self.gather.along == "m" else self.b

    def gathers(self, name: str) -> bool:
        """Whether a tensor has the rows of the operand, of which an index names those of the product."""
        return (
            self.gather is not None and self.gathered is not None and name in (self.gathered.name, *self.gather.scales)
        )

    @property
    def by_tma(self) -> tuple[MatrixOperand, ...]:
        """The operands that TMA loads."""
        return tuple(t for t in (self.a, self.b) if t is not self.gathered)

    def named_rows(self, name: str) -> dict[str, ProblemDim]:
        """The dim of a tensor's own rows, by the dim of the product that it stands for, where an index names them."""
        return {self.gather.along: self.gather.extent} if self.gather and self.gathers(name) else {}

    @property
    def ragged(self) -> MatrixOperand | None:
        """The operand of which TMA leaves out rows of m that do not exist; None where tiles of it are always loaded
        whole, or not by TMA."""
        operand = self.b if self.transposed else self.a
        if self.target.tensor_memory:
            return None  # the CTAs of a pair count the bytes of both
        return None if self.groups or operand is self.gathered or operand.major != "k" else operand

    @cached_property
    def scaled_k(self) -> int:
        """Elements of k that share their factors; 0 where none vary along k."""
        return next((s.depth for s in (self.a_scale, self.b_scale) if s), 0)

    @property
    def packed_scales(self) -> tuple[PackedScale, ...]:
        """Those of A and of B, or none."""
        return tuple(s for s in (self.a_packed, self.b_packed) if s)

    @cached_property
    def row_scale(self) -> tuple[BlockScale, Literal["m", "n"]] | None:
        """The scale of blocks with a factor for each row of its operand, and the dim of those rows."""
        if self.a_scale and self.a_scale.by_row:
            return self.a_scale, "m"
        return (self.b_scale, "n") if self.b_scale and self.b_scale.by_row else None

    @property
    def gathers_row_scale(self) -> bool:
        """Whether threads copy that scale, for the rows that an index names."""
        return self.row_scale is not None and self.gathers(self.row_scale[0].name)

    @property
    def block_scale(self) -> tuple[BlockScale, Literal["m", "n"]] | None:
        """The scale of blocks with a factor for several rows of its operand, and the dim of those rows."""
        if self.a_scale and not self.a_scale.by_row:
            return self.a_scale, "m"
        return (self.b_scale, "n") if self.b_scale and not self.b_scale.by_row else None

    @property
    def scaled_halves(self) -> bool:
        """Whether the columns of a pair, n/2 apart, have factors of different blocks."""
        side = self.block_scale[1] if self.block_scale else "-"
        return side == self.paired_dim and self.epilogue.pairing == "concatenated"

    @cached_property
    def promotable(self) -> bool:
        """Whether sums have a reason to be kept in f32 registers: the tensor core rounds them, or scales change along
        k."""
        return bool(self.mma.rounds or self.scaled_k)

    @cached_property
    def paired(self) -> bool:
        """Whether outputs have half the columns of the product, each computed from a pair of accumulators."""
        return self.epilogue.pairing is not None

    @cached_property
    def paired_dim(self) -> Literal["m", "n", ""]:
        """The dim of which two elements are a pair, in the frame of this problem."""
        return "" if not self.paired else "m" if self.transposed else "n"

    @cached_property
    def mma(self) -> Mma:
        """The instruction that multiplies the operands."""
        mma = self.target.find_mma(self.a.dtype, self.b.dtype, self.a_packed.kind if self.a_packed else None)
        assert mma  # binding has seen that there is one
        return mma

    @cached_property
    def target(self) -> Arch:
        """What it is generated for."""
        return ARCHS[self.arch]


Found = TypeVar("Found")


def once_each(find: Callable[[GemmProblem], Found]) -> Callable[[GemmProblem], Found]:
    """A function whose result each problem keeps: it is asked for every candidate of few problems, and to find the
    problem among others, by all that it says, takes longer than most answers."""
    name = f"_{find.__name__}"

    @wraps(find)
    def known(problem: GemmProblem) -> Found:
        kept = vars(problem)
        if name not in kept:
            kept[name] = find(problem)
        found: Found = kept[name]
        return found

    return known
