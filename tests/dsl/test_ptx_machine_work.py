"""Split-K and the dynamic scheduler, executed on the PTX machine with several CTAs in many orders of events."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("numpy")
pytest.importorskip("torch")

from gemm_specs import BLOCKS, FUSED, PLAIN, resolve_text

from cutegen.families.gemm.features.split_k.knobs import IN_CLUSTER, SPLIT_K_SUMS
from cutegen.machine import Simulation, assert_equal_bits, assert_passes, load_resolution, run
from cutegen.machine.host import missing_tool
from cutegen.run.subject import Subject

pytestmark = [
    pytest.mark.dsl,
    pytest.mark.thorough,
    pytest.mark.skipif(importlib.util.find_spec("cutlass") is None, reason="nvidia-cutlass-dsl is not installed"),
    pytest.mark.skipif(missing_tool() is not None, reason=str(missing_tool())),
]
SCHEDULES = {
    "cooperative": "warpgroups: {schedule: cooperative, consumer: {count: 1}}\n",
    "pingpong": "warpgroups: {schedule: pingpong}\n",
}
# By way of global memory; test_ptx_machine_cluster_sum.py has the other.
SUMS = tuple(how for how in SPLIT_K_SUMS if how != IN_CLUSTER)
SCHEDULERS = ("static_persistent", "dynamic_persistent")
# 4 x 3 tiles of 64 x 64, and 3 x 2 in 7 steps of k: tails in all dims.
RAGGED = {"m": 200, "n": 136, "k": 136}
DEEP = {"m": 136, "n": 72, "k": 392}


def spec(schedule: str, scheduler: str, cluster: list[int], split: str = "", text: str = FUSED) -> str:
    tiling = f"tiling: {{tile: [64, 64, 64], cluster: {cluster}{split}}}\n"
    return f"{text}{tiling}{SCHEDULES[schedule]}scheduler: {scheduler}\n"


def split_in_4(schedule: str, how: str) -> str:
    """One of the kernels that most tests share."""
    scheduler = dict(zip(SCHEDULES, SCHEDULERS))[schedule]
    return spec(schedule, scheduler, [1, 1], f", split_k: 4, split_k_sum: {how}")


def load(text: str, sms: int = 4, mutate: Callable[[str], str] | None = None) -> tuple[Subject, Simulation]:
    simulation = Simulation(sm_count=sms, mutate=mutate)
    return load_resolution(resolve_text(text), simulation), simulation


@pytest.mark.parametrize(("schedule", "cluster"), [("cooperative", [2, 1]), ("pingpong", [1, 1]), ("pingpong", [1, 2])])
def test_tiles_are_handed_out_dynamically(schedule: str, cluster: list[int]) -> None:
    subject, simulation = load(spec(schedule, "dynamic_persistent", cluster))
    for simulation.seed in range(2):
        assert_passes(subject, RAGGED, seed=simulation.seed)


@pytest.mark.parametrize("how", SUMS)
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_parts_of_k_become_one_sum(schedule: str, how: str) -> None:
    subject, simulation = load(split_in_4(schedule, how))
    for simulation.seed in range(2):
        assert_passes(subject, DEEP, seed=simulation.seed)


@pytest.mark.parametrize("how", SUMS)
def test_parts_that_k_cannot_fill(how: str) -> None:
    """One tile of k, three parts of the four, and parts of one step more than others."""
    subject, _ = load(split_in_4("cooperative", how))
    for k in (8, 136, 328):
        assert_passes(subject, {"m": 70, "n": 72, "k": k})


@pytest.mark.parametrize("how", SUMS)
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_one_sm_makes_progress(how: str, schedule: str) -> None:
    """A part never waits for one that comes later, so a single CTA does them all."""
    subject, _ = load(split_in_4(schedule, how), sms=1)
    assert_passes(subject, {"m": 100, "n": 72, "k": 264})


@pytest.mark.parametrize("how", ["ordered_turnstile", "ordered_parallel"])
def test_ordered_sums_have_the_same_bits_in_any_order_of_events(how: str) -> None:
    subject, simulation = load(split_in_4("pingpong", how))
    assert_equal_bits(subject, simulation, **DEEP)


INTEGERS = FUSED.replace("a: bf16", "a: i8").replace("b: bf16", "b: i8")
PROMOTED = PLAIN.replace("a: bf16", "a: e4m3").replace("b: bf16", "b: e4m3")
GATED = PLAIN.replace("d: bf16[m, n]", "d: bf16[m, n/2]") + "epilogue: {d: 'silu(acc[:, :n/2]) * acc[:, n/2:]'}\n"
BATCHED = PLAIN.replace("a: bf16[m", "a: bf16[l, m").replace("d: bf16[m", "d: f32[l, m")
REDUCED = PLAIN.replace("  d:", "  r: f32[m]\n  d:") + "epilogue: {d: acc, r: 'max_abs(acc, n)'}\n"
ATOMIC = ", split_k: 3, split_k_sum: unordered_atomic"


@pytest.mark.parametrize(
    "text",
    [
        spec("pingpong", "dynamic_persistent", [2, 1], ATOMIC, INTEGERS).replace("[64, 64, 64]", "[64, 64, 128]"),
        spec("cooperative", "static_persistent", [1, 1], ", split_k: 3", PROMOTED).replace(
            "[64, 64, 64]", "[64, 64, 128]"
        ),
        spec("cooperative", "dynamic_persistent", [1, 1], ", split_k: 2", GATED),
        spec("pingpong", "static_persistent", [2, 1], ATOMIC, BATCHED),
        spec("cooperative", "dynamic_persistent", [1, 1], ", split_k: 2", REDUCED),
        spec("pingpong", "static_persistent", [1, 1], ", split_k: 3, swap_ab: true", FUSED),
    ],
    ids=["i8", "e4m3", "gated", "batched", "reduced", "transposed"],
)
def test_other_products_are_split_as_well(text: str) -> None:
    subject, simulation = load(text)
    shape = {"m": 140, "n": 80, "k": 400, "l": 2}
    for simulation.seed in range(2):
        assert_passes(subject, {dim: shape[dim] for dim in subject.dims}, seed=simulation.seed)


ONE = "warpgroups: {schedule: cooperative, consumer: {count: 1}}\n"
NARROW = {
    "decode": FUSED + ONE + "tiling: {tile: [64, 8, 64], swap_ab: true, cluster: [2, 1]}\n",
    "pingpong": FUSED + SCHEDULES["pingpong"] + "tiling: {tile: [64, 24, 64], cluster: [1, 2]}\n",
    "f32": PLAIN.replace("d: bf16", "d: f32") + "tiling: {tile: [128, 40, 64], cluster: [1, 1]}\n",
    "promoted": PROMOTED + ONE + "tiling: {tile: [64, 8, 128], swap_ab: true, split_k: 2, cluster: [1, 1]}\n",
    "scaled": BLOCKS + ONE + "tiling: {tile: [64, 8, 128], swap_ab: true, cluster: [1, 1]}\n",
    "reduced": REDUCED + ONE + "tiling: {tile: [64, 56, 64], cluster: [1, 1]}\n",
    "bytes": PLAIN.replace("d: bf16", "d: e4m3")
    + SCHEDULES["pingpong"]
    + "tiling: {tile: [64, 8, 64], swap_ab: true, cluster: [1, 1]}\n",
}


@pytest.mark.parametrize("name", NARROW)
def test_tiles_with_an_odd_number_of_eight_columns(name: str) -> None:
    subject, _ = load(NARROW[name])
    assert_passes(subject, {"m": 48 if "swap_ab" in NARROW[name] else 140, "n": 144, "k": 272})


@pytest.mark.parametrize(
    ("rows", "consumers", "cluster", "swapped"), [(384, 3, [2, 1], "false"), (320, 1, [1, 1], "true")]
)
def test_tiles_of_more_rows_than_a_box_of_tma(rows: int, consumers: int, cluster: list[int], swapped: str) -> None:
    tiling = f"tiling: {{tile: [{rows}, 32, 64], cluster: {cluster}, swap_ab: {swapped}}}\n"
    subject, _ = load(f"{FUSED}{tiling}warpgroups: {{schedule: cooperative, consumer: {{count: {consumers}}}}}\n")
    assert_passes(subject, {"m": 40, "n": 696, "k": 136} if swapped == "true" else {"m": 700, "n": 40, "k": 136})


DEPENDENT = "pdl: {wait: true, trigger: last_tile}\n"
VARIED = {
    "split": spec("cooperative", "dynamic_persistent", [2, 1], ", split_k: 3") + DEPENDENT,
    "deep": PLAIN
    + ONE
    + DEPENDENT
    + "tiling: {tile: [64, 16, 128], swap_ab: true, split_k: 4, cluster: [1, 1], raster: {order: along_n, group: 2}}\n",
}


@pytest.mark.parametrize("name", VARIED)
def test_what_the_tuner_varies_together(name: str) -> None:
    subject, _ = load(VARIED[name])
    assert_passes(subject, DEEP)


def test_a_budget_of_sms_is_kept() -> None:
    subject, simulation = load(VARIED["split"], sms=8)
    plan: Any = subject.plan
    inputs = plan.prepare_inputs(**DEEP)
    expected = subject.reference_fn(*inputs)
    for sms, ctas in ((None, 8), (5, 4), (2, 2)):
        assert (plan.kernel_fn(*inputs, sms=sms).float() - expected.float()).abs().max() < 0.1
        assert simulation.machine is not None
        assert simulation.machine.launch.grid == (2, 1, ctas // 2)


def test_launches_follow_each_other_on_the_same_scratch() -> None:
    """Counters and sums are left zero, whatever the problems."""
    subject, _ = load(split_in_4("pingpong", "unordered_atomic"))
    plan: Any = subject.plan
    for m, n, k in ((200, 136, 200), (64, 64, 64), (130, 72, 200), (200, 136, 200)):
        inputs = plan.prepare_inputs(m=m, n=n, k=k)
        error = (plan.kernel_fn(*inputs).float() - subject.reference_fn(*inputs).float()).abs().max()
        assert error < 0.1
        ((_, sums, semaphores),) = [(None, *s) for key, s in plan.scratch_of.own._sets.items() if key[1] != "graphs"]
        assert not sums.count_nonzero()
        assert not semaphores.count_nonzero()


def without(pattern: str) -> Callable[[str], str]:
    """PTX without the instructions that match; one has to."""

    def mutate(text: str) -> str:
        lines = text.split("\n")
        kept = [line for line in lines if not re.search(pattern, line)]
        assert len(kept) < len(lines), f"nothing matches {pattern}"
        return "\n".join(kept)

    return mutate


@pytest.mark.parametrize(
    ("text", "pattern", "broken"),
    [
        (split_in_4("cooperative", "ordered_parallel"), r"\bst\.global\.b32 ", "elements are not zero"),
        (split_in_4("cooperative", "ordered_parallel"), r"atom\.global\.release", "warps poll for"),
        (split_in_4("cooperative", "unordered_atomic"), r"red\.relaxed\.gpu\.global\.add\.v4\.f32", " wrong, "),
        (VARIED["split"], r"st\.async", "deadlock"),
    ],
    ids=["counters stay", "parts are not published", "nothing is added", "no tile is handed out"],
)
def test_what_would_break_it_is_seen(text: str, pattern: str, broken: str) -> None:
    subject, _ = load(text, mutate=without(pattern))
    result = run(subject, {"m": 100, "n": 72, "k": 264})
    assert result.status in ("wrong", "raised")
    assert broken in " ".join(result.detail)
