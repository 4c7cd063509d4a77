"""A resolved MLA decode in words, tables and a picture of its shared memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING

from cutegen.arch import ARCHS, DEVICES
from cutegen.families.asked_knobs import answer_wish
from cutegen.families.decide import written_knobs
from cutegen.families.explanation import (
    Extent,
    Section,
    explain_barriers,
    explain_decisions,
    explain_dispatch,
    explain_pipelines,
    explain_roles,
    explain_smem,
    explain_waits,
    of_each,
    read_extents,
    roofline,
)
from cutegen.families.mla_decode.candidate import MAX_UNIT, Candidate, list_knobs
from cutegen.families.mla_decode.derived import query_rows
from cutegen.families.mla_decode.lowering import lowering_of
from cutegen.families.mla_decode.problem import MlaProblem, MlaTensor, promise_text
from cutegen.families.mla_decode.resolve import chooser
from cutegen.families.mla_decode.resolved import ResolvedMla, ResolvedMlaTiling
from cutegen.families.resolved import dispatch, product_name
from cutegen.runtime.mla_decode.tiling import (
    KEY_BLOCK,
    MlaTiling,
    fewest_keys,
    parts_of,
    piece_elements,
    row_blocks,
    shares_columns,
    workspace_elements,
)

if TYPE_CHECKING:
    from cutegen.families.mla_decode.spec import MlaSpec


def explain(resolved: ResolvedMla, shape: Mapping[str, int] | None) -> tuple[Section, ...]:
    """The plan section by section; with a shape (batch, query_len, heads, kv_len) its parts and roofline as well."""
    sections = [_problem(resolved)]
    explain_map = partial(explain_smem, resolved.arch)
    lowering = lowering_of(resolved.arch)
    makers: list[Callable[[ResolvedMlaTiling], Section]] = [explain_roles, explain_pipelines, *lowering.explain_tiles]
    makers += [explain_barriers, explain_waits, explain_map, partial(lowering.explain_sums, resolved)]
    for make in makers:
        sections += of_each(resolved.tilings, make)
    if len(resolved.tilings) > 1:
        sections.append(explain_dispatch(resolved.dispatch, "rows = query_len x heads; the first that holds"))
    if shape is not None:
        sections.append(_shape(resolved, shape))
    return (*sections, explain_decisions(resolved.decisions))


def why_not(spec: MlaSpec, resolved: ResolvedMla, wish: str, shape: Mapping[str, int] | None) -> Section:
    """What the wished knobs give beside the kernel's variant; see `answer_wish`."""
    problem = resolved.problem

    def compare(now: Candidate, then: Candidate) -> list[tuple[str, str, str]]:
        rows = []
        if shape is not None:
            sms = DEVICES[resolved.device].sms
            batch, query_len, heads, _ = read_shape(problem, shape)
            _, rows_of_each = problem.work(batch, query_len, heads)
            clusters = [[i.cluster for i in c.instances()] for c in (now, then)]
            for what, count in ((f"parts on {sms} SMs", partial(parts_of, sm_count=sms)), ("row blocks", row_blocks)):
                was, becomes = (
                    " or ".join(dict.fromkeys(str(count(rows_of_each, n)) for n in each)) for each in clusters
                )
                rows.append((what, was, becomes))
        before, after = (lowering_of(spec.arch).count_smem(problem, c) for c in (now, then))
        rows.append(("SMEM bytes", str(before), str(after)))
        return rows

    device, knobs = DEVICES[resolved.device], list_knobs(ARCHS[spec.arch])
    written = written_knobs(spec, knobs)
    return answer_wish(
        wish, resolved.decided, knobs, device, chooser(spec, problem), written, compare, lambda field, numbers: numbers
    )


def read_shape(problem: MlaProblem, shape: Mapping[str, int]) -> tuple[int, int, int, int]:
    """(batch, query_len, heads, kv_len or topk); constants need no mention. CutegenError (exit 2) for what does not
    fit."""
    dims = (
        Extent("batch", 1, None),
        Extent("query_len", *problem.query_len),
        Extent("heads", *problem.heads),
        Extent(problem.length, *(problem.topk or (1, None))),
    )
    batch, query_len, heads, length = read_extents(dims, shape)
    return batch, query_len, heads, length


def _problem(resolved: ResolvedMla) -> Section:
    p = resolved.problem
    sees = "keys up to its own place" if p.mask == "causal" else "all keys"
    gathered = "K gathered from the pages of each request"
    if p.topk is not None:
        gathered = "K gathered by the indices of each token"
        sees = f"keys of its own, up to {p.topk[1]}; an index outside of the cache, such as -1, is none"
    lines: tuple[str, ...] = (
        f"out = softmax(softmax_scale q K^T) K[:, :{p.value_dim}], {gathered}",
        f"heads {promise_text(p.heads)}, query_len {promise_text(p.query_len)}; a new token sees {sees}"
        + f" ({p.mask})" * (not p.sparse),
    )
    if p.cache is not None:
        parts = ", ".join(f"{name} {begin}..{begin + size - 1}" for name, (begin, size) in p.cache.parts.items())
        scaled = "one scale, kv_scale" if p.cache.per_tensor else f"a scale for {p.cache.scale_block} values"
        scaled += f", in {p.cache.scale_dtype} behind the rows of a page" * p.cache.plane
        lines = (*lines, f"a row of kv_cache is {p.row_bytes} bytes: {parts}; {scaled}")
    if p.extra:
        of_it = f"up to {p.extra.topk[1]} keys of extra_kv_cache, in pages of {p.extra.page_size} rows"
        lines = (*lines, f"behind those of the first cache a token sees {of_it}")
    if p.piece:
        cut = f"requests are cut into pieces of {p.piece} keys, up to split_kv.max, whatever else is in the batch"
        lines = (*lines, f"{cut}: bits depend on no other request, and not on the number of SMs")
    if p.sink:
        lines = (
            *lines,
            "sink: the weights of a row are divided by their sum and e^sink of its head; lse is without it",
        )
    rows = tuple(_tensor(tensor) for tensor in (*p.inputs, *p.outputs, *p.scratch))
    variants = " and ".join(dict.fromkeys(c.variant for c in resolved.decided.instances()))
    title = f"{resolved.name}: {variants} MLA decode for {resolved.arch}"
    return Section(title, lines, ("tensor", "dtype", "shape", "is"), rows)


def _tensor(tensor: MlaTensor) -> tuple[str, str, str, str]:
    return tensor.name, str(tensor.dtype), f"({', '.join(tensor.dims)})" if tensor.dims else "", tensor.is_


def _shape(resolved: ResolvedMla, shape: Mapping[str, int]) -> Section:
    problem, device = resolved.problem, DEVICES[resolved.device]
    batch, query_len, heads, kv_len = read_shape(problem, shape)
    requests, rows = problem.work(batch, query_len, heads)
    entry = 1 if problem.sparse else problem.page_size
    length = fewest_keys(-(-kv_len // entry), entry)
    call = {"batch": batch, "query_len": query_len, "heads": heads, problem.length: length}
    call |= {problem.requests: requests, "rows": rows}
    name = dispatch(resolved.dispatch, call, product_name(resolved.dispatch, resolved.device))
    tiling = next(t for t in resolved.tilings if t.name == name)
    numbers = tiling.numbers
    blocks, parts = row_blocks(rows, numbers.cluster), parts_of(rows, numbers.cluster, device.sms)
    unit = numbers.unit
    kib = workspace_elements(rows, parts) * 4 // 1024
    if problem.piece:
        kib = piece_elements(requests, numbers.max_splits, rows) * 4 // 1024
    cuts, overhead = -(-kv_len // (unit * KEY_BLOCK)), numbers.overhead * MAX_UNIT // unit
    shared = shares_columns(requests if requests > 1 else None, rows, parts, requests * cuts * unit)
    halves = 2 if numbers.split_columns and shared else 1
    parts = parts // halves
    ctas = f"{blocks} row blocks x {parts} parts" + " x 2 halves of the columns" * (halves > 1)
    share = max(-(-requests * (cuts + overhead) // parts), _finest(cuts, numbers))
    units, said = "blocks", f"blocks of {KEY_BLOCK} keys"
    if unit == MAX_UNIT:
        units, said = "pairs", f"pairs of {KEY_BLOCK}-key blocks"
    flops, moved = traffic(problem, requests, rows, kv_len)
    height = query_rows(problem, tiling.candidate)  # of a CTA's products
    padded = 1e6 * flops * blocks * height / (rows * device.flops_16bit)
    keys = f"{requests} x {cuts} {said}, and {overhead} {units}' worth a request"
    even = f"{share} {units}' worth a part; the device cuts near it, at requests where that is as fast"
    if problem.piece:
        most = -(-cuts * unit * KEY_BLOCK // problem.piece)
        size = -(-cuts // min(most, numbers.max_splits))
        pieces = -(-cuts // size)
        keys = f"{requests} x {cuts} {said} in {pieces} pieces of {size}, by the length of each request alone"
        even = f"pieces of a part, all requests being as long: at most {-(-requests * pieces // parts)}"
    table = (
        ("kernel", tiling.name),
        ("rows", f"{heads} heads x {rows // heads} = {rows}: {blocks} x {height}, "
                 f"{100 * rows // (blocks * height)}% of them used"),
        ("CTAs", f"{ctas} = {blocks * parts * halves} of {device.sms} SMs"),
        ("keys", keys),
        ("even share", even),
        ("workspace", f"{kib} KiB"),
        *roofline(device, flops, moved, device.flops_16bit),
        ("with padded rows", f"{padded:.4g} us of tensor core"),
    )  # fmt: skip
    given = f"batch={batch}, query_len={query_len}, heads={heads}, {problem.length}={kv_len}"
    title = f"{given} on {device.name} (data-sheet rates)"
    return Section(title, header=("", ""), rows=table)


def _finest(cuts: int, numbers: MlaTiling) -> int:
    """Units of a request of `cuts` that a part has at least, as split_schedule.find_part bounds it."""
    finest = 1
    while finest * (finest + 1) * numbers.join_ratio < cuts * MAX_UNIT // numbers.unit:
        finest += 1
    return max(finest, -(-cuts // numbers.max_splits)) if numbers.max_splits else finest


def traffic(problem: MlaProblem, batch: int, rows: int, kv_len: int) -> tuple[int, int]:
    """(FLOPs, bytes) of one call with `rows` query rows a request: every key with every row, whatever the mask; each
    row of the cache is read once."""
    width = problem.head_dim + problem.value_dim
    rest = batch * rows * (width * problem.dtype.bytes + 4)
    return 2 * batch * rows * kv_len * width, batch * kv_len * problem.row_bytes + rest
