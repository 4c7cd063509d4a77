"""What the load warp brings by TMA to the rings of A, B and the scales of rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from cutegen.families.gemm.candidate import Candidate
from cutegen.families.gemm.features.groups.group_text import GroupText
from cutegen.families.gemm.problem import GemmProblem, MatrixOperand
from cutegen.families.generated_names import tensor_stem

PIECE_ATOM = "cute.CopyAtom | None"  # what a kernel is given for the atoms of a ragged tensor


@dataclass(frozen=True, slots=True)
class RingTensor:
    """A, B, or the scale with a factor for each row of one of them and block of k: what comes with each k tile."""

    name: str  # in the spec
    end: str  # of the names of its atom, tensor and ring: "A" of tma_atom_A, mA_mk and sA
    side: str  # the dim of its rows, "m" or "n"
    dtype: str
    k_major: bool
    depth: int  # elements of k with one factor; 1: an operand
    batched: bool
    paired: bool  # seen as rows of (pairs, 2)
    index: str  # the tensor that names its rows, which threads copy then; "" where TMA brings them
    moving: bool  # whether boxes are cut again for each tile, from where its group begins
    streams: bool  # whether boxes may leave L2 first
    ragged: bool  # whether a tile may reach past the last row, and is loaded in pieces then
    ahead: bool  # whether the first slots are filled before the wait for the preceding kernel

    @property
    def axis(self) -> int:
        return "mn".index(self.side)

    @property
    def modes(self) -> str:
        rows = "rows" if self.index else f"({self.side}/2, 2)" if self.paired else self.side
        return f"{rows}, {'k' if self.depth == 1 else 'k blocks'}" + ", batch" * self.batched

    @property
    def gmem(self) -> str:
        """The whole tensor in the kernel; an operand of the MMA with its modes."""
        return f"m{self.end}" + f"_{self.side}k{'l' * self.batched}" * (self.depth == 1)

    @property
    def ring_modes(self) -> str:
        return f"b{self.side.upper()}, {'bK' if self.depth == 1 else 'k blocks'}, stages"


@dataclass(frozen=True, slots=True)
class LoadText:
    """What the templates read as k.load: tensors that TMA brings. scales: at most one."""

    operands: tuple[RingTensor, ...]
    scales: tuple[RingTensor, ...]

    @property
    def every(self) -> tuple[RingTensor, ...]:
        return (*self.operands, *self.scales)

    @property
    def ahead(self) -> tuple[RingTensor, ...]:
        return tuple(x for x in self.operands if x.ahead)

    @property
    def ragged(self) -> RingTensor | None:
        """At most one operand is."""
        return next((x for x in self.operands if x.ragged), None)

    @property
    def early(self) -> tuple[RingTensor, ...]:
        """What is loaded ahead, and the ragged operand, whose rows say how many bytes a slot waits for."""
        return tuple(x for x in self.operands if x.ahead or x.ragged)

    @property
    def piece_atoms(self) -> dict[str, str]:
        """The atoms that load parts of a tile of the ragged operand, and when there is none."""
        if self.ragged is None:
            return {}
        parts = (("piece", "tile"), ("half", "piece"))
        return {f"tma_atom_{self.ragged.end}_{part}": f"None where a {of} is always loaded whole" for part, of in parts}


def load_text(tensors: Iterable[RingTensor]) -> LoadText:
    by_tma = [x for x in tensors if not x.index]
    return LoadText(tuple(x for x in by_tma if x.depth == 1), tuple(x for x in by_tma if x.depth > 1))


def ring_tensors(problem: GemmProblem, structure: Candidate, groups: GroupText | None) -> Iterator[RingTensor]:
    """A, B, and the scale of rows if there is one, in the kernel's frame."""
    yield _operand(problem, problem.a, "m", structure.load_ahead_a, groups)
    yield _operand(problem, problem.b, "n", structure.load_ahead_b, groups)
    if problem.row_scale:
        scale, side = problem.row_scale
        yield RingTensor(
            name=scale.name,
            end=tensor_stem(scale.name),
            side=side,
            dtype=scale.dtype.cutlass,
            k_major=scale.k_major,
            depth=scale.depth,
            batched=scale.batched,
            paired=False,
            index=problem.gather.index if problem.gather and problem.gathers_row_scale else "",
            moving=groups is not None and groups.moves(side),
            streams=False,
            ragged=False,
            ahead=False,
        )


def _operand(problem: GemmProblem, t: MatrixOperand, side: str, ahead: bool, groups: GroupText | None) -> RingTensor:
    return RingTensor(
        name=t.name,
        end="A" if side == "m" else "B",
        side=side,
        dtype=t.dtype.cutlass,
        k_major=t.major == "k",
        depth=1,
        batched=t.batched,
        paired=problem.paired_dim == side,
        index=problem.gather.index if problem.gather and t is problem.gathered else "",
        moving=groups is not None and groups.moves(side),
        streams=groups is None and (t.batched or problem.batch is None),  # else each batch reads all of it
        ragged=t is problem.ragged,
        ahead=ahead,
    )
