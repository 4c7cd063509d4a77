"""What the templates of the kernel of a pair read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from cutegen.arch import ARCHS
from cutegen.families.mla_decode.cache_text import CacheText, cache_text
from cutegen.families.mla_decode.lowering.sm100.derived import (
    KEYS,
    OUT_CHUNK,
    TMEM_COLUMNS,
    VALUE_COLUMNS,
    group_keys,
    operands,
)
from cutegen.families.mla_decode.rendering import QueryText, list_arguments, list_queries
from cutegen.families.mla_decode.resolved import ResolvedMla
from cutegen.model.header import list_barriers, list_roles
from cutegen.model.kernel import KernelModel, name_numbers
from cutegen.model.timeline import draw_timeline
from cutegen.render.layout import import_order


@dataclass(frozen=True, slots=True)
class PairText:
    """What kernel.py.jinja and its parts read. warps: the first one of each role, by its constant. threads: of named
    barriers, by the constant of their number. group: keys of a block that lie in one page. cache: where it is
    quantised. operand: type of what is multiplied; mma_op: a class of tcgen05, and what it takes for types; tile,
    mma_k: columns of a slot with K, and of one product. sparse: none, for what has. piece: pairs of key blocks of a
    piece where requests are cut by their own lengths alone, else 0."""

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
    operand: str
    mma_op: str
    mma_dtypes: tuple[str, ...]
    tile: int
    mma_k: int
    queries: tuple[QueryText, ...]
    causal: bool
    page_size: int
    group: int
    value_keys: int
    value_columns: int
    tmem_columns: int
    chunk: int
    lse_scale: str
    lse_dims: str
    lse_head_axis: int
    lse_token_axis: int
    arguments: tuple[str, ...]
    lengths: str
    sink: bool
    cache: CacheText | None
    sparse: bool = False
    piece: int = 0


def pair_text(resolved: ResolvedMla) -> PairText:
    problem, model, of = resolved.problem, resolved.tilings[0].model, operands(resolved.problem)
    arch, (_, lse) = ARCHS[resolved.arch], problem.outputs
    mma = arch.find_mma(of.dtype, of.dtype)
    assert mma
    mma_types = {"a": of.dtype.cutlass, "b": of.dtype.cutlass, "sum": "Float32"}
    names = {problem.dtype.cutlass, of.dtype.cutlass, "Float16", "Float32", "Int32", "Int64", "const_expr"}
    names |= {"Uint8"} if problem.cache else set()
    held = f"{problem.dtype}, a cache in {of.dtype}" if problem.cache else f"{problem.dtype}"
    return PairText(
        name=resolved.name,
        title=f"MLA decode for {resolved.arch}: {held}, pages of {problem.page_size}, by pairs of CTAs, "
        "split-KV in one launch.",
        overview=tuple(_overview(model)),
        model=model,
        warps={name.upper().replace(" ", "_").removesuffix("S"): warps.first for name, warps in model.warps.items()},
        barrier_numbers=tuple(name_numbers(model.barriers)),
        threads={barrier.family or barrier.name: barrier.threads for barrier in model.barriers},
        cutlass_names=tuple(sorted(names, key=import_order)),
        dtype=problem.dtype.cutlass,
        short_dtype=problem.dtype.name,
        operand=of.dtype.cutlass,
        mma_op=mma.op,
        mma_dtypes=tuple(mma_types[name] for name in mma.dtypes),
        tile=of.tile,
        mma_k=arch.mma_k(of.dtype),
        queries=tuple(list_queries(resolved)),
        causal=problem.mask == "causal",
        page_size=problem.page_size,
        group=group_keys(problem),
        value_keys=of.value_keys,
        value_columns=VALUE_COLUMNS,
        tmem_columns=TMEM_COLUMNS,
        chunk=OUT_CHUNK,
        lse_scale="0.6931471805599453" if problem.lse_base == "e" else "1.0",
        lse_dims=", ".join(lse.dims),
        lse_head_axis=lse.dims.index("heads"),
        lse_token_axis=lse.dims.index("query_len"),
        arguments=tuple(list_arguments(resolved)),
        lengths=problem.lengths,
        sink=problem.sink,
        cache=cache_text(problem),
        piece=problem.piece // KEYS,
    )


def _overview(model: KernelModel) -> Iterable[str]:
    """Roles, pipelines and named barriers of the module docstring."""
    yield from list_roles(model.roles)
    yield ""
    yield "Pipelines (producer -> consumer):"
    for pipe in model.pipelines:
        yield f"  {pipe.name}: {pipe.producer} -> {pipe.consumer}, {pipe.stages} x {pipe.stage_bytes} bytes"
        yield f"    full: {pipe.full}"
        yield f"    empty: {pipe.empty}"
    yield ""
    yield from list_barriers(model.barriers)
    yield ""
    yield from draw_timeline(model, "a launch")
