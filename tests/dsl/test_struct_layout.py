"""The maps of shared memory that families compute are what CuTe makes of a struct with these fields."""

from __future__ import annotations

import importlib.util

import pytest
from gemm_specs import FUSED, bind_text, candidate
from mla_specs import MLA, bind_mla, mla_candidate

from cutegen.families.gemm.tiling_numbers import derive as derive_gemm
from cutegen.families.mla_decode.derived import derive as derive_mla
from cutegen.model.smem import SmemRegion

pytestmark = [
    pytest.mark.dsl,
    pytest.mark.skipif(importlib.util.find_spec("cutlass") is None, reason="nvidia-cutlass-dsl is not installed"),
]


def maps() -> dict[str, tuple[tuple[SmemRegion, ...], int]]:
    plain, fused = bind_mla(MLA), bind_text(FUSED)
    found = {"mla_decode": derive_mla(plain, mla_candidate(plain)), "gemm": derive_gemm(fused, candidate(fused))}
    return {family: (d.smem, d.smem_bytes) for family, d in found.items()}


@pytest.mark.parametrize("family", ["mla_decode", "gemm"])
def test_offsets_and_size(family: str) -> None:
    import cutlass
    import cutlass.cute as cute

    regions, size = maps()[family]
    natural = {8: cutlass.Int64, 4: cutlass.Int32}
    fields = {}
    for region in regions:
        element = natural.get(region.align, cutlass.Uint8)
        field = cute.struct.MemRange[element, region.bytes * 8 // element.width]
        fields[region.name] = field if region.align in natural else cute.struct.Align[field, region.align]
    made = cute.struct(type("SharedStorage", (), {"__annotations__": fields}))
    assert {region.name: region.offset for region in regions} == made._offsets
    assert made.size_in_bytes() == size
