"""One candidate as a ResolvedMlaTiling: its numbers, where each comes from, SMEM map, pipelines and roles in words."""

from __future__ import annotations

from cutegen.families.mla_decode.candidate import KEYS_ON_M, Candidate
from cutegen.families.mla_decode.derived import (
    BUFFERS,
    CONSUMER_WARPS,
    CONSUMERS,
    FIND_WARP,
    IDLE_WARP,
    K_WARP,
    MEET_WARP,
    Q_WARP,
    Derived,
    derive,
    list_mbarriers,
    list_named_barriers,
    loaders,
    query_boxes,
    query_rows,
    row_warps,
)
from cutegen.families.mla_decode.knob_numbers import describe_numbers
from cutegen.families.mla_decode.problem import MlaProblem
from cutegen.families.mla_decode.resolved import ResolvedMlaTiling
from cutegen.model.kernel import IDLE, Event, KernelModel, Pipeline, Role
from cutegen.runtime.mla_decode.tiling import KEY_BLOCK


def describe_tiling(problem: MlaProblem, c: Candidate, name: str) -> ResolvedMlaTiling:
    """c: of one kernel, as Candidate.instances has them."""
    d = derive(problem, c)
    own = {
        "threads": (d.threads, f"128 x ({CONSUMERS} consumer + {loaders(problem, c)} producer warpgroups)"),
        "producer_registers": (c.producer_registers, "warpgroups.producer.registers"),
        "consumer_registers": (c.consumer_registers, "warpgroups.consumer.registers"),
        "smem_bytes": (d.smem_bytes, f"end of {d.smem[-1].name}, rounded up to 1024"),
    }
    numbers, sources = describe_numbers(problem, c, own)
    return ResolvedMlaTiling(
        name=name,
        numbers=numbers,
        sources=sources,
        model=KernelModel(
            roles=_roles(problem, c),
            pipelines=_pipelines(problem, c, d),
            smem=d.smem,
            mbarriers=list_mbarriers(problem, c),
            barriers=list_named_barriers(problem, c, c.pdl_schedule_ahead),
        ),
        candidate=c,
        free_groups=d.free_groups,
        q_bytes=d.q_bytes,
        tile_bytes=d.tile_bytes,
    )


def _pipelines(problem: MlaProblem, c: Candidate, d: Derived) -> tuple[Pipeline, ...]:
    tile, peers = d.tile_bytes, " over the cluster" if c.cluster > 1 else ""
    copies = f" in {problem.boxes} copies" if problem.boxes > 1 else ""
    block = tile * d.tiles
    p_bytes = query_rows(problem, c) * KEY_BLOCK * problem.dtype.bytes
    by_rows = row_warps(problem, c) if problem.by_rows else None
    q_warps, few = by_rows or Q_WARP, c.variant == KEYS_ON_M
    *fewer, most = query_boxes(problem, c)
    rows = f"{', '.join(map(str, fewer))} or {most} rows" if fewer else f"{most} rows"
    left = "behind its scores" if few else "when O has left SMEM"
    plans = [
        Pipeline(
            "q", "TmaAsync", "Q warp" if by_rows is None else by_rows.name, "both consumers", 1, d.q_bytes,
            f"1 arrival and {rows} by TMA" + ", whatever holds all" * bool(fewer),
            f"{CONSUMERS} arrivals: one a consumer, {left}", (q_warps,), CONSUMER_WARPS,
        )
    ]  # fmt: skip
    for buffer in range(BUFFERS):
        groups = [g for g in d.free_groups if g.buffer == buffer]
        freed = "; ".join(
            f"tiles {_span(g.tiles)}: {g.arrivals} warps of consumer {g.warpgroup}{peers}" for g in groups
        )
        if by_rows:
            full = f"each of {d.tiles} tiles: 4 arrivals, one a warp that has decoded its share to {tile} bytes"
            if problem.cache is None:
                full = f"each of {d.tiles} tiles: {tile} bytes by cp.async, an arrival of each thread and each warp"
            plans.append(
                Pipeline(
                    f"k{buffer}", "mbarrier", by_rows.name, "both consumers", 1, block, full, freed,
                    (by_rows,), CONSUMER_WARPS,
                )
            )  # fmt: skip
            continue
        plans.append(
            Pipeline(
                f"k{buffer}", "TmaAsync", "K warp", "both consumers", 1, block,
                f"each of {d.tiles} tiles: 1 arrival and {tile} bytes by TMA{copies}", freed,
                (K_WARP,), CONSUMER_WARPS,
            )
        )  # fmt: skip
    for group in range(CONSUMERS):
        # Who reads P gives it back by the group of tiles of that buffer that it reads last.
        (last,) = (g.tiles[-1] for g in d.free_groups if (g.buffer, g.warpgroup) == (group, 1 - group))
        plans.append(
            Pipeline(
                f"p{group}", "named barrier", f"consumer {group}", f"consumer {1 - group}", 1, p_bytes,
                f"P_READY_{group}", f"with tile {last} of k{group}",
                (CONSUMER_WARPS[group],), (CONSUMER_WARPS[1 - group],), own_empty=False,
            )
        )  # fmt: skip
    o_bytes = query_rows(problem, c) * problem.value_dim * problem.dtype.bytes
    plans.append(
        Pipeline(
            "out", "TmaStore", "both consumers", "TMA", 1, o_bytes, "OWN_0, OWN_1",
            f"the storing warp waits until TMA has read {'sO' if few else 'sQ'}", CONSUMER_WARPS, (),
        )
    )  # fmt: skip
    return tuple(plans)


def _span(tiles: tuple[int, ...]) -> str:
    """0, 1, 2, 3, 8 -> `0..3, 8`."""
    runs: list[list[int]] = []
    for tile in tiles:
        if runs and tile == runs[-1][-1] + 1:
            runs[-1].append(tile)
        else:
            runs.append([tile])
    return ", ".join(f"{r[0]}..{r[-1]}" if len(r) > 1 else str(r[0]) for r in runs)


REQUEST, PAIR = "each request", "each pair of blocks"


def _consumer_events(group: int, guess: bool, decodes: bool, few: bool) -> tuple[Event, ...]:
    """Of warpgroup `group`; guess: whether loads begin by a guess, before the wait for the preceding kernel; decodes:
    whether a warpgroup decodes K, which begins when consumers do; few: whether keys are on M, so that O leaves by a
    place of its own."""
    own, other = group, 1 - group
    pair = [(True, f"k{own} full"), (False, "p0 full"), (False, "k0 empty"), (True, "p1 full"), (False, "k1 empty")]
    if group == 1:
        pair = [(True, f"k{own} full"), (True, f"p{other} full"), (False, "k0 empty"), (False, "p1 full"),
                (False, "k1 empty")]  # fmt: skip
    return (
        *([] if decodes else [Event("", False, "READY")]),
        *([Event("", False, "CHECKED")] if guess and group == 1 else []),
        Event("", True, "FOUND"),
        *([Event("", True, "FREED")] if guess else []),
        Event(REQUEST, True, "q full"),
        *(Event(PAIR, waits, what) for waits, what in pair),
        Event(REQUEST, True, "BOTH"),
        *([Event(REQUEST, False, "q empty")] if few else []),
        Event(REQUEST, False, "out full"),
        Event(REQUEST, True, "out empty"),
        *([] if few else [Event(REQUEST, False, "q empty")]),
        Event(REQUEST, True, "BOTH"),
        Event("", True, "MET"),
    )


def _load_events(guess: bool, each: str, *slots: str) -> tuple[Event, ...]:
    """Of a load warp that fills slots of those pipelines one after the other."""
    starts = ("READY", "CHECKED", "FREED") if guess else ("READY",)
    fills = [Event(each, side == "empty", f"{slot} {side}") for slot in slots for side in ("empty", "full")]
    return (*(Event("", True, name) for name in starts), *fills)


def _roles(problem: MlaProblem, c: Candidate) -> tuple[Role, ...]:
    decodes = problem.by_rows
    roles, guess = [], c.pdl_schedule_ahead and not decodes
    for group in range(CONSUMERS):
        single = " and single ones" if group == 0 and c.unit == 1 else ""
        half = ", or half of these," if c.split_columns else ""
        scores, sums = ("S^T = K Q^T", "O^T += V^T P^T") if c.variant == KEYS_ON_M else ("S = Q K^T", "O += P V")
        does = (
            f"block {group} of every pair{single}: {scores}, softmax, P to SMEM; columns {256 * group}.."
            f"{256 * group + 255}{half} of {sums} of both blocks; then joins the parts of cut requests"
        )
        does = f"{FIND_WARP.name} first finds the CTA's part of the work; {does}" if group == 1 else does
        roles.append(
            Role(
                CONSUMER_WARPS[group],
                c.consumer_registers,
                does,
                _consumer_events(group, guess, decodes, c.variant == KEYS_ON_M),
            )
        )
    if decodes:
        return (*roles, _row_loader(problem, c))
    load = "loads the pages of K by TMA" + (", its half of each tile for both CTAs" if c.cluster > 1 else "")
    load += "; the first before the wait for the preceding kernel" if c.pdl_load_ahead else ""
    roles.append(Role(K_WARP, c.producer_registers, load, _load_events(guess, PAIR, "k0", "k1")))
    load_q = "loads Q by TMA, independently of K"
    roles.append(Role(Q_WARP, c.producer_registers, load_q, _load_events(guess, REQUEST, "q")))
    meet = "rendezvous: finds which CTAs share this CTA's requests, and whether they are resident"
    roles.append(Role(MEET_WARP, c.producer_registers, meet, (Event("", True, "FOUND"), Event("", False, "MET"))))
    roles.append(Role(IDLE_WARP, c.producer_registers, IDLE))
    return tuple(roles)


def _row_loader(problem: MlaProblem, c: Candidate) -> Role:
    does = f"loads rows of the cache, decodes them to {problem.dtype} and stores them as the tiles of K"
    if problem.cache is None:
        does = "copies the rows of the cache that indices name to the tiles of K"
    does = f"each warpgroup, for its block of every pair: {does}" if loaders(problem, c) > 1 else does
    ahead = "next pair of blocks" if problem.cache is None else "blocks behind"
    does += f"; asks L2 for those of the {ahead}" if c.prefetch else ""
    does += f"; in between, {Q_WARP.name} loads Q by TMA, and the meet warp finds which CTAs share this CTA's requests"
    fills = [Event(PAIR, side == "empty", f"{slot} {side}") for slot in ("k0", "k1") for side in ("empty", "full")]
    q = (Event(REQUEST, True, "q empty"), Event(REQUEST, False, "q full"))
    events = (Event("", True, "FOUND"), *q, *fills, Event("", False, "MET"))
    return Role(row_warps(problem, c), c.producer_registers, does, events)
