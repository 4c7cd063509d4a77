"""Random problems of MLA decode with sparse keys: indices that a kernel which reads what it should not, or counts a key
that is none, shows in its result."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cutegen.runtime.mla_decode.inputs import PEAK, SPARE_PAGES, Draw, draw_lengths, draw_rows, row_dim

ROOM = 4  # rows of a request in the cache for each index of a token: of so many the keys are a selection
NONE = -1  # an index without a key
HOLES = 3  # one of so many indices is none, with `keys: holes`


def draw_sparse_inputs(
    draw: Draw, dims: Mapping[str, int], page_size: int, dtype: Any, device: str, cache_format: Any = None
) -> tuple[Any, Any, Any, Any]:
    """(q, kv_cache, indices, topk_length). Shapes follow from dims alone. NaN in all rows of the cache that no index
    within its token's length names, and beyond a length indices of any value."""
    import torch

    batch, query_len, topk, dim = dims["batch"], dims["query_len"], dims["topk"], row_dim(cache_format)
    width = -(-ROOM * topk // page_size)  # pages of a request
    pages, layers = batch * width + SPARE_PAGES, 3 if draw.pitch else 1
    table = torch.randperm(pages)[: batch * width].view(batch, 1, width)
    lengths = torch.tensor(draw_lengths(draw.lengths, batch * query_len, topk), dtype=torch.int32)
    lengths = lengths.view(batch, query_len)
    keys = torch.rand(batch, query_len, width * page_size).argsort(-1)[..., :topk]
    if draw.keys == "repeated":
        keys = keys[..., torch.randint(topk, (topk,)) // 2]
    indices = torch.take_along_dim(table, keys // page_size, -1) * page_size + keys % page_size
    if draw.keys == "holes":
        hidden = torch.rand(indices.shape) * HOLES < 1
        wrong = torch.tensor((NONE, pages * page_size, 2**31 - 1, -(2**31)))
        indices = torch.where(hidden, wrong[torch.randint(len(wrong), indices.shape)], indices)
    elif draw.keys == "none":
        indices = torch.full_like(indices, NONE)
    place = torch.arange(topk)
    live = (place < lengths[..., None]) & (indices >= 0) & (indices < pages * page_size)
    used = indices[live].unique()
    if cache_format is None:
        pool = torch.full((pages, layers, page_size, dim), float("nan"), dtype=dtype, device=device)
    else:  # NaN of every type that a part has
        pool = torch.full((pages, layers, page_size, cache_format.token_bytes), 0xFF, dtype=torch.uint8, device=device)
    cache = pool[:, layers // 2]

    def fill(rows: Any, factor: float) -> None:
        at = (rows // page_size).to(device), (rows % page_size).to(device)
        if cache_format is None:
            cache[at] = torch.randn(len(rows), dim, dtype=dtype, device=device) * factor
        else:
            cache[at] = draw_rows(cache_format, (len(rows),), device, factor)

    fill(used, 1.0)
    if draw.peaked:
        fill(indices[live & (place >= lengths[..., None] - 2)].unique(), PEAK)
    if cache_format is not None:
        laid = cache_format.lay_out(cache)
        cache = (cache.flatten(-2) if cache_format.plane else cache).copy_(laid)
    anything, rows = torch.randint(-(2**31), 2**31, indices.shape), torch.randint(pages * page_size, indices.shape)
    garbage = torch.where(torch.rand(indices.shape) < 0.5, anything, rows)  # rows that exist as well
    indices = torch.where(place < lengths[..., None], indices, garbage).int()
    q = torch.randn(batch, query_len, dims["heads"], dim, dtype=dtype, device=device)
    return q, cache, indices.to(device), lengths.to(device)
