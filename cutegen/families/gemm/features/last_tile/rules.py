"""Rules about the last tile of a CTA. All of it is in the kernel's frame."""

from __future__ import annotations

from cutegen.arch.architecture import Arch
from cutegen.diagnostics import NOT_YET_SUPPORTED, Rule
from cutegen.families.gemm.candidate import Candidate
from cutegen.families.gemm.features.last_tile.knobs import EPILOGUE_RINGS, STAGES_OF_A
from cutegen.families.gemm.features.last_tile.stage_boxes import boxed_tiles, boxes_misfit
from cutegen.families.gemm.problem import GemmProblem
from cutegen.families.gemm.rule_book import BOOK
from cutegen.families.refusal import Objection

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
    if not c.in_boxes:
        return None
    program = problem.kernel_epilogue
    lacking = {
        "a grouped product": problem.groups is not None,
        "rows that threads gather": problem.gather is not None,
        "sums in tensor memory": arch.tensor_memory > 0,
        "values of blocks": bool(program.block or program.block_outputs),
    }
    found = next((what for what, has in lacking.items() if has), None)
    if found is None:
        return None
    return f"`last_tile: {STAGES_OF_A}` with {found} is not yet supported", f"use last_tile: {EPILOGUE_RINGS}"


@BOOK.declare_form(_RULE, "last_tile", "scheduler", "split_k")
def known_last_tile(problem: GemmProblem, c: Candidate, arch: Arch) -> Objection | None:
    if not c.in_boxes:
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


LAST_TILE_RULES = (unsupported_last_tile, known_last_tile, boxed_last_tile)
