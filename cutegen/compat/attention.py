"""MLA decode on a plan, for attention backends of serving stacks: which layers it can run, and calls in their shapes.
Adapters of vLLM and SGLang (`adapters/`) are made of it.

Importing this module imports neither torch nor cutlass.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from cutegen.compat.serving import PlanKernel
from cutegen.runtime.mla_decode.inputs import LATENT_DIM, ROPE_DIM

E4M3 = ("float8_e4m3fn", "fp8", "fp8_e4m3")


@dataclass(frozen=True, slots=True)
class LatentAttention:
    """heads: of queries, on this device. dtypes as torch names them; cache_dtype: of the cache. page_size: tokens of a
    page. query_len: most new tokens of a request."""

    heads: int
    latent_dim: int
    rope_dim: int
    dtype: str
    cache_dtype: str
    page_size: int
    query_len: int = 1


class AttentionPlan:
    """plan: of dense MLA decode over a cache of the queries' dtype, or in e4m3 with one scale."""

    def __init__(self, plan: Any) -> None:
        self.plan = plan
        self._one: Any = None  # the scale of a cache that has none

    def warm_up(self) -> None:
        """Compiles all kernels; a miss is an error from then on."""
        PlanKernel(self.plan).warmup()

    @property
    def caches(self) -> tuple[str, ...]:
        """Names of the cache's dtype: torch's, and those that servers have."""
        return E4M3 if self.plan.has_scale else (self.plan.dtype,)

    @property
    def most_tokens(self) -> int:
        """New tokens of a request that a call may have."""
        tokens = self.plan.query_len
        return tokens[1] if isinstance(tokens, tuple) else tokens

    def refuse(self, layer: LatentAttention) -> str:
        """Why the plan cannot run a layer; "" where it can."""
        plan = self.plan
        if not hasattr(plan, "page_size") or not hasattr(plan, "lse_layout"):
            return f"{plan.name} is not a plan of MLA decode"
        blocks = plan.cache_format is not None and not plan.has_scale
        if plan.topk is not None or blocks or plan.split_q or plan.has_sink or plan.extra:
            return f"{plan.name} takes more than queries in one tensor and one dense cache, with one scale at most"
        if (layer.latent_dim, layer.rope_dim) != (LATENT_DIM, ROPE_DIM):
            shown = f"{layer.latent_dim} + {layer.rope_dim}"
            return f"{plan.name} is for rows of {LATENT_DIM} + {ROPE_DIM}, and the layer has {shown}"
        for what, dtype, names in (
            ("queries", layer.dtype, (plan.dtype,)),
            ("a cache", layer.cache_dtype, self.caches),
        ):
            if dtype not in names:
                return f"{plan.name} takes {what} in {names[0]}, and the layer has {dtype}"
        if layer.page_size != plan.page_size:
            return f"{plan.name} has pages of {plan.page_size} tokens, and the cache of {layer.page_size}"
        for what, extent, promised in (
            ("heads", layer.heads, plan.heads),
            ("new tokens", layer.query_len, plan.query_len),
        ):
            low, high = promised if isinstance(promised, tuple) else (promised, promised)
            if not low <= extent <= high:
                shown = str(low) if low == high else f"{low} to {high}"
                return f"{plan.name} has {shown} {what}, and the layer {extent}"
        return ""

    def run(
        self,
        q: Any,
        cache: Any,
        block_table: Any,
        lengths: Any,
        scale: float,
        requests: int,
        cache_scale: Any = None,
    ) -> tuple[Any, Any]:
        """(tokens, heads, latent), and the natural logarithms of the sums of weights, f32 (tokens, heads).

        q: (tokens, heads, latent + rope), tokens of a request together and of all requests equally many. cache:
        (pages, page, latent + rope), any distance from page to page. lengths: i32, with the new tokens; 0 for rows
        that only pad the batch. cache_scale: f32 of one element, what keys and values are times where the cache is in
        e4m3; None: 1. ValueError: tokens are no multiple of requests.
        """
        import torch

        tokens, heads, width = q.shape
        if requests < 1 or tokens % requests:
            raise ValueError(f"{self.plan.name}: {tokens} tokens of {requests} requests: all need equally many")
        queries = q.reshape(requests, tokens // requests, heads, width)
        factor = []
        if self.plan.has_scale:
            cache = cache.view(torch.uint8)
            if cache_scale is None:
                if self._one is None or self._one.device != q.device:
                    self._one = torch.ones(1, dtype=torch.float32, device=q.device)
                cache_scale = self._one
            factor = [cache_scale.reshape(1)]
        out, lse = self.plan.kernel_fn(queries, cache, block_table, lengths, *factor, scale)
        if self.plan.lse_layout == "bhs":
            lse = lse.transpose(1, 2)
        return out.view(tokens, heads, -1), lse.reshape(tokens, heads)
