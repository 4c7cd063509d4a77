"""Tiles that leave an epilogue with reductions its registers; tests/dsl/test_register_limits.py compiles them."""

from __future__ import annotations

import pytest
from gemm_specs import EDGES, PINGPONG, PLAIN, resolve_text


@pytest.mark.parametrize(
    ("edge", "tile", "columns"),
    [
        ("row_sums_beside_f32_tiles", (128, 192, 64), 16),
        ("column_sums_in_pingpong", (128, 192, 64), 16),
        ("row_and_column_sums_in_pingpong", (128, 128, 64), 32),
        ("stored_beside_its_blocks_in_pingpong", (64, 128, 64), 32),
    ],
)
def test_reductions_leave_registers(edge: str, tile: tuple[int, int, int], columns: int) -> None:
    """With 32 columns at once, with 192 accumulators beside two reductions, or 128 and as many rounded values, they
    spilled."""
    (tiling,) = resolve_text(EDGES[edge]).resolved.tilings
    assert (tiling.candidate.tile, tiling.numbers.epilogue_tile[1]) == (tile, columns)


def test_a_written_tile_is_kept_though_it_may_spill() -> None:
    text = EDGES["row_and_column_sums_in_pingpong"] + "tiling: {tile: [128, 192, 64]}\n"
    (tiling,) = resolve_text(text).resolved.tilings
    assert (tiling.candidate.tile, tiling.numbers.epilogue_tile) == ((128, 192, 64), (64, 16))


def test_without_reductions_nothing_changes() -> None:
    (tiling,) = resolve_text(PLAIN + PINGPONG).resolved.tilings
    assert (tiling.candidate.tile, tiling.numbers.epilogue_tile) == ((128, 192, 64), (64, 32))
