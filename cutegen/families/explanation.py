"""Sections that explain a kernel of any family: decisions, roles, pipelines, and a picture of its shared memory."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from cutegen.arch import ARCHS, Device
from cutegen.diagnostics import CutegenError, suggest
from cutegen.families.knobs import show
from cutegen.families.refusal import kib
from cutegen.families.resolved import Decision, DispatchRow, ResolvedTiling
from cutegen.families.section import Section
from cutegen.model.kernel import list_waits
from cutegen.runtime.arguments import Extent as Promise

BAR_WIDTH = 96  # characters of the picture
# Names of instances that a title has room for; characters of a line of more.
IN_TITLE, NAMES_WIDTH = 3, 100

Instance = TypeVar("Instance", bound=ResolvedTiling[Any])


MEASURED = "percentages in reasons were measured on an H200"  # reasons are the same for all devices


def explain_decisions(decisions: Sequence[Decision]) -> Section:
    """Every knob with its value, where that comes from, and why."""
    rows = tuple((d.key, show(d.value), d.origin, d.reason) for d in decisions)
    measured = (MEASURED,) if any("%" in d.reason for d in decisions if d.origin != "spec") else ()
    return Section("Decisions", measured, header=("knob", "value", "from", "because"), rows=rows)


def explain_roles(tiling: ResolvedTiling[Any]) -> Section:
    rows = tuple((r.name, r.warps.span, str(r.registers or "as launched"), r.does) for r in tiling.model.roles)
    return Section(f"Roles of the {tiling.numbers.threads} threads", (), ("role", "warps", "registers", "does"), rows)


def explain_pipelines(tiling: ResolvedTiling[Any]) -> Section:
    header = ("ring", "kind", "from", "to", "stages", "bytes", "full when", "empty when")
    rows = tuple(
        (p.name, p.kind, p.producer, p.consumer, str(p.stages), str(p.stage_bytes), p.full, p.empty)
        for p in tiling.model.pipelines
    )
    return Section("Pipelines", (), header, rows)


def explain_smem(arch: str, tiling: ResolvedTiling[Any]) -> Section:
    capacity, used = ARCHS[arch].smem_bytes, tiling.numbers.smem_bytes
    rows = tuple((f"{r.offset}", f"{r.bytes}", r.name, r.field.holds) for r in tiling.model.smem)
    line = f"{used} of {capacity} bytes ({100 * used / capacity:.1f}%), {kib(capacity - used)} free"
    return Section("Shared memory", (line, *_bar(tiling, capacity)), ("offset", "bytes", "field", "holds"), rows)


def explain_barriers(tiling: ResolvedTiling[Any]) -> Section:
    rows = tuple((str(b.id), b.name, str(b.threads), b.says) for b in tiling.model.barriers)
    return Section("Named barriers", (), ("id", "name", "threads", "behind it"), rows)


def explain_waits(tiling: ResolvedTiling[Any]) -> Section:
    """Who waits for whom, a row for each role."""
    rows = tuple((role.name, ", ".join(waits), ", ".join(signals)) for role, waits, signals in list_waits(tiling.model))
    return Section("Who waits for whom", (), ("role", "waits for", "signals"), rows)


def _bar(tiling: ResolvedTiling[Any], capacity: int) -> tuple[str, ...]:
    """The map to scale, one letter a field, and which letter is which; fields too small for a letter are left out."""
    drawn = ["."] * BAR_WIDTH
    legend = []
    wide = [region for region in tiling.model.smem if region.bytes * BAR_WIDTH >= capacity]
    for letter, region in zip("ABCDEFGHIJKLMNOPQRSTUVWXYZ" * 3, wide):
        first, last = region.offset * BAR_WIDTH // capacity, (region.offset + region.bytes) * BAR_WIDTH // capacity
        drawn[first:last] = letter * (last - first)
        legend.append(f"{letter} {region.name}")
    return (f"|{''.join(drawn)}|", f" {', '.join((*legend, '. free or too small to draw'))}")


def explain_dispatch(rows: Iterable[DispatchRow], note: str) -> Section:
    """Which instance runs which call; note: a line above the table."""
    return Section("Dispatch", (note,), ("when", "runs"), tuple((row.text, row.tiling) for row in rows))


def of_each(tilings: Sequence[Instance], make: Callable[[Instance], Section]) -> list[Section]:
    """A section for each instance, named in its title; instances with the same one share it, and where these are many
    their names stand below the title."""
    made: dict[Section, list[str]] = {}
    for tiling in tilings:
        made.setdefault(make(tiling), []).append(tiling.name)
    if len(made) == 1:
        return list(made)
    return [_name(section, names) for section, names in made.items()]


def _name(section: Section, names: Sequence[str]) -> Section:
    if len(names) <= IN_TITLE:
        return replace(section, title=f"{section.title}, {', '.join(names)}")
    below = textwrap.wrap(", ".join(names), NAMES_WIDTH)
    return replace(section, title=f"{section.title}, {len(names)} tilings", lines=(*below, *section.lines))


@dataclass(frozen=True, slots=True)
class Extent:
    """What a spec says of one dim of a shape. hi None: open. lo == hi: a constant, which a shape need not give. step:
    what alignment makes it a multiple of."""

    name: str
    lo: int
    hi: int | None
    step: int = 1


def read_extents(dims: Iterable[Extent], shape: Mapping[str, int]) -> list[int]:
    """The extent of each dim from a shape by name; CutegenError (exit 2) for what does not fit."""
    dims = list(dims)
    names = [dim.name for dim in dims]
    for name in shape:
        if name not in names:
            hint = suggest(name, names) or f"the dims are {', '.join(names)}"
            raise CutegenError(f"the shape gives `{name}`, which is not a dim of this kernel", hint, exit_code=2)
    extents = []
    for dim in dims:
        extent = shape.get(dim.name, dim.lo if dim.lo == dim.hi else None)
        if extent is None:
            wanted = ",".join(f"{d.name}={shape.get(d.name, min(4096, d.hi or 4096))}" for d in dims if d.lo != d.hi)
            raise CutegenError(f"the shape gives no `{dim.name}`", f"write --shape {wanted}", exit_code=2)
        if extent < dim.lo or (dim.hi is not None and extent > dim.hi):
            promise = f"is {dim.lo}" if dim.lo == dim.hi else f"is from {dim.lo}" + (f" to {dim.hi}" if dim.hi else "")
            raise CutegenError(f"the shape gives {dim.name}={extent}, but the spec says it {promise}", exit_code=2)
        if extent % dim.step:
            hint = f"the next is {-(-extent // dim.step) * dim.step}"
            raise CutegenError(
                f"the shape gives {dim.name}={extent}, no multiple of {dim.step}, which 16-byte alignment needs",
                hint,
                exit_code=2,
            )
        extents.append(extent)
    return extents


def read_dims(dims: Mapping[str, Promise], shape: Mapping[str, int]) -> dict[str, int]:
    """The extent of each dim from a shape by name. dims: as a plan declares them."""
    bounds = {name: (d, d) if isinstance(d, int) else d for name, d in dims.items()}
    return dict(zip(dims, read_extents((Extent(name, *bound) for name, bound in bounds.items()), shape)))


def roofline_memory(device: Device, moved: int) -> tuple[tuple[str, str], ...]:
    """Rows (what, value): bytes that have to move, and the time that a device's data sheet needs for them."""
    floor = f"{1e6 * moved / device.hbm_bytes_per_s:.4g} us at {device.hbm_bytes_per_s / 1e12:.2f} TB/s"
    return (("work", f"{moved / 1e6:.4g} MB"), ("floor, memory", floor))


def roofline(device: Device, flops: int, moved: int, rate: int) -> tuple[tuple[str, str], ...]:
    """Rows (what, value): the work in FLOPs and bytes, and the time that a device's data sheet needs for it. rate: of
    its tensor cores on these operands, per second."""
    compute, memory = 1e6 * flops / rate, 1e6 * moved / device.hbm_bytes_per_s
    ridge = f"{rate / device.hbm_bytes_per_s:.0f}"
    return (
        ("work", f"{flops / 1e9:.4g} GFLOP, {moved / 1e6:.4g} MB, {flops / moved:.0f} FLOP/B (ridge {ridge})"),
        ("floor, tensor core", f"{compute:.4g} us at {rate / 1e12:.1f} TFLOP/s"),
        ("floor, memory", f"{memory:.4g} us at {device.hbm_bytes_per_s / 1e12:.2f} TB/s"),
        ("roofline", f"{max(compute, memory):.4g} us, {'compute' if compute >= memory else 'memory'}-bound"),
    )
