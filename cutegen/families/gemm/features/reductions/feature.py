"""What reductions of whole rows, columns or blocks of them add to a GEMM, seam by seam."""

from __future__ import annotations

from collections.abc import Iterator

from cutegen.arch.architecture import WARPS_PER_WARPGROUP
from cutegen.families.gemm.candidate import Candidate
from cutegen.families.gemm.derived import SLAB_ROWS, output_sources, output_tile, warpgroups_per_tile
from cutegen.families.gemm.features.feature import Feature, Staged, of_each_batch
from cutegen.families.gemm.orientation import block_passes
from cutegen.families.gemm.problem import GemmProblem
from cutegen.families.generated_names import tensor_stem
from cutegen.model.smem import F32, I32, SmemField


class ReductionsFeature(Feature):
    def list_staging(self, problem: GemmProblem, c: Candidate, staged: Staged) -> Iterator[SmemField]:
        program, (rows, columns) = problem.kernel_epilogue, output_tile(problem, c)
        rows_source, columns_source = output_sources(problem)
        if program.reductions:
            yield staged("s_ticket", I32, {}, "i32")
        warps = WARPS_PER_WARPGROUP * warpgroups_per_tile(c)
        warps_source = f"{WARPS_PER_WARPGROUP}{' * t.consumers' * (c.schedule == 'cooperative')}"
        for r in program.reductions:
            if r.kept != "m":
                kept = {columns_source: columns} if r.kept else {"1": 1}
                holds = f"f32 ({columns if r.kept else 1}, {warps} warps)"
                yield staged(f"s{tensor_stem(r.name)}", F32, {**kept, warps_source: warps}, holds)
        if problem.transposed and program.block:
            passes, whole = block_passes(problem), f"({rows_source})" if "//" in rows_source else rows_source
            shared = [(f"j_{r.name}", SLAB_ROWS, "slabs of 16 rows") for r in passes.reduced]
            for name, each, what in (*shared, *((f"b_{name}", program.block, "blocks") for name in passes.held)):
                extents = {columns_source: columns, f"{whole} // {each}": rows // each}
                yield staged(name, F32, extents, f"f32 ({columns}, {rows // each} {what})")

    def describe_results(self, problem: GemmProblem) -> Iterator[tuple[str, str, str]]:
        p, program = problem, problem.epilogue
        for r in program.reductions:
            over = [dim.name for role, dim in (("m", p.m), ("n", p.n)) if role != r.kept]
            over += [p.batch.name] if p.batch and not r.batched and not r.kept else []
            yield r.name, str(r.dtype), f"one value for all {' and '.join(over)}" + of_each_batch(p, r.batched)
        for b in program.block_outputs:
            of = " of the product" * bool(program.pairing)
            what = f"one value for each row and {b.divisor} columns{of}, {b.major.upper()}-major"
            yield b.name, str(b.dtype), what + of_each_batch(p, b.batched)
