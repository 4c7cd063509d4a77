"""MLA decode in plain torch, from the paged cache."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from cutegen.runtime.mla_decode.inputs import LATENT_DIM


def attend(
    q: Any,
    kv_cache: Any,
    block_table: Any,
    seq_lens: Any,
    softmax_scale: float,
    *,
    causal: bool,
    dtype: Any,
    latent_dim: int = LATENT_DIM,
) -> tuple[Any, Any]:
    """(out [batch, query_len, heads, latent_dim], lse [batch, query_len, heads], natural logarithm), both in `dtype`.

    q [batch, query_len, heads, dim], kv_cache [pages, page_size, dim], block_table [batch, max_pages], seq_lens
    [batch]; a length over what the table has room for counts as that. A row without keys has output 0 and LSE +inf.
    Only what lies within the lengths is read.
    """
    import torch

    batch, query_len, heads, dim = q.shape
    page_size = kv_cache.shape[1]
    out = torch.zeros(batch, query_len, heads, latent_dim, dtype=dtype, device=q.device)
    lse = torch.full((batch, query_len, heads), math.inf, dtype=dtype, device=q.device)
    for b, length in enumerate(seq_lens.clamp(max=block_table.shape[1] * page_size).tolist()):
        if length <= 0:
            continue
        pages = block_table[b, : -(-length // page_size)].long()
        keys = kv_cache[pages].reshape(-1, dim)[:length].to(dtype)
        scores = q[b].to(dtype) @ keys.mT * softmax_scale  # [query_len, heads, length]
        if causal and query_len > 1:
            seen = torch.arange(length - query_len + 1, length + 1, device=q.device)  # keys that each token sees
            hidden = torch.arange(length, device=q.device) >= seen[:, None]
            scores = scores.masked_fill(hidden[:, None], -math.inf)
        total = torch.logsumexp(scores, -1)
        seeing = total > -math.inf
        weights = torch.exp(scores - torch.where(seeing, total, 0.0)[..., None])
        out[b] = weights @ keys[:, :latent_dim]
        lse[b] = torch.where(seeing, total, math.inf)
    return out, lse


def attend_sparse(
    q: Any,
    kv_cache: Any,
    indices: Any,
    topk_length: Any,
    softmax_scale: float,
    *,
    dtype: Any,
    latent_dim: int = LATENT_DIM,
) -> tuple[Any, Any]:
    """As `attend`, with the keys of each token: rows indices [batch, query_len, topk] of kv_cache, of which the first
    topk_length [batch, query_len] count. A row that is named twice is two keys; an index of no row of the cache is
    none. Only rows that are named are read."""
    import torch

    batch, query_len, heads, _ = q.shape
    page_size, rows = kv_cache.shape[1], kv_cache.shape[0] * kv_cache.shape[1]
    out = torch.zeros(batch, query_len, heads, latent_dim, dtype=dtype, device=q.device)
    lse = torch.full((batch, query_len, heads), math.inf, dtype=dtype, device=q.device)
    for b, lengths in enumerate(topk_length.tolist()):
        for token, length in enumerate(lengths):
            named = indices[b, token, : max(length, 0)].long()
            named = named[(named >= 0) & (named < rows)]
            if not len(named):
                continue
            keys = kv_cache[named // page_size, named % page_size].to(dtype)
            scores = q[b, token].to(dtype) @ keys.mT * softmax_scale  # [heads, keys]
            lse[b, token] = torch.logsumexp(scores, -1)
            out[b, token] = torch.softmax(scores, -1) @ keys[:, :latent_dim]
    return out, lse


def sink_factor(lse: Any, sink: Any) -> Any:
    """[batch, query_len, heads, 1]: which share of a row's weights its keys have, where the rest is the sink's of its
    head: e^lse over e^lse + e^sink. lse [batch, query_len, heads], natural logarithm, +inf without a key; sink
    [heads]."""
    import torch

    share = torch.sigmoid(lse - sink.to(lse.dtype))
    return torch.where(lse == math.inf, 1.0, share)[..., None]  # of no key; out is 0 there


def join_keys(
    keys: Any, indices: Any, topk_length: Any, other_keys: Any, other_indices: Any, other_length: Any
) -> tuple[Any, Any, Any]:
    """Keys of two caches [pages, page_size, dim] as those of one, [rows, 1, dim], with indices and lengths for it: a
    token's keys of the second one behind those of the first. What is no row stays none."""
    import torch

    first, second = keys.flatten(0, 1), other_keys.flatten(0, 1)
    mine = torch.where((indices >= 0) & (indices < len(first)), indices, -1)
    others = torch.where((other_indices >= 0) & (other_indices < len(second)), other_indices + len(first), -1)
    counts = topk_length.clamp(0, mine.shape[-1]), other_length.clamp(0, others.shape[-1])
    both = torch.cat((mine, others), -1)
    place = torch.arange(both.shape[-1], device=both.device).expand_as(both)
    behind = place - counts[0][..., None] + mine.shape[-1]  # where the second one's lie in `both`
    found = torch.where(place < counts[0][..., None], place, behind.clamp(max=both.shape[-1] - 1))
    joined = torch.take_along_dim(both, found, -1)
    return torch.cat((first, second))[:, None], joined, counts[0] + counts[1]


def attend_copied(
    queries: tuple[Any, ...],
    unpack: Callable[..., Any],
    kv_cache: Any,
    indices: Any,
    topk_length: Any,
    softmax_scale: float,
    *scale: Any,
    latent_dim: int = LATENT_DIM,
) -> Any:
    """The output of `attend_sparse` alone, in the dtype of the queries, by a copy of the rows that are named: nothing
    waits for the device. unpack: makes keys of rows of the cache and its scale, if it has one."""
    import torch

    q = queries[0] if len(queries) == 1 else torch.cat(queries, -1)
    page_size, rows = kv_cache.shape[1], kv_cache.shape[0] * kv_cache.shape[1]
    place = torch.arange(indices.shape[2], device=q.device)
    hidden = (indices < 0) | (indices >= rows) | (place >= topk_length[..., None])
    named = indices.long().masked_fill(hidden, 0)
    keys = unpack(kv_cache[named // page_size, named % page_size], *scale).to(q.dtype)  # [batch, query_len, topk, dim]
    keys = keys.masked_fill_(hidden[..., None], 0.0)
    scores = torch.einsum("bthd,btkd->bthk", q, keys).float() * softmax_scale
    scores = scores.masked_fill(hidden[:, :, None], -math.inf)
    return torch.einsum("bthk,btkd->bthd", scores.softmax(-1).nan_to_num().to(q.dtype), keys[..., :latent_dim])


def attend_dense(
    queries: tuple[Any, ...],
    kv_cache: Any,
    block_table: Any,
    seq_lens: Any,
    softmax_scale: float,
    *,
    causal: bool,
    latent_dim: int = LATENT_DIM,
) -> Any:
    """The output alone, in the dtype of the queries, by a dense copy of the cache: nothing waits for the device."""
    import torch

    q = queries[0] if len(queries) == 1 else torch.cat(queries, -1)
    query_len = q.shape[1]
    keys = gather_keys(kv_cache, block_table, seq_lens)
    seq_lens = seq_lens.clamp(max=keys.shape[1])
    slots = torch.arange(keys.shape[1], device=q.device)
    seen = seq_lens[:, None] - (query_len - 1 - torch.arange(query_len, device=q.device)) * int(causal)
    hidden = slots >= seen[..., None]  # [batch, query_len, width]
    scores = torch.einsum("bthd,bkd->bthk", q, keys).float() * softmax_scale
    scores = scores.masked_fill(hidden[:, :, None], -math.inf)
    return torch.einsum("bthk,bkd->bthd", scores.softmax(-1).to(q.dtype), keys[..., :latent_dim]).nan_to_num()


def gather_keys(kv_cache: Any, block_table: Any, seq_lens: Any) -> Any:
    """[batch, max_pages * page_size, dim]: the keys of each request one after the other, zeros behind them."""
    import torch

    keys = kv_cache[block_table.long().clamp(0, len(kv_cache) - 1)].flatten(1, 2)
    return keys.masked_fill_((torch.arange(keys.shape[1], device=keys.device) >= seq_lens[:, None])[..., None], 0.0)
