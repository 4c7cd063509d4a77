"""The load warp in the kernel module: which tensors TMA brings to the rings of A, B and the scales, and how."""

from __future__ import annotations

from dataclasses import dataclass, replace

from cutegen.families.gemm.candidate import Candidate
from cutegen.families.gemm.problem import GemmProblem
from cutegen.families.gemm.text.groups import GroupText
from cutegen.families.gemm.text.mainloop import MainloopText
from cutegen.families.gemm.text.tensors import MatrixText


@dataclass(frozen=True, slots=True)
class LoadedText:
    """A tensor that TMA brings to a ring, box by box.

    atom, gmem, smem: names of copy atom, tensor and ring; modes, smem_modes: of the latter two. source: what boxes are
    cut from, another for each tile (`moving`) where groups begin anywhere; boxes: the name of what is cut, box: the
    extents of one, all_boxes: coordinates that choose all, boxes_modes: modes then. of_smem, of_gmem: names of the
    partitions for the copy; peer: of them, where CTAs share a box; mask, mask_value: of those CTAs. coordinate: of the
    box of a step. tile: in words. ahead: loaded before the wait for the kernel in front.
    """

    atom: str
    gmem: str
    smem: str
    modes: str
    smem_modes: str
    source: str
    moving: bool
    boxes: str
    box: str
    all_boxes: str
    boxes_modes: str
    of_smem: str
    of_gmem: str
    peer: str
    mask: str
    mask_value: str
    coordinate: str
    tile: str
    ahead: bool = False


@dataclass(frozen=True, slots=True)
class LoadText:
    """What the templates read as k.load. operands, scales: what is loaded. extents, peers, at: names for the extents of
    a tile, for the place in the cluster and for that of a tile, "_" where not needed. k_tiles: steps of a tile."""

    operands: tuple[LoadedText, ...]
    scales: tuple[LoadedText, ...]
    extents: str
    peers: str
    at: str
    k_tiles: str

    @property
    def every(self) -> tuple[LoadedText, ...]:
        return (*self.operands, *self.scales)

    @property
    def k_tiles_ahead(self) -> str:
        """Steps of a tile, where only what is loaded ahead has been cut into boxes."""
        return _count_steps(self.ahead[0])

    @property
    def ahead(self) -> tuple[LoadedText, ...]:
        return tuple(x for x in self.operands if x.ahead)

    @property
    def late(self) -> tuple[LoadedText, ...]:
        return tuple(x for x in self.every if not x.ahead)


def load_text(
    problem: GemmProblem,
    structure: Candidate,
    a: MatrixText,
    b: MatrixText,
    mainloop: MainloopText,
    groups: GroupText | None,
) -> LoadText:
    """In the kernel's frame."""
    ahead = structure.load_ahead_a, structure.load_ahead_b
    operands = tuple(
        replace(_operand(problem, axis, t, groups), ahead=ahead[axis])
        for axis, t in enumerate((a, b))
        if not t.gathered
    )
    used = {dim for dim, t in (("m", a), ("n", b)) if not t.gathered}
    scales = _scales(mainloop, groups)
    used |= {mainloop.row_scale.side} if mainloop.row_scale and scales else set()
    names = [dim if dim in used else "_" for dim in "mn"]
    fixed = [x for x in operands if not x.moving]
    return LoadText(
        operands=operands,
        scales=scales,
        extents=", ".join((*(f"tile_{dim}" if dim in used else "_" for dim in "mn"), "tile_k")),
        peers=f"{'_' if b.gathered else 'cta_m'}, {'_' if a.gathered else 'cta_n'}, _",
        at=", ".join((*names, "batch" if problem.batch is not None else "_")),
        k_tiles=_count_steps((*fixed, *operands)[0]),
    )


def _count_steps(x: LoadedText) -> str:
    return f"cute.size({x.boxes}, mode=[3])"


def _operand(problem: GemmProblem, axis: int, t: MatrixText, groups: GroupText | None) -> LoadedText:
    dim, name, operand = "mn"[axis], "AB"[axis], (problem.a, problem.b)[axis]
    moving = groups is not None and groups.moves(dim)
    other = "nm"[axis]
    row = f"({dim}, 0)" if problem.paired_dim == dim else dim
    return LoadedText(
        atom=f"tma{name}",
        gmem=f"m{name}",
        smem=f"s{name}",
        modes=t.modes,
        smem_modes=f"b{dim.upper()}, bK, stages",
        source=f"row_groups.from_row(o.m{name}, begin)" if moving else f"o.m{name}",
        moving=moving,
        boxes=f"g{name}",
        box=t.box,
        all_boxes=_all_boxes(operand.batched),
        boxes_modes=f"b{dim.upper()}, bK, {_rest(dim, operand.batched)}",
        of_smem=f"t{name}s{name}",
        of_gmem=f"t{name}g{name}",
        peer=f", cta_{other}, t.multicast[{axis}]",
        mask=f"mask_{name.lower()}",
        mask_value=f"tma.multicast_mask(t.cluster, {'mn'.index(other)}, t.multicast[{axis}])",
        coordinate=f"{row}, k" + ", batch" * operand.batched,
        tile=f"tiles of {operand.name}",
    )


def _scales(mainloop: MainloopText, groups: GroupText | None) -> tuple[LoadedText, ...]:
    if (s := mainloop.row_scale) is None or s.gathered:
        return ()
    moving = groups is not None and groups.moves(s.side)
    return (
        LoadedText(
            atom=f"tma_{s.name}",
            gmem=f"m_{s.name}",
            smem=f"s_{s.name}",
            modes=s.modes,
            smem_modes=s.smem_modes,
            source=f"row_groups.from_row(o.m_{s.name}, begin)" if moving else f"o.m_{s.name}",
            moving=moving,
            boxes=f"g_{s.name}",
            box=s.box,
            all_boxes=_all_boxes(s.batched),
            boxes_modes=f"b{s.side.upper()}, k blocks, {_rest(s.side, s.batched)}",
            of_smem=f"tSs_{s.name}",
            of_gmem=f"tSg_{s.name}",
            peer="",
            mask="",
            mask_value="",
            coordinate=f"{s.side}, k" + ", batch" * s.batched,
            tile=f"tiles of {s.name}",
        ),
    )


def _all_boxes(batched: bool) -> str:
    return f"({', '.join(['None'] * (3 if batched else 2))})"


def _rest(dim: str, batched: bool) -> str:
    return f"{dim} tiles, k tiles" + ", batch" * batched
