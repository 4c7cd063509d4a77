"""A resolved GEMM in words, tables and a picture of its shared memory."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from cutegen.diagnostics import CutegenError, suggest
from cutegen.families.gemm.candidate import KNOBS, Candidate, plain
from cutegen.families.gemm.cost_model import Shape, estimate, memory_clocks, traffic
from cutegen.families.gemm.derived import derive
from cutegen.families.gemm.problem import GemmProblem, MatrixOperand
from cutegen.families.gemm.refusal import kib
from cutegen.families.gemm.resolved import ResolvedGemm, ResolvedTiling
from cutegen.hardware import ARCHS, DEVICES, Device

BAR_WIDTH = 96  # characters of the picture


@dataclass(frozen=True, slots=True)
class Section:
    """lines: text above the table. header, rows: the table; both empty when there is none."""

    title: str
    lines: tuple[str, ...] = ()
    header: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()


def explain(resolved: ResolvedGemm, shape: Mapping[str, int] | None) -> tuple[Section, ...]:
    """The plan section by section; tiles, waves and roofline as well with a shape (dim name -> extent), or where all
    dims are constant."""
    sections = [_problem(resolved)]
    for tiling in resolved.tilings:
        sections += [_roles(tiling), _pipelines(tiling), _smem(resolved, tiling), _registers(resolved)]
    problem = resolved.problem
    constant = all(dim.value is not None for dim in (problem.m, problem.n, problem.k, problem.batch) if dim)
    if shape is not None or constant:
        sections.append(_shape(resolved, read_shape(problem, shape or {})))
    return (*sections, decisions(resolved))


def candidate_of(resolved: ResolvedGemm) -> Candidate:
    """The knobs of a resolved kernel as a candidate again."""
    values = {d.key: d.value for d in resolved.decisions}
    fields = {k.field: values.get(".".join(k.path(resolved.problem)), 0) for k in KNOBS}
    return Candidate(**fields)  # type: ignore[arg-type]


def decisions(resolved: ResolvedGemm) -> Section:
    """Every knob with its value, where that comes from, and why."""
    rows = tuple((d.key, show(d.value), d.origin, d.reason) for d in resolved.decisions)
    return Section("Decisions", header=("knob", "value", "from", "because"), rows=rows)


def show(value: object) -> str:
    """A knob's value as a spec would have it."""
    return value if isinstance(value, str) else json.dumps(plain(value))


def read_shape(problem: GemmProblem, shape: Mapping[str, int]) -> Shape:
    """A shape from dim names; constants need no mention. CutegenError (exit 2) for what does not fit."""
    dims = [problem.m, problem.n, problem.k, *([problem.batch] if problem.batch else [])]
    names = [dim.name for dim in dims]
    for name in shape:
        if name not in names:
            hint = suggest(name, names) or f"the dims are {', '.join(names)}"
            raise CutegenError(f"the shape gives `{name}`, which is no dim of this kernel", hint, exit_code=2)
    extents = []
    for dim in dims:
        extent = shape.get(dim.name, dim.value)
        if extent is None:
            wanted = ",".join(f"{d.name}=4096" for d in dims if d.value is None)
            raise CutegenError(f"the shape gives no `{dim.name}`", f"write --shape {wanted}", exit_code=2)
        if extent < dim.lo or (dim.hi is not None and extent > dim.hi) or dim.value not in (None, extent):
            promise = f"is {dim.value}" if dim.value is not None else f"is from {dim.lo} to {dim.hi}"
            raise CutegenError(f"the shape gives {dim.name}={extent}, but the spec says it {promise}", exit_code=2)
        extents.append(extent)
    return Shape(*extents)


def _problem(resolved: ResolvedGemm) -> Section:
    p = resolved.problem
    rows = [_matrix(p, p.a, "m"), _matrix(p, p.b, "n")]
    for o in p.epilogue.operands:
        what = o.kind.replace("_", " ") + (f", {o.major.upper()}-major" if o.major else "")
        rows.append((o.name, str(o.dtype), what + (", batched" if o.batched else "")))
    for d in p.epilogue.outputs:
        rows.append((d.name, str(d.dtype), f"output, {d.major.upper()}-major" + (", batched" if d.batched else "")))
    lines = [f"acc = {p.a.name} @ {p.b.name}  (f32, contracts {p.k.name})"]
    lines += [f"{s.name} = {s.text}" for s in p.epilogue.statements]
    title = f"{resolved.name}: {resolved.schedule} GEMM for {resolved.arch}"
    return Section(title, tuple(lines), ("tensor", "dtype", "is"), tuple(rows))


def _matrix(p: GemmProblem, o: MatrixOperand, free: str) -> tuple[str, ...]:
    rows = p.m.name if free == "m" else p.n.name
    return o.name, str(o.dtype), f"({rows}, {p.k.name}), {o.major.upper()}-major" + (", batched" if o.batched else "")


def _roles(tiling: ResolvedTiling) -> Section:
    rows = tuple((r.name, _span(r.warps), str(r.registers), r.does) for r in tiling.roles)
    return Section(f"Roles of the {tiling.numbers.threads} threads", (), ("role", "warps", "registers", "does"), rows)


def _span(warps: tuple[int, int]) -> str:
    return f"{warps[0]}" if warps[0] == warps[1] else f"{warps[0]}..{warps[1]}"


def _pipelines(tiling: ResolvedTiling) -> Section:
    header = ("ring", "kind", "from", "to", "stages", "bytes", "full when", "empty when")
    rows = tuple(
        (p.name, p.kind, p.producer, p.consumer, str(p.stages), str(p.stage_bytes), p.full, p.empty)
        for p in tiling.pipelines
    )
    return Section("Pipelines", (), header, rows)


def _smem(resolved: ResolvedGemm, tiling: ResolvedTiling) -> Section:
    capacity, used = ARCHS[resolved.arch].smem_bytes, tiling.numbers.smem_bytes
    rows = tuple((f"{r.offset}", f"{r.bytes}", r.name, r.what) for r in tiling.smem)
    line = f"{used} of {capacity} bytes ({100 * used / capacity:.1f}%), {kib(capacity - used)} free"
    return Section("Shared memory", (line, *_bar(tiling, capacity)), ("offset", "bytes", "field", "holds"), rows)


def _bar(tiling: ResolvedTiling, capacity: int) -> tuple[str, ...]:
    """The map to scale, one letter a field, and which letter is which; fields too small for a letter are left out."""
    drawn = ["."] * BAR_WIDTH
    legend = []
    wide = [region for region in tiling.smem if region.bytes * BAR_WIDTH >= capacity]
    for letter, region in zip("ABCDEFGHIJKLMNOPQRSTUVWXYZ" * 3, wide):
        first, last = region.offset * BAR_WIDTH // capacity, (region.offset + region.bytes) * BAR_WIDTH // capacity
        drawn[first:last] = letter * (last - first)
        legend.append(f"{letter} {region.name}")
    return (f"|{''.join(drawn)}|", f" {', '.join(legend)}, . free or too small to draw")


def _registers(resolved: ResolvedGemm) -> Section:
    c, arch = candidate_of(resolved), ARCHS[resolved.arch]
    d = derive(resolved.problem, c)
    launch = arch.launch_registers(d.threads)
    used = 128 * (c.producer_registers + c.consumers * c.consumer_registers)
    rest = c.consumer_registers - d.accumulator_registers
    return Section(
        "Registers",
        (
            f"a consumer thread: {d.accumulator_registers} accumulators + {rest} for the rest = {c.consumer_registers}",
            f"the CTA: 128 x ({c.producer_registers} + {c.consumers} x {c.consumer_registers}) = {used} "
            f"of the {launch * d.threads} it is launched with",
        ),
    )


def _shape(resolved: ResolvedGemm, shape: Shape) -> Section:
    problem, device, c = resolved.problem, DEVICES[resolved.device], candidate_of(resolved)
    flops, moved = traffic(problem, shape)
    e = estimate(problem, c, shape, device, memory_clocks(problem, shape, device))
    compute, memory = 1e6 * flops / device.flops_16bit, 1e6 * moved / device.hbm_bytes_per_s
    last = e.tiles - (e.waves - 1) * e.slots
    inside = shape.m * shape.n * shape.batch / (e.tiles * c.tile[0] * c.tile[1])
    rows = (
        ("tiles", f"{e.tiles} of {c.tile[0]} x {c.tile[1]}, {100 * inside:.1f}% of their area inside the output"),
        ("waves", f"{e.waves} of {e.slots} CTAs; the last has {last} ({100 * last / e.slots:.0f}%)"),
        ("k steps", f"{-(-shape.k // c.tile[2])} of {c.tile[2]}"),
        ("work", f"{flops / 1e9:.4g} GFLOP, {moved / 1e6:.4g} MB, {flops / moved:.0f} FLOP/B (ridge {_ridge(device)})"),
        ("floor, tensor core", f"{compute:.4g} us at {device.flops_16bit / 1e12:.1f} TFLOP/s"),
        ("floor, memory", f"{memory:.4g} us at {device.hbm_bytes_per_s / 1e12:.2f} TB/s"),
        ("roofline", f"{max(compute, memory):.4g} us, {'compute' if compute >= memory else 'memory'}-bound"),
        ("cost model", f"{1e6 * e.clocks / device.clock_hz:.4g} us, bound by {e.bound}; it ranks, it does not promise"),
    )
    return Section(f"{shape} on {device.name} (data-sheet rates)", header=("", ""), rows=rows)


def _ridge(device: Device) -> str:
    return f"{device.flops_16bit / device.hbm_bytes_per_s:.0f}"
