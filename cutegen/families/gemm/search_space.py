"""What a tuner tries, in order: what the cost model ranks, and variations of its first picks in knobs it cannot judge.

The model is no better than a few percent, and many of its picks are neighbours. So a candidate waits for each of its
kind that is listed before it, as if it were so much slower: the first few of any number are good by the model, and of
many kinds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, NamedTuple

from cutegen.arch import Arch, Device
from cutegen.families.gemm.auto import candidates, finish
from cutegen.families.gemm.candidate import (
    RASTER_ORDERS,
    Candidate,
    Core,
)
from cutegen.families.gemm.cost_model import Estimate, Shape, Work, describe_work, estimate
from cutegen.families.gemm.features.feature_list import FEATURES
from cutegen.families.gemm.form_rules import MAX_STAGES
from cutegen.families.gemm.orientation import kernel_shape
from cutegen.families.gemm.problem import GemmProblem
from cutegen.families.gemm.rules import refusals
from cutegen.families.gemm.tiling_numbers import derive
from cutegen.families.refusal import Refusal

LEADERS = 4  # candidates, each the first of its kind, whose other knobs are varied
KIND_PERCENT = 4  # that a candidate is set back for each of its kind before it
TILE_PERCENT = 3  # and for each before it that is of its tile as well: another cluster, or another number of parts
RASTER_GROUPS = (2, 16)  # beside what `auto` has
LOAD_STAGES = (2, 4)


class Found(NamedTuple):
    """A candidate, what refuses it, of which kind it is, the model's words about it, and, where nothing refuses it,
    its time."""

    candidate: Candidate
    refusals: tuple[Refusal, ...]
    kind: tuple[object, ...]
    why: str
    time: Estimate | None


def explore(
    problem: GemmProblem,
    written: Mapping[str, Any],
    arch: Arch,
    device: Device,
    shape: Shape,
    unordered: bool,
    refuse: Callable[[Candidate], Refusal | None] = lambda c: None,
) -> Iterator[Found]:
    """The legal candidates with the written knobs (by Candidate field) in the order to try them, then the others.

    unordered: also those whose sums may differ from run to run. refuse: what refuses a candidate beside the rules.
    """

    work = describe_work(problem, shape, device)

    def judge(c: Candidate, kind: tuple[object, ...], why: str) -> Found:
        refused = (*refusals(problem, c, arch), *filter(None, [refuse(c)]))
        return Found(c, refused, kind, why, None if refused else estimate(c, work, device))

    found = [
        judge(choice.candidate, _kind(choice.candidate), choice.reasons.get("tile", "the written tile"))
        for choice in candidates(problem, written, arch, device, [shape])
    ]
    leaders: dict[tuple[object, ...], Found] = {}
    for f in _spread(found):
        leaders.setdefault(f.kind, f)
    for leader in islice(leaders.values(), LEADERS):
        for changes in _variations(problem, leader.candidate, arch, device, work, unordered):
            if not changes.keys() & written.keys():
                c = _vary(problem, {**written, **changes}, leader.candidate, arch, shape)
                found.append(judge(c, tuple(changes), f"{leader.why}; varied: {', '.join(changes)}"))
    yield from _spread(found)
    yield from (f for f in found if f.refusals)


def _kind(c: Candidate) -> tuple[object, ...]:
    return c.schedule, c.consumers, c.swap_ab, *(feature.kind(c) for feature in FEATURES)


def _vary(problem: GemmProblem, fixed: Mapping[str, Any], c: Candidate, arch: Arch, shape: Shape) -> Candidate:
    """The candidate with the fixed knobs, those of its core kept, and the others chosen again."""
    core = c.core._replace(**{field: value for field, value in fixed.items() if field in Core._fields})
    chosen: Candidate = finish(problem, fixed, core, arch, [shape], "", "").candidate
    return chosen


def _variations(
    problem: GemmProblem, c: Candidate, arch: Arch, device: Device, work: Work, unordered: bool
) -> Iterator[dict[str, Any]]:
    """Knobs, by Candidate field, in which a candidate may be better otherwise without the model knowing it."""
    if c.load_stages:
        yield from ({"load_stages": stages} for stages in LOAD_STAGES if stages != c.load_stages)
    for feature in FEATURES:
        yield from feature.vary(problem, c, arch, unordered)
    if estimate(c, work, device).waves == 1:
        return  # every CTA has one tile: no order to change, and nothing to store meanwhile
    yield {"scheduler": "static_persistent" if c.dynamic else "dynamic_persistent"}
    by_tma = any(not o.direct for o in problem.kernel_epilogue.outputs)
    if by_tma and c.store_stages < (slots := derive(problem, c).subtiles) <= MAX_STAGES:
        yield {"store_stages": slots}  # a whole tile, for fewer A/B stages: no subtile waits for another's store
    yield from ({"raster_order": order} for order in RASTER_ORDERS if order != c.raster_order)
    axis = RASTER_ORDERS.index(c.raster_order)
    along = -(-kernel_shape(work.shape, c)[axis] // c.tile[axis])
    yield from ({"raster_group": g} for g in RASTER_GROUPS if min(g, along) != min(c.raster_group, along))
    if c.cluster != (1, 1):
        yield {"cluster": (2, 2)}


def _spread(found: Iterable[Found]) -> list[Found]:
    """The legal ones, each set back for those of its kind, and of its kind and tile, that the model has before it."""
    timed = [(f.time, f) for f in found if f.time]
    before: Counter[tuple[object, ...]] = Counter()
    ordered = []
    for e, f in sorted(timed, key=lambda item: (item[0].clocks, item[0].from_l2, item[0].busy)):
        tile = (*f.kind, f.candidate.tile)
        percent = 100 + KIND_PERCENT * before[f.kind] + TILE_PERCENT * before[tile]
        ordered.append((e.clocks * percent, e.from_l2, e.busy, f))
        before.update((f.kind, tile))
    return [f for *_, f in sorted(ordered, key=lambda item: item[:3])]
