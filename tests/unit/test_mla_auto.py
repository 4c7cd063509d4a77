"""What `auto` decides for an MLA decode, the numbers that follow, and the lock's view of both."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from gemm_specs import SM90, resolve_text, values
from mla_specs import MLA, PAIRED, bind_mla, mla_candidate

from cutegen.diagnostics import SpecError
from cutegen.families.mla_decode.auto import BEST_FIRST, candidates
from cutegen.families.mla_decode.candidate import KNOBS
from cutegen.families.mla_decode.derived import derive
from cutegen.families.mla_decode.rules import refusals
from cutegen.families.resolved import dispatch
from cutegen.resolve import Lock, pin_decisions, resolve_file, tuning_space
from cutegen.runtime.mla_decode.tiling import MlaTiling

ROOT = Path(__file__).parents[2]
UNIT_1 = "seesaw_unit_1_split_columns"
FULL = ("batch", ">=", 16)


def numbers(text: str) -> list[MlaTiling]:
    return [tiling.numbers for tiling in resolve_text(text).resolved.tilings]


def test_the_default_is_the_first_of_the_list() -> None:
    found = values(resolve_text(MLA))
    assert found["variant"] == BEST_FIRST[0][0] == "both"
    assert found["split_kv.max"] == "any"
    assert (found["warpgroups.producer.registers"], found["warpgroups.consumer.registers"]) == (24, 240)
    assert list(found) == ["device", *(knob.key for knob in KNOBS)]


def test_every_candidate_is_legal_where_row_blocks_come_in_pairs() -> None:
    problem = bind_mla(PAIRED)
    found = [choice.candidate for choice in candidates(problem, {}, SM90)]
    assert [c.variant for c in found] == [variant for variant, *_ in BEST_FIRST]
    assert not [r for c in found for r in refusals(problem, c, SM90)]


@pytest.mark.parametrize(
    ("knobs", "expected"),
    [
        ("split_kv: 1", {"split_kv.max": 1}),
        ("split_kv: {max: 32}", {"split_kv.max": 32}),
        ("variant: seesaw_2cta", {"variant": "seesaw_2cta"}),
        ("scheduler: {overhead: 1, join_ratio: 7}", {"scheduler.overhead": 1, "scheduler.join_ratio": 7}),
        ("scheduler: {unit: 1}", {"variant": "both", "scheduler.unit": 1}),
        ("pdl: {wait: false, trigger: none}", {"pdl.wait": False, "pdl.trigger": "none"}),
        ("pipeline: {prefetch: 0}", {"pipeline.prefetch": 0}),
        ("warpgroups: {producer: {registers: 40}}", {"warpgroups.consumer.registers": 232}),
        ("warpgroups: {consumer: {registers: 224}}", {"warpgroups.producer.registers": 24}),
    ],
)
def test_written_knobs_are_constraints(knobs: str, expected: dict[str, object]) -> None:
    found = values(resolve_text(f"{PAIRED}{knobs}\n"))
    assert {key: found[key] for key in expected} == expected


@pytest.mark.parametrize(
    ("knobs", "field", "value"),
    [
        ("variant: seesaw", "max_splits", 0),
        ("variant: seesaw\nsplit_kv: 1", "max_splits", 1),
        ("variant: seesaw\nsplit_kv: {max: 8}", "max_splits", 8),
        ("variant: seesaw", "cluster", 1),
        ("variant: seesaw_2cta", "cluster", 2),
        ("variant: seesaw", "page_size", 64),
        ("variant: seesaw\nkv_cache: {page_size: 16}", "page_size", 16),
        ("variant: seesaw", "threads", 384),
        ("variant: seesaw", "smem_bytes", 224256),
    ],
)
def test_numbers_of_the_instance(knobs: str, field: str, value: int) -> None:
    found, *_ = numbers(f"{PAIRED}{knobs}\n")
    assert getattr(found, field) == value


def test_both_kernels_differ_in_what_they_share() -> None:
    one, few, two = numbers(PAIRED + "pipeline: {prefetch: 1}\n")
    assert (one.cluster, one.prefetch, two.cluster, two.prefetch) == (1, 0, 2, 1)
    assert replace(one, cluster=2, prefetch=1) == two
    assert replace(one, unit=1, split_columns=True) == few


def test_a_kernel_for_each_unit_where_some_calls_have_few_rows() -> None:
    resolved = resolve_text(MLA).resolved
    pairs, single, two = (t.numbers for t in resolved.tilings)
    assert [t.name for t in resolved.tilings] == ["seesaw", UNIT_1, "seesaw_2cta"]
    assert (pairs.unit, two.unit) == (2, 2)
    assert single == replace(pairs, unit=1, split_columns=True)


@pytest.mark.parametrize(
    ("text", "unit"),
    [
        (MLA.replace("[1, 4]", "[2, 4]"), "any"),
        (MLA.replace("[16", "[128").replace("[1, 4]", "[2, 4]"), "any"),
        (MLA.replace("[16", "[128").replace("[1, 4]", "[3, 4]"), 2),
        (MLA + "variant: seesaw\n", "any"),
        (MLA.replace("[16, 128]", "16"), "any"),
        (MLA.replace("[16, 128]", "128") + "variant: seesaw_2cta\n", 2),
        (MLA + "scheduler: {unit: 2}\n", 2),
    ],
)
def test_the_unit_is_open_where_it_can_matter(text: str, unit: object) -> None:
    resolution = resolve_text(text)
    assert values(resolution)["scheduler.unit"] == unit
    assert (UNIT_1 in {row.tiling for row in resolution.resolved.dispatch}) == (unit == "any")


@pytest.mark.parametrize(
    ("rows", "batch", "runs"),
    [
        (1, 1, UNIT_1), (64, 8, UNIT_1), (64, 9, "seesaw"), (65, 4, UNIT_1), (65, 5, "seesaw"), (128, 4, UNIT_1),
        (129, 1, UNIT_1), (129, 2, "seesaw"), (256, 1, UNIT_1), (257, 1, "seesaw"),
        (16, 128, "seesaw"), (64, 128, "seesaw"), (65, 16, "seesaw_2cta"), (128, 15, "seesaw"),
        (128, 16, "seesaw_2cta"), (129, 128, "seesaw"), (192, 128, "seesaw"), (193, 16, "seesaw_2cta"),
        (512, 1, "seesaw"),
    ],
)  # fmt: skip
def test_the_kernel_goes_by_rows_and_batch(rows: int, batch: int, runs: str) -> None:
    assert dispatch(resolve_text(MLA).resolved.dispatch, {"rows": rows, "batch": batch, "query_len": 1}) == runs


@pytest.mark.parametrize(
    ("heads", "query_len", "bounds", "shared"),
    [
        ("16", "1", [64], []),
        ("[32, 48]", "2", [64, 128], [(("rows", ">", 64), FULL)]),
        ("[16, 128]", "1", [64, 128], [(("rows", ">", 64), FULL)]),
        ("128", "1", [128], [(FULL,)]),
        ("[64, 128]", "2", [128, 256], [(("rows", "<=", 128), FULL), (("rows", ">", 192), FULL)]),
        ("128", "[2, 4]", [256], [(FULL,)]),
        ("128", "4", [], [(FULL,)]),
    ],
)
def test_the_dispatch_asks_for_rows_that_are_promised(
    heads: str, query_len: str, bounds: list[int], shared: list[tuple[tuple[str, str, int], ...]]
) -> None:
    """It decides as that of all rows does, and asks no more than calls differ in."""
    text = MLA.replace("[16, 128]", heads).replace("[1, 4]", query_len)
    resolved, every = resolve_text(text).resolved, resolve_text(MLA).resolved
    found = [row.when[0][2] for row in resolved.dispatch if row.tiling == UNIT_1]
    assert found == bounds
    assert [row.when for row in resolved.dispatch if row.tiling == "seesaw_2cta"] == shared
    low, high = resolved.problem.rows
    for rows, batch in product(range(low, high + 1), (1, 2, 4, 5, 8, 9, 15, 16)):
        call = {"rows": rows, "batch": batch}
        assert dispatch(resolved.dispatch, call) == dispatch(every.dispatch, call)


def test_one_row_block_needs_one_kernel() -> None:
    found = values(resolve_text(MLA.replace("[16, 128]", "64").replace("[1, 4]", "1")))
    assert found["variant"] == "seesaw"


def test_shared_memory_is_laid_out_as_the_struct_is() -> None:
    problem = bind_mla(MLA)
    d = derive(problem, mla_candidate(problem))
    assert [(r.name, r.offset, r.bytes) for r in d.smem] == [
        ("full_q", 0, 8), ("empty_q", 8, 8), ("full_k", 16, 144), ("empty_k", 160, 32),
        ("full_given", 192, 16), ("work", 208, 72), ("lengths", 280, 640), ("guess", 920, 8), ("given", 928, 256),
        ("shared", 1184, 32), ("references", 1216, 512), ("changed", 1728, 32), ("sums", 1760, 512),
        ("tops", 2272, 512), ("sQ", 3072, 73728), ("sK", 76800, 147456),
    ]  # fmt: skip


@pytest.mark.parametrize(("page_size", "boxes"), [(16, 4), (32, 2), (64, 1), (128, 1)])
def test_copies_that_fill_a_tile(page_size: int, boxes: int) -> None:
    assert bind_mla(MLA + f"kv_cache: {{page_size: {page_size}}}\n").boxes == boxes


def test_every_tile_is_freed_once_by_someone_who_reads_it() -> None:
    (tiling,) = resolve_text(PAIRED + "variant: seesaw_2cta\n").resolved.tilings
    freed = sorted((g.buffer, tile) for g in tiling.free_groups for tile in g.tiles)
    assert freed == [(buffer, tile) for buffer in (0, 1) for tile in range(9)]
    assert {g.arrivals for g in tiling.free_groups} == {8}  # four warps of both CTAs


def test_named_barriers_are_those_of_the_kernel() -> None:
    text = (ROOT / "generated" / "mla_decode_bf16_sm90a" / "kernel.py").read_text(encoding="utf-8")
    ids = {name: int(number) for name, number in re.findall(r"^([A-Z_]+) = (\d+)", text, re.MULTILINE)}
    calls = re.findall(r"barrier_id=([A-Z_]+)( \+ \w+)?, number_of_threads=(\d+)", text)
    used = {
        (ids[name] + i, f"{name}_{i}" if each else name, int(threads))
        for name, each, threads in calls
        for i in range(2 if each else 1)
    }
    (tiling,) = resolve_text(PAIRED + "variant: seesaw_2cta\n").resolved.tilings
    assert used == {(b.id, b.name, b.threads) for b in tiling.model.barriers}


def test_a_locked_variant_gives_way_when_a_promise_grows() -> None:
    lock = resolve_text(PAIRED + "variant: seesaw_2cta\n").lock
    kept = Lock(lock.spec, {**lock.decisions, "variant": ("seesaw_2cta", "measured")})
    assert values(resolve_text(PAIRED, kept))["variant"] == "seesaw_2cta"
    resolution = resolve_text(MLA, kept)
    assert values(resolution)["variant"] == "both"
    assert resolution.notes[0].startswith('variant: "seesaw_2cta" of the lock is decided again: heads 16 x query_len 1')


def test_what_goes_with_another_variant_is_decided_anew() -> None:
    lock = resolve_text(MLA).lock
    assert lock.decisions["pipeline.prefetch"][0] == 1
    resolution = resolve_text(MLA + "variant: seesaw\n", lock)
    assert (values(resolution)["pipeline.prefetch"], values(resolution)["scheduler.unit"]) == (0, "any")
    assert "pipeline.prefetch: 1 of the lock is decided again: it goes with variant; now 0" in resolution.notes


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("split_kv.max", 0, "a positive integer or any"),
        ("split_kv.max", True, "a positive integer or any"),
        ("scheduler.overhead", 65, "an integer from 1 to 64"),
        ("scheduler.unit", 3, "an integer from 1 to 2 or any"),
        ("variant", "swap_ab", "one of seesaw, seesaw_2cta"),
    ],
)
def test_unreadable_decisions_are_made_anew(key: str, value: Any, said: str) -> None:
    resolution = resolve_text(MLA, Lock("old", {key: (value, "measured")}))
    assert any(note.startswith(f"{key}: ") and said in note for note in resolution.notes)


def test_pinned_decisions_resolve_to_the_same_kernel() -> None:
    text, pinned = pin_decisions(resolve_text(MLA + "split_kv: auto   # how finely\n"), ())
    assert "split_kv: {max: any}   # how finely" in text
    assert all(d.origin == "spec" for d in pinned.resolved.decisions)


def test_findings_about_short_forms_stand_at_the_written_value() -> None:
    with pytest.raises(SpecError) as caught:
        resolve_text(
            MLA + "variant: seesaw_2cta\nwarpgroups: {consumer: {registers: 240}, producer: {registers: 42}}\n"
        )
    assert [(d.rule, d.location.line) for d in caught.value.diagnostics if d.location] == [
        ("row-block-pairs", 7),
        ("register-values", 8),
    ]


READY = "ready: [kv_cache, block_table]"


@pytest.mark.parametrize(
    ("pdl", "ahead", "reasons"),
    [
        ("{}", (True, False), ("checking lengths", "does not name block_table, kv_cache, which")),
        ("{ready: [kv_cache]}", (True, False), ("0.99 to 1.07", "does not name block_table, which")),
        ("{ready: [block_table]}", (True, False), ("0.99 to 1.07", "does not name kv_cache, which")),
        (f"{{{READY}}}", (True, True), ("0.99 to 1.07", "keys and table were there")),
        (f"{{{READY}, schedule_ahead: false}}", (False, False), ("", "pdl.schedule_ahead is false")),
        (f"{{{READY}, load_ahead: false}}", (True, False), ("0.99 to 1.07", "")),
        (f"{{{READY}, wait: false}}", (False, False), ("pdl.wait is false", "pdl.wait is false")),
    ],
)
def test_what_is_ready_comes_before_the_wait(pdl: str, ahead: tuple[bool, bool], reasons: tuple[str, str]) -> None:
    resolution = resolve_text(f"{MLA}pdl: {pdl}\n")
    found = {d.key: d for d in resolution.resolved.decisions}
    decided = [found[f"pdl.{knob}"] for knob in ("schedule_ahead", "load_ahead")]
    assert tuple(d.value for d in decided) == ahead
    assert all(reason in d.reason for d, reason in zip(decided, reasons))
    for tiling in resolution.resolved.tilings:
        assert (tiling.numbers.pdl_schedule_ahead, tiling.numbers.pdl_load_ahead) == ahead
        (k_warp,) = [role for role in tiling.model.roles if role.name == "K warp"]
        assert ("the first before the wait" in k_warp.does) == ahead[1]


def test_no_lock_promises_what_the_kernel_in_front_may_write() -> None:
    lock = Lock("old", {"pdl.load_ahead": (True, "measured")})
    promised = resolve_text(f"{MLA}pdl: {{{READY}}}\n", lock)
    assert values(promised)["pdl.load_ahead"] is True
    silent = resolve_text(MLA, lock)
    assert values(silent)["pdl.load_ahead"] is False
    assert any(n.startswith("pdl.load_ahead: ") and "pdl.ready does not name" in n for n in silent.notes), silent.notes


@pytest.mark.parametrize(
    ("names", "told"),
    [
        ("[kv_cache, kv_cache]", "`kv_cache` is named twice; drop one of them"),
        ("[kv_cach]", "did you mean `kv_cache`?"),
        ("[q]", "`block_table` or `kv_cache`"),
        ("[seq_lens]", "`block_table` or `kv_cache`"),  # which no promise is needed of
    ],
)
def test_promises_that_are_none(names: str, told: str) -> None:
    with pytest.raises(SpecError) as caught:
        resolve_text(f"{MLA}pdl: {{ready: {names}}}\n")
    (found,) = caught.value.diagnostics
    assert told in f"{found.message}; {found.remedy}"


def test_winners_of_tune_keep_what_the_spec_promises_now() -> None:
    resolution = resolve_text(f"{MLA}pdl: {{{READY}}}\n")
    space = tuning_space(resolution)
    default = space.find_default({"batch": 1, "query_len": 1, "heads": 16, "kv_len": 4096})
    older = replace(default, pdl_schedule_ahead=False, pdl_load_ahead=False, overhead=4)
    assert space.renew(older, default) == replace(default, overhead=4)


@pytest.mark.parametrize(
    ("knobs", "expected"),
    [
        ("scheduler: {split_columns: true}", {("seesaw", True), ("seesaw", False), ("seesaw_2cta", False)}),
        ("scheduler: {split_columns: false}", {("seesaw", False), ("seesaw_2cta", False)}),
        ("variant: seesaw\nscheduler: {unit: 1, split_columns: true}", {("seesaw", True)}),
    ],
)
def test_columns_that_one_of_several_kernels_shares_bind_no_candidate(
    knobs: str, expected: set[tuple[str, bool]]
) -> None:
    problem = {"batch": 32, "query_len": 1, "heads": 128, "kv_len": 4096}
    proposed = [p.candidate for p in tuning_space(resolve_text(f"{MLA}{knobs}\n")).propose(problem)]
    assert {(c.variant, c.split_columns) for c in proposed} == expected


@pytest.mark.parametrize("name", ["mla_sparse_v4_sm90a", "mla_decode_bf16_sm90a"])
def test_p_is_given_back_with_a_tile_that_its_reader_gives_back(name: str) -> None:
    """Where V has all columns of K, P has a place of its own, which is in no group of tiles."""
    (tiling, *_) = resolve_file(ROOT / "specs" / f"{name}.yaml").resolved.tilings
    said = {p.name: p.empty for p in tiling.model.pipelines if p.name in ("p0", "p1")}
    for buffer in range(2):
        (tile,) = re.findall(rf"with tile (\d+) of k{buffer}", said[f"p{buffer}"])
        owners = [g.warpgroup for g in tiling.free_groups if g.buffer == buffer and int(tile) in g.tiles]
        assert owners == [1 - buffer]
