"""A resolved GEMM in words, tables and a picture of its shared memory."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial

from cutegen.arch import ARCHS, DEVICES
from cutegen.epilogue import Operand, Output
from cutegen.families.explanation import (
    Extent,
    Section,
    explain_barriers,
    explain_decisions,
    explain_dispatch,
    explain_pipelines,
    explain_roles,
    explain_smem,
    explain_waits,
    of_each,
    read_extents,
    roofline,
)
from cutegen.families.gemm.cost_model import Shape, describe_work, estimate, traffic
from cutegen.families.gemm.derived import promoted_k
from cutegen.families.gemm.features.feature import of_each_batch
from cutegen.families.gemm.features.feature_list import FEATURES, ctas_per_tile, describe_features
from cutegen.families.gemm.lowering import lowering_of
from cutegen.families.gemm.orientation import kernel_shape
from cutegen.families.gemm.problem import GemmProblem, MatrixOperand
from cutegen.families.gemm.ranking import estimate_seconds, explain_ranking, rank_picks
from cutegen.families.gemm.resolved import ResolvedGemm, ResolvedGemmTiling
from cutegen.families.gemm.spec_rules import alignments
from cutegen.families.gemm.tiling_numbers import derive
from cutegen.families.refusal import kib
from cutegen.families.resolved import DeviceRow, dispatch, product_name

SCRATCH_IS = {
    "workspace": "f32, any contents",
    "sums": "f32, zero between launches",
    "semaphores": "i32, zero between launches",
}


def estimate_call(
    resolved: ResolvedGemm, instance: str | Mapping[str, object], shape: Mapping[str, int]
) -> float | None:
    """The cost model's seconds for a tiling's name, or knobs by key, on a shape; see `families/family.py`."""
    return estimate_seconds(resolved, instance, read_shape(resolved.problem, shape))


def explain(resolved: ResolvedGemm, shape: Mapping[str, int] | None) -> tuple[Section, ...]:
    """The plan section by section; tiles, waves and roofline as well with a shape (dim name -> extent), or where all
    dims are constant. Of several tilings the one that runs the shape, without one the default."""
    problem = resolved.problem
    constant = all(dim.value is not None for dim in (problem.m, problem.n, problem.k, problem.batch) if dim)
    extents = read_shape(problem, shape or {}) if shape is not None or constant else None
    shown, how = _choose(resolved, extents) if extents else (resolved.default, ())
    sections = [_problem(resolved)]
    if len(resolved.tilings) > 1:
        sections.append(_dispatch(resolved))
    several = f", {shown.name}" * (len(resolved.tilings) > 1)
    of_arch = (partial(explain_smem, resolved.arch), _sums)
    for make in (explain_roles, explain_pipelines, explain_barriers, explain_waits, *of_arch):
        sections += [replace(section, title=section.title + several) for section in of_each([shown], make)]
    if shown.candidate.dynamic or any(feature.explain(shown.candidate) for feature in FEATURES):
        sections += of_each([shown], _work)
    if extents:
        sections += _shape(resolved, extents, shown, how)
    return (*sections, explain_decisions(resolved.decisions))


def _choose(resolved: ResolvedGemm, shape: Shape) -> tuple[ResolvedGemmTiling, tuple[tuple[str, str], ...]]:
    """The tiling that runs a shape on the GPU that the spec is for, and rows that say how it was chosen."""
    problem, device = resolved.problem, DEVICES[resolved.device]
    dims = {problem.m.name: shape.m, problem.n.name: shape.n, problem.k.name: shape.k}
    call = {**dims, **({problem.batch.name: shape.batch} if problem.batch else {})}
    product = product_name(resolved.dispatch, resolved.device)
    measured = any(isinstance(row, DeviceRow) and row.holds(call, product) for row in resolved.dispatch)
    if measured or len(resolved.picks) == 1:
        name = dispatch(resolved.dispatch, call, product)
        rows: tuple[tuple[str, str], ...] = (("instance", name),) if len(resolved.tilings) > 1 else ()
        rows += (("chosen", "it was measured fastest"),) if measured else ()
    else:
        (name, first), (second, then), *_ = rank_picks(resolved, shape, device)
        rows = (
            ("instance", name),
            ("chosen", f"of {len(resolved.picks)} the fastest by the cost model: {first:.4g} us"),
            ("runner-up", f"{second}: {then:.4g} us"),
        )
    return next(t for t in resolved.tilings if t.name == name), rows


def read_shape(problem: GemmProblem, shape: Mapping[str, int]) -> Shape:
    """A shape from dim names; constants need no mention, and rows to gather from have no say. CutegenError (exit 2) for
    what does not fit."""
    shape = {name: extent for name, extent in shape.items() if name not in {d.name for d in problem.gathered_dims}}
    dims = [problem.m, problem.n, problem.k, *([problem.batch] if problem.batch else [])]
    steps = alignments(problem)
    extents = [Extent(d.name, d.value or d.lo, d.value or d.hi, steps.get(d.name, (1, ""))[0]) for d in dims]
    return Shape(*read_extents(extents, shape))


def _problem(resolved: ResolvedGemm) -> Section:
    p = resolved.problem
    rows = [_matrix(p, p.a, "m"), _matrix(p, p.b, "n")]
    rows += [row for feature in FEATURES for row in feature.describe_operands(p)]
    for o in (o for o in p.epilogue.operands if not o.updates):
        blocks = " of {} x {} elements".format(*("all" if d == o.missing else s for d, s in zip("mn", o.block))) * (
            o.kind == "block_input"
        )
        may = blocks + ", may be None" * (o.name in p.optional)
        rows.append((o.name, str(o.dtype), o.kind.replace("_", " ") + _layout(p, o) + may))
    for d in p.epilogue.outputs:
        notes = ", stored by threads" * d.direct + ", updated in place" * (d.name in p.epilogue.updated)
        notes += " by TMA" * d.adds
        rows.append((d.name, str(d.dtype), "output" + _layout(p, d) + notes))
    rows += [row for feature in FEATURES for row in feature.describe_results(p)]
    tilings = {t.name: t.candidate for t in resolved.tilings}
    left = f"{p.a.name}[{p.gather.index}]" if p.gather else p.a.name
    lines = [f"acc = {left} @ {p.b.name}  ({_sum(resolved)}, contracts {p.k.name})"]
    lines += [line for feature in FEATURES for line in feature.explain_product(p, tilings)]
    lines += [f"{s.name} = {s.text}" for s in p.epilogue.statements]
    kind = "tcgen05" if p.target.tensor_memory else resolved.default.candidate.schedule
    title = f"{resolved.name}: {kind} GEMM for {resolved.arch}"
    return Section(title, tuple(lines), ("tensor", "dtype", "is"), tuple(rows))


def _layout(p: GemmProblem, t: Operand | Output) -> str:
    major = f", {t.major.upper()}-major" if t.major else ""
    return major + ", half of the columns" * t.half + of_each_batch(p, t.batched)


def _sum(resolved: ResolvedGemm) -> str:
    """What the product is summed in."""
    mma, every = resolved.problem.mma, promoted_k(resolved.problem, resolved.default.candidate, ARCHS[resolved.arch])
    if not every:
        return f"{mma.accumulator}, some 14 bits of it in the tensor core" if mma.rounds else str(mma.accumulator)
    scales = " x ".join(s.name for s in (resolved.problem.a_scale, resolved.problem.b_scale) if s)
    return f"f32 registers take the sum of every {every} products{f' times {scales}' if scales else ''}"


def _matrix(p: GemmProblem, o: MatrixOperand, free: str) -> tuple[str, ...]:
    rows = p.named_rows(o.name).get(free, p.extents[free]).name
    return o.name, str(o.dtype), f"({rows}, {p.k.name}), {o.major.upper()}-major" + of_each_batch(p, o.batched)


def _sums(tiling: ResolvedGemmTiling) -> Section:
    return Section(*lowering_of(tiling.problem).explain_sums(tiling, derive(tiling.problem, tiling.framed)))


def _shape(
    resolved: ResolvedGemm, shape: Shape, tiling: ResolvedGemmTiling, how: tuple[tuple[str, str], ...]
) -> tuple[Section, ...]:
    """how: rows that say why it is this tiling."""
    problem, device = resolved.problem, DEVICES[resolved.device]
    c = tiling.candidate
    if not device.rates:
        tiles = math.prod(-(-extent // step) for extent, step in zip(kernel_shape(shape, c), c.tile[:2])) * shape.batch
        parts = ctas_per_tile(c)
        each = f", each in {parts} parts of k" * (parts > 1)
        rows = (
            *how,
            ("tiles", f"{tiles} of {c.tile[0]} x {c.tile[1]}{each}"),
            ("k steps", f"{-(-shape.k // (c.tile[2] * parts))}"),
        )
        said = "no roofline, no cost model"
        if facts := device.facts:
            moved, rate = traffic(problem, shape)[1], facts.memory_bytes_per_s
            held = f"{moved / 2**20:.1f} MiB; L2 has {facts.l2_bytes // 2**20} MiB"
            rows += (
                ("waves", f"{tiles * parts / facts.sms:.2f} of {facts.sms} SMs"),
                ("memory", f"{held}; at {rate // 10**9} GB/s {moved / rate * 1e6:.1f} us at least"),
            )
        else:
            said = f"no waves, {said}"
        said = f"nobody measured the rates of {device.name}: {said}"
        return (Section(shape.name(problem), (said,), ("", ""), rows),)
    flops, moved = traffic(problem, shape)
    work = describe_work(problem, shape, device)
    e = estimate(c, work, device)
    parts = ctas_per_tile(c)
    tiles = e.tiles // parts
    inside = work.shape.m * shape.n * work.shape.batch / (tiles * c.tile[0] * c.tile[1])
    rows = (
        *how,
        ("tiles", f"{tiles} of {c.tile[0]} x {c.tile[1]}, {100 * inside:.1f}% of their area inside the output"),
        ("waves", f"{e.waves} of {e.slots} CTAs; the last has {e.last} ({100 * e.last / e.slots:.0f}%)"),
        ("k steps", f"{-(-shape.k // c.tile[2])} of {c.tile[2]}" + f", in {parts} parts" * (parts > 1)),
        *((f"scratch, {name}", text) for name, text in _scratch_bytes(problem, tiling, shape)),
        *roofline(device, flops, moved, device.flops(problem.a.dtype)),
    )
    extents = Section(f"{shape.name(problem)} on {device.name} (data-sheet rates)", header=("", ""), rows=rows)
    return extents, explain_ranking(resolved, shape, c)


def _dispatch(resolved: ResolvedGemm) -> Section:
    """Which tiling runs which calls: winners first, then what the cost model picks of the portfolio."""
    if len(resolved.picks) == 1:
        return explain_dispatch(resolved.dispatch, "the first that holds")
    measured = [row for row in resolved.dispatch if isinstance(row, DeviceRow)]
    rows = [(row.text, row.tiling) for row in measured]
    candidates = {t.name: t.candidate for t in resolved.tilings}
    for name in resolved.picks:
        c = candidates[name]
        kind = f"{c.schedule}, cluster {c.cluster[0]} x {c.cluster[1]}" + ", transposed" * c.swap_ab
        rows.append((kind + describe_features(c), name))
    lines = (
        "the first row that was measured and holds; else the fastest of the portfolio by the cost model, at run time",
        resolved.why_picks,
    )
    return Section("Dispatch", lines, ("calls, or kind", "tiling"), tuple(rows))


def _scratch_bytes(problem: GemmProblem, tiling: ResolvedGemmTiling, shape: Shape) -> Iterator[tuple[str, str]]:
    """(name, bytes in words) of the scratch that a problem needs."""
    for feature in FEATURES:
        for name, nbytes in feature.call_scratch(problem, tiling.candidate, shape):
            yield name, f"{kib(nbytes)}, any contents"
    for name, count in tiling.numbers.scratch_sizes(shape.m, shape.n, shape.batch).items():
        if name in tiling.numbers.scratch:
            size = kib(4 * count) if count >= 256 else f"{4 * count} bytes"
            yield name, f"{size}, {SCRATCH_IS[name]}"


def _work(tiling: ResolvedGemmTiling) -> Section:
    """How CTAs share out tiles and claim them, and what they keep in global memory for it."""
    numbers, c = tiling.numbers, tiling.candidate
    lines = [line for feature in FEATURES for line in feature.explain(c)]
    if c.dynamic:
        others = "by cluster launch control" if c.launch_control else "from a counter"
        lines.append(f"the first tile by position, others {others} when the loads of the one before begin")
    header = ("scratch", "in all", "for each cluster tile", "is")
    rows = tuple((name, *map(str, getattr(numbers, name)), SCRATCH_IS[name]) for name in numbers.scratch)
    return Section("Work shared out at run time", tuple(lines), header, rows)
