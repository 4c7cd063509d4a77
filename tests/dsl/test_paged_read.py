"""The kernel that reads pages compiles for every page size that MLA decode has, and keeps enough bytes in flight."""

from __future__ import annotations

import pytest

pytest.importorskip("cutlass")

from cutlass import Uint8

from cutegen.device.mla_decode.paged_read import HEAD, SMEM_BYTES, PagedRead, compile_paged_read

pytestmark = pytest.mark.dsl


@pytest.mark.parametrize("page_size", [16, 128])
def test_compiles_for_bytes(page_size: int) -> None:
    assert compile_paged_read("Uint8", page_size, "sm_90a", row_bytes=656)
    reader = PagedRead(Uint8, page_size, row_bytes=656)
    assert SMEM_BYTES * 2 // 3 <= reader.stages * page_size * 656 <= SMEM_BYTES


@pytest.mark.parametrize("page_size", [16, 32, 64, 128])
def test_compiles(page_size: int) -> None:
    assert compile_paged_read("BFloat16", page_size, "sm_90a")
    stages = PagedRead(None, page_size).stages
    assert SMEM_BYTES * 2 // 3 <= stages * page_size * HEAD * 2 <= SMEM_BYTES
