"""Values of blocks of columns in the kernel module: the functions of the passes, and what they are called with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cutegen.epilogue import Assign, BlockOutput, Passes, after_lines, before_lines, once_lines
from cutegen.epilogue.blocks import BlockReduction
from cutegen.epilogue.program import reads
from cutegen.families.gemm.derived import SLAB_ROWS
from cutegen.families.gemm.problem import GemmProblem
from cutegen.families.gemm.text.groups import GroupText
from cutegen.render.layout import statement


@dataclass(frozen=True, slots=True)
class BlockOutputText:
    """An output with one value per row and block. gmem: the tensor of this batch index."""

    name: str
    modes: str
    gmem: str


@dataclass(frozen=True, slots=True)
class PassText:
    """A function: parameters, lines and results; arguments and targets of its call. wide: its targets take a line
    each."""

    parameters: tuple[str, ...]
    lines: tuple[str, ...]
    results: str
    arguments: tuple[str, ...]
    targets: tuple[str, ...]

    @property
    def wide(self) -> bool:
        return len(", ".join(self.targets)) > 80


@dataclass(frozen=True, slots=True)
class BlocksText:
    """What the templates read about blocks.

    along_m: whether they are blocks of rows of the tile. columns: of a block. held: values of its rows, in registers,
    or, along m, in shared memory. before, once: see `epilogue.blocks`. offset: names of an element's place in its
    fragment. at_row: whether `once` reads a vector with one value per row. scalars: those on the device that either
    reads. reads_second: whether `before` reads the second accumulator of a pair, or keeps a value in its place.
    """

    along_m: bool
    columns: int
    reduced: tuple[BlockReduction, ...]
    held: tuple[str, ...]
    before: PassText
    offset: str
    once: PassText
    at_row: bool
    scalars: tuple[str, ...]
    tiles_before: bool
    reads_second: bool


def block_output_text(o: BlockOutput, groups: GroupText | None, transposed: bool) -> BlockOutputText:
    modes = ("m blocks, n" if transposed else "m, n blocks") + ", batch" * o.batched
    gmem = f"o.m_{o.name}[None, None, batch]" if o.batched else f"o.m_{o.name}"
    return BlockOutputText(o.name, modes, groups.up_to_end(gmem) if groups and groups.ragged else gmem)


def blocks_text(
    problem: GemmProblem,
    passes: Passes,
    places: Mapping[str, str],
    values: Mapping[str, str],
    to_f32: str,
    pingpong: bool,
) -> BlocksText:
    """places: where each accumulator is. values: how each operand is read. to_f32: conversion of an accumulator."""
    program, along_m = problem.kernel_epilogue, problem.transposed
    taken = [(place, name) for place, name in passes.kept if place != name]
    before = _parameters(passes.before, (*places, *values))
    read_before = [places[name] for name in before if name in places]
    held = passes.held
    once = [name for name in _parameters(passes.once, tuple(values)) if name in values]
    column_vectors = {o.name for o in program.operands if o.kind == "column_vector"}
    known = {**{name: f"{text}{to_f32}" for name, text in places.items()}, **values}
    joined = [f'reduction.join_row("{r.op}", v_{r.name}[i])' for r in passes.reduced]
    offset = "at_m, at_n" if column_vectors.intersection(before) else "_, at_n"
    if along_m:
        offset = "at_m, at_n" if any("at_n" in known[name] for name in before) else "at_m, _"
    read_once = values
    targets = tuple(f"b_{name}[i]" for name in held)
    group = ", group" if pingpong else ""
    if along_m:
        slabs = program.block // SLAB_ROWS
        joined = [
            f'reduction.join_slabs("{r.op}", o.j_{r.name}, (at, block * {slabs}{group}), {slabs})'
            for r in passes.reduced
        ]
        vectors = {o.name: f"o.s_{o.name}[at{group}]" for o in program.operands if o.kind == "row_vector"}
        read_once, targets = {**values, **vectors}, tuple(f"o.b_{name}[at, block{group}]" for name in held)
    return BlocksText(
        along_m=along_m,
        columns=program.block,
        reduced=passes.reduced,
        held=held,
        before=PassText(
            parameters=tuple(f"{name}: Float32" for name in before),
            lines=tuple(statement(line, indent=4) for line in before_lines(program, passes)),
            results=", ".join((*(name for _, name in taken), *(r.name for r in passes.reduced))),
            arguments=tuple(known[name] for name in before),
            targets=(*(places[place] for place, _ in taken), *(f"x_{r.name}" for r in passes.reduced)),
        ),
        offset=offset,
        once=PassText(
            parameters=tuple(f"{name}: Float32" for name in (*(r.name for r in passes.reduced), *once)),
            lines=tuple(statement(line, indent=4) for line in once_lines(program, passes)),
            results=", ".join(held),
            arguments=(*joined, *(read_once[name] for name in once)),
            targets=targets,
        ),
        scalars=tuple(o.name for o in program.operands if o.kind == "device_scalar" and o.name in (*before, *once)),
        at_row=bool(column_vectors.intersection(once)),
        tiles_before=passes.tiles_before,
        reads_second="acc_1" in places and (places["acc_1"] in read_before or "acc_1" in dict(passes.kept)),
    )


def after_text(
    problem: GemmProblem,
    passes: Passes,
    places: Mapping[str, str],
    values: Mapping[str, str],
    to_f32: str,
    pingpong: bool,
) -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]:
    """(parameters, lines, arguments) of the function of the outputs."""
    kept = {name: places[place] + (to_f32 if name in places else "") for place, name in passes.kept}
    prefix, row = "b_", "[2 * subtile_m + i // 2 % 2]"
    if problem.transposed:
        at = "column + subtile_n * t.epilogue_tile[1] + at_n, block"
        prefix, row = "o.b_", f"[{at}{', group' * pingpong}]"
    given = {name: f"{prefix}{name}{row}" for name in passes.held}
    known = {**kept, **{name: text for name, text in values.items() if name not in kept}, **given}
    read = {r for s in passes.after for r in reads(s.expr)}
    read |= {inverse for _, inverse in passes.inverses}
    read |= {o.name for o in problem.kernel_epilogue.outputs}
    names = [name for name in known if name in read]
    lines = tuple(statement(line, indent=4) for line in after_lines(problem.kernel_epilogue, passes))
    return tuple(f"{name}: Float32" for name in names), lines, tuple(known[name] for name in names)


def _parameters(statements: Sequence[Assign], among: Sequence[str]) -> list[str]:
    """Those of the names that statements read."""
    read = {r for s in statements for r in reads(s.expr)}
    return [name for name in among if name in read]
