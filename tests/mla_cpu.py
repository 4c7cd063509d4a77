"""MLA decode on the CPU the way the kernel does it: parts of a request leave partial results in the workspace, counters
in the semaphores, and are joined. Faults can be planted by name."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, ClassVar

import torch

from cutegen.runtime.call_faults import find_faults
from cutegen.runtime.mla_decode.plan import MlaPlan
from cutegen.runtime.mla_decode.reference import sink_factor
from cutegen.runtime.mla_decode.tiling import MlaTiling, workspace_elements

PARTS_KEYS = 512


def tiling(page_size: int = 16, cluster: int = 1, max_splits: int = 0) -> MlaTiling:
    return MlaTiling(
        cluster=cluster,
        page_size=page_size,
        threads=384,
        producer_registers=24,
        consumer_registers=240,
        smem_bytes=222_000,
        unit=2,
        overhead=1,
        join_ratio=1,
        max_splits=max_splits,
        split_columns=False,
        prefetch=1,
        pdl_wait=False,
        pdl_trigger=False,
        pdl_schedule_ahead=False,
        pdl_load_ahead=False,
    )


class CpuMla(MlaPlan):
    name, arch, device = "mla", "sm_90a", "cpu"
    dtype, page_size, causal = "bfloat16", 16, True
    heads, query_len = (2, 5), (1, 3)
    tilings: ClassVar = {"seesaw": tiling()}

    def __init__(self, fault: str = "", **options: Any) -> None:
        self.fault = fault
        self.launched: list[str] = []
        super().__init__(**options)

    def sm_count(self, index: int) -> int:
        return 4

    def compile(self, key: str) -> Callable[..., None]:
        def kernel(*values: Any) -> None:
            args = (*self.inputs[:-1], *self.outputs, *self.scratch)
            if find_faults(self.extents, args, values[:-2], self.device, ""):
                raise ValueError("Mismatched Tensor on argument")  # as TVM FFI does, in words that help nobody
            self.launched.append(key)
            queries, (cache, table, lengths, *rest) = values[: len(self.queries)], values[len(self.queries) :]
            factor = float(rest.pop(0)) if self.has_scale else 1.0
            sink = rest.pop(0) if self.has_sink else None
            out, lse, *scratch, scale, parts = rest
            run(self, torch.cat(queries, -1), cache, table, lengths, out, lse, *scratch, scale * factor, parts)
            out *= factor
            if sink is not None:
                out *= sink_factor(lse.mT if self.lse_layout == "bhs" else lse, sink)

        return kernel


def run(
    plan: CpuMla, q: Any, cache: Any, table: Any, lengths: Any, out: Any, lse: Any, workspace: Any, semaphores: Any,
    scale: float, parts: int,
) -> None:  # fmt: skip
    fault = plan.fault
    if plan.sparse:
        attend_tokens(plan, q, cache, table, lengths, out, lse, scale)
        return
    if fault == "page stride":
        cache = cache.as_strided(cache.shape, (cache.shape[1] * cache.stride(1), cache.stride(1), 1))
    cache = plan.unpack(cache)
    batch, tokens, heads, _ = q.shape
    rows = tokens * heads
    slots = workspace[: workspace_elements(rows, parts)].view(-1, rows, 258)
    if fault == "workspace":
        workspace.as_strided((1,), (1,), workspace.storage_offset() + workspace.numel()).zero_()
    for b in range(batch):
        length = int(lengths[b]) + (fault == "past the length" and int(lengths[b]) % 64 != 0)
        if fault == "tail" and length > 64:
            length -= length % 64
        pages = table[b, : -(-length // plan.page_size)].long()
        if fault == "table":
            pages = table[b].long()
        keys = cache[pages].reshape(-1, cache.shape[2])[:length].float()
        seen = length - (tokens - 1 - torch.arange(tokens)) * int(plan.causal and fault != "causal")
        cuts = list(range(0, max(length, 1), PARTS_KEYS))[:parts] or [0]
        for i, start in enumerate(cuts):
            stop = length if i == len(cuts) - 1 else cuts[i + 1]
            o, total = piece(q[b].float(), keys[start:stop], scale, seen - start, out.dtype)
            largest = o.view(rows, 512).abs().amax(-1).clamp(min=1e-30)
            values_of(slots)[i] = o.view(rows, 512) / largest[:, None]
            slots[i, :, 256], slots[i, :, 257] = total.view(rows), largest
            semaphores[i] += 1
        count = len(cuts) + (fault == "stale slot")
        join(out[b], lse, b, slots[:count], tokens, heads, plan)
        semaphores[: len(cuts)] = int(fault == "counters" and b == batch - 1)
    if fault == "company" and batch > 1:
        out *= 1 + 2.0**-8
    if fault == "chance" and batch:
        out += torch.randn(()).to(out.dtype) * 1e-3


def attend_tokens(
    plan: CpuMla, q: Any, cache: Any, indices: Any, lengths: Any, out: Any, lse: Any, scale: float
) -> None:
    """Sparse keys, one token after the other, uncut."""
    rows = plan.unpack(cache).flatten(0, 1).float()
    batch, tokens = q.shape[:2]
    for b in range(batch):
        for t in range(tokens):
            named = indices[b, t, : max(0, int(lengths[b, t]) + (plan.fault == "past the length"))].long()
            none = (named < 0) | (named >= len(rows))
            if plan.fault != "none counts":
                named = named[~none]
            if plan.fault == "twice counts once":
                named = named.unique()
            o, total = piece(
                q[b, t : t + 1].float(), rows[named.clamp(0, len(rows) - 1)], scale, torch.tensor([2**31]), out.dtype
            )
            out[b, t] = o[0].nan_to_num() if len(named) else 0
            lse[b, :, t] = total[0] if len(named) else math.inf


def values_of(slots: Any) -> Any:
    return slots[:, :, :256].view(torch.float16)


def piece(q: Any, keys: Any, scale: float, seen: Any, dtype: Any) -> tuple[Any, Any]:
    """Weights are rounded to the dtype of the values, as the tensor core needs them."""
    scores = q @ keys.mT * scale
    hidden = torch.arange(len(keys)) >= seen[:, None, None]
    scores = scores.masked_fill(hidden, -math.inf)
    total = torch.logsumexp(scores, -1)
    weights = torch.exp(scores - torch.where(total > -math.inf, total, 0.0)[..., None]).to(dtype).float()
    return weights @ keys[:, :512], total


def join(out: Any, lse: Any, b: int, slots: Any, tokens: int, heads: int, plan: CpuMla) -> None:
    total = torch.logsumexp(slots[..., 256], 0)
    weights = torch.exp(slots[..., 256] - torch.where(total > -math.inf, total, 0.0)) * slots[..., 257]
    joined = (weights[..., None] * values_of(slots).float()).sum(0)
    out.copy_(joined.view(tokens, heads, 512).to(out.dtype))
    total = torch.where(total > -math.inf, total, math.inf).view(tokens, heads)
    if plan.fault == "lse of nothing":
        total = total.nan_to_num(posinf=0.0)
    if plan.fault == "column":
        out[-1, -1, 300] += 1
    total = total if plan.lse_base == "e" else total / math.log(2.0)
    lse[b] = total.T if plan.lse_layout == "bhs" else total
