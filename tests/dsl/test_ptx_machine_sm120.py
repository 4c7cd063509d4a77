"""GEMMs of sm_120a on the PTX machine, strict: shipped ones are right in five orders, other forms in two, and breaks
are reported."""

from __future__ import annotations

import functools
import importlib.util
import re
from pathlib import Path

import pytest

pytest.importorskip("numpy")
pytest.importorskip("torch")

from gemm_specs import PLAIN, gathered, resolve_text
from hopper_copy import copy_for_hopper
from test_ptx_machine_sm100 import assert_reported, found, replacing

from cutegen.machine import Simulation, load, load_resolution, run
from cutegen.machine.host import missing_tool

pytestmark = [
    pytest.mark.dsl,
    pytest.mark.thorough,
    pytest.mark.skipif(importlib.util.find_spec("cutlass") is None, reason="nvidia-cutlass-dsl is not installed"),
    pytest.mark.skipif(missing_tool() is not None, reason=str(missing_tool())),
]
GENERATED = Path(__file__).parents[2] / "generated"
SHIPPED = GENERATED / "gemm_bf16_sm120a"
SM120 = PLAIN.replace("sm_90a", "sm_120a")
RAGGED = {"m": 264, "n": 272, "k": 224}  # more k tiles than slots, and more tiles than CTAs


@pytest.mark.parametrize("name", sorted(path.name for path in GENERATED.glob("gemm_*_sm120a")))
@pytest.mark.parametrize("shape", [RAGGED, {"m": 1, "n": 16, "k": 32}], ids=["ragged", "least"])
def test_shipped_kernels_are_right_in_five_orders(name: str, shape: dict[str, int]) -> None:
    assert list(found(functools.partial(load, GENERATED / name), shape, 5)) == [""] * 5


def products(a: str, b: str, more: str = "", tensors: str = "") -> str:
    return SM120.replace("bf16[m, k]", a).replace("bf16[n, k]", b).replace("  d:", f"{tensors}  d:") + more


FORMS = {
    "bf16, m and n contiguous, two warpgroups to a tile": products(
        "bf16[k, m]", "bf16[k, n]", "warpgroups: {schedule: cooperative, consumer: {count: 2}}\n"
    ),
    "e5m2 by e4m3, narrow, one step a slot": products("e5m2[m, k]", "e4m3[n, k]", "tiling: {tile: [64, 48, 32]}\n"),
    "i8": products("i8[m, k]", "i8[n, k]", "tiling: {tile: [64, 64, 64]}\n"),
    "a tile that the epilogue reads, sums of rows and columns": products(
        "f16[m, k]",
        "f16[n, k]",
        "epilogue: {x: gelu_tanh(acc + bias) + c, rows: 'sum(x, n)', columns: 'max(x, m)', d: x}\n",
        "  bias: f32[n]\n  c: bf16[m, n]\n  rows: f32[m]\n  columns: f32[n]\n",
    ),
    "gated, transposed, tiles claimed": products(
        "bf16[m, k]",
        "bf16[n, k]",
        "epilogue: {d: 'silu(acc[:, :n/2]) * acc[:, n/2:]'}\ntiling: {swap_ab: true, tile: [128, 64, 64]}\n"
        "scheduler: dynamic_persistent\n",
    ).replace("d: bf16[m, n]", "d: bf16[m, n/2]"),
    "MXFP8, parts of k": products(
        "e4m3[m, k]",
        "e5m2[n, k]",
        "mainloop: (a * sa) @ (b * sb)\ntiling: {split_k: 2}\n",
        "  sa: e8m0[m, k/32]\n  sb: e8m0[n, k/32]\n",
    ),
    "MXFP4, transposed, a tile that the epilogue reads": products(
        "e2m1[l, m, k]",
        "e2m1[l, n, k]",
        "mainloop: (a * sa) @ (b * sb)\nepilogue: {d: acc + c}\ntiling: {swap_ab: true, tile: [128, 128, 128]}\n",
        "  sa: e8m0[l, m, k/32]\n  sb: e8m0[l, n, k/32]\n  c: bf16[l, m, n]\n",
    ).replace("d: bf16[m, n]", "d: bf16[l, m, n]"),
    "gathered rows": gathered(SM120),
    "parts of k": products(
        "bf16[m, k]", "bf16[n, k]", "tiling: {split_k: 3, split_k_sum: ordered_parallel, tile: [128, 64, 64]}\n"
    ),
}


@pytest.mark.parametrize("text", FORMS.values(), ids=FORMS)
def test_other_forms_are_right_in_two_orders(text: str) -> None:
    resolution = resolve_text(text)
    shape = {"m": 136, "n": 144, "k": 224} | ({"l": 2} if "[l," in text else {"t": 100} if "[t," in text else {})
    assert list(found(lambda s: load_resolution(resolution, s), shape, 2)) == [""] * 2


def test_kernels_for_other_targets_are_the_same(tmp_path: Path) -> None:
    """So what is executed of sm_120a is said of sm_121a, and what runs on Hopper has the same products, reads, copies
    and barriers."""
    texts: list[str] = []
    simulation = Simulation(sm_count=2, strict=True, mutate=lambda ptx: (texts.append(ptx), ptx)[1])
    for make in (  # one after the other: a package that is loaded takes the place of others of its name
        functools.partial(load, SHIPPED),
        functools.partial(load_resolution, resolve_text(SM120.replace("sm_120a", "sm_121a"))),
        functools.partial(load, copy_for_hopper(SHIPPED, tmp_path)),
    ):
        assert run(make(simulation), {"m": 64, "n": 64, "k": 160}, seed=1).status == "pass"
    assert [re.findall(r"\.target (sm_\w+)", text) for text in texts] == [["sm_120a"], ["sm_121a"], ["sm_90a"]]
    shipped, spark = (
        re.sub(r"\.loc [^\n]*|sm_12\da\b|(gemm_bf16_sm120a|product)_128", "", text.partition(".file")[0])
        for text in texts[:2]
    )
    assert shipped == spark
    shipped, _, hopper = (
        sorted(re.findall(r"\b(?:mma|ldmatrix|stmatrix|cp|mbarrier|bar|fence)\.[\w.:]+", t)) for t in texts
    )
    assert shipped == hopper
    assert len([opcode for opcode in shipped if opcode.startswith("ldmatrix")]) == 80


GIVE_BACK = r"mbarrier\.arrive\.shared\.b64 %rd\d+, \[%r\d+\+16\], %r\d+;"  # behind two full barriers: empty ones
EXPECT = r"(mbarrier\.arrive\.expect_tx[^;]*), %r\d+;"
# What is broken; the PTX that is replaced, and by what; what is reported.
BREAKS = [
    ("slots are not given back", GIVE_BACK, "", "deadlock"),
    ("the last slot is not given back", rf"{GIVE_BACK}(?![\s\S]*mbarrier\.arrive\.shared)", "", "deadlock"),
    ("more bytes announced", EXPECT, r"\1, 32784;", "deadlock"),
    ("half of the bytes announced", EXPECT, r"\1, 16384;", "race|wrong|deadlock|outstanding"),
    ("no wait for slots", r"mbarrier\.try_wait[^;]*;", "setp.eq.u32 P1, 0, 0;", "race|wrong|outstanding"),
    ("turns are not awaited", r"bar\.sync\s+%r\d+, 256;", "", "race|wrong|deadlock"),
    ("turns are not given", r"bar\.arrive\s+%r\d+, 256;", "", "deadlock"),
    ("the first turn is not given", r"bar\.arrive\s+3, 256;", "", "deadlock"),
    ("no proxy fence", r"fence\.proxy\.async\.shared::cta;", "", "without fence.proxy.async"),
    ("no barrier before a store", r"bar\.sync\s+%r\d+, 128;", "", "race|wrong|without fence"),
    ("an output slot is reused early", r"cp\.async\.bulk\.wait_group\.read\s+2;", "", "race|wrong"),
    ("no wait for stores at the end", r"cp\.async\.bulk\.wait_group\.read\s+0;", "", "exits without having waited"),
    ("no fence of the barriers' init", r"fence\.mbarrier_init\.release\.cluster;", "", "without fence.mbarrier_init"),
    ("no wait for the preceding kernel", r"griddepcontrol\.wait;", "", "before griddepcontrol.wait"),
]


@pytest.mark.parametrize(("pattern", "by", "said"), [b[1:] for b in BREAKS], ids=[b[0] for b in BREAKS])
def test_each_break_is_reported(pattern: str, by: str, said: str) -> None:
    assert_reported(said, found(functools.partial(load, SHIPPED), RAGGED, 3, mutate=replacing(pattern, by)))


# Of scales, each of which a thread holds for others: MMAs name who holds it, and which byte of it is meant.
SCALE_BREAKS = [
    ("scales are not loaded", r"cp\.async\.bulk\.tensor\.3d\.shared::cta\.global[^;]*;", "", 1, "deadlock"),
    ("scales of other columns", r"(mma\.sync[^;]*), \{0, 3\};", r"\1, {0, 2};", 0, "wrong"),
    ("scales of rows are taken for 1", r"ld\.shared\.b32\s+(%r\d+), [^;]*;", r"mov.b32 \1, 0x38383838;", 0, "wrong"),
]


@pytest.mark.parametrize(
    ("pattern", "by", "count", "said"), [b[1:] for b in SCALE_BREAKS], ids=[b[0] for b in SCALE_BREAKS]
)
def test_each_break_of_scales_is_reported(pattern: str, by: str, count: int, said: str) -> None:
    package = functools.partial(load, GENERATED / "gemm_nvfp4_sm120a")
    assert_reported(said, found(package, RAGGED, 2, mutate=replacing(pattern, by, count)))
