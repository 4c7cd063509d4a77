"""From a resolved GEMM to the objects its templates read: every name, number and expression is decided here."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from cutegen.epilogue import Operand, Output, device_imports, device_lines
from cutegen.families.gemm.arguments import TensorShape, formula, tensor_shapes
from cutegen.families.gemm.orientation import kernel_frame
from cutegen.families.gemm.plan_rendering import plan_text
from cutegen.families.gemm.problem import GemmProblem, MatrixOperand
from cutegen.families.gemm.resolved import GemmKernel, ResolvedGemm, ResolvedGemmTiling
from cutegen.render.environment import render_template
from cutegen.render.layout import bracketed, statement


@dataclass(frozen=True, slots=True)
class MatrixText:
    """A or B in the kernel module."""

    name: str
    dtype: str
    modes: str
    k_major: bool
    mma_major: str
    all_tiles: str
    rest: str
    coordinate: str


@dataclass(frozen=True, slots=True)
class TileText:
    """An output or a TMA-loaded epilogue tile in the kernel module."""

    name: str
    dtype: str
    modes: str
    n_major: bool
    bulk: bool
    gmem: str
    all_tiles: str
    rest: str
    batch_coordinate: str


@dataclass(frozen=True, slots=True)
class VectorText:
    """A row or column vector in the kernel module."""

    name: str
    modes: str
    extent: str
    origin: str
    gmem: str
    smem: str
    smem_modes: str
    smem_shape: str
    smem_element: str


@dataclass(frozen=True, slots=True)
class ScalarText:
    name: str
    index: str


@dataclass(frozen=True, slots=True)
class ReorderedText:
    name: str
    axes: list[int]
    modes: str


@dataclass(frozen=True, slots=True)
class FakeText:
    text: str
    value: str


@dataclass(frozen=True, slots=True)
class KernelText:
    """What kernel.py.jinja and its parts read."""

    symbol: str
    title: str
    overview: tuple[str, ...]
    pingpong: bool
    pdl_wait: bool
    pdl_trigger: bool
    cutlass_names: tuple[str, ...]
    device_modules: tuple[str, ...]
    activations: tuple[str, ...]
    epilogue_parameters: tuple[str, ...]
    epilogue_lines: tuple[str, ...]
    epilogue_arguments: tuple[str, ...]
    epilogue_targets: str
    origin: str
    offset: str
    a: MatrixText
    b: MatrixText
    outputs: tuple[TileText, ...]
    bulk_outputs: tuple[TileText, ...]
    direct: tuple[TileText, ...]
    tiles: tuple[TileText, ...]
    bulk: tuple[TileText, ...]
    vectors: tuple[VectorText, ...]
    device_scalars: tuple[ScalarText, ...]
    host_scalars: tuple[ScalarText, ...]
    arguments: tuple[str, ...]
    signature: tuple[str, ...]
    reordered: tuple[ReorderedText, ...]
    layout_names: tuple[str, ...]
    extent_m: str
    extent_n: str
    extent_batch: str
    batch_name: str
    times_groups: str
    group_warps: str
    group_threads: str
    epilogue_barrier: str
    slot: str
    consume_note: str
    store_parameters: tuple[str, ...]
    store_arguments: str
    store_results: str
    store_flow: str
    symbols: tuple[str, ...]
    fakes: tuple[FakeText, ...]


def kernel_text(resolved: ResolvedGemm, kernel: GemmKernel) -> KernelText:
    problem, structure = kernel_frame(resolved.problem, kernel.structure)
    program = problem.epilogue
    pingpong = structure.schedule == "pingpong"
    batched = problem.batch is not None
    tile_operands = [o for o in program.operands if o.kind == "tile"]
    vector_operands = [o for o in program.operands if o.kind in ("row_vector", "column_vector")]
    device_scalars = tuple(ScalarText(o.name, "0") for o in program.operands if o.kind == "device_scalar")
    host_scalars = tuple(ScalarText(o.name, "") for o in program.operands if o.kind == "host_scalar")
    a = _matrix(problem.a, "m")
    b = _matrix(problem.b, "n")
    outputs = tuple(_tile(o) for o in program.outputs)
    stored = tuple(o for o in outputs if o.bulk)
    tiles = tuple(_tile(o) for o in tile_operands)
    vectors = tuple(_vector(o, pingpong) for o in vector_operands)
    shapes = tensor_shapes(problem)
    arguments = (*problem.inputs, *problem.outputs)
    names = [o.name for o in program.operands]
    dtypes = {s.dtype.cutlass for s in shapes.values()} | {"Float32"}
    extra = {"Int32", "Int64", "const_expr", "pipeline"} | ({"Boolean"} if pingpong else set())
    modules = ["accumulator", "tma", *(["pipeline_state"] if pingpong else []), *(["vector"] if vectors else [])]
    direct = tuple(o for o in outputs if not o.bulk)
    modules += ["direct_store"] if direct else []
    stores = " and ".join([*(["TMA store"] if stored else []), *(["stores by threads"] if direct else [])])
    parameters = [("m", "Int32"), ("n", "Int32")]
    if batched:
        parameters.append(("batch", "Int32"))
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
    }
    row = "row" if any(o.kind == "column_vector" for o in vector_operands) else "_"
    column = "column" if any(o.kind == "row_vector" for o in vector_operands) else "_"
    return KernelText(
        symbol=resolved.name + kernel.module.removeprefix("kernel"),
        title=f"Persistent warp-specialised GEMM for {resolved.arch}: {formula(resolved.problem)}.",
        overview=tuple(_overview(problem, kernel.tilings[0])),
        pingpong=pingpong,
        pdl_wait=structure.pdl_wait,
        pdl_trigger=structure.pdl_trigger != "none",
        cutlass_names=tuple(sorted(dtypes | extra, key=_import_order)),
        device_modules=tuple(sorted(modules)),
        activations=device_imports(program),
        epilogue_parameters=tuple(f"{name}: Float32" for name in ("acc", *names)),
        epilogue_lines=tuple(statement(line, indent=4) for line in device_lines(program)),
        epilogue_arguments=("acc[first + i]", *(values[name] for name in names)),
        origin=f"{row}, {column}",
        offset=f"{'at_m' if row == 'row' else '_'}, {'at_n' if column == 'column' else '_'}",
        epilogue_targets=", ".join(f"r_{o.name}[i]" for o in outputs),
        a=a,
        b=b,
        outputs=outputs,
        bulk_outputs=stored,
        direct=direct,
        tiles=tiles,
        bulk=(*stored, *tiles),
        vectors=vectors,
        device_scalars=device_scalars,
        host_scalars=host_scalars,
        arguments=arguments,
        signature=tuple(f"{x}: {'cute.Tensor' if x in shapes else 'Float32'}" for x in arguments),
        reordered=_reordered(problem),
        layout_names=("sA_layout", "sB_layout", *(f"s_{t.name}_layout" for t in (*outputs, *tiles))),
        extent_m=f"{problem.a.name}.shape[0]",
        extent_n=f"{problem.b.name}.shape[0]",
        extent_batch=f"{program.outputs[0].name}.shape[2]" if batched else "Int32(1)",
        batch_name="batch" if batched else "_",
        times_groups=" * t.consumers" if pingpong else "",
        group_warps="4" if pingpong else "4 * t.consumers",
        group_threads="128" if pingpong else "128 * t.consumers",
        epilogue_barrier="EPILOGUE + group" if pingpong else "EPILOGUE",
        slot="group * t.store_stages + slot" if pingpong else "slot",
        consume_note=" while the other warpgroup accumulates the next" if pingpong else "",
        store_parameters=tuple(f"{name}: {kind}" for name, kind in parameters),
        store_arguments=", ".join(("o", "acc", "thread", *(name for name, _ in parameters))),
        store_results="slot, loaded" if tiles else "slot",
        store_flow=("tiles in, " if tiles else "") + f"maths in registers, staged in shared memory, {stores}",
        symbols=tuple(_symbols(problem, shapes)),
        fakes=tuple(_fake(x, shapes) for x in arguments),
    )


def _matrix(t: MatrixOperand, rows: str) -> MatrixText:
    rest = [f"{rows} tiles", "k tiles", *(["batch"] if t.batched else [])]
    return MatrixText(
        name=t.name,
        dtype=t.dtype.cutlass,
        modes=", ".join((rows, "k", *(("batch",) if t.batched else ()))),
        k_major=t.major == "k",
        mma_major="K" if t.major == "k" else "MN",
        all_tiles=f"({', '.join(['None'] * len(rest))})",
        rest=", ".join(rest),
        coordinate=", ".join((rows, "k", *(("batch",) if t.batched else ()))),
    )


def _tile(t: Operand | Output) -> TileText:
    rest = ["subtiles m", "subtiles n", *(["batch"] if t.batched else [])]
    return TileText(
        name=t.name,
        dtype=t.dtype.cutlass,
        modes=", ".join(("m", "n", *(("batch",) if t.batched else ()))),
        n_major=t.major == "n",
        bulk=not (isinstance(t, Output) and t.direct),
        gmem=f"o.m_{t.name}[None, None, batch]" if t.batched else f"o.m_{t.name}",
        all_tiles=f"({', '.join(['None'] * len(rest))})",
        rest=", ".join(rest),
        batch_coordinate=", batch" if t.batched else "",
    )


def _vector(o: Operand, pingpong: bool) -> VectorText:
    row = o.kind == "row_vector"
    dim, extent = ("n", "t.tile[1]") if row else ("m", "t.tile[0]")
    base, step = (
        ("column", "subtile_n * t.epilogue_tile[1] + at_n") if row else ("row", "subtile_m * t.epilogue_tile[0] + at_m")
    )
    at = f"{base} + {step}"
    return VectorText(
        name=o.name,
        modes=", ".join((dim, *(("batch",) if o.batched else ()))),
        extent=extent,
        origin=f"{dim} * {extent}",
        gmem=f"o.m_{o.name}[None, batch]" if o.batched else f"o.m_{o.name}",
        smem=f"o.s_{o.name}[None, group]" if pingpong else f"o.s_{o.name}",
        smem_modes=f"(b{dim.upper()}, group)" if pingpong else f"(b{dim.upper()})",
        smem_shape=f"({extent}, t.consumers)" if pingpong else extent,
        smem_element=f"o.s_{o.name}[{at}, group]" if pingpong else f"o.s_{o.name}[{at}]",
    )


def _reordered(problem: GemmProblem) -> tuple[ReorderedText, ...]:
    """Arguments whose torch order of dims is not the kernel's."""
    a, b, program = problem.a, problem.b, problem.epilogue
    modes = {"tile": "m, n", "row_vector": "n", "column_vector": "m"}
    named: list[tuple[MatrixOperand | Operand | Output, str]] = [(a, "m, k"), (b, "n, k")]
    named += [(o, modes[o.kind]) for o in program.operands if o.kind in modes]
    named += [(o, "m, n") for o in program.outputs]
    return tuple(
        ReorderedText(t.name, list(t.axes), text + (", batch" if t.batched else ""))
        for t, text in named
        if t.axes != tuple(range(len(t.axes)))
    )


def _symbols(problem: GemmProblem, shapes: dict[str, TensorShape]) -> Iterable[str]:
    """One symbol per dynamic dim; its divisibility is what the most demanding tensor needs."""
    for dim in filter(None, (problem.batch, problem.m, problem.n, problem.k)):
        if dim.value is None:
            multiples = [
                s.multiple for s in shapes.values() if s.contiguous is not None and s.dims[s.contiguous] is dim
            ]
            divisibility = f", divisibility={max(multiples)}" if max(multiples, default=1) > 1 else ""
            yield f'{dim.name} = cute.sym_int(symbol="{dim.name}"{divisibility})'


def _fake(name: str, shapes: dict[str, TensorShape]) -> FakeText:
    s = shapes.get(name)
    if s is None:
        return FakeText(f"{name}: f32", "Float32(0.0)")
    divisibility = f"divisibility={s.multiple}" if s.multiple > 1 else ""
    extents = _tuple(d.name if d.value is None else str(d.value) for d in s.dims)
    strides = _tuple("1" if axis == s.contiguous else f"cute.sym_int64({divisibility})" for axis in range(len(s.dims)))
    parts = (s.dtype.cutlass, extents, strides, f"assumed_align={s.align}")
    return FakeText(s.text, bracketed("make_fake_tensor(", parts, ")", indent=8, used=1))


def _tuple(items: Iterable[str]) -> str:
    items = tuple(items)
    return f"({items[0]},)" if len(items) == 1 else f"({', '.join(items)})"


def _import_order(name: str) -> tuple[int, str]:
    """Order of names that isort and ruff keep: CONSTANTS, Classes, functions."""
    return (1 if name[0].isupper() else 2, name)


def _overview(problem: GemmProblem, first: ResolvedGemmTiling) -> Iterable[str]:
    """Frame, roles and pipelines of the module docstring; numbers are those of the module's first tiling."""
    if first.candidate.swap_ab:
        yield f"Transposed (swap_ab): A of the MMA is `{problem.a.name}`, its B is `{problem.b.name}`. Here m is the"
        yield f"extent of {problem.m.name} and n that of {problem.n.name}; outputs are stored with their rows along n."
        yield ""
    width = max((len(role.name) for role in first.roles), default=0)
    yield "Roles (warps of one CTA):"
    for role in first.roles:
        lo, hi = role.warps
        yield f"  {role.name:<{width}}  {f'{lo}..{hi}' if hi > lo else str(lo):<6}  {role.does}"
    yield ""
    yield "Pipelines (producer -> consumer):"
    for pipe in first.pipelines:
        yield f"  {pipe.name:<6} {pipe.kind:<9} {pipe.producer} -> {pipe.consumer}"
        yield f"         full: {pipe.full}"
        yield f"         empty: {pipe.empty}"


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
