"""The roles of a kernel: what each is given. The classes of parameters and the calls are made of the same list."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from cutegen.families.gemm.derived import SLAB_ROWS
from cutegen.families.gemm.features.gather.gather_text import GatherText
from cutegen.families.gemm.features.packed_scales.packed_text import PackedText
from cutegen.families.gemm.features.reductions.reduction_text import WORDS, ReductionsText
from cutegen.families.gemm.problem import GemmProblem
from cutegen.families.gemm.text.blocks import BlocksText
from cutegen.families.gemm.text.boxes import BoxesText
from cutegen.families.gemm.text.epilogue import InputsText, OutputsText
from cutegen.families.gemm.text.load import LoadText, RingTensor
from cutegen.families.gemm.text.mainloop import MainloopText
from cutegen.families.gemm.text.tensors import TileText
from cutegen.families.gemm.text.work import WorkText
from cutegen.families.generated_names import tensor_stem


@dataclass(frozen=True, slots=True)
class FieldText:
    """A field of a role's parameters; its value is a variable of the kernel with its name, but for `extents`: those of
    a tensor in shared memory, in words, or that of the product. note: modes, or what it means."""

    name: str
    kind: str
    note: str
    extents: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RoleText:
    """What a role is given. params: the class of it."""

    params: str
    summary: str
    fields: tuple[FieldText, ...]


@dataclass(frozen=True, slots=True)
class RolesText:
    """What the templates read as k.roles. multiply: where a warp of its own does, and consume is the epilogue alone."""

    load: RoleText
    gather: RoleText | None
    load_tiles: RoleText | None
    consume: RoleText
    multiply: RoleText | None = None

    @property
    def every(self) -> tuple[RoleText, ...]:
        return tuple(role for role in (self.load, self.gather, self.load_tiles, self.multiply, self.consume) if role)


def load_role(load: LoadText, packed: tuple[PackedText, ...], work: WorkText, boxes: BoxesText | None) -> RoleText:
    loaded: tuple[RingTensor | PackedText, ...] = (*load.every, *packed)
    fields = (
        *(_atom(x.end) for x in loaded),
        *(FieldText(atom.name, atom.kind, atom.note) for atom in load.piece_atoms),
        *(_tensor(x.gmem, x.modes) for x in loaded),
        *(_tensor(f"s{x.end}", x.ring_modes) for x in loaded),
        _field("ab_pipeline", "pipeline.PipelineTmaAsync"),
        *list_order(work),
        *(_box("box_in", boxes.loaded) if boxes and boxes.loaded else ()),
    )
    return RoleText("LoadParams", "What the A/B load warp works on.", fields)


def gather_role(gather: GatherText | None, work: WorkText) -> RoleText | None:
    if gather is None:
        return None
    copied = (gather.operand, *([gather.scale] if gather.scale else []))
    fields = (
        *(_tensor(x.gmem, x.modes) for x in copied),
        _tensor(f"m{tensor_stem(gather.operand.index)}", gather.operand.side),
        *(_tensor(f"s{x.end}", x.ring_modes) for x in copied),
        _field("ab_pipeline", "pipeline.PipelineTmaAsync"),
        *list_order(work),
        *([] if work.split else [_field("k_tiles", "Int32")]),
    )
    return RoleText("GatherParams", "What the gather warps work on.", fields)


def load_tiles_role(inputs: InputsText, work: WorkText) -> RoleText | None:
    if not inputs.tiles:
        return None
    fields: list[FieldText] = []
    for c in inputs.tiles:
        stem = tensor_stem(c.name)
        fields += [_atom(stem), _tensor(c.gmem, c.modes), _tensor(f"s{stem}", "eM, eN, stages")]
    fields += [_field("load_pipeline", "pipeline.PipelineTmaAsync"), *list_order(work)]
    if inputs.switches:
        fields.append(_reads_tiles())
    return RoleText("TileLoadParams", "What the epilogue-tile load warp works on.", tuple(fields))


def consume_role(
    mainloop: MainloopText,
    packed: tuple[PackedText, ...],
    work: WorkText,
    inputs: InputsText,
    outputs: OutputsText,
    boxes: BoxesText | None,
    epilogue: Iterator[FieldText],
) -> RoleText:
    """epilogue: what values of blocks, reductions and the ends of the product add."""
    fields = (
        _field("mma", "cute.TiledMma"),
        _tensor("sA", "bM, bK, stages"),
        _tensor("sB", "bN, bK, stages"),
        *(_tensor(f"s{x.end}", x.ring_modes) for x in packed),
        _field("ab_pipeline", "pipeline.PipelineTmaAsync"),
        *list_order(work),
        *(list_partial_sums(work) if work.split else ()),
        *([] if work.split else [_field("k_tiles", "Int32")]),
        *_scales(mainloop),
        *list_inputs(inputs),
        *list_outputs(outputs),
        *_consumed_boxes(boxes),
        *epilogue,
    )
    return RoleText("ConsumeParams", "What an MMA warpgroup works on.", fields)


def epilogue_fields(
    problem: GemmProblem, group_index: str, blocks: BlocksText | None, reductions: ReductionsText
) -> Iterator[FieldText]:
    """In the kernel's frame. group_index: see ConsumersText."""
    if blocks and blocks.along_m:
        yield from _joined_blocks(blocks, group_index)
    if blocks:
        modes = "m blocks, n" if blocks.along_m else "m, n blocks"
        yield from (_tensor(f"m{tensor_stem(x.name)}", modes + ", batch" * x.batched) for x in blocks.outputs)
    for r in reductions.outputs:
        yield _tensor(f"m{tensor_stem(r.name)}", ", ".join((*r.kept, *["batch"] * r.batched)))
        partial = f"{WORDS[r.kept]} and tile" if r.kept else "tile"
        yield FieldText(f"p_{r.name}", "cute.Tensor", f"scratch: one value per {partial}")
        if r.kept != "m":
            modes = f"{'bN' if r.kept else 1}, warps{group_index}"
            yield _tensor(f"s{tensor_stem(r.name)}", modes, r.kept or "one", "warps")
    if reductions.outputs:
        yield FieldText("arrivals", "cute.Tensor", f"scratch: tiles done, {reductions.arrivals}")
        yield FieldText("s_ticket", "cute.Tensor", "", ("one",))
    if reductions.masks_columns or (blocks and not blocks.along_m):
        yield _extent("n", "columns", problem)
    if reductions.masks_rows or (blocks and blocks.along_m):
        yield _extent("m", "rows", problem)


def _extent(dim: str, what: str, problem: GemmProblem) -> FieldText:
    note = f"{'pairs of ' * (problem.paired_dim == dim)}{what} that there are; a tile may have more"
    return FieldText(f"extent_{dim}", "Int32", note, (dim,))


def list_partial_sums(work: WorkText) -> Iterator[FieldText]:
    if work.in_cluster:
        yield FieldText("sum_exchange", "cluster_sum.ClusterSum", "")
        return
    yield FieldText(work.buffer, "cute.Tensor", f"flat: ({work.buffer_modes})")
    yield FieldText("semaphores", "cute.Tensor", f"counters{' of the queue, then' * work.dynamic} of tiles")


def _scales(mainloop: MainloopText) -> Iterator[FieldText]:
    if mainloop.row_scale:
        yield _tensor(f"s{mainloop.row_scale.end}", mainloop.row_scale.ring_modes)
    if mainloop.block_scale:
        yield _tensor(f"m{tensor_stem(mainloop.block_scale.name)}", mainloop.block_scale.modes)


def list_inputs(inputs: InputsText) -> Iterator[FieldText]:
    for v in inputs.vectors:
        yield _tensor(f"m{tensor_stem(v.name)}", v.modes)
        yield _tensor(f"s{tensor_stem(v.name)}", v.smem_modes)
    yield from (
        _tensor(name, modes) for name, modes in {v.index: v.index_modes for v in inputs.vectors if v.index}.items()
    )
    yield from (_tensor(f"m{tensor_stem(x.name)}", "") for x in inputs.device_scalars)
    yield from (_tensor(f"m{tensor_stem(x.name)}", "m blocks, n blocks" + ", batch" * x.batched) for x in inputs.blocks)
    yield from (_field(name, "Float32") for name in inputs.host_scalars)
    yield from (_tensor(f"s{tensor_stem(c.name)}", "eM, eN, stages") for c in inputs.tiles)
    if inputs.tiles:
        yield _field("load_pipeline", "pipeline.PipelineTmaAsync")
    if inputs.switches:
        yield _reads_tiles()


def list_outputs(outputs: OutputsText) -> Iterator[FieldText]:
    for d in outputs.every:
        stem = tensor_stem(d.name)
        if d.bulk:
            yield _atom(stem)
        yield _tensor(d.gmem, d.modes)
        yield _tensor(f"s{stem}", "eM, eN, slots")


def _box(end: str, tile: TileText) -> Iterator[FieldText]:
    yield _atom(end)
    yield _tensor(f"m_{end}", tile.modes)
    yield _tensor("s_box", "rows, columns, stages")


def _consumed_boxes(boxes: BoxesText | None) -> Iterator[FieldText]:
    if boxes and boxes.stored:
        yield from _box("box_out", boxes.stored)
    elif boxes:
        yield _tensor("s_box", "rows, columns, stages")


def _joined_blocks(blocks: BlocksText, group_index: str) -> Iterator[FieldText]:
    for r in blocks.reduced:
        yield _tensor(f"j_{r.name}", f"bN, slabs of {SLAB_ROWS} rows{group_index}", "n", "slabs")
    for name in blocks.held:
        yield _tensor(f"b_{name}", f"bN, blocks{group_index}", "n", "blocks")


def list_order(work: WorkText) -> Iterator[FieldText]:
    yield _field("scheduler", work.scheduler)
    yield from (_field(name, kind) for name, kind in work.order)


def _reads_tiles() -> FieldText:
    return FieldText("reads_tiles", "Boolean", "not where the scalars of all tiles are 0")


def _field(name: str, kind: str) -> FieldText:
    return FieldText(name, kind, "")


def _atom(end: str) -> FieldText:
    return _field(f"tma_atom_{end}", "cute.CopyAtom")


def _tensor(name: str, modes: str, *extents: str) -> FieldText:
    return FieldText(name, "cute.Tensor", f"({modes})", extents)
