"""What an MLA decode spec computes: its tensors in order of a call, and what is promised of their extents."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from cutegen.dtypes import DTYPES, DType
from cutegen.runtime.mla_decode.cache_format import BYTES, CacheFormat, ExtraKeys
from cutegen.runtime.mla_decode.inputs import LATENT_DIM
from cutegen.runtime.mla_decode.tiling import KEY_BLOCK, work_of

Ready: TypeAlias = Literal["block_table", "kv_cache"]  # inputs that a spec may promise to be there early
BYTE = DType("u8", 8, BYTES, "Uint8")  # of a quantised cache; no element type of the spec language
PIECE_KEYS = 256  # of a piece where bits may not depend on the batch, unless a spec says another number
KEYS: tuple[Ready, ...] = ("block_table", "kv_cache")  # what keys are read from; lengths are guessed, and checked


@dataclass(frozen=True, slots=True)
class MlaTensor:
    """One argument. dims: the torch shape in names and numbers; () for a number passed by value. is_: what it holds."""

    name: str
    dtype: DType
    dims: tuple[str, ...]
    is_: str


@dataclass(frozen=True, slots=True)
class MlaProblem:
    """out[b, s, h] = sum over keys j of softmax_j(softmax_scale q[b, s, h] . k[b, j]) k[b, j, :512].

    k[b, j] is row j % page_size of page block_table[b, j // page_size] of kv_cache, for j < seq_lens[b]; mask causal:
    token s sees j < seq_lens[b] - (query_len - 1) + s. With sparse keys each token has its own: k[b, s, j] is row
    indices[b, s, j] of the cache, its pages one after the other, for j < topk_length[b, s]; an index that is none of
    its rows is not a key. A row without a key has out 0 and lse +inf.
    heads, query_len: promised (low, high), equal for a constant. ready: inputs that were written before the kernel in
    front could start. cache: the rows of a quantised cache; None: they are of `dtype`. topk: promised (low, high) of
    a token's indices; None: keys are dense, those of a block table. sink: e^sink[h] is added to the sum of weights by
    which out is divided, and not to lse. piece: keys of the pieces that requests are cut into where their bits may
    depend on nothing else; 0: they may depend on the whole batch. extra: each token
    has keys of a second cache as well, by indices of their own.
    """

    dtype: DType
    heads: tuple[int, int]
    query_len: tuple[int, int]
    latent_dim: int
    rope_dim: int
    q: Literal["joined", "split"]
    mask: Literal["causal", "none"]
    page_size: int
    lse_base: Literal["e", "2"]
    lse_layout: Literal["bhs", "bsh"]
    ready: tuple[Ready, ...] = ()
    cache: CacheFormat | None = None
    topk: tuple[int, int] | None = None
    sink: bool = False
    piece: int = 0
    extra: ExtraKeys | None = None

    @property
    def sparse(self) -> bool:
        """Whether indices say which keys a token sees."""
        return self.topk is not None

    @property
    def by_rows(self) -> bool:
        """Whether a warpgroup loads K row by row, to decode it or because indices name rows; else TMA loads it."""
        return self.cache is not None or self.sparse

    @property
    def length(self) -> str:
        """The dim of a call that is the most keys of a request, or of a token."""
        return "topk" if self.sparse else "kv_len"

    @property
    def requests(self) -> str:
        """What a kernel's requests are called where the plan chooses one; see `work`."""
        return "requests" if self.sparse else "batch"

    @property
    def table(self) -> str:
        """The input that says where keys are."""
        return "indices" if self.sparse else "block_table"

    @property
    def lengths(self) -> str:
        """The input that says how many keys there are."""
        return "topk_length" if self.sparse else "seq_lens"

    def work(self, batch: int, query_len: int, heads: int) -> tuple[int, int]:
        """(requests, rows of each) of a call, as the kernel has them; see `work_of`."""
        return work_of(batch, query_len, heads, self.sparse)

    @property
    def head_dim(self) -> int:
        """Values of a row of Q and K."""
        return self.latent_dim + self.rope_dim

    @property
    def value_dim(self) -> int:
        """Values of a row of O: those of the latent part, or of all of a row that has no more."""
        return LATENT_DIM

    @property
    def narrow(self) -> bool:
        """Whether a row of K has no more values than one of O."""
        return self.head_dim == self.value_dim

    @property
    def row_bytes(self) -> int:
        """Bytes of a row of the cache, wherever they lie."""
        return self.cache.token_bytes if self.cache else self.head_dim * self.dtype.bytes

    @property
    def boxes(self) -> int:
        """TMA copies that fill one tile of a block of keys: one a page, where a page is smaller than a block."""
        return max(1, KEY_BLOCK // self.page_size)

    @property
    def rows(self) -> tuple[int, int]:
        """Promised (low, high) query rows of a request: query_len x heads, with sparse keys heads."""
        low, high = (self.work(1, q, h)[1] for q, h in zip(self.query_len, self.heads))
        return low, high

    @property
    def inputs(self) -> tuple[MlaTensor, ...]:
        """In order of a call."""
        rows, i32, f32 = ("batch", "query_len", "heads"), DTYPES["i32"], DTYPES["f32"]
        pages = f"page of every {self.page_size} keys, garbage past them"
        latent, rope, both = str(self.latent_dim), str(self.rope_dim), str(self.head_dim)
        scale = MlaTensor("kv_scale", f32, ("1",), "factor of all values of the cache")
        queries = [MlaTensor("q", self.dtype, (*rows, both), "queries, latent part first")]
        if self.q == "split":
            queries = [
                MlaTensor("q_nope", self.dtype, (*rows, latent), "latent part of the queries"),
                MlaTensor("q_pe", self.dtype, (*rows, rope), "rotary part of the queries"),
            ]
        dense = (
            MlaTensor("block_table", i32, ("batch", "max_pages"), pages),
            MlaTensor("seq_lens", i32, ("batch",), "keys of each request, 0 allowed"),
        )
        sparse = (
            MlaTensor("indices", i32, ("batch", "query_len", "topk"), "row of the cache of each key, -1 for none"),
            MlaTensor("topk_length", i32, ("batch", "query_len"), "indices of each token that count, from the first"),
        )
        extra: tuple[MlaTensor, ...] = ()
        if self.extra:
            rows_of_page = f"a second cache, pages of {self.extra.page_size} rows"
            extra = (
                self._cache("extra_kv_cache", "extra_pages", self.extra.page_size, rows_of_page),
                MlaTensor("extra_indices", i32, ("batch", "query_len", "extra_topk"), "rows of it, -1 for none"),
                MlaTensor("extra_topk_length", i32, ("batch", "query_len"), "how many of these count, from the first"),
            )
        return (
            *queries,
            self._cache("kv_cache", "pages", self.page_size),
            *(sparse if self.sparse else dense),
            *extra,
            *([scale] if self.cache is not None and self.cache.per_tensor else []),
            *([MlaTensor("sink", f32, ("heads",), "logit of each head without a value")] if self.sink else []),
            MlaTensor("softmax_scale", f32, (), "factor of the scores, a number"),
        )

    def _cache(self, name: str, pages: str, page_size: int, is_: str = "") -> MlaTensor:
        """is_: what a cache holds that is not the first one."""
        dims = (pages, str(page_size))
        held = is_ or ("paged K, which is V as well" if self.narrow else "paged K; V is its latent part")
        if self.cache is None:
            return MlaTensor(name, self.dtype, (*dims, str(self.head_dim)), held)
        if self.cache.plane:
            whole = (pages, str(page_size * self.row_bytes))
            planes = is_ or f"bytes of pages of {page_size} rows, then their scales: {held}; PLAN.pack writes them"
            return MlaTensor(name, BYTE, whole, planes)
        return MlaTensor(name, BYTE, (*dims, str(self.row_bytes)), is_ or f"bytes of {held}; PLAN.pack writes them")

    @property
    def outputs(self) -> tuple[MlaTensor, ...]:
        """In order of a call."""
        names = {"b": "batch", "h": "heads", "s": "query_len"}
        lse = tuple(names[letter] for letter in self.lse_layout)
        base = "natural logarithm" if self.lse_base == "e" else "base 2"
        return (
            MlaTensor("out", self.dtype, ("batch", "query_len", "heads", str(self.value_dim)), "attention output"),
            MlaTensor("lse", DTYPES["f32"], lse, f"log-sum-exp of the scores, {base}, +inf without a key"),
        )

    @property
    def scratch(self) -> tuple[MlaTensor, ...]:
        """Buffers of the caller, behind the outputs: see cutegen.runtime.mla_decode.tiling for their sizes."""
        slots = f"{self.requests} x split_kv.max" if self.piece else "2 x parts"
        return (
            MlaTensor("workspace", DTYPES["f32"], (f"{slots} x rows x 258",), "partial results of cut requests"),
            MlaTensor("semaphores", DTYPES["i32"], ("row blocks x parts",), "zero at first, left zero by every launch"),
        )


def promise_text(promised: tuple[int, int]) -> str:
    """A promised (low, high) in words, a constant as one number."""
    low, high = promised
    return f"{low}" if low == high else f"{low} to {high}"
