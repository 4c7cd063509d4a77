"""The mainloop of a kernel module: which MMA, what it sums in, and when f32 registers take the sum."""

from __future__ import annotations

from dataclasses import dataclass

from cutegen.arch.architecture import Arch
from cutegen.families.gemm.candidate import Candidate
from cutegen.families.gemm.derived import promoted_k
from cutegen.families.gemm.problem import GemmProblem
from cutegen.families.gemm.text.load import RingTensor


@dataclass(frozen=True, slots=True)
class BlockScaleText:
    """A scale with one factor for several rows of its operand and a block of k, which warpgroups read."""

    name: str
    side: str  # the dim of the rows, m or n
    rows: int  # of a block
    batched: bool
    paired: bool  # rows, or columns, of the product are pairs
    apart: bool  # and the two of a pair have factors of different blocks


@dataclass(frozen=True, slots=True)
class MainloopText:
    """What the templates read as k.mainloop."""

    mma_op: str  # a class in cute.nvgpu.warpgroup
    mma_dtypes: tuple[str, ...]  # that it takes
    mma_takes_majors: bool
    mma_k: int  # elements of k in one MMA
    sum_dtype: str  # what the tensor core sums in
    promoted_blocks: int  # MMAs between promotions, 0: none
    promoted_k: int  # their elements
    row_scale: RingTensor | None
    block_scale: BlockScaleText | None

    @property
    def acc_dtype(self) -> str:
        """Of the whole sum."""
        return "Float32" if self.promoted_blocks else self.sum_dtype

    @property
    def to_f32(self) -> str:
        """What makes a value of the whole sum f32."""
        return "" if self.acc_dtype == "Float32" else ".to(Float32)"

    @property
    def scaled_by_thread(self) -> bool:
        """Whether it is up to a thread's place which factors it reads."""
        return self.row_scale is not None or (self.block_scale is not None and self.block_scale.side == "m")


def mainloop_text(problem: GemmProblem, c: Candidate, arch: Arch, row_scale: RingTensor | None) -> MainloopText:
    mma, dtypes = problem.mma, {"a": problem.a.dtype, "b": problem.b.dtype, "sum": problem.mma.accumulator}
    if problem.a_packed:
        dtypes["scale"] = problem.a_packed.dtype
    return MainloopText(
        mma_op=mma.op,
        mma_dtypes=tuple(dtypes[name].cutlass for name in mma.dtypes),
        mma_takes_majors=mma.takes_majors,
        mma_k=arch.mma_k(problem.a.dtype),
        sum_dtype=mma.accumulator.cutlass,
        promoted_blocks=c.promote_every if isinstance(c.promote_every, int) else 0,
        promoted_k=promoted_k(problem, c, arch),
        row_scale=row_scale,
        block_scale=_block_scale(problem),
    )


def _block_scale(problem: GemmProblem) -> BlockScaleText | None:
    if problem.block_scale is None:
        return None
    scale, side = problem.block_scale
    return BlockScaleText(scale.name, side, scale.rows, scale.batched, problem.paired, problem.scaled_halves)
