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
    """What the templates read as k.boxes. loaded, stored: the tiles that go through stages of A. flow: what of them
    does, in words. count: of boxes in a tile, as source. parameters: names of the place of a tile; origin: of its first
    element, choice: of its boxes among all, as coordinates. more: whether a tile follows. switched: whether a scalar of
    the call may say that nothing is loaded."""

    loaded: TileText | None
    stored: TileText | None
    dtype: str
    n_major: bool
    flow: str
    count: str
    parameters: tuple[str, ...]
    origin: str
    choice: str
    more: str
    switched: bool

    @property
    def ends(self) -> tuple[str, ...]:
        """What is loaded and what is stored, as names of atoms and tensors end."""
        return (*(["BoxIn"] if self.loaded else []), *(["BoxOut"] if self.stored else []))

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
    batched = bool((loaded or stored or inputs.tiles[0]).batch_coordinate)
    flows = [f"{loaded.name} comes through"] if loaded else []
    flows += [f"{stored.name} goes through"] if stored else []
    return BoxesText(
        loaded=loaded,
        stored=stored,
        dtype=tiles.dtype.cutlass,
        n_major=tiles.n_major,
        flow=" and ".join(flows),
        count=f"{tile.columns} // t.box[1]",
        parameters=("m", "n", *(["batch"] if batched else [])),
        origin=f"({tile.first_row}, {tile.first_column}{', 0' * batched})",
        choice=f"(0, None{', batch' * batched})",
        switched=bool(loaded and inputs.tiles_read_if),
        more="more" if consumers.pingpong else "index + step < o.raster.count()",
    )
