"""From a resolved MLA decode to the objects its templates read: every name, number and expression is decided here."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from cutegen.arch import ARCHS
from cutegen.arch.architecture import WARPGROUP_THREADS
from cutegen.families.call_text import CallText, OperandText, call_text
from cutegen.families.mla_decode.derived import (
    CONSUMERS,
    FREE_ORDER,
    QUERY_BOXES,
    SINGLE_WARPS,
    TILE_COLUMNS,
    list_named_barriers,
)
from cutegen.families.mla_decode.lowering import lowering_of
from cutegen.families.mla_decode.problem import MlaProblem, MlaTensor, promise_text
from cutegen.families.mla_decode.problem_rules import CHUNK
from cutegen.families.mla_decode.resolved import CALL_DIMS, FreeGroup, ResolvedMla, ResolvedMlaTiling
from cutegen.families.mla_decode.tile_ownership import draw_tiles
from cutegen.families.plan_text import TilingsText, Winners, list_winners, rows_of_all_devices, tilings_text
from cutegen.families.resolved import DispatchRow
from cutegen.model.header import list_barriers, list_roles
from cutegen.model.kernel import KernelModel, name_numbers
from cutegen.model.timeline import draw_timeline
from cutegen.render.environment import render_template
from cutegen.runtime.mla_decode.cache_format import CacheFormat
from cutegen.runtime.mla_decode.inputs import LATENT_DIM
from cutegen.runtime.mla_decode.tiling import KEY_BLOCK

VALUE_TILES = LATENT_DIM // TILE_COLUMNS
BLOCKS_PER_PAGE = "(PAGE // KEY_BLOCK)"  # source: constants of the kernel module


@dataclass(frozen=True, slots=True)
class QueryText:
    """One tensor of queries. tiles, first_tile: of 64 columns, and where they begin in a row of Q."""

    name: str
    columns: int
    tiles: int
    first_tile: int


@dataclass(frozen=True, slots=True)
class CacheText:
    """How the decoder reads a quantised row. threads: of the decoder. chunks, rope_chunks: 16 bytes of a thread, of
    half of a block's latent part and of its rotary part; rope_rows: rows of the latter that a warpgroup takes at once.
    latent_byte, rope_byte: source, what is added to a byte of a part to have that of its row. rope_tile: of K, that
    the rotary part is; None: a row has none."""

    threads: int
    chunks: int
    rope_chunks: int
    rope_rows: int
    latent_byte: str
    rope_byte: str
    rope_tile: int | None
    format: CacheFormat | None

    @property
    def quantised(self) -> bool:
        return self.format is not None

    @property
    def loader(self) -> str:
        """The role that loads K, as params.py.jinja calls it."""
        return "decode_k" if self.quantised else "copy_k"

    @property
    def row_bytes(self) -> int:
        assert self.format
        return self.format.row_bytes

    @property
    def per_tensor(self) -> bool:
        return self.format is not None and self.format.per_tensor

    @property
    def token_bytes(self) -> int:
        assert self.format
        return self.format.token_bytes

    @property
    def rope_in_value(self) -> bool:
        """Whether V has the rotary part as well, as the last of its tiles."""
        return self.rope_tile is not None and self.rope_tile < VALUE_TILES

    @property
    def plane_bytes(self) -> int:
        """Of a row's scales behind the rows of a page; 0: they lie in the row."""
        return self.format.plane_bytes if self.format else 0

    @property
    def scale_codes(self) -> bool:
        """Whether scales are exponents, a byte each."""
        return self.format is not None and self.format.scale_dtype == "e8m0"

    @property
    def scale_element(self) -> str:
        """What a lane loads scales as."""
        return "Int32" if self.scale_codes else "Float32"

    @property
    def scale_words(self) -> int:
        """Words of a row's scales, as a lane loads them."""
        assert self.format
        return -(-self.format.scale_bytes // 4) if not self.plane_bytes else self.plane_bytes // 4

    @property
    def scale_align(self) -> int:
        """Bytes that a row's scales are aligned by, as far as a load can use it."""
        assert self.format
        return math.gcd(CHUNK, self.plane_bytes or self.format.scale_offset)

    @property
    def _scales_of_half(self) -> int:
        """Of one with all its values; the other may have fewer."""
        assert self.format
        return max(1, LATENT_DIM // CONSUMERS // (self.format.scale_block or LATENT_DIM))

    @property
    def words(self) -> int:
        """Words that hold the factors of a half, two in each."""
        return -(-self._scales_of_half // 2)

    @property
    def factors(self) -> Iterable[tuple[int, int, int, int]]:
        """(half, word, scale in its lower half, scale in its upper half); the last one twice, if they are odd."""
        assert self.format
        for half in range(CONSUMERS):
            first = half * (LATENT_DIM // CONSUMERS) // self.format.scale_block
            last = min(first + self._scales_of_half, self.format.scales) - 1
            for word in range(self.words):
                low = first + 2 * word
                yield half, word, min(low, last), min(low + 1, last)

    def scale_of(self, tile: str) -> str:
        """Source: the number of a tile's scale, both counted within a half."""
        tiles = LATENT_DIM // CONSUMERS // TILE_COLUMNS // self._scales_of_half
        return f"{tile} // {tiles}" if tiles > 1 else tile


def _cache_text(problem: MlaProblem) -> CacheText | None:
    if not problem.by_rows:
        return None
    cache = problem.cache
    # The decoder counts groups: two of each buffer, and the warpgroup that frees the first takes turns.
    assert [(b, w) for b, w, _ in FREE_ORDER] == [(i >> 1, (i >> 1) ^ i % 2) for i in range(len(FREE_ORDER))]
    whole = {"latent": (0, 2 * problem.latent_dim), "rope": (2 * problem.latent_dim, 2 * problem.rope_dim)}
    parts = cache.parts if cache else whole
    latent_at, latent = parts["latent"]
    rope_at, rope = parts.get("rope", (0, 0))
    # A half of V is what a thread has chunks of, also where the rotary part is the last tile of one.
    per_thread = KEY_BLOCK * latent * LATENT_DIM // problem.latent_dim // (CHUNK * WARPGROUP_THREADS)
    return CacheText(
        threads=WARPGROUP_THREADS,
        chunks=per_thread // CONSUMERS,
        rope_chunks=KEY_BLOCK * rope // (CHUNK * WARPGROUP_THREADS),
        rope_rows=CHUNK * WARPGROUP_THREADS // rope if rope else 0,
        latent_byte=f"{latent_at} + " if latent_at else "",
        rope_byte=f"{rope_at} + " if rope_at else "",
        rope_tile=problem.latent_dim // TILE_COLUMNS if rope else None,
        format=cache,
    )


@dataclass(frozen=True, slots=True)
class KernelText:
    """What kernel.py.jinja and its parts read. model: of the first tiling. warps: numbers of single ones, by what they
    do. threads: of named barriers, by the constant of their number. box_rows: keys of one TMA copy; boxes: copies that
    fill a tile. query_boxes: rows of Q of one TMA copy, ascending. guesses: whether a part is found
    before the wait as well. cache: where it is quantised. sparse: keys are named by indices. table, lengths: the
    arguments that say where keys are and how many. sink: whether there is one. piece: pairs of key blocks of a piece
    where requests are cut by their own lengths alone, else 0. head: columns of Q and K; p_tile: source, the tile of a
    buffer of K that P lies in."""

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
    head: int
    p_tile: str

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
        cache=_cache_text(problem),
        sparse=problem.sparse,
        table=problem.table,
        lengths=problem.lengths,
        sink=problem.sink,
        piece=problem.piece // (2 * KEY_BLOCK),
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
