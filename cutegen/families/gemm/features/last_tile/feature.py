"""What a last tile in boxes adds to a GEMM, seam by seam: the load warp brings the tile that the epilogue reads into
stages of A, and results leave there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from cutegen.arch import Arch
from cutegen.families.gemm.candidate import Candidate
from cutegen.families.gemm.features.feature import Feature, Settling
from cutegen.families.gemm.features.last_tile.knobs import EPILOGUE_RINGS, STAGES_OF_A
from cutegen.families.gemm.features.last_tile.rules import LAST_TILE_RULES
from cutegen.families.gemm.features.last_tile.stage_boxes import box, boxed_tiles, boxes, boxes_misfit
from cutegen.families.gemm.orientation import kernel_frame
from cutegen.families.gemm.problem import GemmProblem
from cutegen.families.gemm.warps import LOAD_WARP
from cutegen.model.kernel import Pipeline, Warps
from cutegen.model.smem import SmemRegion


class LastTileFeature(Feature):
    def why_static(self, c: Candidate) -> str:
        return "a CTA has to know which tile is its last" if c.in_boxes else ""

    def settle_last(self, settling: Settling) -> None:
        ring, why = _choose(settling.problem, settling.c, settling.arch)
        settling.settle(why, last_tile=ring)

    def vary(self, problem: GemmProblem, c: Candidate, arch: Arch, unordered: bool) -> Iterator[dict[str, Any]]:
        through = EPILOGUE_RINGS if c.in_boxes else STAGES_OF_A
        framed = kernel_frame(problem, c.vary(last_tile=through))
        if not any(refuse(*framed, arch) for refuse in LAST_TILE_RULES):
            yield {"last_tile": through}

    def without_operands(self, rest: GemmProblem, candidates: Sequence[Candidate]) -> Sequence[Candidate]:
        if any(boxes_misfit(*kernel_frame(rest, c)) for c in candidates):  # a stage holds fewer columns of what is left
            return [c.vary(last_tile=EPILOGUE_RINGS) for c in candidates]
        return candidates

    def list_pipelines(
        self, problem: GemmProblem, c: Candidate, smem: Sequence[SmemRegion], consumers: str, warps: tuple[Warps, ...]
    ) -> Iterator[Pipeline]:
        if size := box_bytes(problem, c):
            full = f"1 arrival and {size} bytes by TMA ({problem.kernel_epilogue.tiles[0].name})"
            empty = "as in ab; no box is released, as none follows it"
            yield Pipeline("boxes", "TmaAsync", "load warp", consumers, boxes(problem, c), size, full, empty,
                           (LOAD_WARP,), warps, own_empty=False, empty_of="ab",
                           each="last tile's boxes")  # fmt: skip

    def loads(self, problem: GemmProblem, c: Candidate) -> str:
        return f", at the end boxes of {problem.kernel_epilogue.tiles[0].name}" if box_bytes(problem, c) else ""

    def numbers(self, problem: GemmProblem, c: Candidate) -> Mapping[str, tuple[Any, str]]:
        tiles = boxed_tiles(problem)
        if not c.in_boxes or tiles is None:
            return {}
        found: dict[str, tuple[Any, str]] = {
            "box": (box(problem, c), "all rows of the tile, and the columns that fill a stage of A")
        }
        if size := box_bytes(problem, c):
            found["box_bytes"] = size, f"box x {tiles.dtype.bytes} B"
        return found


def box_bytes(problem: GemmProblem, c: Candidate) -> int:
    """Of one box that is loaded; 0 where none is."""
    tiles = boxed_tiles(problem)
    if not c.in_boxes or tiles is None or not tiles.loaded:
        return 0
    rows, columns = box(problem, c)
    return rows * columns * tiles.dtype.bytes


def _choose(problem: GemmProblem, c: Candidate, arch: Arch) -> tuple[str, str]:
    """What a CTA's last tile goes through, and why."""
    if not problem.kernel_epilogue.tiles:
        return EPILOGUE_RINGS, "no tile is loaded, and stores alone gain 1 to 4% with wide tiles, or lose 1%"
    through = c.vary(last_tile=STAGES_OF_A)
    for refuse in LAST_TILE_RULES:
        if finding := refuse(problem, through, arch):
            return EPILOGUE_RINGS, finding.reason
    return STAGES_OF_A, "the tile that is read is there when the MMAs end, and nothing hides the last epilogue"
