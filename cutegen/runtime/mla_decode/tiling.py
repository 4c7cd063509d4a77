"""What a generated MLA decode plan and its kernels share: the numbers of one kernel instance."""

from __future__ import annotations

from dataclasses import dataclass, field

from cutegen.runtime.base import SILENT

ROW_BLOCK = 64  # query rows (query_len x heads) of one CTA: the rows of one warpgroup's WGMMA
KEY_BLOCK = 64  # keys of one K buffer; a step works on a pair of them
MAX_PARTS = 255  # of a launch: what a byte counts, of which counters of parts are made
# Of softmax_scale: normal numbers of f32, as are their products with log2(e), by which the kernel multiplies scores.
LEAST_SCALE, MOST_SCALE = 2.0**-126, 2.0**127


@dataclass(frozen=True, slots=True)
class MlaTiling:
    """Resolved numbers of one MLA decode kernel; `resolve` computes them, the kernel reads and asserts them.

    cluster: CTAs (row blocks) that share loads of the cache by multicast. page_size: tokens of one cache page.
    threads: CTA size. producer_registers, consumer_registers: setmaxnreg values per thread, or 0. smem_bytes: size of
    SharedStorage. unit: key blocks that requests are cut by a multiple of, 1 or 2. overhead: what a request costs
    beside its key blocks, in pairs of blocks. join_ratio: cost of a pair of blocks over cost of joining one more part,
    which bounds how finely a request is cut. max_splits: most parts of one request, 0 for no bound. split_columns: two
    CTAs may share the columns of a part's O, as `shares_columns` decides. prefetch: pairs of blocks that are fetched to
    L2 ahead of their load. pdl_wait: waits for the kernel before it, by programmatic dependent launch. pdl_trigger: the
    next one may start when all CTAs have issued their last loads of K. pdl_schedule_ahead: finds its part of the work
    before it waits, and again behind it if lengths have changed. pdl_load_ahead: loads the first keys of it before,
    too, but for blocks with new tokens. stages: slots of the ring of K and V, of the kernel of a pair of CTAs.
    """

    cluster: int
    page_size: int
    threads: int
    producer_registers: int
    consumer_registers: int
    smem_bytes: int
    unit: int
    overhead: int
    join_ratio: int
    max_splits: int
    split_columns: bool
    prefetch: int
    pdl_wait: bool
    pdl_trigger: bool
    pdl_schedule_ahead: bool
    pdl_load_ahead: bool
    stages: int = field(default=0, metadata=SILENT)


def shares_columns(batch, rows, parts, blocks):  # type: ignore[no-untyped-def]
    """Whether two CTAs share the columns of a part, where a kernel may: storing and joining partial results then takes
    half as long, and each key is loaded twice. The device decides, as it knows the lengths; so these are its numbers,
    or Python's. batch: None for a single request, which has a way of its own on the device. parts: of CTAs that share
    nothing; blocks: of the keys of all requests, each request's a multiple of the unit. What a part may have then is
    measured on an H200 (docs/lab/2026-11-mla-decode.md): up to 16 rows there is little to store, and many requests
    join little.
    """
    few = blocks * 8 <= parts
    if batch is None:
        short = (rows > 16) & ((blocks <= parts) | (rows <= 128) & (blocks <= parts * 2))
    else:
        short = (rows > 16) & (blocks * 2 <= parts) | (rows > 32) & (blocks <= parts) & (batch * 2 <= parts)
    return (parts > 1) & (few | short)


def work_of(batch: int, query_len: int, heads: int, sparse: bool) -> tuple[int, int]:
    """(requests, rows of each) as a kernel has them. Tokens with sparse keys have each their own, so each is a request
    with heads for rows; else the rows of a request are its tokens times heads."""
    return (batch * query_len, heads) if sparse else (batch, query_len * heads)


def row_blocks(rows: int, cluster: int) -> int:
    """CTAs along the rows of one request, a multiple of the cluster."""
    return -(-rows // (ROW_BLOCK * cluster)) * cluster


def parts_of(rows: int, cluster: int, sm_count: int) -> int:
    """Parts that the keys of all requests are cut into: one CTA per SM in all."""
    return min(max(1, sm_count // row_blocks(rows, cluster)), MAX_PARTS)


def fewest_keys(max_pages: int, page_size: int) -> int:
    """The least length that needs a table of `max_pages`: what the host takes a call's to be, which it cannot read."""
    return (max_pages - 1) * page_size + 1


def workspace_elements(rows: int, parts: int) -> int:
    """f32 elements for the partial results of cut requests: per part two slots, of 512 f16 values and two f32 a row."""
    return 2 * parts * rows * (512 // 2 + 2)


def piece_elements(requests: int, most: int, rows: int) -> int:
    """The same for requests that their own lengths cut, into at most `most` parts: a slot for each."""
    return requests * most * rows * (512 // 2 + 2) if most > 1 else 0


def semaphore_count(rows: int, cluster: int, parts: int) -> int:
    """int32 counters, one per row block and part; zero before the first launch, and left zero by every launch."""
    return row_blocks(rows, cluster) * parts
