"""The method `store` of the kernel: what it is called with, and what it needs of a thread's place."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from cutegen.epilogue import BlockOutput, Operand, Output
from cutegen.families.gemm.features.groups.group_text import GroupText
from cutegen.families.gemm.features.reductions.reduction_text import ReductionsText
from cutegen.families.gemm.problem import GemmProblem
from cutegen.families.gemm.text.consumers import ConsumersText
from cutegen.families.gemm.text.functions import FunctionText, Parameter
from cutegen.families.gemm.text.output_tile import OutputTileText
from cutegen.families.gemm.text.work import WorkText


@dataclass(frozen=True, slots=True)
class StoreText:
    """What the templates read as k.store. parameters: besides the usual ones. row, column: whether it needs a thread's
    place in a subtile; at_m, at_n: an element's place in the fragment of a thread."""

    parameters: tuple[Parameter, ...]
    row: bool
    column: bool
    at_m: bool
    at_n: bool

    @property
    def arguments(self) -> tuple[str, ...]:
        return ("p", "acc", "thread", *(p.name for p in self.parameters))


def store_text(
    problem: GemmProblem,
    consumers: ConsumersText,
    groups: GroupText | None,
    work: WorkText,
    epilogue: FunctionText,
    reductions: ReductionsText,
    tile: OutputTileText,
) -> StoreText:
    """In the kernel's frame."""
    at_m = reductions.masks_rows or "column_vector" in epilogue.kinds
    reads_column = not epilogue.kinds.isdisjoint(("row_vector", "of_rows"))
    block_input = any(o.kind == "block_input" for o in problem.kernel_epilogue.operands)
    return StoreText(
        parameters=tuple(_parameters(problem, consumers, groups, work)),
        row=at_m or block_input or any(r.kept == "m" for r in reductions.outputs),
        column=reads_column or block_input or (reductions.masks_columns and tile.column_of_thread),
        at_m=at_m,
        at_n=reads_column or reductions.masks_columns,
    )


def _parameters(
    problem: GemmProblem, consumers: ConsumersText, groups: GroupText | None, work: WorkText
) -> Iterator[Parameter]:
    program = problem.kernel_epilogue
    of_batch: list[Operand | Output | BlockOutput] = [*program.outputs, *program.block_outputs]
    of_batch += [o for o in program.operands if o.kind in ("device_scalar", "block_input")]
    yield from (Parameter("m", "Int32"), Parameter("n", "Int32"))
    if any(x.batched for x in of_batch):
        yield Parameter("batch", "Int32")
    if groups and groups.ragged:
        yield from (Parameter("begin", "Int32"), Parameter("end", "Int32"))
    if work.in_cluster:
        yield Parameter("part", "Int32")
    yield Parameter("slot", "Int32")
    if consumers.pingpong:
        yield Parameter("group", "Int32")
    if program.tiles:
        yield Parameter("loaded", "pipeline.PipelineState")
