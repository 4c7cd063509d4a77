"""Shared memory in the kernel module: the layouts of its rings, and the fields of `SharedStorage` in their order."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from cutegen.arch.architecture import ACCESS_BYTES, BOX_ALIGN, TENSOR_ALIGN
from cutegen.families.gemm.derived import SLAB_ROWS
from cutegen.families.gemm.text.blocks import BlocksText
from cutegen.families.gemm.text.boxes import BoxesText
from cutegen.families.gemm.text.consumers import ConsumersText
from cutegen.families.gemm.text.epilogue import InputsText, OutputsText
from cutegen.families.gemm.text.expressions import factor
from cutegen.families.gemm.text.groups import GroupText
from cutegen.families.gemm.text.load import RingTensor
from cutegen.families.gemm.text.mainloop import MainloopText
from cutegen.families.gemm.text.output_tile import OutputTileText
from cutegen.families.gemm.text.reductions import ReductionsText
from cutegen.families.gemm.text.work import WorkText


@dataclass(frozen=True, slots=True)
class StorageText:
    """A field of `SharedStorage`: elements of a dtype, at a multiple of `alignment` bytes; 0: that of the dtype."""

    name: str
    dtype: str
    size: str
    alignment: int


@dataclass(frozen=True, slots=True)
class SmemText:
    """What the templates read as k.smem. layouts: names of those of the rings, in the order of `smem_layouts`;
    rings: the same in words."""

    rings: str
    layouts: tuple[str, ...]
    storage: tuple[StorageText, ...]


def smem_text(
    a: RingTensor,
    b: RingTensor,
    mainloop: MainloopText,
    work: WorkText,
    tile: OutputTileText,
    inputs: InputsText,
    outputs: OutputsText,
    boxes: BoxesText | None,
    own: Iterator[StorageText],
) -> SmemText:
    """own: what is no ring."""
    scales = [f"s_{mainloop.row_scale.name}"] if mainloop.row_scale else []
    tiles = [(f"s_{t.name}", t.dtype) for t in (*outputs.every, *inputs.tiles)]
    rings = [*((name, "Float32", BOX_ALIGN) for name in scales)]
    rings += [(name, dtype, TENSOR_ALIGN) for name, dtype in (("sA", a.dtype), ("sB", b.dtype), *tiles)]
    words = ["the operand rings", *(["the scales"] if scales else []), "the output rings"]
    words += ["the loaded epilogue tiles"] if inputs.tiles else []
    words += ["the last tile's boxes"] if boxes else []
    names = ["sA", "sB", *scales, *(name for name, _ in tiles), *(["sBox"] if boxes else [])]
    return SmemText(
        rings=f"{', '.join(words[:-1])} and {words[-1]}",
        layouts=tuple(f"{name}_layout" for name in names),
        storage=(
            *own,
            *(StorageText(name, dtype, f"cute.cosize({name}_layout)", align) for name, dtype, align in rings),
            *([_given(mainloop, tile)] if work.in_cluster else []),
        ),
    )


def _given(mainloop: MainloopText, tile: OutputTileText) -> StorageText:
    size = f"cluster_sum.elements(t.epilogue_tile, {tile.subtiles}, t.split_k{', 2' * tile.paired})"
    return StorageText("sum_given", mainloop.acc_dtype, size, ACCESS_BYTES)


def plain_storage(
    tile: OutputTileText,
    consumers: ConsumersText,
    work: WorkText,
    groups: GroupText | None,
    inputs: InputsText,
    blocks: BlocksText | None,
    reductions: ReductionsText,
) -> Iterator[StorageText]:
    """What is no ring: barriers, the table of groups, the queue, vectors, and what values of blocks and reductions are
    joined in."""
    yield StorageText("ab_barriers", "Int64", "2 * t.stages", 0)
    if work.in_cluster:
        yield StorageText("sum_barriers", "Int64", "2", 0)
    if inputs.tiles:
        yield StorageText("load_barriers", "Int64", "2 * t.load_stages", 0)
    if groups:
        yield StorageText("group_table", "Int32", f"GROUPS * {groups.columns}", ACCESS_BYTES)
    if work.dynamic:
        yield StorageText("queue_barriers", "Int64", "2 * t.queue_stages + 1", 0)
        yield StorageText("queue_indices", "Int32", "t.queue_stages", 0)
    for v in inputs.vectors:
        yield StorageText(f"s_{v.name}", "Float32", v.smem_size, ACCESS_BYTES)
    if reductions.outputs:
        yield StorageText("s_ticket", "Int32", reductions.ticket_size, 0)
    if blocks and blocks.along_m:
        slabs = f"{factor(tile.rows)} // {SLAB_ROWS}"
        for reduced in blocks.reduced:
            yield StorageText(f"j_{reduced.name}", "Float32", consumers.size(tile.columns, slabs), 0)
        for name in blocks.held:
            yield StorageText(f"b_{name}", "Float32", consumers.size(tile.columns, blocks.in_tile), 0)
    for r in reductions.outputs:
        if r.smem_size:
            yield StorageText(f"s_{r.name}", "Float32", r.smem_size, 0)
