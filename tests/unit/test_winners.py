"""Winners of a lock: read, judged again, rendered into a dispatch by device and shape."""

from __future__ import annotations

import importlib
import subprocess
import sys
import timeit
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from bound_winners import H100, H200, TILINGS, WINNERS, bound, winner
from gemm_specs import ALONE, OFFSETS, gathered, resolve_text

from cutegen.diagnostics import CutegenError
from cutegen.families.resolved import dispatch, product_name
from cutegen.render import render_package, write_package
from cutegen.resolve import (
    Lock,
    lock_path,
    pin_decisions,
    read_lock,
    resolve_document,
    resolve_file,
    save_lock,
)
from cutegen.resolve.winners import DEFAULT, Winner
from cutegen.spec import load_text

DEFAULT_KEY = "t128x256x64"


def with_winners(*winners: Winner, tilings: Any = None, text: str = ALONE) -> Any:
    """ALONE resolved with a lock that has these winners, bound to it."""
    own = bound(winners, tilings or TILINGS, text)
    lock = resolve_text(text).lock.with_winners(tilings or TILINGS, own)
    return resolve_document(load_text(text, "product", "product.yaml"), lock)


def test_a_lock_with_winners_reads_back(tmp_path: Path) -> None:
    spec = tmp_path / "product.yaml"
    spec.write_text(ALONE)
    resolution = with_winners(*WINNERS)
    assert resolution.notes == ()
    assert save_lock(replace(resolution, read=None), spec)
    lock = read_lock(lock_path(spec))
    assert lock == resolution.lock
    assert lock
    assert lock.winners == WINNERS
    assert lock.tilings == TILINGS
    again = resolve_file(spec, locked=True)
    assert again.resolved == resolution.resolved
    assert not save_lock(again, spec)


def test_a_lock_without_winners_says_nothing_of_them() -> None:
    text = resolve_text(ALONE).lock.to_text()
    assert "winners" not in text
    assert "tilings" not in text


def test_what_a_winner_contradicts_is_not_pinned() -> None:
    tilings = {name: {**knobs, "scheduler": "static_persistent"} for name, knobs in TILINGS.items()}
    before = with_winners(*WINNERS, tilings=tilings)
    with pytest.raises(CutegenError, match="would not resolve to the same kernel") as caught:
        pin_decisions(before, ["tiling.tile"])
    said = "flat) are in the lock, and no call runs them: tiling.tile: the spec now says [128, 256, 64]"
    assert said in caught.value.message
    assert "(turns) are in the lock" in caught.value.message
    assert "all winners agree with (--key): scheduler; or take `winners` out of product.lock" in caught.value.remedy
    assert pin_decisions(before, ["scheduler"])[1].lock.winners == bound(WINNERS, tilings)


def test_what_a_tuned_device_is_called() -> None:
    rows = with_winners(*WINNERS).resolved.dispatch
    assert product_name(rows, "h200") == H200
    assert product_name(rows, "h20") == ""
    assert dispatch(rows, {"m": 1, "n": 4096, "k": 4096}, product_name(rows, "h200")) == "t64x256x64"


def test_dispatch_by_device_and_shape() -> None:
    rows = with_winners(*WINNERS).resolved.dispatch
    for device, m, n, k, name in (
        (H200, 1, 4096, 4096, "t64x256x64"),
        (H200, 64, 4096, 4096, "t64x256x64"),
        (H200, 65, 4096, 4096, DEFAULT_KEY),
        (H200, 129, 4096, 4096, "t128x128x64_pingpong"),
        (H100, 129, 4096, 4096, "t64x256x64"),
        (H200, 64, 1280, 8192, "t128x128x64_pingpong"),
        (H200, 32, 1280, 8192, DEFAULT_KEY),
        ("another GPU", 1, 4096, 4096, DEFAULT_KEY),
    ):
        assert dispatch(rows, {"m": m, "n": n, "k": k}, device) == name


GATHERING = {"t": 4096, "g": 8, "m": (1, 64), "n": 4096, "k": 4096}
GATHER_TILINGS: dict[str, dict[str, object]] = {
    "turns": {"tiling.tile": [128, 64, 64]},
    "flat": {"tiling.tile": [128, 32, 64]},
}


def gathering(*winners: Winner) -> Any:
    return with_winners(*winners, tilings=GATHER_TILINGS, text=gathered(OFFSETS) + "portfolio: 1\n")


def test_winners_of_gathered_rows_are_for_any_number_to_gather_from() -> None:
    resolution = gathering(replace(winner(1, 64, "turns"), calls=GATHERING))
    assert resolution.notes == ()
    for t in (8, 4096, 4097):
        assert dispatch(resolution.resolved.dispatch, {**GATHERING, "m": 64, "t": t}, H200) == "t128x64x64"
    assert resolution.lock.winners[0].problem["t"] == 4096  # what --confirm measures
    plan = render_package(resolution.resolved).files["plan.py"]
    assert '(8, 4096, 4096): ((64, "t128x64x64"),),' in plan


def test_winners_that_differ_in_rows_to_gather_from_alone_collide() -> None:
    """As locks have them from when those rows had a say; the first stands, and that is told."""
    own = replace(winner(1, 64, "turns"), calls=GATHERING)
    resolution = gathering(own, replace(own, calls={**GATHERING, "t": 512}, tiling="flat"))
    reason = "another winner is for the same calls on this device, whatever t is"
    assert resolution.notes == (f"winners: flat is in the lock, and no call runs it: {reason}",)
    assert [w.unused for w in resolution.lock.winners] == ["", reason]


@pytest.fixture
def plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    package = render_package(replace(with_winners(*WINNERS).resolved, name="with_winners"))
    write_package(package, tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    yield importlib.import_module("with_winners.plan")
    for name in [m for m in sys.modules if m.startswith("with_winners")]:
        del sys.modules[name]


def on(plan: Any, monkeypatch: pytest.MonkeyPatch, *devices: str) -> Any:
    """A plan on a machine with these devices, the first of them current."""
    runtime, dispatched = map(importlib.import_module, ("cutegen.runtime.measured", "cutegen.runtime.gemm.dispatched"))
    for module in (runtime, dispatched):
        monkeypatch.setattr(module, "current_device", lambda: 0 if devices else -1)
    monkeypatch.setattr(runtime, "_device_name", lambda index: devices[index] if index >= 0 else "")
    return plan.Plan()


def test_the_plan_dispatches_as_the_table_says(plan: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = with_winners(*WINNERS).resolved.dispatch
    made = on(plan, monkeypatch, H200, H100, "another GPU")
    for index, device in enumerate((H200, H100, "another GPU")):
        for n, k in ((4096, 4096), (1280, 8192), (4096, 4104)):
            for m in (1, 16, 17, 32, 33, 64, 65, 128, 129, 256, 257, 10**6):
                call = {"m": m, "n": n, "k": k}
                assert made.dispatch(index, **call) == dispatch(rows, call, device)
    assert made.dispatch(m=1, n=4096, k=4096) == "t64x256x64"
    assert on(plan, monkeypatch).dispatch(m=1, n=4096, k=4096) == DEFAULT_KEY


def test_neighbours_with_one_tiling_are_one_row(plan: Any) -> None:
    assert plan.WINNERS[H200][4096, 4096] == (
        (64, "t64x256x64"),
        (128, ""),
        (256, "t128x128x64_pingpong"),
    )


def test_only_what_this_device_can_choose_is_warmed_up(plan: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    assert on(plan, monkeypatch).get_warmup_keys() == tuple(plan.TILINGS)
    assert on(plan, monkeypatch, H100).get_warmup_keys() == (DEFAULT_KEY, "t64x256x64")
    assert on(plan, monkeypatch, "another GPU").get_warmup_keys() == (DEFAULT_KEY,)


def test_dispatch_costs_well_under_a_microsecond(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    many = [
        winner(2**i + 1, 2 ** (i + 1), ("flat", "turns")[i % 2], n=n) for n in range(256, 10000, 256) for i in range(12)
    ]
    package = render_package(replace(with_winners(*many).resolved, name="many_winners"))
    write_package(package, tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    made = on(importlib.import_module("many_winners.plan"), monkeypatch, H200)
    call = {"m": 3000, "n": 9984, "k": 4096}
    assert made.dispatch(0, **call) != DEFAULT_KEY

    def seconds(function: Callable[..., object]) -> float:
        """The best of many short runs: what a call costs when nobody else has the CPU."""
        return min(timeit.repeat(lambda: function(0, **call), number=500, repeat=100)) / 500

    # 0.3 us on a machine of 2026, where a function that does nothing takes 0.1 us. That is the unit: machines differ.
    assert seconds(made.dispatch) < 6 * seconds(lambda device, /, **dims: dims)


def test_rendered_winners_keep_the_formatters_layout(plan: Any) -> None:
    ruff = [sys.executable, "-m", "ruff", "format", "--check", "--line-length", "120", plan.__file__]
    subprocess.run(ruff, check=True, capture_output=True)


def test_winners_change_the_digest_but_not_the_default_kernel() -> None:
    with_them, without = with_winners(*WINNERS).resolved, resolve_text(ALONE).resolved
    assert with_them.digest != without.digest
    assert with_them.default == without.default


def test_calls_that_are_none_of_this_kernel_or_are_answered_twice() -> None:
    odd = replace(winner(1, 16, "flat"), calls={"m": (1, 16), "n": 4096})
    wide = replace(winner(1, 8, "flat"), calls={"m": (1, 8), "n": (1, 4096), "k": 4096})
    resolution = with_winners(winner(10, 20, "flat"), winner(20, 30, "turns"), odd, wide)
    assert resolution.notes == (
        "winners: turns is in the lock, and no call runs it: another winner is for the same calls on this device",
        "winners: flat is in the lock, and no call runs it: its calls give m, n; the dims are m, n, k",
        "winners: flat is in the lock, and no call runs it: its calls give a range of n; a range is of m",
    )
    assert [bool(w.unused) for w in resolution.lock.winners] == [False, True, True, True]


@pytest.mark.parametrize(
    ("first", "second", "idle"),
    [
        (winner(1, 512, DEFAULT), winner(17, 64, "flat"), "flat"),
        (winner(17, 64, "flat"), winner(1, 512, DEFAULT), DEFAULT),
        (winner(17, 64, DEFAULT), winner(17, 64, DEFAULT), DEFAULT),
        (winner(17, 64, DEFAULT), replace(winner(1, 16, DEFAULT), calls={"m": (1, 16), "n": 4096}), DEFAULT),
    ],
)
def test_that_the_default_stands_is_an_answer_like_any_other(first: Winner, second: Winner, idle: str) -> None:
    """Calls have one answer: beside one that says the default is fastest, another is not to be run."""
    resolution = with_winners(first, second)
    (note,) = resolution.notes
    assert note.startswith(f"winners: {idle} is in the lock, and no call runs it: ")
    assert [bool(w.unused) for w in resolution.lock.winners] == [False, True]
    calls = {"m": 64, "n": 4096, "k": 4096}
    name = "t64x256x64" if first.tiling == "flat" else DEFAULT_KEY
    assert dispatch(resolution.resolved.dispatch, calls, H200) == name


def test_an_upgrade_keeps_winners(tmp_path: Path) -> None:
    lock = resolve_text(ALONE).lock.with_winners(TILINGS, WINNERS)
    spec = tmp_path / "product.yaml"
    spec.write_text(ALONE)
    lock_path(spec).write_text(lock.to_text())
    assert resolve_file(spec, upgrade=True).lock.winners == WINNERS


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ('tiling: "turns"', 'tiling: "tuns"', "winner 4 names the tiling `tuns`, which is not among `tilings`"),
        ("us: 8.25", "us: fast", "winner 1 needs `us`, a positive number"),
        ("us: 8.25", "us: -1", "winner 1 needs `us`, a positive number"),
        ("m: [1, 16]", "m: [16, 1]", "winner 1 needs `calls.m` as an extent or as [low, high]"),
        ("m: [1, 16]", "m: 1.5", "winner 1 needs `calls.m` as an extent or as [low, high]"),
        ("gain: [1.1, 1.2, 1.3]", "gain: [1.1]", "winner 1 needs `gain` as [low, median, high]"),
        ('device: "NVIDIA H200"', 'device: ""', "winner 1 needs `device`, a line of text"),
        ('beside: "abc123"', "x: 1", "winner 1 needs `beside`, a line of text"),
        ("tilings:\n", "tilings: 3\nx:\n", "unknown key `x`"),
        ("us: 8.25", "us: 8.25, ms: 3", "winner 1 has an unknown key `ms`"),
    ],
)
def test_a_damaged_winner_is_an_error(tmp_path: Path, old: str, new: str, reason: str) -> None:
    text = with_winners(*WINNERS).lock.to_text()
    assert old in text
    path = tmp_path / "product.lock.yaml"
    path.write_text(text.replace(old, new, 1))
    with pytest.raises(CutegenError) as error:
        read_lock(path)
    assert f"is damaged: {reason}" in str(error.value)


def test_a_device_name_reaches_generated_source_as_a_literal() -> None:
    device = '"]); import os; ("'
    files = render_package(with_winners(winner(1, 16, "flat", device)).resolved).files
    space: dict[str, Any] = {}
    start = files["plan.py"].index("WINNERS")
    exec(files["plan.py"][start : files["plan.py"].index("\n}\n", start) + 3], space)
    assert list(space["WINNERS"]) == [device]


UNIT_1 = "seesaw_unit_1_split_columns"
MLA_TILINGS = {
    "ahead": {"variant": "seesaw", "pipeline.prefetch": 1, "scheduler.overhead": 4},
    "wide": {"variant": "seesaw_2cta", "scheduler.join_ratio": 50},
    "single": {"variant": "seesaw", "scheduler.unit": 1, "scheduler.split_columns": True},
    "two": {"variant": "both"},
    "units": {"variant": "seesaw", "scheduler.unit": "any"},
}


def mla_winner(batch: int, heads: int, low: int, high: int, tiling: str) -> Winner:
    calls = {"batch": batch, "query_len": 1, "heads": heads, "kv_len": (low, high)}
    return replace(winner(1, 16, tiling), calls=calls)


def test_mla_decode_dispatches_by_the_width_of_the_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from mla_specs import MLA

    rows = [
        mla_winner(8, 128, 1025, 4000, "ahead"),
        mla_winner(1, 128, 1, 8192, "wide"),
        mla_winner(1, 64, 1, 9, "single"),
        mla_winner(8, 64, 1, 9, "two"),
        mla_winner(4, 64, 1, 9, "units"),
    ]
    lock: Lock = resolve_text(MLA).lock.with_winners(MLA_TILINGS, bound(rows, MLA_TILINGS, MLA))
    resolution = resolve_document(load_text(MLA, "mla_winners", "mla_winners.yaml"), lock)
    unused = {w.tiling: w.unused for w in resolution.lock.winners if w.unused}
    assert {*unused} == {"two", "units"}
    assert "`variant: both` are several" in unused["two"]
    assert "a winner is one kernel, and `unit: any` are several" in unused["units"]
    resolved = resolution.resolved
    ahead, wide = "seesaw_overhead_4_prefetch_1", "seesaw_2cta_join_ratio_50"
    assert [t.name for t in resolved.tilings] == ["seesaw", UNIT_1, "seesaw_2cta", ahead, wide]
    document = load_text(MLA, "mla_winners", "mla_winners.yaml")
    assert resolve_document(document, resolution.lock.without_unused()).notes == ()
    write_package(render_package(resolved), tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    made = on(importlib.import_module("mla_winners.plan"), monkeypatch, H200, H100)
    call = {"batch": 8, "query_len": 1, "heads": 128}
    for kv_len, chosen in ((1024, "seesaw"), (1025, ahead), (4000, ahead), (4032, ahead), (4033, "seesaw")):
        assert made.dispatch(0, **call, kv_len=kv_len) == chosen
        assert made.dispatch(1, **call, kv_len=kv_len) == "seesaw"
    assert made.dispatch(0, batch=1, query_len=1, heads=128, kv_len=0) == wide
    assert made.choose(0, 16, 1, 128, 64) == "seesaw_2cta"
    assert made.choose(0, 1, 1, 64, 1) == UNIT_1  # a winner that is built already
    assert made.choose(0, 8, 2, 16, 64) == UNIT_1
    assert set(made.get_warmup_keys()) == {"seesaw", UNIT_1, "seesaw_2cta", ahead, wide}


def test_columns_that_one_of_several_kernels_shares_drop_no_winner() -> None:
    from mla_specs import MLA

    rows = (mla_winner(8, 128, 1025, 4000, "ahead"), mla_winner(1, 128, 1, 8192, "wide"))
    text = MLA + "scheduler: {split_columns: true}\n"
    assert with_winners(*rows, tilings=MLA_TILINGS, text=text).notes == ()
    text += "variant: seesaw\n"
    several = with_winners(rows[0], tilings=MLA_TILINGS, text=text)
    assert several.notes == ()
    assert [t.numbers.split_columns for t in several.resolved.tilings] == [False, True, False]
    without = {"ahead": {**MLA_TILINGS["ahead"], "scheduler.split_columns": False}}
    for unit, dropped in (("any", 0), ("2", 1)):  # with unit 2 the only kernel has what is written
        written = text.replace("true", f"true, unit: {unit}")
        notes = with_winners(rows[0], tilings=without, text=written).notes
        assert len([n for n in notes if "split_columns: the spec now says true" in n]) == dropped
