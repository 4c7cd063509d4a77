"""What the epilogue of a kernel reads and writes, and the function that it computes of each element."""

from __future__ import annotations

from dataclasses import dataclass

from cutegen.epilogue import Operand, device_lines
from cutegen.families.gemm.problem import GemmProblem
from cutegen.families.gemm.text.blocks import after_blocks
from cutegen.families.gemm.text.functions import FunctionText, Value, accumulators, element_words, operands
from cutegen.families.gemm.text.tensors import TileText, VectorText, tile_text, vector_text


@dataclass(frozen=True, slots=True)
class InputsText:
    """What the templates read as k.inputs: those of the epilogue. switches: scalars of which one is not 0 where tiles
    are read, none where they always are."""

    tiles: tuple[TileText, ...]
    switches: tuple[Operand, ...]
    vectors: tuple[VectorText, ...]
    device_scalars: tuple[Operand, ...]
    host_scalars: tuple[str, ...]
    blocks: tuple[Operand, ...]


@dataclass(frozen=True, slots=True)
class OutputsText:
    """What the templates read as k.outputs: those with all rows and columns. packed: whether some have 4 bits."""

    every: tuple[TileText, ...]
    packed: bool

    @property
    def by_tma(self) -> tuple[TileText, ...]:
        return tuple(o for o in self.every if o.bulk)

    @property
    def by_threads(self) -> tuple[TileText, ...]:
        return tuple(o for o in self.every if not o.bulk)


def inputs_text(problem: GemmProblem) -> InputsText:
    """In the kernel's frame."""
    program = problem.kernel_epilogue
    return InputsText(
        tiles=tuple(tile_text(o, problem.paired_dim) for o in program.tiles),
        switches=tuple(o for name in program.tile_switches for o in program.operands if o.name == name),
        vectors=tuple(
            vector_text(o, problem.gather if problem.gathers(o.name) else None)
            for o in program.operands
            if o.kind in ("row_vector", "column_vector")
        ),
        device_scalars=tuple(o for o in program.operands if o.kind == "device_scalar"),
        host_scalars=tuple(o.name for o in program.operands if o.kind == "host_scalar"),
        blocks=tuple(o for o in program.operands if o.kind == "block_input"),
    )


def outputs_text(problem: GemmProblem) -> OutputsText:
    """In the kernel's frame."""
    outputs = problem.kernel_epilogue.outputs
    packed = any(o.dtype.packing > 1 for o in outputs)
    return OutputsText(tuple(tile_text(o, problem.paired_dim) for o in outputs), packed)


def epilogue_text(problem: GemmProblem) -> FunctionText:
    """The function of the outputs, in the kernel's frame."""
    program = problem.kernel_epilogue
    if program.block:
        statements, reads = after_blocks(problem)
    else:
        statements = device_lines(program)
        reads = (*accumulators(problem).values(), *operands(problem).values())
    return FunctionText(
        name="epilogue",
        summary=f"One {element_words(problem)}; all values are f32 until they are stored.",
        statements=statements,
        reads=reads,
        gives=(
            *(Value(o.name, "output") for o in program.outputs),
            *(Value(r.name, "reduced") for r in program.reductions),
        ),
    )
