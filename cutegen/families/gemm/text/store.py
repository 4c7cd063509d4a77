"""The method `store` of the kernel: what it is called with, and what it needs of a thread's place."""

from __future__ import annotations

from dataclasses import dataclass

from cutegen.families.gemm.problem import GemmProblem
from cutegen.families.gemm.text.consumers import ConsumersText
from cutegen.families.gemm.text.epilogue import InputsText, OutputsText
from cutegen.families.gemm.text.functions import ElementSources, FunctionText, Parameter
from cutegen.families.gemm.text.groups import GroupText
from cutegen.families.gemm.text.output_tile import OutputTileText
from cutegen.families.gemm.text.reductions import ReductionsText
from cutegen.families.gemm.text.work import WorkText


@dataclass(frozen=True, slots=True)
class StoreText:
    """What the templates read as k.store. parameters: besides the usual ones; arguments, results: of a call. flow: what
    happens to a subtile, in words. origin: names of a thread's place in a subtile; offset: of an element's in its
    fragment; "" where none is read. reads_second: whether the epilogue reads the second accumulator of a pair;
    reads_block: whether it reads values of the block that a warp's rows are in. scalars: names of those on the device
    that it reads."""

    parameters: tuple[Parameter, ...]
    arguments: tuple[str, ...]
    results: str
    flow: str
    origin: str
    offset: str
    reads_second: bool
    reads_block: bool
    scalars: tuple[str, ...]


def store_parameters(
    problem: GemmProblem, consumers: ConsumersText, groups: GroupText | None, work: WorkText
) -> tuple[Parameter, ...]:
    """What the epilogue of a tile has to be told, in the kernel's frame."""
    program = problem.kernel_epilogue
    read = [o for o in program.operands if o.kind in ("device_scalar", "block_input")]
    batched = any(o.batched for o in read) or any(o.batched for o in program.outputs)
    batched = batched or any(o.batched for o in program.block_outputs)
    found = [Parameter("m", "Int32"), Parameter("n", "Int32")]
    found += [Parameter("batch", "Int32")] if batched else []
    found += [Parameter("begin", "Int32"), Parameter("end", "Int32")] if groups and groups.ragged else []
    found += [Parameter("part", "Int32")] if work.in_cluster else []
    found += [Parameter("slot", "Int32")]
    found += [Parameter("group", "Int32")] if consumers.pingpong else []
    if program.tiles:
        found.append(Parameter("loaded", "pipeline.PipelineState"))
    return tuple(found)


def store_text(
    parameters: tuple[Parameter, ...],
    sources: ElementSources,
    epilogue: FunctionText,
    inputs: InputsText,
    outputs: OutputsText,
    reductions: ReductionsText,
    tile: OutputTileText,
) -> StoreText:
    read = " ".join(epilogue.arguments)
    row, column = reductions.masks_rows or "at_m" in read, reductions.masks_columns or "at_n" in read
    own_column = "at_n" in read or (reductions.masks_columns and tile.column_of_thread) or bool(inputs.blocks)
    by_row = any(r.kept == "m" for r in reductions.outputs)
    offset = ("at_m" if row else "_", "at_n" if column else "_")
    origin = ("row" if row or by_row or inputs.blocks else "_", "column" if own_column else "_")
    stores = [*(["TMA store"] if outputs.by_tma else []), *(["stores by threads"] if outputs.by_threads else [])]
    flow = f"maths in registers, staged in shared memory, {' and '.join(stores)}"
    second = sources.accumulators.get("acc_1")
    return StoreText(
        parameters=parameters,
        arguments=("o", "acc", "thread", *(p.name for p in parameters)),
        results="slot, loaded" if inputs.tiles else "slot",
        flow=f"tiles in, {flow}" if inputs.tiles else flow,
        origin=", ".join(origin) if set(origin) != {"_"} else "",
        offset=", ".join(offset) if set(offset) != {"_"} else "",
        reads_second=second is not None and second in read,
        reads_block=", block" in read,
        scalars=tuple(x.name for x in inputs.device_scalars if f"r_{x.name}" in epilogue.arguments),
    )
