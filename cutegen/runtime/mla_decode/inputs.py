"""Random problems of MLA decode, made so that a kernel which reads what it should not, or misses a key, is seen."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

LATENT_DIM, ROPE_DIM = 512, 64  # of a row of the cache, the latent part first
QUERY_DIM = LATENT_DIM + ROPE_DIM
SPARSE_ROW = 656  # bytes of a row of the cache that FlashMLA's sparse attention reads
# What a page table may hold past a request's pages: a serving stack leaves old or marked entries there.
GARBAGE = (2_147_480_000, -1, -(2**31))
# Pages of the pool that belong to nobody, and columns of the table past the longest request.
SPARE_PAGES, SPARE_COLUMNS = 3, 2
# Lengths around the blocks of 64 keys, pairs of them, and every page size.
EDGES = (0, 1, 2, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 129, 191, 192, 193, 255, 256, 257)
PEAK = 4.0
LARGE = 0x78  # the byte of 256; those from it on are about PEAK times all finite ones, in the mean square
ONE_SCALE = 0.0043  # of a whole cache; no power of two
FINITE = 0x7F  # bytes of e4m3 without sign that are finite
SCALE_RANGE = (-9.0, -6.0)  # binary logarithms of scales, with which values as large as 448 are about 1
Lengths: TypeAlias = Literal["equal", "spread", "gaps", "random", "edges", "long", "empty"]
Keys: TypeAlias = Literal["distinct", "repeated", "holes", "none"]


@dataclass(frozen=True, slots=True)
class Draw:
    """lengths: of the requests, kv_len being the largest: all "equal", "spread" evenly over 1 to kv_len in a scattered
    order, the same ones every time, or so with "gaps", every other one being 0, drawn at "random", "edges" of blocks
    and pages, few tokens and one "long" request, or none ("empty"). peaked: the last keys of a request get nearly all
    the weight, so that the error of a missed or invented key is of the size of the output. pitch: the cache is one
    layer of a pool of three, whose pages lie side by side. keys: sparse ones of a token, all "distinct"; "repeated",
    half of them or more a second time; "holes", some of no row of the cache, -1 and others; or "none", -1
    throughout."""

    lengths: Lengths = "equal"
    peaked: bool = False
    pitch: bool = False
    keys: Keys = "distinct"


EQUAL = Draw()
GOLDEN = 2_654_435_769  # 2^32 over the golden ratio: its multiples modulo 2^32 are spread evenly, however many


def draw_inputs(
    draw: Draw,
    dims: Mapping[str, int],
    page_size: int,
    dtype: Any,
    device: str,
    cache_format: Any = None,
) -> tuple[Any, Any, Any, Any]:
    """(q, kv_cache, block_table, seq_lens). Shapes follow from dims alone, so that equal problems can replace each
    other's contents. cache_format: the CacheFormat of a quantised cache."""
    import torch

    batch, kv_len, dim = dims["batch"], dims["kv_len"], row_dim(cache_format)
    lengths = torch.tensor(draw_lengths(draw.lengths, batch, kv_len), dtype=torch.int32)
    width = -(-kv_len // page_size)
    pages = batch * width + SPARE_PAGES
    layers = 3 if draw.pitch else 1
    if cache_format is None:
        pool = torch.full((pages, layers, page_size, dim), float("nan"), dtype=dtype, device=device)
    else:  # NaN of every type that a part has
        row = cache_format.token_bytes
        pool = torch.full((pages, layers, page_size, row), 0xFF, dtype=torch.uint8, device=device)
    cache = pool[:, layers // 2]
    table = torch.randperm(pages)[: batch * width].view(batch, width)
    slots = torch.arange(width * page_size).view(width, page_size)
    valid = (slots < lengths.view(-1, 1, 1)).to(device)  # [batch, width, page_size]
    used = table[(torch.arange(width) * page_size < lengths.view(-1, 1))].to(device)
    lead = (len(used), page_size)
    if cache_format is None:
        cache[used] = torch.randn(*lead, dim, dtype=dtype, device=device)
    else:
        cache[used] = draw_rows(cache_format, lead, device)
    if draw.peaked:
        last = ((slots >= lengths.view(-1, 1, 1) - 2 - dims["query_len"]).to(device) & valid).nonzero(as_tuple=True)
        where = table.to(device)[last[0], last[1]], last[2]
        if cache_format is None:
            cache[where] = cache[where] * PEAK
        else:
            cache[where] = draw_rows(cache_format, (len(where[0]),), device, PEAK)
    partial = valid.any(2) & ~valid.all(2)  # nobody's pages are NaN already
    ragged = table.to(device)[partial]
    cache[ragged] = cache[ragged].masked_fill(
        ~valid[partial].unsqueeze(-1), float("nan") if cache_format is None else 0xFF
    )
    if cache_format is not None:
        laid = cache_format.lay_out(cache)
        cache = (cache.flatten(-2) if cache_format.plane else cache).copy_(laid)
    padded = torch.tensor(GARBAGE, dtype=torch.int64)[torch.randint(len(GARBAGE), (batch, width + SPARE_COLUMNS))]
    padded[:, :width] = torch.where(torch.arange(width) * page_size < lengths.view(-1, 1), table, padded[:, :width])
    q = torch.randn(batch, dims["query_len"], dims["heads"], dim, dtype=dtype, device=device)
    return q, cache, padded.int().to(device), lengths.to(device)


def row_dim(cache_format: Any) -> int:
    """Values of a row of the cache."""
    return QUERY_DIM if cache_format is None else int(cache_format.dim)


def draw_rows(cache_format: Any, lead: tuple[int, ...], device: str, factor: float = 1.0) -> Any:
    """Rows u8[*lead, token_bytes] of a quantised cache, as `assemble` has them: each finite byte of e4m3 equally often,
    scales that bf16 rounds, or powers of two, rotary values N(0, 1). factor: of all values."""
    import torch

    def draw_bytes(count: int, least: int = 0) -> Any:
        codes = torch.randint(2 * (FINITE - least), (*lead, count), device=device)
        sizes = least + codes % (FINITE - least)
        return (sizes + codes // (FINITE - least) * 0x80).to(torch.uint8).view(torch.float8_e4m3fn)

    if cache_format.per_tensor:  # a row has no factor of its own
        least = LARGE if factor > 1.0 else 0
        return cache_format.assemble(draw_bytes(LATENT_DIM, least), None, draw_bytes(ROPE_DIM, least))
    latent = draw_bytes(cache_format.latent_dim)
    powers = torch.empty(*lead, cache_format.scales, device=device).uniform_(*SCALE_RANGE)
    scales = torch.exp2(powers.round() if cache_format.scale_dtype == "e8m0" else powers) * factor
    return cache_format.assemble(latent, scales, torch.randn(*lead, cache_format.rope_dim, device=device) * factor)


def draw_sink(heads: int) -> Any:
    """f32[heads] about as large as the log-sum-exp of some hundred keys; of several heads one has no sink, and one
    nothing but a sink."""
    import torch

    sink = torch.empty(heads).uniform_(-2.0, 8.0)
    if heads > 2:
        sink[1], sink[2] = -math.inf, math.inf
    return sink


def crest_factor(cache_format: Any) -> float:
    """Of the latent parts of `draw_rows`: the largest value over the root mean square expected of a row. Where
    blocks have a scale each, one of them may have all of its row's size. 0.0: drawn from N(0, 1), as the
    tolerance assumes."""
    import torch

    if cache_format is None:
        return 0.0
    values = torch.arange(FINITE, dtype=torch.uint8).view(torch.float8_e4m3fn).double()
    rms = values.square().mean().sqrt()
    blocks = 1 if cache_format.per_tensor else cache_format.scales
    return float(values.max() / rms) * math.sqrt(blocks)


def draw_lengths(kind: str, batch: int, longest: int) -> list[int]:
    """Of requests, as `Draw` says; `longest` is among them."""
    import torch

    if kind == "empty":
        return [0] * batch
    if kind == "equal" or batch == 0:
        return [longest] * batch
    if kind in ("spread", "gaps"):
        spread = [longest - ((i * GOLDEN % 2**32) * longest >> 32) for i in range(batch)]
        return [n if i % 2 == 0 or kind == "spread" else 0 for i, n in enumerate(spread)]
    if kind == "long":
        found = torch.randint(0, min(longest, 100) + 1, (batch,)).tolist()
    elif kind == "random":
        found = torch.randint(0, longest + 1, (batch,)).tolist()
    else:
        edges = [n for n in (*EDGES, longest - 1) if 0 <= n <= longest]
        start = int(torch.randint(len(edges), ()))
        found = [edges[(start + i) % len(edges)] for i in range(batch)]
    if kind != "edges" and batch > 2:  # padded rows of a captured batch
        found[int(torch.randint(batch, ()))] = 0
    found[int(torch.randint(batch, ()))] = longest
    return found
