"""What gathered rows add to a GEMM, seam by seam."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from cutegen.arch.architecture import WARPS_PER_WARPGROUP
from cutegen.families.gemm.candidate import Candidate
from cutegen.families.gemm.cost_model import Shape
from cutegen.families.gemm.features.feature import Feature, Settling
from cutegen.families.gemm.features.gather.gather_warps import gather_warps, needed_registers
from cutegen.families.gemm.features.gather.gather_ways import list_gathers, why_gather
from cutegen.families.gemm.features.gather.knobs import COPIED
from cutegen.families.gemm.orientation import copy_rows
from cutegen.families.gemm.problem import GemmProblem, ProblemDim
from cutegen.model.kernel import Role, Warps
from cutegen.runtime.gemm.gathered_rows import copied_name


class GatherFeature(Feature):
    def list_forms(self, problem: GemmProblem, shapes: Sequence[Shape]) -> Sequence[Mapping[str, Any]]:
        return [{"gather": way} for way in list_gathers(problem, shapes)]

    def as_multiplied(self, problem: GemmProblem, form: Mapping[str, Any]) -> GemmProblem:
        return copy_rows(problem) if form["gather"] == COPIED else problem

    def adapt_baselines(self, plan: Any, baselines: Iterator[Any]) -> Iterator[Any]:
        from cutegen.families.gemm.features.gather.gathered_baselines import after_gather  # what no render needs

        return after_gather(plan, baselines)

    def settle_last(self, settling: Settling) -> None:
        settling.settle(why_gather(settling.c, settling.shapes), gather=settling.c.gather)

    def kind(self, c: Candidate) -> object:
        return c.gather

    def producer_registers(self, problem: GemmProblem, c: Candidate) -> int:
        return needed_registers(problem, c)

    def list_roles(self, problem: GemmProblem, c: Candidate) -> Iterator[Role]:
        if problem.gather and problem.gathered:
            scale = [problem.row_scale[0].name] if problem.row_scale and problem.gathers_row_scale else []
            does = f"copy the rows of {' and '.join([problem.gathered.name, *scale])} that {problem.gather.index} names"
            count = gather_warps(problem, c)
            warps = Warps(f"gather warp{'s' * (count > 1)}", WARPS_PER_WARPGROUP - count, count)
            yield Role(warps, c.producer_registers, does)

    def queue_readers(self, problem: GemmProblem, c: Candidate) -> tuple[int, str]:
        return gather_warps(problem, c), " + {gather_warps}" if problem.gather else ""

    def terms(self, problem: GemmProblem, c: Candidate) -> Mapping[str, tuple[object, str]]:
        return {"gather_warps": (f"{gather_warps(problem, c)} gather warps", "gather warps")}

    def index_tensors(self, problem: GemmProblem) -> Iterator[tuple[str, ProblemDim]]:
        if problem.gather:
            yield problem.gather.index, problem.extents[problem.gather.along]

    def call_scratch(self, problem: GemmProblem, c: Candidate, shape: Shape) -> Iterator[tuple[str, int]]:
        if c.copies_rows and problem.gathered:
            yield copied_name(problem.gathered.name), shape.m * shape.k * problem.gathered.dtype.bytes

    # -- what is said of it --

    def overview(self, problem: GemmProblem) -> tuple[str, ...]:
        gather = problem.gather or problem.copied
        if gather is None:
            return ()
        name, index = (problem.a if gather.along == "m" else problem.b).name, gather.index
        own = " and ".join((name, *gather.scales))
        if problem.copied:
            copies = f"{own} is a copy that" if own == name else f"{own} are copies that"
            return (f"{copies} copy_rows.py made: row i is row {index}[i] of the call's.", "")
        return (f"Row i of the product is of row {index}[i] of {own}; one that {name} does not have is zero.", "")

    def describe_operands(self, problem: GemmProblem) -> Iterator[tuple[str, str, str]]:
        if problem.gather:
            yield problem.gather.index, "i32", f"rows of {problem.a.name}"

    def explain_product(self, problem: GemmProblem, tilings: Mapping[str, Candidate]) -> Iterator[str]:
        if problem.gather is None or problem.gathered is None:
            return
        extent = problem.gather.extent
        height = extent.name if extent.value is None else str(extent.value)
        name, index = problem.gathered.name, problem.gather.index
        own = " and ".join((name, *problem.gather.scales))
        has = "have" if problem.gather.scales else "has"
        yield f"row i of the product is of row {index}[i] of {own}, which {has} {height} of them"
        if copying := [name for name, c in tilings.items() if c.copies_rows]:
            whose = "the kernel" if len(copying) == len(tilings) else ", ".join(copying)
            yield f"a preceding launch copies those rows to scratch, in order, for {whose}: TMA loads the copy"
