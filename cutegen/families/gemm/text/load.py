"""The load warp in the kernel module: which tensors TMA brings to the rings of A, B and the scales, and how."""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import dataclass

from cutegen.families.gemm.candidate import Candidate
from cutegen.families.gemm.problem import GemmProblem, MatrixOperand
from cutegen.families.gemm.text.groups import GroupText
from cutegen.families.gemm.text.mainloop import MainloopText
from cutegen.families.gemm.text.tensors import MatrixText

PIECE_ATOM = "cute.CopyAtom | None"  # what a kernel is given for PieceText.atom


@dataclass(frozen=True, slots=True)
class LoadedText:
    """A tensor that TMA brings to a ring, box by box.

    atom, gmem, smem: names of copy atom, tensor and ring; modes, smem_modes: of the latter two. source: what boxes are
    cut from, another for each tile (`moving`) where groups begin anywhere; boxes: the name of what is cut, box: the
    extents of one, all_boxes: coordinates that choose all, boxes_modes: modes then. of_smem, of_gmem: names of the
    partitions for the copy; peer: of them, where CTAs share a box; mask, mask_value: of those CTAs. policy,
    policy_value: which boxes leave L2 first, "" where none may. coordinate: of the box of a step.
    pieces: None where tiles are always loaded whole.
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
    policy: str
    policy_value: str
    coordinate: str
    pieces: PiecesText | None


@dataclass(frozen=True, slots=True)
class PieceText:
    """Rows of a tile that a box holds. atom, of_smem, of_gmem: as LoadedText has them; atom_value, partition: source of
    them; atom_note: when there is no atom. number: of the box in a tile; coordinate: where it is, in a step."""

    atom: str
    atom_note: str
    atom_value: str
    of_smem: str
    of_gmem: str
    partition: str
    number: str
    coordinate: str


@dataclass(frozen=True, slots=True)
class PiecesText:
    """How tiles are loaded that reach past the tensor's last row. tensor: its name in the spec. found: name of what
    this CTA loads of a tile, and find: its source. piece, half: boxes."""

    tensor: str
    found: str
    find: str
    piece: PieceText
    half: PieceText

    @property
    def boxes(self) -> tuple[PieceText, ...]:
        return self.piece, self.half


@dataclass(frozen=True, slots=True)
class AheadText:
    """What is loaded before the wait for the kernel in front. tiles: in words; the others as LoadText has them."""

    operands: tuple[LoadedText, ...]
    tiles: str
    extents: str
    peers: str
    at: str
    k_tiles: str


@dataclass(frozen=True, slots=True)
class LoadText:
    """What the templates read as k.load. operands, scales: what is loaded; late: of that, what is not ahead. extents,
    peers, at: names for the extents of a tile, for the place in the cluster and for that of a tile, "_" where not
    needed. k_tiles: steps of a tile."""

    operands: tuple[LoadedText, ...]
    scales: tuple[LoadedText, ...]
    ahead: AheadText | None
    extents: str
    peers: str
    at: str
    k_tiles: str

    @property
    def every(self) -> tuple[LoadedText, ...]:
        return (*self.operands, *self.scales)

    @property
    def pieces(self) -> PiecesText | None:
        """How an operand is loaded whose tiles reach past the last row; at most one has such tiles."""
        return next((x.pieces for x in self.operands if x.pieces), None)

    @property
    def moving(self) -> tuple[LoadedText, ...]:
        """What is cut again for each tile, from where its group begins."""
        return tuple(x for x in self.every if x.moving)

    @property
    def late(self) -> tuple[LoadedText, ...]:
        return tuple(x for x in self.every if not self.ahead or x not in self.ahead.operands)


def load_text(
    problem: GemmProblem,
    structure: Candidate,
    a: MatrixText,
    b: MatrixText,
    mainloop: MainloopText,
    groups: GroupText | None,
) -> LoadText:
    """In the kernel's frame."""
    loaded = {axis: _operand(problem, axis, t, groups) for axis, t in enumerate((a, b)) if not t.gathered}
    operands = tuple(loaded.values())
    scales = _scales(mainloop, groups)
    used = {"mn"[axis] for axis in loaded}
    used |= {mainloop.row_scale.side} if mainloop.row_scale and scales else set()
    fixed = [x for x in operands if not x.moving]
    return LoadText(
        operands=operands,
        scales=scales,
        ahead=_ahead(problem, structure, loaded),
        extents=_extents(used),
        peers=_peers(loaded),
        at=_place(used, problem.batch is not None),
        k_tiles=_count_steps((*fixed, *operands)[0]),
    )


def _ahead(problem: GemmProblem, structure: Candidate, loaded: Mapping[int, LoadedText]) -> AheadText | None:
    early = [axis for axis, ahead in enumerate((structure.load_ahead_a, structure.load_ahead_b)) if ahead]
    if not early:
        return None
    matrices = [(problem.a, problem.b)[axis] for axis in early]
    counted = {axis for axis, x in loaded.items() if x.pieces} | set(early)  # whose bytes a slot waits for
    used = {"mn"[axis] for axis in counted}
    return AheadText(
        operands=tuple(loaded[axis] for axis in early),
        tiles=" and ".join(f"tiles of {t.name}" for t in matrices),
        extents=_extents(used),
        peers=_peers(counted),
        at=_place(used, any(t.batched for t in matrices)),
        k_tiles=_count_steps(loaded[early[0]]),
    )


def _extents(used: Container[str]) -> str:
    return ", ".join((*(f"tile_{dim}" if dim in used else "_" for dim in "mn"), "tile_k"))


def _peers(axes: Container[int]) -> str:
    """CTAs along n share a slice of A, those along m one of B."""
    return f"{'cta_m' if 1 in axes else '_'}, {'cta_n' if 0 in axes else '_'}, _"


def _place(used: Container[str], batched: bool) -> str:
    return ", ".join((*(dim if dim in used else "_" for dim in "mn"), "batch" if batched else "_"))


def _count_steps(x: LoadedText) -> str:
    return f"cute.size({x.boxes}, mode=[3])"


def _operand(problem: GemmProblem, axis: int, t: MatrixText, groups: GroupText | None) -> LoadedText:
    dim, name, operand = "mn"[axis], "AB"[axis], (problem.a, problem.b)[axis]
    moving = groups is not None and groups.moves(dim)
    other = "nm"[axis]
    row = f"({dim}, 0)" if problem.paired_dim == dim else dim
    streams = groups is None and (operand.batched or problem.batch is None)  # else each batch reads all of it
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
        policy=f"policy_{name.lower()}" if streams else "",
        policy_value=f"tma.l2_policy(o.raster.is_streamed({axis}, t.multicast[{axis}]))" if streams else "",
        coordinate=f"{row}, k" + ", batch" * operand.batched,
        pieces=_pieces(axis, operand) if operand is problem.ragged else None,
    )


def _pieces(axis: int, operand: MatrixOperand) -> PiecesText:
    dim, other, name, low = "mn"[axis], "nm"[axis], "AB"[axis], "ab"[axis]
    multicast, ring = f"t.multicast[{axis}]", f"o.s{name}, (tile_{dim}, tile_k)"

    def box(what: str, of: str, number: str, rows: str = "") -> PieceText:
        return PieceText(
            atom=f"tma{what.title()}{name}",
            atom_note=f"None where a {of} is always loaded whole",
            atom_value=f"ragged.{what}_atom({operand.name}, s{name}_layout, (tile_{dim}, tile_k), {multicast})",
            of_smem=f"{what[0]}{name}s{name}",
            of_gmem=f"{what[0]}{name}g{name}",
            partition=f"ragged.partition(o.tma{what.title()}{name}, {ring}, g{name}, {multicast}{rows})",
            number=number,
            coordinate=f"{number}, 0, {dim}, k" + ", batch" * operand.batched,
        )

    return PiecesText(
        tensor=operand.name,
        found=f"pieces_{low}",
        find=f"ragged.find_pieces({ring}, o.m{name}.shape[0], {dim}, cta_{other}, {multicast})",
        piece=box("piece", "tile", "piece"),
        half=box("half", "piece", f"2 * pieces_{low}.end", ", ragged.half_rows"),
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
            policy="",
            policy_value="",
            coordinate=f"{s.side}, k" + ", batch" * s.batched,
            pieces=None,
        ),
    )


def _all_boxes(batched: bool) -> str:
    return f"({', '.join(['None'] * (3 if batched else 2))})"


def _rest(dim: str, batched: bool) -> str:
    return f"{dim} tiles, k tiles" + ", batch" * batched
