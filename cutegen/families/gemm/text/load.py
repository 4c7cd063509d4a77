"""What the load warp brings by TMA to the rings of A, B and the scales of rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from cutegen.families.gemm.candidate import Candidate
from cutegen.families.gemm.derived import cuts
from cutegen.families.gemm.features.groups.group_text import GroupText
from cutegen.families.gemm.problem import GemmProblem, MatrixOperand

Share = Literal["none", "some", "all"]  # of the tilings of a module


@dataclass(frozen=True, slots=True)
class RingTensor:
    """A, B, or the scale with a factor for each row of one of them and block of k: what comes with each k tile."""

    name: str  # in the spec
    side: str  # the dim of its rows, "m" or "n"
    dtype: str
    k_major: bool
    depth: int  # elements of k with one factor; 1: an operand
    batched: bool
    paired: bool  # seen as rows of (pairs, 2)
    index: str  # the tensor that names its rows, which threads copy then; "" where TMA brings them
    moving: bool  # whether boxes are cut again for each tile, from where its group begins
    streams: bool  # whether boxes may leave L2 first
    pieces: Share  # where a tile that reaches past the last row is loaded in pieces
    halves: Share  # where the last piece may be a half
    ahead: bool  # whether the first slots are filled before the wait for the preceding kernel

    @property
    def ragged(self) -> bool:
        return self.pieces != "none"


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


def load_text(tensors: Iterable[RingTensor]) -> LoadText:
    by_tma = [x for x in tensors if not x.index]
    return LoadText(tuple(x for x in by_tma if x.depth == 1), tuple(x for x in by_tma if x.depth > 1))


def ring_tensors(problem: GemmProblem, tilings: Sequence[Candidate], groups: GroupText | None) -> Iterator[RingTensor]:
    """A, B, and the scale of rows if there is one. tilings: those of a module. All in the kernel's frame."""
    pieces, halves = (_share(found) for found in zip(*(cuts(problem, c) for c in tilings)))
    for t, side, ahead in ((problem.a, "m", tilings[0].load_ahead_a), (problem.b, "n", tilings[0].load_ahead_b)):
        ragged = t is problem.ragged
        yield _operand(problem, t, side, ahead, groups, pieces if ragged else "none", halves if ragged else "none")
    if problem.row_scale:
        scale, side = problem.row_scale
        yield RingTensor(
            name=scale.name,
            side=side,
            dtype=scale.dtype.cutlass,
            k_major=scale.k_major,
            depth=scale.depth,
            batched=scale.batched,
            paired=False,
            index=problem.gather.index if problem.gather and problem.gathers_row_scale else "",
            moving=groups is not None and groups.moves(side),
            streams=False,
            pieces="none",
            halves="none",
            ahead=False,
        )


def _share(found: Sequence[bool]) -> Share:
    return "all" if all(found) else "some" if any(found) else "none"


def _operand(
    problem: GemmProblem,
    t: MatrixOperand,
    side: str,
    ahead: bool,
    groups: GroupText | None,
    pieces: Share,
    halves: Share,
) -> RingTensor:
    return RingTensor(
        name=t.name,
        side=side,
        dtype=t.dtype.cutlass,
        k_major=t.major == "k",
        depth=1,
        batched=t.batched,
        paired=problem.paired_dim == side,
        index=problem.gather.index if problem.gather and t is problem.gathered else "",
        moving=groups is not None and groups.moves(side),
        streams=groups is None and (t.batched or problem.batch is None),  # else each batch reads all of it
        pieces=pieces,
        halves=halves,
        ahead=ahead,
    )
