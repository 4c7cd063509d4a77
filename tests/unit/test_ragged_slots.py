"""Which kernels have slots that get fewer bytes than a full one, and that they say so."""

from __future__ import annotations

import pytest
from gemm_specs import COUNTS, FP8, LABELS, N_MAJOR_B, PLAIN, gathered, resolve_text

SWAPPED = "tiling: {swap_ab: true, tile: [128, 128, 64]}\n"
THIN = SWAPPED.replace("128, 128", "128, 16")


@pytest.mark.parametrize(
    ("text", "fewer"),
    [
        (PLAIN, True),
        (PLAIN + SWAPPED, True),  # its B
        (PLAIN + THIN, False),  # too few bytes for a second copy
        (FP8, True),
        (N_MAJOR_B, True),
        (N_MAJOR_B + SWAPPED, True),
        (PLAIN.replace("a: bf16[m, k]", "a: bf16[k, m]"), False),
        (PLAIN.replace("a: bf16[m, k]", "a: bf16[k, m]") + SWAPPED, False),
        (LABELS, False),
        (COUNTS, False),
        (gathered(PLAIN), False),
        (gathered(PLAIN, "copy"), True),  # of the copy
    ],
)
def test_slots_that_may_get_fewer_bytes(text: str, fewer: bool) -> None:
    tiling = resolve_text(text).resolved.default
    ring = next(p for p in tiling.model.pipelines if p.name == "ab")
    assert ring.full.startswith(f"1 arrival and {'up to ' * fewer}{ring.stage_bytes} bytes by TMA")
