"""The launch function of a plan of MLA decode: what a call does besides the compiled kernel, in as little host time as
it takes.

Importing this module imports neither torch nor cutlass.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from operator import itemgetter, methodcaller
from typing import Any, NamedTuple

from cutegen.runtime.arguments import Extent, normalise_strides
from cutegen.runtime.mla_decode.dispatch import MlaDispatch
from cutegen.runtime.mla_decode.faults import merge_single_head, rows_merge
from cutegen.runtime.mla_decode.tiling import LEAST_SCALE, MOST_SCALE
from cutegen.runtime.slots import Places, make_memory_check, make_storage_check

ELEMENTS = methodcaller("numel")
MOST_FORMS = 1024  # of calls that a plan remembers: then it starts over


class Call(NamedTuple):
    """What follows from the extents of a call, its device and its SM budget. key: None where nothing is to be computed.
    parts: that the keys of all requests are cut into. tokens: whether a request has several, whose rows have to lie as
    those of one tensor. places: what make_storage_check remembers."""

    key: str | None
    parts: int
    tokens: bool
    places: Places


def make_launch(plan: MlaDispatch, key: str | None = None) -> Callable[..., None]:
    """`launch_fn(*inputs, *outputs, *scratch, sms=None)`, on the current stream; with `key`, always that tiling.

    Extents, device and SM budget of a call are looked up among those of former calls. Work per call besides that: types
    of tensors, addresses of outputs and scratch, the merge of rows, the factor, and the compiled call, which checks
    shapes, strides, dtypes, devices and alignment itself. Only when something fails are the reasons looked for."""
    kernels, sm_counts, invariant = plan._kernels, plan._sm_counts, plan.batch_invariant
    args = (*plan.inputs, *plan.outputs, *plan.scratch)
    cache = len(plan.queries)
    table, scale, out, end = cache + 1, len(plan.inputs) - 1, len(plan.inputs), len(args)
    (low_len, high_len), (low_heads, high_heads) = _bounds(plan.query_len), _bounds(plan.heads)
    low_keys, high_keys = _bounds((1, None) if plan.topk is None else plan.topk)
    merged = () if plan.sparse else (*range(cache), out)
    key = key or (next(iter(plan.tilings)) if len(plan.tilings) == 1 else None)
    check_memory = make_memory_check()
    # Of what is written alone: types of all arguments are looked at before.
    check_places = make_storage_check(
        plan.outputs, [o.name for o in plan.outputs], {}, plan.scratch, lambda written: None
    )
    select = itemgetter(cache, table, *range(out, end))
    seen: dict[tuple[Any, ...], Call] = {}

    def prepare(values: tuple[Any, ...], sms: int | None) -> Call:
        """ValueError, TypeError: the shapes do not fit, or the budget."""
        q = values[0]
        batch, query_len, heads, _ = q.shape
        requests, rows = plan.work(batch, query_len, heads)
        device, width = q.get_device(), values[table].numel() // (requests or 1)
        chosen = key or plan.choose(device, batch, query_len, heads, width)
        limited = sms is not None or plan.sms is not None
        count = plan.limit_sms(sms, chosen, device) if limited else sm_counts[device]
        parts, elements, counters = plan.size(count, chosen, rows, requests * invariant)
        if (
            not (low_len <= query_len <= high_len and low_heads <= heads <= high_heads)
            or (batch and not (values[cache].numel() and low_keys <= width <= high_keys))
            or values[-2].numel() < elements
            or values[-1].numel() < counters
        ):
            raise ValueError("arguments")  # named by who looks for faults
        return Call(chosen if batch else None, parts, query_len > 1, set())

    def launch_fn(*values: Any, sms: int | None = None) -> None:
        try:
            if len(values) != end:
                raise ValueError("arguments")
            budget, factor = plan.sms if sms is None else sms, values[scale]
            check_memory(values)
            q, written = values[0], values[out:]
            # What has another shape and as many elements is refused by the compiled call.
            form = (q.get_device(), budget, q.shape, *map(ELEMENTS, select(values)))
            call = seen.get(form) if budget is None or type(budget) is int else None
            if call is None:
                call = prepare(values, sms)
                if len(seen) >= MOST_FORMS:
                    seen.clear()
                seen[form] = call
            chosen, parts, tokens, places = call
            if not (isinstance(factor, float) and LEAST_SCALE <= factor <= MOST_SCALE):
                raise ValueError("factor")
            if tokens and not all(rows_merge(values[i]) for i in merged):
                raise ValueError("rows")
            check_places(written, places)
            if chosen is not None:
                if q.data_ptr() == written[0].data_ptr():
                    raise ValueError("out")
                kernels[chosen](*values[:scale], *written, factor, parts)
                return
        except Exception as error:
            plan._refuse(args, values, error, sms)
            fixed = list(normalise_strides(args, values) or values)
            for i in merged:
                fixed[i] = merge_single_head(fixed[i])
            if isinstance(values[scale], int):
                fixed[scale] = float(values[scale])
            if all(new is old or _lie_alike(new, old) for new, old in zip(fixed, values)):
                raise
            launch_fn(*fixed, sms=sms)
            return
        plan._refuse(args, values, sms=sms)

    return launch_fn


def _lie_alike(new: Any, old: Any) -> bool:
    """Two tensors over one storage; what puts strides right may come back to those that were passed."""
    return hasattr(new, "stride") and hasattr(old, "stride") and new.stride() == old.stride()


def _bounds(extent: Extent) -> tuple[int, float]:
    if isinstance(extent, int):
        return extent, extent
    return extent[0], math.inf if extent[1] is None else extent[1]
