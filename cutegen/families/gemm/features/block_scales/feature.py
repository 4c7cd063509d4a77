"""What scales along k add to a GEMM, seam by seam."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from cutegen.arch.architecture import BOX_ALIGN
from cutegen.families.gemm.candidate import Candidate
from cutegen.families.gemm.derived import scale_box, scale_bytes
from cutegen.families.gemm.features.feature import Feature, Staged, of_each_batch
from cutegen.families.gemm.problem import GemmProblem
from cutegen.families.generated_names import tensor_stem
from cutegen.model.smem import F32, SmemField

# More where pairs of columns become values of blocks: with 112 columns, 168 accumulators a thread, kernels with 232
# registers spilled; with 104 they did not.
PAIRED_BLOCK_REGISTERS = 8


class BlockScalesFeature(Feature):
    def consumer_registers(self, problem: GemmProblem, c: Candidate) -> int:
        """Where columns have scales of their own, a thread holds those of its columns, two of every eight."""
        if problem.row_scale is None or problem.row_scale[1] != "n":
            return 0
        return c.tile[1] // 4 + (PAIRED_BLOCK_REGISTERS if problem.paired and problem.kernel_epilogue.block else 0)

    def terms(self, problem: GemmProblem, c: Candidate) -> Mapping[str, tuple[object, str]]:
        rows, blocks = scale_box(problem, c)
        side = problem.row_scale[1] if problem.row_scale else ""
        return {
            "scale_rows": (rows, f"tile {side}"),
            "scales": (f"{blocks} scale{'s' * (blocks > 1)}", "scales of tile k"),
        }

    def list_staging(self, problem: GemmProblem, c: Candidate, staged: Staged) -> Iterator[SmemField]:
        """The ring of scales, whose slots begin at a multiple of what TMA writes to."""
        if problem.row_scale is None:
            return
        slot, name = scale_bytes(problem, c), f"s{tensor_stem(problem.row_scale[0].name)}"
        pitch = -(-slot // BOX_ALIGN) * BOX_ALIGN
        padded = f", {pitch} B apart" if pitch > slot else ""
        holds = f"f32 {scale_box(problem, c)} x {c.stages} stages{padded}"
        count = (pitch * (c.stages - 1) + slot) // F32.bytes
        yield SmemField(name, F32, count, f"cute.cosize({name}_layout)", holds, BOX_ALIGN)

    def describe_operands(self, problem: GemmProblem) -> Iterator[tuple[str, str, str]]:
        for s, side, dim in ((problem.a_scale, "m", problem.m), (problem.b_scale, "n", problem.n)):
            if s:
                height = problem.named_rows(s.name).get(side, dim)
                blocks = f"scale of {s.rows} x {s.depth} blocks of ({height.name}, {problem.k.name})"
                yield s.name, str(s.dtype), blocks + of_each_batch(problem, s.batched)
