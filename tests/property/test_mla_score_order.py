"""A consumer of MLA decode reads the tiles of K in the order in which they are loaded, from a loop and unrolled."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from device_source import device_functions

KERNEL = Path(__file__).parents[2] / "generated" / "mla_decode_bf16_sm90a" / "kernel.py"
TILES = 9


class Consumer:
    """Stands for the kernel's `self` and for the scores where `score` names them."""

    def __init__(self, cluster: int) -> None:
        self.tiling, self.read = SimpleNamespace(cluster=cluster), list[int]()

    def score_tile(self, o: Any, mma: Any, scores: Any, tSrQ: Any, tSrK: Any, w: int, tile: int, phase: int) -> None:
        self.read.append(tile)

    def fill(self, value: float) -> None:
        assert not self.read  # before the first product


@pytest.mark.parametrize("cluster", [1, 2])
@pytest.mark.parametrize("w", [0, 1])
def test_scores_take_tiles_in_the_listed_order(w: int, cluster: int) -> None:
    mma = SimpleNamespace(set=lambda field, value: None)
    kernel = device_functions(
        KERNEL,
        ("score",),
        warp=False,
        TILES=TILES,
        ROPE=TILES - 1,
        Float32=float,
        cute=SimpleNamespace(make_mma_atom=lambda op: mma),
        warpgroup=SimpleNamespace(Field=SimpleNamespace(ACCUMULATE=None)),
    )
    consumer = Consumer(cluster)
    kernel["score"](consumer, None, None, consumer, None, None, w, 0)
    assert tuple(consumer.read) == kernel["SCORE_ORDER"][w]
    # Groups of tiles come back in the order of FREE: of its own buffer, the one that this warpgroup gave back first.
    own, other = (next(t for b, g, t in kernel["FREE"] if (b, g) == (w, group)) for group in (w, 1 - w))
    assert tuple(consumer.read) == (*own, *other)
