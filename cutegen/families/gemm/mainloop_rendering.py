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
    to_f32, part_to_f32: what makes a value of the whole sum, and one of what the tensor core summed, f32.
    promoted_blocks: MMAs between promotions, promoted_k: their elements. a_scale, b_scale: scales that vary along k, ""
    where there are none; b_rows: columns that share one of the latter. parameters, arguments: what `accumulate` needs
    for them.
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
    a_scale: str
    b_scale: str
    b_rows: int
    parameters: tuple[str, ...]
    arguments: tuple[str, ...]


def mainloop_text(problem: GemmProblem, c: Candidate, arch: Arch) -> MainloopText:
    mma, mma_k = problem.mma, arch.mma_k(problem.a.dtype)
    every = c.promote_every if isinstance(c.promote_every, int) else 0
    acc_dtype = "Float32" if every else mma.accumulator.cutlass
    scaled = {"thread": "thread"} if problem.a_scale else {}
    if problem.b_scale:
        scaled |= {"n": "n", **({"k_part": "part"} if c.split_k > 1 else {})}
    dtypes = (problem.a.dtype.cutlass, problem.b.dtype.cutlass)
    return MainloopText(
        template=f"gemm/sm90/{'promote' if every else 'accumulate'}.py.jinja",
        mma_op=mma.op,
        mma_dtypes=dtypes[:1] if mma.one_dtype else dtypes,
        mma_k=mma_k,
        sum_dtype=mma.accumulator.cutlass,
        acc_dtype=acc_dtype,
        to_f32="" if acc_dtype == "Float32" else ".to(Float32)",
        part_to_f32="" if mma.accumulator.name == "f32" else ".to(Float32)",
        promoted_blocks=every,
        promoted_k=promoted_k(problem, c, arch),
        a_scale=problem.a_scale.name if problem.a_scale else "",
        b_scale=problem.b_scale.name if problem.b_scale else "",
        b_rows=problem.b_scale.rows if problem.b_scale else 0,
        parameters=tuple(f"{name}: Int32" for name in scaled),
        arguments=tuple(scaled.values()),
    )
