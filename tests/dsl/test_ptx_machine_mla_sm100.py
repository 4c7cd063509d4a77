"""MLA decode of sm_100a on the PTX machine, strict: the shipped kernel and a form far from it are right in several
orders, and breaks are reported, that of CUTLASS's exchange of row maxima among them."""

from __future__ import annotations

import functools
import importlib.util
import re
from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("numpy")
pytest.importorskip("torch")

from gemm_specs import resolve_text
from mla_machine import ROOT, assert_right, dims
from mla_specs import OF_PAIRS, QUANTISED_PAIRS

from cutegen.machine import Simulation, assert_passes, load, load_resolution, run
from cutegen.machine.forms import uncalibrated
from cutegen.machine.host import missing_tool
from cutegen.run.subject import Subject
from cutegen.runtime.mla_decode.inputs import Draw

pytestmark = [
    pytest.mark.dsl,
    pytest.mark.thorough,
    pytest.mark.skipif(importlib.util.find_spec("cutlass") is None, reason="nvidia-cutlass-dsl is not installed"),
    pytest.mark.skipif(missing_tool() is not None, reason=str(missing_tool())),
]
SHIPPED, QUANTISED = (ROOT / "generated" / f"mla_decode_{kind}_sm100a" for kind in ("bf16", "e4m3"))
WRITTEN = r"st\.shared\.b32\s+\[%r\d+\+416\]"  # to `exchange`, at byte 416
LAST_BARRIER = r"barrier\.cluster\.arrive;\s+barrier\.cluster\.wait;(?=(?:(?!barrier\.cluster)[\s\S])*$)"


@functools.cache
def other() -> tuple[Simulation, Subject]:
    simulation = Simulation(strict=True)
    return simulation, load_resolution(resolve_text(OF_PAIRS, name="other_mla_sm100a"), simulation)


@functools.cache
def shipped() -> tuple[Simulation, Subject]:
    simulation = Simulation(strict=True)
    return simulation, load(SHIPPED, simulation)


@functools.cache
def quantised() -> tuple[Simulation, Subject]:
    simulation = Simulation(strict=True)
    return simulation, load(QUANTISED, simulation)


@functools.cache
def other_quantised() -> tuple[Simulation, Subject]:
    simulation = Simulation(strict=True)
    return simulation, load_resolution(resolve_text(QUANTISED_PAIRS, name="other_e4m3_sm100a"), simulation)


@pytest.mark.parametrize(
    ("made", "shape", "draw", "sm_count", "orders"),
    [
        (shipped, dims(4, 1, 3, 257), Draw("edges", peaked=True), 4, 5),
        (shipped, dims(1, 2, 16, 700), Draw(), 8, 5),  # one request in several parts, joined
        (shipped, dims(2, 1, 128, 150), Draw("random", pitch=True), 2, 2),  # several requests a part
        (shipped, dims(1, 2, 70, 140), Draw("edges"), 4, 2),  # three row blocks: one CTA of a pair has none
        (other, dims(2, 3, 20, 270), Draw("random", peaked=True), 4, 2),
        (quantised, dims(4, 1, 3, 257), Draw("edges", peaked=True), 4, 3),
        (quantised, dims(1, 2, 16, 700), Draw(), 8, 2),
        (quantised, dims(2, 1, 128, 150), Draw("random", pitch=True), 2, 2),
        (other_quantised, dims(2, 3, 20, 270), Draw("random", peaked=True), 4, 2),
    ],
)  # fmt: skip
def test_right_in_every_order(
    made: Callable[[], tuple[Simulation, Subject]], shape: dict[str, int], draw: Draw, sm_count: int, orders: int
) -> None:
    simulation, subject = made()
    simulation.sm_count = sm_count
    for simulation.seed in range(orders):
        assert_passes(subject, shape, tiling="pair", draw=draw)
    assert simulation.unknown() == []
    assert uncalibrated(simulation.forms()) == ()


def test_bits_do_not_depend_on_the_batch() -> None:
    """Of requests in up to three pieces, by parts that have several of them, all of a request or some."""
    simulation, subject = other_quantised()
    simulation.sm_count = 4
    assert_passes(subject, dims(2, 1, 3, 300), mode="alone", draw=Draw(peaked=True))


def test_many_small_weights_count_behind_a_large_one() -> None:
    """One key has a weight of e^9 times that of each of 2999 others, whose values are the opposite of its own."""
    import torch

    simulation, subject = quantised()
    plan: Any = subject.plan
    simulation.sm_count = 2  # one part, so one reference
    q, cache, table, lengths, factor, _ = plan.prepare_inputs(**dims(1, 1, 1, 3000))
    rows = torch.zeros(cache.shape)
    rows[..., :512] = 1.0
    first = int(table[0, 0])
    rows[first, 0, :512], rows[first, 0, 512] = -1.0, 448.0
    cache.copy_(rows.to(torch.float8_e4m3fn).view(torch.uint8))
    q.zero_()
    q[..., 512] = 1.0
    factor.fill_(1.0)
    inputs = (q, cache, table, lengths, factor, 9.0 / 448.0)
    assert_right(plan, inputs, plan.kernel_fn(*inputs))


def replacing(pattern: str, by: str, count: int = 0) -> Callable[[str], str]:
    def mutate(ptx: str) -> str:
        changed, n = re.subn(pattern, by, ptx, count=count)
        assert n, f"nothing in the PTX matches {pattern}"
        return changed

    return mutate


def in_one_slot(ptx: str) -> str:
    """Row maxima are exchanged through one slot, with a barrier a block: as in CUTLASS's kernel."""
    place = rf"shl\.b32\s+(%r\d+), (%r\d+), 9;(\s+add\.s32[^;]*;\s+{WRITTEN})"
    found = re.search(place, ptx)
    assert found, "no exchange of row maxima is in the PTX"
    written = ptx.replace(found.group(0), f"mov.b32 {found.group(1)}, 0;{found.group(3)}")
    return replacing(rf"shl\.b32\s+(%r\d+), {found.group(2)}, 7;", r"mov.b32 \1, 0;")(written)


@pytest.mark.parametrize(
    ("break_", "told"),
    [
        (in_one_slot, r"race: warp \d of .*st\.shared.*writes shared.*ld\.shared.*read it, and nothing orders"),
        (replacing(rf"({WRITTEN}, %r\d+;\s+)bar\.sync[^;]*;", r"\1"), "race: .* shared"),
        (replacing(r"fence\.proxy\.async\.shared::cta;", ""), "wrote without fence.proxy.async"),
        (replacing(r"tcgen05\.wait::ld\.sync\.aligned;", "", 1), "race: .* writes tensor memory"),
        (replacing(r"tcgen05\.wait::st\.sync\.aligned;", ""), "race: .* reads tensor memory"),
        (replacing(r"(arrive\.release\.)cluster(\.shared::cluster)", r"\1cta\2"), "race: .*mma.* reads shared"),
        (replacing(r"(, )16384;(\s+mbarrier\.arrive\.expect_tx)", r"\g<1>8192;\2"), "race: .* reads shared"),
        (replacing(r"(mov\.b16\s+%rs\d+, )3;", r"\g<1>1;"), "deadlock"),
        (replacing(LAST_BARRIER, ""), "are not one allocation|freed|exit"),
    ],
    ids=[
        "row maxima in one slot", "no barrier for row maxima", "no fence for P", "no wait for scores", "no wait for O",
        "P is released to its own CTA", "half of the bytes", "commits to the first CTA alone", "no trailing barrier",
    ],
)  # fmt: skip
def test_breaks_are_told(break_: Callable[[str], str], told: str) -> None:
    subject = load(SHIPPED, Simulation(4, mutate=break_, strict=True))
    result: Any = run(subject, dims(1, 2, 16, 700), tiling="pair", draw=Draw(peaked=True))
    assert re.search(told, "\n".join(result.detail)), result.detail


@pytest.mark.parametrize(
    ("break_", "told"),
    [
        (replacing(r"fence\.proxy\.async\.shared::cta;", "", 1), "wrote without fence.proxy.async"),
        (replacing(r"(arrive\.release\.)cluster(\.shared::cluster)", r"\1cta\2", 1), "race: .*mma.* reads shared"),
        (replacing(r"(and\.b32\s+%r\d+, %r\d+, )-1048576;", r"\1-1;"), "wrong"),
    ],
    ids=["no fence for Q", "Q is released to its own CTA", "one value of e4m3 each"],
)  # fmt: skip
def test_breaks_of_a_quantised_cache_are_told(break_: Callable[[str], str], told: str) -> None:
    subject = load(QUANTISED, Simulation(4, mutate=break_, strict=True))
    result: Any = run(subject, dims(1, 2, 16, 700), tiling="pair", draw=Draw(peaked=True))
    assert re.search(told, "\n".join(result.detail)), result.detail
