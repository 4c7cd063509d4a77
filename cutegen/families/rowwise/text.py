"""What the templates of row kernels read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from cutegen.epilogue import Operand, Output
from cutegen.epilogue.rounds import RowReduction
from cutegen.epilogue.row_source import divided_lines, row_torch_lines
from cutegen.epilogue.source import imports_of, torch_functions
from cutegen.epilogue.tree import Pairing
from cutegen.families.argument_text import FakeArgument, Symbol, fake_argument, known_extent, list_symbols
from cutegen.families.call_text import OperandText, call_text
from cutegen.families.optional_operands import list_omissions
from cutegen.families.package_text import package_modules
from cutegen.families.plan_text import TilingsText, Winners, list_winners, rows_of_all_devices, tilings_text
from cutegen.families.resolved import ResolvedTiling
from cutegen.families.rowwise.candidate import asked_for, early_columns
from cutegen.families.rowwise.problem import RowProblem, first_number
from cutegen.families.rowwise.round_text import RoundText, RowFunctionText, find_inverses, function_text, round_text
from cutegen.families.single import SingleKernel
from cutegen.families.tensor_problem import dtype_of
from cutegen.model.kernel import KernelModel
from cutegen.render.environment import render_template
from cutegen.render.layout import import_order, statement
from cutegen.runtime.arguments import Argument, Extent, ScalarArg, TensorArg, divided
from cutegen.runtime.rowwise.plan import SCRATCH, RowTiling


@dataclass(frozen=True, slots=True)
class RowsText:
    """A tensor with rows. axes: where each of their dims is in it, the last first; None where its values are the same
    for all. columns: whether it has any."""

    name: str
    axes: tuple[int | None, ...]
    columns: bool


@dataclass(frozen=True, slots=True)
class ElementsText:
    """What is loaded or stored at once. names: of its values, two where a tensor has them in turn; tensor: what it lies
    in, or a half of it."""

    names: tuple[str, ...]
    tensor: str

    def targets(self, ending: str) -> str:
        return ", ".join(f"{name}_{ending}" for name in self.names)

    def used(self, read: Iterable[str]) -> bool:
        return not {*read}.isdisjoint(self.names)


@dataclass(frozen=True, slots=True)
class RowKernelText:
    """What kernel.py.jinja reads as k. first: a tensor with all dims; with_rows: all tensors with rows. halved: whether
    each half of the columns is a value of its own; halves, half_columns: names of tensors that have both halves, with
    rows and without. tiles, of_rows, device_scalars: inputs by kind; early, late: those of columns that are ready
    before the kernel in front starts, and the others; asked_for: inputs whose next row L2 loads meanwhile; index: the
    name of an element's place, "" where none is read. stored, stored_rows: names of outputs with a value for each
    element, and for each row; stored_blocks: for each block, which `lanes` threads have; sums: those that are
    reductions over rows; exponents: those that are powers of two as e8m0. exchanges: whether warps exchange totals by
    shared memory. clusters: whether CTAs of a cluster may share a row; row_threads: those of a row in all of them.
    imports: of functions.
    """

    name: str
    title: str
    dtypes: tuple[str, ...]
    imports: Mapping[str, tuple[str, ...]]
    rounds: tuple[RoundText, ...]
    after: RowFunctionText | None
    first: str
    with_rows: tuple[RowsText, ...]
    halved: bool
    halves: tuple[str, ...]
    half_columns: tuple[str, ...]
    rank: int
    tiles: tuple[ElementsText, ...]
    early: tuple[ElementsText, ...]
    late: tuple[ElementsText, ...]
    asked_for: tuple[str, ...]
    of_rows: tuple[Operand, ...]
    device_scalars: tuple[Operand, ...]
    index: str
    blocks: RoundText | None
    elements_after: tuple[str, ...]
    lanes: int
    stored: tuple[ElementsText, ...]
    sums: tuple[RowReduction, ...]
    stored_blocks: tuple[str, ...]
    stored_rows: tuple[str, ...]
    exponents: tuple[str, ...]
    parameters: tuple[str, ...]
    symbols: tuple[Symbol, ...]
    fakes: tuple[FakeArgument, ...]
    names: tuple[str, ...]
    reductions: int
    exchanges: bool
    held: bool
    clusters: bool
    row_threads: str
    streamed: bool
    prefetch: bool
    pdl_wait: bool
    pdl_trigger: bool
    model: KernelModel


@dataclass(frozen=True, slots=True)
class RowReferenceText:
    """Statements of calls that leave out these operands."""

    omitted: tuple[str, ...]
    lines: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RowPlanText:
    """What plan.py.jinja, init.py.jinja and main.py.jinja read as p. references: those without most operands first.
    winners: by device; anywhere: tilings that run where there are none, if there are others."""

    name: str
    arch: str
    formula: str
    family: str
    dims: Mapping[str, Extent]
    inputs: tuple[Argument, ...]
    outputs: tuple[TensorArg, ...]
    aliases: Mapping[str, str]
    columns: str
    summed: bool
    prefetch: bool
    pairing: Pairing | None
    over_rows: tuple[str, ...]
    exponents: tuple[str, ...]
    flops: int
    approximation: Mapping[str, float]
    functions: tuple[str, ...]
    references: tuple[RowReferenceText, ...]
    tilings: TilingsText
    winners: Winners
    anywhere: tuple[str, ...]


def render_kernel(resolved: SingleKernel) -> dict[str, str]:
    """The text of the package's modules, by file name."""
    p = resolved.problem
    operands, results = (
        [OperandText(a.name, p.describe(a).partition(": ")[2], isinstance(a, ScalarArg), a.optional) for a in side]
        for side in (p.inputs, p.outputs)
    )
    call = call_text(resolved.function, operands, results, [r.name for r in results])
    return package_modules(resolved, call=call, template="rowwise/plan.py.jinja", plan=plan_text, kernels=_kernels)


def _kernels(resolved: SingleKernel) -> dict[str, str]:
    return {
        f"{tiling.module}.py": render_template("rowwise/sm90/kernel.py.jinja", k=kernel_text(resolved, tiling))
        for tiling in {t.module: t for t in resolved.tilings}.values()
    }


def plan_text(resolved: SingleKernel) -> RowPlanText:
    p: RowProblem = resolved.problem
    references = {
        omitted: row_torch_lines(own.program, [o.name for o in own.program.outputs if o.name in own.elements])
        for omitted in ((), *list_omissions(p.optional))
        for own in [p.without(omitted)]
    }
    default = tuple(row.tiling for row in rows_of_all_devices(resolved.dispatch))
    return RowPlanText(
        name=resolved.name,
        arch=resolved.arch,
        formula=p.formula,
        family=resolved.family,
        dims=p.dims,
        inputs=p.inputs,
        outputs=p.outputs,
        aliases=dict(p.aliases),
        columns=p.columns,
        summed=p.held,
        prefetch=resolved.candidate.prefetch,
        pairing=p.program.pairing,
        over_rows=tuple(r.name for r in p.program.reductions),
        exponents=p.exponents,
        flops=p.flops,
        approximation=p.errors,
        functions=torch_functions([line for lines in references.values() for line in lines]),
        references=tuple(
            RowReferenceText(omitted, tuple(statement(line, indent=8 + 4 * (len(references) > 1)) for line in lines))
            for omitted, lines in reversed(references.items())
        ),
        tilings=tilings_text(resolved.tilings),
        winners=list_winners(resolved.dispatch, (), p.columns),
        anywhere=default if len(default) < sum(p.of_tiling(t.name) is p for t in resolved.tilings) else (),
    )


def kernel_text(resolved: SingleKernel, tiling: ResolvedTiling[RowTiling]) -> RowKernelText:
    """Of the module that a tiling is an instance of."""
    p: RowProblem = resolved.problem.of_tiling(tiling.name)
    held = p.held and tiling.numbers.most > 0
    cut = p.held_cut if held else p.streamed_cut
    clusters = any(t.module == tiling.module and t.numbers.cluster > 1 for t in resolved.tilings)
    args = (*p.inputs, *p.outputs)
    tensors = [a for a in args if isinstance(a, TensorArg)]
    scratch = SCRATCH if p.computed.reductions else ()
    inverses = find_inverses(p, cut)
    rounds = tuple(round_text(p, str(number), r, inverses) for number, r in enumerate(cut.rounds, first_number(cut)))
    stored = tuple(o.name for o in p.computed.outputs if o.name in p.elements)
    sums = tuple(RowReduction(r.name, r.op) for r in p.computed.reductions)
    gives = (*stored, *(r.name for r in sums))
    lines = divided_lines(p.computed, cut.after, inverses)
    after = (
        function_text(p, "finish", "The outputs at one element.", lines, cut.after, gives, inverses) if gives else None
    )
    blocks = round_text(p, "block", cut.blocks, inverses) if cut.blocks else None
    parts = (*rounds, blocks) if blocks else rounds
    functions = [f for r in parts for f in (r.each, *(x.each for x in r.picks), r.once) if f]
    functions += [after] if after else []
    vectors = p.operands("row_vector")
    early = early_columns(p, resolved.candidate) if held else ()
    split = p.halved and not p.interleaved
    whole = tuple(a.name for a in tensors if a.dims[-1:] == (p.columns,) and len(a.dims) == len(p.rows) + 1)
    return RowKernelText(
        name=resolved.name,
        title=f"{p.formula}, for {resolved.arch}.",
        dtypes=tuple(sorted({*(dtype_of(a).cutlass for a in tensors), "Float32", "Int32"}, key=import_order)),
        imports=imports_of(p.computed, [line for f in functions for line in f.lines]),
        rounds=rounds,
        after=after,
        first=whole[0],
        with_rows=tuple(
            RowsText(a.name, _axes(p, a), a.dims[-1] not in p.rows) for a in tensors if {*a.dims} & {*p.rows}
        ),
        halved=p.halved,
        halves=tuple(a.name for a in tensors if split and a.dims[-1:] == (p.columns,) and len(a.dims) > 1),
        half_columns=tuple(a.name for a in tensors if split and a.dims == (p.columns,)),
        rank=len(p.rows),
        tiles=_elements_text(p, p.operands("tile")),
        early=_elements_text(p, early),
        late=_elements_text(p, [o for o in vectors if o not in early]),
        asked_for=tuple(o.name for o in asked_for(p, resolved.candidate)),
        of_rows=p.operands("column_vector"),
        device_scalars=p.operands("device_scalar"),
        index=next((o.name for o in p.operands("index")), ""),
        blocks=blocks,
        elements_after=tuple(
            o.name
            for o in p.computed.operands
            if any(o.name in f.elements for f in (after, blocks and blocks.each) if f)
        ),
        lanes=p.computed.block // p.vector,
        stored=_elements_text(p, [o for o in p.computed.outputs if o.name in stored]),
        sums=sums,
        stored_blocks=tuple(o.name for o in p.computed.block_outputs),
        stored_rows=tuple(o.name for o in p.computed.outputs if o.name not in p.elements),
        exponents=p.exponents,
        parameters=tuple(
            f"{a.name}: {'Float32' if isinstance(a, ScalarArg) else 'cute.Tensor'}" for a in (*args, *scratch)
        ),
        symbols=tuple(list_symbols(p.dims, tensors)),
        fakes=tuple(
            FakeArgument(p.describe(a), "Float32", None) if isinstance(a, ScalarArg) else _fake_argument(p, a)
            for a in args
        )
        + tuple(FakeArgument("scratch", dtype_of(a).cutlass, (Symbol("", a.name),), 0, a.align) for a in scratch),
        names=tuple(a.name for a in (*args, *scratch)),
        reductions=max((len(r.ops) for r in rounds), default=0),
        exchanges=any(region.name == "totals" for region in tiling.model.smem),
        held=held,
        clusters=clusters,
        row_threads="t.row_threads" if clusters else "t.threads",
        streamed=p.held and not held,
        prefetch=resolved.candidate.prefetch and held,
        pdl_wait=resolved.candidate.pdl_wait,
        pdl_trigger=resolved.candidate.pdl_trigger != "none",
        model=tiling.model,
    )


def _elements_text(p: RowProblem, tensors: Sequence[Operand | Output]) -> tuple[ElementsText, ...]:
    """Both values of a tensor together, where it has them in turn."""
    found: dict[str, tuple[str, ...]] = {}
    for tensor in tensors:
        together = p.interleaved and tensor.part_of
        lies_in = tensor.part_of.name if together and tensor.part_of else tensor.name
        found[lies_in] = (*found.get(lies_in, ()), tensor.name)
    return tuple(ElementsText(names, name) for name, names in found.items())


def _axes(p: RowProblem, arg: TensorArg) -> tuple[int | None, ...]:
    return tuple(arg.dims.index(dim) if dim in arg.dims else None for dim in reversed(p.rows))


def _fake_argument(p: RowProblem, arg: TensorArg) -> FakeArgument:
    """As the compiler is told of it; the number of a row's blocks is a symbol of its own, or known."""
    name, divisor = divided(arg.dims[-1]) if arg.dims else ("", 1)
    dtype = dtype_of(arg)
    if divisor == 1:
        return fake_argument(p.describe(arg), dtype, arg, p.dims)
    extent = p.dims[name]
    count = -(-extent // divisor) if isinstance(extent, int) else 0
    last = count if count > 1 else Symbol("", "", arg.multiple)
    rows = tuple(known_extent(d, p.dims[d]) for d in arg.dims[:-1])
    multiple = dtype.fit(arg.align) if arg.multiple > 1 or arg.padded else 1
    return FakeArgument(p.describe(arg), dtype.cutlass, (*rows, last), arg.contiguous, arg.align, multiple)
