"""From a resolved MLA decode to the objects its templates read: every name, number and expression is decided here."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from cutegen.arch import ARCHS
from cutegen.families.call_text import CallText, OperandText, call_text
from cutegen.families.mla_decode.cache_text import CacheText, cache_text
from cutegen.families.mla_decode.derived import (
    QUERY_BOXES,
    SINGLE_WARPS,
    TILE_COLUMNS,
    list_named_barriers,
)
from cutegen.families.mla_decode.lowering import lowering_of
from cutegen.families.mla_decode.problem import MlaTensor, promise_text
from cutegen.families.mla_decode.resolved import CALL_DIMS, FreeGroup, ResolvedMla, ResolvedMlaTiling
from cutegen.families.mla_decode.tile_ownership import draw_tiles
from cutegen.families.plan_text import TilingsText, Winners, list_winners, rows_of_all_devices, tilings_text
from cutegen.families.resolved import DispatchRow
from cutegen.model.header import list_barriers, list_roles
from cutegen.model.kernel import KernelModel, name_numbers
from cutegen.model.timeline import draw_timeline
from cutegen.render.environment import render_template
from cutegen.runtime.mla_decode.cache_format import CacheFormat, ExtraKeys
from cutegen.runtime.mla_decode.inputs import LATENT_DIM
from cutegen.runtime.mla_decode.tiling import KEY_BLOCK

BLOCKS_PER_PAGE = "(PAGE // KEY_BLOCK)"  # source: constants of the kernel module


@dataclass(frozen=True, slots=True)
class QueryText:
    """One tensor of queries. tiles, first_tile: of 64 columns, and where they begin in a row of Q."""

    name: str
    columns: int
    tiles: int
    first_tile: int


@dataclass(frozen=True, slots=True)
class KernelText:
    """What kernel.py.jinja and its parts read. model: of the first tiling. warps: numbers of single ones, by what they
    do. threads: of named barriers, by the constant of their number. box_rows: keys of one TMA copy; boxes: copies that
    fill a tile. query_boxes: rows of Q of one TMA copy, ascending. guesses: whether a part is found
    before the wait as well. cache: where it is quantised. sparse: keys are named by indices. table, lengths: the
    arguments that say where keys are and how many. sink: whether there is one. piece: pairs of key blocks of a piece
    where requests are cut by their own lengths alone, else 0. extra: rows of a page of the second cache, 0: there is
    none. head: columns of Q and K; p_tile: source, the tile of a buffer of K that P lies in."""

    name: str
    title: str
    overview: tuple[str, ...]
    model: KernelModel
    warps: Mapping[str, int]
    barrier_numbers: tuple[tuple[str, int, bool], ...]
    threads: Mapping[str, int]
    cutlass_names: tuple[str, ...]
    dtype: str
    short_dtype: str
    queries: tuple[QueryText, ...]
    query_boxes: tuple[int, ...]
    causal: bool
    page_size: int
    box_rows: int
    boxes: int
    gmem_box: str
    gmem_box_ahead: str
    free_groups: tuple[FreeGroup, ...]
    score_order: tuple[tuple[int, ...], tuple[int, ...]]
    lse_scale: str
    lse_dims: str
    lse_head_axis: int
    lse_token_axis: int
    arguments: tuple[str, ...]
    guesses: bool
    cache: CacheText | None
    sparse: bool
    table: str
    lengths: str
    sink: bool
    piece: int
    extra: int
    head: int
    p_tile: str

    @property
    def all_lengths(self) -> str:
        """Source: what says how many keys there are, of two caches a pair."""
        return "(args.topk_length, args.extra_topk_length)" if self.extra else f"args.{self.lengths}"

    @property
    def narrow(self) -> bool:
        """Whether P has a place of its own, behind the tiles of K."""
        return self.head == LATENT_DIM


def kernel_text(resolved: ResolvedMla) -> KernelText:
    problem = resolved.problem
    first = resolved.tilings[0]
    barriers = list_named_barriers(problem)
    only = ["Uint8"] * (problem.cache is not None) + ["Int16"] * (not problem.by_rows)
    # A mask by lengths, and whether a piece is a request's last.
    only += ["Boolean"] * (not problem.sparse or problem.piece > 0)
    halves = problem.page_size > KEY_BLOCK  # a block is a part of a page
    _, lse = problem.outputs
    return KernelText(
        name=resolved.name,
        title=f"{'Sparse ' * problem.sparse}MLA decode for {resolved.arch}: {problem.dtype}, pages of "
        f"{problem.page_size}, split-KV in one launch.",
        overview=tuple(_overview(resolved)),
        model=first.model,
        warps={name: warps.first for name, warps in SINGLE_WARPS.items()},
        barrier_numbers=tuple(name_numbers(barriers)),
        threads={barrier.family or barrier.name: barrier.threads for barrier in barriers},
        cutlass_names=(
            *sorted({problem.dtype.cutlass, "Float16", "Float32", "Int32", "Int64", *only}),
            "const_expr",
        ),
        dtype=problem.dtype.cutlass,
        short_dtype=problem.dtype.name,
        queries=tuple(list_queries(resolved)),
        query_boxes=QUERY_BOXES,
        causal=problem.mask == "causal",
        page_size=problem.page_size,
        box_rows=KEY_BLOCK // problem.boxes,
        boxes=problem.boxes,
        gmem_box=f"(lo + 2 * step + buffer) % {BLOCKS_PER_PAGE}" if halves else "0",
        gmem_box_ahead=f"(lo + 2 * step + 2 + box) % {BLOCKS_PER_PAGE}" if halves else "0",
        free_groups=first.free_groups,
        score_order=score_order(first),
        lse_scale="0.6931471805599453" if problem.lse_base == "e" else "1.0",
        lse_dims=", ".join(lse.dims),
        lse_head_axis=lse.dims.index("heads"),
        lse_token_axis=lse.dims.index("query_len"),
        arguments=tuple(list_arguments(resolved)),
        guesses=not problem.by_rows and any(t.numbers.pdl_schedule_ahead for t in resolved.tilings),
        cache=cache_text(problem),
        sparse=problem.sparse,
        table=problem.table,
        lengths=problem.lengths,
        sink=problem.sink,
        piece=problem.piece // (2 * KEY_BLOCK),
        extra=problem.extra.page_size if problem.extra else 0,
        head=problem.head_dim,
        p_tile="P_TILE" if problem.narrow else "ROPE",
    )


def score_order(tiling: ResolvedMlaTiling) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Tiles in the order in which each warpgroup reads them for its scores: first those that it frees itself."""
    own = {(g.buffer, g.warpgroup): g.tiles for g in tiling.free_groups}
    return (*own[0, 0], *own[0, 1]), (*own[1, 1], *own[1, 0])


def list_queries(resolved: ResolvedMla) -> Iterable[QueryText]:
    begin = 0
    for tensor in resolved.problem.inputs:
        if tensor.name.startswith("q"):
            columns = int(tensor.dims[-1])
            yield QueryText(tensor.name, columns, columns // TILE_COLUMNS, begin // TILE_COLUMNS)
            begin += columns


def list_arguments(resolved: ResolvedMla) -> Iterable[str]:
    p = resolved.problem
    yield from (t.name for t in (*p.inputs, *p.outputs, *p.scratch) if t.dims)
    yield from ("softmax_scale", "parts")


def _overview(resolved: ResolvedMla) -> Iterable[str]:
    """Roles, pipelines and named barriers of the module docstring."""
    tiling = resolved.tilings[0]
    yield from list_roles(tiling.model.roles, tiling.name if len(resolved.tilings) > 1 else "")
    yield ""
    yield "Pipelines (producer -> consumer):"
    for pipe in tiling.model.pipelines:
        yield f"  {pipe.name}: {pipe.producer} -> {pipe.consumer}, {pipe.stages} x {pipe.stage_bytes} bytes"
        yield f"    full: {pipe.full}"
        yield f"    empty: {pipe.empty}"
    yield ""
    yield from list_barriers(tiling.model.barriers)
    yield ""
    yield from draw_timeline(tiling.model, "a launch")
    yield ""
    tiles, values = (n // TILE_COLUMNS for n in (resolved.problem.head_dim, resolved.problem.value_dim))
    yield from draw_tiles(tiles, values, tiling.free_groups, score_order(tiling))


@dataclass(frozen=True, slots=True)
class PlanText:
    """What plan.py.jinja, init.py.jinja and main.py.jinja read."""

    name: str
    arch: str
    formula: str
    dtype: str
    heads: str
    query_len: str
    page_size: int
    causal: bool
    split_q: bool
    lse_base: str
    lse_layout: str
    tilings: TilingsText
    dispatch: tuple[DispatchRow, ...]
    winners: Winners
    anywhere: tuple[str, ...]
    cache: CacheFormat | None
    topk: str
    sink: bool
    piece: int
    extra: ExtraKeys | None
    requests: str
    archs: tuple[str, ...]
    module: str


def plan_text(resolved: ResolvedMla) -> PlanText:
    p, dispatch = resolved.problem, rows_of_all_devices(resolved.dispatch)
    return PlanText(
        name=resolved.name,
        arch=resolved.arch,
        formula=f"{'Sparse ' * p.sparse}MLA decode, {p.dtype}, {promise_text(p.heads)} heads, "
        f"query_len {promise_text(p.query_len)}" + (f", topk {promise_text(p.topk)}" if p.topk else ""),
        dtype=p.dtype.torch,
        heads=str(resolved.dims["heads"]),
        query_len=str(resolved.dims["query_len"]),
        page_size=p.page_size,
        causal=p.mask == "causal",
        split_q=p.q == "split",
        lse_base=p.lse_base,
        lse_layout=p.lse_layout,
        tilings=tilings_text(resolved.tilings),
        dispatch=dispatch,
        winners=list_winners(resolved.dispatch, CALL_DIMS, p.length),
        anywhere=tuple(dict.fromkeys(row.tiling for row in dispatch)),
        cache=p.cache,
        topk=str(resolved.dims["topk"]) if p.sparse else "",
        sink=p.sink,
        piece=p.piece,
        extra=p.extra,
        requests=p.requests,
        archs=resolved.archs,
        module=resolved.tilings[0].module,
    )


def mla_call_text(resolved: ResolvedMla) -> CallText:
    """The function of the package: its operands and results in words."""
    problem = resolved.problem
    inputs = [_operand_text(t) for t in problem.inputs]
    return call_text(
        resolved.function, inputs, [_operand_text(t) for t in problem.outputs], [t.name for t in problem.outputs]
    )


def _operand_text(tensor: MlaTensor) -> OperandText:
    shape = f"{tensor.dtype}[{', '.join(tensor.dims)}], " if tensor.dims else ""
    return OperandText(tensor.name, shape + tensor.is_, scalar=not tensor.dims)


def render(resolved: ResolvedMla, *others: ResolvedMla) -> dict[str, str]:
    """The text of the package's modules, by file name. others: the same problem for more architectures."""
    plan = plan_text(resolved)
    texts = {
        "__init__.py": render_template("_shared/init.py.jinja", p=plan, c=mla_call_text(resolved)),
        "__main__.py": render_template("_shared/main.py.jinja", p=plan),
        "plan.py": render_template("mla_decode/plan.py.jinja", p=plan, shared=True, own=not others),
    }
    for of_arch in (resolved, *others):
        folder, text = ARCHS[of_arch.arch].folder, lowering_of(of_arch.arch).kernel_text(of_arch)
        texts[f"{of_arch.tilings[0].module}.py"] = render_template(f"mla_decode/{folder}/kernel.py.jinja", k=text)
        if others:
            own_plan = render_template("mla_decode/plan.py.jinja", p=plan_text(of_arch), shared=False, own=True)
            texts[f"plan_{of_arch.arch}.py"] = own_plan
    return texts
