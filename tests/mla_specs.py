"""MLA decode specs as text, and what they are computed from."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from gemm_specs import SM90

from cutegen.arch import Arch
from cutegen.families.decide import Choice
from cutegen.families.mla_decode.auto import choose
from cutegen.families.mla_decode.binding import bind
from cutegen.families.mla_decode.candidate import Candidate
from cutegen.families.mla_decode.problem import MlaProblem
from cutegen.spec import load_text, parse_spec

MLA = """\
cutegen: 1
kernel: mla_decode
arch: sm_90a
dtype: bf16
heads: [16, 128]
query_len: [1, 4]
"""
# Parts of single blocks, pages of two, fetched ahead; the parts of Q in two tensors.
SINGLE = """\
cutegen: 1
kernel: mla_decode
arch: sm_90a
dtype: bf16
heads: [1, 128]
query_len: [1, 4]
kv_cache: {page_size: 128}
q: split
variant: seesaw
split_kv: {max: 8}
scheduler: {unit: 1}
pipeline: {prefetch: 1}
"""
PAIRED = MLA.replace("[16, 128]", "128")  # an even number of row blocks, whatever query_len
# The same parts as the shipped cache in bytes, in another order, with other scales; cut by lengths alone.
QUANTISED = """\
cutegen: 1
kernel: mla_decode
arch: sm_90a
dtype: bf16
heads: [1, 128]
query_len: [1, 4]
kv_cache:
  page_size: 16
  rope: {dtype: bf16, offset: 0}
  latent: {dtype: e4m3, offset: 128, scale: {dtype: f32, block: 64, offset: 640}}
  row_bytes: 672
q: split
lse: {base: 2, layout: bsh}
sink: true
invariance: batch
split_kv: {keys: 256, max: 3}
"""
# Rows that a warpgroup gathers in small pages, all of one scale, in single blocks that nothing is fetched ahead of.
SPARSE = """\
cutegen: 1
kernel: mla_decode
arch: sm_90a
dtype: bf16
heads: [1, 128]
query_len: [1, 4]
mask: none
kv_cache:
  page_size: 16
  latent: {dtype: e4m3}
  rope: {dtype: e4m3}
keys: {topk: [1, 512]}
q: split
lse: {base: 2, layout: bsh}
sink: true
scheduler: {unit: 1, split_columns: false}
pipeline: {prefetch: 0}
"""
# Keys on M: 32 rows of several tokens with a mask in small pages, cut by lengths alone.
FEW = """\
cutegen: 1
kernel: mla_decode
arch: sm_90a
dtype: f16
heads: [1, 8]
query_len: [1, 4]
kv_cache: {page_size: 16}
q: split
lse: {base: 2, layout: bsh}
sink: true
invariance: batch
split_kv: {keys: 128, max: 3}
variant: keys_on_m
"""
# Of sm_100a: small pages, so that a block has eight groups; all keys seen, by queries in two tensors, with a sink and
# another LSE.
OF_PAIRS = """\
cutegen: 1
kernel: mla_decode
arch: sm_100a
dtype: f16
heads: [1, 128]
query_len: [1, 4]
mask: none
kv_cache: {page_size: 16}
q: split
lse: {base: 2, layout: bsh}
sink: true
split_kv: {max: 3}
pdl: {wait: false}
"""
# The same over a cache in e4m3 with one scale, cut by lengths alone.
QUANTISED_PAIRS = (
    OF_PAIRS.replace("f16", "bf16")
    .replace("{page_size: 16}", "{page_size: 16, latent: {dtype: e4m3}, rope: {dtype: e4m3}}")
    .replace("{max: 3}", "{max: 3, keys: 128}\ninvariance: batch")
)
WIDE = PAIRED + "variant: seesaw_2cta\nq: split\nlse: {base: 2, layout: bsh}\nkv_cache: {page_size: 16}\n"
# No rotary values, and scales of all of the latent part in pages of 32.
NO_ROPE = """\
cutegen: 1
kernel: mla_decode
arch: sm_90a
dtype: bf16
heads: [1, 128]
query_len: [1, 2]
rope_dim: 0
kv_cache:
  page_size: 32
  latent: {dtype: e4m3, scale: {dtype: f32, block: 128, place: plane}}
scheduler: {unit: 2, split_columns: false}
"""
# Two caches, in pages whose sizes are no powers of two.
TWO = """\
cutegen: 1
kernel: mla_decode
arch: sm_90a
dtype: bf16
heads: [1, 16]
query_len: [1, 4]
mask: none
kv_cache: {page_size: 7}
keys: {topk: [1, 600], extra: {topk: [1, 600], page_size: 3}}
variant: seesaw
scheduler: {unit: 2, split_columns: false}
"""
# Forms beyond the shipped ones, which are pairs and single blocks in pages of 64. None is left out that no other holds:
# `fewest_registers` has small pages and another LSE, and guesses its part, but loads no keys by the guess, `single`
# large pages, parts of Q, at most some splits and nothing before the wait, `single_in_pairs` neither a mask nor splits,
# and keys before the wait; both single ones fetch ahead; `quantised` decodes small pages and cuts by lengths alone,
# `sparse` gathers rows, and both have a sink; `no_rope`
# has scales in f32 behind the rows of a page; `few` has keys on M; `sparse_two` and `_bf16` gather rows of two caches.
EDGES = {
    "fewest_registers": WIDE + "warpgroups: {consumer: {registers: 200}}\n",
    "quantised": QUANTISED + "warpgroups: {consumer: {registers: 200}}\n",
    "sparse": SPARSE,
    "sparse_two": TWO.replace("7}", "69, latent: {dtype: e4m3, scale: {dtype: f32, block: 128}}, rope: {dtype: bf16}}"),
    "sparse_two_bf16": TWO,
    "no_rope": NO_ROPE,
    "few": FEW,
    "single": SINGLE + "pdl: {schedule_ahead: false}\n",
    "single_in_pairs": PAIRED.replace("bf16", "f16")
    + "variant: seesaw_2cta\nkv_cache: {page_size: 32}\nmask: none\nsplit_kv: 1\nscheduler: {unit: 1}\n"
    + "pipeline: {prefetch: 1}\npdl: {ready: [kv_cache, block_table]}\n",
}


def bind_mla(text: str) -> MlaProblem:
    document = load_text(text, "product", "product.yaml")
    return bind(parse_spec(document), document)  # type: ignore[arg-type]


def mla_candidate(problem: MlaProblem, arch: Arch = SM90, **knobs: Any) -> Candidate:
    """The default candidate of a problem with some knobs replaced, legal or not."""
    choice = choose(problem, {}, arch)
    assert isinstance(choice, Choice)
    return replace(choice.candidate, **knobs)  # type: ignore[no-any-return]
