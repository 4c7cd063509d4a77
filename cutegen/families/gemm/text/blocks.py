"""Values of blocks in the kernel module: what the passes of the epilogue read and compute."""

from __future__ import annotations

from dataclasses import dataclass

from cutegen.epilogue import BlockOutput, Passes, after_lines, before_lines, once_lines
from cutegen.epilogue.tree import reads
from cutegen.families.gemm.derived import in_subtile
from cutegen.families.gemm.orientation import block_passes
from cutegen.families.gemm.problem import GemmProblem
from cutegen.families.gemm.text.functions import FunctionText, Parameter, Value, accumulators, element_words, operands


@dataclass(frozen=True, slots=True)
class BlocksText:
    """What the templates read as k.blocks.

    parameters: of the first pass, of those of `store`. along_m: whether blocks are of rows of the tile; in_subtile:
    whether an epilogue tile has whole ones, which are reduced and stored in one pass; size: rows or columns of
    one. before, once: see `epilogue.blocks`. reduced: what `before` gives to reductions; held: what `once` gives, in
    registers, or along m in shared memory. tiles_before: whether `before` reads tiles.
    """

    parameters: tuple[Parameter, ...]
    along_m: bool
    in_subtile: bool
    size: int
    before: FunctionText
    once: FunctionText
    reduced: tuple[Value, ...]
    held: tuple[str, ...]
    tiles_before: bool
    outputs: tuple[BlockOutput, ...]

    @property
    def chunks(self) -> tuple[BlockOutput, ...]:
        """Outputs that are scales in chunks, which a thread stores when it has those of its row of the tile."""
        return tuple(o for o in self.outputs if o.chunks)


def blocks_text(problem: GemmProblem, parameters: tuple[Parameter, ...]) -> BlocksText | None:
    """In the kernel's frame. parameters: of `store`."""
    program = problem.kernel_epilogue
    if not program.block:
        return None
    passes = block_passes(problem)
    before = _before(problem, passes)
    return BlocksText(
        parameters=tuple(p for p in parameters if p.name != "slot" and (p.name != "loaded" or passes.tiles_before)),
        along_m=problem.transposed,
        in_subtile=in_subtile(problem),
        size=program.block,
        before=before,
        once=_once(problem, passes),
        reduced=tuple(value for value in before.gives if value.op),
        held=passes.held,
        tiles_before=passes.tiles_before,
        outputs=program.block_outputs,
    )


def _before(problem: GemmProblem, passes: Passes) -> FunctionText:
    places, program = accumulators(problem), problem.kernel_epilogue
    taken = [(place, name) for place, name in passes.kept if place != name]  # a tile is kept as it is
    read = {r for s in passes.before for r in reads(s.expr)} | {name for _, name in taken}
    along = "rows" if problem.transposed else "columns"
    return FunctionText(
        name="before_block",
        summary=f"What blocks of {program.block} {along} are reduced of, for one {element_words(problem)}.",
        statements=before_lines(program, passes),
        reads=tuple(value for value in (*places.values(), *operands(problem).values()) if value.name in read),
        gives=(
            *(places[place]._replace(name=name) for place, name in taken),
            *(Value(r.name, "reduced", r.op) for r in passes.reduced),
        ),
    )


def _once(problem: GemmProblem, passes: Passes) -> FunctionText:
    read = {r for s in passes.once for r in reads(s.expr)}
    along, word = ("rows", "column") if problem.transposed else ("columns", "row")
    return FunctionText(
        name="of_block",
        summary=f"The values of one {word} of a block.",
        statements=once_lines(problem.kernel_epilogue, passes),
        reads=(
            *(Value(r.name, f"joined_{along}", r.op) for r in passes.reduced),
            *(
                value._replace(kind="vector_at") if value.kind == "row_vector" and problem.transposed else value
                for value in operands(problem).values()
                if value.name in read
            ),
        ),
        gives=tuple(Value(name, f"given_{along}") for name in passes.held),
    )


def after_blocks(problem: GemmProblem) -> tuple[tuple[str, ...], tuple[Value, ...]]:
    """Statements of the function of the outputs, and what it reads, where there are values of blocks."""
    passes, places, program = block_passes(problem), accumulators(problem), problem.kernel_epilogue
    kept = {name: places[place]._replace(name=name) for place, name in passes.kept}
    along = "of_rows" if problem.transposed else "of_columns"
    held = {name: Value(name, along) for name in passes.held}
    read = {r for s in passes.after for r in reads(s.expr)}
    read |= {inverse for _, inverse in passes.inverses} | {o.name for o in program.outputs}
    known = {**kept, **{name: value for name, value in operands(problem).items() if name not in kept}, **held}
    return after_lines(program, passes), tuple(value for value in known.values() if value.name in read)
