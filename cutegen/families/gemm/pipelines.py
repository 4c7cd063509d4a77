"""Rings and named barriers of a GEMM kernel: who fills and drains what, and what completes a phase."""

from __future__ import annotations

from collections.abc import Iterator

from cutegen.arch.architecture import WARP_THREADS, WARPS_PER_WARPGROUP
from cutegen.families.gemm.candidate import Candidate, cluster_size
from cutegen.families.gemm.derived import INDEX_BYTES, QUEUE_STAGES, cuts, warpgroups_per_tile
from cutegen.families.gemm.features.feature_list import FEATURES
from cutegen.families.gemm.problem import GemmProblem
from cutegen.families.gemm.tiling_numbers import Derived
from cutegen.families.gemm.warps import (
    LOAD_WARP,
    TILE_LOAD_WARP,
    consumer_warps,
    scheduler_warp,
)
from cutegen.model.kernel import Arrivals, Creation, NamedBarrier, Pipeline, Warps

K_TILE, SUBTILE = "each k tile", "each subtile"


def list_pipelines(problem: GemmProblem, c: Candidate, d: Derived) -> Iterator[Pipeline]:
    """In the kernel's frame."""
    every = consumer_warps(c)
    consumers = "consumer warpgroups" if c.schedule == "cooperative" else "the consumer whose turn it is"
    if c.consumers == 1:
        consumers = "consumer warpgroup"
    yield _operands(problem, c, d, consumers)
    for feature in FEATURES:
        yield from feature.list_pipelines(problem, c, d.smem, consumers, every)
    if problem.kernel_epilogue.tiles:
        yield tile_ring(problem, c, d, TILE_LOAD_WARP, consumers, consumer_warps(c))
    yield _outputs(problem, c, d, consumers)
    if c.dynamic:
        peers, tiles = cluster_size(c), (TILE_LOAD_WARP,) if problem.kernel_epilogue.tiles else ()
        loading = (LOAD_WARP, *tiles, *_copy_warps(problem, c))
        full = f"1 arrival and {INDEX_BYTES} bytes from CTA 0" if peers > 1 else "1 arrival"
        empty = f"{d.queue_readers * peers} warps{' of all CTAs' * (peers > 1)} arrive at CTA 0"
        kind = "StoreAsync" if peers > 1 else "Async"
        yield Pipeline("queue", kind, "scheduler warp", "all by tile", QUEUE_STAGES, INDEX_BYTES, full, empty,
                       (scheduler_warp(problem),), (*loading, *every), each="next tile")  # fmt: skip


def _copy_warps(problem: GemmProblem, c: Candidate) -> tuple[Warps, ...]:
    """Those that load next to TMA."""
    return tuple(role.warps for feature in FEATURES for role in feature.list_roles(problem, c))


def _operands(problem: GemmProblem, c: Candidate, d: Derived, consumers: str) -> Pipeline:
    full, said = Arrivals(1, "1"), f"1 arrival and {'up to ' * cuts(problem, c)[0]}{d.stage_bytes} bytes by TMA"
    copy = _copy_warps(problem, c)
    if copy:
        copying = WARP_THREADS * sum(warps.count for warps in copy)
        full = Arrivals(1 + copying, f"1 + {copying}")
        said += f", {copying} threads arrive when their copies are there"
    empty = Arrivals(d.empty_arrivals, "t.empty_arrivals")
    made = Creation("ab_barriers", "t.stages", "t.stage_bytes", full, empty, "**tma.peers(t.cluster, t.multicast)")
    producer, arrive = (
        f"load and {copy[0].name.removesuffix('s')}s" if copy else "load warp",
        f"{empty.count} warps arrive",
    )
    return Pipeline("ab", "TmaAsync", producer, consumers, c.stages, d.stage_bytes, said, arrive,
                    (LOAD_WARP, *copy), consumer_warps(c), made, each=K_TILE)  # fmt: skip


def tile_ring(
    problem: GemmProblem, c: Candidate, d: Derived, producer: Warps, consumers: str, readers: tuple[Warps, ...]
) -> Pipeline:
    """Of tiles that the epilogue reads. consumers: the warps `readers` in words."""
    warps = f"{WARPS_PER_WARPGROUP}{' * t.consumers' * (c.schedule != 'pingpong')}"
    empty = Arrivals(WARPS_PER_WARPGROUP * warpgroups_per_tile(c), warps)
    alone = "cta_layout_vmnk=cute.make_layout((1, 1, 1, 1))"
    made = Creation("load_barriers", "t.load_stages", "t.load_bytes", Arrivals(1, "1"), empty, alone)
    names = ", ".join(t.name for t in problem.kernel_epilogue.tiles)
    full, arrive = f"1 arrival and {d.load_bytes} bytes by TMA ({names})", f"{empty.count} warps arrive"
    return Pipeline("load", "TmaAsync", producer.name, consumers, c.load_stages, d.load_bytes, full, arrive,
                    (producer,), readers, made, each=SUBTILE)  # fmt: skip


def _outputs(problem: GemmProblem, c: Candidate, d: Derived, consumers: str) -> Pipeline:
    outputs = problem.kernel_epilogue.outputs
    size = d.epilogue_tile[0] * d.epilogue_tile[1] * sum(o.dtype.bytes for o in outputs)
    kind, drain, empty = "TmaStore", "TMA", "the storing warp waits until TMA has read the slot"
    if all(o.direct for o in outputs):
        kind, drain, empty = "Threads", "the same threads", "one barrier later all of them have read the slot"
    full = "all threads of the group at a named barrier"
    return Pipeline("store", kind, consumers, drain, c.store_stages, size, full, empty, consumer_warps(c), (),
                    each=SUBTILE)  # fmt: skip


def list_barriers(problem: GemmProblem, c: Candidate) -> tuple[NamedBarrier, ...]:
    """With pingpong a barrier of each kind for each warpgroup: it waits there until the other one gives it the turn."""
    every = consumer_warps(c)
    if c.schedule != "pingpong":
        says = "a subtile is staged, or a slot of the ring is free"
        return (NamedBarrier(1, "EPILOGUE", (), every, says, within="store"),)
    turns: list[tuple[int, str, str, tuple[str, ...]]] = [(3, "TURN", "the other group has issued its MMAs", ("ab",))]
    if problem.kernel_epilogue.tiles:
        turns.append((5, "TILE_TURN", "the other group has read its tiles", ("boxes", "load", "store")))
    staged = "a subtile is staged or a slot free"
    own = (
        NamedBarrier(1 + w, f"EPILOGUE_{w}", (), (warps,), f"group {w}: {staged}", "EPILOGUE", within="store")
        for w, warps in enumerate(every)
    )
    return (
        *own,
        *(
            NamedBarrier(
                first + w, f"{name}_{w}", (every[1 - w],), (every[w],), f"group {w}: {says}", name, around=around
            )
            for first, name, says, around in turns
            for w in range(len(every))
        ),
    )
