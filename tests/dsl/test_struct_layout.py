"""The maps of shared memory that families compute are what CuTe makes of a struct with these fields."""

from __future__ import annotations

import importlib.util

import pytest
from gemm_specs import FUSED, bind_text, candidate
from mla_specs import MLA, bind_mla

from cutegen.families.gemm.derived import smem_map as gemm_map
from cutegen.families.mla_decode.derived import smem_map as mla_map
from cutegen.families.resolved import SmemRegion

pytestmark = [
    pytest.mark.dsl,
    pytest.mark.skipif(importlib.util.find_spec("cutlass") is None, reason="nvidia-cutlass-dsl is not installed"),
]


def maps() -> dict[str, tuple[tuple[SmemRegion, ...], int]]:
    plain, fused = bind_mla(MLA), bind_text(FUSED)
    return {"mla_decode": mla_map(plain), "gemm": gemm_map(fused, candidate(fused))}


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
