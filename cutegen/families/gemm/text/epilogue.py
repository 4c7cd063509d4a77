"""What the epilogue of a kernel reads and writes, and the function that it computes of each element."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from cutegen.epilogue import EpilogueProgram, device_lines
from cutegen.families.gemm.problem import GemmProblem
from cutegen.families.gemm.text.blocks import function_after_blocks
from cutegen.families.gemm.text.consumers import ConsumersText
from cutegen.families.gemm.text.functions import ElementSources, FunctionText, element_words
from cutegen.families.gemm.text.groups import GroupText
from cutegen.families.gemm.text.output_tile import OutputTileText
from cutegen.families.gemm.text.reductions import ReductionText
from cutegen.families.gemm.text.tensors import (
    BlockInputText,
    ScalarText,
    TileText,
    VectorText,
    block_input_text,
    tile_text,
    vector_text,
)
from cutegen.render.layout import statement


@dataclass(frozen=True, slots=True)
class InputsText:
    """What the templates read as k.inputs: those of the epilogue. tiles_read_if: the condition of the kernel's
    arguments under which tiles are read, "" where they always are. tile_at: names for the place of a tile in the warp
    that loads them."""

    tiles: tuple[TileText, ...]
    tiles_read_if: str
    tile_at: str
    vectors: tuple[VectorText, ...]
    device_scalars: tuple[ScalarText, ...]
    host_scalars: tuple[str, ...]
    blocks: tuple[BlockInputText, ...]


@dataclass(frozen=True, slots=True)
class OutputsText:
    """What the templates read as k.outputs: those with all rows and columns."""

    every: tuple[TileText, ...]

    @property
    def by_tma(self) -> tuple[TileText, ...]:
        return tuple(o for o in self.every if o.bulk)

    @property
    def by_threads(self) -> tuple[TileText, ...]:
        return tuple(o for o in self.every if not o.bulk)


def inputs_text(
    problem: GemmProblem, tile: OutputTileText, consumers: ConsumersText, groups: GroupText | None
) -> InputsText:
    """In the kernel's frame."""
    operands, tiles = problem.kernel_epilogue.operands, problem.kernel_epilogue.tiles
    batch_is_read = (groups and groups.ragged) or any(o.batched for o in tiles)
    return InputsText(
        tiles=tuple(tile_text(o, groups, problem.paired_dim) for o in tiles),
        tiles_read_if=_tiles_read_if(problem.kernel_epilogue),
        tile_at=f"m, n, {'batch' if batch_is_read else '_'}",
        vectors=tuple(
            vector_text(o, consumers, tile, problem.gather if problem.gathers(o.name) else None)
            for o in operands
            if o.kind in ("row_vector", "column_vector")
        ),
        device_scalars=tuple(
            ScalarText(o.name, "batch" if o.batched else "0") for o in operands if o.kind == "device_scalar"
        ),
        host_scalars=tuple(o.name for o in operands if o.kind == "host_scalar"),
        blocks=tuple(block_input_text(o, tile, groups) for o in operands if o.kind == "block_input"),
    )


def outputs_text(problem: GemmProblem, groups: GroupText | None) -> OutputsText:
    """In the kernel's frame."""
    return OutputsText(tuple(tile_text(o, groups, problem.paired_dim) for o in problem.kernel_epilogue.outputs))


def epilogue_text(
    problem: GemmProblem, sources: ElementSources, consumers: ConsumersText, reductions: Iterable[ReductionText]
) -> FunctionText:
    """The function of the outputs, in the kernel's frame."""
    program = problem.kernel_epilogue
    if program.block:
        arguments, lines = function_after_blocks(problem, sources, consumers)
    else:
        names = (*sources.accumulators, *(o.name for o in program.operands))
        arguments = {name: sources.in_f32[name] for name in names}
        lines = tuple(statement(line, indent=4) for line in device_lines(program))
    outputs, reduced = [o.name for o in program.outputs], [r.name for r in reductions]
    return FunctionText(
        name="epilogue",
        summary=f"One {element_words(problem)}; all values are f32 until they are stored.",
        parameters=tuple(f"{name}: Float32" for name in arguments),
        lines=lines,
        results=(*outputs, *reduced),
        arguments=tuple(arguments.values()),
        targets=(*(f"r_{name}[i]" for name in outputs), *(f"x_{name}" for name in reduced)),
    )


def _tiles_read_if(program: EpilogueProgram) -> str:
    on_device = {o.name for o in program.operands if o.kind == "device_scalar"}
    values = [f"m_{s}[0].to(Float32)" if s in on_device else s for s in program.tile_switches]
    tests = [f"{value} != 0.0" for value in values]
    return tests[0] if len(tests) == 1 else " | ".join(f"({test})" for test in tests)
