"""From a resolved MLA decode to the objects its templates read: every name, number and expression is decided here."""

from __future__ import annotations

from dataclasses import dataclass, replace

from cutegen.arch import ARCHS
from cutegen.families.call_text import CallText, OperandText, call_text
from cutegen.families.mla_decode.derived import (
    BUFFERS,
    CONSUMERS,
    SINGLE_WARPS,
    TILE_COLUMNS,
    few_rows,
    list_named_barriers,
    loaders,
    query_boxes,
)
from cutegen.families.mla_decode.kernel_text import MlaKernelText, list_overview, shared_text
from cutegen.families.mla_decode.lowering import lowering_of
from cutegen.families.mla_decode.problem import MlaTensor, promise_text
from cutegen.families.mla_decode.resolved import CALL_DIMS, FreeGroup, ResolvedMla, ResolvedMlaTiling
from cutegen.families.mla_decode.tile_ownership import draw_tiles
from cutegen.families.package_text import package_modules
from cutegen.families.plan_text import TilingsText, Winners, list_winners, rows_of_all_devices, tilings_text
from cutegen.families.resolved import DispatchRow
from cutegen.render.environment import render_template
from cutegen.runtime.mla_decode.cache_format import CacheFormat, ExtraKeys
from cutegen.runtime.mla_decode.inputs import LATENT_DIM
from cutegen.runtime.mla_decode.tiling import KEY_BLOCK

BLOCKS_PER_PAGE = "(PAGE // KEY_BLOCK)"  # source: constants of the kernel module


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelText(MlaKernelText):
    """What kernel.py.jinja and its parts read on sm_90a. warps: numbers of single ones, by what they do. box_rows: keys
    of one TMA copy; boxes: copies that fill a tile. query_boxes: rows of Q of one TMA copy, ascending. guesses: whether
    a part is found before the wait as well. head: columns of Q and K; p_tile: source, the tile of a buffer of K that P
    lies in. few_rows: of Q, where keys are on M, else 0. loaders: warpgroups that load keys."""

    query_boxes: tuple[int, ...]
    box_rows: int
    boxes: int
    gmem_box: str
    gmem_box_ahead: str
    free_groups: tuple[FreeGroup, ...]
    score_order: tuple[tuple[int, ...], tuple[int, ...]]
    guesses: bool
    head: int
    p_tile: str
    few_rows: int
    loaders: int

    @property
    def narrow(self) -> bool:
        """Whether P has a place of its own, behind the tiles of K."""
        return self.head == LATENT_DIM

    @property
    def last_warp(self) -> int:
        """Of a CTA."""
        return max(role.warps.last for role in self.model.roles)

    @property
    def first_groups(self) -> int:
        """Source: groups of tiles, halves of blocks, that the buffers of a warpgroup that loads rows hold."""
        return CONSUMERS * BUFFERS // self.loaders

    @property
    def block(self) -> str:
        """Source: which of the two blocks that lanes have found rows of is loaded: of a pair in turn, or of two."""
        return "block" if self.loaders > 1 else "buffer"

    @property
    def q_rows(self) -> str:
        """Source: rows of Q in shared memory."""
        return "ROWS" if self.few_rows else "ROW_BLOCK"

    @property
    def own_rows(self) -> str:
        """Source: how many rows a thread has values of."""
        return "OWN_ROWS" if self.few_rows else "2"

    @property
    def own_row(self) -> str:
        """Source: of its r-th one, the row of Q."""
        return "row + 8 * (r // 2) + r % 2" if self.few_rows else "row + 8 * r"


def kernel_text(resolved: ResolvedMla) -> KernelText:
    problem = resolved.problem
    first = resolved.tilings[0]
    only = ["Uint8"] * (problem.cache is not None or problem.extra is not None) + ["Int16"] * (not problem.by_rows)
    # A mask by lengths, and whether a piece is a request's last.
    few = few_rows(problem, first.candidate)
    only += ["Boolean"] * (not problem.sparse or problem.piece > 0 or few > 0)
    halves = problem.page_size > KEY_BLOCK  # a block is a part of a page
    tiles, values = (n // TILE_COLUMNS for n in (problem.head_dim, problem.value_dim))
    order = score_order(first)
    return KernelText(
        **shared_text(resolved, list_named_barriers(problem, first.candidate), problem.dtype, only),
        title=f"{'Sparse ' * problem.sparse}MLA decode for {resolved.arch}: {problem.dtype}, pages of "
        f"{problem.page_size}, split-KV in one launch.",
        overview=(*list_overview(resolved), "", *draw_tiles(tiles, values, first.free_groups, order)),
        warps={name: warps.first for name, warps in SINGLE_WARPS.items()},
        query_boxes=query_boxes(problem, first.candidate),
        box_rows=KEY_BLOCK // problem.boxes,
        boxes=problem.boxes,
        gmem_box=f"(lo + 2 * step + buffer) % {BLOCKS_PER_PAGE}" if halves else "0",
        gmem_box_ahead=f"(lo + 2 * step + 2 + box) % {BLOCKS_PER_PAGE}" if halves else "0",
        free_groups=first.free_groups,
        score_order=order,
        guesses=not problem.by_rows and any(t.numbers.pdl_schedule_ahead for t in resolved.tilings),
        head=problem.head_dim,
        p_tile="P_TILE" if problem.narrow else "ROPE",
        few_rows=few,
        loaders=loaders(problem, first.candidate),
    )


def score_order(tiling: ResolvedMlaTiling) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Tiles in the order in which each warpgroup reads them for its scores: first those that it frees itself."""
    own = {(g.buffer, g.warpgroup): g.tiles for g in tiling.free_groups}
    return (*own[0, 0], *own[0, 1]), (*own[1, 1], *own[1, 0])


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
    return package_modules(
        resolved,
        *others,
        call=mla_call_text(resolved),
        template="mla_decode/plan.py.jinja",
        plan=plan_text,
        kernels=_kernels,
    )


def _kernels(resolved: ResolvedMla) -> dict[str, str]:
    template, texts = f"mla_decode/{ARCHS[resolved.arch].folder}/kernel.py.jinja", {}
    for module in dict.fromkeys(t.module for t in resolved.tilings):
        own = replace(resolved, tilings=tuple(t for t in resolved.tilings if t.module == module))
        texts[f"{module}.py"] = render_template(template, k=lowering_of(resolved.arch).kernel_text(own))
    return texts
