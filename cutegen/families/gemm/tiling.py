"""One candidate as a ResolvedGemmTiling: its numbers, where each comes from, SMEM map, pipelines and roles in words."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from cutegen.arch.architecture import WARPS_PER_WARPGROUP
from cutegen.families.gemm.candidate import OWN_KNOBS, Candidate, cluster_size
from cutegen.families.gemm.derived import (
    QUEUE_COUNTERS,
    QUEUE_STAGES,
    epilogue_columns,
    epilogue_tile,
    epilogue_widths,
    warpgroups_per_tile,
)
from cutegen.families.gemm.features.feature import Buffer
from cutegen.families.gemm.features.feature_list import FEATURES
from cutegen.families.gemm.lowering import lowering_of
from cutegen.families.gemm.orientation import kernel_frame
from cutegen.families.gemm.problem import GemmProblem
from cutegen.families.gemm.resolved import ResolvedGemmTiling
from cutegen.families.gemm.tiling_numbers import Derived, derive
from cutegen.model.kernel import KernelModel
from cutegen.runtime.gemm.tiling import GemmTiling

# What GemmTiling has of knobs as they are, with their keys, and of what is derived from them.
_FIELDS = tuple(f.name for f in fields(GemmTiling))
_KNOBS = {knob.field: knob.key for knob in OWN_KNOBS if knob.field in _FIELDS}
_DERIVED = ("stage_bytes", "empty_arrivals", "epilogue_tile", "load_bytes", "threads", "smem_bytes")


def describe_tiling(problem: GemmProblem, c: Candidate, name: str, module: str) -> ResolvedGemmTiling:
    """The candidate as an instance of `module`."""
    knobs = c
    problem, c = kernel_frame(problem, c)
    d, lowering = derive(problem, c), lowering_of(problem)
    producer_registers, consumer_registers = lowering.set_registers(c)
    own = {
        "multicast": (c.multicast_a, c.multicast_b),
        "swizzle": (c.swizzle_a, c.swizzle_b),
        "producer_registers": producer_registers,
        "consumer_registers": consumer_registers,
        "raster_along_m": c.raster_order == "along_m",
        **{name: getattr(d, name) for name in _DERIVED},
        **_work_numbers(problem, c, d),
    }
    numbers = GemmTiling(**{name: getattr(c, name) for name in _KNOBS} | own)
    model = KernelModel(
        roles=lowering.list_roles(problem, c),
        pipelines=tuple(lowering.list_pipelines(problem, c, d)),
        smem=d.smem,
        barriers=lowering.list_barriers(problem, c),
    )
    terms, texts = _terms(problem, c), _sources(problem, c)
    sources, formulas = (
        {f: text.format_map({name: pair[i] for name, pair in terms.items()}) for f, text in texts.items()}
        for i in (0, 1)
    )
    return ResolvedGemmTiling(name, numbers, sources, model, knobs, problem, c, module=module, formulas=formulas)


def _terms(problem: GemmProblem, c: Candidate) -> dict[str, tuple[object, str]]:
    """What stands in braces in `_sources`: its value here, and what it is in every tiling."""
    sharing, size, warps = warpgroups_per_tile(c), cluster_size(c), WARPS_PER_WARPGROUP
    every, widths, width = epilogue_columns(problem), epilogue_widths(problem, c), epilogue_tile(problem, c)[1]
    divides = f"that divides {'half of tile n' if problem.paired_dim == 'n' else 'tile n'}"
    widest, any_width = (f"widest of {', '.join(map(str, of))} {divides}" for of in (widths, every))
    crowded = f"; {every[0]} would crowd the registers" * (widths != every)
    unless = f"; but {every[0]} may crowd the registers" * bool(problem.kernel_epilogue.reductions)
    return {
        **{f"tile_{dim}": (extent, f"tile {dim}") for dim, extent in zip("mnk", c.tile)},
        "multicast_a": (c.multicast_a, "multicast[0]"),
        "multicast_b": (c.multicast_b, "multicast[1]"),
        "warps": (f"{warps * sharing} warps", f"{warps} warps of each of a tile's warpgroups"),
        "warpgroups": (f"{sharing} warpgroup{'s' * (sharing > 1)}", "a tile's warpgroups"),
        "columns": (f"{width} columns", "columns"),
        "widest": (widest + crowded, any_width + unless),
        "consumers": (f"{c.consumers} consumer warpgroups", "consumers"),
        "consumer_warps": (f"{c.consumers} x {warps} consumer warps", f"consumers x {warps} warps"),
        "ctas": (f"{size} CTAs", "CTAs of a cluster"),
        **{name: term for feature in FEATURES for name, term in feature.terms(problem, c).items()},
    }


def _sources(problem: GemmProblem, c: Candidate) -> dict[str, str]:
    """For each field of GemmTiling the spec key, or the formula of `_terms`."""
    scales = " + {scale_rows} x {scales} x 4 B" if problem.row_scale and not problem.gathers_row_scale else ""
    if problem.packed_scales:
        scales = f" + ({{tile_m}} + {{scaled_n}}) x {{tile_k}} / {problem.packed_scales[0].block} scales"
    half = f" / {c.mma_ctas}" * (c.mma_ctas > 1)
    widths = {"{tile_m}": problem.a, f"{{tile_n}}{half}": problem.b}
    parts = [f"{extent} x {t.dtype.width}" for extent, t in widths.items() if t in problem.by_tma]
    operands = parts[0] if len(parts) == 1 else f"({' + '.join(parts)})"
    loads = " + ".join(f"{o.dtype.bytes} B" for o in problem.kernel_epilogue.tiles)
    return {
        **_KNOBS,
        "multicast": f"tma.{problem.a.name}.multicast, tma.{problem.b.name}.multicast",
        "swizzle": f"tma.{problem.a.name}.swizzle, tma.{problem.b.name}.swizzle",
        "stage_bytes": f"{operands} x {{tile_k}}{scales}",
        "empty_arrivals": lowering_of(problem).empty_arrivals(c)[1],
        "epilogue_tile": "64 rows x {warpgroups}, {columns}: {widest}",
        "load_bytes": f"epilogue tile x ({loads})",
        **({} if loads else dict.fromkeys(("load_stages", "load_bytes"), "the epilogue loads no tile")),
        "threads": "128 x (1 producer + {consumers})",
        "smem_bytes": "end of the last ring, rounded up to 1024",
        "raster_along_m": "tiling.raster.order",
        **_work_sources(problem, c),
        **lowering_of(problem).sources(),
    }


def _work_numbers(problem: GemmProblem, c: Candidate, d: Derived) -> dict[str, Any]:
    """What else GemmTiling has, by features and where tiles are handed out dynamically, or where tiles are transposed
    and scratch is counted by them."""
    numbers: dict[str, Any] = {name: value for name, (value, _) in _feature_numbers(problem, c).items()}
    if c.dynamic:
        numbers |= {"queue_stages": QUEUE_STAGES, "queue_readers": d.queue_readers}
        numbers |= {"clc": True} if c.launch_control else {}
    scratch = _scratch(problem, c)
    if scratch or (c.swap_ab and problem.epilogue.reductions):
        numbers["covers"] = d.covers
    return numbers | {buffer.name: buffer.elements for buffer in scratch}


def _feature_numbers(problem: GemmProblem, c: Candidate) -> dict[str, tuple[Any, str]]:
    own = lowering_of(problem).numbers(problem, c)
    return {**own, **{name: number for f in FEATURES for name, number in f.numbers(problem, c).items()}}


def _scratch(problem: GemmProblem, c: Candidate) -> list[Buffer]:
    """In global memory, each of one name, for all that use it."""
    queue = [Buffer("semaphores", (QUEUE_COUNTERS, 0), f"{QUEUE_COUNTERS} of the tile queue")] if c.counts_tiles else []
    found: dict[str, Buffer] = {}
    for one in (*queue, *(buffer for feature in FEATURES for buffer in feature.scratch(problem, c))):
        if other := found.get(one.name):
            whole, each = (x + y for x, y in zip(other.elements, one.elements))
            one = Buffer(one.name, (whole, each), f"{other.source}, {one.source}")
        found[one.name] = one
    return list(found.values())


def _work_sources(problem: GemmProblem, c: Candidate) -> dict[str, str]:
    others = "".join(feature.queue_readers(problem, c)[1] for feature in FEATURES)
    loads, clc = 1 + bool(problem.kernel_epilogue.tiles), c.launch_control
    sources = {
        **{name: source for name, (_, source) in _feature_numbers(problem, c).items()},
        **{buffer.name: buffer.source for buffer in _scratch(problem, c)},
        "queue_stages": "tiles that readers of the queue may be apart",
        "clc": "scheduler",
        "queue_readers": f"{loads} load warps{others}{' + the MMA warp' * clc} + {{consumer_warps}}",
        "covers": "tile x cluster, transposed: (m, n) of the product" if c.swap_ab else "tile x cluster, (m, n)",
    }
    return {field: sources[field] for field in _work_numbers(problem, c, derive(problem, c))}
