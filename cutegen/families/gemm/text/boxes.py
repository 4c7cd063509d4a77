"""A CTA's last tile in the kernel module, where it goes through stages of A."""

from __future__ import annotations

from dataclasses import dataclass

from cutegen.families.gemm.candidate import Candidate
from cutegen.families.gemm.features.last_tile.stage_boxes import boxed_tiles
from cutegen.families.gemm.problem import GemmProblem
from cutegen.families.gemm.text.epilogue import InputsText, OutputsText
from cutegen.families.gemm.text.tensors import TileText


@dataclass(frozen=True, slots=True)
class BoxesText:
    """What the templates read as k.boxes. loaded, stored: the tiles that go through stages of A. switched: whether a
    scalar of the call may say that nothing is loaded."""

    loaded: TileText | None
    stored: TileText | None
    dtype: str
    n_major: bool
    switched: bool

    @property
    def flow(self) -> str:
        """How, in words."""
        leaves = f"{self.stored.name} leaves in {{}}, one barrier a box" if self.stored else ""
        if not self.loaded:
            return leaves.format("boxes of a stage each")
        comes = f"{self.loaded.name} comes in boxes of a stage each"
        return f"{comes}, and {leaves.format('them')}" if leaves else comes

    @property
    def parameters(self) -> tuple[str, ...]:
        """Names of the place of a loaded tile."""
        return ("m", "n", *["batch"] * bool(self.loaded and self.loaded.batched))

    @property
    def ends(self) -> tuple[str, ...]:
        """What is loaded and what is stored, as names of atoms and tensors end."""
        return (*(["box_in"] if self.loaded else []), *(["box_out"] if self.stored else []))

    @property
    def atoms(self) -> tuple[str, ...]:
        return tuple(f"tma_atom_{end}" for end in self.ends)


def boxes_text(
    problem: GemmProblem, structure: Candidate, inputs: InputsText, outputs: OutputsText
) -> BoxesText | None:
    """In the kernel's frame."""
    tiles = boxed_tiles(problem)
    if not structure.in_boxes or tiles is None:
        return None
    return BoxesText(
        loaded=inputs.tiles[0] if tiles.loaded else None,
        stored=outputs.every[0] if tiles.stored else None,
        dtype=tiles.dtype.cutlass,
        n_major=tiles.n_major,
        switched=bool(tiles.loaded and inputs.switches),
    )
