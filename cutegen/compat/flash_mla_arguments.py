"""Arguments of calls in FlashMLA's interface: what is wrong with them before a plan is asked, and what a plan gets."""

from __future__ import annotations

import re
from typing import Any

from cutegen.runtime.mla_decode.inputs import LATENT_DIM, QUERY_DIM, SPARSE_ROW

PLANE_ROW, PLANE_DIM = 584, 512  # bytes a token of a cache with scales behind the rows of a page, and values
PLAIN_ROW = 2 * QUERY_DIM  # bytes a token in bf16
_PASSED = {
    "kv_cache": "k_cache.squeeze(2)",
    "seq_lens": "cache_seqlens",
    "sink": "attn_sink",
    "kv_scale": "descale_k",
    "extra_kv_cache": "extra_k_cache.squeeze(2)",
    "extra_indices": "extra_indices_in_kvcache",
}
_SUPPORTED = (
    f"dense decode over bf16, f16 or e4m3 with one factor, and sparse decode over one or two caches in bf16, of "
    f"{SPARSE_ROW} bytes a token, or of {PLANE_ROW}"
)
E4M3 = "float8_e4m3fn"  # what torch calls the elements of a dense cache with one factor


def refuse(**unsupported: Any) -> None:
    for name, value in unsupported.items():
        if value is not None and value is not False:
            raise NotImplementedError(f"flash_mla: {name} is not supported: {_SUPPORTED}")


def check_sparse(indices: Any, k_cache: Any, is_fp8_kvcache: bool, causal: bool) -> None:
    check_tensor("indices", indices)
    if causal:
        raise ValueError("flash_mla: causal is True; with indices it has to be False, as they say what a token sees")
    if is_fp8_kvcache != (k_cache.element_size() == 1):
        raise ValueError(f"flash_mla: is_fp8_kvcache is {is_fp8_kvcache}; k_cache has dtype {k_cache.dtype}")
    if indices.dim() != 3:
        raise ValueError(f"flash_mla: indices has shape {tuple(indices.shape)}, needs [batch, seq_len_q, topk]")


def as_bytes(cache: Any, name: str = "k_cache") -> Any:
    """A cache [pages, page_size, 1, bytes] of any 8-bit type as the plan takes it: of one with scales behind the rows
    of a page, whole pages. One of 16 bits stays such."""
    import torch

    if cache.element_size() > 1:
        return cache.squeeze(2)
    held = cache.squeeze(2) if cache.dtype == torch.uint8 else cache.squeeze(2).view(torch.uint8)
    if held.shape[-1] != PLANE_ROW:
        return held
    if held.stride()[1:] != (PLANE_ROW, 1):
        raise ValueError(f"flash_mla: {name} has strides {cache.stride()}; a page has to lie in one piece")
    return held.flatten(1)


def check_extra(k_cache: Any, indices: Any, extra_k_cache: Any, extra_indices: Any, extra_topk_length: Any) -> None:
    """What must hold of a second cache, or of what belongs to one, before a plan can be asked."""
    if extra_k_cache is None:
        refuse(extra_indices_in_kvcache=extra_indices, extra_topk_length=extra_topk_length)
        return
    if indices is None:
        refuse(extra_k_cache=True)
    check_tensor("extra_k_cache", extra_k_cache)
    if extra_indices is None:
        raise ValueError("flash_mla: extra_indices_in_kvcache is missing; extra_k_cache needs them")
    check_tensor("extra_indices_in_kvcache", extra_indices)
    width, bits = k_cache.shape[-1], 8 * k_cache.element_size()
    fits = extra_k_cache.dim() == 4 and extra_k_cache.shape[2:] == (1, width)
    if not fits or 8 * extra_k_cache.element_size() != bits:
        shape = f"shape {tuple(extra_k_cache.shape)} and dtype {extra_k_cache.dtype}"
        raise ValueError(f"flash_mla: extra_k_cache has {shape}, needs {bits}-bit [pages, page_size, 1, {width}]")
    if extra_indices.dim() != 3:
        got = tuple(extra_indices.shape)
        raise ValueError(f"flash_mla: extra_indices_in_kvcache has shape {got}, needs [batch, seq_len_q, topk]")


def find_lengths(held: Any, topk_length: Any, indices: Any, name: str = "topk_length") -> Any:
    """int32 [batch, seq_len_q]: how many indices of each token count. Without topk_length all; held: such lengths of an
    earlier call that was alike, or None."""
    import torch

    batch, query_len, topk = indices.shape
    if topk_length is None:
        return indices.new_full((batch, query_len), topk, dtype=torch.int32) if held is None else held
    check_tensor(name, topk_length)
    if topk_length.dim() != 1:
        raise ValueError(f"flash_mla: {name} has shape {tuple(topk_length.shape)}, needs [batch]")
    return topk_length[:, None] if query_len == 1 else topk_length[:, None].repeat(1, query_len)


def check_shapes(q: Any, k_cache: Any, head_dim_v: int, sparse: bool = False) -> None:
    """What must hold before a plan can be asked for the rest."""
    if head_dim_v != LATENT_DIM:
        raise ValueError(f"flash_mla: head_dim_v is {head_dim_v}, needs {LATENT_DIM}")
    check_tensor("q", q)
    check_tensor("k_cache", k_cache)
    bits_8, dim = k_cache.element_size() == 1, QUERY_DIM
    width = SPARSE_ROW if sparse and bits_8 else QUERY_DIM
    if sparse and bits_8 and k_cache.shape[-1] == PLANE_ROW:
        width, dim = PLANE_ROW, PLANE_DIM
    if sparse and not bits_8 and str(k_cache.dtype) != "torch.bfloat16":
        raise NotImplementedError(f"flash_mla: k_cache has dtype {k_cache.dtype} with indices: {_SUPPORTED}")
    if bits_8 and k_cache.shape[-1] != width:
        raise NotImplementedError(f"flash_mla: k_cache has {k_cache.shape[-1]} bytes a token: {_SUPPORTED}")
    if q.element_size() == 1:
        remedy = "pass (q.float() * descale_q).bfloat16()"
        raise NotImplementedError(f"flash_mla: q has dtype {q.dtype}; queries are in 16 bits: {remedy}")
    if q.dim() != 4 or k_cache.dim() != 4 or k_cache.shape[2] != 1:
        raise ValueError(
            f"flash_mla: q has shape {tuple(q.shape)} and k_cache {tuple(k_cache.shape)}; they need to be "
            f"[batch, seq_len_q, heads, {dim}] and [pages, page_size, 1, {width}]"
        )


def read_factor(q: Any, k_cache: Any, is_fp8_kvcache: bool, descale_k: Any) -> tuple[Any, ...]:
    """Of a dense cache of 8 bits, whether or not is_fp8_kvcache says that it is one: its factor f32 [1]; of others
    nothing."""
    if k_cache.element_size() != 1:
        if is_fp8_kvcache:
            raise ValueError(f"flash_mla: is_fp8_kvcache is True; k_cache has dtype {k_cache.dtype}")
        return ()
    if str(k_cache.dtype) not in ("torch.uint8", f"torch.{E4M3}"):
        raise TypeError(f"flash_mla: k_cache has dtype {k_cache.dtype}, needs {E4M3}, or its bytes as uint8")
    if descale_k is None:
        raise ValueError("flash_mla: descale_k is missing; an fp8 cache has one factor, float32 [1] on its device")
    check_tensor("descale_k", descale_k)
    return (descale_k.reshape(1) if descale_k.numel() == 1 else descale_k,)


def check_tensor(name: str, value: Any) -> None:
    if not hasattr(value, "dim"):
        raise TypeError(f"flash_mla: {name} is {type(value).__name__}, needs a torch tensor")


def read_scale(value: Any) -> float:
    """A number, or a tensor or an array of one; the plan says which numbers it takes."""
    try:
        return float(value)
    except (TypeError, ValueError, RuntimeError, OverflowError):
        raise TypeError(f"flash_mla: softmax_scale is {value!r}, needs a float") from None


def rename(text: Any) -> Any:
    """A plan's words with what the caller passed in place of the plan's arguments; axes are those without the head."""
    if not isinstance(text, str):
        return text
    return re.sub(rf"\b({'|'.join(_PASSED)})\b", lambda name: _PASSED[name[0]], text)
