"""What the PTX machine is for: each break of a kernel's protocol, made in its PTX, is told."""

from __future__ import annotations

import functools
import importlib.util
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

pytest.importorskip("numpy")
pytest.importorskip("torch")

from cutegen.machine import Simulation, load, run
from cutegen.machine.host import missing_tool

pytestmark = [
    pytest.mark.dsl,
    pytest.mark.thorough,
    pytest.mark.skipif(importlib.util.find_spec("cutlass") is None, reason="nvidia-cutlass-dsl is not installed"),
    pytest.mark.skipif(missing_tool() is not None, reason=str(missing_tool())),
]
ROOT = Path(__file__).parents[2]
PLAIN = ROOT / "generated" / "gemm_bf16_sm90a"
TILING = "t128x256x64"  # its default: clusters of 2 CTAs, B multicast, a ring of 4 slots, 16 warps free one
SHAPE = {"m": 200, "n": 264, "k": 328}  # two tiles per CTA of six k tiles each
SEEDS = range(6)


def replacing(pattern: str, text: str, count: int = 0) -> Callable[[str], str]:
    """A mutation of PTX. It has to apply; count: how often at most, 0 for everywhere."""

    def mutate(ptx: str) -> str:
        changed, n = re.subn(pattern, text, ptx, count=count)
        assert n, f"nothing in the PTX matches {pattern}"
        return changed

    return mutate


@functools.cache
def expected_pass() -> None:
    """Findings mean nothing where the kernel as it is has some."""
    assert list(findings(None, SEEDS, races=True)) == [""] * len(SEEDS)


def findings(mutate: Callable[[str], str] | None, seeds: Sequence[int], *, races: bool) -> Iterator[str]:
    """What is told of the kernel in each order of events, "" where nothing is."""
    simulation = Simulation(sm_count=2, mutate=mutate, races=races)
    subject = load(PLAIN, simulation)
    for seed in seeds:
        simulation.seed = seed
        result = run(subject, SHAPE, tiling=TILING, seed=1)
        assert (result.status == "pass") == (not result.detail)
        yield "\n".join(result.detail)


# A try_wait in a loop, as inline assembly: consumers are at wgmma.fence next, the producer at elect.sync.
WAIT_BEFORE = r"LAB_WAIT:(?=\s+mbarrier\.try_wait[^}}]*\}}\s+// end inline asm\s+{})[^}}]*DONE:"
ANNOUNCED = r"(mbarrier\.arrive\.expect_tx[^;]*), %r\d+;"  # 49152 bytes, and 45056 of the last rows
# What is broken; the PTX that is replaced, and by what; how often at most (0: everywhere); what is told.
BREAKS = [
    ("no wait for a full slot", WAIT_BEFORE.format(r"wgmma\.fence"), "", 0, "nan|arrivals, but only"),
    ("no wait for an empty slot", WAIT_BEFORE.format(r"elect\.sync"), "", 0, "nan|arrivals, but only"),
    (
        "a slot is freed while products read it",
        r"wait_group\.sync\.aligned\s+1;",
        "wait_group.sync.aligned 2;",
        0,
        "nan",
    ),
    ("no wait for accumulators", r"wgmma\.wait_group\.sync\.aligned\s+0;", "", 0, "nan|WGMMAs in flight"),
    ("a slot is never freed", r"mbarrier\.arrive\.shared::cluster[^;]*;", "", 0, "deadlock"),
    ("too many bytes announced", ANNOUNCED, r"\1, 49168;", 0, "deadlock: .*\n(.*\n)*.*[1-9][0-9]* bytes outstanding"),
    ("too few bytes announced", ANNOUNCED, r"\1, 16384;", 0, "nan|outstanding|deadlock"),
    ("an arrival too many expected", ", 16;", ", 17;", 1, "deadlock: .*\n(.*\n)*.*16 of 17 arrived"),
    ("half of the arrivals expected", ", 16;", ", 8;", 1, "arrivals, but only|nan|deadlock"),
    (
        "the other parity",
        r"mov\.b32 \t(%r\d+), 1;(?=[\s\S]*try_wait\.parity[^;]*, \1,)",
        r"mov.b32 \1, 0;",
        0,
        "deadlock: .*\n(.*\n)*.*parity 0 of mbarrier",
    ),
    ("no barrier before a store", r"bar\.sync\s+1, 256;", "", 0, "fence.proxy.async|nan|wrong"),
    (
        "a barrier for another warp",
        r"bar\.sync\s+1, 256;",
        "bar.sync 1, 288;",
        0,
        "deadlock: .*\n(.*\n)*.*named barrier 1",
    ),
    ("no proxy fence", r"fence\.proxy\.async\.shared::cta;", "", 0, "without fence.proxy.async"),
    ("an output slot is reused early", r"cp\.async\.bulk\.wait_group\.read\s+2;", "", 0, "wrong"),
    ("no wait at the end", r"cp\.async\.bulk\.wait_group\.read\s+0;", "", 0, "exits without having waited"),
    ("no wait for the kernel in front", r"griddepcontrol\.wait;", "", 0, "is accessed, .* before griddepcontrol.wait"),
    (
        "a trigger before the wait",
        r"griddepcontrol\.wait;",
        "griddepcontrol.launch_dependents; griddepcontrol.wait;",
        0,
        "the next kernel let start, before griddepcontrol.wait",
    ),
    ("no cluster barrier", r"barrier\.cluster\.wait;", "", 0, "no mbarrier is initialised|arrive twice"),
]


parametrized = pytest.mark.parametrize(
    ("pattern", "text", "count", "told"), [b[1:] for b in BREAKS], ids=[b[0] for b in BREAKS]
)


@parametrized
def test_each_break_is_seen_in_some_order(pattern: str, text: str, count: int, told: str) -> None:
    expected_pass()
    texts = []
    for found in findings(replacing(pattern, text, count), SEEDS, races=False):
        if re.search(told, found):
            return
        texts.append(found[:600])
    pytest.fail("told in no order of events; instead: " + "\n---\n".join(texts))


@parametrized
def test_each_break_is_seen_in_any_order(pattern: str, text: str, count: int, told: str) -> None:
    """With races looked for, the order in which all went well by chance tells, too."""
    expected_pass()
    (found,) = findings(replacing(pattern, text, count), [1], races=True)
    assert re.search(f"race: .* nothing orders the two|{told}", found), found[:600]
