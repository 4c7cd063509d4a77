"""The C entry of row kernels: the extent of a row, or the elements of a call, decide."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from cutegen.families.c_entry import SMS, WINNERS, CEntry, Translator, in_c, tensor_entry, winner_rows
from cutegen.runtime.rowwise.plan import COUNTERS, UNLIMITED, lines_of, row_ctas


def c_entry(plan: Any, translate: Translator) -> CEntry | str:
    """Of a plan of runtime/rowwise/plan.py, whose tilings ascend, those of winners before the others."""
    extents = [in_c(plan.dims, dim) for dim in ((plan.columns,) if plan.summed else plan.dims)]
    tilings = [plan.tilings[key] for key in plan.whole_keys]
    most = ", ".join(str(t.most) for t in tilings)
    found = winner_rows(plan.winners, plan.whole_keys)
    first = len(tilings) - len(plan.anywhere or tilings)
    winner = ""
    if found:
        rows = ",\n  ".join(found)
        winner = f"""
  static const winner winners[] = {{
  {rows}
  }};
  const num point[4] = {{0}};
  int won = find_winner(winners, {len(found)}, device->name, point, size);
  if (won >= 0) return won;"""
    pick = f"""\
static const num most_ENTRY[] = {{{most}}};
static int pick_ENTRY(const BUNDLE_device *device, num sms, const num *e) {{
  num size = {" * ".join(extents)};{winner}
  for (int key = {first}; key < {len(tilings)}; key++)
    if (!most_ENTRY[key] || size <= most_ENTRY[key]) return key;
  return fail("no tiling has rows of %lld elements", (long long)size);
}}
"""
    unlimited = f"{UNLIMITED} + {SMS}" if plan.prefetch else UNLIMITED
    sms = SMS if plan.persistent else f"call->sms ? {SMS} : {unlimited}"
    size = {"size": _size(plan, translate)} if plan.scratch else {}
    entry = tensor_entry(plan, pick, sms, **size)
    return replace(entry, helpers=(*entry.helpers, WINNERS)) if found else entry


def _size(plan: Any, translate: Translator) -> str:
    """Scratch of reductions over rows."""
    rows = " * ".join(in_c(plan.dims, dim) for dim in plan.dims if dim != plan.columns)
    tilings = [plan.tilings[key] for key in plan.whole_keys]
    at_once, ctas = (", ".join(str(getattr(t, name)) for t in tilings) for name in ("rows", "ctas_per_sm"))
    lines = ", ".join(str(lines_of(t.threads, t.rows, t.most)) for t in tilings)
    return f"""\
static const num at_once_ENTRY[] = {{{at_once}}}, ctas_ENTRY[] = {{{ctas}}}, lines_ENTRY[] = {{{lines}}};
static int size_ENTRY(int key, num count, const num *e, num *sizes) {{
  num ctas = {translate.function(row_ctas)}(count, {rows}, at_once_ENTRY[key], ctas_ENTRY[key]);
  sizes[0] = {len(plan.over_rows)} * {in_c(plan.dims, plan.columns)} * ctas * lines_ENTRY[key];
  sizes[1] = {COUNTERS};
  return 0;
}}
"""
