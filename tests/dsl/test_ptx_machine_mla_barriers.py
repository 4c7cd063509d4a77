"""MLA decode of sm_100a without one of its waits, signals, barriers or fences, each in turn: the PTX machine tells what
is wrong. So none is there in vain, and none is missing: what the others imply has no barrier."""

from __future__ import annotations

import functools
import importlib.util
import re
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

pytest.importorskip("numpy")
pytest.importorskip("torch")

from mla_machine import ROOT, dims

from cutegen.machine import Simulation, load, run
from cutegen.machine.host import missing_tool
from cutegen.runtime.mla_decode.inputs import Draw

pytestmark = [
    pytest.mark.dsl,
    pytest.mark.thorough,
    pytest.mark.skipif(importlib.util.find_spec("cutlass") is None, reason="nvidia-cutlass-dsl is not installed"),
    pytest.mark.skipif(missing_tool() is not None, reason=str(missing_tool())),
]
SHIPPED = ROOT / "generated" / "mla_decode_bf16_sm100a"


class Launch(NamedTuple):
    shape: dict[str, int]
    sm_count: int
    draw: Draw


# Requests of one pair, a block each; some without keys, whose sums follow at once; one in two parts, which are joined.
LAUNCHES = (
    Launch(dims(3, 1, 3, 100), 2, Draw()),
    Launch(dims(3, 1, 1, 64), 2, Draw("empty")),
    Launch(dims(1, 2, 16, 400), 4, Draw(peaked=True)),
)
ORDERS = 3  # of events: what one does not show, another may
SITES = {
    "waits": (r"mbarrier\.try_wait\.parity\.shared\.b64\s+(P\d), [^;]*;", r"setp.eq.u32 \1, 0, 0;", 17),
    "arrivals": (r"mbarrier\.arrive\.[^;]*;", "", 8),
    "commits": (r"tcgen05\.commit[^;]*;", "", 6),
    "barriers": (r"bar(rier\.cluster)?\.(sync|arrive|wait)\b[^;]*;", "", 11),
    "fences": (r"(fence\.proxy\.async\.shared|tcgen05\.wait::st)[^;]*;", "", 2),
}


@functools.cache
def text() -> str:
    """Of the kernel, which is right in all of these launches."""
    texts: list[str] = []
    assert told(lambda ptx: texts.append(ptx) or ptx) == ""
    return texts[0]


def told(change: Callable[[str], str], order: int = 0) -> str:
    """What is wrong with a changed kernel, in the first launch that shows it; "" if nothing is. order: of events."""
    for shape, sm_count, draw in LAUNCHES:
        simulation = Simulation(sm_count, mutate=change, strict=True)
        simulation.seed = order
        subject = load(SHIPPED, simulation)
        result: Any = run(subject, shape, tiling="pair", draw=draw)
        if result.status != "pass":
            return "\n".join(result.detail)
    return ""


@pytest.mark.parametrize("kind", SITES)
def test_nothing_may_be_left_out(kind: str) -> None:
    pattern, by, count = SITES[kind]
    sites = list(re.finditer(pattern, text()))
    assert len(sites) == count
    without = [text()[: site.start()] + site.expand(by) + text()[site.end() :] for site in sites]
    missed = [
        i
        for i, changed in enumerate(without)
        if not any(told(lambda _, changed=changed: changed, order) for order in range(ORDERS))
    ]
    # The load warp's two waits before it exits: for commits that the machine has arrive in the order of issue, so
    # before the last one, which others wait for. PTX promises no such order.
    at_exit = [i for i, site in enumerate(sites) if kind == "waits" and site.start() in exit_waits()]
    assert missed == at_exit


def exit_waits() -> list[int]:
    """Where the load warp's last two waits are: those before the MMA warp's first one, for Q."""
    waits = [site.start() for site in re.finditer(SITES["waits"][0], text())]
    first_product = re.search(r"tcgen05\.mma", text())
    assert first_product
    before = [at for at in waits if at < first_product.start()]
    return before[-4:-2]
