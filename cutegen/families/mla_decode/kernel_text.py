"""What the templates of a kernel read on every architecture."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from cutegen.dtypes import DType
from cutegen.families.mla_decode.cache_text import CacheText, cache_text
from cutegen.families.mla_decode.derived import TILE_COLUMNS
from cutegen.families.mla_decode.resolved import ResolvedMla
from cutegen.model.header import list_barriers, list_roles
from cutegen.model.kernel import KernelModel, NamedBarrier, name_numbers
from cutegen.model.timeline import draw_timeline
from cutegen.render.layout import import_order
from cutegen.runtime.mla_decode.tiling import KEY_BLOCK


@dataclass(frozen=True, slots=True)
class QueryText:
    """One tensor of queries. tiles, first_tile: of 64 columns, and where they begin in a row of Q."""

    name: str
    columns: int
    tiles: int
    first_tile: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MlaKernelText:
    """model: of the first tiling. warps: first ones, by name. threads: of named barriers, by the constant of their
    number. operand: type of what is multiplied. cache: where K is loaded row by row. sparse: keys are named by
    indices. table, lengths: the arguments that say where keys are and how many. sink: whether there is one. piece:
    pairs of key blocks of a piece where requests are cut by their own lengths alone, else 0. extra: rows of a page
    of the second cache, 0: there is none."""

    name: str
    title: str
    overview: tuple[str, ...]
    model: KernelModel
    warps: Mapping[str, int]
    barrier_numbers: tuple[tuple[str, int, bool], ...]
    threads: Mapping[str, int]
    cutlass_names: tuple[str, ...]
    dtype: str
    operand: str
    short_dtype: str
    queries: tuple[QueryText, ...]
    causal: bool
    page_size: int
    lse_scale: str
    lse_dims: tuple[str, ...]
    arguments: tuple[str, ...]
    cache: CacheText | None
    sparse: bool
    table: str
    lengths: str
    sink: bool
    piece: int
    extra: int

    @property
    def all_lengths(self) -> str:
        """Source: what says how many keys there are, of two caches a pair."""
        return "(args.topk_length, args.extra_topk_length)" if self.extra else f"args.{self.lengths}"

    def page_of(self, row: str) -> str:
        """Source: the page of a row of the cache, which is not negative."""
        return f"{row} >> PAGE_SHIFT" if self.shifts(self.page_size) else f"{row} // PAGE"

    def extra_page_of(self, row: str) -> str:
        """Source: the same of the second cache."""
        return f"{row} >> EXTRA_SHIFT" if self.shifts(self.extra) else f"{row} // EXTRA_PAGE"

    def slot_of(self, row: str) -> str:
        """Source: the number of a row of the cache, which is not negative, in its page."""
        return f"{row} & (PAGE - 1)" if self.shifts(self.page_size) else f"{row} % PAGE"

    def extra_slot_of(self, row: str) -> str:
        """Source: the same of the second cache."""
        return f"{row} & (EXTRA_PAGE - 1)" if self.shifts(self.extra) else f"{row} % EXTRA_PAGE"

    def shifts(self, rows: int) -> bool:
        """Whether a number of so many rows is divided by in one instruction."""
        return rows.bit_count() == 1


def shared_text(
    resolved: ResolvedMla, barriers: tuple[NamedBarrier, ...], operand: DType, only: Iterable[str]
) -> dict[str, Any]:
    """The fields of MlaKernelText but for title, overview and warps. only: names of cutlass that some kernels need."""
    problem = resolved.problem
    (_, lse), types = problem.outputs, (problem.dtype.cutlass, operand.cutlass)
    return {
        "name": resolved.name,
        "model": resolved.tilings[0].model,
        "barrier_numbers": tuple(name_numbers(barriers)),
        "threads": {barrier.family or barrier.name: barrier.threads for barrier in barriers},
        "cutlass_names": tuple(
            sorted({*types, "Float16", "Float32", "Int32", "Int64", "const_expr", *only}, key=import_order)
        ),
        "dtype": problem.dtype.cutlass,
        "operand": operand.cutlass,
        "short_dtype": problem.dtype.name,
        "queries": tuple(list_queries(resolved)),
        "causal": problem.mask == "causal",
        "page_size": problem.page_size,
        "lse_scale": "0.6931471805599453" if problem.lse_base == "e" else "1.0",
        "lse_dims": lse.dims,
        "arguments": tuple(list_arguments(resolved)),
        "cache": cache_text(problem),
        "sparse": problem.sparse,
        "table": problem.table,
        "lengths": problem.lengths,
        "sink": problem.sink,
        "piece": problem.piece // (2 * KEY_BLOCK),
        "extra": problem.extra.page_size if problem.extra else 0,
    }


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


def list_overview(resolved: ResolvedMla) -> Iterable[str]:
    """Roles, pipelines, named barriers and the timeline of the module docstring."""
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
