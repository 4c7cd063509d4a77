"""What the templates of the kernel of a pair read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from cutegen.families.mla_decode.lowering.sm100.derived import (
    TMEM_COLUMNS,
    VALUE_COLUMNS,
    VALUE_KEYS,
    group_keys,
)
from cutegen.families.mla_decode.rendering import QueryText, list_arguments, list_queries
from cutegen.families.mla_decode.resolved import ResolvedMla
from cutegen.model.header import list_barriers, list_roles
from cutegen.model.kernel import KernelModel, name_numbers
from cutegen.model.timeline import draw_timeline


@dataclass(frozen=True, slots=True)
class PairText:
    """What kernel.py.jinja and its parts read. warps: the first one of each role, by its constant. threads: of named
    barriers, by the constant of their number. group: keys of a block that lie in one page. cache, sparse,
    piece: none, for what has a quantised cache, sparse keys, or requests that are cut by their own lengths."""

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
    causal: bool
    page_size: int
    group: int
    value_keys: int
    value_columns: int
    tmem_columns: int
    lse_scale: str
    lse_dims: str
    lse_head_axis: int
    lse_token_axis: int
    arguments: tuple[str, ...]
    lengths: str
    sink: bool
    cache: None = None
    sparse: bool = False
    piece: int = 0


def pair_text(resolved: ResolvedMla) -> PairText:
    problem, model = resolved.problem, resolved.tilings[0].model
    _, lse = problem.outputs
    return PairText(
        name=resolved.name,
        title=f"MLA decode for {resolved.arch}: {problem.dtype}, pages of {problem.page_size}, by pairs of CTAs, "
        "split-KV in one launch.",
        overview=tuple(_overview(model)),
        model=model,
        warps={name.upper().replace(" ", "_").removesuffix("S"): warps.first for name, warps in model.warps.items()},
        barrier_numbers=tuple(name_numbers(model.barriers)),
        threads={barrier.family or barrier.name: barrier.threads for barrier in model.barriers},
        cutlass_names=(*sorted({problem.dtype.cutlass, "Float16", "Float32", "Int32", "Int64"}), "const_expr"),
        dtype=problem.dtype.cutlass,
        short_dtype=problem.dtype.name,
        queries=tuple(list_queries(resolved)),
        causal=problem.mask == "causal",
        page_size=problem.page_size,
        group=group_keys(problem),
        value_keys=VALUE_KEYS,
        value_columns=VALUE_COLUMNS,
        tmem_columns=TMEM_COLUMNS,
        lse_scale="0.6931471805599453" if problem.lse_base == "e" else "1.0",
        lse_dims=", ".join(lse.dims),
        lse_head_axis=lse.dims.index("heads"),
        lse_token_axis=lse.dims.index("query_len"),
        arguments=tuple(list_arguments(resolved)),
        lengths=problem.lengths,
        sink=problem.sink,
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
