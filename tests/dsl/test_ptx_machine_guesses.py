"""MLA decode kernels that guess their work while the kernel in front writes lengths, executed on the PTX machine."""

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
    new_tokens,
    reached,
)
from mla_specs import EDGES, MLA

from cutegen.machine import Simulation, assert_passes, load_resolution, run
from cutegen.machine.host import missing_tool
from cutegen.runtime.mla_decode.inputs import Draw

pytestmark = [
    pytest.mark.dsl,
    pytest.mark.thorough,
    pytest.mark.skipif(importlib.util.find_spec("cutlass") is None, reason="nvidia-cutlass-dsl is not installed"),
    pytest.mark.skipif(missing_tool() is not None, reason=str(missing_tool())),
]

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


@pytest.mark.parametrize(
    ("name", "tiling", "shape", "draw", "sm_count"),
    [
        (BF16, "seesaw", dims(4, 1, 3, 900), Draw("random"), 3),
        (F16, "seesaw", dims(3, 2, 16, 0), Draw(), 4),  # nothing, where there was something
        (BF16, "seesaw", dims(33, 1, 1, 64), Draw("random"), 3),  # more requests than a warp has lanes
        (BF16, "seesaw_2cta", dims(2, 1, 128, 300), Draw("random"), 8),
        (BF16, "seesaw_2cta", dims(3, 2, 64, 330), Draw("edges"), 4),
        (BF16, UNIT_1, dims(3, 2, 20, 330), Draw("random"), 11),
        (BF16, UNIT_1, dims(1, 1, 70, 500), Draw("random"), 20),
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
    inputs[LENGTHS][:] = 70
    outputs, scratch = plan.allocate_outputs(*inputs), plan.allocate_scratch(*inputs)
    plan.make_launch(tiling)(*inputs, *outputs, *scratch)
    assert_right(plan, inputs, outputs)
    assert simulation.machine
    loaded_pages = {start[-1] for region, start, _ in simulation.machine.boxes if region.startswith("argument 1 ")}
    assert loaded_pages & set(inputs[TABLE][0, 2:].tolist())  # by parts that had keys by their guess alone


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
