"""The tensors of a GEMM as the kernel module names, shapes, cuts and declares them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from cutegen.epilogue import BlockOutput, Operand, Output, Reduction
from cutegen.families.gemm.arguments import TensorShape
from cutegen.families.gemm.placement import TMA_ALIGNMENT
from cutegen.families.gemm.problem import BlockScale, GemmProblem, MatrixOperand, ProblemDim
from cutegen.families.gemm.text.groups import GroupText
from cutegen.render.layout import bracketed


@dataclass(frozen=True, slots=True)
class MatrixText:
    """A or B in the kernel module. rows: extent of a tile along m or n. source: the tensor that tiles are cut from,
    another for each tile (`moving`) where groups begin anywhere. gathered: threads copy its rows, by an index."""

    name: str
    rows: str
    dtype: str
    modes: str
    k_major: bool
    mma_major: str
    all_tiles: str
    rest: str
    coordinate: str
    source: str
    moving: bool
    gathered: bool


@dataclass(frozen=True, slots=True)
class TileText:
    """An output or a TMA-loaded epilogue tile in the kernel module. whole: what its descriptor is made of; source: what
    tiles are cut from, another for each tile (`moving`) where groups begin anywhere; gmem: what threads store to.
    atom: the function that makes the TMA atom of an output."""

    name: str
    dtype: str
    modes: str
    n_major: bool
    bulk: bool
    atom: str
    moving: bool
    whole: str
    source: str
    gmem: str
    all_tiles: str
    rest: str
    batch_coordinate: str


@dataclass(frozen=True, slots=True)
class VectorText:
    """A row or column vector in the kernel module. extent: of a tile, as source; factor: the same inside a product."""

    name: str
    modes: str
    extent: str
    factor: str
    origin: str
    gmem: str
    smem: str
    smem_modes: str
    smem_shape: str
    smem_element: str


@dataclass(frozen=True, slots=True)
class BlockInputText:
    """An input with one value for each block of elements. gmem: the tensor of this batch index; row, column: of a
    thread's first element in the product; aligned: whether subtiles begin at multiples of their size."""

    name: str
    modes: str
    gmem: str
    block: str
    row: str
    column: str
    aligned: str


@dataclass(frozen=True, slots=True)
class ScalarText:
    name: str
    index: str


@dataclass(frozen=True, slots=True)
class ReorderedText:
    name: str
    axes: list[int]
    modes: str


@dataclass(frozen=True, slots=True)
class FakeText:
    text: str
    value: str


def matrix_text(
    t: MatrixOperand, rows: str, groups: GroupText | None, *, paired: bool = False, gathered: bool = False
) -> MatrixText:
    """paired: its rows are seen as (pairs, 2)."""
    tensor, moving = {"m": "o.mA", "n": "o.mB"}[rows], groups is not None and groups.moves(rows)
    rest = [f"{rows} tiles", "k tiles", *(["batch"] if t.batched else [])]
    return MatrixText(
        name=t.name,
        rows=f"(tile_{rows} // 2, 2)" if paired else f"tile_{rows}",
        dtype=t.dtype.cutlass,
        modes=", ".join(
            (f"({rows}/2, 2)" if paired else "rows" if gathered else rows, "k", *(("batch",) if t.batched else ()))
        ),
        k_major=t.major == "k",
        mma_major="K" if t.major == "k" else "MN",
        all_tiles=f"({', '.join(['None'] * len(rest))})",
        rest=", ".join(rest),
        coordinate=", ".join((f"({rows}, 0)" if paired else rows, "k", *(("batch",) if t.batched else ()))),
        source=f"row_groups.from_row({tensor}, begin)" if moving else tensor,
        moving=moving and not gathered,
        gathered=gathered,
    )


def tile_text(t: Operand | Output, groups: GroupText | None) -> TileText:
    ragged = groups if groups is not None and groups.ragged else None
    stored, gmem = isinstance(t, Output), f"o.m_{t.name}[None, None, batch]" if t.batched else f"o.m_{t.name}"
    rest = ["subtiles m", "subtiles n", *(["batch"] if t.batched else [])]
    return TileText(
        name=t.name,
        dtype=t.dtype.cutlass,
        modes=", ".join(("m", "n", *(("batch",) if t.batched else ()))),
        n_major=t.major == "n",
        bulk=not (isinstance(t, Output) and t.direct),
        atom="add_atom" if isinstance(t, Output) and t.adds else "store_atom",
        moving=ragged is not None,
        whole=ragged.view(t.name) if ragged and stored else t.name,
        source=ragged.rows_of(f"o.m_{t.name}", stored=stored) if ragged else f"o.m_{t.name}",
        gmem=ragged.up_to_end(gmem) if ragged else gmem,
        all_tiles=f"({', '.join(['None'] * len(rest))})",
        rest=", ".join(rest),
        batch_coordinate=", batch" if t.batched else "",
    )


def vector_text(o: Operand, pingpong: bool, rows: str, columns: str, groups: GroupText | None) -> VectorText:
    """rows, columns: extents of the epilogue of a tile, as source."""
    row = o.kind == "row_vector"
    dim, extent = ("n", columns) if row else ("m", rows)
    factor = f"({extent})" if " " in extent else extent
    base, step = (
        ("column", "subtile_n * t.epilogue_tile[1] + at_n") if row else ("row", "subtile_m * t.epilogue_tile[0] + at_m")
    )
    at = f"{base} + {step}"
    return VectorText(
        name=o.name,
        modes=", ".join((dim, *(("batch",) if o.batched else ()))),
        extent=extent,
        factor=factor,
        origin=(groups.row(dim) if groups else "") + f"{dim} * {factor}",
        gmem=f"o.m_{o.name}[None, batch]" if o.batched else f"o.m_{o.name}",
        smem=f"o.s_{o.name}[None, group]" if pingpong else f"o.s_{o.name}",
        smem_modes=f"(b{dim.upper()}, group)" if pingpong else f"(b{dim.upper()})",
        smem_shape=f"({extent}, t.consumers)" if pingpong else extent,
        smem_element=f"o.s_{o.name}[{at}, group]" if pingpong else f"o.s_{o.name}[{at}]",
    )


def reordered_texts(problem: GemmProblem) -> tuple[ReorderedText, ...]:
    """Arguments whose torch order of dims is not the kernel's."""
    a, b, program = problem.a, problem.b, problem.epilogue
    modes = {"tile": "m, n", "row_vector": "n", "column_vector": "m"}
    named: list[tuple[MatrixOperand | Operand | Output | BlockOutput | Reduction, str]] = [(a, "m, k"), (b, "n, k")]
    named += [(o, modes[o.kind]) for o in program.operands if o.kind in modes and not o.updates]
    named += [(o, _block_modes(o)) for o in program.operands if o.kind == "block_input"]
    named += [(o, "m, n") for o in program.outputs]
    named += [(o, "m blocks, n" if problem.transposed else "m, n blocks") for o in program.block_outputs]
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


def scale_modes(s: BlockScale, rows: str) -> str:
    """The modes of a scale of blocks in the kernel module."""
    return f"{rows}{'' if s.by_row else ' blocks'}, k blocks" + ", batch" * s.batched


def updated_lines(problem: GemmProblem) -> Iterable[str]:
    """Statements that name the tensors that the epilogue reads and writes."""
    for o in problem.epilogue.operands:
        if o.updates and o.updates not in problem.epilogue.added:
            yield f"{o.name} = {o.updates}  # read before it is written"


def _block_modes(o: Operand) -> str:
    return ", ".join(f"{dim} blocks" for dim in o.present)


def widened_lines(problem: GemmProblem) -> Iterable[str]:
    """Statements that give inputs with blocks along one dim the other."""
    for o in problem.epilogue.operands:
        if o.missing:
            modes = "m blocks, n blocks" + ", batch" * o.batched
            yield f"{o.name} = block_input.widen({o.name}, {'mn'.index(o.missing)})  # ({modes})"


def block_input_text(o: Operand, column_factor: str, groups: GroupText | None) -> BlockInputText:
    row, column = (groups.row("m"), groups.row("n")) if groups else ("", "")
    return BlockInputText(
        name=o.name,
        modes="m blocks, n blocks" + ", batch" * o.batched,
        gmem=f"o.m_{o.name}[None, None, batch]" if o.batched else f"o.m_{o.name}",
        block=str(tuple(0 if dim == o.missing else size for dim, size in zip("mn", o.block))),
        row=f"{row}m * t.tile[0] + subtile_m * t.epilogue_tile[0] + row",
        column=f"{column}n * {column_factor} + subtile_n * t.epilogue_tile[1] + column",
        aligned=f"({not row}, {not column})",
    )


def pair_lines(problem: GemmProblem) -> Iterable[str]:
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
    return t.dtype.bytes if threads else TMA_ALIGNMENT


def symbol_lines(problem: GemmProblem, shapes: dict[str, TensorShape]) -> Iterable[str]:
    """One symbol per dynamic dim; its divisibility is what the most demanding tensor needs."""
    parts = {d.name: d for s in shapes.values() for d in s.dims if d.divisor > 1}
    own = [problem.gather.extent] if problem.gather and problem.gather.extent not in (problem.m, problem.n) else []
    for dim in filter(None, (problem.batch, *own, problem.m, problem.n, problem.k, *parts.values())):
        if dim.value is None:
            multiples = [
                s.multiple for s in shapes.values() if s.contiguous is not None and s.dims[s.contiguous] == dim
            ]
            multiples += [step for s in shapes.values() for d, step in zip(s.dims, s.steps) if d == dim]
            divisibility = f", divisibility={max(multiples)}" if max(multiples, default=1) > 1 else ""
            yield f'{symbol(dim)} = cute.sym_int(symbol="{dim.name}"{divisibility})'


def symbol(dim: ProblemDim) -> str:
    """The name of a dynamic extent in generated source."""
    return f"{dim.base}_over_{dim.divisor}{'_up' * dim.up}" if dim.divisor > 1 else dim.name


def fake_text(name: str, shapes: dict[str, TensorShape]) -> FakeText:
    s = shapes.get(name)
    if s is None:
        return FakeText(f"{name}: f32", "Float32(0.0)")
    divisibility = f"divisibility={s.stride_multiple}" if s.stride_multiple > 1 else ""
    extents = _tuple(symbol(d) if d.value is None else str(d.value) for d in s.dims)
    strides = _tuple("1" if axis == s.contiguous else f"cute.sym_int64({divisibility})" for axis in range(len(s.dims)))
    parts = (s.dtype.cutlass, extents, strides, f"assumed_align={s.align}")
    return FakeText(s.text, bracketed("make_fake_tensor(", parts, ")", indent=8, used=1))


def _tuple(items: Iterable[str]) -> str:
    items = tuple(items)
    return f"({items[0]},)" if len(items) == 1 else f"({', '.join(items)})"
