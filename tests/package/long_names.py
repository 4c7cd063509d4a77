"""Specs of every kind whose names are as long as those of real models, or as the spec language lets them be."""

from __future__ import annotations

import random
import re

from gemm_specs import (
    CONSTANTS,
    COUNTS,
    EDGES,
    FUSED,
    LABELS,
    OFFSETS,
    bind_text,
    gathered,
    group_fused,
    group_quantised,
    group_scaled,
)
from spec_variety import BLOCK_VALUES, LONG

_KINDS = (
    *EDGES.values(),
    *CONSTANTS.values(),
    *BLOCK_VALUES,
    *map(group_scaled, (LABELS, COUNTS, OFFSETS)),
    *map(group_quantised, (LABELS, OFFSETS)),
    gathered(OFFSETS),
    gathered(group_fused(LABELS)),
    FUSED.replace("bias: f32[n]", "bias: f32[n]?").replace("residual: bf16[m, n]", "residual: bf16[m, n]?"),
    FUSED.replace("[m, ", "[l, m, ").replace("  d: bf16", "  amax: f32[l, m]\n  d: bf16") + "  amax: max_abs(d, n)\n",
)


def long_names(seed: int) -> dict[str, str]:
    """A spec of each kind by name, of one tiling; in each, all names have one length."""
    rng = random.Random(seed)
    return {
        f"kind_{i}": _lengthened(text, rng.randint(20, len(LONG))) + "portfolio: 1\n" for i, text in enumerate(_KINDS)
    }


def _lengthened(text: str, length: int) -> str:
    """The spec with names of dims, tensors and values filled up to `length` characters."""
    problem = bind_text(text)
    names = {d.name for d in problem.dims} | {*problem.inputs, *problem.outputs}
    names |= {s.name for s in problem.epilogue.statements}
    if "mainloop:" not in text:
        text += "mainloop: a @ b\n"
    inside_a_line = rf"(?m)(?<!^)\b({'|'.join(sorted(names))})\b"  # what begins one is a key
    return re.sub(inside_a_line, lambda name: f"{name[0]}_{LONG}"[: max(length, len(name[0]))], text)
