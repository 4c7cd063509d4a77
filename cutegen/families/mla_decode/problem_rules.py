"""Rules about the extents of an MLA decode, which no choice of knobs can mend."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from cutegen.diagnostics import Rule, register
from cutegen.families.mla_decode.problem import MlaProblem
from cutegen.families.refusal import nearest
from cutegen.runtime.mla_decode.cache_format import CacheFormat
from cutegen.runtime.mla_decode.inputs import LATENT_DIM, ROPE_DIM
from cutegen.runtime.mla_decode.tiling import KEY_BLOCK, ROW_BLOCK

PAGE_SIZES = (16, 32, 64, 128)
MOST_PAGE = 1024  # tokens of a page whose rows indices name
MAX_HEADS = 128
MAX_QUERY_LEN = 16
NARROW = ((LATENT_DIM, 0), (LATENT_DIM - ROPE_DIM, ROPE_DIM))  # values of quantised rows that O has all columns of
CHUNK = 16  # bytes of one load of a quantised row
SCALE_BLOCKS = (64, 128, 256, 512)  # values that may share a scale: whole tiles of 64

Fault: TypeAlias = "tuple[str, str]"  # reason, remedy
Check: TypeAlias = Callable[[MlaProblem], "Fault | None"]
CHECKS: list[tuple[Rule, tuple[str, ...], Check]] = []  # rule, path of the blamed key, predicate


def _declare(rule: Rule, *paths: tuple[str, ...]) -> Callable[[Callable[[MlaProblem, str], Fault | None]], None]:
    """Register `rule`, and list its predicate for each of the keys; it gets the key's last step."""
    register(rule)

    def wrap(check: Callable[[MlaProblem, str], Fault | None]) -> None:
        CHECKS.extend((rule, path, lambda problem, key=path[-1]: check(problem, key)) for path in paths)  # type: ignore[misc]

    return wrap


@_declare(
    Rule(
        "head-dims",
        f"a cache row has {LATENT_DIM} latent and {ROPE_DIM} rotary values; a quantised one may have "
        f"{LATENT_DIM} and none, or {LATENT_DIM - ROPE_DIM} and {ROPE_DIM}",
        f"Each of the two consumer warpgroups holds {ROW_BLOCK} rows x 256 columns of O in registers, so O has "
        f"{LATENT_DIM} columns. K has {ROPE_DIM} more: one tile of {KEY_BLOCK} keys x {ROPE_DIM}, whose place in SMEM "
        "P takes once the scores are there. Where a row has no more than O, that place is P's alone.",
        "latent_dim: 256",
    ),
    ("latent_dim",),
    ("rope_dim",),
)
def head_dims(problem: MlaProblem, key: str) -> Fault | None:
    value, only = getattr(problem, key), LATENT_DIM if key == "latent_dim" else ROPE_DIM
    dims = problem.latent_dim, problem.rope_dim
    scaled = problem.cache is not None and not problem.cache.per_tensor
    if value == only or (scaled and dims in NARROW):
        return None
    reason = f"{key} is {value}; {only} is supported"
    if dims in NARROW:
        return f"{reason}, and {value} where a cache has scales", f"use {only}, or name `kv_cache.latent.scale`"
    return reason, f"use {only}, or leave it out"


@_declare(
    Rule(
        "page-size",
        f"a page has {', '.join(map(str, PAGE_SIZES[:-1]))} or {PAGE_SIZES[-1]} tokens, with sparse keys "
        f"1 to {MOST_PAGE}",
        f"A block of {KEY_BLOCK} keys is loaded page by page, so a page holds whole blocks or a block whole pages. "
        "With fewer than 16 tokens a page, each tile would need more than four bulk copies; "
        "rows that indices name are loaded one by one. A page begins at a multiple of 16 bytes, so with 584 bytes a "
        "token it has an even number of them.",
        "kv_cache: {page_size: 48}",
    ),
    ("kv_cache", "page_size"),
)
def page_size(problem: MlaProblem, key: str) -> Fault | None:
    size = problem.page_size
    if problem.sparse:
        return _sparse_page(problem, size, "a page")
    if size in PAGE_SIZES:
        return None
    reason = f"a page has {size} tokens; a block of {KEY_BLOCK} keys is made of whole pages, or a page of whole blocks"
    return reason, f"use {nearest(size, PAGE_SIZES)}"


def _sparse_page(problem: MlaProblem, size: int, page: str) -> Fault | None:
    """page: whose it is, in words."""
    if size > MOST_PAGE:
        return f"{page} has {size} tokens, at most {MOST_PAGE}", f"use {MOST_PAGE}"
    if (over := size * problem.row_bytes % CHUNK) and problem.cache and problem.cache.plane:
        reason = f"{page} has {size} tokens of {problem.row_bytes} bytes, {over} over a multiple of {CHUNK}"
        return reason, f"use {size - 1 or 2} or {size + 1}"
    return None


@_declare(
    Rule(
        "ready-argument",
        "what is ready before the preceding kernel starts is named once",
        "`pdl: {ready: [block_table, kv_cache]}` lets kernels load the first keys of their part before they "
        "wait for the preceding kernel. Queries are what that one writes; of lengths nothing needs to be promised.",
        "pdl: {ready: [kv_cache, kv_cache]}",
    ),
    ("pdl", "ready"),
)
def ready_argument(problem: MlaProblem, key: str) -> Fault | None:
    twice = next((name for name in problem.ready if problem.ready.count(name) > 1), None)
    return (f"`{twice}` is named twice", "drop one of them") if twice else None


@_declare(
    Rule(
        "promised-extent",
        f"at most {MAX_HEADS} heads and {MAX_QUERY_LEN} new tokens are promised",
        f"The rows of a request, query_len x heads, are cut into blocks of {ROW_BLOCK}; each has a CTA of its own that "
        f"reads all keys. {MAX_HEADS} x {MAX_QUERY_LEN} rows are {MAX_HEADS * MAX_QUERY_LEN // ROW_BLOCK} blocks; with "
        "more new tokens a prefill kernel is faster.",
        "query_len: [1, 64]",
    ),
    ("heads",),
    ("query_len",),
)
def promised_extent(problem: MlaProblem, key: str) -> Fault | None:
    high, most = getattr(problem, key)[1], MAX_HEADS if key == "heads" else MAX_QUERY_LEN
    if high <= most:
        return None
    return f"{key} goes up to {high}; {most} is the most", f"use at most {most}"


FIXED_CUT = Rule(
    "fixed-cut",
    f"the keys of a part that `invariance: batch` cuts are a multiple of {2 * KEY_BLOCK}",
    "Requests are then cut by their own lengths alone, at pairs of key blocks: `split_kv: {keys: 512, max: 8}` makes "
    "parts of at most 512 keys, and of requests with more than 8 times that 8 longer ones. Without `invariance: batch` "
    "parts are as long as balances the SMs, and `keys` has no meaning.",
    "invariance: batch\nsplit_kv: {keys: 500}",
)


SPLIT_QUERIES = Rule(
    "split-queries",
    "queries in two tensors have a rotary part",
    "`q: split` passes the latent and the rotary part of the queries as two tensors; rows without a rotary part have "
    "one.",
    "rope_dim: 0\nq: split",
)


@_declare(SPLIT_QUERIES, ("q",))
def split_queries(problem: MlaProblem, key: str) -> Fault | None:
    if problem.q == "joined" or problem.rope_dim:
        return None
    return "rope_dim is 0: there is no q_pe", "write `q: joined`"


@_declare(FIXED_CUT, ("split_kv", "keys"))
def fixed_cut(problem: MlaProblem, key: str) -> Fault | None:
    step = 2 * KEY_BLOCK
    if problem.piece % step == 0:
        return None
    reason = f"a part has {problem.piece} keys; it is made of pairs of blocks of {KEY_BLOCK}"
    return reason, f"use {max(step, round(problem.piece / step) * step)}"


SPARSE_KEYS = Rule(
    "sparse-keys",
    "sparse keys go with `mask: none`, and nothing is ready before the preceding kernel",
    "Each token sees the rows of the cache that its indices name, whatever their order. What selects keys runs "
    "directly before, so all is loaded behind the wait.",
    "keys: {topk: 2048}",
)


@_declare(SPARSE_KEYS, ("mask",), ("pdl", "ready"))
def sparse_keys(problem: MlaProblem, key: str) -> Fault | None:
    if not problem.sparse:
        return None
    if key == "mask" and problem.mask == "causal":
        return "indices say which keys each token sees, in no order that a mask could go by", "write `mask: none`"
    if key == "ready" and problem.ready:
        return "indices are written by what selects keys, and rows are loaded behind the wait", "drop `ready`"
    return None


EXTRA_KEYS = Rule(
    "extra-keys",
    f"pages of a second cache are as those of the first with sparse keys, of 1 to {MOST_PAGE} tokens",
    "`keys: {extra: ..}` gives each token keys of a second cache, of the same format as the first: that of a model "
    "that keeps recent and compressed tokens apart.",
    "keys: {topk: 128, extra: {topk: [1, 1024], page_size: 2000}}",
)


@_declare(EXTRA_KEYS, ("keys", "extra", "page_size"))
def extra_keys(problem: MlaProblem, key: str) -> Fault | None:
    return _sparse_page(problem, problem.extra.page_size, "a page of the second cache") if problem.extra else None


CACHE_PARTS = Rule(
    "cache-parts",
    "the parts of a quantised cache row fill it without overlap",
    f"`latent`, its scales and `rope` lie where `offset` says, by default one behind the other. Threads load {CHUNK} "
    f"bytes at a time, so the latent and the rotary part and the next row begin at multiples of {CHUNK}; scales are "
    "f32, at multiples of 4, one for one or more tiles of 64 values; or they lie in a plane behind the rows of a page, "
    "in f32 or e8m0. Without them both parts are e4m3, and a call has one scale. Values are decoded to bf16.",
    "kv_cache: {latent: {dtype: e4m3, scale: {dtype: f32, block: 128}}, rope: {dtype: bf16, offset: 512}}",
)


@_declare(
    CACHE_PARTS,
    ("kv_cache", "latent", "scale", "block"),
    ("kv_cache", "latent"),
    ("kv_cache", "latent", "scale"),
    ("kv_cache", "rope"),
    ("kv_cache", "row_bytes"),
    ("dtype",),
)
def cache_parts(problem: MlaProblem, key: str) -> Fault | None:
    cache = problem.cache
    if cache is None:
        return None
    if key == "dtype":
        fits = problem.dtype.name == "bf16"
        return None if fits else (f"quantised keys are decoded to bf16, queries are {problem.dtype}", "use bf16")
    if cache.per_tensor:
        return None if key in ("block", "scale") else _place_fault(cache, key)
    if key == "block":
        blocks = [block for block in SCALE_BLOCKS if cache.latent_dim % block == 0]
        if cache.scale_block in blocks:
            return None
        reason = f"a scale is for {cache.scale_block} values; one or more tiles of 64 have one"
        if cache.scale_block in SCALE_BLOCKS:
            reason = f"{cache.latent_dim} values are not a multiple of {cache.scale_block}"
        return reason, f"use {nearest(cache.scale_block, blocks)}"
    if cache.scale_block not in SCALE_BLOCKS or cache.latent_dim % cache.scale_block:
        return None  # how many scales there are is not known
    return _place_fault(cache, key)


def _place_fault(cache: CacheFormat, key: str) -> Fault | None:
    return _row_fault(cache) if key == "row_bytes" else _part_fault(cache, key)


def _part_fault(cache: CacheFormat, key: str) -> Fault | None:
    """Of a part: alignment, and bytes that an earlier one has as well."""
    if key not in cache.parts:
        return None
    begin, size = cache.parts[key]
    step = 4 if key == "scale" else CHUNK
    if begin % step:
        return (
            f"{key} begins at byte {begin} of a row; it is loaded {step} bytes at a time",
            f"use a multiple of {step}",
        )
    for name, (other, others) in cache.parts.items():
        if name == key:
            return None
        if begin < other + others and other < begin + size:
            reason = f"{key} has bytes {begin} to {begin + size - 1} of a row, {name} {other} to {other + others - 1}"
            return reason, "give each part bytes of its own, or leave `offset` out"
    return None


def _row_fault(cache: CacheFormat) -> Fault | None:
    end = max(begin + size for begin, size in cache.parts.values())
    held = sum(size for _, size in cache.parts.values())
    if cache.row_bytes < end:
        return f"a row of {cache.row_bytes} bytes cuts a part: the last one ends at byte {end}", f"use {end}"
    if cache.row_bytes > held:
        reason = f"a row has {cache.row_bytes} bytes, its parts {held}"
        return reason, f"use {held}, and parts one behind the other"
    return None
