"""Shipped MLA decode kernels, executed on the PTX machine: ragged lengths, requests in several parts, both variants."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("numpy")
pytest.importorskip("torch")

from gemm_specs import resolve_text
from mla_machine import (
    BF16,
    CACHE,
    F16,
    LENGTHS,
    PROMISED,
    TABLE,
    UNIT_1,
    assert_right,
    dims,
    loaded,
    loaded_in,
    reached,
)
from mla_specs import EDGES

from cutegen.machine import Simulation, assert_passes, load_resolution, run
from cutegen.machine.host import missing_tool
from cutegen.run.guard import bits
from cutegen.runtime.mla_decode.inputs import SPARE_PAGES, Draw

pytestmark = [
    pytest.mark.dsl,
    pytest.mark.skipif(importlib.util.find_spec("cutlass") is None, reason="nvidia-cutlass-dsl is not installed"),
    pytest.mark.skipif(missing_tool() is not None, reason=str(missing_tool())),
]


@pytest.mark.parametrize(
    ("name", "tiling", "shape", "draw", "seed", "sm_count"),
    [
        (BF16, "seesaw", dims(9, 1, 3, 257), Draw("edges", peaked=True), 0, 4),
        (BF16, "seesaw", dims(1, 2, 16, 900), Draw(), 1, 4),  # one request in four parts
        (BF16, "seesaw_2cta", dims(3, 1, 128, 300), Draw("random", pitch=True), 2, 4),
        (BF16, "seesaw_2cta", dims(4, 2, 17, 3), Draw("edges"), 3, 4),
        (F16, "seesaw", dims(3, 4, 20, 200), Draw("random", peaked=True), 4, 4),
        (BF16, "seesaw", dims(2, 3, 16, 64), Draw("empty"), 5, 4),
        (BF16, UNIT_1, dims(1, 2, 16, 190), Draw(), 0, 4),
        (BF16, UNIT_1, dims(3, 4, 20, 330), Draw("random", peaked=True), 4, 4),
        (BF16, "seesaw", dims(1, 1, 2, 34 * 64), Draw(), 2, 34),  # in more parts than a warp has lanes
        (BF16, "seesaw", dims(33, 1, 1, 130), Draw("edges"), 5, 3),  # more requests than a warp has lanes
        (BF16, "seesaw", dims(170, 1, 1, 70), Draw("edges"), 1, 3),  # and than are guessed ahead of the wait
        (BF16, UNIT_1, dims(7, 1, 1, 450), Draw("edges", peaked=True), 3, 2),  # several requests a part
        (F16, "seesaw", dims(1, 16, 16, 200), Draw("random"), 7, 8),
        # Two CTAs share the columns of a part: ragged, with requests that are not cut, and an odd CTA without a part.
        (BF16, UNIT_1, dims(3, 2, 20, 330), Draw("edges", peaked=True), 1, 11),
        (BF16, UNIT_1, dims(1, 1, 70, 500), Draw(), 2, 20),
        (BF16, UNIT_1, dims(1, 1, 3, 130), Draw(), 6, 13),
        (BF16, UNIT_1, dims(1, 1, 16, 34 * 64), Draw(), 8, 2 * 34),  # in more parts than a warp has lanes
        # New tokens are the last of the first keys that a part loads, or the first after them, or all.
        (BF16, "seesaw", dims(1, 1, 16, 128), Draw(), 1, 1),
        (BF16, "seesaw", dims(1, 2, 16, 130), Draw(), 1, 1),
        (BF16, UNIT_1, dims(2, 3, 16, 66), Draw("edges"), 2, 1),
        (BF16, UNIT_1, dims(3, 4, 5, 3), Draw("random"), 1, 2),
    ],
)
def test_shipped_mla_decode(
    name: str, tiling: str, shape: dict[str, int], draw: Draw, seed: int, sm_count: int
) -> None:
    simulation = Simulation(sm_count, seed, **PROMISED)
    assert_passes(loaded_in(simulation, name), shape, tiling=tiling, draw=draw)
    assert simulation.unknown() == []


@pytest.mark.parametrize(("heads", "rows"), [(16, {16}), (17, {32}), (33, {64}), (70, {64, 16})])
def test_rows_of_q_come_in_the_smallest_box(heads: int, rows: set[int]) -> None:
    """Behind it shared memory is NaN, of which no row that exists is made."""
    simulation = Simulation(**PROMISED)
    assert_passes(loaded_in(simulation, BF16), dims(1, 1, heads, 70), tiling="seesaw")
    assert simulation.machine
    boxes = [extents for region, _, extents in simulation.machine.boxes if region.startswith("argument 0 ")]
    assert {extents[1] for extents in boxes} == rows


@pytest.mark.parametrize(("tiling", "heads"), [("seesaw", 16), ("seesaw_2cta", 128)])
@pytest.mark.parametrize("keys", [70, 130])
def test_no_keys_past_an_odd_last_block(tiling: str, heads: int, keys: int) -> None:
    """A step of its own: TMA takes long to fill a block with zeros, and its products are computed in vain."""
    simulation = Simulation(2, **PROMISED)
    subject = loaded_in(simulation, BF16)
    assert_passes(subject, dims(1, 1, heads, keys), tiling=tiling)
    assert simulation.machine
    pages = [start[-1] for region, start, _ in simulation.machine.boxes if region.startswith("argument 1 ")]
    assert len(set(pages)) == -(-keys // 64)
    assert max(pages) < -(-keys // 64) + SPARE_PAGES


# What parts do about requests that they share: instructions of split_join.py.
SHARES, JOINS_ALL = "joins a share", "waits where others have left"
DOES = {
    SHARES: re.compile(r"red\.relaxed\.gpu\.global\.inc"),
    JOINS_ALL: re.compile(r"atom\.relaxed\.gpu\.global\.inc"),
}


def forget(simulation: Simulation) -> None:
    for assembler in simulation.assemblers:
        assembler.reached[:] = bytes(len(assembler.reached))


def done(simulation: Simulation) -> set[str]:
    return {what for what, pattern in DOES.items() if any(reached(simulation, pattern))}


@pytest.mark.parametrize(
    ("name", "tiling", "shape", "sm_count", "resident"),
    [
        (BF16, "seesaw", dims(1, 2, 16, 900), 4, {3: {JOINS_ALL}, 1: {JOINS_ALL}}),
        # A part between two others shares a request with each: it waits for the one and not for the other.
        (BF16, "seesaw", dims(4, 1, 3, 900), 3, {2: {SHARES, JOINS_ALL}, 1: {JOINS_ALL}}),
        (BF16, "seesaw_2cta", dims(1, 1, 128, 300), 8, {4: {JOINS_ALL}}),
        (BF16, UNIT_1, dims(1, 1, 70, 500), 20, {9: {JOINS_ALL}}),
    ],
)
def test_parts_that_start_when_others_have_ended(
    name: str, tiling: str, shape: dict[str, int], sm_count: int, resident: dict[int, set[str]]
) -> None:
    """As where other kernels hold SMs: those that are there leave, and one of those that wait joins all rows, to the
    same bits."""
    simulation = Simulation(sm_count, 1, **PROMISED)  # an order in which all start soon
    subject = loaded_in(simulation, name)
    plan: Any = subject.plan
    inputs = plan.draw_inputs(Draw(), **shape)
    scratch = plan.allocate_scratch(*inputs)
    found = []
    for simulation.resident, does in {None: {SHARES}, **resident}.items():
        forget(simulation)
        outputs = plan.allocate_outputs(*inputs)
        plan.make_launch(tiling)(*inputs, *outputs, *scratch)
        found.append([bits(tensor) for tensor in outputs])
        assert not scratch[1].any()
        assert done(simulation) == does
    assert all(bool((a == b).all()) for other in found[1:] for a, b in zip(found[0], other))


@pytest.mark.parametrize("name", ["single", "single_in_pairs"])
def test_single_blocks_with_prefetch(name: str) -> None:
    """A step of one block fills one buffer: what comes ahead waits for that, not for the other."""
    simulation = Simulation(**PROMISED if name == "single_in_pairs" else {})
    subject = load_resolution(resolve_text(EDGES[name], name=name), simulation)  # which test_mla_limits.py builds, too
    for shape, draw in ((dims(1, 1, 128, 190), Draw()), (dims(3, 1, 128, 450), Draw("random"))):
        assert_passes(subject, shape, draw=draw)
    assert simulation.unknown() == []


def test_parts_of_single_blocks() -> None:
    """Parts of one block, of a pair and one, and of pairs, in pages of two blocks. And memory, which may be scratch of
    the kernel in front, is not touched before the wait for it."""
    simulation = Simulation()
    subject = load_resolution(resolve_text(EDGES["single"], name="single"), simulation)
    for shape, draw, seed in (
        (dims(9, 1, 3, 257), Draw("edges", peaked=True), 1),
        (dims(1, 2, 16, 190), Draw(), 0),
        (dims(3, 4, 20, 330), Draw("random", peaked=True), 4),
    ):
        simulation.seed = seed
        assert_passes(subject, shape, draw=draw, seed=seed)
    code = [i.text for i in simulation.assemblers[0].program.instructions]
    wait = code.index("griddepcontrol.wait")
    touch = re.compile(r"(ld|st|atom|red|prefetch|cp)\.\S*(global|bulk\.tensor)")
    touches = [i for i, text in enumerate(code) if touch.match(text)]
    assert len(touches) > 50
    assert wait < touches[0]


def replacing(pattern: str, by: str) -> Callable[[str], str]:
    def mutate(ptx: str) -> str:
        changed, n = re.subn(pattern, by, ptx)
        assert n, f"nothing in the PTX matches {pattern}"
        return changed

    return mutate


COMPARES = r"(\s+min\.s32\s+%r\d+, %r\d+, \2;\s+setp\.le)"  # the end of a block with that of the keys that are there


@pytest.mark.parametrize(
    ("change", "shape", "told"),
    [
        ({"ready": (TABLE,)}, dims(1, 1, 16, 900), f"before griddepcontrol.wait: argument {CACHE} "),
        ({"ready": (CACHE,)}, dims(1, 1, 16, 900), f"before griddepcontrol.wait: argument {TABLE} "),
        *(
            (
                {"mutate": replacing(pattern, by), "before": None, "ready": (CACHE, TABLE, LENGTHS)},
                shape,
                f"TMA loads what the kernel in front may write, before griddepcontrol.wait: argument {CACHE} ",
            )
            for pattern, by, shape in (
                (rf"(add\.s32\s+(%r\d+), %r\d+, )64;{COMPARES}", r"\g<1>0;\3", dims(1, 2, 16, 65)),
                (rf"(add\.s32\s+(%r\d+), %r\d+, )128;{COMPARES}", r"\g<1>64;\3", dims(1, 1, 16, 128)),
                (
                    rf"(add\.s32\s+(%r\d+), %r\d+, %r\d+;){COMPARES}",
                    r"\1 add.s32 \2, \2, -64;\3",
                    dims(1, 1, 16, 64),
                ),
            )
        ),
    ],
    ids=[
        "keys that nobody promises",
        "a table that nobody promises",
        "a first block with a new token",
        "a second block with a new token",
        "a block alone with a new token",
    ],
)
def test_keys_ahead_that_may_not_be_there(change: dict[str, Any], shape: dict[str, int], told: str) -> None:
    result = run(loaded(BF16, sm_count=1, **change), shape, tiling="seesaw")
    assert told in str(result.detail)


@pytest.mark.parametrize("scale", [1e-4, 1e-30])
def test_tokens_without_keys_at_any_scale(scale: float) -> None:
    plan = loaded(BF16).plan
    assert plan
    inputs = (*plan.prepare_inputs(batch=3, query_len=4, heads=16, kv_len=2)[:-1], scale)  # tokens 0 and 1 see nothing
    assert_right(plan, inputs, plan.kernel_fn(*inputs))


def test_negative_lengths_count_as_zero() -> None:
    import torch

    plan = loaded(BF16).plan
    assert plan
    q, cache, table, _, scale = plan.draw_inputs(Draw(), **dims(4, 2, 16, 130))
    lengths = torch.tensor([130, -1, 70, -(2**31)], dtype=torch.int32)
    outputs = plan.kernel_fn(q, cache, table, lengths, scale)
    assert_right(plan, (q, cache, table, lengths.clamp(min=0), scale), outputs)


@pytest.mark.parametrize(
    ("pattern", "by", "resident", "told"),
    [
        (r"atom\.global\.release\.add\.u32[^;]*;", "", None, "warps poll for what never comes"),
        (r"fence\.acq_rel\.gpu;|\.release(?=\.add)", "", None, "race: .* writ|race: .* reads .*float32"),
        (r"st\.global\.b32 [^;]*;", "", None, "wrong"),  # partial LSEs
        (r"bar\.sync\s+2, 256;", "", None, "race"),  # what the warpgroups hand to each other
        (r"bar\.sync\s+7, 288;", "", None, "race"),
        (r"red\.relaxed\.gpu\.global\.inc[^;]*;", "", None, "elements are not zero"),
        (r"(atom\.global\.add\.u32[^;]*), 256;", r"\1, 0;", None, "wrong"),  # all leave, and nobody joins
        (
            r"setp\.eq\.b32(\s+%p\d+), (%r\d+), %r\d+;(\s+selp\.b32\s+%r\d+, 1, 0,)",
            r"setp.eq.b32\1, \2, \2;\3",
            3,
            "warps poll for what never comes",
        ),
    ],
    ids=[
        "a part is never published",
        "a part is published by a relaxed atomic",
        "results are not stored",
        "warpgroups do not wait for each other",
        "whether to wait is not waited for",
        "a part is not counted out",
        "a part is not counted as started",
        "a part waits for one that has not started",
    ],
)
def test_breaks_are_told(pattern: str, by: str, resident: int | None, told: str) -> None:
    subject = loaded(BF16, mutate=replacing(pattern, by), resident=resident)
    result = run(subject, dims(1, 2, 16, 900), tiling="seesaw")
    assert re.search(told, "\n".join(result.detail)), result.detail
