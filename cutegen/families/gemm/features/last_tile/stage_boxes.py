"""Boxes of the epilogue's tiles, each as large as a stage of A. All of it is in the kernel's frame."""

from __future__ import annotations

from dataclasses import dataclass

from cutegen.arch.architecture import SWIZZLES
from cutegen.dtypes import DType
from cutegen.epilogue import Operand, Output
from cutegen.families.gemm.candidate import Candidate
from cutegen.families.gemm.derived import epilogue_tile, output_tile
from cutegen.families.gemm.features.last_tile.knobs import EPILOGUE_RINGS
from cutegen.families.gemm.problem import GemmProblem
from cutegen.families.refusal import Objection


@dataclass(frozen=True, slots=True)
class BoxedTiles:
    """The epilogue's tiles that go through stages of A: the one that is loaded, the one that is stored, or both. Where
    both, they are of one dtype and major, and a result is staged where the loaded value was."""

    loaded: Operand | None
    stored: Output | None

    @property
    def dtype(self) -> DType:
        return self._any.dtype

    @property
    def n_major(self) -> bool:
        return self._any.major == "n"

    @property
    def _any(self) -> Operand | Output:
        found = self.loaded or self.stored
        assert found
        return found


def boxed_tiles(problem: GemmProblem) -> BoxedTiles | None:
    """None: the epilogue has no such tiles, or has more of them than would gain by it."""
    tiles, outputs = problem.kernel_epilogue.tiles, problem.kernel_epilogue.outputs
    if len(tiles) > 1 or (not tiles and len(outputs) > 1):
        return None
    loaded = tiles[0] if tiles else None
    stored = outputs[0] if len(outputs) == 1 and not outputs[0].direct else None
    if loaded and stored and (loaded.dtype, loaded.major) != (stored.dtype, stored.major):
        stored = None
    return BoxedTiles(loaded, stored) if loaded or stored else None


def box(problem: GemmProblem, c: Candidate) -> tuple[int, int]:
    """(rows, columns) of a box: all rows that a tile has in the epilogue, and as many columns as fill a stage of A."""
    rows, _ = output_tile(problem, c)
    tiles = boxed_tiles(problem)
    if tiles is None or rows == 0:
        return 0, 0
    return rows, problem.a.dtype.size(c.tile[0] * c.tile[2]) // (rows * tiles.dtype.bytes)


def boxes(problem: GemmProblem, c: Candidate) -> int:
    """Whole boxes in the columns of a tile; the columns behind them go through the epilogue's rings."""
    columns = box(problem, c)[1]
    return output_tile(problem, c)[1] // columns if columns else 0


def boxes_misfit(problem: GemmProblem, c: Candidate) -> Objection | None:
    """Why boxes of these tiles do not fit this ring of A."""
    tiles = boxed_tiles(problem)
    if not c.in_boxes or tiles is None:
        return None
    remedy = f"use last_tile: {EPILOGUE_RINGS}"
    rows, columns = box(problem, c)
    size = problem.a.dtype.size(c.tile[0] * c.tile[2])
    what = f"a stage of `{problem.a.name}` has {size} B, of {tiles.dtype} {rows} rows x {columns} columns"
    row = (columns if tiles.n_major else rows) * tiles.dtype.bytes
    if row % SWIZZLES[0]:  # with narrower rows TMA moves more of them
        return f"{what}: rows of {row} B, no multiple of {SWIZZLES[0]}", remedy
    width = epilogue_tile(problem, c)[1]
    if columns % width:
        return f"{what}: no whole epilogue tiles of {width} columns", remedy
    count = boxes(problem, c)
    if count == 0:
        return f"{what}, more than the {output_tile(problem, c)[1]} of the tile", f"{remedy}, or a wider tile"
    if count > c.stages:
        return f"{what}: the tile takes {count} of them, and the ring has {c.stages}", f"{remedy}, or more stages"
    return None
