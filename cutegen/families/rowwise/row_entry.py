"""The C entry of row kernels: the extent of a row, or the elements of a call, decide."""

from __future__ import annotations

from typing import Any

from cutegen.families.c_entry import SMS, CEntry, Translator, in_c, tensor_entry
from cutegen.runtime.rowwise.plan import UNLIMITED


def c_entry(plan: Any, translate: Translator) -> CEntry | str:
    """Of a plan of runtime/rowwise/plan.py, whose tilings ascend."""
    extents = [in_c(plan.dims, dim) for dim in ((plan.columns,) if plan.summed else plan.dims)]
    most = ", ".join(str(t.most) for t in plan.tilings.values())
    pick = f"""\
static const num most_ENTRY[] = {{{most}}};
static int pick_ENTRY(const BUNDLE_device *device, num sms, const num *e) {{
  num size = {" * ".join(extents)};
  for (int key = 0; key < {len(plan.tilings)}; key++)
    if (!most_ENTRY[key] || size <= most_ENTRY[key]) return key;
  return fail("no tiling has rows of %lld elements", (long long)size);
}}
"""
    return tensor_entry(plan, pick, SMS if plan.prefetch else f"call->sms ? {SMS} : {UNLIMITED}")
