"""Shipped MLA decode kernels, executed on the PTX machine: ragged lengths, requests in several parts, both variants."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("numpy")
pytest.importorskip("torch")

from gemm_specs import resolve_text
from mla_specs import EDGES, MLA
from ptx_machine import Simulation, assert_passes, load, load_resolution, run
from ptx_machine.host import missing_tool

from cutegen.run.guard import bits
from cutegen.run.subject import Subject
from cutegen.runtime.accuracy import compare
from cutegen.runtime.mla_inputs import Draw

pytestmark = [
    pytest.mark.dsl,
    pytest.mark.skipif(importlib.util.find_spec("cutlass") is None, reason="nvidia-cutlass-dsl is not installed"),
    pytest.mark.skipif(missing_tool() is not None, reason=str(missing_tool())),
]
ROOT = Path(__file__).parents[2]
BF16, F16 = (f"mla_decode_{kind}_sm90a" for kind in ("bf16", "f16"))
UNIT_1 = "seesaw_unit_1_split_columns"


def dims(batch: int, query_len: int, heads: int, kv_len: int) -> dict[str, int]:
    return {"batch": batch, "query_len": query_len, "heads": heads, "kv_len": kv_len}


CACHE, TABLE, LENGTHS = 1, 2, 3  # arguments, where q is one


def new_tokens(q: Any, cache: Any, table: Any, lengths: Any, *others: Any) -> dict[int, Any]:
    """What nobody promises to be there when a kernel may start: all of the cache but the keys before the new tokens."""
    import torch

    late, page_size = torch.ones(cache.shape[:2], dtype=torch.bool), cache.shape[1]
    for row, length in zip(table.tolist(), lengths.tolist()):
        for first in range(0, length - q.shape[1], page_size):
            late[row[first // page_size], : length - q.shape[1] - first] = False
    return {CACHE: late}


def unchanged(q: Any, cache: Any, table: Any, lengths: Any, *others: Any) -> dict[int, Any]:
    """What guesses are made by, where the kernel in front writes none of it."""
    return {LENGTHS: lengths}


PROMISED: dict[str, Any] = {"ready": (CACHE, TABLE), "late": new_tokens, "before": unchanged}


def loaded(name: str, **options: Any) -> Subject:
    return loaded_in(Simulation(**{**PROMISED, **options}), name)


def loaded_in(simulation: Simulation, name: str) -> Subject:
    return load(ROOT / "generated" / name, simulation)


@pytest.mark.parametrize(
    ("name", "tiling", "shape", "draw", "seed", "sm_count"),
    [
        (BF16, "seesaw", dims(9, 1, 3, 257), Draw("edges", peaked=True), 0, 4),
        (BF16, "seesaw", dims(1, 2, 16, 900), Draw(), 1, 4),  # one request in four parts
        (F16, "seesaw_2cta", dims(3, 1, 128, 300), Draw("random", pitch=True), 2, 4),
        (BF16, "seesaw_2cta", dims(4, 2, 17, 3), Draw("edges"), 3, 4),
        (BF16, "seesaw", dims(3, 4, 20, 200), Draw("random", peaked=True), 4, 4),
        (BF16, "seesaw", dims(2, 3, 16, 64), Draw("empty"), 5, 4),
        (BF16, UNIT_1, dims(1, 2, 16, 190), Draw(), 0, 4),
        (F16, UNIT_1, dims(3, 4, 20, 330), Draw("random", peaked=True), 4, 4),
        (BF16, "seesaw", dims(1, 1, 2, 34 * 64), Draw(), 2, 34),  # in more parts than a warp has lanes
        (BF16, "seesaw", dims(33, 1, 1, 130), Draw("edges"), 5, 3),  # more requests than a warp has lanes
        (BF16, UNIT_1, dims(7, 1, 1, 450), Draw("edges", peaked=True), 3, 2),  # several requests a part
        (BF16, "seesaw", dims(1, 16, 16, 200), Draw("random"), 7, 8),
        # Two CTAs share the columns of a part: ragged, with requests that are not cut, and an odd CTA without a part.
        (BF16, UNIT_1, dims(3, 2, 20, 330), Draw("edges", peaked=True), 1, 11),
        (F16, UNIT_1, dims(1, 1, 70, 500), Draw(), 2, 20),
        (BF16, UNIT_1, dims(1, 1, 3, 130), Draw(), 6, 13),
        (BF16, UNIT_1, dims(1, 2, 16, 34 * 64), Draw(), 8, 2 * 34),  # in more parts than a warp has lanes
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
    reached = (
        instruction.text
        for assembler in simulation.assemblers
        for instruction, reached in zip(assembler.program.instructions, assembler.reached)
        if reached
    )
    return {what for text in reached for what, pattern in DOES.items() if pattern.match(text)}


@pytest.mark.parametrize(
    ("name", "tiling", "shape", "sm_count", "resident"),
    [
        (BF16, "seesaw", dims(1, 2, 16, 900), 4, {3: {JOINS_ALL}, 1: {JOINS_ALL}}),
        # A part between two others shares a request with each: it waits for the one and not for the other.
        (BF16, "seesaw", dims(4, 1, 3, 900), 3, {2: {SHARES, JOINS_ALL}, 1: {JOINS_ALL}}),
        (F16, "seesaw_2cta", dims(1, 1, 128, 300), 8, {4: {JOINS_ALL}}),
        (F16, UNIT_1, dims(1, 1, 70, 500), 20, {9: {JOINS_ALL}}),
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


@pytest.mark.parametrize(
    ("change", "shape", "told"),
    [
        ({"ready": (TABLE,)}, dims(1, 1, 16, 900), f"before griddepcontrol.wait: argument {CACHE} "),
        ({"ready": (CACHE,)}, dims(1, 1, 16, 900), f"before griddepcontrol.wait: argument {TABLE} "),
        (
            {
                "mutate": lambda ptx: re.sub(
                    r"(add\.s32\s+(%r\d+), %r\d+, )2;(\s+min\.s32\s+%r\d+, %r\d+, \2;)", r"\g<1>1;\3", ptx
                ),
                "before": None,
                "ready": (CACHE, TABLE, LENGTHS),
            },
            dims(1, 1, 16, 128),
            f"TMA loads what the kernel in front may write, before griddepcontrol.wait: argument {CACHE} ",
        ),
    ],
    ids=["keys that nobody promises", "a table that nobody promises", "a block with a new token"],
)
def test_keys_ahead_that_may_not_be_there(change: dict[str, Any], shape: dict[str, int], told: str) -> None:
    result = run(loaded(BF16, sm_count=1, **change), shape, tiling="seesaw")
    assert told in str(result.detail)


GUESSED = "fewest_registers"  # and no keys are loaded by the guess
SPLIT_LENGTHS = 4  # argument, where q is two


def before_they_changed(seed: int, argument: int = LENGTHS) -> Callable[..., dict[int, Any]]:
    """Lengths by which guesses are wrong. Seed 0: every request has all that the table has room for, or two blocks at
    least; else each what it will have, a little less, nothing, that room, or no length at all."""

    def before(*values: Any) -> dict[int, Any]:
        import torch

        lengths, (_, pages), page_size = values[argument], values[argument - 1].shape, values[argument - 2].shape[1]
        room = lengths * 0 + max(128, pages * page_size)
        if seed == 0:
            return {argument: room}
        choice = torch.randint(6, lengths.shape, generator=torch.Generator().manual_seed(seed))
        others = [lengths, lengths - 1, lengths * 0, room, lengths * 0 + 2**31 - 1, -1 - lengths]
        return {argument: torch.stack(others).gather(0, choice[None])[0].int().contiguous()}

    return before


FREES = re.compile(r"bar\.sync\s+10, 320")  # what was loaded by a wrong guess
AGREES = re.compile(r"st\.async\.")  # two CTAs: on their guess; that what they loaded in vain is there


def reached(simulation: Simulation, pattern: re.Pattern[str]) -> list[bool]:
    """Of each such instruction, whether any launch executed it."""
    return [
        bool(was)
        for assembler in simulation.assemblers
        for instruction, was in zip(assembler.program.instructions, assembler.reached)
        if pattern.match(instruction.text)
    ]


@pytest.mark.parametrize(
    ("name", "tiling", "shape", "draw", "sm_count"),
    [
        (BF16, "seesaw", dims(4, 1, 3, 900), Draw("random"), 3),
        (BF16, "seesaw", dims(3, 2, 16, 0), Draw(), 4),  # nothing, where there was something
        (BF16, "seesaw", dims(33, 1, 1, 64), Draw("random"), 3),  # more requests than a warp has lanes
        (F16, "seesaw_2cta", dims(2, 1, 128, 300), Draw("random"), 8),
        (BF16, "seesaw_2cta", dims(3, 2, 64, 330), Draw("edges"), 4),
        (BF16, UNIT_1, dims(3, 2, 20, 330), Draw("random"), 11),
        (F16, UNIT_1, dims(1, 1, 70, 500), Draw("random"), 20),
    ],
)
def test_lengths_that_the_kernel_in_front_writes(
    name: str, tiling: str, shape: dict[str, int], draw: Draw, sm_count: int
) -> None:
    """Some CTAs guess by lengths of before, some by those of now, some by a mixture; all decode what is so."""
    simulation = Simulation(sm_count, **PROMISED)
    subject = loaded_in(simulation, name)
    for simulation.seed in (0, 1, 2):
        simulation.before = before_they_changed(simulation.seed)
        assert_passes(subject, shape, tiling=tiling, draw=draw, seed=simulation.seed)
    assert simulation.unknown() == []
    assert any(reached(simulation, FREES))
    if tiling == "seesaw_2cta":
        assert reached(simulation, AGREES) == [True, True]


def test_too_many_requests_to_guess() -> None:
    simulation = Simulation(3, 1, **{**PROMISED, "before": before_they_changed(1)})
    assert_passes(loaded_in(simulation, BF16), dims(33, 1, 1, 64), tiling=UNIT_1, draw=Draw("random"))
    assert not any(reached(simulation, FREES))


@pytest.mark.parametrize("tiling", ["seesaw", UNIT_1])
def test_parts_that_turn_out_to_have_no_keys(tiling: str) -> None:
    simulation = Simulation(8, 1, **{**PROMISED, "before": before_they_changed(0)})
    plan: Any = loaded_in(simulation, BF16).plan
    inputs = plan.draw_inputs(Draw(), **dims(1, 1, 16, 900))
    inputs[3][:] = 70
    outputs, scratch = plan.allocate_outputs(*inputs), plan.allocate_scratch(*inputs)
    plan.make_launch(tiling)(*inputs, *outputs, *scratch)
    assert_right(plan, inputs, outputs)


@pytest.mark.parametrize("form", [GUESSED, "single_in_pairs", "without a promise"])
def test_guesses_of_other_forms(form: str) -> None:
    """Of two CTAs that share their loads, without keys and with single blocks of them; and by one CTA behind the wait,
    which needs no promise."""
    keys = form == "single_in_pairs"
    text = EDGES.get(form) or MLA + "variant: seesaw\nscheduler: {unit: 2}\n"
    argument = SPLIT_LENGTHS if form == GUESSED else LENGTHS
    simulation = Simulation(8, ready=(CACHE, TABLE) if keys else (), late=new_tokens if keys else None)
    subject = load_resolution(resolve_text(text, name=form.replace(" ", "_")), simulation)
    for simulation.seed, shape in enumerate((dims(2, 1, 128, 200), dims(1, 2, 128, 300))):
        simulation.before = before_they_changed(simulation.seed, argument)
        assert_passes(subject, shape, draw=Draw("random"), seed=simulation.seed)
    assert simulation.unknown() == []
    assert any(reached(simulation, FREES))


def without_the_last_exchange(ptx: str) -> str:
    """Two CTAs load again without a word to each other."""
    announced, given = r"mbarrier\.arrive\.expect_tx\.shared\.b64 (%rd\d+), (\[%r\d\+200\]), %r\d+;", r"st\.async[^;]*;"
    changed = re.sub(announced, r"mbarrier.arrive.shared.b64 \1, \2;", ptx)
    return re.sub(given, "", changed, count=1)


CHANGED = r"vote\.sync\.any\.pred\s+(%p\d+), %p\d+, -1;"  # the first vote: whether any length has
ALIKE = r"vote\.sync\.all\.pred\s+(%p\d+), %p\d+, -1;"  # what two CTAs guess


@pytest.mark.parametrize(
    ("tiling", "shape", "mutate", "told"),
    [
        ("seesaw", dims(2, 2, 16, 900), lambda ptx: re.sub(CHANGED, r"setp.ne.b32 \1, 0, 0;", ptx, count=1),
         r"\d+ of \d+ wrong"),
        ("seesaw", dims(2, 2, 16, 900), lambda ptx: re.sub(FREES.pattern + ";", "", ptx), "PtxError: race: "),
        ("seesaw", dims(2, 2, 16, 900), lambda ptx: ptx.replace("ld.relaxed.gpu.global", "ld.global"),
         "leaves in L1 what may be written: argument 3 "),
        ("seesaw_2cta", dims(3, 2, 64, 330), lambda ptx: re.sub(ALIKE, r"setp.eq.b32 \1, 0, 0;", ptx),
         r"PtxError: (race|deadlock): |\d+ of \d+ wrong"),
        ("seesaw_2cta", dims(3, 2, 64, 330), without_the_last_exchange, "PtxError: (race|deadlock): "),
    ],
    ids=[
        "lengths are not looked at again",
        "a wrong load is not waited for",
        "a guess stays in L1",
        "two CTAs do not agree",
        "a CTA loads again while the other's loads are on their way",
    ],
)  # fmt: skip
def test_breaks_of_guesses_are_told(
    tiling: str, shape: dict[str, int], mutate: Callable[[str], str], told: str
) -> None:
    def changed(ptx: str) -> str:
        assert mutate(ptx) != ptx
        return mutate(ptx)

    details = []
    for seed in range(6):
        options = {"sm_count": 4, "seed": seed, "before": before_they_changed(0)}
        result = run(loaded(BF16, mutate=changed, **options), shape, tiling=tiling, draw=Draw("edges"), seed=seed)
        details.append("\n".join(result.detail))
        if re.search(told, details[-1]):
            return
    pytest.fail(f"told: {details}")


def assert_right(plan: Any, inputs: Any, outputs: Any) -> None:
    expected = plan.reference_fn(*inputs, precision="float64")
    for i, (found, reference) in enumerate(zip(outputs, expected)):
        result = compare(found, reference, plan.output_tolerance(i, inputs, str(reference.dtype)[6:]))
        assert not result.mismatches, result


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


def replacing(pattern: str, by: str) -> Callable[[str], str]:
    def mutate(ptx: str) -> str:
        changed, n = re.subn(pattern, by, ptx)
        assert n, f"nothing in the PTX matches {pattern}"
        return changed

    return mutate


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
