"""The mainloop of a kernel module: which MMA, what it sums in, and when f32 registers take the sum."""

from __future__ import annotations

from dataclasses import dataclass

from cutegen.arch.architecture import Arch
from cutegen.families.gemm.candidate import Candidate
from cutegen.families.gemm.derived import promoted_k
from cutegen.families.gemm.problem import GemmProblem
from cutegen.families.gemm.text.load import RingTensor
from cutegen.families.gemm.text.tensors import scale_modes


@dataclass(frozen=True, slots=True)
class BlockScaleText:
    """A scale with one factor for several rows of its operand and a block of k, which warpgroups read.

    modes: of the tensor; batch: what follows the coordinates of blocks in it. find: statements that list as `blocks`
    the block of columns of a tile, or the several that a warpgroup works on; index: what the latter are told apart by,
    "wave" of 64 rows or "half" of the columns, else "0".
    """

    name: str
    modes: str
    batch: str
    find: tuple[str, ...]
    index: str

    @property
    def halves(self) -> bool:
        return self.index == "half"


@dataclass(frozen=True, slots=True)
class MainloopText:
    """template: of the method `accumulate`, and of `add_tile` where sums are promoted. mma_op, mma_dtypes: class in
    cute.nvgpu.warpgroup and the operand dtypes it takes. mma_k: elements of k in one MMA. sum_dtype: what the tensor
    core sums in; acc_dtype: of the whole sum. to_f32, part_to_f32: what makes a value of the whole sum, and one of what
    the tensor core summed, f32. promoted_blocks: MMAs between promotions, promoted_k: their elements. row_scale,
    block_scale: scales that vary along k; scaled_at: what `accumulate` needs for them: parameters, and what they are
    given.
    """

    template: str
    mma_op: str
    mma_dtypes: tuple[str, ...]
    mma_k: int
    sum_dtype: str
    acc_dtype: str
    to_f32: str
    part_to_f32: str
    promoted_blocks: int
    promoted_k: int
    row_scale: RingTensor | None
    block_scale: BlockScaleText | None
    scaled_at: tuple[tuple[str, str], ...]

    @property
    def batched(self) -> bool:
        """Whether `accumulate` needs the batch index."""
        return self.block_scale is not None and bool(self.block_scale.batch)


def mainloop_text(problem: GemmProblem, c: Candidate, arch: Arch, row_scale: RingTensor | None) -> MainloopText:
    mma, mma_k = problem.mma, arch.mma_k(problem.a.dtype)
    every = c.promote_every if isinstance(c.promote_every, int) else 0
    acc_dtype = "Float32" if every else mma.accumulator.cutlass
    block_scale = _block_scale(problem)
    scaled = {"thread": "thread"} if row_scale else {}
    if problem.block_scale and block_scale:
        side = problem.block_scale[1]
        scaled |= {"thread": "thread"} if side == "m" else {}
        scaled |= {side: side}
        scaled |= {"batch": "batch"} if block_scale.batch else {}
        scaled |= {"k_part": "part"} if c.split_k > 1 else {}
    dtypes = (problem.a.dtype.cutlass, problem.b.dtype.cutlass)
    return MainloopText(
        template=f"gemm/{arch.folder}/{'promote' if every else 'accumulate'}.py.jinja",
        mma_op=mma.op,
        mma_dtypes=dtypes[:1] if mma.one_dtype else dtypes,
        mma_k=mma_k,
        sum_dtype=mma.accumulator.cutlass,
        acc_dtype=acc_dtype,
        to_f32="" if acc_dtype == "Float32" else ".to(Float32)",
        part_to_f32="" if mma.accumulator.name == "f32" else ".to(Float32)",
        promoted_blocks=every,
        promoted_k=promoted_k(problem, c, arch),
        row_scale=row_scale,
        block_scale=block_scale,
        scaled_at=tuple(scaled.items()),
    )


def _block_scale(problem: GemmProblem) -> BlockScaleText | None:
    if problem.block_scale is None:
        return None
    scale, side = problem.block_scale
    extent, last = f"o.m_{scale.name}.shape[0]", "A tile that only fills up a cluster lies beyond the last block."
    lines: tuple[str, ...] = (
        f"# {last}",
        f"blocks = [cutlass.min(n * t.tile[1] // {scale.rows}, {extent} - 1)]",
    )
    index = "0"
    if side == "m":
        index = "wave"
        lines = (f"# 64 rows lie in one block. {last}", *_blocks_of_waves(problem, scale.rows, extent))
    elif problem.scaled_halves:
        index = "half"
        lines = (
            f"# The columns of a pair lie half of all blocks apart. {last}",
            f"blocks_of_half = {extent} // 2",
            f"of_first = cutlass.min(n * (t.tile[1] // 2) // {scale.rows}, blocks_of_half - 1)",
            "blocks = [of_first, of_first + blocks_of_half]",
        )
    batch = ", batch" if scale.batched else ""
    return BlockScaleText(scale.name, scale_modes(scale, side), batch, lines, index)


def _blocks_of_waves(problem: GemmProblem, rows: int, extent: str) -> tuple[str, ...]:
    """Statements that find the block of each wave of 64 rows of a warpgroup."""
    waves = "waves = cute.size(acc, mode=[1])"
    place, apart = "(row + w * t.epilogue_tile[0])", problem.scaled_halves
    if not problem.paired:
        return (
            waves,
            "row = m * t.tile[0] + thread // 128 * 64",
            f"last = {extent} - 1",
            f"blocks = [cutlass.min({place} // {rows}, last) for w in range(waves)]",
        )
    of_second = "[b + last + 1 for b in of_first]" if apart else "of_first"
    return (
        waves,
        "row = m * (t.tile[0] // 2) + thread // 128 * 64  # of the first ones of pairs, which half of the waves have",
        f"last = {extent}{' // 2' * apart} - 1",
        f"of_first = [cutlass.min({place}{' * 2' * (not apart)} // {rows}, last) for w in range(waves // 2)]",
        f"blocks = of_first + {of_second}",
    )
