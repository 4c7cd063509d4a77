"""The last tile of a CTA: its epilogue's tiles may go through stages of A, which no k tile needs any more, in boxes as
large as a stage. All of it is in the kernel's frame."""

from __future__ import annotations

from dataclasses import dataclass

from cutegen.arch.architecture import SWIZZLES, Arch
from cutegen.diagnostics import NOT_YET_SUPPORTED, Rule
from cutegen.dtypes import DType
from cutegen.epilogue import Operand, Output
from cutegen.families.gemm.candidate import EPILOGUE_RINGS, STAGES_OF_A, Candidate
from cutegen.families.gemm.derived import epilogue_tile, output_tile
from cutegen.families.gemm.problem import GemmProblem
from cutegen.families.gemm.rule_book import BOOK
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
    return rows, c.tile[0] * c.tile[2] * problem.a.dtype.bytes // (rows * tiles.dtype.bytes)


def boxes(problem: GemmProblem, c: Candidate) -> int:
    """Whole boxes in the columns of a tile; the columns behind them go through the epilogue's rings."""
    columns = box(problem, c)[1]
    return output_tile(problem, c)[1] // columns if columns else 0


_RULE = Rule(
    "last-tile",
    "the last tile of a CTA goes through stages of A where the CTA knows which is its last, in boxes that fill a stage",
    "With `last_tile: stages` the load warp brings the tile that the epilogue reads into stages of A as the last k "
    "tiles leave them, and results are staged there as well, all rows of a tile and 128 bytes or more of each at once. "
    "No epilogue slot is waited for, and there is one barrier a box. A CTA has to know that no tile follows, so "
    "the scheduler is static and k is not split.",
    "scheduler: dynamic_persistent\npipeline: {last_tile: stages}",
)


@BOOK.declare_form(NOT_YET_SUPPORTED, "last_tile")
def unsupported_last_tile(problem: GemmProblem, c: Candidate, arch: Arch) -> Objection | None:
    if c.last_tile != STAGES_OF_A:
        return None
    program = problem.kernel_epilogue
    lacking = {
        "a grouped product": problem.groups is not None,
        "rows that threads gather": problem.gather is not None,
        "values of blocks": bool(program.block or program.block_outputs),
    }
    found = next((what for what, has in lacking.items() if has), None)
    if found is None:
        return None
    return f"`last_tile: {STAGES_OF_A}` with {found} is not yet supported", f"use last_tile: {EPILOGUE_RINGS}"


@BOOK.declare_form(_RULE, "last_tile", "scheduler", "split_k")
def known_last_tile(problem: GemmProblem, c: Candidate, arch: Arch) -> Objection | None:
    if c.last_tile != STAGES_OF_A:
        return None
    if boxed_tiles(problem) is None:
        tiles, outputs = problem.kernel_epilogue.tiles, problem.kernel_epilogue.outputs
        what = f"loads {len(tiles)} tiles: only one" if tiles else f"stores {len(outputs)} tiles: only one"
        if len(outputs) == 1 and not tiles:
            what = f"loads no tile, and threads store `{outputs[0].name}`: only tiles that TMA moves"
        return f"the epilogue {what} can go through stages of A", f"use last_tile: {EPILOGUE_RINGS}"
    if c.dynamic:
        reason = "a dynamic scheduler hands out the next tile while this one is stored: none is known to be the last"
        return reason, f"use static_persistent, or last_tile: {EPILOGUE_RINGS}"
    if c.split_k > 1:
        return (
            f"split_k = {c.split_k}: not every CTA stores its last part",
            f"use last_tile: {EPILOGUE_RINGS}, or split_k: 1",
        )
    return None


@BOOK.declare_fit(_RULE, "last_tile", "tile", "stages")
def boxed_last_tile(problem: GemmProblem, c: Candidate, arch: Arch) -> Objection | None:
    return boxes_misfit(problem, c)


def boxes_misfit(problem: GemmProblem, c: Candidate) -> Objection | None:
    """Why boxes of these tiles do not fit this ring of A."""
    tiles = boxed_tiles(problem)
    if c.last_tile != STAGES_OF_A or tiles is None:
        return None
    remedy = f"use last_tile: {EPILOGUE_RINGS}"
    rows, columns = box(problem, c)
    size = c.tile[0] * c.tile[2] * problem.a.dtype.bytes
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


LAST_TILE_RULES = (unsupported_last_tile, known_last_tile, boxed_last_tile)
