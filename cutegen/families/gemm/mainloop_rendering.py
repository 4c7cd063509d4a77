"""The mainloop of a kernel module: which MMA, what it sums in, and when f32 registers take the sum."""

from __future__ import annotations

from dataclasses import dataclass

from cutegen.families.gemm.candidate import Candidate
from cutegen.families.gemm.derived import promoted_k
from cutegen.families.gemm.problem import GemmProblem
from cutegen.hardware.arch import Arch


@dataclass(frozen=True, slots=True)
class MainloopText:
    """template: of the method `accumulate`. mma_op, mma_dtypes: class in cute.nvgpu.warpgroup and the operand dtypes it
    takes. mma_k: elements of k in one MMA. sum_dtype: what the tensor core sums in; acc_dtype: of the whole sum.
    to_f32: what makes one of its values f32. promoted_blocks: MMAs between promotions, promoted_k: their
    elements."""

    template: str
    mma_op: str
    mma_dtypes: tuple[str, ...]
    mma_k: int
    sum_dtype: str
    acc_dtype: str
    to_f32: str
    promoted_blocks: int
    promoted_k: int


def mainloop_text(problem: GemmProblem, c: Candidate, arch: Arch) -> MainloopText:
    mma, mma_k = problem.mma, arch.mma_k(problem.a.dtype)
    every = c.promote_every if isinstance(c.promote_every, int) else 0
    acc_dtype = "Float32" if every else mma.accumulator.cutlass
    dtypes = (problem.a.dtype.cutlass, problem.b.dtype.cutlass)
    return MainloopText(
        template=f"gemm/sm90/{'promote' if every else 'accumulate'}.py.jinja",
        mma_op=mma.op,
        mma_dtypes=dtypes[:1] if mma.one_dtype else dtypes,
        mma_k=mma_k,
        sum_dtype=mma.accumulator.cutlass,
        acc_dtype=acc_dtype,
        to_f32="" if acc_dtype == "Float32" else ".to(Float32)",
        promoted_blocks=every,
        promoted_k=promoted_k(problem, c, arch),
    )
