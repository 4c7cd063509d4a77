"""The cost model of GEMMs: what each term does, and the order that it makes. Its score: test_cost_model_score.py."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from gemm_specs import BLOCKS, COUNTS, FP8, FUSED, H200, PLAIN, SM90, bind_text, candidate, resolve_text

from cutegen.arch import DEVICES
from cutegen.cli import main
from cutegen.families.gemm.auto import candidates
from cutegen.families.gemm.candidate import Core
from cutegen.families.gemm.cores import rank
from cutegen.families.gemm.cost_model import Estimate, Shape, describe_work, estimate, traffic
from cutegen.families.gemm.ranking import legal_candidates
from cutegen.families.gemm.rules import refusals
from cutegen.runtime.gemm.cost_model import CONSTANTS, PARTIAL_BYTES

ROOT = Path(__file__).parents[2]
P = bind_text(PLAIN)


def model(shape: Shape, text: str = PLAIN, **knobs: Any) -> Estimate:
    problem = bind_text(text)
    return estimate(candidate(problem, **knobs), describe_work(problem, shape, H200), H200)


def seconds(e: Estimate) -> float:
    return e.clocks / H200.clock_hz


def test_nothing_is_faster_than_memory() -> None:
    for shape in (Shape(1, 8192, 8192), Shape(16, 4096, 14336), Shape(4096, 4096, 64)):
        work = describe_work(P, shape, H200)
        for choice in candidates(P, {}, SM90, H200, [shape]):
            assert estimate(choice.candidate, work, H200).clocks >= CONSTANTS.early_start_clocks + work.memory


def test_the_tensor_core_rests_while_a_lone_warpgroup_promotes() -> None:
    shape, tile = Shape(4096, 7168, 2048), (128, 128, 128)

    def clocks(text: str = FP8, **knobs: Any) -> int:
        return model(shape, text, **{"tile": tile, "promote_every": 4, **knobs}).busy

    fast = clocks(promote_every="never")
    assert clocks() == fast  # one adds while the other's MMAs run
    assert clocks(schedule="pingpong") > 1.1 * clocks(schedule="pingpong", promote_every="never")
    assert clocks(consumers=1, promote_every=2) > clocks(consumers=1) > clocks(consumers=1, promote_every="never")
    transposed = {"tile": (256, 64, 128), "swap_ab": True, "schedule": "pingpong"}
    assert clocks(BLOCKS, **transposed) > clocks(**transposed)  # a factor for each column, where rows have scales


def test_waves_that_are_not_full_cost_as_full_ones() -> None:
    full, over = (model(Shape(128 * 132 * w // 12, 256 * 12, 8192)) for w in (2, 2))
    one_more = model(Shape(128 * 23, 256 * 12, 8192))
    assert (full.tiles, full.waves, full.last) == (over.tiles, 2, 132)
    assert (one_more.tiles, one_more.waves, one_more.last) == (288, 3, 24)
    assert one_more.clocks > 1.4 * full.clocks


M_MAJOR = PLAIN.replace("bf16[m, k]", "bf16[k, m]")
ALONE: dict[str, Any] = {"consumers": 1, "cluster": (1, 1)}
NARROW: dict[str, Any] = {"tile": (64, 8, 64), "stages": 16, "swap_ab": True}  # 64 rows of n, 8 of m


def test_rows_outside_of_a_tensor_are_slow_to_load() -> None:
    """One row of m in a tile of 64: docs/lab/2026-11-cost-model.md has 1.3 to 1.9 times the time of the transposed
    kernel, where A is not along k, so that its tiles are loaded whole."""
    shape, square = Shape(1, 8192, 8192), {"tile": (64, 64, 64), "stages": 12, **ALONE}
    straight, transposed = model(shape, M_MAJOR, **square), model(shape, M_MAJOR, **NARROW, **ALONE)
    assert (straight.tiles, transposed.tiles) == (128, 128)
    assert straight.bound == "TMA"
    assert straight.clocks > 1.3 * transposed.clocks
    whole = model(Shape(64, 8192, 8192), M_MAJOR, **square)
    assert whole.clocks < straight.clocks  # 64 rows take less than one
    assert (whole.bound, transposed.bound) == ("device memory", "device memory")


def test_pieces_without_a_row_of_the_tensor_are_not_loaded() -> None:
    """In 64 rows of 128 bytes two pieces of 32, the last of which may come as a half."""
    square = {"tile": (64, 64, 64), "stages": 12, **ALONE}
    sixteen, seventeen, whole = (model(Shape(m, 8192, 8192), **square) for m in (16, 17, 64))
    assert (sixteen.bound, seventeen.bound) == ("device memory", "device memory")
    assert sixteen.busy < whole.busy < seventeen.busy  # the 15 rows of zeros take longer than 47 rows more
    transposed = model(Shape(17, 8192, 8192), tile=(64, 64, 64), stages=12, swap_ab=True, **ALONE)
    assert transposed.busy == seventeen.busy
    narrow = model(Shape(1, 8192, 8192), **NARROW, **ALONE)  # 8 rows are too few for pieces
    assert model(Shape(1, 8192, 8192), **square).clocks < 1.04 * narrow.clocks


def test_what_a_launch_takes_depends_on_the_kernel_before() -> None:
    """With PDL it overlaps with the start, and more where an operand comes meanwhile, by its share of a stage."""
    shape, tile = Shape(64, 8192, 8192), {"tile": (64, 192, 64), "stages": 6, **ALONE}
    apart, early, first, second = (
        model(shape, **tile, **knobs).spent["launch"]
        for knobs in ({"pdl_wait": False}, {}, {"load_ahead_a": True}, {"load_ahead_b": True})
    )
    assert (apart, early) == (CONSTANTS.start_clocks, CONSTANTS.early_start_clocks)
    assert (early - first, early - second) == (CONSTANTS.load_ahead_clocks // 4, CONSTANTS.load_ahead_clocks * 3 // 4)
    turned = {"tile": (192, 64, 64), "stages": 6, "swap_ab": True, **ALONE}
    assert model(shape, load_ahead_b=True, **turned).spent["launch"] == second


def test_clusters_of_more_than_two_do_not_reach_all_sms() -> None:
    shape = Shape(8192, 8192, 8192)
    slots = [model(shape, cluster=cluster).slots for cluster in ((1, 1), (2, 1), (2, 2))]
    assert slots == [132, 132, 120]  # 30 clusters of four were counted: docs/split-k.md


def test_a_ring_of_few_stages_does_not_hide_how_long_a_stage_takes() -> None:
    shape, tile = Shape(64, 8192, 8192), (64, 64, 64)
    few, some, many = (model(shape, tile=tile, stages=stages, **ALONE) for stages in (2, 4, 12))
    assert few.bound == "ring"
    assert few.clocks > 1.4 * some.clocks > 1.4 * many.clocks
    assert model(shape, tile=tile, stages=16, **ALONE).clocks == many.clocks  # enough is enough


def test_two_readers_without_multicast_pass_operands_between_the_halves_of_l2() -> None:
    """m = 16 in tiles of 8: two CTAs read each row of n, unless they are one cluster; in tiles of 16 one does."""
    shape = Shape(16, 8192, 8192)
    alone, shared = (model(shape, consumers=1, cluster=cl, **NARROW) for cl in ((1, 1), (1, 2)))
    assert (alone.bound, shared.bound) == ("halves of L2", "device memory")
    assert alone.clocks > 1.15 * shared.clocks
    other = model(shape, consumers=1, cluster=(2, 1), **NARROW)  # shares the 16 rows of m, which are next to nothing
    assert other.clocks >= alone.clocks
    one = {**NARROW, "tile": (64, 16, 64)}
    assert model(shape, **one, **ALONE).clocks < model(shape, consumers=1, cluster=(2, 1), **one).clocks


def test_tensor_core_and_memory_disturb_each_other() -> None:
    """Of the lesser, a part adds to the greater."""
    found = model(Shape(16, 8192, 8192), **{**NARROW, "tile": (64, 16, 64)}, **ALONE)
    assert found.bound == "device memory"
    on_sms = found.clocks - found.spent["device memory"] - found.spent["launch"]
    assert on_sms == pytest.approx(CONSTANTS.overlap_percent / 100 * found.busy, abs=2)
    assert found.spent["launch"] == CONSTANTS.early_start_clocks
    assert 0 < CONSTANTS.overlap_percent < 50


def test_tile_k_of_256_bytes_saves_barriers() -> None:
    shape, knobs = Shape(16, 8192, 8192), {**ALONE, "swap_ab": True}
    short, deep = (model(shape, tile=(64, 16, k), stages=stages, **knobs) for k, stages in ((64, 16), (128, 11)))
    assert 0.98 * short.clocks < deep.clocks < short.clocks


def test_few_rows_are_bound_by_memory_and_prefer_small_tiles() -> None:
    shape = Shape(16, 8192, 8192)
    wide, narrow = model(shape, stages=4), model(shape, **{**NARROW, "tile": (64, 16, 64)}, **ALONE)
    assert narrow.bound == "device memory"
    assert narrow.clocks < wide.clocks / 2


def test_too_few_tiles_leave_memory_idle() -> None:
    shape = Shape(64, 2048, 8192)
    few, many = (model(shape, tile=(64, n, 64), stages=stages, **ALONE) for n, stages in ((256, 5), (16, 16)))
    assert (few.tiles, many.tiles) == (8, 128)
    assert few.clocks > 2.5 * many.clocks


def test_pingpong_hides_epilogues_even_of_short_contractions() -> None:
    shape = Shape(8192, 8192, 64)
    knobs: dict[str, Any] = {"tile": (128, 128, 64), "cluster": (1, 1)}
    together, apart = model(shape, FUSED, **knobs), model(shape, FUSED, schedule="pingpong", **knobs)
    assert apart.busy < 0.6 * together.busy


def test_clusters_save_traffic_where_there_are_many_waves_and_nothing_where_nobody_shares() -> None:
    large, small = Shape(8192, 8192, 8192), Shape(1, 8192, 4096)
    assert model(large, cluster=(2, 1)).clocks < model(large, cluster=(1, 1)).clocks
    assert model(small, **NARROW, **ALONE).clocks < model(small, consumers=1, cluster=(1, 2), **NARROW).clocks


def test_idle_sms_lend_their_power_in_a_single_wave_only() -> None:
    """On a device whose power, and not the data sheet, limits the tensor core."""
    device = replace(H200, rates=H200.rates._replace(sustained_flops_16bit=700 * 10**12))
    spent = []
    for m, n in ((512, 7168), (128 * 12, 256 * 11), (512 + 128 * 32, 7168)):
        e = estimate(candidate(P, stages=4), describe_work(P, Shape(m, n, 4096), device), device)
        spent.append((e.tiles, e.waves, e.spent["tensor core"]))
    few, full, many = spent
    assert (few[:2], full[:2], many[:2]) == ((112, 1), (132, 1), (1008, 8))
    assert few[2] == pytest.approx((1 - 20 / 132 * CONSTANTS.lent_percent / 100) * full[2], rel=0.01)
    assert many[2] == 8 * full[2]


def test_no_tensor_core_is_faster_than_the_data_sheet_has_it() -> None:
    """A sustained rate, which carries what the formula leaves out, may exceed it; power lent by idle SMs as well."""
    few = model(Shape(512, 7168, 4096), stages=4)
    least = 2 * 128 * 256 * 4096 * H200.clock_hz * H200.sms / H200.flops_16bit
    assert few.spent["tensor core"] >= 0.999 * least


def test_many_readers_of_the_same_rows_cost_l2_less_than_each_alone() -> None:
    """Short rows: every tile of m reads the weights. On a device of little L2, time grows with readers, but less than
    by each."""
    device = replace(H200, rates=H200.rates._replace(l2_bytes_per_clock=500, halves_bytes_per_clock=10**6))
    times = []
    for rows in (2, 8, 32):
        shape, tile = Shape(64 * rows, 8192, 8192), {"tile": (64, 256, 64), "stages": 5, **ALONE}
        times.append(estimate(candidate(P, **tile), describe_work(P, shape, device), device).spent["L2"])
    assert times[0] < times[1] < times[2]
    assert times[1] < 4 * times[0] > 0
    assert times[2] < 4 * times[1]


def test_flat_tiles_in_pingpong_and_lone_warpgroups_are_slower() -> None:
    shape = Shape(4096, 4096, 4096)
    flat = {"tile": (64, 128, 64), "cluster": (1, 1), "stages": 8}
    in_turns, alone = model(shape, schedule="pingpong", consumers=2, **flat), model(shape, consumers=1, **flat)
    ends = [e.waves for e in (in_turns, alone)]
    assert ends[0] == ends[1]
    on_sms = [max(e.spent.values()) for e in (in_turns, alone)]
    assert on_sms[0] == pytest.approx((1 + CONSTANTS.flat_percent / 100) * on_sms[1], rel=0.001)
    tall = {"tile": (128, 128, 64), "cluster": (1, 1), "stages": 6}
    one, two = (model(shape, consumers=count, **tall).spent["tensor core"] for count in (1, 2))
    assert one == pytest.approx((1 + CONSTANTS.lone_percent / 100) * two, rel=0.001)


def test_narrow_subtiles_of_an_epilogue_take_longer() -> None:
    """Columns of 16, then of 8, where tile n is not a multiple of 32; per column of the tile."""
    shape, knobs = Shape(4096, 4096, 512), {"consumers": 2, "cluster": (1, 1), "stages": 4}
    wide, narrow, narrowest = (model(shape, tile=(128, n, 64), **knobs) for n in (192, 208, 200))
    ends = [e.spent["epilogue"] / e.waves for e in (wide, narrow, narrowest)]
    assert ends[1] > (1 + CONSTANTS.narrow_percent / 100) * ends[0]
    assert ends[2] > ends[1]  # of fewer columns


def test_zero_rows_of_edge_tiles_take_time_where_there_is_one_wave() -> None:
    """n = 4097 and 4096 + 256: in both 17 tiles along n, of which the last has one column or all of its 256."""
    edge, whole = (model(Shape(128, n, 8192), cluster=(1, 1), stages=4) for n in (4104, 4096 + 256))
    assert edge.tiles == whole.tiles == 17
    assert edge.busy > whole.busy


def test_split_k_fills_the_device_and_does_not_pay_where_it_is_full() -> None:
    knobs: dict[str, Any] = {"tile": (64, 128, 64), "consumers": 1, "cluster": (1, 1)}
    deep, wide = Shape(64, 2048, 16384), Shape(2048, 8192, 1024)
    assert model(deep, split_k=8, **knobs).clocks < model(deep, split_k=1, **knobs).clocks / 2
    assert model(wide, split_k=4, **knobs).clocks > 1.2 * model(wide, split_k=1, **knobs).clocks
    assert model(deep, split_k=8, **knobs).tiles == 128


def test_partial_sums_are_waited_for_whatever_bounds_the_rest() -> None:
    shape, knobs = Shape(16, 4096, 16384), {**NARROW, "tile": (64, 16, 64), **ALONE}
    two, three = (model(shape, split_k=parts, split_k_sum="ordered_turnstile", **knobs) for parts in (2, 3))
    assert two.bound == "device memory"
    assert two.spent["partial sums"] >= CONSTANTS.split_clocks
    assert three.spent["partial sums"] == 2 * 2 * two.spent["partial sums"]  # two hand-overs, in two waves
    assert sum(three.spent.values()) == three.clocks
    small, large = (
        model(shape, split_k=2, split_k_sum="ordered_parallel", **{**knobs, "tile": (64, n, 64)}) for n in (16, 32)
    )
    partial = 64 * 16 * PARTIAL_BYTES
    more = large.spent["partial sums"] - small.spent["partial sums"]
    assert more == pytest.approx(2 * partial / CONSTANTS.partial_bytes_per_clock, abs=1)  # one written, one read


def test_operands_beyond_l2_are_read_again_by_each_wave() -> None:
    """B of 1 GB streams past bands of 8 tiles of A; without bands it would have to come once for each row of tiles."""
    shape = Shape(128 * 132, 8192, 65536)
    banded, single = (model(shape, raster_group=g, cluster=(1, 1)) for g in (8, 1))
    assert single.clocks >= banded.clocks
    slow = replace(H200, rates=H200.rates._replace(hbm_bytes_per_s=10**12))
    work = describe_work(P, shape, slow)
    one, many = (estimate(candidate(P, raster_group=g, cluster=(1, 1)), work, slow) for g in (1, 11))
    assert one.bound == "device memory"
    assert one.clocks > 1.3 * many.clocks


@pytest.mark.parametrize("device", [d for d in DEVICES.values() if d.rates], ids=lambda d: d.name)
def test_the_sustained_rate_is_near_that_of_the_data_sheet(device: Any) -> None:
    assert 0.6 * device.flops_16bit < device.rates.sustained_flops_16bit < 1.2 * device.flops_16bit


def test_equals_have_an_order_whatever_order_they_come_in() -> None:
    """In square tiles: clusters along m before such along n, not transposed, pingpong; of groups always the same."""
    shape, device = Shape(512, 4096, 4096), H200
    cores = [
        Core(schedule, 2, (128, 128, 64), cluster, swap_ab, 1)
        for schedule in ("cooperative", "pingpong") for cluster in ((1, 2), (2, 1)) for swap_ab in (True, False)
    ]  # fmt: skip
    of_groups = []
    for given in (cores, cores[::-1]):
        ranked = list(rank(P, dict.fromkeys(given, 6), device, [shape]))
        assert [(c.swap_ab, c.cluster, c.schedule) for c in ranked[:3]] == [
            (False, (2, 1), "pingpong"), (False, (2, 1), "cooperative"), (True, (1, 2), "pingpong"),
        ]  # fmt: skip
        of_groups.append(list(rank(bind_text(COUNTS), dict.fromkeys(given, 6), device, [Shape(512, 4096, 4096, 4)])))
    assert of_groups[0] == of_groups[1]


def test_explain_ranks_the_legal_ones_under_what_the_spec_writes(capsys: pytest.CaptureFixture[str]) -> None:
    spec = str(ROOT / "specs" / "gemm_bf16_pingpong_sm90a.yaml")
    assert main(["explain", spec, "--shape", "m=16,n=4096,k=4096", "--json"]) == 0
    (ranking,) = (s for s in json.loads(capsys.readouterr().out) if s["title"].startswith("Cost model for m=16"))
    rows = ranking["table"]
    assert ranking["lines"] == ["under what the spec writes: warpgroups.schedule"]
    assert [r["rank"].partition(",")[0] for r in rows[:5]] == ["1", "2", "3", "4", "5"]
    assert sum("this kernel" in r["rank"] for r in rows) == 1
    assert {r["schedule"] for r in rows} == {"pingpong"}
    times = [float(r["us"]) for r in rows]
    assert times == sorted(times)
    assert "device memory" in {r["bound by"] for r in rows}
    assert all(r["bound by"] in r["of which"] for r in rows)
    assert rows[0]["of which"].startswith("launch 0.9")


def test_explain_orders_by_the_times_that_it_shows(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Beside loaded tiles fewer stages fit than the order of `auto` guesses."""
    text = PLAIN.replace("  d:", "  r: bf16[m, n]\n  squares: f32[m]\n  d:")
    text += 'epilogue: {d: acc + r, squares: "sum(square(d), n)"}\ntiling: {tile: [128, 256, 64]}\n'
    (spec := tmp_path / "added.yaml").write_text(text)
    assert main(["explain", str(spec), "--shape", "m=4096,n=8192,k=28672", "--json"]) == 0
    (ranking,) = (s for s in json.loads(capsys.readouterr().out) if s["title"].startswith("Cost model for m=4096"))
    times = [float(r["us"]) for r in ranking["table"]]
    assert times == sorted(times)
    assert len(times) > 3


def test_the_kernel_is_marked_where_it_is_among_the_first(capsys: pytest.CaptureFixture[str]) -> None:
    spec = str(ROOT / "specs" / "gemm_bf16_pingpong_sm90a.yaml")
    assert main(["explain", spec, "--shape", "m=8192,n=8192,k=8192"]) == 0
    assert "  1, this kernel  128 x 192 x 64  2 x 1" in capsys.readouterr().out


def test_ranking_lists_each_core_once() -> None:
    resolved: Any = resolve_text(PLAIN).resolved
    cores = [c.core for c in legal_candidates(resolved, Shape(512, 4096, 4096))]
    assert len(cores) == len(set(cores)) > 100
    assert not any(next(refusals(P, c, SM90), None) for c in legal_candidates(resolved, Shape(512, 4096, 4096)))


def test_cores_are_ranked_with_the_promotion_they_will_have() -> None:
    shape, problem = Shape(4096, 7168, 2048), bind_text(FP8)
    shared = Core("cooperative", 2, (256, 128, 128), (1, 2), swap_ab=False, split_k=1)
    alone = Core("pingpong", 2, (128, 128, 128), (2, 1), swap_ab=False, split_k=1)
    stages = {shared: 4, alone: 6}
    assert next(iter(rank(problem, stages, H200, [shape]))) == shared
    assert next(iter(rank(problem, stages, H200, [shape], promote_every="never"))) == alone


def test_scales_are_bytes_that_move() -> None:
    """One f32 for each row of a and 128 of k, and one for each 128 x 128 of b."""
    m, n, k = 300, 512, 1024
    _, moved = traffic(bind_text(BLOCKS), Shape(m, n, k))
    assert moved == m * k + n * k + 2 * m * n + 4 * (m * k // 128 + (n // 128) * (k // 128))
