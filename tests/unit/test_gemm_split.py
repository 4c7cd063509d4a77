"""`auto` on splits of k: where it splits, and how the parts become one sum."""

from __future__ import annotations

import pytest
from gemm_specs import H200, PLAIN, bind_text, candidate, resolve_text, values

from cutegen.families.gemm.cost_model import Shape, describe_work, estimate


def decided(text: str) -> dict[str, object]:
    return dict(values(resolve_text(text)))


@pytest.mark.parametrize(
    ("m", "n", "k", "split"),
    [(64, 1280, 8192, True), (128, 256, 7168, True), (64, 1280, 256, False), (4096, 4096, 4096, False)],
)
def test_k_is_split_where_few_tiles_have_much_of_it(m: int, n: int, k: int, split: bool) -> None:
    found = resolve_text(PLAIN + f"dims: {{m: {m}, n: {n}, k: {k}}}\n")
    decided = values(found)
    assert (decided["tiling.split_k"] > 1) is split  # type: ignore[operator]
    assert decided.get("tiling.split_k_sum") == ("ordered_cluster" if split else None)
    if split:
        c = found.resolved.default.candidate
        e = estimate(c, describe_work(found.resolved.problem, Shape(m, n, k), H200), H200)
        assert e.waves == 1
        assert e.tiles > H200.sms // 2
        reason = next(d.reason for d in found.resolved.decisions if d.key == "tiling.tile")
        assert f" x {c.split_k} parts in 1 wave" in reason


def test_a_written_split_is_kept_and_a_shape_that_is_open_has_none() -> None:
    assert decided(PLAIN)["tiling.split_k"] == 1
    written = decided(PLAIN + "dims: {m: 4096, n: 4096, k: 4096}\ntiling: {split_k: 3}\n")
    assert (written["tiling.split_k"], written["tiling.split_k_sum"]) == (3, "ordered_cluster")
    unsplit = decided(PLAIN + "dims: {m: 64, n: 1280, k: 8192}\ntiling: {split_k: 1}\n")
    assert unsplit["tiling.split_k"] == 1


IN_ONE_CLUSTER = "tiling: {tile: [128, 128, 64], cluster: [1, 1], split_k: 4}\nwarpgroups: {schedule: cooperative}\n"


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ("", "", ""),
        ("[1, 1]", "[2, 1]", "the CTAs of a cluster of 2 have tiles of their own"),
        ("cooperative", "pingpong", "warpgroups in pingpong have a tile each"),
        ("tiling", "scheduler: dynamic_persistent\ntiling", "take tiles in a fixed order"),
        ("tiling", "pipeline: {stages: 6}\ntiling", "leave no shared memory for sums of other parts"),
        ("split_k: 4", "split_k: 9", "of clusters of more than 8 CTAs too few are there at once"),
        ("tiling", "epilogue: {d: 'acc / max_abs(acc, n, 128)'}\ntiling", "with a reduction in the epilogue"),
    ],
)
def test_parts_meet_in_a_cluster_where_they_can(old: str, new: str, why: str) -> None:
    found = resolve_text(PLAIN + IN_ONE_CLUSTER.replace(old, new, 1))
    decision = next(d for d in found.resolved.decisions if d.key == "tiling.split_k_sum")
    assert decision.value == ("ordered_parallel" if why else "ordered_cluster")
    assert why in decision.reason


def test_the_model_knows_what_each_way_to_sum_costs() -> None:
    problem, shape = bind_text(PLAIN), Shape(64, 1280, 8192)

    def clocks(parts: int, how: str) -> int:
        c = candidate(problem, tile=(64, 128, 64), cluster=(1, 1), consumers=1, split_k=parts, split_k_sum=how)
        return estimate(c, describe_work(problem, shape, H200), H200).clocks

    assert clocks(1, "none") > 2 * clocks(8, "ordered_parallel")
    assert clocks(8, "unordered_atomic") < clocks(8, "ordered_parallel") < clocks(8, "ordered_turnstile")
    assert clocks(4, "ordered_cluster") < clocks(4, "unordered_atomic")
