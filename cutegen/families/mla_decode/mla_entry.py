"""The C entry of MLA decode: parts, scratch and the choice of a tiling are the functions of its plan, translated."""

from __future__ import annotations

from typing import Any

from cutegen.families.c_entry import WINNERS, CEntry, Translator, in_c, winner_rows
from cutegen.runtime.mla_decode.tiling import (
    LEAST_SCALE,
    MOST_SCALE,
    ROW_BLOCK,
    fewest_keys,
    parts_of,
    piece_elements,
    row_blocks,
    semaphore_count,
    work_of,
    workspace_elements,
)


def c_entry(plan: Any, translate: Translator) -> CEntry | str:
    """Of a plan of runtime/mla_decode/plan.py."""
    *tensors, scale = (a.name for a in plan.inputs)
    outputs = tuple(o.name for o in plan.outputs)
    used = {dim for a in (*plan.inputs, *plan.outputs) for dim in getattr(a, "dims", ())}
    extents = {dim: extent for dim, extent in plan.extents.items() if dim in used}
    keys = tuple(plan.tilings)
    width = "topk" if plan.sparse else "max_pages"
    sides = ", ".join(in_c(extents, dim) for dim in ("batch", "query_len", "heads"))
    work = f"{translate.function(work_of)}({sides}, {int(plan.sparse)})"
    rows = f"{work}.v[1]"
    parts = f"{translate.function(parts_of)}({rows}, cluster_ENTRY[key], count)"
    return CEntry(
        extents=extents,
        args=(*plan.inputs, *plan.outputs),
        outputs=outputs,
        order=(*tensors, *outputs, "scratch", scale, parts),
        keys=keys,
        least_sms=tuple(plan.least_sms(key) for key in keys),
        code=_pick(plan, extents, keys, work, width, translate)
        + _size(plan, work, parts, translate)
        + _check(plan, extents, scale),
        helpers=(WINNERS,),
        scratch=plan.scratch,
        needed=tuple(dim for dim in ("query_len", "heads", "pages", width) if not isinstance(extents[dim], int)),
    )


def _pick(plan: Any, extents: Any, keys: tuple[str, ...], work: str, width: str, translate: Translator) -> str:
    batch, query_len, heads = (in_c(extents, dim) for dim in ("batch", "query_len", "heads"))
    found = winner_rows(plan.winners, keys)
    table = ",\n  ".join(found or ["{0}"])
    chosen = ["  return 0;"]
    if len(keys) > 1:
        choose = translate.function(type(plan).choose_tiling, f"choose_{plan.name}")
        chosen = [f"  tuple2 work = {work};", f"  num tiling = {choose}(work.v[1], work.v[0], {query_len});"]
        chosen += [f"  if (tiling == {translate.text(key)}) return {i};" for i, key in enumerate(keys)]
        chosen += ['  return fail("no tiling was chosen");']
    lines = "\n".join(chosen)
    fewest = f"{translate.function(fewest_keys)}({in_c(extents, width)}, {plan.entry_keys})"
    return f"""\
static const winner winners_ENTRY[] = {{
  {table}
}};
static int pick_ENTRY(const BUNDLE_device *device, num sms, const num *e) {{
  const num point[4] = {{{batch}, {query_len}, {heads}}};
  int key = find_winner(winners_ENTRY, {len(found)}, device->name, point, {fewest});
  if (key >= 0) return key;
{lines}
}}
"""


def _size(plan: Any, work: str, parts: str, translate: Translator) -> str:
    rows = f"{work}.v[1]"
    clusters = ", ".join(str(t.cluster) for t in plan.tilings.values())
    blocks = f"{translate.function(row_blocks)}({rows}, cluster_ENTRY[key])"
    workspace = f"{translate.function(workspace_elements)}({rows}, parts)"
    if plan.batch_invariant:  # one number for all tilings
        (most,) = {t.max_splits for t in plan.tilings.values()}
        workspace = f"{translate.function(piece_elements)}({work}.v[0], {most}, {rows})"
    counters = f"{translate.function(semaphore_count)}({rows}, cluster_ENTRY[key], parts)"
    return f"""\
static const num cluster_ENTRY[] = {{{clusters}}};
static int size_ENTRY(int key, num count, const num *e, num *sizes) {{
  num blocks = {blocks};
  if (blocks > count)
    return fail("the rows of a request are %d blocks of {ROW_BLOCK}, each on an SM of its own; %d are to be used",
                (int)blocks, (int)count);
  num parts = {parts};
  sizes[0] = {workspace};
  sizes[1] = {counters};
  return 0;
}}
"""


def _check(plan: Any, extents: Any, scale: str) -> str:
    """Tokens and heads are one dimension of rows, unless tokens have keys of their own."""
    query_len, heads = in_c(extents, "query_len"), in_c(extents, "heads")
    lines = [
        f"  if ({query_len} > 1 && {heads} > 1 && args->{name}_strides[1] != {heads} * args->{name}_strides[2])\n"
        f'    return fail("{name}_strides[1] is not heads * {name}_strides[2]: tokens and heads are one dimension");\n'
        for name in ((*(q.name for q in plan.queries), "out") if not plan.sparse else ())
    ]
    return f"""\
static int check_ENTRY(const BUNDLE_args_ENTRY *args, const num *e) {{
  if (!(args->{scale} >= {LEAST_SCALE!r} && args->{scale} <= {MOST_SCALE!r}))
    return fail("{scale} is %g, and it is a positive number that f32 has", args->{scale});
{"".join(lines)}  return 0;
}}
"""
