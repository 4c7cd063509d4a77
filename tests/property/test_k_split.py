"""How k is shared out, by plain Python running the device source."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

from device_source import device_functions
from hypothesis import given
from hypothesis import strategies as st

DEVICE = Path(__file__).parents[2] / "cutegen" / "device" / "gemm" / "k_split.py"
NAMES = ("unit", "k_range", "steps", "finishes", "split_evenly")
FUNCTIONS = device_functions(DEVICE, NAMES, warp=False, KSplit=lambda k_tiles, parts: split(k_tiles, parts))


def split(k_tiles: int, parts: int) -> SimpleNamespace:
    made = SimpleNamespace(k_tiles=k_tiles, parts=parts)
    for name in NAMES[:-1]:
        setattr(made, name, lambda *args, _name=name: FUNCTIONS[_name](made, *args))
    return made


@given(st.integers(1, 2**20), st.integers(1, 128), st.integers(0, 2**10))
def test_parts_cover_k_once_and_evenly(k_tiles: int, parts: int, tile: int) -> None:
    shares = FUNCTIONS["split_evenly"](k_tiles, parts)
    assert shares.parts == min(parts, k_tiles)
    end, sizes = 0, []
    for part in range(shares.parts):
        index = tile * shares.parts + part
        assert tuple(shares.unit(index)) == (tile, part)
        begin, after = shares.k_range(part)
        assert begin == end < after
        assert shares.steps(index) == after - begin
        assert shares.finishes(index) == int(part == shares.parts - 1)
        end = after
        sizes.append(after - begin)
    assert end == k_tiles
    assert max(sizes) - min(sizes) <= 1
