"""What is wrong with a call of MLA decode, beside what its declarations say. Only a call that fails comes here."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from cutegen.runtime.call_faults import ALLOCATE, Fault
from cutegen.runtime.mla_decode.dispatch import MlaDispatch, too_many_rows
from cutegen.runtime.mla_decode.tiling import LEAST_SCALE, MOST_SCALE, row_blocks


def find_later_faults(plan: MlaDispatch, values: Mapping[str, Any], sms: int | None) -> Iterator[Fault]:
    """What the declarations cannot say, for arguments that fit them. sms: the call's budget."""
    q, scale = values[plan.queries[0].name], values["softmax_scale"]
    batch, query_len, heads, _ = q.shape
    for axis, dim in ((1, "query_len"), (2, "heads")):
        if q.shape[axis] == 0:
            yield Fault(ValueError, f"{plan.queries[0].name}: shape[{axis}] ({dim}) is 0; a call has at least one row")
    if not query_len * heads:
        return
    if not 0.0 < scale < math.inf:
        yield Fault(ValueError, f"softmax_scale: is {scale}, needs a positive finite number")
    elif not LEAST_SCALE <= scale <= MOST_SCALE:
        text = f"softmax_scale: is {scale}, needs {LEAST_SCALE:.3g} to {MOST_SCALE:.3g}: the kernel reads it as f32"
        yield Fault(ValueError, text)
    for name in (*(a.name for a in plan.queries), "out"):
        if plan.sparse:
            continue  # tokens are requests
        if batch and query_len > 1 and heads > 1 and name in values and not rows_merge(values[name]):
            token, head = values[name].stride()[1:3]
            remedy = ALLOCATE if name == "out" else f"pass {name}.contiguous()"
            yield Fault(
                ValueError,
                f"{name}: stride(1) is {token} elements, needs heads * stride(2) = {heads} * {head} = "
                f"{heads * head}, as tokens and heads are one dimension of rows: {remedy}",
            )
    page, index = "keep one page for requests of length 0", "keep one index, -1 for tokens without keys"
    for name, axis, dim, remedy in (
        ("kv_cache", 0, "pages", page),
        ("block_table", 1, "max_pages", page),
        ("indices", 2, "topk", index),
    ):
        if batch and name in values and values[name].shape[axis] == 0:
            yield Fault(ValueError, f"{name}: shape[{axis}] ({dim}) is 0; {remedy}")
    if "semaphores" in values:
        yield from _scratch_faults(plan, values, sms)


def _scratch_faults(plan: MlaDispatch, values: Mapping[str, Any], sms: int | None) -> Iterator[Fault]:
    q = values[plan.queries[0].name]
    batch, query_len, heads, _ = q.shape
    device, (requests, rows) = q.get_device(), plan.work(batch, query_len, heads)
    key = plan.choose(device, batch, query_len, heads, values["indices" if plan.sparse else "block_table"].shape[-1])
    cluster, sm_count = plan.tilings[key].cluster, plan.limit_sms(sms, key, device)
    if row_blocks(rows, cluster) > sm_count:
        whole = sm_count == plan._sm_counts[device]
        there = f"the device has {sm_count}" if whole else f"{sm_count} are to be used"
        text = f"{plan.queries[0].name}: {too_many_rows(rows, cluster)}; {there}"
        yield Fault(ValueError, text)
        return
    parts, elements, counters = plan.size(sm_count, key, rows, requests)
    cut = f"{rows} rows in {parts} parts"
    pieces = f"{rows} rows of {requests} requests in {plan.tilings[key].max_splits} pieces each"
    pieces = pieces if plan.batch_invariant else cut
    for name, needed, of in (("workspace", elements, pieces), ("semaphores", counters, cut)):
        if (have := values[name].numel()) < needed:
            yield Fault(
                ValueError,
                f"{name}: has {have} elements; {of} need {needed}: "
                f"size it by workspace_shapes({requests}, {rows}, sm_count={sm_count})",
            )


def merge_single_head(tensor: Any) -> Any:
    """A tensor of one head with tokens for rows: torch leaves the stride of its heads arbitrary."""
    if tensor.dim() != 4 or tensor.shape[2] != 1 or tensor.shape[1] == 1 or rows_merge(tensor):
        return tensor
    batch, token, _, value = tensor.stride()
    return tensor.as_strided(tensor.shape, (batch, token, token, value))


def rows_merge(tensor: Any) -> bool:
    """Tokens and heads of [batch, query_len, heads, dim] lie in memory as one dimension of rows."""
    _, token, head, _ = tensor.stride()
    return bool(token == tensor.shape[2] * head)
