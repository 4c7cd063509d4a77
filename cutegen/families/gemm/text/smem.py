"""Shared memory in the kernel module: the layouts of its rings."""

from __future__ import annotations

from dataclasses import dataclass

from cutegen.families.gemm.features.packed_scales.packed_text import PackedText
from cutegen.families.gemm.text.boxes import BoxesText
from cutegen.families.gemm.text.epilogue import InputsText, OutputsText
from cutegen.families.gemm.text.mainloop import MainloopText
from cutegen.families.generated_names import tensor_stem


@dataclass(frozen=True, slots=True)
class SmemText:
    """What the templates read as k.smem. layouts: names of those of the rings, in the order of `smem_layouts`;
    rings: the same in words."""

    rings: str
    layouts: tuple[str, ...]


def smem_text(
    mainloop: MainloopText,
    packed: tuple[PackedText, ...],
    inputs: InputsText,
    outputs: OutputsText,
    boxes: BoxesText | None,
) -> SmemText:
    scales = [f"s{tensor_stem(mainloop.row_scale.name)}"] if mainloop.row_scale else [f"s{x.end}" for x in packed]
    words = ["the operand rings", *(["the scales"] if scales else []), "the output rings"]
    words += ["the loaded epilogue tiles"] if inputs.tiles else []
    words += ["the last tile's boxes"] if boxes else []
    tiles = [f"s{tensor_stem(t.name)}" for t in (*outputs.every, *inputs.tiles)]
    names = ["sA", "sB", *scales, *tiles, *(["s_box"] if boxes else [])]
    return SmemText(f"{', '.join(words[:-1])} and {words[-1]}", tuple(f"{name}_layout" for name in names))
