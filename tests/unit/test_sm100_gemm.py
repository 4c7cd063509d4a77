"""GEMMs of sm_100a: what is planned, what is refused and where, and which machines run or measure them."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import pytest
from gemm_specs import COUNTS, LABELS, OFFSETS, PLAIN, gathered, resolve_text

from cutegen.cli.bench import refuse_unrated
from cutegen.diagnostics import CutegenError, SpecError
from cutegen.families.gemm.code_plan import plan_code
from cutegen.families.gemm.explain import explain
from cutegen.families.gemm.rule_book import BOOK
from cutegen.families.gemm.tuning import GemmSpace
from cutegen.render import render_package
from cutegen.resolve import resolve_file, tunable_keys
from cutegen.run.subject import load_subject

ROOT = Path(__file__).parents[2]
SM100 = PLAIN.replace("sm_90a", "sm_100a")


def planned(more: str) -> Any:
    return resolve_text(SM100 + more).resolved.default


@pytest.mark.parametrize(
    ("more", "stages", "accumulators", "columns"),
    [
        ("", 6, 2, 512),  # as many stages as CUTLASS's and quack's kernels of 256 x 256 x 64
        ("tiling: {tile: [128, 128, 64], cluster: [1, 1]}\n", 6, 2, 256),
        ("tiling: {tile: [128, 96, 64], mma_ctas: 1}\n", 7, 2, 256),
        ("tiling: {tile: [128, 32, 64], mma_ctas: 1}\n", 10, 2, 64),
        ("tiling: {tile: [128, 256, 64], mma_ctas: 1}\n", 4, 2, 512),
    ],
)
def test_rings_and_tensor_memory(more: str, stages: int, accumulators: int, columns: int) -> None:
    numbers = planned(more).numbers
    assert (numbers.stages, numbers.accumulators, numbers.tmem_columns) == (stages, accumulators, columns)
    assert numbers.smem_bytes <= 232448
    assert (numbers.threads, numbers.producer_registers, numbers.consumer_registers) == (256, 0, 0)


@pytest.mark.parametrize(
    ("more", "multicast", "commits"),
    [
        ("tiling: {cluster: [2, 1]}\n", (1, 1), 1),
        ("tiling: {cluster: [2, 2]}\n", (2, 1), 2),
        ("tiling: {cluster: [4, 1]}\n", (1, 2), 2),
        ("tiling: {cluster: [2, 2], mma_ctas: 1}\n", (2, 2), 3),
    ],
)
def test_ctas_of_a_cluster_share_loads(more: str, multicast: tuple[int, int], commits: int) -> None:
    resolved = resolve_text(SM100 + more).resolved
    numbers = resolved.default.numbers
    assert (numbers.multicast, numbers.empty_arrivals) == (multicast, commits)
    assert resolved.default.candidate.scheduler == "static_persistent"
    assert plan_code(resolved, resolved.default).multicast == (max(multicast) > 1)


def test_planned_code() -> None:
    pair, alone = (resolve_text(SM100 + f"tiling: {{mma_ctas: {ctas}}}\n").resolved for ctas in (2, 1))
    assert [str(plan_code(r, r.default).mma[0].opcode) for r in (pair, alone)] == ["UTCHMMA.2CTA", "UTCHMMA"]
    assert plan_code(pair, pair.default).mma[0].step == 4
    assert plan_code(pair, pair.default).registers == ()


@pytest.mark.parametrize(
    ("a", "b", "opcode"),
    [("e4m3", "e5m2", "UTCQMMA.2CTA"), ("i8", "i8", "UTCIMMA.2CTA"), ("f16", "f16", "UTCHMMA.2CTA")],
)
def test_planned_code_of_operands_with_m_and_n_contiguous(a: str, b: str, opcode: str) -> None:
    text = SM100.replace("bf16[m, k]", f"{a}[k, m]").replace("bf16[n, k]", f"{b}[k, n]")
    resolved = resolve_text(text).resolved
    plan = plan_code(resolved, resolved.default)
    assert (str(plan.mma[0].opcode), plan.mma[0].step) == (opcode, 4)
    assert resolved.default.numbers.stages == 6  # a row of a k tile has 128 bytes, whatever the dtype


REFUSED = {
    "rows": ("tiling: {tile: [64, 128, 64]}\n", "tensor-memory-tile", "tensor memory has 128 lanes"),
    "columns": ("tiling: {tile: [128, 24, 64], mma_ctas: 1}\n", "tensor-memory-tile", "n = 24 is not a multiple of 16"),
    "columns of a pair": (
        "tiling: {tile: [128, 144, 64], mma_ctas: 2}\n",
        "tensor-memory-tile",
        "n = 144 of a pair is not a multiple of 32",
    ),
    "last tile": ("pipeline: {last_tile: stages}\n", "not-yet-supported", "with sums in tensor memory"),
    "pair of an odd cluster": ("tiling: {cluster: [1, 2], mma_ctas: 2}\n", "cta-pair", "cluster [1, 2]"),
    "A for itself": ("tiling: {cluster: [2, 2]}\ntma: {a: {multicast: 1}}\n", "shared-loads", "2 CTAs along n"),
    "B for itself": ("tiling: {cluster: [4, 1]}\ntma: {b: {multicast: 1}}\n", "shared-loads", "2 CTAs along m"),
    "pair without its cluster": ("tiling: {cluster: [1, 1], mma_ctas: 2}\n", "cta-pair", "cluster [1, 1]"),
    "split": ("tiling: {split_k: 2, split_k_sum: ordered_parallel}\n", "sm100-knobs", "by way of global memory"),
    "split of pairs": ("tiling: {split_k: 2, mma_ctas: 2}\n", "sm100-knobs", "which needs cluster [1, 1]"),
    "split in more parts": ("tiling: {split_k: 12}\n", "sm100-knobs", "split_k = 12 with ordered_parallel"),
    "scheduler": ("scheduler: dynamic_persistent\n", "launch-control", "claim no tiles from a counter"),
    "stages": ("tiling: {tile: [128, 256, 64]}\npipeline: {stages: 9}\n", "smem-capacity", "9 stages"),
    "warpgroups": ("warpgroups: {consumer: {count: 2}}\n", "sm100-spec", "warpgroups"),
    "device": ("device: h200\n", "device-arch", "h200 runs sm_90a, the spec is for sm_100a"),
}


@pytest.mark.parametrize(("more", "rule", "said"), REFUSED.values(), ids=REFUSED)
def test_knobs_that_are_refused(more: str, rule: str, said: str) -> None:
    with pytest.raises(SpecError) as caught:
        resolve_text(SM100 + more)
    assert rule in caught.value.report()
    assert said in caught.value.report()


GATED = SM100.replace("d: bf16[m, n]", "d: bf16[m, n/2]") + "epilogue: {d: 'acc[:, :n/2] * acc[:, n/2:]'}\n"


def test_a_gated_product_has_whole_subtiles() -> None:
    with pytest.raises(SpecError) as caught:
        resolve_text(GATED + "tiling: {tile: [128, 96, 64], mma_ctas: 2}\n")
    assert "tile n = 96 of a gated product of a pair is not a multiple of 64 in 64..256" in caught.value.report()


def test_each_cta_of_a_pair_loads_one_kind_of_gated_columns() -> None:
    """So those are as wide as a tile, in which both kinds are halves: n contiguous has a box of 64 columns."""
    text = GATED.replace("b: bf16[n, k]", "b: bf16[k, n]")
    assert resolve_text(text + "tiling: {tile: [128, 128, 64]}\n").resolved.default.numbers.swizzle == (128, 128)
    assert resolve_text(text + "tiling: {tile: [128, 64, 64]}\n").resolved.default.numbers.swizzle == (128, 64)


def test_tiles_that_the_epilogue_reads_have_a_ring_and_a_warp() -> None:
    text = SM100.replace("  d:", "  c: bf16[m, n]\n  d:") + "epilogue: {d: acc + c}\n"
    tiling = resolve_text(text).resolved.default
    warps = {role.name: role.warps.span for role in tiling.model.roles}
    assert warps == {
        "load warp": "0",
        "MMA warp": "1",
        "tile load warp": "2",
        "idle warp": "3",
        "epilogue warps": "4..7",
    }
    ring = next(pipe for pipe in tiling.model.pipelines if pipe.name == "load")
    assert (ring.stages, ring.stage_bytes) == (tiling.numbers.load_stages, 128 * 32 * 2)
    assert ring.empty == "4 warps arrive"


def test_half_of_b_has_whole_swizzled_rows() -> None:
    text = SM100.replace("b: bf16[n, k]", "b: i8[k, n]").replace("a: bf16[m, k]", "a: i8[m, k]")
    with pytest.raises(SpecError) as caught:
        resolve_text(text + "tiling: {tile: [128, 32, 128], mma_ctas: 2}\n")
    assert "half of tile n = 16 x 1 B = 16 B is not a multiple of the 32-byte swizzled row" in caught.value.report()
    assert "use a tile n that is a multiple of 64" in caught.value.report()


SPECS = {
    "a value for each block": (
        PLAIN + "  s: f32[m/128, n/128]\nepilogue: {d: acc * s}\n",
        "the epilogue operand `s`, with a value for each block,",
    ),
    "rows that threads gather": (gathered(LABELS), "rows that threads copy into the ring are not supported yet"),
    "gathered rows with chunks of scales": (
        PLAIN.replace("a: bf16[m, k]", "a: e4m3[t, k]\n  rows: i32[m]\n  sa: e8m0[t, k/32]").replace(
            "b: bf16[n, k]", "b: e4m3[n, k]\n  sb: e8m0[n, k/32]"
        )
        + "mainloop: (a * sa)[rows] @ (b * sb)\n",
        "help: gather the rows before the call, and pack their scales",
    ),
    "chunks of scales that groups cut": (
        OFFSETS.replace("bf16[m, k]", "e4m3[m, k]\n  sa: e8m0[m, k/32]").replace(
            "b: bf16[g, n, k]", "b: e4m3[g, n, k]\n  sb: e8m0[g, n, k/32]"
        )
        + "mainloop: (a * sa) @ (b * sb)\n",
        "groups that begin anywhere, with scales in chunks of 128 rows,",
    ),
    "a block of a tile": (
        PLAIN.replace("  d:", "  c: bf16[m, n]\n  d:")
        + "  s: f32[m, n/128]\nepilogue: {x: acc + c, s: 'max_abs(x, n, 128)', d: x / s}\n",
        "made of a tile",
    ),
    "a block of i32": (
        PLAIN.replace("bf16[m, k]", "i8[m, k]").replace("bf16[n, k]", "i8[n, k]")
        + "  s: f32[m, n/128]\nepilogue: {s: 'max_abs(acc, n, 128)', d: acc / s}\n",
        "of i32 sums",
    ),
    "a scale": (PLAIN + "  s: f32[m, k/128]@m\nmainloop: (a * s) @ b\n", "f32 scales that vary along k"),
    "a gated product, transposed": (
        PLAIN.replace("d: bf16[m, n]", "d: bf16[m, n/2]")
        + "epilogue: {d: 'acc[:, :n/2] * acc[:, n/2:]'}\ntiling: {swap_ab: true, tile: [128, 64, 64]}\n",
        "transposed, a gated product is not supported yet",
    ),
    "blocks, transposed": (
        PLAIN + "  s: f32[m, n/128]\nepilogue: {s: 'max_abs(acc, n, 128)', d: acc / s}\n"
        "tiling: {swap_ab: true, tile: [128, 64, 64]}\n",
        "transposed, a value of blocks is not supported yet",
    ),
    "stored by threads": (PLAIN + "tma: {d: {store: direct}}\n", "TMA does not store"),
}  # fmt: skip


@pytest.mark.parametrize(("text", "said"), SPECS.values(), ids=SPECS)
def test_specs_that_are_refused(text: str, said: str) -> None:
    with pytest.raises(SpecError) as caught:
        resolve_text(text.replace("sm_90a", "sm_100a"))
    assert said in caught.value.report()


def test_rows_of_a_pair_are_of_one_group() -> None:
    """Labels that are aligned to its 256 rows, and any counts and offsets, allow it; `auto` leaves CTAs alone, as one
    past the end of a group has nothing to do."""
    for text in (LABELS.replace("group}", "group, align: 256}"), COUNTS, OFFSETS):
        text = text.replace("sm_90a", "sm_100a")
        for more, ctas in (("", 1), ("tiling: {cluster: [2, 1]}\n", 2)):
            assert resolve_text(text + more).resolved.default.candidate.mma_ctas == ctas
    with pytest.raises(SpecError) as caught:
        resolve_text((LABELS + "tiling: {cluster: [2, 1]}\n").replace("sm_90a", "sm_100a"))
    assert "group-alignment" in caught.value.report()
    assert "256 rows, but groups begin at multiples of 128" in caught.value.report()


@pytest.mark.parametrize(
    ("text", "tile", "swap_ab", "why"),
    [
        (SM100 + "dims: {m: 20}\n", (128, 32, 128), True, "up to 20 rows of a are the 32 columns"),
        (SM100 + "dims: {m: [1, 16]}\n", (128, 16, 128), True, "up to 16 rows"),
        (SM100 + "dims: {m: 16, n: 4096, k: 4096}\n", (128, 16, 128), True, "4 parts of k"),
        (SM100 + "dims: {m: 65}\n", (128, 256, 64), False, "most FLOPs"),
        (SM100 + "dims: {m: 16}\ntiling: {swap_ab: false}\n", (128, 256, 64), False, "most FLOPs"),
        (COUNTS.replace("rows}", "rows, expected_rows: 12}"), (128, 16, 128), True, "up to 12 rows"),
        (COUNTS, (128, 256, 64), False, "most FLOPs"),
        (LABELS.replace("group}", "group, align: 48}"), (128, 48, 64), True, "as wide as the alignment"),
    ],
    ids=["few", "few at most", "few tiles", "more", "as written", "groups of few", "groups of many", "close groups"],
)
def test_few_rows_are_columns_of_a_tile(text: str, tile: tuple[int, ...], swap_ab: bool, why: str) -> None:
    resolved = resolve_text(text.replace("sm_90a", "sm_100a")).resolved
    assert (resolved.default.candidate.tile, resolved.default.candidate.swap_ab) == (tile, swap_ab)
    assert why in next(d.reason for d in resolved.decisions if d.key == "tiling.tile")


def test_sm_103a_has_the_kernels_and_the_rules_of_sm_100a() -> None:
    text = PLAIN.replace("sm_90a", "sm_103a")
    files, others = (render_package(resolve_text(t).resolved).files for t in (text, text.replace("103", "100")))
    for name in ("kernel.py", "plan.py"):
        own = files[name].replace("sm_103a", "sm_100a").splitlines()[3:]  # without the hashes
        assert own == others[name].splitlines()[3:]
    for more, rule in (
        ("tiling: {tile: [64, 128, 64]}\n", "tensor-memory-tile"),
        ("tiling: {split_k: 12}\n", "sm100-knobs"),
    ):
        with pytest.raises(SpecError) as caught:
            resolve_text(text + more)
        assert rule in caught.value.report()
    with pytest.raises(SpecError) as caught:
        resolve_text(text.replace("bf16[m, k]", "i8[m, k]").replace("bf16[n, k]", "i8[n, k]"))
    assert "sm_103a multiplies no i8" in caught.value.report()


SPLIT = "tiling: {tile: [128, 64, 64], split_k: 3}\n"


def test_parts_of_k_are_the_ctas_of_a_cluster() -> None:
    resolved = resolve_text(SM100 + SPLIT).resolved
    c, numbers = resolved.default.candidate, resolved.default.numbers
    assert (c.split_k_sum, c.cluster, c.mma_ctas, numbers.split_k) == ("ordered_cluster", (1, 1), 1, 3)
    given = next(region for region in resolved.default.model.smem if region.name == "sum_given")
    assert given.bytes == 128 * 32 * 4 * 2  # of one of two subtiles at most, from the two other parts
    assert plan_code(resolved, resolved.default).cluster_stores == 64 // 4
    shape = explain(resolved, {"m": 128, "n": 128, "k": 1000})
    assert ("tiles", "2 of 128 x 64, each in 3 parts of k") in [row for section in shape for row in section.rows]


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ("  rows: f32[m]\nepilogue: {d: acc, rows: 'max_abs(acc, n)'}\n", "ordered_parallel"),
        ("scheduler: clc\n", "ordered_parallel"),
    ],
    ids=["reduction", "launch control"],
)
def test_what_does_not_split_in_a_cluster_is_refused(more: str, said: str) -> None:
    with pytest.raises(SpecError) as caught:
        resolve_text(SM100 + more + SPLIT)
    assert "sm100-knobs" in caught.value.report()
    assert said in caught.value.report()


def test_every_rule_of_sm_100a_has_a_case() -> None:
    of = [inspect.getclosurevars(predicate).nonlocals for predicate in BOOK.form + BOOK.fit]
    elsewhere = {"packed-scales"}  # test_packed_scales.py
    assert {x["rule"].id for x in of if x["only"] == "sm_100a"} - elsewhere <= {rule for _, rule, _ in REFUSED.values()}


def test_pairs_are_of_sm_100a_alone() -> None:
    with pytest.raises(SpecError, match="wgmma on sm_90a is one CTA's"):
        resolve_text(PLAIN + "tiling: {mma_ctas: 2}\n")


def test_other_devices_are_refused_before_a_launch(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch")

    class Facts:
        name, major, minor, multi_processor_count = "NVIDIA H100 80GB HBM3", 9, 0, 132

    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda index: Facts)
    plan: Any = load_subject(ROOT / "generated" / "gemm_bf16_sm100a").plan
    with pytest.raises(ValueError, match="is sm_90; the kernel is built for sm_100a"):
        plan.sm_count(0)
    Facts.major = 10
    assert plan.sm_count(0) == 132


def test_what_nobody_measured_is_not_ranked() -> None:
    with pytest.raises(CutegenError, match="not measured"):
        refuse_unrated(["sm_90a", "", "sm_100a"])
    refuse_unrated(["sm_90a", ""])
    resolution = resolve_file(ROOT / "specs" / "gemm_bf16_2cta_sm100a.yaml")
    with pytest.raises(CutegenError, match="rates of b200 were not measured"):
        next(GemmSpace(resolution.spec, resolution.resolved).propose({"m": 1000, "n": 512, "k": 104}))
    assert tunable_keys(resolution) == ()
    sections = explain(resolution.resolved, {"m": 1000, "n": 512, "k": 104})
    shape = next(s for s in sections if s.title == "m=1000, n=512, k=104")
    assert dict(shape.rows) == {
        "tiles": "16 of 128 x 256",
        "k steps": "2",
        "waves": "0.11 of 148 SMs",
        "memory": "1.3 MiB; L2 has 126 MiB; at 8000 GB/s 0.2 us at least",
    }
    assert "nobody measured the rates of b200" in shape.lines[0]


@pytest.mark.parametrize(("name", "sums"), [("gemm_bf16_2cta_sm100a", 32), ("gemm_bf16_swiglu_sm100a", 64)])
def test_explain_counts_the_sums_of_an_epilogue_thread(name: str, sums: int) -> None:
    """Of a gated product a thread has both columns of its pairs."""
    sections = {s.title: s for s in explain(resolve_file(ROOT / "specs" / f"{name}.yaml").resolved, None)}
    assert f"an epilogue thread has {sums} sums at once" in sections["Tensor memory"].lines[1]


def test_explain_claims_no_measurement_and_no_setmaxnreg() -> None:
    sections = {s.title: s for s in explain(resolve_file(ROOT / "specs" / "gemm_bf16_sm100a.yaml").resolved, None)}
    assert sections["Decisions"].lines == ()
    assert not [row for row in sections["Decisions"].rows if "%" in row[-1]]
    assert {row[2] for row in sections["Roles of the 256 threads"].rows} == {"as launched"}
