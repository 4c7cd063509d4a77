"""GEMMs of sm_120a: what is planned, and what is refused and where."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from gemm_specs import PLAIN, resolve_text

from cutegen.diagnostics import SpecError
from cutegen.families.gemm.code_plan import plan_code
from cutegen.families.gemm.explain import explain
from cutegen.resolve import resolve_file
from cutegen.run.subject import load_subject

ROOT = Path(__file__).parents[2]
SM120 = PLAIN.replace("sm_90a", "sm_120a")


@pytest.mark.parametrize(
    ("more", "tile", "stages", "registers"),
    [
        ("", (128, 128, 64), 2, 240),  # as many stages as CUTLASS's kernel of 128 x 128 x 64
        ("tiling: {tile: [128, 128, 32]}\n", (128, 128, 32), 5, 240),
        ("warpgroups: {schedule: cooperative, consumer: {count: 1}}\n", (128, 128, 64), 2, 240),
        ("warpgroups: {schedule: cooperative, consumer: {count: 2}}\n", (128, 128, 64), 2, 232),
        ("tiling: {tile: [64, 64, 64]}\n", (64, 64, 64), 5, 232),
    ],
)
def test_rings_and_registers(more: str, tile: tuple[int, ...], stages: int, registers: int) -> None:
    tiling = resolve_text(SM120 + more).resolved.default
    numbers = tiling.numbers
    assert (numbers.tile, numbers.stages, numbers.consumer_registers) == (tile, stages, registers)
    assert numbers.cluster == numbers.multicast == (1, 1)
    assert numbers.smem_bytes <= 101376


def test_planned_code() -> None:
    """32 rows of a warp are two products and two reads, 16 columns one read; the code has two k tiles."""
    resolved = resolve_text(SM120).resolved
    plan = plan_code(resolved, resolved.default)
    assert (plan.mma[0].opcode, plan.mma[0].step) == ("HMMA.16816", 2 * 16 * 4)
    assert plan.matrix_loads == 2 * 4 * (2 + 8)
    assert not plan.multicast
    eight = resolve_text(SM120.replace("bf16[m, k]", "e4m3[m, k]").replace("bf16[n, k]", "e4m3[n, k]")).resolved
    plan = plan_code(eight, eight.default)
    assert (plan.mma[0].opcode, plan.mma[0].step, plan.matrix_loads) == ("QMMA.16832", 128, 80)
    scaled = resolve_file(ROOT / "specs" / "gemm_nvfp4_sm120a.yaml").resolved
    plan = plan_code(scaled, scaled.default)
    assert (plan.mma[0].opcode, plan.mma[0].step, plan.tma_loads) == ("OMMA.SF.16864", 16 * 4, 4)


REFUSED = {
    "cluster": ("tiling: {cluster: [2, 1]}\n", "no-multicast", "TMA of sm_120a does not multicast"),
    "multicast": ("tma: {a: {multicast: 2}}\n", "multicast", "has 1 CTA along n to share it"),
    "pair": ("tiling: {mma_ctas: 2}\n", "cta-pair", "mma.sync on sm_120a is one CTA's"),
    "sum in a cluster": ("tiling: {split_k: 2, split_k_sum: ordered_cluster}\n", "no-cluster-sum", "no clusters"),
    "registers": ("tiling: {tile: [64, 256, 64]}\n", "accumulator-registers", "the widest tile n is 192"),
    "columns": ("tiling: {tile: [128, 136, 64]}\n", "tile-n", "not a multiple of 16 in 16..256"),
    "rows": ("tiling: {tile: [96, 128, 64]}\n", "tile-m", "tile m = 96"),
    "shared memory": ("pipeline: {stages: 3}\ntiling: {tile: [128, 128, 64]}\n", "smem-capacity", "sm_120a has 99 KiB"),
    "device": ("device: h200\n", "device-arch", "write rtx5090 or rtx_pro_6000"),
}


@pytest.mark.parametrize(("more", "rule", "said"), REFUSED.values(), ids=REFUSED)
def test_knobs_that_are_refused(more: str, rule: str, said: str) -> None:
    with pytest.raises(SpecError) as caught:
        resolve_text(SM120 + more)
    assert rule in caught.value.report()
    assert said in caught.value.report()


def tensors(a: str, b: str, more: str = "") -> str:
    return SM120.replace("bf16[m, k]", a).replace("bf16[n, k]", b).replace("  d:", f"{more}  d:")


SCALED_K = tensors("e4m3[m, k]", "e4m3[n, k]", "  sa: f32[m, ceil(k/128)]@m\n  sb: f32[ceil(n/128), ceil(k/128)]\n")
SCALED_K += "mainloop: (a * sa) @ (b * sb)\n"
SPECS = {
    "fp8 with n contiguous": (tensors("e4m3[m, k]", "e4m3[k, n]"), "mma-major", "MMA reads e4m3 with k contiguous"),
    "a gated product with scales of blocks": (
        tensors("e4m3[m, k]", "e4m3[n, k]", "  sa: e8m0[m, k/32]\n  sb: e8m0[n, k/32]\n").replace("m, n]", "m, n/2]")
        + "mainloop: (a * sa) @ (b * sb)\nepilogue: {d: 'acc[:, :n/2] * acc[:, n/2:]'}\n",
        "sm120-spec",
        "a gated product with scales of blocks on sm_120a",
    ),
    "a tile of several chunks of scales": (
        tensors("e4m3[m, k]", "e4m3[n, k]", "  sa: e8m0[m, k/32]\n  sb: e8m0[n, k/32]\n")
        + "mainloop: (a * sa) @ (b * sb)\ntiling: {tile: [128, 64, 128]}\n",
        "packed-scales",
        "tile n = 64 is not the 128 rows of a chunk of scales",
    ),
    "rows of a warp that a chunk of scales is not for": (
        tensors("e4m3[m, k]", "e4m3[n, k]", "  sa: e8m0[m, k/32]\n  sb: e8m0[n, k/32]\n")
        + "mainloop: (a * sa) @ (b * sb)\nwarpgroups: {schedule: cooperative, consumer: {count: 1, registers: 256}}\n",
        "packed-scales",
        "1 x 64 rows at a time share a chunk of scales of 128",
    ),
    "rows of a warp that one part of the sum is not for": (
        SCALED_K + "tiling: {tile: [128, 64, 128]}\nwarpgroups: {consumer: {count: 1}}\n",
        "promoted-rows",
        "tile m = 128 of a promoted sum, for 1 x 64 rows",
    ),
    "columns of such a sum": (
        SCALED_K + "tiling: {tile: [128, 128, 128]}\n",
        "accumulator-registers",
        "the widest tile n is 64",
    ),
}


@pytest.mark.parametrize(("text", "rule", "said"), SPECS.values(), ids=SPECS)
def test_specs_that_are_refused(text: str, rule: str, said: str) -> None:
    with pytest.raises(SpecError) as caught:
        resolve_text(text)
    assert rule in caught.value.report()
    assert said in caught.value.report()


def test_explain_knows_what_the_vendor_says_of_a_device() -> None:
    sections = explain(
        resolve_file(ROOT / "specs" / "gemm_bf16_sm120a.yaml").resolved, {"m": 4096, "n": 4096, "k": 4096}
    )
    shape = next(s for s in sections if s.title == "m=4096, n=4096, k=4096")
    assert "nobody measured the rates of rtx5090" in shape.lines[0]
    assert ("waves", "6.02 of 170 SMs") in shape.rows
    assert ("memory", "96.0 MiB; L2 has 96 MiB; at 1792 GB/s 56.2 us at least") in shape.rows


def test_other_devices_are_refused_before_a_launch(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch")

    class Facts:
        name, major, minor, multi_processor_count = "NVIDIA GB10", 12, 1, 48

    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda index: Facts)
    plan: Any = load_subject(ROOT / "generated" / "gemm_bf16_sm120a").plan
    with pytest.raises(ValueError, match="is sm_121; the kernel is built for sm_120a"):
        plan.sm_count(0)
    Facts.minor = 0
    assert plan.sm_count(0) == 48
