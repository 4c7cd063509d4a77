"""What holds for every MLA decode spec: budgets, locks, the order of keys, rules that always answer."""

from __future__ import annotations

import random
from typing import Any

from gemm_specs import SM90, resolve_text, values
from hypothesis import given, settings
from hypothesis import strategies as st
from mla_specs import MLA, bind_mla, mla_candidate
from resolution_claims import (
    accepted,
    assert_lock_changes_nothing,
    assert_refusals_tell,
    assert_same_kernel,
    assert_tiling_fits,
)

from cutegen.families.mla_decode.candidate import KNOBS, VARIANTS
from cutegen.families.mla_decode.derived import derive
from cutegen.families.mla_decode.resolved import ResolvedMlaTiling
from cutegen.families.mla_decode.rules import refusals
from cutegen.resolve import Lock
from cutegen.runtime.mla_decode.tiling import ROW_BLOCK

ranges = st.tuples(st.integers(1, 128), st.integers(1, 128)).map(sorted)
lengths = st.tuples(st.integers(1, 16), st.integers(1, 16)).map(sorted)
low, high = st.sampled_from((24, 32, 40, 72, 160)), st.sampled_from((184, 192, 232, 240))
CHOICES: dict[str, st.SearchStrategy[Any]] = {
    "dtype": st.sampled_from(("bf16", "f16")),
    "heads": ranges | st.integers(1, 128) | st.sampled_from((64, 128)),
    "query_len": lengths | st.integers(1, 16),
    "q": st.sampled_from(("joined", "split")),
    "mask": st.sampled_from(("causal", "none")),
    "kv_cache": st.sampled_from((16, 32, 64, 128)).map(lambda size: f"{{page_size: {size}}}"),
    "lse": st.sampled_from(("{base: 2}", "{layout: bsh}", "{base: e, layout: bhs, empty: +inf}")),
    "variant": st.sampled_from(("auto", *VARIANTS)),
    "split_kv": st.sampled_from(("auto", "1", "{max: 32}", "{max: any}")),
    "scheduler": st.sampled_from(
        ("{overhead: 0}", "{unit: 1}", "{unit: any}", "{join_ratio: 1024}", "{overhead: 64, join_ratio: 1}")
    ),
    "pdl": st.sampled_from(
        (
            "{wait: false}",
            "{schedule_ahead: true}",
            "{schedule_ahead: false, load_ahead: true}",
            "{ready: [block_table, kv_cache]}",
            "{ready: [kv_cache], load_ahead: true}",
        )
    ),
    "pipeline": st.integers(0, 1).map(lambda pairs: f"{{prefetch: {pairs}}}"),
    "warpgroups": st.builds("{{producer: {{registers: {}}}, consumer: {{registers: {}}}}}".format, low, high),
}
REQUIRED = ("dtype", "heads", "query_len")
LOCKED = {
    "variant": st.sampled_from((*VARIANTS, "swap_ab")),
    "split_kv.max": st.sampled_from(("any", 1, 7, 0, None)),
    "scheduler.unit": st.integers(0, 3) | st.just("any"),
    "scheduler.overhead": st.integers(-1, 70),
    "warpgroups.producer.registers": low,
    "warpgroups.consumer.registers": high,
    "tiling.tile": st.just([128, 128, 64]),
    "device": st.sampled_from(("h100", "b200")),
}


@st.composite
def mla_specs(draw: st.DrawFn) -> str:
    chosen = draw(st.lists(st.sampled_from([key for key in CHOICES if key not in REQUIRED]), unique=True))
    keys = draw(st.permutations([*REQUIRED, *chosen]))
    lines = ["cutegen: 1", "kernel: mla_decode", "arch: sm_90a", *(f"{key}: {draw(CHOICES[key])}" for key in keys)]
    return "\n".join(lines) + "\n"


@given(mla_specs())
@settings(max_examples=150)
def test_an_accepted_spec_fits_every_budget(text: str) -> None:
    resolution = accepted(text)
    for tiling in resolution.resolved.tilings:
        check_budgets(tiling)
    problem = resolution.resolved.problem
    if resolution.resolved.variant == "seesaw_2cta":
        for rows in (h * s for h in range(problem.heads[0], problem.heads[1] + 1) for s in problem.query_len):
            assert -(-rows // ROW_BLOCK) % 2 == 0
    names = [tiling.name for tiling in resolution.resolved.tilings]
    assert {row.tiling for row in resolution.resolved.dispatch} == set(names)
    assert not resolution.resolved.dispatch[-1].when


def check_budgets(tiling: ResolvedMlaTiling) -> None:
    t = tiling.numbers
    assert_tiling_fits(tiling, consumers=2)
    assert t.consumer_registers >= 192
    assert {warp for r in tiling.model.roles for warp in range(r.warps.first, r.warps.last + 1)} == set(
        range(t.threads // 32)
    )


@given(mla_specs())
@settings(max_examples=60)
def test_written_knobs_are_kept_and_a_lock_changes_nothing(text: str) -> None:
    assert_lock_changes_nothing(text)


@given(mla_specs(), st.randoms(use_true_random=False))
@settings(max_examples=60)
def test_comments_and_key_order_change_nothing(text: str, rng: random.Random) -> None:
    lines = [f"# about {line[:3]}\n\n{line}   # a remark\n" for line in text.splitlines()]
    rng.shuffle(lines)
    assert_same_kernel(text, "".join(lines))


@given(mla_specs(), st.fixed_dictionaries({}, optional=LOCKED))
@settings(max_examples=60)
def test_any_lock_is_survived(text: str, locked: dict[str, Any]) -> None:
    """Whatever a lock says, the result is legal, and what it says is kept or told."""
    accepted(text)
    resolution = resolve_text(text, Lock("old", {key: (value, "measured") for key, value in locked.items()}))
    told = {note.partition(":")[0] for note in resolution.notes}
    found = values(resolution)
    for key, value in locked.items():
        assert found.get(key) == value or key in told
    problem = resolution.resolved.problem
    candidate = mla_candidate(problem, **{knob.field: found[knob.key] for knob in KNOBS})
    assert not list(refusals(problem, candidate, SM90))


@given(st.sampled_from(tuple(VARIANTS)), st.lists(st.integers(1, 2**31 - 1), min_size=7, max_size=7))
@settings(max_examples=50)
def test_rules_answer_for_any_numbers(variant: str, numbers: list[int]) -> None:
    problem = bind_mla(MLA)
    fields = ("max_splits", "unit", "overhead", "join_ratio", "prefetch", "producer_registers", "consumer_registers")
    candidate = mla_candidate(problem, variant=variant, **dict(zip(fields, numbers)))
    assert_refusals_tell(refusals(problem, candidate, SM90))
    derive(problem, candidate)
