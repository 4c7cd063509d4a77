"""A CTA's last tile in the kernel module, where it goes through stages of A."""

from __future__ import annotations

from dataclasses import dataclass

from cutegen.families.gemm.candidate import STAGES_OF_A, Candidate
from cutegen.families.gemm.last_tile import boxed_tiles
from cutegen.families.gemm.problem import GemmProblem
from cutegen.families.gemm.text.consumers import ConsumersText
from cutegen.families.gemm.text.epilogue import InputsText, OutputsText
from cutegen.families.gemm.text.output_tile import OutputTileText
from cutegen.families.gemm.text.tensors import TileText


@dataclass(frozen=True, slots=True)
class BoxesText:
    """What the templates read as k.boxes. loaded, stored: the tiles that go through stages of A. flow: how, in words.
    count: of boxes in a tile, as source. parameters: names of the place of a loaded tile. first: row and column of a
    tile's first element. more: whether a tile follows. switched: whether a scalar of the call may say that nothing is
    loaded."""

    loaded: TileText | None
    stored: TileText | None
    dtype: str
    n_major: bool
    flow: str
    count: str
    parameters: tuple[str, ...]
    first: str
    more: str
    switched: bool

    @property
    def ends(self) -> tuple[str, ...]:
        """What is loaded and what is stored, as names of atoms and tensors end."""
        return (*(["BoxIn"] if self.loaded else []), *(["BoxOut"] if self.stored else []))

    def origin(self, tile: TileText) -> str:
        """Coordinates of a tile's first element."""
        return f"({self.first}{', 0' if tile.batch_coordinate else ''})"

    def choice(self, tile: TileText) -> str:
        """Coordinates of a tile's boxes among all from `origin` on; one that batches share has no batch index."""
        return f"(0, None{tile.batch_coordinate})"

    @property
    def atoms(self) -> tuple[str, ...]:
        return tuple(f"tma{end}" for end in self.ends)


def boxes_text(
    problem: GemmProblem,
    structure: Candidate,
    inputs: InputsText,
    outputs: OutputsText,
    tile: OutputTileText,
    consumers: ConsumersText,
) -> BoxesText | None:
    """In the kernel's frame."""
    tiles = boxed_tiles(problem)
    if structure.last_tile != STAGES_OF_A or tiles is None:
        return None
    loaded = inputs.tiles[0] if tiles.loaded else None
    stored = outputs.every[0] if tiles.stored else None
    return BoxesText(
        loaded=loaded,
        stored=stored,
        dtype=tiles.dtype.cutlass,
        n_major=tiles.n_major,
        flow=_flow(loaded, stored),
        count=f"{tile.columns} // t.box[1]",
        parameters=("m", "n", *(["batch"] if loaded and loaded.batch_coordinate else [])),
        first=f"{tile.first_row}, {tile.first_column}",
        switched=bool(loaded and inputs.tiles_read_if),
        more="more" if consumers.pingpong else "index + step < o.raster.count()",
    )


def _flow(loaded: TileText | None, stored: TileText | None) -> str:
    if loaded and stored:
        return f"{loaded.name} comes in boxes of a stage each, and {stored.name} leaves in them, one barrier a box"
    if stored:
        return f"{stored.name} leaves in boxes of a stage each, one barrier a box"
    assert loaded
    return f"{loaded.name} comes in boxes of a stage each"
