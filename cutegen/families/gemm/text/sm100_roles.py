"""The roles of an sm_100a kernel: what each is given."""

from __future__ import annotations

from collections.abc import Iterator

from cutegen.families.gemm.candidate import Candidate
from cutegen.families.gemm.features.packed_scales.packed_text import PackedText
from cutegen.families.gemm.problem import GemmProblem
from cutegen.families.gemm.text.epilogue import InputsText, OutputsText
from cutegen.families.gemm.text.load import LoadText, RingTensor
from cutegen.families.gemm.text.roles import (
    FieldText,
    RolesText,
    RoleText,
    list_inputs,
    list_order,
    list_outputs,
    list_partial_sums,
    load_tiles_role,
)
from cutegen.families.gemm.text.work import WorkText


def tensor_memory_roles(
    problem: GemmProblem,
    structure: Candidate,
    load: LoadText,
    packed: tuple[PackedText, ...],
    work: WorkText,
    inputs: InputsText,
    outputs: OutputsText,
    epilogue: Iterator[FieldText],
) -> RolesText:
    """All in the kernel's frame. epilogue: what reductions and the ends of the product add."""
    ring = FieldText("ab_pipeline", "pipeline.PipelineTmaUmma", "")
    sums = (
        FieldText("acc_pipeline", "pipeline.PipelineUmmaAsync", ""),
        FieldText("tmem_address", "cute.Pointer", "where the allocation is written to"),
    )
    mma = FieldText("mma", "cute.TiledMma", "")
    tiles = (
        *(FieldText(f"s{x.end}", "cute.Tensor", f"({x.ring_modes})") for x in load.operands),
        *(FieldText(f"s{x.end}", "cute.Tensor", f"({x.ring_modes})") for x in packed),
    )
    loaded: tuple[RingTensor | PackedText, ...] = (*load.operands, *packed)
    return RolesText(
        load=RoleText(
            "LoadParams",
            "What the load warp works on.",
            (
                *(FieldText(f"tma_atom_{x.end}", "cute.CopyAtom", "") for x in loaded),
                *(FieldText(x.gmem, "cute.Tensor", f"({x.modes})") for x in loaded),
                *tiles,
                ring,
                *list_order(work),
            ),
        ),
        gather=None,
        load_tiles=load_tiles_role(inputs, work),
        multiply=RoleText(
            "MultiplyParams",
            "What the MMA warp works on.",
            (
                mma,
                *tiles,
                ring,
                *sums,
                *list_order(work),
                *([] if work.split else [FieldText("k_tiles", "Int32", "")]),
            ),
        ),
        consume=RoleText(
            "StoreParams",
            "What the epilogue warps work on.",
            (
                mma,
                *sums,
                *([FieldText("done_barrier", "cute.Pointer", "")] if structure.mma_ctas == 2 else []),
                *list_order(work),
                *(list_partial_sums(work) if work.split else ()),
                *list_inputs(inputs),
                *list_outputs(outputs),
                *epilogue,
            ),
        ),
    )
