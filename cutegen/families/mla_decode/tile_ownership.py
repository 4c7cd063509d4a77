"""A picture of the tiles of a key block: what they hold, who reads them last, and in which order they are loaded."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from cutegen.families.mla_decode.derived import BUFFERS, CONSUMERS
from cutegen.families.mla_decode.resolved import FreeGroup


def draw_tiles(
    tiles: int, values: int, free: Sequence[FreeGroup], score_order: Sequence[Sequence[int]]
) -> Iterator[str]:
    """A column for each tile of 64 columns, of which V has the first `values`. free: in the order in which groups are
    loaded again; score_order: the tiles in the order in which each warpgroup reads them for its scores."""
    rest = tiles - values  # of K alone
    rows: list[tuple[str, list[object]]] = [
        ("tile", [*range(tiles)]),
        ("holds", [*"V" * values, *"P" * rest]),
        ("O of consumer", [tile * CONSUMERS // values for tile in range(values)] + ["-"] * rest),
    ]
    for w, order in enumerate(score_order):
        rows.append((f"consumer {w} scores it as number", [1 + order.index(tile) for tile in range(tiles)]))
    for buffer in range(BUFFERS):
        groups = {tile: (1 + i, g.warpgroup) for i, g in enumerate(free) if g.buffer == buffer for tile in g.tiles}
        rows.append((f"k{buffer}: consumer that frees it", [groups[tile][1] for tile in range(tiles)]))
        rows.append((f"k{buffer}: loaded again in group", [groups[tile][0] for tile in range(tiles)]))
    width = max(len(name) for name, _ in rows)
    last = "the last one P of its block once the scores are done" if rest else "P of the block lies behind them"
    yield f"Tiles of a key block; all hold K first, and {last}:"
    for name, cells in rows:
        yield f"  {name:<{width}}" + "".join(f"{cell!s:>3}" for cell in cells)
