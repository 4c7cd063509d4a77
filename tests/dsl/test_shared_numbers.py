"""Numbers that rules size registers and scratch by, and that device code states for itself, are the same."""

from __future__ import annotations

import pytest

pytest.importorskip("cutlass", reason="nvidia-cutlass-dsl is not installed")

from cutegen.arch.architecture import ACCESS_BYTES, WARP_THREADS
from cutegen.device.gemm import row_gather, tile_queue
from cutegen.families.gemm import derived
from cutegen.families.gemm.features.gather import gather_warps
from cutegen.model.smem import F32
from cutegen.runtime.rowwise.plan import WARP

pytestmark = pytest.mark.dsl


def test_counters_of_the_tile_queue() -> None:
    assert (derived.QUEUE_COUNTERS, derived.INDEX_BYTES) == (tile_queue.COUNTERS, tile_queue.INDEX_BYTES)


def test_copies_of_gathered_rows() -> None:
    assert (ACCESS_BYTES, gather_warps.GATHER_LANES) == (row_gather.CHUNK, row_gather.LANES)
    assert F32.bytes == row_gather.SCALE


def test_threads_of_a_warp() -> None:
    assert WARP_THREADS == WARP
