"""What the templates of the kernel of a pair read."""

from __future__ import annotations

from dataclasses import dataclass

from cutegen.arch import ARCHS
from cutegen.families.mla_decode.kernel_text import MlaKernelText, list_overview, shared_text
from cutegen.families.mla_decode.lowering.sm100.derived import (
    OUT_CHUNK,
    TMEM_COLUMNS,
    VALUE_COLUMNS,
    group_keys,
    operands,
)
from cutegen.families.mla_decode.resolved import ResolvedMla


@dataclass(frozen=True, slots=True, kw_only=True)
class PairText(MlaKernelText):
    """What kernel.py.jinja and its parts read on sm_100a. warps: the first one of each role behind the softmax
    warps, by its constant. group: keys of a block that lie in one page. mma_op: a class of tcgen05, and what it
    takes for types; tile, mma_k: columns of a slot with K, and of one product."""

    mma_op: str
    mma_dtypes: tuple[str, ...]
    tile: int
    mma_k: int
    group: int
    value_keys: int
    value_columns: int
    tmem_columns: int
    chunk: int


def pair_text(resolved: ResolvedMla) -> PairText:
    problem, model, of = resolved.problem, resolved.tilings[0].model, operands(resolved.problem)
    arch = ARCHS[resolved.arch]
    mma = arch.find_mma(of.dtype, of.dtype)
    assert mma
    mma_types = {"a": of.dtype.cutlass, "b": of.dtype.cutlass, "sum": "Float32"}
    held = f"{problem.dtype}, a cache in {of.dtype}" if problem.cache else f"{problem.dtype}"
    return PairText(
        **shared_text(resolved, model.barriers, of.dtype, ["Uint8"] if problem.cache else []),
        title=f"MLA decode for {resolved.arch}: {held}, pages of {problem.page_size}, by pairs of CTAs, "
        "split-KV in one launch.",
        overview=tuple(list_overview(resolved)),
        warps={
            name.upper().replace(" ", "_").removesuffix("S"): warps.first
            for name, warps in model.warps.items()
            if warps.first > 0
        },
        mma_op=mma.op,
        mma_dtypes=tuple(mma_types[name] for name in mma.dtypes),
        tile=of.tile,
        mma_k=arch.mma_k(of.dtype),
        group=group_keys(problem),
        value_keys=of.value_keys,
        value_columns=VALUE_COLUMNS,
        tmem_columns=TMEM_COLUMNS,
        chunk=OUT_CHUNK,
    )
