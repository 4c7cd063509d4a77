"""The cost model's times for one shape, for people: the fastest candidates, and this kernel among them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from cutegen.arch import ARCHS, DEVICES, Device
from cutegen.families.gemm.auto import candidates
from cutegen.families.gemm.candidate import Candidate, knobs_of
from cutegen.families.gemm.cost_model import Estimate, Shape, describe_work, estimate, form_of, instance_of
from cutegen.families.gemm.features.feature_list import FEATURES, ctas_per_tile
from cutegen.families.gemm.resolved import ResolvedGemm
from cutegen.families.gemm.rules import refusals
from cutegen.families.section import Section
from cutegen.runtime.gemm.portfolio import rank_instances

SHOWN = 5


def rank_picks(resolved: ResolvedGemm, shape: Shape, device: Device) -> list[tuple[str, float]]:
    """(tiling, microseconds by the model) of the portfolio: the first is what runs a call that nobody measured."""
    candidates = {t.name: t.candidate for t in resolved.tilings}
    instances = {name: instance_of(candidates[name]) for name in resolved.picks}
    ranked = rank_instances(resolved.model, form_of(resolved.problem), instances, device.known_rates, shape)
    return [(name, 1e6 * clocks / device.clock_hz) for clocks, name in ranked]


def explain_ranking(resolved: ResolvedGemm, shape: Shape, own: Candidate) -> Section:
    """What is fastest by the model for a shape under the knobs that the spec writes, and the kernel's own candidate.

    By the times of complete candidates, as they are shown: `auto` orders sketches, whose rings it has guessed. Equals
    stay in its order."""
    device = DEVICES[resolved.device]
    work = describe_work(resolved.problem, shape, device)
    timed = [(estimate(c, work, device), c) for c in legal_candidates(resolved, shape)]
    shown = sorted(timed, key=lambda item: item[0].clocks)[:SHOWN]
    rows: list[tuple[str, ...]] = []
    for e, c in shown:
        word = f"{len(rows) + 1}"
        if c.core == own.core:
            word += ", this kernel"
        rows.append(_row(word, c, e, device.clock_hz))
    if not any("this kernel" in row[0] for row in rows):
        rows.append(_row("this kernel", own, estimate(own, work, device), device.clock_hz))
    written = ", ".join(d.key for d in resolved.decisions if d.origin == "spec")
    lines: tuple[str, ...] = (f"under what the spec writes: {written}",) if written else ()
    candidates, fixed = [c for _, c in shown], written_fields(resolved)
    lines += tuple(line for feature in FEATURES for line in feature.note_ranking(candidates, fixed))
    columns = [name for feature in FEATURES for name in feature.rank_columns(own)]
    knobs = ("tile", "cluster", "schedule", "consumers", "swap_ab", *columns)
    header = ("rank", *knobs, "tiles", "waves", "us", "bound by", "of which")
    return Section(
        f"Cost model for {shape.name(resolved.problem)} on {device.name}: it ranks, it does not promise",
        lines,
        header,
        tuple(rows),
    )


def legal_candidates(resolved: ResolvedGemm, shape: Shape) -> Iterator[Candidate]:
    """In the order of `auto` for the shape; knobs that the spec writes are kept."""
    arch = ARCHS[resolved.arch]
    for choice in candidates(resolved.problem, written_fields(resolved), arch, DEVICES[resolved.device], [shape]):
        if next(refusals(resolved.problem, choice.candidate, arch), None) is None:
            yield choice.candidate


def written_fields(resolved: ResolvedGemm) -> dict[str, Any]:
    """The knobs that the spec writes, by candidate field."""
    fields = {k.key: k.field for k in knobs_of(resolved.problem)}
    return {fields[d.key]: d.value for d in resolved.decisions if d.origin == "spec" and d.key in fields}


def estimate_seconds(resolved: ResolvedGemm, instance: str | Mapping[str, object], shape: Shape) -> float | None:
    """The model's time for an instance: a tiling by name, or knobs by dotted key in place of the default's; None: the
    kernel has no such instance."""
    if isinstance(instance, str):
        c = next((t.candidate for t in resolved.tilings if t.name == instance), None)
    else:
        c = _with_knobs(resolved, instance)
    if c is None:
        return None
    device = DEVICES[resolved.device]
    return estimate(c, describe_work(resolved.problem, shape, device), device).clocks / device.clock_hz


def _with_knobs(resolved: ResolvedGemm, knobs: Mapping[str, object]) -> Candidate | None:
    by_key = {k.key: k for k in knobs_of(resolved.problem)}
    values: dict[str, Any] = {}
    for key, value in knobs.items():
        try:
            values[by_key[key].field] = by_key[key].read(value)
        except (KeyError, ValueError):
            return None
    return replace(resolved.default.candidate, **values)


def _row(rank: str, c: Candidate, e: Estimate, clock_hz: int) -> tuple[str, ...]:
    return (
        rank,
        " x ".join(map(str, c.tile)),
        " x ".join(map(str, c.cluster)),
        c.schedule,
        str(c.consumers),
        "yes" if c.swap_ab else "no",
        *(text for feature in FEATURES for text in feature.rank_columns(c).values()),
        str(e.tiles // ctas_per_tile(c)),
        f"{e.waves}, the last {100 * e.last / e.slots:.0f}%",
        f"{1e6 * e.clocks / clock_hz:.4g}",
        e.bound,
        " + ".join(f"{name} {1e6 * clocks / clock_hz:.3g}" for name, clocks in e.spent.items()),
    )
