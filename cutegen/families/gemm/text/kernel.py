"""From a resolved GEMM to what kernel.py.jinja and its parts read, one object for each idea."""

from __future__ import annotations

from dataclasses import dataclass

from cutegen.arch import ARCHS
from cutegen.families.gemm.features.gather.gather_text import GatherText, gather_text
from cutegen.families.gemm.features.groups.group_text import GroupText, group_text
from cutegen.families.gemm.features.packed_scales.packed_text import PackedText, packed_text
from cutegen.families.gemm.features.reductions.reduction_text import ReductionsText, reductions_text
from cutegen.families.gemm.lowering import lowering_of
from cutegen.families.gemm.resolved import GemmKernel, ResolvedGemm
from cutegen.families.gemm.text.arguments import ArgumentsText, arguments_text
from cutegen.families.gemm.text.blocks import BlocksText, blocks_text
from cutegen.families.gemm.text.boxes import BoxesText, boxes_text
from cutegen.families.gemm.text.consumers import ConsumersText, reads_batch
from cutegen.families.gemm.text.epilogue import (
    InputsText,
    OutputsText,
    epilogue_text,
    inputs_text,
    outputs_text,
)
from cutegen.families.gemm.text.functions import FunctionText
from cutegen.families.gemm.text.host import HostText, host_text
from cutegen.families.gemm.text.load import LoadText, RingTensor, load_text, ring_tensors
from cutegen.families.gemm.text.mainloop import MainloopText, mainloop_text
from cutegen.families.gemm.text.module import ModuleText, module_text
from cutegen.families.gemm.text.output_tile import OutputTileText, output_tile_text
from cutegen.families.gemm.text.store import StoreText, store_text
from cutegen.families.gemm.text.work import WorkText, work_text
from cutegen.model.kernel import KernelModel, name_numbers


@dataclass(frozen=True, slots=True)
class KernelText:
    """What kernel.py.jinja and its parts read as k. All of it is in the kernel's frame. tensor_memory: whether that has
    the sums. reads_batch: whether MMA warpgroups need the batch index of a tile. pdl_wait, pdl_trigger: whether the
    kernel waits for the one before it, and lets the next one start. pair: whether two CTAs multiply together."""

    module: ModuleText
    arguments: ArgumentsText
    host: HostText
    model: KernelModel
    tensor_memory: bool
    barrier_numbers: tuple[tuple[str, int, bool], ...]
    work: WorkText
    a: RingTensor
    b: RingTensor
    load: LoadText
    packed: tuple[PackedText, ...]
    gather: GatherText | None
    groups: GroupText | None
    consumers: ConsumersText
    mainloop: MainloopText
    tile: OutputTileText
    inputs: InputsText
    outputs: OutputsText
    boxes: BoxesText | None
    epilogue: FunctionText
    blocks: BlocksText | None
    reductions: ReductionsText
    store: StoreText
    reads_batch: bool
    pdl_wait: bool
    pdl_trigger: bool
    pair: bool

    @property
    def functions(self) -> tuple[FunctionText, ...]:
        """The maths of the epilogue, in the order in which an element goes through it."""
        return (*((self.blocks.before, self.blocks.once) if self.blocks else ()), self.epilogue)


def kernel_text(resolved: ResolvedGemm, kernel: GemmKernel) -> KernelText:
    problem, structure = kernel.tilings[0].problem, kernel.tilings[0].framed
    groups, consumers = group_text(problem), ConsumersText(structure.schedule == "pingpong")
    work = work_text(problem, structure, kernel.tilings[0].numbers)
    a, b, *scales = ring_tensors(problem, [t.framed for t in kernel.tilings], groups)
    load, gather = load_text((a, b, *scales)), gather_text(problem, structure, (a, b, *scales))
    packed = packed_text(problem, [t.framed.tile for t in kernel.tilings])
    mainloop = mainloop_text(problem, structure, ARCHS[resolved.arch], scales[0] if scales else None)
    tile = output_tile_text(problem)
    inputs, outputs = inputs_text(problem), outputs_text(problem)
    boxes = boxes_text(problem, structure, inputs, outputs)
    reductions, epilogue = reductions_text(problem), epilogue_text(problem)
    store = store_text(problem, consumers, groups, work, epilogue, reductions, tile)
    blocks = blocks_text(problem, store.parameters)
    arguments = arguments_text(problem, reductions, work)
    cutlass_names = {"Float32", "Int32", "Int64", "const_expr", "pipeline", *arguments.dtypes}
    cutlass_names |= {"Boolean"} if consumers.pingpong or inputs.switches or mainloop.promoted_k else set()
    device_modules = {
        **dict.fromkeys(lowering_of(problem).list_modules(problem), True),
        "block_input": inputs.blocks,
        "direct_store": outputs.by_threads,
        "lane_scales": mainloop.block_scale,
        "packed_scales": packed or (blocks and blocks.chunks),
        "pairs": problem.paired,
        "pipeline_state": consumers.pingpong or mainloop.promoted_k or boxes or gather,
        "reduction": reductions.outputs or blocks,
        "ragged": load.ragged,
        "row_gather": gather,
        "row_groups": groups,
        "tma": True,
        "vector": inputs.vectors,
        **dict.fromkeys(work.device_modules, True),
    }
    imported = [name for name, used in device_modules.items() if used]
    return KernelText(
        module=module_text(resolved, kernel, problem, cutlass_names, imported),
        arguments=arguments,
        host=host_text(problem, a, b, groups),
        model=kernel.tilings[0].model,
        tensor_memory=problem.target.tensor_memory > 0,
        barrier_numbers=tuple(name_numbers(kernel.tilings[0].model.barriers)),
        work=work,
        a=a,
        b=b,
        load=load,
        packed=packed,
        gather=gather,
        groups=groups,
        consumers=consumers,
        mainloop=mainloop,
        tile=tile,
        inputs=inputs,
        outputs=outputs,
        boxes=boxes,
        epilogue=epilogue,
        blocks=blocks,
        reductions=reductions,
        store=store,
        reads_batch=reads_batch(problem, any(p.name == "batch" for p in store.parameters)),
        pdl_wait=structure.pdl_wait,
        pdl_trigger=structure.pdl_trigger != "none",
        pair=structure.mma_ctas == 2,
    )
