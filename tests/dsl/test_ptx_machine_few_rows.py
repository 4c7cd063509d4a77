"""MLA decode with keys on M, executed on the PTX machine: dense, with several tokens, sparse over quantised rows, and
breaks."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("numpy")
pytest.importorskip("torch")

from gemm_specs import resolve_text
from mla_machine import PROMISED, dims, loaded_in, unchanged
from mla_specs import EDGES

from cutegen.machine import Simulation, assert_passes, load, load_resolution, run
from cutegen.machine.host import missing_tool
from cutegen.run.guard import bits
from cutegen.runtime.mla_decode.inputs import Draw

pytestmark = [
    pytest.mark.dsl,
    pytest.mark.thorough,
    pytest.mark.skipif(importlib.util.find_spec("cutlass") is None, reason="nvidia-cutlass-dsl is not installed"),
    pytest.mark.skipif(missing_tool() is not None, reason=str(missing_tool())),
]
GENERATED = Path(__file__).parents[2] / "generated"
DENSE, SPARSE = "mla_decode_bf16_few_sm90a", "mla_sparse_v32_few_sm90a"
GUESSED: dict[str, Any] = {"before": unchanged}  # parts are, by lengths
ONE, SINGLE = "keys_on_m", "keys_on_m_unit_1_split_columns"


def sparse_dims(batch: int, query_len: int, heads: int, topk: int) -> dict[str, int]:
    return {"batch": batch, "query_len": query_len, "heads": heads, "topk": topk}


@pytest.mark.parametrize(
    ("tiling", "shape", "draw", "sm_count"),
    [
        (ONE, dims(9, 1, 3, 257), Draw("edges", peaked=True), 4),
        (ONE, dims(1, 1, 16, 900), Draw(), 4),  # one request in four parts
        (ONE, dims(3, 1, 16, 200), Draw("random", pitch=True), 2),
        (SINGLE, dims(3, 1, 9, 330), Draw("random", peaked=True), 4),
        (SINGLE, dims(1, 1, 16, 190), Draw(), 20),  # two CTAs share the columns of a part
    ],
)
def test_dense_keys(tiling: str, shape: dict[str, int], draw: Draw, sm_count: int) -> None:
    simulation = Simulation(sm_count, 1, **PROMISED)
    assert_passes(loaded_in(simulation, DENSE), shape, tiling=tiling, draw=draw)
    assert simulation.unknown() == []


def test_several_tokens_and_pieces() -> None:
    """32 rows with a mask and a sink; a request in pieces has the bits that it has alone."""
    simulation = Simulation(3, 1, before=lambda q_nope, q_pe, cache, table, lengths, *others: {4: lengths})
    subject = load_resolution(resolve_text(EDGES["few"], name="few"), simulation)
    assert_passes(subject, dims(3, 4, 8, 300), draw=Draw("edges", peaked=True))
    plan = subject.plan
    assert plan
    *inputs, scale = plan.draw_inputs(Draw(peaked=True), **dims(2, 3, 5, 410))
    q_nope, q_pe, cache, table, lengths, sink = inputs
    alone = (q_nope[1:].clone(), q_pe[1:].clone(), cache, table[1:].clone(), lengths[1:].clone(), sink, scale)
    both, one = plan.kernel_fn(*inputs, scale), plan.kernel_fn(*alone)
    for together, single in zip(both, one):
        assert bool((bits(together[1:]) == bits(single)).all())


@pytest.mark.parametrize(
    ("tiling", "shape", "draw", "sm_count"),
    [
        (ONE, sparse_dims(3, 2, 3, 257), Draw("edges", peaked=True), 4),
        (ONE, sparse_dims(2, 1, 16, 400), Draw("random", keys="holes", pitch=True), 2),
        (ONE, sparse_dims(2, 1, 4, 70), Draw(keys="none"), 2),
        (SINGLE, sparse_dims(1, 2, 16, 330), Draw(keys="repeated"), 11),
    ],
)
def test_two_warpgroups_decode(tiling: str, shape: dict[str, int], draw: Draw, sm_count: int) -> None:
    simulation = Simulation(sm_count, 1, **GUESSED)
    assert_passes(loaded_in(simulation, SPARSE), shape, tiling=tiling, draw=draw)
    assert simulation.unknown() == []


# Of warpgroup 0: named barriers 1, P of its block, 3, of both, and 4, its own.
BREAKS = [
    ("no proxy fence", r"fence\.proxy\.async\.shared::cta;", "", "without fence.proxy.async"),
    ("no barrier of a warpgroup", r"bar\.sync\s+4, 128;", "", "race|without fence"),
    ("no barrier before P is read", r"bar\.sync\s+1, 256;", "", "race|without fence|deadlock|exits"),
    ("no barrier between the warpgroups", r"bar\.sync\s+3, 256;", "", "race|without fence"),
    ("no wait for products", r"wgmma\.wait_group\.sync\.aligned\s+0;", "", "in flight|race|wrong"),
    ("a peek instead of a wait", r"bra\.uni\s+LAB_WAIT;", "", "race|wrong|arrivals, but only"),
]


def details(package: str, shape: dict[str, int], mutate: object, **options: Any) -> Iterator[str]:
    """What each order of events reports."""
    simulation = Simulation(sm_count=2, mutate=mutate, **options)  # type: ignore[arg-type]
    subject = load(GENERATED / package, simulation)
    for simulation.seed in range(5):
        yield "\n".join(run(subject, shape, tiling=ONE, draw=Draw("random"), seed=1).detail)


@pytest.mark.parametrize("package", [DENSE, SPARSE])
@pytest.mark.parametrize(("name", "pattern", "by", "said"), BREAKS, ids=[b[0] for b in BREAKS])
def test_breaks_are_reported(package: str, name: str, pattern: str, by: str, said: str) -> None:
    def mutate(ptx: str) -> str:
        changed, count = re.subn(pattern, by, ptx)
        assert count, f"nothing in the PTX matches {pattern}"
        return changed

    shape, options = (dims(3, 1, 16, 450), PROMISED) if package == DENSE else (sparse_dims(2, 1, 8, 330), GUESSED)
    told = next(filter(None, details(package, shape, mutate, **options)), "")
    assert re.search(said, told), told[:600]
