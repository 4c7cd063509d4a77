"""MlaPlan: what every generated MLA decode plan subclasses. Importing this module imports neither torch nor cutlass.

A generated plan gives, as class attributes:

    name, arch          "mla_decode_bf16_sm90a", "sm_90a"
    dtype               of queries, cache and output: "bfloat16" or "float16"
    heads, query_len    promised at run time: a constant, or an inclusive range such as (16, 128)
    page_size           tokens of a cache page
    causal              token t of query_len sees the keys below length - (query_len - 1) + t; else all of them
    split_q             queries come as two tensors, q_nope and q_pe, instead of q (default False)
    lse_base            "e" (default) or "2"
    lse_layout          "bhs" (default): [batch, heads, query_len]; "bsh": [batch, query_len, heads]
    cache_format        CacheFormat(...) of a quantised cache, whose rows are uint8; else None (default)
    topk                promised indices of a token, where keys are sparse; else None (default)
    has_sink            a call takes sink, f32[heads] (default False)
    extra               ExtraKeys(...) of a second cache; else None (default)
    piece_keys          keys of the pieces of requests whose bits depend on nothing but themselves: not on the rest of
                        the batch, nor on the number of SMs; `check` proves it. Else 0 (default)
    tilings             {"seesaw": MlaTiling(...)}: a tiling's key is also its compile key

and as methods:

    compile(self, key)                                  the compiled kernel of tiling `key`, called as
                                                        compiled(q | q_nope, q_pe, kv_cache, block_table, seq_lens,
                                                        [kv_scale, sink,] out, lse, workspace, semaphores,
                                                        softmax_scale, parts)
    choose_tiling(self, rows, batch, query_len)         the key for a problem, rows being query_len * heads, with sparse
                                                        keys heads, and batch all tokens; only when there are several
                                                        tilings
    winners, anywhere   as in cutegen/runtime/measured.py, by (batch, query_len, heads) and the fewest keys that need as
                        wide a block_table as the call's

and at module level the lines that the docstring of cutegen/runtime/gemm/plan.py lists.

A call takes (queries, kv_cache, block_table, seq_lens, softmax_scale), with kv_scale before softmax_scale where a
quantised cache has one scale: keys and values are times that; and behind that sink, where there is one: e^sink is added
to the sum of the weights of a head, so that +inf makes its output 0, and -inf does nothing. LSE is without it. With
sparse keys indices [batch, query_len, topk] take the place of block_table, and topk_length [batch, query_len] that of
seq_lens: an index is a row of the cache, page * page_size + slot, and one outside of the cache counts as none. Lengths
and tables are read by the device alone: nothing waits for it, and a captured graph may be replayed after they changed.
So only the caller can know that

- the table's entries within a request's length are pages of the cache. Entries beyond it may hold anything.
- nothing that a call reads shares storage with what it writes. (`out` that is q_nope is refused.)
- a length is at most max_pages * page_size. A longer one counts as that, a negative one as 0. Where it is 0, and for a
  token that sees no key, the output is 0 and its LSE +inf. Cache slots beyond a length may hold anything, NaN included.
- what the spec promises by `pdl.ready` was written before the kernel in front on the stream could start.

Scratch: `workspace` (f32, any contents) and `semaphores` (i32, zero before the first launch, left zero by every one).
`workspace_shapes` tells their sizes. Launches that may run at the same time need scratch of their own. kernel_fn keeps
scratch for each stream, and for each device one pair that all captured graphs share: replay those one after another,
or capture launch_fn with scratch of your own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from cutegen.runtime.accuracy import Tolerance, attention_tolerance, logsumexp_tolerance
from cutegen.runtime.arguments import Argument, torch_dtype
from cutegen.runtime.call_faults import Fault, find_faults
from cutegen.runtime.mla_decode.dispatch import MlaDispatch, make_scratch
from cutegen.runtime.mla_decode.faults import find_later_faults
from cutegen.runtime.mla_decode.inputs import (
    EQUAL,
    LATENT_DIM,
    ONE_SCALE,
    Draw,
    crest_factor,
    draw_inputs,
    draw_sink,
)
from cutegen.runtime.mla_decode.launch import make_launch
from cutegen.runtime.mla_decode.reference import attend, attend_sparse, join_keys, sink_factor
from cutegen.runtime.mla_decode.sparse_inputs import draw_sparse_inputs
from cutegen.runtime.overlap import find_overlaps


class MlaPlan(MlaDispatch):
    """Decode attention over a paged latent cache. The module docstring lists what a subclass gives."""

    # -- what a call allocates --

    def allocate_outputs(self, *inputs: Any) -> tuple[Any, ...]:
        import torch

        try:
            q, *_ = (value for _, value in zip(self.inputs, inputs, strict=True))
            batch, query_len, heads, _ = q.shape
            lse = (batch, heads, query_len) if self.lse_layout == "bhs" else (batch, query_len, heads)
            return (
                torch.empty((batch, query_len, heads, LATENT_DIM), dtype=q.dtype, device=q.device),
                torch.empty(lse, dtype=torch.float32, device=q.device),
            )
        except Exception as error:
            self._refuse(self.inputs, inputs, error)
            raise

    def allocate_scratch(self, *inputs: Any, key: str | None = None) -> tuple[Any, ...]:
        batch, query_len, heads, _ = inputs[0].shape
        requests, rows = self.work(batch, query_len, heads)
        shapes = self.workspace_shapes(requests, rows, self._sm_counts[inputs[0].get_device()])
        return make_scratch(inputs[0].device, (*shapes["workspace"], *shapes["semaphores"]))

    def kernel_fn(self, *inputs: Any, sms: int | None = None) -> tuple[Any, Any]:
        """(out, lse), newly allocated, computed on the current stream; the module docstring tells about scratch."""
        outputs = self.allocate_outputs(*inputs)
        self.launch_into(inputs, outputs, sms)
        return outputs  # type: ignore[return-value]

    def launch_into(self, inputs: Sequence[Any], outputs: Sequence[Any], sms: int | None = None) -> None:
        try:
            queries = inputs[0]
            extents = queries.shape if self.batch_invariant else ()
            scratch = self._own_scratch.take(queries, self._own_sizes[queries.get_device(), extents])
        except Exception as error:
            self._refuse(self.inputs, inputs, error)
            raise
        self.launch_fn(*inputs, *outputs, *scratch, sms=sms)

    # -- reference and random problems --

    def reference_fn(self, *inputs: Any, precision: str = "float32") -> tuple[Any, Any]:
        """(out, lse) by plain torch from the paged cache, on any device; it reads the lengths on the host."""
        import torch

        queries = inputs[: len(self.queries)]
        q = torch.cat(queries, -1) if self.split_q else queries[0]
        cache, table, lengths, *others, scale = inputs[len(queries) :]
        second = [others.pop(0) for _ in range(3)] if self.extra else []
        factor = float(others[0]) if self.has_scale else 1.0
        keys, dtype = self.unpack(cache), torch_dtype(precision)
        if second:
            keys, table, lengths = join_keys(keys, table, lengths, self.unpack(second[0]), *second[1:])
        if self.sparse:
            out, lse = attend_sparse(q, keys, table, lengths, scale * factor, dtype=dtype)
        else:
            out, lse = attend(q, keys, table, lengths, scale * factor, causal=self.causal, dtype=dtype)
        if self.has_sink:
            out = out * sink_factor(lse, others[-1])
        if self.lse_base == "2":
            lse = lse / math.log(2.0)
        if self.lse_layout == "bhs":
            lse = lse.transpose(1, 2).contiguous()
        return (out * factor).to(torch_dtype(self.dtype)), lse.float()

    def prepare_inputs(self, **dims: int) -> tuple[Any, ...]:
        """Fresh random inputs, all requests having kv_len keys: tensors N(0, 1), softmax_scale 576 ** -0.5, pages
        shuffled, NaN in all slots of the cache that no request reaches, garbage in the table beyond the lengths. Of a
        quantised cache the latent part has every finite byte equally often. With sparse keys all tokens have topk
        distinct ones, out of four times as many of their request."""
        return self.draw_inputs(EQUAL, **dims)

    def draw_inputs(self, draw: Draw, **dims: int) -> tuple[Any, ...]:
        """prepare_inputs with other lengths, and more."""
        extents = self.extents_on_device(dims)
        draw_keys = draw_sparse_inputs if self.sparse else draw_inputs
        q, cache, table, lengths = draw_keys(
            draw, extents, self.page_size, torch_dtype(self.dtype), self.device, self.cache_format
        )
        second: tuple[Any, ...] = ()
        if self.extra:
            low, high = self.extra.topk
            fitting = {**extents, "topk": min(max(extents["topk"], low), high)}
            size, dtype = self.extra.page_size, torch_dtype(self.dtype)
            second = draw_keys(draw, fitting, size, dtype, self.device, self.cache_format)[1:]
        queries: tuple[Any, ...] = (q,)
        if self.split_q:
            latent = self.extents["latent_dim"]
            queries = (q[..., :latent].contiguous(), q[..., latent:].contiguous())
        scales: tuple[Any, ...] = ()
        if self.has_scale:
            import torch

            scales = (torch.full((1,), ONE_SCALE, device=self.device),)
        sinks = (draw_sink(extents["heads"]).to(self.device),) if self.has_sink else ()
        return (*queries, cache, table, lengths, *second, *scales, *sinks, self.query_dim**-0.5)

    def output_tolerance(self, output: int, inputs: Sequence[Any], reference: str) -> Tolerance:
        longest = max(1, self._longest(inputs))
        if output == 0:
            return attention_tolerance(self.dtype, longest, reference, crest_factor(self.cache_format))
        return logsumexp_tolerance(longest, reference)

    def problem_dims(self, *inputs: Any) -> dict[str, int]:
        """kv_len: the longest request's, for which this waits for the device."""
        length = inputs[len(self.queries) + 1].shape[2] if self.sparse else self._longest(inputs)
        return dict(zip(self.dims, (*inputs[0].shape[:3], length)))

    def _longest(self, inputs: Sequence[Any]) -> int:
        lengths = self._lengths(inputs)
        return int(lengths.max()) if lengths.numel() else 0

    def _lengths(self, inputs: Sequence[Any]) -> Any:
        """Of each request, as they count, in both caches where there are two."""
        table, lengths = inputs[len(self.queries) + 1 :][:2]
        lengths = lengths.clamp(0, table.shape[-1] * self.entry_keys)
        if self.extra:
            table, others = inputs[len(self.queries) + 4 :][:2]
            lengths = lengths + others.clamp(0, table.shape[-1])
        return lengths

    def count_work(self, dims: Mapping[str, int], inputs: tuple[Any, ...]) -> tuple[int, int]:
        """By the lengths, for which this waits for the device."""
        return self._work(dims, self._lengths(inputs).flatten().tolist())

    def _algorithmic_flops_bytes(self, **dims: int) -> tuple[int, int]:
        """Of requests that all have kv_len keys, or of tokens that all have topk."""
        requests, _ = self.work(dims["batch"], dims["query_len"], dims["heads"])
        return self._work(dims, [dims["topk" if self.sparse else "kv_len"]] * requests)

    def _work(self, dims: Mapping[str, int], lengths: Sequence[int]) -> tuple[int, int]:
        batch, query_len, heads = dims["batch"], dims["query_len"], dims["heads"]
        tokens = range(query_len) if self.causal else [query_len - 1] * (1 if self.sparse else query_len)
        seen = sum(max(0, n - (query_len - 1) + t) for n in lengths for t in tokens)
        rows = query_len * heads
        return (
            2 * heads * seen * (self.query_dim + LATENT_DIM),
            sum(lengths) * self.row_bytes  # the cache, once
            + batch * rows * (self.query_dim + LATENT_DIM) * 2  # q and out
            + batch * rows * 4,  # lse
        )

    # -- launching --

    def make_launch(self, key: str | None = None) -> Callable[..., None]:
        return make_launch(self, key)

    def _find_faults(self, args: Sequence[Argument], values: Sequence[Any], sms: int | None = None) -> list[Fault]:
        written = [a.name for a in (*self.outputs, *self.scratch)]
        faults = find_faults(self.extents, args, values, self.device, "", written)
        return faults or [
            *find_later_faults(self, {a.name: v for a, v in zip(args, values)}, sms),
            *find_overlaps(args, values, written, {}),
        ]
