"""GEMMs of sm_100a whose rows fall into groups, on the PTX machine, strict: right in five orders."""

from __future__ import annotations

import importlib.util
import re
from functools import cache
from pathlib import Path

import pytest

pytest.importorskip("numpy")
pytest.importorskip("torch")

import torch
from gemm_specs import COUNTS, LABELS, OFFSETS, gathered, group_fused, resolve_text

from cutegen.machine import Simulation, assert_passes, load, load_resolution, run
from cutegen.machine.forms import uncalibrated
from cutegen.machine.host import missing_tool
from cutegen.run.guard import guarded_like
from cutegen.run.subject import Subject
from cutegen.runtime.gemm.row_groups import Deal

pytestmark = [
    pytest.mark.dsl,
    pytest.mark.thorough,
    pytest.mark.skipif(importlib.util.find_spec("cutlass") is None, reason="nvidia-cutlass-dsl is not installed"),
    pytest.mark.skipif(missing_tool() is not None, reason=str(missing_tool())),
]
SHIPPED = Path(__file__).parents[2] / "generated" / "grouped_gemm_bf16_sm100a"
GATHERING = SHIPPED.with_name("grouped_gemm_bf16_gather_sm100a")
MXFP8 = LABELS.replace("bf16[m, k]", "e4m3[m, k]\n  sa: e8m0[m, k/32]").replace(
    "b: bf16[g, n, k]", "b: e4m3[g, n, k]\n  sb: e8m0[g, n, k/32]"
)
GATED = LABELS.replace("d: bf16[m, n]", "d: bf16[m, n/2]") + "epilogue: {d: 'silu(acc[:, :n/2]) * acc[:, n/2:]'}\n"
GATHERED = """\
cutegen: 1
kernel: gemm
arch: sm_100a
tensors:
  a: e4m3[t, k]
  rows: i32[m]
  b: e4m3[n, k]
  sa: f32[t]
  sb: f32[n]
  w: f32[m]
  d: bf16[m, n]
mainloop: (a * sa)[rows] @ (b * sb)
epilogue: {d: acc * w}
tiling: {swap_ab: true, tile: [128, 32, 128], split_k: 2}
"""
# Spec, and extents: several tiles for each of the CTAs.
SPECS: dict[str, tuple[str, dict[str, int]]] = {
    "labels, gated": (GATED + "tiling: {tile: [128, 128, 64]}\n", {"m": 600, "n": 144, "k": 72, "g": 5}),
    "labels, MXFP8, gated, pairs": (
        MXFP8.replace("group}", "group, align: 256}").replace("d: bf16[m, n]", "d: bf16[m, n/2]")
        + "mainloop: (a * sa) @ (b * sb)\ntiling: {cluster: [2, 1]}\n"
        + "epilogue: {d: 'silu(acc[:, :n/2]) * acc[:, n/2:]'}\n",
        {"m": 1100, "n": 512, "k": 160, "g": 4},
    ),
    "counts, pairs": (
        COUNTS + "tiling: {tile: [128, 64, 64], cluster: [2, 1]}\n",
        {"m": 300, "n": 72, "k": 136, "g": 5},
    ),
    "labels, few rows": (
        LABELS.replace("group}", "group, align: 16}"),
        {"m": 300, "n": 200, "k": 72, "g": 5},
    ),
    "offsets, fused, few rows": (
        group_fused(OFFSETS).replace("ends}", "ends, expected_rows: 20}"),
        {"m": 300, "n": 200, "k": 72, "g": 5},
    ),
    "labels, gathered": (
        gathered(LABELS, "") + "tiling: {tile: [128, 64, 64]}\n",
        {"m": 300, "n": 72, "k": 136, "g": 5, "t": 90},
    ),
    "offsets, gathered, few rows": (
        gathered(OFFSETS, "").replace("ends}", "ends, expected_rows: 20}"),
        {"m": 300, "n": 200, "k": 72, "g": 5, "t": 90},
    ),
    "gathered with scales, 2 parts of k": (GATHERED, {"m": 150, "n": 144, "k": 400, "t": 33}),
    "offsets, fused, pairs": (
        group_fused(OFFSETS) + "tiling: {tile: [128, 64, 64], cluster: [2, 1]}\n",
        {"m": 700, "n": 72, "k": 72, "g": 6},
    ),
}
# Forms of tiles of 16 columns, which no public kernel has.
NARROW = re.compile("x16|N in steps of 16")
SIMULATION = Simulation(sm_count=4, strict=True)


@cache
def subject(name: str) -> Subject:
    return load_resolution(resolve_text(SPECS[name][0].replace("sm_90a", "sm_100a")), SIMULATION)


@pytest.mark.parametrize("name", SPECS)
def test_rows_meet_the_matrix_of_their_group(name: str) -> None:
    for SIMULATION.seed, kind in enumerate(("random", "edges", "ones", "none", "one")):
        assert_passes(subject(name), SPECS[name][1], draw=Deal(kind), seed=SIMULATION.seed)
    assert [form for form in uncalibrated(SIMULATION.forms()) if not NARROW.search(form)] == []


@pytest.mark.parametrize(("folder", "more"), [(SHIPPED, {}), (GATHERING, {"t": 200})], ids=["in order", "gathered"])
def test_the_shipped_kernel(folder: Path, more: dict[str, int]) -> None:
    shipped = load(folder, SIMULATION)
    for SIMULATION.seed, kind in enumerate(("random", "edges", "ones", "none", "full")):
        assert_passes(shipped, {"m": 600, "n": 272, "k": 72, "g": 5, **more}, draw=Deal(kind), seed=SIMULATION.seed)


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("labels, MXFP8, gated, pairs", [7, -(2**31), 2**31 - 1, 5, 0, 3, 0]),
        ("counts, pairs", [2**31 - 1, -(2**31), 141, -1, 10**9]),
        ("offsets, fused, pairs", [2**31 - 1, -(2**31), 90, -5, 501, 20]),
    ],
)
def test_no_values_make_a_kernel_leave_its_tensors(
    name: str, values: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The machine refuses an access outside of the arguments; guard bands find writes next to the output. Groups that
    overlap are written by several CTAs."""
    monkeypatch.setattr(SIMULATION, "races", False)
    plan = subject(name).plan
    assert plan
    inputs = list(plan.prepare_inputs(**SPECS[name][1]))
    index = next(v for v in inputs if getattr(v, "dtype", None) is torch.int32)
    index.copy_(torch.tensor(values * (len(index) // len(values) + 1))[: len(index)])
    (output,) = (guarded_like(o, padded=False) for o in plan.allocate_outputs(*inputs))
    plan.launch_fn(*inputs, output.tensor)
    assert not output.damage()


def test_a_table_that_is_not_waited_for_is_reported() -> None:
    def mutate(ptx: str) -> str:
        changed, count = re.subn(r"bar(rier)?\.sync\s+0;", "", ptx)
        assert count > 2
        return changed

    simulation = Simulation(sm_count=4, strict=True, mutate=mutate)
    broken = load(SHIPPED, simulation)
    result = run(broken, {"m": 600, "n": 272, "k": 72, "g": 5}, draw=Deal("random"), seed=0)
    assert re.search("race|wrong", "\n".join(result.detail))


def test_a_copy_that_is_not_waited_for_is_reported() -> None:
    def mutate(ptx: str) -> str:
        return re.sub(r"griddepcontrol\.wait;", "", ptx)

    broken = load(GATHERING, Simulation(sm_count=4, strict=True, mutate=mutate))
    result = run(broken, {"m": 600, "n": 272, "k": 72, "g": 5, "t": 200}, draw=Deal("random"), seed=0)
    assert "before griddepcontrol.wait" in "\n".join(result.detail)
