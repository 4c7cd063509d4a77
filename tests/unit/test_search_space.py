"""What a tuner tries: good by the model, of many kinds, and with the knobs varied that the model cannot judge."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import islice
from typing import Any

import pytest
from gemm_specs import EDGES, FUSED, H200, PLAIN, SM90, bind_text, resolve_text

from cutegen.families.gemm.cores import FINE_N
from cutegen.families.gemm.cost_model import Shape, describe_work, estimate
from cutegen.families.gemm.features.split_k.choice import MIN_PART
from cutegen.families.gemm.search_space import Found, explore
from cutegen.families.gemm.tiling_numbers import derive
from cutegen.resolve import tuning_space
from cutegen.run.suite import load_suite, shipped_suites

COUNT = 60
# Every seventh row of the sweep: each m and each model is among them.
SWEEP = [Shape(*(row.shape[d] for d in "mnk")) for row in load_suite("llm_gemm_sweep", shipped_suites()).rows()][::7]


def first(shape: Shape, text: str = PLAIN, unordered: bool = False, **written: Any) -> list[Found]:
    return list(islice(explore(bind_text(text), written, SM90, H200, shape, unordered), COUNT))


@pytest.mark.parametrize("shape", SWEEP, ids=str)
def test_the_first_candidates_are_good_and_of_many_kinds(shape: Shape) -> None:
    found, work = first(shape), describe_work(bind_text(PLAIN), shape, H200)
    estimates = [estimate(f.candidate, work, H200) for f in found]
    assert len({f.candidate for f in found}) == COUNT
    assert not any(f.refusals for f in found)
    assert estimates[0].clocks <= 1.03 * min(e.clocks for e in estimates)  # a variation may be a little ahead
    kinds = Counter(f.kind for f in found)
    assert len(kinds) >= 8
    assert max(kinds.values()) <= COUNT // 4
    assert {f.candidate.schedule for f in found} == {"cooperative", "pingpong"}
    assert {f.candidate.swap_ab for f in found} == {False, True}
    if -(-shape.m // 128) * -(-shape.n // 256) < H200.sms // 2 and shape.k >= 2 * MIN_PART * 64:
        assert any(f.candidate.split_k > 1 for f in found)
    assert all(f.candidate.pdl_wait and f.candidate.pdl_trigger == "last_tile" for f in found)
    assert not any(f.candidate.split_k_sum == "unordered_atomic" for f in found)
    if estimates[0].waves > 1:
        assert {"scheduler", "raster_order"} <= {f.kind[0] for f in found}


def test_a_split_has_other_sums_and_unordered_ones_only_on_request() -> None:
    shape = Shape(64, 2112, 7168)
    assert {f.candidate.split_k_sum for f in first(shape) if f.candidate.split_k > 1} <= {
        "ordered_parallel",
        "ordered_turnstile",
        "ordered_cluster",
    }
    assert any(f.candidate.split_k_sum == "unordered_atomic" for f in first(shape, unordered=True))
    proposals = tuning_space(resolve_text(PLAIN)).propose(dict(zip("mnk", shape)), unordered=True)
    assert any(p.knobs.get("tiling.split_k_sum") == "unordered_atomic" for p in islice(proposals, COUNT))


def test_written_knobs_are_kept_and_not_varied() -> None:
    found = first(Shape(512, 28672, 4096), raster_order="along_n", scheduler="dynamic_persistent", pdl_wait=False)
    assert {f.candidate.raster_order for f in found} == {"along_n"}
    assert {f.candidate.scheduler for f in found} == {"dynamic_persistent"}
    assert {f.candidate.pdl_wait for f in found} == {False}
    assert not any("raster_order" in f.kind for f in found)
    assert any(f.kind == ("raster_group",) for f in found)


def test_a_variation_differs_in_what_it_says_and_what_follows_from_it() -> None:
    found = first(Shape(512, 28672, 4096))
    varied = next(f for f in found if f.kind == ("scheduler",))
    assert varied.candidate.scheduler == "dynamic_persistent"
    assert varied.why.endswith("; varied: scheduler")
    static = [replace(f.candidate, scheduler="dynamic_persistent") for f in found if f.kind != varied.kind]
    assert varied.candidate in static
    whole = next(f.candidate for f in first(Shape(4096, 7168, 2048)) if f.kind == ("store_stages",))
    assert whole.store_stages == derive(bind_text(PLAIN), whole).subtiles > 4
    assert not any(f.kind == ("store_stages",) for f in first(Shape(16, 4096, 4096)))  # one tile a CTA
    for text in (EDGES["odd_columns"], EDGES["odd_everything"]):  # some tiles have more parts than a ring has slots
        found = explore(bind_text(text), {}, SM90, H200, Shape(4096, 7168, 2048), False)
        assert not any(f.refusals for f in found if f.kind == ("store_stages",))
    loads = {f.candidate.load_stages for f in first(Shape(4096, 4096, 4096), FUSED)}
    assert {2, 4} <= loads


def test_a_deeper_tile_k_is_tried_where_tiles_are_small() -> None:
    few, many = (first(shape) for shape in (Shape(16, 8192, 8192), Shape(8192, 8192, 8192)))
    assert {f.candidate.tile[2] for f in few} == {64, 128}
    assert {f.candidate.tile[2] for f in many if f.candidate.tile[1] > FINE_N} == {64}


def test_no_cluster_has_ctas_without_a_tile() -> None:
    for f in first(Shape(16, 4096, 4096)):
        c = f.candidate
        m, n = (4096, 16) if c.swap_ab else (16, 4096)
        assert c.tile[0] * (c.cluster[0] - 1) < m
        assert c.tile[1] * (c.cluster[1] - 1) < n
