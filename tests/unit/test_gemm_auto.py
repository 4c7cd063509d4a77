"""`auto`: ordered lists under constraints, the cost model where shapes are known, and the lock's view of both."""

from __future__ import annotations

from typing import Any

import pytest
from gemm_specs import (
    BLOCKS,
    COUNTS,
    FAST,
    FP8,
    FUSED,
    H200,
    LABELS,
    PLAIN,
    SM90,
    TWICE,
    bind_text,
    candidate,
    gathered,
    group_fused,
    group_scaled,
    resolve_text,
    values,
)

from cutegen.diagnostics import SpecError
from cutegen.families.gemm.auto import REGISTERS, Choice, candidates, choose
from cutegen.families.gemm.candidate import Candidate
from cutegen.families.gemm.cost_model import Shape, describe_work, estimate, traffic
from cutegen.families.gemm.form_rules import CONSUMERS
from cutegen.families.gemm.lowering.sm90.cores import CLUSTERS, CORES
from cutegen.families.gemm.rules import refusals
from cutegen.runtime.gemm.cost_model import CONSTANTS


def decided(text: str) -> dict[str, object]:
    return dict(values(resolve_text(text)))


def test_the_default_is_the_first_of_the_list() -> None:
    found = decided(PLAIN)
    schedule, consumers, tile, _ = CORES[0]
    assert (found["warpgroups.schedule"], found["warpgroups.consumer.count"], found["tiling.tile"]) == (
        schedule,
        consumers,
        tile,
    )
    assert found["tiling.cluster"] == next(iter(CLUSTERS))
    assert (found["pipeline.stages"], found["pipeline.epilogue_stages"]) == (4, 4)
    assert "pipeline.load_stages" not in found


def test_every_listed_candidate_is_legal_for_the_plain_problem() -> None:
    problem = bind_text(PLAIN)
    for choice in candidates(problem, {}, SM90, H200, ()):
        assert not list(refusals(problem, choice.candidate, SM90)), choice.candidate


def test_every_schedule_and_consumer_count_is_reachable() -> None:
    assert {(s, c) for s, c, _, _ in CORES} == {(s, c) for s, counts in CONSUMERS.items() for c in counts}
    assert set(REGISTERS) == {1, 2, 3}


@pytest.mark.parametrize(
    ("knobs", "expected"),
    [
        ("warpgroups: {schedule: pingpong}", {"tiling.tile": (128, 192, 64), "pipeline.stages": 5}),
        ("warpgroups: {consumer: {count: 1}}", {"tiling.tile": (128, 128, 64)}),
        ("warpgroups: {consumer: {count: 3}}", {"warpgroups.consumer.registers": 160, "tiling.tile": (192, 192, 64)}),
        ("tiling: {tile: [64, 256, 64]}", {"warpgroups.schedule": "pingpong"}),
        ("tiling: {tile: [256, 208, 64]}", {"warpgroups.producer.registers": 24, "warpgroups.consumer.registers": 240}),
        ("tiling: {tile: [128, 128, 32]}", {"tma.a.swizzle": 64, "tma.b.swizzle": 64}),
        ("tiling: {cluster: [2, 2]}", {"tma.a.multicast": 2, "tma.b.multicast": 2}),
        ("tiling: {cluster: [1, 1]}", {"tma.a.multicast": 1, "tma.b.multicast": 1}),
        ("warpgroups: {producer: {registers: 56}}", {"warpgroups.consumer.registers": 224}),
        ("warpgroups: {consumer: {registers: 240}}", {"warpgroups.producer.registers": 24}),
        ("pipeline: {stages: 2}", {"pipeline.epilogue_stages": 4}),
        ("pipeline: {epilogue_stages: 8}", {"pipeline.stages": 3}),
        ("pipeline: {stages: 3}", {"pdl.wait": True, "pdl.trigger": "last_tile"}),
        ("pdl: {trigger: none}", {"pdl.wait": True, "pdl.trigger": "none"}),
        ("pdl: {wait: false}", {"pdl.wait": False, "pdl.trigger": "last_tile"}),
    ],
)
def test_written_knobs_are_constraints(knobs: str, expected: dict[str, object]) -> None:
    found = decided(f"{PLAIN}{knobs}\n")
    assert {key: found[key] for key in expected} == expected


@pytest.mark.parametrize(
    ("knobs", "stages", "loads"),
    [
        ("", 4, 2),
        ("tiling: {tile: [128, 128, 64]}", 5, 4),
        ("tiling: {tile: [128, 128, 64]}\npipeline: {stages: 6}", 6, 2),
        ("pipeline: {stages: 3}", 3, 4),
        ("pipeline: {load_stages: 1}", 4, 1),
    ],
)
def test_loaded_tiles_share_smem_with_the_stages(knobs: str, stages: int, loads: int) -> None:
    found = decided(f"{FUSED}{knobs}\n")
    assert (found["pipeline.stages"], found["pipeline.load_stages"]) == (stages, loads)


def test_known_shapes_let_the_cost_model_decide() -> None:
    narrow = decided(PLAIN + "dims: {m: 64, n: 8192, k: 4096}\n")
    assert narrow["tiling.tile"][0] == 64  # type: ignore[index]
    resolution = resolve_text(PLAIN + "instances: [{n: 8192, k: 4096}]\nm: [64]\n")
    assert values(resolution) == narrow
    assert decided(PLAIN.replace("[m, ", "[rows, ") + "instances: [{n: 8192, k: 4096}]\nm: [64]\n") == narrow
    tile = next(d for d in resolution.resolved.decisions if d.key == "tiling.tile")
    assert "cost model for m=64, n=8192, k=4096" in tile.reason
    several = resolve_text(PLAIN + "instances: [{n: 8192, k: 28672}]\nm: [1, 16, 4096]\n").resolved.decisions
    (reason,) = (d.reason for d in several if d.key == "tiling.tile")
    assert reason.startswith("cost model: the least sum of times relative to the best over 3 problems; at worst ")
    large = decided(PLAIN + "dims: {m: 8192, n: 8192, k: 8192}\n")
    assert large["tiling.tile"] == (128, 192, 64)
    assert large["tiling.cluster"] == (2, 1)
    few = decided(PLAIN + "dims: {m: 16, n: 8192, k: 8192}\n")
    assert few["tiling.swap_ab"] is True
    assert (few["tiling.tile"], few["tiling.split_k"]) == ((64, 16, 128), 1)
    deep = decided(PLAIN + "dims: {m: 16, n: 1024, k: 16384}\n")
    assert deep["tiling.split_k"] > 1  # type: ignore[operator]
    assert deep["tiling.split_k_sum"] == "ordered_cluster"


@pytest.mark.parametrize(
    ("dims", "tile", "swap_ab", "known"),
    [
        ("m: [1, 64]", (64, 32, 64), False, "m=64, n=2048, k=2048, n and k taken as 2048 to 16384"),
        ("m: 16", (64, 16, 128), True, "m=16, n=2048, k=2048, n and k taken as 2048 to 16384"),
        ("n: [8, 32]", (64, 32, 64), False, "m=2048, n=32, k=2048, m and k taken as 2048 to 16384"),
        (
            "m: [1, 64], n: [4096, 8192], k: 14336",
            (64, 32, 64),
            False,
            "m=64, n=2048, k=14336, n taken as 2048 to 16384",
        ),
        ("m: [1, 64], n: 8192, k: 14336", (64, 64, 64), False, "m=64, n=8192, k=14336"),
        # Many rows, or who knows how many: as where nothing is known.
        ("m: [1, 8192]", (128, 256, 64), False, ""),
        ("m: [1, 8192], n: 4096, k: 4096", (128, 256, 64), False, ""),
        ("n: 4096, k: 4096", (128, 256, 64), False, ""),
        ("k: 64", (128, 256, 64), False, ""),
    ],
)
def test_few_rows_or_columns_steer_the_tile_whatever_is_known_of_the_others(
    dims: str, tile: tuple[int, int, int], swap_ab: bool, known: str
) -> None:
    found = {d.key: d for d in resolve_text(f"{PLAIN}dims: {{{dims}}}\n").resolved.decisions}
    assert (found["tiling.tile"].value, found["tiling.swap_ab"].value) == (tile, swap_ab)
    assert known in found["tiling.tile"].reason
    open_dims = "16384" in known
    assert found["tiling.split_k"].value == 1
    assert ("taken as 2048 to 16384" in found["tiling.tile"].reason) == open_dims
    assert found["tiling.split_k"].reason.endswith(("are open", "is open")) == open_dims


@pytest.mark.parametrize(("cluster", "scheduler"), [((2, 2), "dynamic"), ((4, 1), "dynamic"), ((2, 1), "static")])
def test_large_clusters_start_late_and_take_the_tiles_that_are_left(cluster: tuple[int, int], scheduler: str) -> None:
    found = decided(PLAIN + f"tiling: {{cluster: {list(cluster)}}}\n")
    assert found["scheduler"] == f"{scheduler}_persistent"
    for asked in ("scheduler: static_persistent", "pipeline: {last_tile: stages}"):
        found = decided(PLAIN + f"tiling: {{cluster: {list(cluster)}}}\n{asked}\n")
        assert found["scheduler"] == "static_persistent"


@pytest.mark.parametrize(
    "tail", ["bench: {shapes: [{m: 64, n: 8192, k: 64}]}", "check: {shapes: [{m: 1, n: 8, k: 8}]}"]
)
def test_bench_and_check_shapes_steer_nothing(tail: str) -> None:
    plain, evaluated = resolve_text(PLAIN), resolve_text(f"{PLAIN}{tail}\n")
    assert evaluated.resolved.digest == plain.resolved.digest
    assert evaluated.lock == plain.lock


def test_an_open_extent_leaves_the_list_as_it_is() -> None:
    assert decided(PLAIN + "dims: {n: 8192, k: 4096}\n") == decided(PLAIN)


@pytest.mark.parametrize(
    ("text", "tile", "every"),
    [
        (FP8, [256, 128, 128], 4),
        (FP8 + "tiling: {tile: [128, 128, 64]}\n", [128, 128, 64], 2),
        (FP8 + "accumulate: {promote_every: 1}\n", [256, 128, 128], 1),
        (FAST, [128, 256, 128], "never"),
        (FP8.replace("e4m3", "i8").replace("e5m2", "i8"), [128, 256, 128], None),
        (PLAIN, [128, 256, 64], None),
    ],
)
def test_sums_of_fp8_are_promoted_unless_the_spec_says_otherwise(text: str, tile: list[int], every: object) -> None:
    found = values(resolve_text(text))
    assert list(found["tiling.tile"]) == tile  # type: ignore[call-overload]
    assert found.get("accumulate.promote_every") == every


@pytest.mark.parametrize(
    ("text", "rings"),
    [
        (BLOCKS, (3, 8)),  # a fourth stage would leave room for 3 slots
        (BLOCKS + "tiling: {tile: [128, 128, 128]}\n", (5, 4)),
        (BLOCKS + "tiling: {tile: [64, 32, 128]}\n", (16, 2)),
        (BLOCKS + "pipeline: {stages: 4}\n", (4, 3)),
        (BLOCKS + "pipeline: {epilogue_stages: 2}\n", (4, 2)),
        (FP8, (4, 4)),
        (FAST, (4, 4)),
    ],
)
def test_stores_of_promoted_sums_come_before_a_fourth_stage(text: str, rings: tuple[int, int]) -> None:
    found = decided(text)
    assert (found["pipeline.stages"], found["pipeline.epilogue_stages"]) == rings


def test_the_model_knows_that_a_cooperative_tile_waits_for_the_counter_of_a_reduction() -> None:
    rows = PLAIN.replace("  d:", "  r: f32[m]\n  d:") + "epilogue: {d: acc, r: 'max(acc, n)'}\n"
    shape, plain, reducing = Shape(4096, 4096, 4096), bind_text(PLAIN), bind_text(rows)
    c = candidate(plain, schedule="cooperative", tile=(128, 256, 64), cluster=(2, 1))
    beside = candidate(plain, schedule="pingpong", tile=(128, 192, 64), cluster=(2, 1))

    def added(c: Candidate) -> int:
        without, having = (estimate(c, describe_work(p, shape, H200), H200).clocks for p in (plain, reducing))
        return having - without

    assert added(c) >= 4 * CONSTANTS.reduction_clocks  # in each of 4 waves
    assert CONSTANTS.reduction_clocks <= added(beside) < 2 * CONSTANTS.reduction_clocks  # after the last


def test_eight_bits_double_the_rate_and_halve_the_bytes() -> None:
    half, eight = bind_text(PLAIN), bind_text(FAST)
    shape = Shape(4096, 4096, 4096)
    times = []
    for problem in (half, eight):
        c = candidate(problem, tile=(128, 256, 128 // problem.a.dtype.bytes), cluster=(2, 1))
        times.append(estimate(c, describe_work(problem, shape, H200), H200))
    assert [t.bound for t in times] == ["tensor core"] * 2
    assert 1.7 < times[0].clocks / times[1].clocks < 2
    assert traffic(half, shape)[0] == traffic(eight, shape)[0]


def test_nothing_legal_blames_what_is_written() -> None:
    with pytest.raises(SpecError) as caught:
        resolve_text(PLAIN + "tiling: {tile: [256, 256, 64]}\n")
    (finding,) = caught.value.diagnostics
    assert finding.rule == "accumulator-registers"
    assert finding.location is not None
    assert finding.location.line == 8


@pytest.mark.parametrize("cluster", ["[200, 1]", "[7000, 7000]"])
def test_the_cost_model_ranks_what_rules_refuse(cluster: str) -> None:
    text = f"{PLAIN}dims: {{m: 64, n: 64, k: 64}}\ntiling: {{cluster: {cluster}}}\n"
    with pytest.raises(SpecError) as caught:
        resolve_text(text)
    assert [d.rule for d in caught.value.diagnostics] == ["cluster"]


def test_the_nearest_candidate_speaks() -> None:
    result = choose(bind_text(PLAIN), {"tile": (64, 256, 64), "schedule": "cooperative", "stages": 9}, SM90, H200, ())
    assert not isinstance(result, Choice)
    assert [r.rule for r in result] == ["smem-capacity"]


def test_traffic_counts_each_tensor_once() -> None:
    shape = Shape(128, 256, 512)
    flops, moved = traffic(bind_text(PLAIN), shape)
    assert flops == 2 * 128 * 256 * 512
    assert moved == 2 * (128 * 512 + 256 * 512 + 128 * 256)
    _, fused = traffic(bind_text(FUSED), shape)
    assert fused == moved + 2 * 128 * 256 + 4 * (128 + 256)


def test_batch_counts_where_a_tensor_has_it() -> None:
    text = PLAIN.replace("a: bf16[m, k]", "a: bf16[l, m, k]").replace("d: bf16[m, n]", "d: bf16[l, m, n]")
    _, moved = traffic(bind_text(text), Shape(8, 16, 32, 5))
    assert moved == 2 * (5 * 8 * 32 + 16 * 32 + 5 * 8 * 16)


@pytest.mark.parametrize(
    ("knobs", "shape", "tiles", "waves"),
    [
        ({}, Shape(4096, 4096, 64), 512, 4),
        ({"cluster": (1, 1)}, Shape(129, 257, 64), 4, 1),
        ({"cluster": (4, 1)}, Shape(129, 257, 64), 8, 1),
        ({"cluster": (1, 1)}, Shape(128 * 133, 256, 64), 133, 2),
    ],
)
def test_tiles_and_waves(knobs: dict[str, Any], shape: Shape, tiles: int, waves: int) -> None:
    problem = bind_text(PLAIN)
    work = describe_work(problem, shape, H200)
    e = estimate(candidate(problem, **knobs), work, H200)
    assert (e.tiles, e.waves) == (tiles, waves)
    assert e.clocks >= work.memory


def test_a_reason_claims_the_register_file_only_where_it_is_used_up() -> None:
    for consumers, used_up in ((1, False), (2, True), (3, True)):
        resolved = resolve_text(PLAIN + f"warpgroups: {{consumer: {{count: {consumers}}}}}\n").resolved
        (reason,) = {d.reason for d in resolved.decisions if d.key.endswith(".registers")}
        assert ("use up the register file" in reason) == used_up, reason


def test_a_reason_claims_full_smem_only_where_it_is_full() -> None:
    for text, full in ((PLAIN, True), (PLAIN + "tiling: {tile: [64, 16, 64]}\n", False)):
        (stages,) = (d for d in resolve_text(text).resolved.decisions if d.key == "pipeline.stages")
        assert ("SMEM" in stages.reason) == full, stages


def test_auto_keeps_to_the_alignment_of_labelled_groups() -> None:
    for align, tile in ((256, (128, 256, 64)), (128, (128, 256, 64)), (64, (64, 256, 64))):
        chosen = values(resolve_text(LABELS.replace("group}", f"group, align: {align}}}")))
        assert chosen["tiling.tile"] == tile
        assert chosen["tiling.cluster"] == (1, 2)  # along the rows CTAs past a group's end would idle
    # No tile m divides these: rows become columns.
    for align, n in ((32, 32), (8, 8), (40, 40), (48, 48), (16, 16)):
        for text in (LABELS, gathered(LABELS), group_scaled(LABELS), group_fused(LABELS)):
            chosen = values(resolve_text(text.replace("group}", f"group, align: {align}}}")))
            assert chosen["tiling.swap_ab"]
            assert chosen["tiling.tile"][1] == n
            assert chosen["tiling.cluster"][1] == 1
    with pytest.raises(SpecError, match=r"9:32: error\[group-alignment\](.|\n)*align groups to a multiple of 8 rows"):
        resolve_text(LABELS.replace("group}", "group, align: 12}"))


def test_blocks_that_no_other_tile_holds_are_rows() -> None:
    text = PLAIN.replace("d: bf16[m, n]", "s: f32[m, n/256]\n  d: bf16[m, n/2]")
    text += "epilogue: {x: 'silu(acc[:, :n/2]) * acc[:, n/2:]', s: 'max_abs(x, n, 128)', d: x / s}\n"
    eight_bits = text.replace("a: bf16", "a: e4m3").replace("b: bf16", "b: e4m3")
    twice = text.replace("  s:", "  h: bf16[m, n]\n  s:").replace("{x:", "{h: acc, x:")
    found = [decided(spec) for spec in (text, eight_bits, twice)]
    assert [d["tiling.swap_ab"] for d in found] == [False, True, True]
    tiles: list[Any] = [d["tiling.tile"] for d in found]
    assert (tiles[0][1], tiles[1][0], tiles[2][0]) == (256, 256, 256)
    free = TWICE.replace("tiling:", "#")
    assert decided(free)["tiling.tile"] == (128, 256, 64)
    assert decided(free.replace("64)", "128)").replace("n/64", "n/128"))["tiling.tile"] == (128, 128, 64)


def test_tile_k_holds_whole_blocks_of_scales() -> None:
    for depth, tile_k in ((32, 128), (96, 192), (128, 128), (256, 256)):
        text = BLOCKS.replace("k/128", f"k/{depth}")
        assert values(resolve_text(text))["tiling.tile"][2] == tile_k  # type: ignore[index]


def test_expected_rows_of_a_group_steer_the_tile() -> None:
    known = "dims: {g: 32, n: 4096, k: 7168}\n" + COUNTS
    few = values(resolve_text(known.replace("rows}", "rows, expected_rows: 20}")))
    many = values(resolve_text(known.replace("rows}", "rows, expected_rows: 4096}")))
    assert few["tiling.swap_ab"] is True
    assert few["tiling.tile"][1] == 24  # type: ignore[index]
    assert min(many["tiling.tile"][:2]) >= 128  # type: ignore[index]
    unknown = values(resolve_text(COUNTS.replace("rows}", "rows, expected_rows: 20}")))
    assert unknown == values(resolve_text(COUNTS))


def test_traffic_and_waves_of_groups() -> None:
    shape = Shape(4096, 2048, 1024, 8)  # m: the rows of all groups
    problem = bind_text(LABELS)
    flops, moved = traffic(problem, shape)
    assert flops == 2 * 4096 * 2048 * 1024
    assert moved == 2 * (4096 * 1024 + 8 * 2048 * 1024 + 4096 * 2048)
    chosen = candidate(problem, tile=(128, 256, 64), cluster=(1, 1))
    found = estimate(chosen, describe_work(problem, shape, H200), H200)
    assert found.tiles == 8 * (512 // 128) * (2048 // 256)
    each = bind_text(COUNTS)
    assert traffic(each, shape._replace(m=512)) == (flops, moved)
