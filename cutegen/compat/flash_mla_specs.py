"""Specs of the kernels that calls in FlashMLA's interface are rendered for."""

from __future__ import annotations

from typing import Any

from cutegen.compat.flash_mla_arguments import E4M3, PLAIN_ROW, PLANE_ROW, SPARSE_ROW

MOST_TOKENS, MOST_HEADS, MOST_INDICES = 16, 128, 1 << 17  # that rendered plans promise
SPEC = """\
cutegen: 1
kernel: mla_decode
arch: {arch}
dtype: {dtype}
heads: [1, {heads}]
query_len: [1, {tokens}]
mask: {mask}
kv_cache: {{page_size: {page_size}{parts}}}
"""
PARTS = ", latent: {dtype: e4m3}, rope: {dtype: e4m3}"  # of a cache with one factor
SPARSE_SPEC = """\
cutegen: 1
kernel: mla_decode
arch: {arch}
dtype: bf16
heads: [1, {heads}]
query_len: [1, {tokens}]
mask: none
kv_cache:
  page_size: {page_size}
{parts}keys: {{topk: [1, {topk}]{extra}}}
sink: {sink}
"""
SPARSE_PARTS = """\
  latent: {dtype: e4m3, scale: {dtype: f32, block: 128}}
  rope: {dtype: bf16}
"""
PLANE_PARTS = """\
  latent: {dtype: e4m3, scale: {dtype: e8m0, block: 64, place: plane}}
  rope: {dtype: bf16}
latent_dim: 448
rope_dim: 64
"""
# By bytes a token: the name in that of a kernel, and what its spec has of the cache.
_SPARSE = {SPARSE_ROW: ("", SPARSE_PARTS), PLANE_ROW: ("_584", PLANE_PARTS), PLAIN_ROW: ("_bf16", "")}
_SHORT = {"bfloat16": "bf16", "float16": "f16"}


def spec_of(arch: str, dtype: Any, page_size: int, flag: bool, extra_page: int) -> tuple[str, str]:
    """(name, text). dtype: of a dense cache, its name in torch, or of sparse attention, bytes a token. flag: whether
    there is a mask, or of sparse attention a sink. extra_page: rows of a page of a second cache, 0 without. TypeError:
    no such dtype."""
    extents = {"arch": arch, "page_size": page_size, "tokens": MOST_TOKENS, "heads": MOST_HEADS}
    if dtype in _SPARSE:
        which, parts = _SPARSE[dtype]
        extra = f", extra: {{topk: [1, {MOST_INDICES}], page_size: {extra_page}}}" if extra_page else ""
        name = f"flash_mla_sparse{which}{'_sink' * flag}_page{page_size}" + f"_extra{extra_page}" * (extra_page > 0)
        text = SPARSE_SPEC.format(sink=str(flag).lower(), topk=MOST_INDICES, extra=extra, parts=parts, **extents)
    elif dtype in (*_SHORT, E4M3):
        mask, parts = "causal" if flag else "none", PARTS if dtype == E4M3 else ""
        name = f"flash_mla_{_SHORT.get(dtype, 'e4m3')}_{mask}_page{page_size}"
        text = SPEC.format(dtype=_SHORT.get(dtype, "bf16"), mask=mask, parts=parts, **extents)
    else:
        raise TypeError(f"flash_mla: q has dtype {dtype}, needs bfloat16 or float16")
    return name, text
