"""Values of blocks in the kernel module: the functions of the passes, and what they are called with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cutegen.epilogue import Assign, BlockOutput, Passes, after_lines, before_lines, once_lines
from cutegen.epilogue.tree import reads
from cutegen.families.gemm.derived import SLAB_ROWS
from cutegen.families.gemm.orientation import block_passes
from cutegen.families.gemm.problem import GemmProblem
from cutegen.families.gemm.text.consumers import ConsumersText
from cutegen.families.gemm.text.expressions import ROW_OF_ELEMENT, factor
from cutegen.families.gemm.text.functions import ElementSources, FunctionText, Parameter, element_words
from cutegen.families.gemm.text.groups import GroupText
from cutegen.families.gemm.text.output_tile import OutputTileText
from cutegen.render.layout import statement


@dataclass(frozen=True, slots=True)
class BlockOutputText:
    """An output with one value per row and block. gmem: the tensor of this batch index; row, column: in it, of the
    value that is stored or of the tile's first one."""

    name: str
    modes: str
    gmem: str
    row: str
    column: str


@dataclass(frozen=True, slots=True)
class BlockReductionText:
    """What a block is reduced to. slabs: where blocks run along m, what each warp has of it in shared memory."""

    name: str
    op: str
    slabs: str


@dataclass(frozen=True, slots=True)
class BlocksText:
    """What the templates read as k.blocks.

    template: of the method that makes the first pass; parameters: of it besides the usual ones. along_m: whether blocks
    are of rows of the tile; size: rows or columns of one; in_tile: how many there are along m. reduced: what they are
    reduced to; held: values of theirs that stay, in registers, or along m in shared memory. before, once: see
    `epilogue.blocks`. origin: names of a thread's place in a subtile; offset: of an element's in its fragment. at_row:
    whether `once` reads a vector with one value per row. scalars: those on the device that either reads. tiles_before:
    whether `before` reads tiles. reads_second: whether it reads the second accumulator of a pair, or keeps a value in
    its place.
    """

    template: str
    parameters: tuple[Parameter, ...]
    along_m: bool
    size: int
    in_tile: str
    reduced: tuple[BlockReductionText, ...]
    held: tuple[str, ...]
    before: FunctionText
    once: FunctionText
    origin: str
    offset: str
    at_row: bool
    scalars: tuple[str, ...]
    tiles_before: bool
    reads_second: bool
    outputs: tuple[BlockOutputText, ...]


def blocks_text(
    problem: GemmProblem,
    sources: ElementSources,
    tile: OutputTileText,
    consumers: ConsumersText,
    groups: GroupText | None,
    parameters: Sequence[Parameter],
) -> BlocksText | None:
    """In the kernel's frame. parameters: of the epilogue of a tile."""
    if not problem.kernel_epilogue.block:
        return None
    program, along_m, passes = problem.kernel_epilogue, problem.transposed, block_passes(problem)
    before = _before(problem, passes, sources)
    read_before = before.arguments
    by_row = {sources.operands[o.name] for o in program.operands if o.kind == "column_vector"}
    if along_m:
        offset = "at_m, at_n" if any("at_n" in argument for argument in read_before) else "at_m, _"
    else:
        offset = "at_m, at_n" if by_row.intersection(read_before) else "_, at_n"
    own_column = any("at_n" in argument for argument in read_before) or not (along_m or not tile.column_of_thread)
    once = _once(problem, passes, sources, consumers)
    at_row = bool(by_row.intersection(once.arguments))
    reads_row = at_row or "at_m" in offset or bool(program.block_outputs)
    read = {p.partition(":")[0] for p in (*before.parameters, *once.parameters)}
    return BlocksText(
        template=f"gemm/{problem.target.folder}/{'blocks_along_m' if along_m else 'blocks'}.py.jinja",
        parameters=tuple(p for p in parameters if p.name != "slot" and (p.name != "loaded" or passes.tiles_before)),
        along_m=along_m,
        size=program.block,
        in_tile=f"{factor(tile.rows)} // {program.block}",
        reduced=tuple(BlockReductionText(r.name, r.op, consumers.own(f"o.j_{r.name}", 2)) for r in passes.reduced),
        held=passes.held,
        before=before,
        once=once,
        origin=", ".join(("row" if reads_row else "_", "column" if own_column else "_")),
        offset=offset,
        at_row=at_row,
        scalars=tuple(o.name for o in program.operands if o.kind == "device_scalar" and o.name in read),
        tiles_before=passes.tiles_before,
        reads_second=problem.paired and ("acc_1" in read or "acc_1" in dict(passes.kept)),
        outputs=tuple(_output(o, problem, tile, groups) for o in program.block_outputs),
    )


def _before(problem: GemmProblem, passes: Passes, sources: ElementSources) -> FunctionText:
    taken = [(place, name) for place, name in passes.kept if place != name]
    read = {r for s in passes.before for r in reads(s.expr)} | {name for _, name in taken}  # a tile is kept as it is
    names = [name for name in (*sources.accumulators, *sources.operands) if name in read]
    block, element = problem.kernel_epilogue.block, element_words(problem)
    along = "rows" if problem.transposed else "columns"
    return FunctionText(
        name="before_block",
        summary=f"What blocks of {block} {along} are reduced of, for one {element}.",
        parameters=tuple(f"{name}: Float32" for name in names),
        lines=tuple(statement(line, indent=4) for line in before_lines(problem.kernel_epilogue, passes)),
        results=(*(name for _, name in taken), *(r.name for r in passes.reduced)),
        arguments=tuple(sources.in_f32[name] for name in names),
        targets=(*(sources.accumulators[place] for place, _ in taken), *(f"x_{r.name}" for r in passes.reduced)),
    )


def _once(problem: GemmProblem, passes: Passes, sources: ElementSources, consumers: ConsumersText) -> FunctionText:
    program, group = problem.kernel_epilogue, consumers.group_index
    names = _read(passes.once, tuple(sources.operands))
    values = dict(sources.operands)
    if problem.transposed:
        slabs = program.block // SLAB_ROWS
        joined = [
            f'reduction.join_slabs("{r.op}", o.j_{r.name}, (at, block * {slabs}{group}), {slabs})'
            for r in passes.reduced
        ]
        values |= {o.name: f"o.s_{o.name}[at{group}]" for o in program.operands if o.kind == "row_vector"}
        targets = tuple(f"o.b_{name}[at, block{group}]" for name in passes.held)
    else:
        joined = [f'reduction.join_row("{r.op}", v_{r.name}[i])' for r in passes.reduced]
        targets = tuple(f"b_{name}[i]" for name in passes.held)
    return FunctionText(
        name="of_block",
        summary=f"The values of one {'column' if problem.transposed else 'row'} of a block.",
        parameters=tuple(f"{name}: Float32" for name in (*(r.name for r in passes.reduced), *names)),
        lines=tuple(statement(line, indent=4) for line in once_lines(program, passes)),
        results=passes.held,
        arguments=(*joined, *(values[name] for name in names)),
        targets=targets,
    )


def function_after_blocks(
    problem: GemmProblem, sources: ElementSources, consumers: ConsumersText
) -> tuple[dict[str, str], tuple[str, ...]]:
    """(arguments by parameter, lines) of the function of the outputs, where there are values of blocks."""
    passes = block_passes(problem)
    kept = {
        name: sources.accumulators[place] + (sources.to_f32 if name in sources.accumulators else "")
        for place, name in passes.kept
    }
    prefix, place = "b_", ROW_OF_ELEMENT
    if problem.transposed:
        prefix, place = "o.b_", f"column + subtile_n * t.epilogue_tile[1] + at_n, block{consumers.group_index}"
    held = {name: f"{prefix}{name}[{place}]" for name in passes.held}
    known = {**kept, **{name: text for name, text in sources.operands.items() if name not in kept}, **held}
    read = {r for s in passes.after for r in reads(s.expr)}
    read |= {inverse for _, inverse in passes.inverses}
    read |= {o.name for o in problem.kernel_epilogue.outputs}
    lines = tuple(statement(line, indent=4) for line in after_lines(problem.kernel_epilogue, passes))
    return {name: text for name, text in known.items() if name in read}, lines


def _output(o: BlockOutput, problem: GemmProblem, tile: OutputTileText, groups: GroupText | None) -> BlockOutputText:
    gmem = f"o.m_{o.name}[None, None, batch]" if o.batched else f"o.m_{o.name}"
    row = tile.first_row
    column = f"n * ({factor(tile.columns)} // {problem.kernel_epilogue.block}) + block"
    if problem.transposed:
        row, column = f"{groups.row('m') if groups else ''}m * blocks + block", f"{tile.first_column} + at"
    return BlockOutputText(
        name=o.name,
        modes=("m blocks, n" if problem.transposed else "m, n blocks") + ", batch" * o.batched,
        gmem=groups.up_to_end(gmem) if groups and groups.ragged else gmem,
        row=row,
        column=column,
    )


def _read(statements: Sequence[Assign], among: Sequence[str]) -> list[str]:
    """Those of the names that statements read."""
    found = {r for s in statements for r in reads(s.expr)}
    return [name for name in among if name in found]
