"""What each role does for one tile, in the order of time: what it waits for, what it signals, and whom."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from cutegen.model.kernel import Event, KernelModel, Pipeline, Role, Warps


class Step(NamedTuple):
    """each: how often in a tile, "" once. waits, signals: what, and who is at its other end; "" where there is none."""

    each: str
    waits: str = ""
    waits_for: str = ""
    signals: str = ""
    signals_to: str = ""


def list_steps(model: KernelModel, role: Role) -> Iterator[Step]:
    """In the order of the role's events, or else of the pipelines, which is that of a tile's way through them."""
    if role.events:
        yield from _pair_events(model, role)
        return
    uses = [(pipe.name, steps) for pipe in model.pipelines if (steps := tuple(_use(model, pipe, role)))]
    places = {barrier.name: [name for name, _ in uses if name in barrier.around] for barrier in model.barriers}
    for name, steps in uses:
        first = [b for b in model.barriers if places[b.name][:1] == [name]]
        yield from (Step("", b.name, _names(b.arrive)) for b in first if role.warps in b.wait)
        yield from steps
        last = [b for b in model.barriers if places[b.name][-1:] == [name]]
        yield from (Step("", signals=b.name, signals_to=_names(b.wait)) for b in last if role.warps in b.arrive)


def _pair_events(model: KernelModel, role: Role) -> Iterator[Step]:
    """A signal stands next to the wait right before it."""
    waiting: Step | None = None
    for event in role.events:
        who = _other_end(model, role, event)
        if event.waits:
            if waiting:
                yield waiting
            waiting = Step(event.each, event.what, who)
        elif waiting and waiting.each == event.each:
            yield waiting._replace(signals=event.what, signals_to=who)
            waiting = None
        else:
            if waiting:
                yield waiting
            yield Step(event.each, signals=event.what, signals_to=who)
            waiting = None
    if waiting:
        yield waiting


def _other_end(model: KernelModel, role: Role, event: Event) -> str:
    """Those that signal what the role waits for, or wait for what it signals."""
    name, _, side = event.what.partition(" ")
    if not side:
        barrier = next(b for b in model.barriers if b.name == name)
        if not event.waits:
            return _names(barrier.wait)
        return _names(barrier.arrive or [warps for warps in barrier.wait if warps != role.warps])
    pipe = next(p for p in model.pipelines if p.name == name)
    producing = (side == "full") is event.waits
    warps, otherwise = (pipe.fills, pipe.producer) if producing else (pipe.drains, pipe.consumer)
    events = {other.warps: other.events for other in model.roles}
    meant = event.what, not event.waits  # what those at the other end do
    named = [w for w in warps if not events.get(w) or meant in {(e.what, e.waits) for e in events[w]}]
    return _names(named) or otherwise


def _use(model: KernelModel, pipe: Pipeline, role: Role) -> Iterator[Step]:
    """Of one slot."""
    among = pipe.fills == pipe.drains  # CTAs give each other what they have
    producers = pipe.producer if among else _names(pipe.fills) or pipe.producer
    consumers = pipe.producer if among else _names(pipe.drains) or pipe.consumer
    emptied = pipe.name if pipe.own_empty else pipe.empty_of
    empty = (f"{emptied} empty", consumers) if emptied else ("", "")
    if role.warps in pipe.fills:
        full = (f"{pipe.name} full", consumers)
        within = [b for b in model.barriers if b.within == pipe.name and role.warps in b.wait]
        if within:
            yield Step(pipe.each, *empty)
            for barrier in within:
                yield Step(pipe.each, barrier.name, _names(barrier.wait), *full)
        else:
            yield Step(pipe.each, *empty, *full)
    if role.warps in pipe.drains:
        back = (f"{pipe.name} empty", producers) if pipe.own_empty else ("", "")
        yield Step(pipe.each, f"{pipe.name} full", producers, *back)


def _names(warps: Sequence[Warps]) -> str:
    """`load warp, consumers 0, 1`."""
    every = [w.name for w in warps]
    numbered = [name.removeprefix("consumer ") for name in every if name.startswith("consumer ")]
    others = [name for name in every if not name.startswith("consumer ")]
    plural = f"consumer{'s' * (len(numbered) > 1)} {', '.join(numbered)}"
    return ", ".join([*others, *([plural] if numbered else [])])


def draw_timeline(model: KernelModel, of: str = "a tile") -> Iterator[str]:
    """A line for each step of each role, time going down; a role that does as the one before it refers to that."""
    roles = [(role.name, tuple(list_steps(model, role))) for role in model.roles]
    roles = [(name, steps) for name, steps in roles if steps]
    every = [step for _, steps in roles for step in steps]
    widths = [max(map(len, column)) for column in zip(*every)]
    width = max(len(name) for name, _ in roles)
    yield f"Timeline of {of} (<- waits for, -> signals):"
    before: tuple[str, tuple[Step, ...]] = ("", ())
    for name, steps in roles:
        if steps == before[1]:
            yield f"  {name:<{width}}  as {before[0]}"
            continue
        before, each = (name, steps), ""
        for step in steps:
            shown = step.each if step.each != each else ""
            waits = _arrow(step.waits, "<-", step.waits_for, widths[1], widths[2])
            signals = _arrow(step.signals, "->", step.signals_to, widths[3], 0)
            yield f"  {name:<{width}}  {shown:<{widths[0]}}  {waits}  {signals}".rstrip()
            name, each = "", step.each


def _arrow(what: str, arrow: str, who: str, width: int, width_who: int) -> str:
    text = f"{what:<{width}} {arrow} {who}" if what else ""
    return f"{text:<{width + 4 + width_who}}"
