"""Every rule about an MLA decode refuses what it should, in numbers, and lets its neighbour pass."""

from __future__ import annotations

import inspect
from typing import Any

import pytest
from gemm_specs import SM90
from mla_specs import FEW, MLA, PAIRED, QUANTISED, bind_mla, mla_candidate

from cutegen.arch import ARCHS, Arch
from cutegen.diagnostics import SpecError
from cutegen.families.mla_decode.problem_rules import (
    CACHE_PARTS,
    CHECKS,
    EXTRA_KEYS,
    FIXED_CUT,
    SPARSE_KEYS,
    SPLIT_QUERIES,
)
from cutegen.families.mla_decode.rule_book import BOOK
from cutegen.families.mla_decode.rules import refusals

TWO = {"variant": "seesaw_2cta", "unit": 2, "split_columns": False}
SM100, SM120 = ARCHS["sm_100a"], ARCHS["sm_120a"]

FEW_DECODED = QUANTISED.replace("[1, 128]", "[1, 8]")
DECODED_FEW = {"variant": "keys_on_m", "producer_registers": 104, "consumer_registers": 152}
INVARIANT = MLA + "invariance: batch\n"
READY = MLA + "pdl: {ready: [block_table, kv_cache]}\n"
# (rule, spec, illegal knobs, what the reason and the remedy say, legal neighbour, arch that refuses)
CASES: list[tuple[str, str, dict[str, Any], tuple[str, ...], dict[str, Any], Arch]] = [
    ("register-values", MLA, {"producer_registers": 42}, ("42 producer", "40 or 48"), {"producer_registers": 24}, SM90),
    ("register-values", MLA, {"consumer_registers": 264}, ("264 consumer", "24..256", "256"), {}, SM90),
    ("register-values", MLA, {"producer_registers": 176}, ("176", "384", "168"), {}, SM90),
    ("register-file", MLA, {"producer_registers": 40}, ("40 + 2 x 240", "66560", "64512", "at most 232"),
     {"producer_registers": 40, "consumer_registers": 232}, SM90),
    ("attention-registers", MLA, {"consumer_registers": 192}, ("128 + S 32 + P 16 = 176", "leave 16 of 24", "200"),
     {"consumer_registers": 200}, SM90),
    ("row-block-pairs", MLA, TWO, ("heads 16 x query_len 1 = 16 rows = 1 block of 64", "multiple of 2"), {}, SM90),
    ("row-block-pairs", PAIRED.replace("128", "[64, 65]").replace("[1, 4]", "2"), TWO, ("heads 65", "= 3 blocks"), {},
     SM90),
    ("row-block-pairs", PAIRED.replace("128", "64").replace("[1, 4]", "[2, 3]"), TWO, ("query_len 3 = 192 rows",), {},
     SM90),
    ("row-block-pairs", MLA.replace("[16, 128]", "64").replace("[1, 4]", "1"), {"variant": "both"},
     ("at most 64 rows", "use seesaw"), {"variant": "seesaw"}, SM90),
    ("row-block-pairs", MLA.replace("[16, 128]", "[9, 12]").replace("[1, 4]", "[15, 16]"), {"variant": "both"},
     ("135 to 192 rows", "three blocks", "use seesaw"), {"variant": "seesaw"}, SM90),
    ("unit-any", PAIRED, {**TWO, "unit": "any"}, ("seesaw_2cta is one kernel", "`variant: both`"),
     {"variant": "seesaw", "unit": "any"}, SM90),
    ("unit-any", MLA.replace("[16", "[65").replace("[1,", "[4,"), {"unit": "any"},
     ("at least 260 rows", "at most 256", "use unit 2"), {"unit": 2}, SM90),
    ("split-columns", PAIRED, {**TWO, "split_columns": True}, ("two row blocks", "use seesaw, or leave"), TWO, SM90),
    ("split-columns", MLA, {"max_splits": 1, "split_columns": True}, ("nothing is joined", "write false"),
     {"max_splits": 1, "split_columns": False}, SM90),
    ("schedule-ahead", MLA, {"pdl_wait": False}, ("pdl.wait is false", "`pdl: {wait: true}`, or drop schedule_ahead"),
     {}, SM90),
    ("keys-ahead", MLA, {"pdl_load_ahead": True},
     ("`block_table` and `kv_cache`, which may", "`pdl: {ready: [block_table, kv_cache]}` if it holds, or drop"), {},
     SM90),
    ("keys-ahead", READY.replace(", kv_cache", ""), {"pdl_load_ahead": True, "pdl_wait": False},
     ("not name `kv_cache`, which may", "`pdl: {wait: true, ready: [block_table, kv_cache]}` if it holds"), {}, SM90),
    ("keys-ahead", READY, {"pdl_wait": False}, ("no wait to load keys before", "or drop load_ahead"), {}, SM90),
    ("keys-ahead", READY, {"pdl_schedule_ahead": False}, ("pdl.schedule_ahead is false", "leave both"), {}, SM90),
    ("decoding-cta", QUANTISED, {"variant": "both"}, ("both shares loads", "use seesaw"), {}, SM90),
    ("few-rows", MLA, {"variant": "keys_on_m"}, ("up to 512 rows", "at most 32", "use seesaw"), {}, SM90),
    ("few-rows", FEW.replace("[1, 8]", "[1, 9]"), {"variant": "keys_on_m"}, ("up to 36 rows", "at most 32"), {}, SM90),
    ("decoder-registers", FEW_DECODED, {**DECODED_FEW, "producer_registers": 88},
     ("88 registers, it needs 104", "use at least 104"), DECODED_FEW, SM90),
    ("register-file", FEW_DECODED, {**DECODED_FEW, "consumer_registers": 168},
     ("128 x (2 x 104 + 2 x 168) = 69632", "512 threads", "beside producers with 104", "at most 152"), DECODED_FEW,
     SM90),
    ("keys-ahead", QUANTISED, {"pdl_load_ahead": True}, ("decoded behind the wait", "drop load_ahead"), {}, SM90),
    ("decoder-registers", QUANTISED, {"producer_registers": 80}, ("80 registers, it needs 104", "use at least 104"), {},
     SM90),
    ("invariant-cut", INVARIANT, {"unit": "any"}, ("at units of 2 key blocks", "use unit 2, or drop `inv"), {}, SM90),
    ("invariant-cut", INVARIANT, {"split_columns": True}, ("depend on the batch", "write false, or"), {}, SM90),
    ("invariant-cut", INVARIANT, {"max_splits": "any"}, ("has a place", "use 4, or"), {"max_splits": 255}, SM90),
    ("invariant-cut", INVARIANT, {"max_splits": 256}, ("has a place", "use at most 255"), {"max_splits": 1}, SM90),
    ("invariant-cut", INVARIANT, {"join_ratio": 25}, ("bounds nothing", "split_kv: {keys: 256}"), {}, SM90),
    ("mla-sm100-knobs", MLA, {"unit": 1}, ("single key blocks are not supported yet", "leave it"), {}, SM100),
    ("mla-sm100-knobs", MLA, {"pdl_schedule_ahead": True}, ("found ahead of the wait are not",), {}, SM100),
    ("smem-tiles", MLA, {}, ("sQ 72 KiB, sK 144 KiB", "219 KiB", "99 KiB"), {}, SM120),
]  # fmt: skip


@pytest.mark.parametrize(("rule", "spec", "illegal", "said", "legal", "arch"), CASES, ids=[case[0] for case in CASES])
def test_rule(
    rule: str, spec: str, illegal: dict[str, Any], said: tuple[str, ...], legal: dict[str, Any], arch: Arch
) -> None:
    problem, home = bind_mla(spec), SM100 if arch is SM100 else SM90
    found = list(refusals(problem, mla_candidate(problem, home, **illegal), arch))
    assert rule in [r.rule for r in found]
    told = next(f"{r.reason}; {r.remedy}" for r in found if r.rule == rule)
    for part in said:
        assert part in told
    assert not list(refusals(problem, mla_candidate(problem, home, **legal), home))


def test_every_rule_has_a_case() -> None:
    rules = {inspect.getclosurevars(p).nonlocals["rule"].id for p in (*BOOK.form, *BOOK.fit)}
    assert rules == {case[0] for case in CASES}


@pytest.mark.parametrize("text", [PAIRED, MLA.replace("[16, 128]", "64").replace("[1, 4]", "4")])
def test_two_ctas_where_every_promised_call_has_pairs(text: str) -> None:
    problem = bind_mla(text)
    assert not list(refusals(problem, mla_candidate(problem, **TWO), SM90))


@pytest.mark.parametrize(
    ("rule", "old", "new", "said"),
    [
        ("head-dims", "dtype", "latent_dim: 256\ndtype", ("latent_dim is 256", "512")),
        ("head-dims", "dtype", "rope_dim: 128\ndtype", ("rope_dim is 128", "64")),
        ("head-dims", "dtype", "rope_dim: 0\ndtype", ("rope_dim is 0", "use 64, or name `kv_cache.latent.scale`")),
        ("head-dims", "dtype", "latent_dim: 448\ndtype", ("latent_dim is 448", "use 512, or name")),
        ("page-size", "dtype", "kv_cache: {page_size: 48}\ndtype", ("48 tokens", "use 32 or 64")),
        ("page-size", "dtype", "kv_cache: {page_size: 1}\ndtype", ("1 tokens", "use 16")),
        ("page-size", "dtype", "kv_cache: {page_size: 256}\ndtype", ("256 tokens", "use 128")),
        ("fixed-cut", "dtype", "invariance: batch\nsplit_kv: {keys: 200}\ndtype", ("has 200 keys", "use 256")),
        ("fixed-cut", "dtype", "invariance: batch\nsplit_kv: {keys: 1}\ndtype", ("blocks of 64", "use 128")),
        ("fixed-cut", "dtype", "split_kv: {keys: 512}\ndtype", ("cut by their own lengths", "`invariance: batch`")),
        ("promised-extent", "[16, 128]", "[16, 256]", ("heads goes up to 256", "at most 128")),
        ("promised-extent", "[1, 4]", "17", ("query_len goes up to 17", "at most 16")),
    ],
)
def test_problem_rule(rule: str, old: str, new: str, said: tuple[str, ...]) -> None:
    with pytest.raises(SpecError) as caught:
        bind_mla(MLA.replace(old, new))
    (found,) = caught.value.diagnostics
    assert found.rule == rule
    for part in said:
        assert part in f"{found.message}; {found.remedy}"


def test_problem_rules_are_said_at_once_and_at_their_keys() -> None:
    text = MLA.replace("[16, 128]", "129").replace("[1, 4]", "17") + "pdl: {ready: [kv_cache, kv_cache]}\n"
    with pytest.raises(SpecError) as caught:
        bind_mla(text + "latent_dim: 1\nrope_dim: 1\nkv_cache: {page_size: 3}\n")
    found = caught.value.diagnostics
    assert {d.rule for d in found} == {rule.id for rule, _, _ in CHECKS} - {
        CACHE_PARTS.id,
        FIXED_CUT.id,
        SPARSE_KEYS.id,
        SPLIT_QUERIES.id,
        EXTRA_KEYS.id,
    }
    assert [d.location.line for d in found if d.location] == [5, 6, 7, 8, 9, 10]


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("offset: 128,", "offset: 120,", ("latent begins at byte 120", "a multiple of 16")),
        ("offset: 640", "offset: 642", ("scale begins at byte 642", "a multiple of 4")),
        ("offset: 640", "offset: 636", ("scale has bytes 636 to 667", "latent 128 to 639")),
        ("offset: 0}", "offset: 64}", ("rope has bytes 64 to 191", "latent 128 to 639")),
        ("672", "671", ("671 bytes cuts a part", "use 672")),
        ("672", "688", ("has 688 bytes, its parts 672", "use 672")),
        ("block: 64", "block: 32", ("for 32 values", "use 64")),
        ("block: 64", "block: 1024", ("for 1024 values", "use 512")),
        ("dtype: bf16\nheads", "dtype: f16\nheads", ("queries are f16", "use bf16")),
        ("rope: {dtype: bf16", "rope: {dtype: e4m3", ("the rotary part has none", "use bf16")),
        (", scale: {dtype: f32, block: 64, offset: 640}", "", ("of the latent and of the rotary part", "use e4m3")),
        ("  rope: {dtype: bf16, offset: 0}\n", "", ("there is no rope", "write both")),
    ],
)
def test_parts_of_a_row(old: str, new: str, said: tuple[str, ...]) -> None:
    assert old in QUANTISED
    with pytest.raises(SpecError) as caught:
        bind_mla(QUANTISED.replace(old, new))
    assert {d.rule for d in caught.value.diagnostics} == {CACHE_PARTS.id}
    told = "; ".join(f"{d.message}; {d.remedy}" for d in caught.value.diagnostics)
    for part in said:
        assert part in told


PLANE = (
    MLA
    + """\
latent_dim: 448
kv_cache:
  latent: {dtype: e4m3, scale: {dtype: e8m0, block: 64, place: plane}}
  rope: {dtype: bf16}
"""
)


@pytest.mark.parametrize(
    ("old", "new", "rule", "said"),
    [
        ("block: 64", "block: 128", "cache-parts", ("448 values are not a multiple of 128", "use 64")),
        ("block: 64", "block: 64, offset: 576", "cache-parts", ("in no row", "leave `offset` out")),
        (", place: plane", "", "cache-parts", ("scales of one byte", "write `place: plane`, or use f32")),
        ("kv_cache:", "rope_dim: 0\nkv_cache:", "cache-parts", ("has no rotary part", "drop `rope`")),
        ("kv_cache:", "kv_cache:\n  row_bytes: 584", "cache-parts", ("has 584 bytes, its parts 576", "use 576")),
        (", scale: {dtype: e8m0, block: 64, place: plane}", "", "cache-parts", ("one scale is that of", "use e4m3")),
    ],
)
def test_scales_in_a_plane(old: str, new: str, rule: str, said: tuple[str, ...]) -> None:
    assert old in PLANE
    with pytest.raises(SpecError) as caught:
        bind_mla(PLANE.replace(old, new))
    assert {d.rule for d in caught.value.diagnostics} == {rule}
    told = "; ".join(f"{d.message}; {d.remedy}" for d in caught.value.diagnostics)
    for part in said:
        assert part in told


EXTRA = PLANE + "mask: none\nkeys: {topk: 128, extra: {topk: [1, 1024], page_size: 2}}\n"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (EXTRA.replace("page_size: 2}", "page_size: 2000}"), ("second cache has 2000 tokens", "use 1024")),
        (EXTRA.replace("page_size: 2}", "page_size: 69}"), ("69 tokens of 584 bytes, 8 over", "use 68 or 70")),
    ],
)
def test_a_second_cache(text: str, said: tuple[str, ...]) -> None:
    with pytest.raises(SpecError) as caught:
        bind_mla(text)
    told = "; ".join(f"{d.message}; {d.remedy}" for d in caught.value.diagnostics if d.rule == "extra-keys")
    for part in said:
        assert part in told


def test_arguments_of_a_second_cache() -> None:
    problem = bind_mla(EXTRA)
    assert problem.extra is not None
    assert (problem.extra.topk, problem.extra.page_size) == ((1, 1024), 2)
    assert [t.name for t in problem.inputs][3:] == [
        "topk_length", "extra_kv_cache", "extra_indices", "extra_topk_length", "softmax_scale"
    ]  # fmt: skip
    assert bind_mla(EXTRA.replace("kv_cache:", "kv_cache:\n  page_size: 256")).page_size == 256
    plain = bind_mla(MLA + "mask: none\nkv_cache: {page_size: 69}\nkeys: {topk: 8, extra: {topk: 8, page_size: 1}}\n")
    assert {t.name: t.dims for t in plain.inputs}["extra_kv_cache"] == ("extra_pages", "1", "576")


def test_rows_of_a_plane_and_rows_without_a_rotary_part() -> None:
    problem = bind_mla(PLANE)
    assert problem.cache is not None
    assert problem.cache.parts == {"latent": (0, 448), "rope": (448, 128)}
    assert (problem.row_bytes, problem.cache.plane_bytes, problem.narrow) == (584, 8, True)
    assert {t.name: t.dims for t in problem.inputs}["kv_cache"] == ("pages", str(64 * 584))
    text = MLA + "rope_dim: 0\nkv_cache: {latent: {dtype: e4m3, scale: {dtype: f32, block: 128}}}\n"
    cache = bind_mla(text).cache
    assert cache is not None
    assert (cache.parts, cache.token_bytes) == ({"latent": (0, 512), "scale": (512, 16)}, 528)
    for wrong, said in (
        (text.replace(", scale: {dtype: f32, block: 128}", ""), "has scales"),
        (text + "q: split\n", "no q_pe"),
    ):
        with pytest.raises(SpecError, match=said):
            bind_mla(wrong)


def test_where_parts_without_scales_lie() -> None:
    problem = bind_mla(MLA + "kv_cache: {latent: {dtype: e4m3}, rope: {dtype: e4m3}}\n")
    assert problem.cache is not None
    assert problem.cache.parts == {"latent": (0, 512), "rope": (512, 64)}
    assert (problem.row_bytes, [t.name for t in problem.inputs][3:]) == (576, ["seq_lens", "kv_scale", "softmax_scale"])


def test_where_parts_lie_follows_from_their_order() -> None:
    text = MLA + "kv_cache: {latent: {dtype: e4m3, scale: {dtype: f32, block: 128}}, rope: {dtype: bf16}}\n"
    cache = bind_mla(text).cache
    assert cache is not None
    assert cache.parts == {"latent": (0, 512), "scale": (512, 16), "rope": (528, 128)}
    assert cache.row_bytes == 656


@pytest.mark.parametrize("size", [16, 32, 64, 128])
def test_supported_pages(size: int) -> None:
    assert bind_mla(MLA + f"kv_cache: {{page_size: {size}}}\n").page_size == size
