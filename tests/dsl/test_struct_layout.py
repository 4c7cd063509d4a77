"""The maps of shared memory that families compute are what CuTe makes of a struct with these fields."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
from gemm_specs import FUSED, resolve_text

from cutegen.families.registry import FAMILIES

pytestmark = [
    pytest.mark.dsl,
    pytest.mark.skipif(importlib.util.find_spec("cutlass") is None, reason="nvidia-cutlass-dsl is not installed"),
]


FOLDER = Path(__file__).parents[2] / "cutegen" / "families"
# What `new` begins with for each family, and a GEMM with vectors and loaded tiles.
TEXTS = {family: (FOLDER / family / "starter.yaml").read_text(encoding="utf-8") for family in FAMILIES}
TEXTS["fused"] = FUSED


@pytest.mark.parametrize("name", TEXTS)
def test_offsets_and_size(name: str) -> None:
    import cutlass
    import cutlass.cute as cute

    tiling = resolve_text(TEXTS[name]).resolved.tilings[0]
    regions, size = tiling.model.smem, tiling.numbers.smem_bytes
    natural = {8: cutlass.Int64, 4: cutlass.Int32}
    fields = {}
    for region in regions:
        element = natural.get(region.align, cutlass.Uint8)
        field = cute.struct.MemRange[element, region.bytes * 8 // element.width]
        fields[region.name] = field if region.align in natural else cute.struct.Align[field, region.align]
    made = cute.struct(type("SharedStorage", (), {"__annotations__": fields}))
    assert {region.name: region.offset for region in regions} == made._offsets
    assert made.size_in_bytes() == size
