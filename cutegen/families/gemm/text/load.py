"""The load warp in the kernel module: which tensors TMA brings to the ring of A and B, and what that takes."""

from __future__ import annotations

from dataclasses import dataclass

from cutegen.families.gemm.problem import GemmProblem
from cutegen.families.gemm.text.tensors import MatrixText


@dataclass(frozen=True, slots=True)
class LoadText:
    """What the templates read as k.load. names: of atoms, tensors and rings of the operands that TMA loads. tile, cta,
    at: names for the extents of a tile, for the place in the cluster and for that of a tile, "_" where not needed."""

    names: tuple[str, ...]
    tile: str
    cta: str
    at: str


def load_text(problem: GemmProblem, a: MatrixText, b: MatrixText) -> LoadText:
    """In the kernel's frame."""
    sides = (("m", "A", a), ("n", "B", b))
    used = {dim for dim, _, t in sides if not t.gathered} | ({problem.row_scale[1]} if problem.row_scale else set())
    return LoadText(
        names=tuple(f"{kind}{x}" for kind in ("tma", "m", "s") for _, x, t in sides if not t.gathered),
        tile=", ".join((*(f"tile_{dim}" if dim in used else "_" for dim in "mn"), "tile_k")),
        cta=f"{'_' if b.gathered else 'cta_m'}, {'_' if a.gathered else 'cta_n'}, _",
        at=", ".join(dim if dim in used else "_" for dim in "mn"),
    )
