"""The typed MLA decode spec, what it computes, and findings that need more than one section."""

from __future__ import annotations

from typing import Any

import pytest
from mla_specs import MLA, bind_mla

from cutegen.families.mla_decode.spec import MlaSpec
from cutegen.spec import SchemaError, load_text, parse_spec

SMALLEST = "cutegen: 1\nkernel: mla_decode\narch: sm_90a\ndtype: f16\nheads: 16\n"


def parse(text: str) -> MlaSpec:
    spec = parse_spec(load_text(text, "spec"))
    assert isinstance(spec, MlaSpec)
    return spec


def test_defaults_are_what_flash_mla_has() -> None:
    problem = bind_mla(SMALLEST)
    assert (problem.heads, problem.query_len, problem.rows) == ((16, 16), (1, 1), (16, 16))
    assert (problem.latent_dim, problem.rope_dim, problem.head_dim) == (512, 64, 576)
    assert (problem.page_size, problem.mask, problem.q) == (64, "causal", "joined")
    assert (problem.lse_base, problem.lse_layout) == ("e", "bhs")
    assert [t.name for t in problem.inputs] == ["q", "kv_cache", "block_table", "seq_lens", "softmax_scale"]
    assert [t.name for t in problem.outputs] == ["out", "lse"]
    assert [t.name for t in problem.scratch] == ["workspace", "semaphores"]
    assert problem.outputs[1].dims == ("batch", "heads", "query_len")


def test_every_choice_of_the_problem() -> None:
    problem = bind_mla(MLA + "q: split\nmask: none\nlse: {base: 2, layout: bsh, empty: +inf}\n")
    assert [t.name for t in problem.inputs[:2]] == ["q_nope", "q_pe"]
    assert [t.dims[-1] for t in problem.inputs[:2]] == ["512", "64"]
    assert problem.outputs[1].dims == ("batch", "query_len", "heads")
    assert (problem.lse_base, problem.mask, problem.rows) == ("2", "none", (16, 512))


@pytest.mark.parametrize(
    ("written", "most"),
    [("", "auto"), ("split_kv:", "auto"), ("split_kv: auto", "auto"), ("split_kv: 1", 1), ("split_kv: {max: 8}", 8),
     ("split_kv: {max: any}", "any"), ("split_kv: {}", "auto"), ("split_kv: {max: auto}", "auto")],
)  # fmt: skip
def test_forms_of_split_kv(written: str, most: object) -> None:
    split: Any = parse(f"{MLA}{written}\n").split_kv
    assert split.max == most


@pytest.mark.parametrize("line", ["split_kv: 1.0", "split_kv: true", "lse: {base: 2.0}"])
def test_what_equals_an_integer_of_a_list_is_not_it(line: str) -> None:
    with pytest.raises(SchemaError) as caught:
        parse(f"{SMALLEST}{line}\n")
    assert [d.rule for d in caught.value.diagnostics] == ["wrong-type"]


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ("check: {shapes: [{batch: 2, kv_len: 64, query_len: 1}]}", "gives no heads"),
        (
            "check: {shapes: [{batch: 2, kv_len: 64, query_len: 1, heads: 8}]}",
            "`heads` is 8 here, and from 16 to 128 in",
        ),
        ("bench: {shapes: [{batch: 2, kv_len: 64, query_len: 5, heads: 16}]}", "`query_len` is 5 here"),
        ("bench: {shapes: [{batch: 2, kv: 64, query_len: 1, heads: 16}]}", "no dim is named `kv`"),
        ("tensors: {q: 'bf16[m]'}", "unknown key `tensors`"),
        ("split_kv: 4", "write {max: 4} for at most 4 parts"),
        ("variant: see_saw", "did you mean `seesaw`"),
        ("scheduler: {overhead: 65}", "an integer from 1 to 64"),
        ("kv_cache: {page_stride: 128}", "must be `any`"),
    ],
)
def test_findings(lines: str, said: str) -> None:
    with pytest.raises(SchemaError) as caught:
        parse(f"{MLA}{lines}\n")
    assert said in str(caught.value)


def test_constants_need_no_mention_in_shapes() -> None:
    spec = parse(SMALLEST + "check: {shapes: [{batch: 2, kv_len: 64}]}\n")
    assert spec.check.shapes == [{"batch": 2, "kv_len": 64}]
