"""MlaDispatch: what a call of MLA decode takes, which kernel runs it, and how much scratch that needs.

Importing this module imports neither torch nor cutlass.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal

from cutegen.runtime.arguments import Extent, ScalarArg, TensorArg, torch_dtype
from cutegen.runtime.base import Table
from cutegen.runtime.measured import MeasuredPlan
from cutegen.runtime.mla_decode.cache_format import BYTES, CacheFormat, ExtraKeys
from cutegen.runtime.mla_decode.inputs import LATENT_DIM, QUERY_DIM, ROPE_DIM, row_dim
from cutegen.runtime.mla_decode.tiling import (
    ROW_BLOCK,
    MlaTiling,
    fewest_keys,
    parts_of,
    piece_elements,
    row_blocks,
    semaphore_count,
    work_of,
    workspace_elements,
)
from cutegen.runtime.scratch import OwnScratch

_OPEN: Extent = (1, None)
MOST_SIZES = 1024  # of the plan's own scratch, that are remembered


class MlaDispatch(MeasuredPlan):
    """The module docstring of plan.py lists what a subclass gives.

    dims: batch, query_len, heads, and kv_len, the length of a request or the largest of them; with sparse keys topk,
    the indices of a token.
    """

    family = "mla_decode"
    short_options: ClassVar[Mapping[str, str]] = {"batch": "b", "query_len": "s", "kv_len": "t"}
    dtype: ClassVar[str]
    heads: ClassVar[Extent]
    query_len: ClassVar[Extent]
    page_size: ClassVar[int]
    causal: ClassVar[bool]
    split_q: ClassVar[bool] = False
    lse_base: ClassVar[Literal["e", "2"]] = "e"
    lse_layout: ClassVar[Literal["bhs", "bsh"]] = "bhs"
    cache_format: ClassVar[CacheFormat | None] = None
    topk: ClassVar[Extent | None] = None
    has_sink: ClassVar[bool] = False
    piece_keys: ClassVar[int] = 0
    extra: ClassVar[ExtraKeys | None] = None

    def __init__(self, on_miss: Literal["compile", "warn", "error"] = "compile", sms: int | None = None) -> None:
        length: dict[str, Extent] = {"kv_len": (0, None)} if self.topk is None else {"topk": self.topk}
        self.dims = {"batch": _OPEN, "query_len": self.query_len, "heads": self.heads, **length}
        self.extents: dict[str, Extent] = {
            "batch": _OPEN,
            "query_len": self.query_len,
            "heads": self.heads,
            "pages": _OPEN,
            "page_size": self.page_size,
            "max_pages": _OPEN,
            "topk": _OPEN if self.topk is None else self.topk,
            "query_dim": self.query_dim,
            "row_bytes": self.row_bytes,
            "page_bytes": self.page_size * self.row_bytes,
            "scale": 1,
            "latent_dim": LATENT_DIM if self.cache_format is None else self.cache_format.latent_dim,
            "value_dim": LATENT_DIM,
            "rope_dim": ROPE_DIM if self.cache_format is None else self.cache_format.rope_dim,
            "workspace": (0, None),
            "semaphores": (0, None),
        }
        rows = ("batch", "query_len", "heads")
        parts = (("q_nope", "latent_dim"), ("q_pe", "rope_dim")) if self.split_q else (("q", "query_dim"),)
        self.queries = tuple(TensorArg(name, self.dtype, (*rows, dim), contiguous=3) for name, dim in parts)
        self.inputs = (
            *self.queries,
            self._cache(""),
            *(self._list_keys() if self.topk is None else self._list_sparse_keys()),
            *([TensorArg("kv_scale", "float32", ("scale",), contiguous=0, align=4)] if self.has_scale else []),
            *([TensorArg("sink", "float32", ("heads",), contiguous=0, align=4)] if self.has_sink else []),
            ScalarArg("softmax_scale"),
        )
        lse = ("batch", "heads", "query_len") if self.lse_layout == "bhs" else rows
        self.outputs = (
            TensorArg("out", self.dtype, (*rows, "value_dim"), contiguous=3),
            TensorArg("lse", "float32", lse, contiguous=2, align=4),
        )
        self.scratch = (
            TensorArg("workspace", "float32", ("workspace",), contiguous=0),
            TensorArg("semaphores", "int32", ("semaphores",), contiguous=0, align=4, zeroed=True),
        )
        self._own_scratch = OwnScratch(make_scratch)
        self._own_sizes = Table(lambda key: self.own_sizes(*key), MOST_SIZES)
        super().__init__(on_miss, sms)

    def _cache(self, which: str) -> TensorArg:
        """The cache, or with "extra_" the second one."""
        dtype, dims = self.dtype, (f"{which}pages", f"{which}page_size", "query_dim")
        if self.cache_format is not None:
            dtype, dims = BYTES, (*dims[:2], "row_bytes")
        if self.cache_format is not None and self.cache_format.plane:
            return TensorArg(f"{which}kv_cache", dtype, (dims[0], f"{which}page_bytes"), contiguous=1)
        return TensorArg(f"{which}kv_cache", dtype, dims, contiguous=2)

    def _list_keys(self) -> tuple[TensorArg, TensorArg]:
        return (
            TensorArg("block_table", "int32", ("batch", "max_pages"), contiguous=1, align=4),
            TensorArg("seq_lens", "int32", ("batch",), contiguous=0, align=4),
        )

    def _list_sparse_keys(self) -> tuple[TensorArg, ...]:
        found = (
            TensorArg("indices", "int32", ("batch", "query_len", "topk"), contiguous=2, align=4),
            TensorArg("topk_length", "int32", ("batch", "query_len"), contiguous=1, align=4),
        )
        if self.extra is None:
            return found
        self.extents |= {
            "extra_pages": _OPEN,
            "extra_page_size": self.extra.page_size,
            "extra_page_bytes": self.extra.page_size * self.row_bytes,
            "extra_topk": self.extra.topk,
        }
        return (
            *found,
            self._cache("extra_"),
            TensorArg("extra_indices", "int32", ("batch", "query_len", "extra_topk"), contiguous=2, align=4),
            TensorArg("extra_topk_length", "int32", ("batch", "query_len"), contiguous=1, align=4),
        )

    @property
    def sparse(self) -> bool:
        """Whether a call takes indices, which say what keys each token sees."""
        return self.topk is not None

    def work(self, batch: int, query_len: int, heads: int) -> tuple[int, int]:
        """(requests, rows of each) as the kernels have them; see `work_of`."""
        return work_of(batch, query_len, heads, self.topk is not None)

    @property
    def batch_invariant(self) -> bool:
        """Whether the bits of a request depend on nothing but itself; then each piece of it has a place in the
        workspace."""
        return self.piece_keys > 0

    @property
    def entry_keys(self) -> int:
        """Keys that an entry of the block table, or of the indices, stands for."""
        return self.page_size if self.topk is None else 1

    # -- the cache --

    @property
    def query_dim(self) -> int:
        """Values of a row of the queries and of the cache."""
        return row_dim(self.cache_format)

    @property
    def row_bytes(self) -> int:
        """Bytes of a row of the cache, wherever they lie."""
        return 2 * QUERY_DIM if self.cache_format is None else self.cache_format.token_bytes

    def rows_of(self, cache: Any) -> Any:
        """What rows of a cache are in memory, [pages, page_size, bytes or values], without a plane of scales."""
        form = self.cache_format
        if form is None or not form.plane:
            return cache
        return cache.as_strided((len(cache), self.page_size, form.row_bytes), (cache.stride(0), form.row_bytes, 1))

    @property
    def has_scale(self) -> bool:
        """Whether a call takes kv_scale, the one scale of a quantised cache."""
        return self.cache_format is not None and self.cache_format.per_tensor

    def pack(self, rows: Any, scales: Any = None) -> Any:
        """Rows [..., 576] of a floating dtype as the cache has them; see `CacheFormat.pack`. Of a plan whose cache is
        not quantised, the rows in its dtype; ValueError: scales for that, and rows of a cache with a plane that are no
        whole pages."""
        if self.cache_format is not None:
            if self.cache_format.plane and rows.dim() > 1 and rows.shape[-2] != self.page_size:
                raise ValueError(f"rows: need whole pages, [..., {self.page_size}, {self.query_dim}]")
            return self.cache_format.pack(rows, scales)
        if scales is not None:
            raise ValueError(f"{self.name}: its cache has no scales")
        return rows.to(torch_dtype(self.dtype))

    def unpack(self, cache: Any, scale: Any = None) -> Any:
        """The keys [..., 576] of rows of the cache, as the kernel computes with them; see `CacheFormat.unpack`."""
        return cache if self.cache_format is None else self.cache_format.unpack(cache, scale)

    # -- dispatch and sizes --

    def signature(self) -> tuple[Any, ...]:
        quantised = () if self.cache_format is None else (self.cache_format,)
        sparse, sink = (() if self.topk is None else (self.topk,)), ("sink",) * self.has_sink
        piece, extra = (self.piece_keys,) * self.batch_invariant, () if self.extra is None else (self.extra,)
        own = (*quantised, *sparse, *sink, *piece, *extra)
        return *super().signature(), self.causal, self.lse_base, self.page_size, *own

    def choose_tiling(self, rows: int, requests: int, query_len: int, /) -> str:
        (only,) = self.tilings
        return only

    def dispatch(self, device: int | None = None, /, **dims: int) -> str:
        """The key for a problem, its table being as wide as kv_len needs."""
        batch, query_len, heads, length = (dims[dim] for dim in self.dims)
        return self.choose(device, batch, query_len, heads, max(1, -(-length // self.entry_keys)))

    def choose_instance(self, inputs: Sequence[Any], dims: Mapping[str, int], sms: int | None = None) -> str:
        batch, query_len, heads, _ = inputs[0].shape
        return self.choose(inputs[0].get_device(), batch, query_len, heads, inputs[len(self.queries) + 1].shape[-1])

    def choose(self, device: int | None, batch: int, query_len: int, heads: int, width: int) -> str:
        """The key for a call on a CUDA device (None: the current one). The host does not know lengths, but how wide the
        table is: kernels that were measured with some length run calls whose table is as wide."""
        if self.winners:
            fewest = fewest_keys(width, self.entry_keys)
            if winner := self.find_winner(device, (batch, query_len, heads), fewest):
                return winner
        requests, rows = self.work(batch, query_len, heads)
        return self.choose_tiling(rows, requests, query_len)

    def workspace_shapes(self, batch: int, rows: int, sm_count: int | None = None) -> dict[str, tuple[int, ...]]:
        """The least shapes of workspace and semaphores for rows = query_len * heads, with sparse keys rows = heads, by
        name, whichever tiling runs; sm_count: of the device, by default the current one. They do not grow with the
        batch, except that bits which do not depend on it (`piece_keys`) take a workspace that does; batch: of requests,
        with sparse keys of tokens. ValueError: neither, or less than one of them."""
        if sm_count is None:
            import torch

            if not torch.cuda.is_available():
                raise ValueError(f"{self.name}: no GPU to count the SMs of; pass sm_count, 132 for an H100 SXM or H200")
            sm_count = self._sm_counts[torch.cuda.current_device()]
        for name, value in (("rows", rows), ("sm_count", sm_count)):
            if value < 1:
                raise ValueError(f"{self.name}: {name} is {value}, needs to be at least 1")
        sizes = [self._sizes_of(t, rows, sm_count, batch) for t in self.tilings.values()]
        return {"workspace": (max(s[1] for s in sizes),), "semaphores": (max(s[2] for s in sizes),)}

    def least_sms(self, key: str) -> int:
        return int(self.tilings[key].cluster)

    def fewest_sms(self, key: str, dims: Mapping[str, int]) -> int:
        """Those that a call of these extents needs."""
        _, rows = self.work(dims["batch"], dims["query_len"], dims["heads"])
        return row_blocks(rows, self.tilings[key].cluster)

    def _refuse_tiling(self, key: str, extents: Mapping[str, int], sms: int | None) -> None:
        super()._refuse_tiling(key, extents, sms)
        if sms is not None:
            requests, rows = self.work(extents["batch"], extents["query_len"], extents["heads"])
            self.size(sms, key, rows, requests)

    def size(self, sm_count: int, key: str, rows: int, requests: int) -> tuple[int, int, int]:
        """(parts, elements of the workspace, counters) of a launch on that many SMs."""
        cluster = self.tilings[key].cluster
        if row_blocks(rows, cluster) > sm_count:
            raise ValueError(f"{self.name}: {too_many_rows(rows, cluster)}; {sm_count} are to be used")
        return self._sizes_of(self.tilings[key], rows, sm_count, requests)

    def own_sizes(self, index: int, extents: Sequence[int]) -> tuple[int, int]:
        """Elements of workspace and semaphores that suffice for every promised problem on CUDA device `index`; where
        the workspace grows with the batch, for queries of these extents: (batch, query_len, heads, ..)."""
        sms = self._sm_counts[index]
        _, rows = self.work(1, _largest(self.query_len), _largest(self.heads))
        blocks = max(sms, row_blocks(rows, max(t.cluster for t in self.tilings.values())))
        # parts * rows is at most a row block for each SM, and each row block for one part.
        if self.batch_invariant:
            requests, own_rows = self.work(*extents[:3])
            return max(piece_elements(requests, t.max_splits, own_rows) for t in self.tilings.values()), blocks
        return workspace_elements(ROW_BLOCK * blocks, 1), blocks

    def _sizes_of(self, tiling: MlaTiling, rows: int, sm_count: int, requests: int) -> tuple[int, int, int]:
        parts = parts_of(rows, tiling.cluster, sm_count)
        elements = workspace_elements(rows, parts)
        if self.batch_invariant:
            elements = piece_elements(requests, tiling.max_splits, rows)
        return parts, elements, semaphore_count(rows, tiling.cluster, parts)


def too_many_rows(rows: int, cluster: int) -> str:
    blocks = row_blocks(rows, cluster)
    return f"{rows} rows (query_len * heads) are {blocks} blocks of {ROW_BLOCK}, each on an SM of its own"


def _largest(extent: Extent) -> int:
    """The upper end of a promise; a spec of this family always has one."""
    high = extent if isinstance(extent, int) else extent[1]
    assert high is not None
    return high


def make_scratch(device: Any, sizes: tuple[int, ...]) -> tuple[Any, Any]:
    import torch

    workspace, counters = sizes
    return (
        torch.empty(workspace, dtype=torch.float32, device=device),
        torch.zeros(counters, dtype=torch.int32, device=device),
    )
