"""What holds for any spec and any candidate: budgets, locks, digests."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from typing import Any

from gemm_specs import FUSED, H200, PLAIN, SM90, bind_text, candidate, resolve_text, values
from hypothesis import given, settings
from hypothesis import strategies as st
from resolution_claims import (
    accepted,
    assert_lock_changes_nothing,
    assert_refusals_tell,
    assert_same_kernel,
    assert_tiling_fits,
)

from cutegen.families.gemm.auto import Choice, choose
from cutegen.families.gemm.candidate import RASTER_ORDERS, SCHEDULERS, SCHEDULES, knobs_of
from cutegen.families.gemm.cost_model import Shape
from cutegen.families.gemm.features.split_k.knobs import SPLIT_K_SUMS
from cutegen.families.gemm.rules import refusals
from cutegen.families.gemm.tiling_numbers import derive
from cutegen.resolve import Lock

LAYOUTS = {
    "a": ("bf16[m, k]", "bf16[k, m]", "bf16[m, k]@m"),
    "b": ("bf16[n, k]", "bf16[k, n]", "bf16[n, k]@n"),
    "d": ("bf16[m, n]", "f32[m, n]", "f16[n, m]", "bf16[m, n]@m"),
}
EXTRA = (
    ("", "acc"),
    ("bias: f32[n]", "relu(acc + bias)"),
    ("scale: bf16[m]", "acc * scale"),
    ("c: bf16[m, n]", "acc + c"),
    ("c: f32[m, n]\n  alpha: f32\n  e: f16[m, n]", "alpha * acc + c * e"),
)
small = st.integers(1, 20)
KNOB_VALUES: dict[str, st.SearchStrategy[Any]] = {
    "warpgroups.schedule": st.sampled_from(SCHEDULES),
    "warpgroups.consumer.count": st.integers(1, 4),
    "tiling.tile": st.tuples(
        st.sampled_from((64, 128, 192, 256, 96, 320)),
        st.integers(1, 17).map(lambda i: 16 * i),
        st.sampled_from((16, 32, 64, 128)),
    ).map(list),
    "tiling.cluster": st.tuples(st.sampled_from((1, 2, 3, 4)), st.sampled_from((1, 2, 4))).map(list),
    "tiling.swap_ab": st.booleans(),
    "tiling.split_k": st.integers(1, 140),
    "tiling.split_k_sum": st.sampled_from(SPLIT_K_SUMS),
    "scheduler": st.sampled_from(SCHEDULERS),
    "tiling.raster.order": st.sampled_from(RASTER_ORDERS),
    "tiling.raster.group": small,
    "pipeline.stages": small,
    "pipeline.epilogue_stages": small,
    "pipeline.load_stages": small,
    "warpgroups.producer.registers": st.sampled_from((24, 32, 40, 42, 56)),
    "warpgroups.consumer.registers": st.sampled_from((152, 160, 224, 232, 240, 256)),
    "tma.a.multicast": st.sampled_from((1, 2, 4)),
    "tma.b.multicast": st.sampled_from((1, 2, 4)),
    "tma.a.swizzle": st.sampled_from((32, 64, 128)),
    "tma.b.swizzle": st.sampled_from((32, 64, 128)),
    "tma.a.load_ahead": st.just(True),
    "tma.b.load_ahead": st.just(True),
    "pdl.wait": st.booleans(),
    "pdl.trigger": st.sampled_from(("none", "last_tile")),
}  # fmt: skip
knobs = st.dictionaries(st.sampled_from(sorted(KNOB_VALUES)), st.none(), max_size=4).flatmap(
    lambda chosen: st.fixed_dictionaries({key: KNOB_VALUES[key] for key in chosen})
)
extents = st.sampled_from((None, [8, 8192], 8, 64, 1000, 4096))


@st.composite
def specs(draw: st.DrawFn) -> str:
    """A valid problem with any layouts, dims and epilogue, and knobs that may or may not be legal."""
    decls = {name: draw(st.sampled_from(choices)) for name, choices in LAYOUTS.items()}
    extra, expression = draw(st.sampled_from(EXTRA))
    lines = ["cutegen: 1", "kernel: gemm", "arch: sm_90a", "tensors:"]
    lines += [f"  a: {decls['a']}", f"  b: {decls['b']}", *([f"  {extra}"] if extra else []), f"  d: {decls['d']}"]
    lines.append(f"epilogue: {{d: {expression}}}")
    dims = {name: extent for name in "mnk" if (extent := draw(extents)) is not None}
    lines.append(f"dims: {json.dumps(dims)}")
    return "\n".join(lines) + "\n" + as_yaml(draw(knobs))


def as_yaml(chosen: dict[str, Any]) -> str:
    tree: dict[str, Any] = {}
    for key, value in chosen.items():
        node = tree
        *above, last = key.split(".")
        for step in above:
            node = node.setdefault(step, {})
        node[last] = value
    return "".join(f"{section}: {json.dumps(content)}\n" for section, content in tree.items())


@given(specs())
@settings(max_examples=30, deadline=None)
def test_an_accepted_spec_fits_every_budget(text: str) -> None:
    resolution = accepted(text)
    (tiling,) = resolution.resolved.tilings
    t = tiling.numbers
    assert_tiling_fits(tiling, t.consumers)
    sharing = t.consumers if tiling.candidate.schedule == "cooperative" else 1
    assert t.tile[0] * t.tile[1] // (128 * sharing) < t.consumer_registers
    assert t.tile[0] % t.epilogue_tile[0] == 0
    assert t.tile[1] % t.epilogue_tile[1] == 0
    assert t.stages >= 2
    assert t.store_stages >= 2
    assert t.stages * t.stage_bytes <= t.smem_bytes


@given(specs())
@settings(max_examples=30, deadline=None)
def test_written_knobs_are_kept_and_a_lock_changes_nothing(text: str) -> None:
    assert_lock_changes_nothing(text)


@given(specs(), st.randoms(use_true_random=False))
@settings(max_examples=30, deadline=None)
def test_comments_and_key_order_change_nothing(text: str, rng: random.Random) -> None:
    blocks: list[str] = []
    for line in text.splitlines():
        if line.startswith(" "):
            blocks[-1] += line + "   # a remark\n"  # the order of tensors is the order of arguments
        else:
            blocks.append(f"# about {line[:3]}\n\n{line}\n")
    rng.shuffle(blocks)
    assert_same_kernel(text, "".join(blocks))


@given(specs(), knobs)
@settings(max_examples=30, deadline=None)
def test_any_lock_is_survived(text: str, locked: dict[str, Any]) -> None:
    """Whatever a lock says, the result is legal, and what it says is kept or told."""
    accepted(text)
    lock = Lock("old", {key: (value, "measured") for key, value in locked.items()})
    resolution = resolve_text(text, lock)
    told = {note.partition(":")[0] for note in resolution.notes}
    shown = {key: list(v) if isinstance(v, tuple) else v for key, v in values(resolution).items()}
    for key, value in locked.items():
        assert shown.get(key) == value or key in told
    problem = resolution.resolved.problem
    # What a problem has no use for is not among its decisions.
    absent = {"load_stages": 0, "promote_every": "never", "split_k_sum": "none", "gather": "none"}
    absent |= {"load_ahead_a": False, "load_ahead_b": False, "mma_ctas": 1}
    fields = {k.field: values(resolution).get(k.key, absent.get(k.field)) for k in knobs_of(problem)}
    assert not list(refusals(problem, replace(candidate(problem), **fields), SM90))


@given(
    st.sampled_from((PLAIN, FUSED)),
    st.lists(st.builds(Shape, *[st.integers(1, 2**17)] * 3, st.integers(1, 64)), min_size=1, max_size=3),
)
@settings(max_examples=25, deadline=None)
def test_the_cost_model_picks_something_legal_for_any_shape(text: str, shapes: list[Shape]) -> None:
    problem = bind_text(text)
    choice = choose(problem, {}, SM90, H200, shapes)
    assert isinstance(choice, Choice)
    assert not list(refusals(problem, choice.candidate, SM90))


@given(
    st.lists(st.integers(1, 2**31 - 1), min_size=9, max_size=9),
    st.sampled_from(SCHEDULES),
    st.sampled_from((PLAIN, FUSED)),
)
@settings(max_examples=30, deadline=None)
def test_rules_answer_for_any_numbers(numbers: list[int], schedule: str, text: str) -> None:
    problem = bind_text(text)
    c = candidate(
        problem, schedule=schedule, consumers=numbers[0], tile=tuple(numbers[1:4]), cluster=tuple(numbers[4:6]),
        stages=numbers[6], store_stages=numbers[7], consumer_registers=numbers[8],
    )  # fmt: skip
    assert_refusals_tell(refusals(problem, c, SM90))
    derive(problem, c)
