"""What scales of the tensor core add to a GEMM, seam by seam."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from cutegen.arch.architecture import BOX_ALIGN
from cutegen.families.gemm.candidate import Candidate
from cutegen.families.gemm.derived import COLUMN_BYTES, packed_bytes
from cutegen.families.gemm.features.feature import Feature, Staged, of_each_batch
from cutegen.families.gemm.problem import GemmProblem
from cutegen.families.generated_names import tensor_stem
from cutegen.model.smem import I32, SmemField
from cutegen.runtime.gemm.scale_packing import ROWS


class PackedScalesFeature(Feature):
    def list_staging(self, problem: GemmProblem, c: Candidate, staged: Staged) -> Iterator[SmemField]:
        """The rings of scales, which go with those of A and B."""
        for scale, slot in zip(problem.packed_scales, packed_bytes(problem, c)):
            name = f"s{tensor_stem(scale.name)}"
            holds = f"{slot} packed {scale.dtype} x {c.stages} stages"
            yield SmemField(name, I32, slot * c.stages // I32.bytes, f"cute.cosize({name}_layout)", holds, BOX_ALIGN)

    def terms(self, problem: GemmProblem, c: Candidate) -> Mapping[str, tuple[object, str]]:
        if not (count := sum(packed_bytes(problem, c)) // COLUMN_BYTES):
            return {}
        columns = -(-c.tile[1] // ROWS) * ROWS
        return {"scale_columns": (count, "columns"), "scaled_n": (columns, f"tile n up to a multiple of {ROWS}")}

    def describe_operands(self, problem: GemmProblem) -> Iterator[tuple[str, str, str]]:
        for s, dim in ((problem.a_packed, problem.m), (problem.b_packed, problem.n)):
            if s:
                each = f"packed scales of ({dim.name}, {problem.k.name}/{s.block})"
                yield s.name, str(s.dtype), each + of_each_batch(problem, s.batched)

    def explain_product(self, problem: GemmProblem, tilings: object) -> Iterator[str]:
        for operand, s in zip((problem.a, problem.b), problem.packed_scales):
            block = f"{s.block} elements of {problem.k.name}"
            yield f"{operand.name} is multiplied by {s.name}, one for each row and {block}, in the tensor core"
