"""Tiles of sm_100a that are handed out by cluster launch control, on the PTX machine, strict: right in five orders, in
some of which queries are refused although tiles are left; and breaks are reported."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Callable

import pytest

pytest.importorskip("numpy")
pytest.importorskip("torch")

from gemm_specs import resolve_text

from cutegen.machine import Simulation, assert_passes, load_resolution, run
from cutegen.machine.forms import uncalibrated
from cutegen.machine.host import missing_tool

pytestmark = [
    pytest.mark.dsl,
    pytest.mark.thorough,
    pytest.mark.skipif(importlib.util.find_spec("cutlass") is None, reason="nvidia-cutlass-dsl is not installed"),
    pytest.mark.skipif(missing_tool() is not None, reason=str(missing_tool())),
]
PLAIN = """\
cutegen: 1
kernel: gemm
arch: sm_100a
tensors: {a: "bf16[m, k]", b: "bf16[n, k]", d: "bf16[m, n]"}
scheduler: clc
"""
READS = """\
cutegen: 1
kernel: gemm
arch: sm_100a
tensors: {a: "f16[l, m, k]", b: "f16[l, n, k]", c: "f16[l, m, n]", d: "f16[l, m, n]", r: "f32[l, m]"}
epilogue: {d: acc + c, r: "sum(acc, n)"}
scheduler: clc
"""
PAIR = PLAIN + "tiling: {tile: [128, 64, 64], cluster: [2, 1]}\n"
FORMS = {
    "a pair": (PAIR, {"m": 1032, "n": 200, "k": 72}, 2),
    "two pairs": (PLAIN + "tiling: {tile: [128, 32, 64], cluster: [2, 2]}\n", {"m": 520, "n": 264, "k": 72}, 4),
    "alone, with tiles and reductions": (
        READS + "tiling: {tile: [128, 32, 64], cluster: [1, 1]}\n",
        {"l": 2, "m": 264, "n": 72, "k": 72},
        3,
    ),
}
SHAPE = FORMS["a pair"][1]
QUERY = r"clusterlaunchcontrol\.try_cancel[^;]*;"
ARRIVE = r"mbarrier\.arrive\.shared::cluster[^;]*;"
EXPECT = r"mbarrier\.arrive\.expect_tx\.shared::cluster\.b64[^;]*;"
READ = r"(bar\.warp\.sync[^;]*;\s*@%p\d+ bra[^;]*;\s*add\.s32[^;]*;\s*mapa[^;]*;\s*mov[^;]*;\s*mov[^;]*;)\s*"
WAIT = r"mbarrier\.try_wait[^;]*;(?=[^;]*bra\.uni DONE;[^;]*LAB_WAIT;[^;]*add\.s32[^;]*;\s*ld\.shared\.v2\.b64)"
CANCELLED = r"(query_cancel\.is_canceled\.pred\.b128)(\s*%p\d+), (%clc_handle);(\s*\})"
# What is broken; the PTX that is replaced, and by what, how often at most; what is reported.
BREAKS = [
    ("loads do not say that they begin", ARRIVE, "", 1, "deadlock"),
    ("an answer is announced to no CTA", EXPECT, "", 0, "deadlock"),
    ("half of an answer is announced", rf"mov\.b32 (\s*%r\d+), 16;(\s*{EXPECT})", r"mov.b32 \1, 8;\2", 0,
     "race|deadlock|outstanding|wrong"),
    ("an answer comes to one CTA", r"\.multicast::cluster::all(?=\.b128)", "", 0, "deadlock|outstanding"),
    ("no query", QUERY, "", 0, "deadlock"),
    ("answers are not waited for", WAIT, "setp.eq.b32 P1, %r1, %r1;", 0, "race"),
    ("slots of answers are not given back", READ + ARRIVE, r"\1", 0, "deadlock"),
    ("a refusal is passed over", CANCELLED, r"\1\2, \3;\4 setp.eq.b32 \2, %r1, %r1;", 0,
     "nothing was left|deadlock|outside|region"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "shape", "sms"), FORMS.values(), ids=FORMS)
def test_every_tile_is_computed_in_five_orders(text: str, shape: dict[str, int], sms: int) -> None:
    simulation = Simulation(sm_count=sms, strict=True)
    subject = load_resolution(resolve_text(text), simulation)
    for simulation.seed in range(5):
        assert_passes(subject, shape)
    assert all(form.startswith("clusterlaunchcontrol") for form in uncalibrated(simulation.forms()))
    (tiling,) = subject.tilings.values()
    assert simulation.machine is not None
    rows, columns = (size * peers for size, peers in zip(tiling.tile, tiling.cluster))
    tiles = -(-shape["m"] // rows) * -(-shape["n"] // columns) * shape.get("l", 1)
    assert simulation.machine.launch.grid[2] == tiles  # a cluster for each, of which few are resident


def replacing(pattern: str, by: str, count: int) -> Callable[[str], str]:
    def mutate(ptx: str) -> str:
        changed, found = re.subn(pattern, by, ptx, count=count)
        assert found, f"nothing in the PTX matches {pattern}"
        return changed

    return mutate


@pytest.mark.parametrize(("pattern", "by", "count", "said"), [b[1:] for b in BREAKS], ids=[b[0] for b in BREAKS])
def test_each_break_is_reported(pattern: str, by: str, count: int, said: str) -> None:
    simulation = Simulation(sm_count=2, strict=True, mutate=replacing(pattern, by, count))
    subject = load_resolution(resolve_text(PAIR), simulation)
    seen = []
    for simulation.seed in range(4):
        seen.append("\n".join(run(subject, SHAPE, seed=1).detail)[:300])
        if re.search(said, seen[-1]):
            return
    pytest.fail(f"{said} is not among {seen}")


def test_a_budget_of_sms_is_refused() -> None:
    plan = load_resolution(resolve_text(PAIR), Simulation(sm_count=4)).plan
    assert plan is not None
    values = (*(inputs := plan.prepare_inputs(**SHAPE)), *plan.allocate_outputs(*inputs))
    with pytest.raises(ValueError, match="sms is 2, and t128x64x64 has a launch with a cluster for each tile"):
        plan.launch_fn(*values, sms=2)
    plan.launch_fn(*values, sms=4)
