"""From a resolved GEMM to the objects its templates read: every name, number and expression is decided here."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from cutegen.epilogue import (
    BlockOutput,
    EpilogueProgram,
    Operand,
    Output,
    device_imports,
    device_lines,
)
from cutegen.epilogue.ops import BUILT_IN_MODULE
from cutegen.families.gemm.arguments import formula, tensor_shapes
from cutegen.families.gemm.omission import without
from cutegen.families.gemm.orientation import block_passes, kernel_frame
from cutegen.families.gemm.problem import MatrixOperand
from cutegen.families.gemm.resolved import GemmKernel, ResolvedGemm
from cutegen.families.gemm.text.blocks import (
    BlockOutputText,
    BlocksText,
    after_text,
    block_output_text,
    blocks_text,
)
from cutegen.families.gemm.text.gather import GatherText, gather_text
from cutegen.families.gemm.text.groups import GroupText, group_text
from cutegen.families.gemm.text.load import LoadText, load_text
from cutegen.families.gemm.text.mainloop import MainloopText, mainloop_text
from cutegen.families.gemm.text.overview import list_overview
from cutegen.families.gemm.text.plan import plan_text
from cutegen.families.gemm.text.reductions import JoinText, ReductionText, join_texts, reduction_text
from cutegen.families.gemm.text.tensors import (
    BlockInputText,
    FakeText,
    MatrixText,
    ReorderedText,
    ScalarText,
    TileText,
    VectorText,
    block_input_text,
    fake_text,
    matrix_text,
    pair_lines,
    reordered_texts,
    symbol_lines,
    tile_text,
    updated_lines,
    vector_text,
    widened_lines,
)
from cutegen.families.gemm.text.work import WorkText, work_text
from cutegen.hardware import ARCHS
from cutegen.render.environment import render_template
from cutegen.render.layout import statement


@dataclass(frozen=True, slots=True)
class KernelText:
    """What kernel.py.jinja and its parts read."""

    symbol: str
    title: str
    overview: tuple[str, ...]
    pingpong: bool
    work: WorkText
    pdl_wait: bool
    pdl_trigger: bool
    device_modules: tuple[str, ...]
    foreign_imports: tuple[str, ...]
    activations: tuple[str, ...]
    epilogue_parameters: tuple[str, ...]
    epilogue_lines: tuple[str, ...]
    epilogue_arguments: tuple[str, ...]
    epilogue_targets: str
    results: str
    origin: str
    offset: str
    a: MatrixText
    b: MatrixText
    reductions: tuple[ReductionText, ...]
    blocks: BlocksText | None
    block_outputs: tuple[BlockOutputText, ...]
    block_parameters: tuple[str, ...]
    block_arguments: tuple[str, ...]
    scratch: tuple[str, ...]
    joins: tuple[JoinText, ...]
    arrivals: str
    masks_m: bool
    masks_n: bool
    of_group: str
    paired_m: str
    paired_n: str
    pair: str
    ticket: str
    outputs: tuple[TileText, ...]
    bulk_outputs: tuple[TileText, ...]
    direct: tuple[TileText, ...]
    tiles: tuple[TileText, ...]
    bulk: tuple[TileText, ...]
    vectors: tuple[VectorText, ...]
    device_scalars: tuple[ScalarText, ...]
    store_scalars: tuple[ScalarText, ...]
    host_scalars: tuple[ScalarText, ...]
    block_inputs: tuple[BlockInputText, ...]
    reads_tiles: str
    mainloop: MainloopText
    load: LoadText
    arguments: tuple[str, ...]
    signature: tuple[str, ...]
    reordered: tuple[ReorderedText, ...]
    pairs: tuple[str, ...]
    reads_second: bool
    rows: str
    rows_factor: str
    columns: str
    columns_factor: str
    element: str
    layout_names: tuple[str, ...]
    extent_m: str
    extent_n: str
    partial_m: str
    partial_n: str
    extent_batch: str
    groups: GroupText | None
    gather: GatherText | None
    raster: str
    batch_name: str
    k_tiles: str
    batch_of_tiles: str
    batch_of_rows: str
    batch_of_results: str
    times_groups: str
    group_warps: str
    group_threads: str
    epilogue_barrier: str
    slot: str
    consume_note: str
    store_row: str
    store_column: str
    store_parameters: tuple[str, ...]
    store_arguments: str
    store_results: str
    store_flow: str
    symbols: tuple[str, ...]
    fakes: tuple[FakeText, ...]


def kernel_text(resolved: ResolvedGemm, kernel: GemmKernel) -> KernelText:
    given = without(resolved.problem, kernel.omitted)
    problem, structure = kernel_frame(given, kernel.structure)
    program, paired = problem.kernel_epilogue, problem.paired
    rows, columns = (f"t.tile[{i}]{' // 2' * (problem.paired_dim == dim)}" for i, dim in enumerate("mn"))
    pingpong = structure.schedule == "pingpong"
    batched = problem.batch is not None
    groups = group_text(problem)
    gather = gather_text(problem, structure, groups)
    ragged = groups is not None and groups.ragged
    tile_operands = [o for o in program.operands if o.kind == "tile"]
    vector_operands = [o for o in program.operands if o.kind in ("row_vector", "column_vector")]
    on_device = [o for o in program.operands if o.kind == "device_scalar"]
    by_block = [o for o in program.operands if o.kind == "block_input"]
    in_store: list[Operand | Output | BlockOutput] = [*program.outputs, *program.block_outputs, *on_device, *by_block]
    in_consume: list[Operand | Output | BlockOutput] = [*in_store, *vector_operands]
    device_scalars = tuple(ScalarText(o.name, "batch" if o.batched else "0") for o in on_device)
    host_scalars = tuple(ScalarText(o.name, "") for o in program.operands if o.kind == "host_scalar")
    a_paired, b_paired = problem.paired_dim == "m", problem.paired_dim == "n"
    a = matrix_text(problem.a, "m", groups, paired=a_paired, gathered=problem.a is problem.gathered)
    b = matrix_text(problem.b, "n", groups, paired=b_paired, gathered=problem.b is problem.gathered)
    outputs = tuple(tile_text(o, groups) for o in program.outputs)
    stored = tuple(o for o in outputs if o.bulk)
    tiles = tuple(tile_text(o, groups) for o in tile_operands)
    vectors = tuple(vector_text(o, pingpong, rows, columns, groups) for o in vector_operands)
    shapes = tensor_shapes(problem)
    arguments = problem.arguments
    names = [o.name for o in program.operands]
    dtypes = {s.dtype.cutlass for s in shapes.values()} | {"Float32"}
    mainloop = mainloop_text(problem, structure, ARCHS[resolved.arch], groups)
    scale_layouts = [f"s_{mainloop.row_scale.name}_layout"] if mainloop.row_scale else []
    extra = {"Int32", "Int64", "const_expr", "pipeline"} | ({"Boolean"} if pingpong or program.tile_switches else set())
    direct = tuple(o for o in outputs if not o.bulk)
    warps = "4" if pingpong else "4 * t.consumers"
    reductions = tuple(reduction_text(r, groups, columns, warps) for r in program.reductions)
    joins = join_texts(reductions, groups, batched and not (problem.groups and problem.groups.flat), rows, columns)
    masks_m, masks_n = (any(r.kept != axis for r in reductions) for axis in "mn")
    optional = {
        "pairs": paired,
        "pipeline_state": pingpong,
        "reduction": reductions or program.block,
        "row_gather": gather,
        "row_groups": groups,
        "vector": vectors,
        "block_input": by_block,
        "direct_store": direct,
    }
    work = work_text(problem, structure, kernel.tilings[0].numbers)
    functions = device_imports(given.kernel_epilogue)
    modules = ["accumulator", "tma", *(name for name, used in optional.items() if used), *work.device_modules]
    stores = " and ".join([*(["TMA store"] if stored else []), *(["stores by threads"] if direct else [])])
    parameters = [("m", "Int32"), ("n", "Int32")]
    if any(o.batched for o in in_store):
        parameters.append(("batch", "Int32"))
    if ragged:
        parameters += [("begin", "Int32"), ("end", "Int32")]
    parameters.append(("slot", "Int32"))
    if pingpong:
        parameters.append(("group", "Int32"))
    if tiles:
        parameters.append(("loaded", "pipeline.PipelineState"))
    values = {
        **{v.name: v.smem_element for v in vectors},
        **{s.name: f"r_{s.name}" for s in device_scalars},
        **{s.name: f"o.{s.name}" for s in host_scalars},
        **{c.name: f"r_{c.name}[i].to(Float32)" for c in tiles},
        **{o.name: f"block_input.element(r_{o.name}, i, t.epilogue_tile[1])" for o in by_block},
    }
    places = {"acc": "acc[first + i]"}
    if paired:
        places = {"acc_0": "acc[first + i]", "acc_1": "acc[first + pair + i]"}
    blocks = None
    if program.block:
        passes = block_passes(problem)
        blocks = blocks_text(problem, passes, places, values, mainloop.to_f32, pingpong)
        element_parameters, element_lines, element_arguments = after_text(
            problem, passes, places, values, mainloop.to_f32, pingpong
        )
    else:
        element_parameters = tuple(f"{name}: Float32" for name in (*places, *names))
        element_lines = tuple(statement(line, indent=4) for line in device_lines(program))
        element_arguments = (*(f"{x}{mainloop.to_f32}" for x in places.values()), *(values[name] for name in names))
    row, column = masks_m or "at_m" in " ".join(element_arguments), masks_n or "at_n" in " ".join(element_arguments)
    by_row = any(r.kept == "m" for r in reductions)
    offset = f"{'at_m' if row else '_'}, {'at_n' if column else '_'}" if by_row or row or column else ""
    row, column = row or bool(by_block), column or bool(by_block)
    in_block = [p for p in parameters if p[0] != "slot" and (p[0] != "loaded" or (blocks and blocks.tiles_before))]
    return KernelText(
        symbol=resolved.name + kernel.module.removeprefix("kernel"),
        title=f"Persistent warp-specialised GEMM for {resolved.arch}: {formula(given)}.",
        overview=tuple(list_overview(problem, kernel.tilings[0])),
        pingpong=pingpong,
        work=work,
        pdl_wait=structure.pdl_wait,
        pdl_trigger=structure.pdl_trigger != "none",
        device_modules=tuple(sorted(modules)),
        foreign_imports=tuple(_foreign_imports(sorted(dtypes | extra, key=_import_order), functions)),
        activations=functions.get(BUILT_IN_MODULE, ()),
        epilogue_parameters=element_parameters,
        epilogue_lines=element_lines,
        epilogue_arguments=element_arguments,
        origin=f"{'row' if by_row or row else '_'}, {'column' if column else '_'}" if by_row or row or column else "",
        offset=offset,
        epilogue_targets=", ".join((*(f"r_{o.name}[i]" for o in outputs), *(f"x_{r.name}" for r in reductions))),
        results=", ".join((*(o.name for o in outputs), *(r.name for r in reductions))),
        reductions=reductions,
        blocks=blocks,
        block_outputs=tuple(block_output_text(o, groups, problem.transposed) for o in program.block_outputs),
        block_parameters=tuple(f"{name}: {kind}" for name, kind in in_block),
        block_arguments=tuple(name for name, _ in in_block),
        scratch=(*(f"p_{r.name}" for r in reductions), "arrivals") if reductions else (),
        joins=joins,
        arrivals=", ".join({"m": "per row of tiles", "n": "per column of tiles", "": "in all"}[j.kept] for j in joins),
        masks_m=masks_m,
        masks_n=masks_n,
        of_group="[None, None, group]" if pingpong else "",
        paired_m="[0]" * (problem.paired_dim == "m"),
        paired_n="[0]" * (problem.paired_dim == "n"),
        pair="t.tile[1] // 4" if problem.paired_dim == "n" else "subtiles_m * (t.tile[1] // 2)",
        ticket="o.s_ticket[None, group]" if pingpong else "o.s_ticket",
        a=a,
        b=b,
        outputs=outputs,
        bulk_outputs=stored,
        direct=direct,
        tiles=tiles,
        bulk=(*stored, *tiles),
        vectors=vectors,
        device_scalars=device_scalars,
        store_scalars=tuple(x for x in device_scalars if f"r_{x.name}" in element_arguments),
        host_scalars=host_scalars,
        block_inputs=tuple(block_input_text(o, columns, groups) for o in by_block),
        reads_tiles=_reads_tiles(program),
        mainloop=mainloop,
        load=load_text(problem, a, b),
        arguments=arguments,
        signature=tuple(f"{x}: {'cute.Tensor' if x in shapes else 'Float32'}" for x in arguments),
        reordered=reordered_texts(problem),
        pairs=(*updated_lines(problem), *widened_lines(problem), *pair_lines(problem)),
        reads_second=any(places.get("acc_1", "-") in argument for argument in element_arguments),
        rows=rows,
        rows_factor=f"({rows})" if " " in rows else rows,
        columns=columns,
        columns_factor=f"({columns})" if " " in columns else columns,
        element="pair of columns" if paired else "output element from its accumulator",
        layout_names=("sA_layout", "sB_layout", *scale_layouts, *(f"s_{t.name}_layout" for t in (*outputs, *tiles))),
        extent_m=_extent(problem.a, a_paired, gather),
        extent_n=_extent(problem.b, b_paired, gather),
        partial_m=f" + {problem.b.name}.shape[2]" if groups and groups.moves("m") else "",
        partial_n=f" + {problem.a.name}.shape[2]" if groups and groups.moves("n") else "",
        extent_batch=f"{program.outputs[0].name}.shape[2]" if program.outputs[0].batched else "Int32(1)",
        groups=groups,
        gather=gather,
        raster="GroupedRaster" if groups else "RasterOrder",
        batch_name="batch" if batched else "_",
        k_tiles=f"cute.size({'gB' if a.moving or a.gathered else 'gA'}, mode=[3])",
        batch_of_tiles="batch" if ragged or any(o.batched for o in tile_operands) else "_",
        batch_of_rows="batch" if ragged else "_",
        batch_of_results="batch" if ragged or mainloop.batched or any(o.batched for o in in_consume) else "_",
        times_groups=" * t.consumers" if pingpong else "",
        group_warps="4" if pingpong else "4 * t.consumers",
        group_threads="128" if pingpong else "128 * t.consumers",
        epilogue_barrier="EPILOGUE + group" if pingpong else "EPILOGUE",
        slot="group * t.store_stages + slot" if pingpong else "slot",
        store_row=groups.row("m") if groups else "",
        store_column=groups.row("n") if groups else "",
        consume_note=" while the other warpgroup accumulates the next" if pingpong else "",
        store_parameters=tuple(f"{name}: {kind}" for name, kind in parameters),
        store_arguments=", ".join(("o", "acc", "thread", *(name for name, _ in parameters))),
        store_results="slot, loaded" if tiles else "slot",
        store_flow=("tiles in, " if tiles else "") + f"maths in registers, staged in shared memory, {stores}",
        symbols=tuple(symbol_lines(problem, shapes)),
        fakes=tuple(fake_text(x, shapes) for x in arguments),
    )


def _extent(t: MatrixOperand, paired: bool, gather: GatherText | None) -> str:
    """Rows that the product has of an operand, as source."""
    if gather and gather.matrix == t.name:
        return gather.extent
    return f"cute.size({t.name}, mode=[0])" if paired else f"{t.name}.shape[0]"


def _reads_tiles(program: EpilogueProgram) -> str:
    """The condition under which tiles are read, of the kernel's arguments; "" where they always are."""
    on_device = {o.name for o in program.operands if o.kind == "device_scalar"}
    values = [f"m_{s}[0].to(Float32)" if s in on_device else s for s in program.tile_switches]
    tests = [f"{value} != 0.0" for value in values]
    return tests[0] if len(tests) == 1 else " | ".join(f"({test})" for test in tests)


def _foreign_imports(cutlass_names: Iterable[str], functions: Mapping[str, Iterable[str]]) -> Iterable[str]:
    """`from` imports that are not of cutegen: the DSL's, and those of the packages whose ops the epilogue calls."""
    names: dict[str, Iterable[str]] = {
        "cutlass": cutlass_names,
        "cutlass.cute.nvgpu": ("OperandMajorMode", "cpasync", "warpgroup"),
        "cutlass.cute.runtime": ("make_fake_stream", "make_fake_tensor"),
        **{module: found for module, found in functions.items() if module != BUILT_IN_MODULE},
    }
    for module in sorted(names, key=lambda module: (module.lower(), module)):
        yield f"from {module} import {', '.join(names[module])}"


def _import_order(name: str) -> tuple[int, list[str | int]]:
    """Order of names that isort and ruff keep: CONSTANTS, Classes, functions; numbers in them by value."""
    return (1 if name[0].isupper() else 2, [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", name)])


def render(resolved: ResolvedGemm) -> dict[str, str]:
    """The text of the package's modules, by file name."""
    plan = plan_text(resolved)
    return {
        "__init__.py": render_template("_shared/init.py.jinja", p=plan),
        "__main__.py": render_template("_shared/main.py.jinja", p=plan),
        **{
            f"{kernel.module}.py": render_template("gemm/sm90/kernel.py.jinja", k=kernel_text(resolved, kernel))
            for kernel in resolved.kernels
        },
        "plan.py": render_template("gemm/plan.py.jinja", p=plan),
    }
