"""Parts of k that meet in the shared memory of a cluster, executed on the PTX machine in many orders of events."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Callable

import pytest

pytest.importorskip("numpy")
pytest.importorskip("torch")

from gemm_specs import FUSED, PLAIN, resolve_text

from cutegen.machine import Simulation, assert_equal_bits, assert_passes, load_resolution, run
from cutegen.machine.host import missing_tool
from cutegen.run.subject import Subject

pytestmark = [
    pytest.mark.dsl,
    pytest.mark.thorough,
    pytest.mark.skipif(importlib.util.find_spec("cutlass") is None, reason="nvidia-cutlass-dsl is not installed"),
    pytest.mark.skipif(missing_tool() is not None, reason=str(missing_tool())),
]
BIASED = PLAIN.replace("  d:", "  bias: f32[n]\n  d:") + "epilogue: {d: relu(acc + bias)}\n"
ONE = "warpgroups: {schedule: cooperative, consumer: {count: 1}}\n"
GATED = PLAIN.replace("d: bf16[m, n]", "d: bf16[m, n/2]") + "epilogue: {d: 'silu(acc[:, :n/2]) * acc[:, n/2:]'}\n"
OPTIONAL = PLAIN.replace("  d:", "  c: bf16[m, n]?\n  d:") + "epilogue: {d: acc + c}\n"
TWO = "warpgroups: {schedule: cooperative, consumer: {count: 2}}\n"


def parts(count: int, tile: str = "[64, 64, 64]", text: str = BIASED + ONE, more: str = "") -> str:
    split = f"cluster: [1, 1], split_k: {count}, split_k_sum: ordered_cluster{more}"
    return f"{text}tiling: {{tile: {tile}, {split}}}\n"


def load(text: str, sms: int, mutate: Callable[[str], str] | None = None) -> tuple[Subject, Simulation]:
    simulation = Simulation(sm_count=sms, mutate=mutate, ready=(1,) if "ready: [b]" in text else ())
    return load_resolution(resolve_text(text), simulation), simulation


KERNELS = {
    # Two subtiles for three CTAs: one of them has none.
    "three parts": (parts(3), {"m": 136, "n": 72, "k": 392}),
    # Three for two, of two warpgroups each.
    "two warpgroups": (parts(2, "[128, 96, 64]", PLAIN + TWO), {"m": 140, "n": 200, "k": 328}),
    # One for four, batched, and stored by threads.
    "narrow": (
        parts(4, "[64, 8, 64]", PLAIN.replace("a: bf16[m", "a: bf16[l, m").replace("d: bf16[m", "d: f32[l, m") + ONE)
        + "dims: {n: 17}\n",
        {"m": 70, "n": 17, "k": 520, "l": 2},
    ),
    # Those who finish nothing run ahead, as far as warpgroups and the ring let them.
    "one of three finishes": (
        parts(3, "[128, 8, 64]", PLAIN.replace("d: bf16[m", "d: f32[m") + TWO),
        {"m": 300, "n": 40, "k": 72},
    ),
    "transposed and loaded ahead": (
        parts(2, "[64, 16, 128]", PLAIN + ONE, ", swap_ab: true") + "pdl: {ready: [b]}\ntma: {b: {load_ahead: true}}\n",
        {"m": 20, "n": 200, "k": 520},
    ),
    # Each CTA loads the residual of its own subtiles, if the call has one.
    "residual": (parts(3, "[64, 96, 64]", FUSED + ONE), {"m": 136, "n": 200, "k": 264}),
    "optional residual": (
        parts(2, "[64, 64, 64]", OPTIONAL + ONE, ", swap_ab: true"),
        {"m": 136, "n": 72, "k": 264},
    ),
    "gated": (parts(2, "[64, 128, 64]", GATED + ONE), {"m": 70, "n": 272, "k": 264}),
    "gated and transposed": (
        parts(3, "[128, 16, 64]", GATED + ONE, ", swap_ab: true"),
        {"m": 40, "n": 272, "k": 264},
    ),
    "integers": (
        parts(2, "[64, 64, 128]", BIASED.replace("a: bf16", "a: i8").replace("b: bf16", "b: i8") + ONE),
        {"m": 70, "n": 136, "k": 400},
    ),
    "promoted": (
        parts(2, "[64, 64, 128]", PLAIN.replace("a: bf16", "a: e4m3").replace("b: bf16", "b: e4m3") + ONE),
        {"m": 70, "n": 136, "k": 400},
    ),
}


@pytest.mark.parametrize("name", KERNELS)
def test_parts_become_one_sum(name: str) -> None:
    """One cluster takes all tiles, so that each exchange but the first waits for the one before; then several do."""
    text, shape = KERNELS[name]
    for sms in (4, 9):
        subject, simulation = load(text, sms)
        for simulation.seed in range(2):
            assert_passes(subject, shape, seed=simulation.seed)


def test_parts_that_k_cannot_fill() -> None:
    """A tile of k for one part of the three, for two, for each, and one more."""
    subject, _ = load(KERNELS["three parts"][0], 6)
    for k in (8, 72, 192, 200):
        assert_passes(subject, {"m": 70, "n": 72, "k": k})


def test_bits_are_the_same_in_any_order_of_events() -> None:
    subject, simulation = load(KERNELS["three parts"][0], 6)
    assert_equal_bits(subject, simulation, m=136, n=72, k=392)


def test_clusters_of_a_budget_are_whole() -> None:
    subject, simulation = load(KERNELS["three parts"][0], 8)
    plan = subject.plan
    assert plan
    inputs = plan.prepare_inputs(m=200, n=136, k=392)
    expected = subject.reference_fn(*inputs)
    for sms, ctas in ((None, 6), (5, 3)):
        assert (plan.kernel_fn(*inputs, sms=sms).float() - expected.float()).abs().max() < 0.1
        assert simulation.machine is not None
        assert simulation.machine.launch.grid == (1, 1, ctas)
    with pytest.raises(ValueError, match="sms is 2; a cluster of 3 CTAs runs on 3 at once"):
        plan.kernel_fn(*inputs, sms=2)
    assert plan.workspace_shapes(m=200, n=136, k=392) == {}


def replaced(pattern: str, by: str, count: int = 0) -> Callable[[str], str]:
    def mutate(text: str) -> str:
        changed, times = re.subn(pattern, by, text, count=count, flags=re.MULTILINE)
        assert times
        return changed

    return mutate


def count_at_home(text: str) -> str:
    """The bytes that a CTA gives to others count at its own barrier."""
    barriers = re.findall(r"^\s*st\.async.*, \[(%r\d+)\];$", text, flags=re.MULTILINE)
    assert barriers
    for barrier in {*barriers}:
        text = replaced(rf"mapa\.shared::cluster\.u32 {barrier}, (%r\d+), %r\d+;", rf"mov.u32 {barrier}, \1;")(text)
    return text


@pytest.mark.parametrize(
    ("mutate", "broken"),
    [
        (replaced(r"^\s*st\.async\.shared::cluster.*\n", ""), "deadlock"),
        (count_at_home, "counts at an mbarrier of another"),
        (replaced(r"^\s*mbarrier\.arrive\.relaxed\.cluster.*\n", ""), "deadlock"),
        (replaced(r"^\s*fence\.acq_rel\.cluster.*\n", ""), "race"),
        (replaced(r"try_wait\.parity\.acquire\.cluster", "try_wait.parity.relaxed.cluster"), "race"),
    ],
    ids=["nothing is given", "counted elsewhere", "nobody is told", "told too early", "read too early"],
)
def test_what_would_break_it_is_seen(mutate: Callable[[str], str], broken: str) -> None:
    subject, _ = load(KERNELS["three parts"][0], 3, mutate)
    result = run(subject, {"m": 100, "n": 72, "k": 264})
    assert result.status in ("wrong", "raised")
    assert broken in " ".join(result.detail)
