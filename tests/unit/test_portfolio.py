"""Portfolios: what `auto` chooses, what a spec says of them, what a lock keeps."""

from __future__ import annotations

import json
import math
import os
import re
import subprocess
import sys
import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from gemm_specs import COUNTS, FUSED, PLAIN, resolve_text

from cutegen.arch import ARCHS, DEVICES
from cutegen.diagnostics import SpecError
from cutegen.families.gemm.cost_model import Shape
from cutegen.families.gemm.portfolio import MOST, NEAR, _Judge, grid_of, take_turns
from cutegen.resolve import read_lock, resolve_document, resolve_file
from cutegen.runtime.gemm.cost_model import MODEL
from cutegen.spec import load_text

resolve_open = partial(resolve_text, portfolio=True)

ROOT = Path(__file__).parents[2]
LAYER = "dims: {n: 4096, k: 4096}\n"  # few problems, so that choosing is quick
INVARIANT = PLAIN + LAYER + "invariance: batch\n"


def tilings(resolution: Any) -> list[Any]:
    return [t.candidate for t in resolution.resolved.tilings if t.name in resolution.resolved.picks]


def resolve_with(text: str, lock: Any) -> Any:
    return resolve_document(load_text(text, "product", "product.yaml"), lock)


@pytest.fixture(scope="module")
def of_layer() -> Any:
    return resolve_open(PLAIN + LAYER)


def test_open_dims_get_several_tilings_and_a_reason(of_layer: Any) -> None:
    held = of_layer.lock.portfolio
    assert held.model == MODEL
    assert 2 <= len(held.tilings) + 1 <= MOST
    assert held.reason.startswith("cost model, 64 problems (m 1 to 8192, n 4096, k 4096) on h200 and h100: the best ")
    assert "slower than the model's pick for each problem" in held.reason
    assert len(of_layer.resolved.picks) == len(held.tilings) + 1


def test_extents_that_leave_nothing_to_choose_have_none() -> None:
    resolution = resolve_open(PLAIN + "dims: {m: 64, n: 4096, k: 4096}\n")
    assert resolution.lock.portfolio is None
    assert len(resolution.resolved.tilings) == 1
    assert "portfolio" not in resolution.lock.to_text()


def test_a_number_bounds_them() -> None:
    few = resolve_open(PLAIN + LAYER + "portfolio: 3\n")
    assert len(tilings(few)) == 3
    assert len(tilings(resolve_open(PLAIN + LAYER + "portfolio: 1\n"))) == 1


def test_a_number_may_be_more_than_the_default() -> None:
    held: Any = resolve_open(PLAIN + "dims: {m: [128, 512], n: 2176, k: 8704}\nportfolio: 32\n").lock.portfolio
    assert MOST < len(held.tilings) + 1 <= 32
    assert float(re.search(r"best of these is ([\d.]+)% slower", held.reason)[1]) < 0.5  # type: ignore[index]


def test_rows_halfway_between_those_of_the_grid_count() -> None:
    """Of cores that are near at either end; the loss is against the best of them."""
    problem: Any = resolve_open(PLAIN + LAYER + "portfolio: 1\n").resolved.problem
    judge, devices = (
        _Judge(problem, {}, ARCHS["sm_90a"], lambda c: None, coarse=False),
        (DEVICES["h200"], DEVICES["h100"]),
    )
    rows = (40, 48, 256, 288, 289)
    grid = [judge.rank(Shape(m, 4096, 4096), devices[i % 2]) for i, m in enumerate(rows)]
    # None of fewer than 64 rows, of rows far apart, nor where there are none between.
    (column,) = judge.rank_halfway(grid)
    assert (column.shape, column.device.name) == (Shape(272, 4096, 4096), "h100")
    whole = judge.rank(column.shape, column.device)
    near = {core for c in grid[2:4] for core, loss in c.losses.items() if loss < NEAR}
    assert set(column.losses) <= near
    assert len(column.losses) < len(whole.losses)
    assert min(column.losses.values()) == 0
    assert 0 <= math.log(column.best / whole.best) < 0.02
    for core, loss in column.losses.items():
        assert loss + math.log(column.best) == pytest.approx(whole.losses[core] + math.log(whole.best))


@pytest.mark.parametrize("number", [0, 33, "many"])
def test_a_number_that_is_none(number: Any) -> None:
    with pytest.raises(SpecError, match="portfolio"):
        resolve_open(f"{PLAIN}portfolio: {number}\n")


def test_written_knobs_hold_in_each() -> None:
    written = "warpgroups: {schedule: cooperative}\ntiling: {swap_ab: false, cluster: [2, 1]}\n"
    found = tilings(resolve_open(PLAIN + LAYER + written))
    assert len(found) > 1
    assert {(c.schedule, c.swap_ab, c.cluster) for c in found} == {("cooperative", False, (2, 1))}
    # Few rows, of which the second CTA of such a cluster has none, leave the others something to choose.
    assert max(c.tile[0] for c in found) > min(c.tile[0] for c in found)
    tile = tilings(resolve_open(PLAIN + LAYER + "tiling: {tile: [128, 128, 64]}\n"))
    assert {c.tile for c in tile} == {(128, 128, 64)}


def test_a_list_is_taken_as_it_is_and_completed() -> None:
    text = PLAIN + "portfolio:\n  - {tile: [64, 64, 64]}\n  - {tile: [128, 128, 64], schedule: pingpong}\n"
    resolution = resolve_open(text)
    assert [c.tile for c in tilings(resolution)] == [(128, 256, 64), (64, 64, 64), (128, 128, 64)]
    assert resolution.lock.portfolio.reason == "listed in the spec"  # type: ignore[union-attr]
    assert resolution.lock.portfolio.tilings == ()  # type: ignore[union-attr]
    again = resolve_with(text, resolution.lock)
    assert again.resolved.digest == resolution.resolved.digest


def test_an_illegal_entry_is_a_finding_at_its_place() -> None:
    with pytest.raises(SpecError, match=r"10:12: error\[tile-m\]: tile m = 100 (.|\n)*help: use 64"):
        resolve_open(PLAIN + "portfolio:\n  - {tile: [64, 64, 64]}\n  - {tile: [100, 128, 64]}\n")
    with pytest.raises(SpecError, match=r"error\[batch-invariance\]: tile k = 128, but the default's is 64"):
        resolve_open(PLAIN + "invariance: batch\nportfolio:\n  - {tile: [64, 64, 128]}\n")


def test_tilings_of_an_invariant_product_have_equal_bits() -> None:
    found = tilings(resolve_open(INVARIANT))
    assert len(found) > 1
    assert {(c.tile[2], c.split_k, c.promote_every) for c in found} == {(found[0].tile[2], 1, found[0].promote_every)}
    sums = INVARIANT.replace("  d:", "  r: f32[m]\n  d:") + "epilogue: {d: acc, r: 'sum(acc, n)'}\n"
    summed = tilings(resolve_open(sums))
    assert len({(c.tile[0] if c.swap_ab else c.tile[1], c.swap_ab) for c in summed}) == 1


def test_the_grid_keeps_to_what_the_spec_promises() -> None:
    def grid(tail: str) -> Any:
        resolution: Any = resolve_open(PLAIN + tail + "portfolio: 1\n")
        return grid_of(resolution.resolved.problem, ())

    bounded = grid("dims: {m: [17, 300], n: [1000, 2000], k: 512}\n")
    assert {s.k for s in bounded} == {512}
    assert (min(s.m for s in bounded), max(s.m for s in bounded)) == (17, 300)
    assert (min(s.n for s in bounded), max(s.n for s in bounded)) == (1000, 2000)
    assert all(s.n % 8 == 0 for s in bounded)
    listed: Any = resolve_open(PLAIN + "portfolio: 1\n").resolved
    shapes = grid_of(listed.problem, ({"n": 1536, "k": 7168, "m": 3}, {"n": 512, "k": 7168, "m": 4}))
    assert [tuple(s) for s in shapes] == [(3, 1536, 7168, 1), (4, 512, 7168, 1)]
    assert len(grid("")) <= 170


@pytest.mark.parametrize("text", [PLAIN, PLAIN + "dims: {n: [512, 16384], k: [512, 16384]}\n", COUNTS])
def test_problems_take_turns_in_both_directions(text: str) -> None:
    """With two devices, or thinned, each pair of n and k is looked at by every turn, and so is each number of rows."""
    problem: Any = resolve_open(text + "portfolio: 1\n").resolved.problem
    turns: dict[Any, set[int]] = {}
    for turn, shape in take_turns(shapes := grid_of(problem, ())):
        turns.setdefault((shape.n, shape.k, shape.batch), set()).add(turn % 2)
        turns.setdefault(shape.m, set()).add(turn % 2)
    assert len(shapes) > 60
    assert all(seen == {0, 1} for seen in turns.values())


def test_what_is_left_of_a_portfolio_says_so(of_layer: Any) -> None:
    """The figures of its reason are those of all that were chosen."""
    fewer = resolve_with(PLAIN + LAYER + "portfolio: 3\n", of_layer.lock)
    assert fewer.lock.portfolio.reason == f"some of these were dropped later: {of_layer.lock.portfolio.reason}"
    again = resolve_with(PLAIN + LAYER + "portfolio: 2\n", fewer.lock)
    assert again.lock.portfolio.reason == fewer.lock.portfolio.reason
    (note,) = again.notes
    assert note == "portfolio: the spec allows 2 tilings; the last 1 of the lock are dropped"


def test_a_lock_keeps_its_portfolio_to_the_byte(of_layer: Any, tmp_path: Path) -> None:
    (path := tmp_path / "product.lock.yaml").write_text(of_layer.lock.to_text())
    lock = read_lock(path)
    assert lock == of_layer.lock
    again = resolve_with(PLAIN + LAYER, lock)
    assert again.notes == ()
    assert again.lock.to_text() == of_layer.lock.to_text()
    assert again.resolved.digest == of_layer.resolved.digest
    held = replace(lock.portfolio, reason="chosen by hand", tilings=lock.portfolio.tilings[:2])  # type: ignore[union-attr, type-var]
    kept = resolve_with(PLAIN + LAYER, replace(lock, portfolio=held))  # type: ignore[type-var]
    assert len(tilings(kept)) == 3
    assert "chosen by hand" in kept.lock.to_text()


def test_a_lock_of_an_unknown_version_of_the_model_is_told(of_layer: Any) -> None:
    lock = replace(of_layer.lock, portfolio=replace(of_layer.lock.portfolio, model=99))
    again = resolve_with(PLAIN + LAYER, lock)
    (note,) = again.notes
    assert note.startswith("portfolio: version 99 of the cost model is not known here")
    assert again.lock.portfolio.model == MODEL
    assert again.resolved.picks == of_layer.resolved.picks


def test_an_illegal_tiling_of_a_lock_is_told_and_dropped(of_layer: Any) -> None:
    held = of_layer.lock.portfolio
    bad = {**held.tilings[0], "tiling.tile": [100, 128, 64]}
    lock = replace(of_layer.lock, portfolio=replace(held, tilings=(bad, *held.tilings[1:])))
    again = resolve_with(PLAIN + LAYER, lock)
    assert len(again.notes) == 1
    assert again.notes[0].startswith("portfolio: tiling 1 is dropped: ")
    assert len(again.resolved.picks) == len(of_layer.resolved.picks) - 1


def test_a_smaller_bound_drops_the_last_of_a_lock_and_says_so(of_layer: Any) -> None:
    again = resolve_with(PLAIN + LAYER + "portfolio: 2\n", of_layer.lock)
    assert len(tilings(again)) == 2
    assert any("the spec allows 2 tilings" in note for note in again.notes)


# An argument: the functions that it calls are counted.
DECIDE = """
import cProfile, json, sys, time
from cutegen.resolve import resolve_document
from cutegen.spec import load_text
document = load_text(sys.stdin.read(), "product", "product.yaml")
profile, start = cProfile.Profile(), time.process_time()
found = profile.runcall(resolve_document, document, None) if sys.argv[1:] else resolve_document(document, None)
seconds, calls = time.process_time() - start, sum(entry.callcount for entry in profile.getstats())
print(json.dumps([seconds, calls, found.resolved.digest, found.lock.to_text()]))
"""


@pytest.mark.parametrize("text", [PLAIN, FUSED + LAYER, COUNTS + "dims: {g: 32, n: 4096, k: 7168}\n"])
def test_choosing_is_quick_and_the_same_whatever_the_order_of_sets(text: str) -> None:
    """What takes more than some seconds is judged by the functions that it calls, see effort.py."""

    def decide(seed: str, *counted: str) -> list[Any]:
        done = subprocess.run(
            [sys.executable, "-c", DECIDE, *counted], input=text, env={**os.environ, "PYTHONHASHSEED": seed}, cwd=ROOT,
            capture_output=True, text=True, check=True,
        )  # fmt: skip
        found: list[Any] = json.loads(done.stdout)
        return found

    seconds, _, *chosen = decide("0")
    _, calls, *again = decide("1", *["counted"][: seconds > 3])
    assert again == chosen
    assert calls <= 20_000_000
    assert bool(calls) == (seconds > 3)


def test_shipped_specs_build_at_most_175_kernels() -> None:
    start, built, picks = time.monotonic(), 0, 0
    for path in sorted((ROOT / "specs").glob("*.yaml")):
        if not path.name.endswith(".lock.yaml"):
            resolved: Any = resolve_file(path).resolved
            built += len(resolved.sample)
            picks += len(getattr(resolved, "picks", ()))
            modules = {t.module for t in resolved.built}
            assert {t.module for t in resolved.sample} == modules
    assert picks > built > 0
    assert built <= 175
    assert time.monotonic() - start < 120
