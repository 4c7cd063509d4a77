"""The host function of the kernel module: what it does to the arguments, and what it gives to the kernel."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from cutegen.arch.architecture import TMA_ALIGN
from cutegen.epilogue import BlockOutput, Operand, Output, Reduction
from cutegen.families.gemm.features.groups.group_text import GroupText
from cutegen.families.gemm.problem import GemmProblem, MatrixOperand
from cutegen.families.gemm.text.load import RingTensor
from cutegen.families.gemm.text.tensors import scale_modes


@dataclass(frozen=True, slots=True)
class ReorderedText:
    """An argument whose torch order of dims is not the kernel's."""

    name: str
    axes: list[int]
    modes: str


@dataclass(frozen=True, slots=True)
class HostText:
    """What the templates read as k.host. reordered, statements: what becomes of the arguments. tiles_m, tiles_n:
    clusters along them, batches: batch indices that there are; k_tiles: of all of k, before it is split."""

    reordered: tuple[ReorderedText, ...]
    statements: tuple[str, ...]
    tiles_m: str
    tiles_n: str
    batches: str
    k_tiles: str


def host_text(problem: GemmProblem, a: RingTensor, b: RingTensor, groups: GroupText | None) -> HostText:
    """In the kernel's frame."""
    output = problem.kernel_epilogue.outputs[0]
    return HostText(
        reordered=_reordered(problem),
        statements=(*_updated_lines(problem), *_widened_lines(problem), *_pair_lines(problem)),
        tiles_m=_clusters("m", a, b, groups),
        tiles_n=_clusters("n", b, a, groups),
        batches=f"{output.name}.shape[2]" if output.batched else "Int32(1)",
        k_tiles=f"cute.ceil_div({a.name}.shape[1], tile_k)",
    )


def _clusters(dim: str, rows: RingTensor, others: RingTensor, groups: GroupText | None) -> str:
    """Clusters along m or n; where groups begin anywhere, each may have one more."""
    more = f" + {others.name}.shape[2]" if groups and groups.moves(dim) else ""
    extent = (
        f"{rows.index or rows.name}.shape[0]" if rows.index or not rows.paired else f"cute.size({rows.name}, mode=[0])"
    )
    return f"cute.ceil_div({extent}, tile_{dim} * t.cluster[{'mn'.index(dim)}]){more}"


def _reordered(problem: GemmProblem) -> tuple[ReorderedText, ...]:
    a, b, program = problem.a, problem.b, problem.epilogue
    modes = {"tile": "m, n", "row_vector": "n", "column_vector": "m"}
    named: list[tuple[MatrixOperand | Operand | Output | BlockOutput | Reduction, str]] = [(a, "m, k"), (b, "n, k")]
    named += [(o, modes[o.kind]) for o in program.operands if o.kind in modes and not o.updates]
    named += [(o, _block_modes(o)) for o in program.operands if o.kind == "block_input"]
    named += [(o, "m, n") for o in program.outputs]
    blocks = "m blocks, n" if problem.transposed else "m, n blocks"
    named += [(o, blocks) for o in program.block_outputs if not o.chunks]
    named += [(r, r.kept) for r in program.reductions if r.kept]
    scales = ((problem.a_scale, "m"), (problem.b_scale, "n"))
    turned = tuple(
        ReorderedText(s.name, list(s.axes), scale_modes(s, rows))
        for s, rows in scales
        if s and s.axes != tuple(range(len(s.axes)))
    )
    return turned + tuple(
        ReorderedText(t.name, list(t.axes), text + (", batch" if t.batched else ""))
        for t, text in named
        if t.axes != tuple(range(len(t.axes)))
    )


def _updated_lines(problem: GemmProblem) -> Iterable[str]:
    """Statements that name the tensors that the epilogue reads and writes."""
    for o in problem.epilogue.operands:
        if o.updates and o.updates not in problem.epilogue.added:
            yield f"{o.name} = {o.updates}  # read before it is written"


def _block_modes(o: Operand) -> str:
    return ", ".join(f"{dim} blocks" for dim in o.present)


def _widened_lines(problem: GemmProblem) -> Iterable[str]:
    """Statements that give inputs with blocks along one dim the other."""
    for o in problem.epilogue.operands:
        if o.missing:
            modes = "m blocks, n blocks" + ", batch" * o.batched
            yield f"{o.name} = block_input.widen({o.name}, {'mn'.index(o.missing)})  # ({modes})"


def _pair_lines(problem: GemmProblem) -> Iterable[str]:
    """Statements that cut the tensors of a gated product: an operand into pairs of rows, what has all columns into
    two."""
    if not problem.paired:
        return
    interleaved = problem.epilogue.pairing == "interleaved"
    dim = problem.paired_dim
    t = problem.b if dim == "n" else problem.a
    yield f"{t.name} = pairs.pair_rows({t.name}, interleaved={interleaved})  # (({dim}/2, 2), k{', batch' * t.batched})"
    program = problem.kernel_epilogue
    tensors: tuple[Operand | Output, ...] = (*program.operands, *program.outputs)
    for name in dict.fromkeys(t.part_of.name for t in tensors if t.part_of):
        parts = [t for t in tensors if t.part_of and t.part_of.name == name]
        mode = 0 if len(parts[0].axes) - parts[0].batched == 1 else "mn".index(dim)
        targets = ", ".join(t.name for t in parts)
        yield f"{targets} = pairs.split_columns({name}, {mode}, interleaved={interleaved}, align={_align(parts[0])})"


def _align(t: Operand | Output) -> int:
    """Bytes that the second part of a tensor is aligned to."""
    threads = t.direct if isinstance(t, Output) else t.kind != "tile"
    return t.dtype.bytes if threads else TMA_ALIGN
