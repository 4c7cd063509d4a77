"""Breaks of MLA decode's protocol, and of what GEMMs do besides tiles, made in their PTX: reported in one of the
first orders of events."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("numpy")
pytest.importorskip("torch")

from mla_machine import BF16, PROMISED, dims

from cutegen.machine import Simulation, load, run
from cutegen.machine.host import missing_tool
from cutegen.runtime.mla_decode.inputs import Draw

pytestmark = [
    pytest.mark.dsl,
    pytest.mark.thorough,
    pytest.mark.skipif(importlib.util.find_spec("cutlass") is None, reason="nvidia-cutlass-dsl is not installed"),
    pytest.mark.skipif(missing_tool() is not None, reason=str(missing_tool())),
]
GENERATED = Path(__file__).parents[2] / "generated"
ORDERS = range(5)


def replacing(pattern: str, by: str, count: int = 0) -> Callable[[str], str]:
    def mutate(ptx: str) -> str:
        changed, n = re.subn(pattern, by, ptx, count=count)
        assert n, f"nothing in the PTX matches {pattern}"
        return changed

    return mutate


def findings(package: str, tiling: str, problems: list[Any], mutate: Any, **options: Any) -> str:
    """What the first order with a finding reports of a package, "" where none has one. problems: number
    of SMs, extents, and what else decides the inputs."""
    for sms, shape, draw in problems:
        simulation = Simulation(sm_count=sms, mutate=mutate, **options)
        subject = load(GENERATED / package, simulation)
        for simulation.seed in ORDERS:
            result = run(subject, shape, tiling=tiling, draw=draw, seed=1)
            if result.detail:
                return "\n".join(result.detail)
    return ""


GEMM_PROBLEMS = [(2, {"m": 200, "n": 264, "k": 328}, None)]
# Requests of two CTAs each, and one that four share.
MLA_PROBLEMS = [(2, dims(3, 1, 16, 450), Draw("random")), (4, dims(1, 1, 16, 900), Draw())]


# As in test_ptx_machine_faults.py. A wait is a loop around try_wait.
GEMM_BREAKS = [
    ("a peek instead of a wait", r"bra\.uni\s+LAB_WAIT;", "", 0, "race|wrong|arrivals, but only"),
    ("nobody gives up registers", r"setmaxnreg\.dec[^;]*;", "", 0, "deadlock: .*\n(.*\n)*.*registers, 232 a thread"),
    ("registers are given up for fewer", r"setmaxnreg\.dec\.sync\.aligned\.u32\s+40;",
     "setmaxnreg.dec.sync.aligned.u32 48;", 0, "deadlock: .*\n(.*\n)*.*waits for 2048 registers"),
    ("loads signal the other CTA's barriers", r"(multicast::cluster[^\n]*\{[^}]*\}\], \[%r\d+)\]", r"\1+8]", 0,
     "deadlock|race|arrivals|outstanding|initialised|wrong"),
    ("no fence of the barriers' init", r"fence\.mbarrier_init\.release\.cluster;", "", 0,
     "signalled by the async proxy, without fence.mbarrier_init"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "pattern", "by", "count", "said"), GEMM_BREAKS, ids=[b[0] for b in GEMM_BREAKS])
def test_gemm(name: str, pattern: str, by: str, count: int, said: str) -> None:
    told = findings("gemm_bf16_sm90a", "t128x256x64", GEMM_PROBLEMS, replacing(pattern, by, count))
    assert re.search(said, told), told[:600]


MLA_BREAKS = [
    ("a peek instead of a wait", r"bra\.uni\s+LAB_WAIT;", "", 0, "race|wrong|arrivals, but only"),
    ("no proxy fence", r"fence\.proxy\.async\.shared::cta;", "", 0, "without fence.proxy.async"),
    ("no wait for products", r"wgmma\.wait_group\.sync\.aligned\s+0;", "", 0, "in flight|race|wrong"),
    ("no barrier between the warpgroups' halves", r"bar\.sync\s+3, 256;", "", 0, "race|without fence"),
    ("no barrier before scores are read", r"bar\.sync\s+1, 256;", "", 0, "race|without fence|deadlock|exits"),
    ("a barrier nobody arrives at", r"bar\.arrive\s+1, 256;", "", 0, "deadlock: .*\n(.*\n)*.*named barrier 1"),
    ("fewer bytes announced", r"(mbarrier\.arrive\.expect_tx[^;]*), %r\d+;", r"\1, 64;", 0,
     "race|wrong|outstanding|deadlock"),
    ("slots are never freed", r"mbarrier\.arrive\.shared\.b64\s+%rd\d+, \[%r\d+\+16[08]\], %r\d+;", "", 0, "deadlock"),
    ("parts are read without an acquire", r"ld\.acquire\.gpu", "ld.relaxed.gpu", 0, "race"),
    ("parts are looked for in the own CTA's scope", r"ld\.acquire\.gpu", "ld.acquire.cta", 0, "race"),
    ("no fence of the barriers' init", r"fence\.mbarrier_init\.release\.cluster;", "", 0,
     "signalled by the async proxy, without fence.mbarrier_init"),
    ("no wait for the kernel in front", r"griddepcontrol\.wait;", "", 0, "before griddepcontrol.wait"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "pattern", "by", "count", "said"), MLA_BREAKS, ids=[b[0] for b in MLA_BREAKS])
def test_mla_decode(name: str, pattern: str, by: str, count: int, said: str) -> None:
    told = findings(BF16, "seesaw", MLA_PROBLEMS, replacing(pattern, by, count), **PROMISED)
    assert re.search(said, told), told[:600]


# CTAs that have all started, and more of them than run at a time.
SUM_PROBLEMS = [(6, {"m": 5, "n": 520}, None), (2, {"m": 19, "n": 520}, None)]
CLUSTER_PROBLEMS = [(2, {"m": 3, "n": 3000}, None)]
ROW_BREAKS = [
    ("lines are published without a release", "sums", r"acq_rel\.add", "relaxed.add", 0, "race"),
    ("lines are published in the own CTA's scope", "sums", r"acq_rel\.add", "acq_rel.cta.add", 0, "race"),
    ("lines are read without an acquire", "sums", r"ld\.acquire\.gpu", "ld.relaxed.gpu", 0, "race"),
    ("totals are given without a release", "clusters",
     r"barrier\.cluster\.arrive;", "barrier.cluster.arrive.relaxed;", 0,
     "race"),
    ("totals are not waited for", "clusters", r"barrier\.cluster\.wait;", "", 0, "twice without a wait"),
    ("totals are given to the last CTA alone", "clusters", r"(mapa\S+ a, %r\d+), %r\d+;", r"\1, 1;", 0, "nan|wrong"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "of", "pattern", "by", "count", "said"), ROW_BREAKS, ids=[b[0] for b in ROW_BREAKS])
def test_rows(name: str, of: str, pattern: str, by: str, count: int, said: str) -> None:
    package, tiling, problems = ROWS[of]
    told = findings(package, tiling, problems, replacing(pattern, by, count))
    assert re.search(said, told), told[:600]


ROWS = {
    "sums": ("rmsnorm_backward_bf16_sm90a", "n1024", SUM_PROBLEMS),
    "clusters": ("cross_entropy_bf16_sm90a", "n12288", CLUSTER_PROBLEMS),
}


def test_without_a_break_nothing_is_told() -> None:
    keep = replacing("$", "", 1)
    assert findings("gemm_bf16_sm90a", "t128x256x64", GEMM_PROBLEMS, keep) == ""
    assert findings(BF16, "seesaw", MLA_PROBLEMS, keep, **PROMISED) == ""
    for package, tiling, problems in ROWS.values():
        assert findings(package, tiling, problems, keep) == ""
