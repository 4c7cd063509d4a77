"""From a resolved GEMM to what plan.py.jinja reads: arguments, tilings, dispatch, reference and algorithmic work."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass

from cutegen.epilogue import Reduction, cost, torch_imports, torch_lines, torch_operand_lines
from cutegen.families.gemm.arguments import TensorShape, formula, tensor_shapes
from cutegen.families.gemm.derived import promoted_k
from cutegen.families.gemm.omission import list_omissions, without
from cutegen.families.gemm.problem import GemmProblem, MatrixOperand, ProblemDim
from cutegen.families.gemm.resolved import ResolvedGemm
from cutegen.families.gemm.text.gather import gather_dims, gather_lines, gathered_text
from cutegen.families.gemm.text.groups import member_lines, of_rows, row_group_names, row_groups_text
from cutegen.families.plan_text import (
    DeviceText,
    RowText,
    TilingText,
    device_texts,
    keys_of_all_devices,
    row_texts,
    tiling_texts,
)
from cutegen.hardware import ARCHS
from cutegen.render.layout import bracketed, statement


@dataclass(frozen=True, slots=True)
class ShorterText:
    """The reference of calls without optional operands: the condition, and the statements."""

    when: str
    lines: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PlanText:
    """What plan.py.jinja, init.py.jinja and main.py.jinja read."""

    name: str
    arch: str
    formula: str
    argument_classes: tuple[str, ...]
    dims: str
    reduced: str
    batch_invariant: bool
    promoted_k: int
    scales: str
    approximation: str
    reductions: str
    block_values: str
    functions: tuple[str, ...]
    epilogue: tuple[str, ...]
    inputs: str
    outputs: str
    in_place: str
    aliases: str
    tilings: tuple[TilingText, ...]
    modules: tuple[tuple[str, str], ...]
    module: str
    dispatch: tuple[RowText, ...]
    winners: tuple[DeviceText, ...]
    anywhere: str
    point: str
    point_names: str
    along: str
    input_names: tuple[str, ...]
    results: str
    dim_names: tuple[str, ...]
    spread: bool
    gathered: str
    row_groups: str
    row_group_names: tuple[str, ...]
    product_lines: tuple[str, ...]
    shorter_references: tuple[ShorterText, ...]
    reference_lines: tuple[str, ...]
    flops: str
    bytes: tuple[str, ...]


def plan_text(resolved: ResolvedGemm) -> PlanText:
    problem = resolved.problem
    shapes = tensor_shapes(problem)
    dims = [d for d in (problem.batch, problem.m, problem.n, problem.k) if d is not None]
    work = cost(problem.epilogue)
    product = " * ".join(d.name for d in dims if d is not problem.k and (not problem.groups or d is not problem.batch))
    several = len(resolved.kernels) > 1
    others = [d.name for d in (*gather_dims(problem), *dims) if d is not problem.m]
    per_output = f" + {work.flops} * {product}{' // 2' * work.paired}" if work.flops else ""
    return PlanText(
        name=resolved.name,
        arch=resolved.arch,
        formula=formula(problem),
        argument_classes=("ScalarArg", "TensorArg") if any(x not in shapes for x in problem.inputs) else ("TensorArg",),
        dims="{" + ", ".join(f'"{d.name}": {_extent(d)}' for d in (*gather_dims(problem), *dims)) + "}",
        reduced=problem.k.name,
        batch_invariant=problem.batch_invariant,
        promoted_k=promoted_k(problem, resolved.default.candidate, ARCHS[resolved.arch]),
        scales=_names(problem.scales),
        approximation=repr(work.error),
        reductions=_reductions(problem.epilogue.reductions),
        block_values=_names(tuple(o.name for o in problem.epilogue.block_outputs)),
        functions=torch_imports(problem.epilogue),
        epilogue=tuple(f'"{s.name}": {json.dumps(s.text)}' for s in problem.epilogue.statements),
        inputs=_arguments("inputs = ", problem.inputs, shapes, problem.optional),
        outputs=_arguments("outputs = ", problem.outputs, shapes),
        aliases=", ".join(f'"{output}": "{name}"' for output, name in problem.aliases),
        in_place=_names(problem.epilogue.updated),
        tilings=tiling_texts(resolved.instances),
        modules=tuple((t.name, t.module) for t in resolved.instances) if several else (),
        module='f"{__package__}.{MODULES[key]}"' if several else f'f"{{__package__}}.{resolved.kernels[0].module}"',
        dispatch=row_texts(resolved.dispatch, 'dims["{}"]'),
        winners=device_texts(resolved.dispatch, others, problem.m.name),
        anywhere=keys_of_all_devices(resolved.dispatch),
        point=", ".join(f'dims["{name}"]' for name in others),
        point_names=", ".join(others),
        along=problem.m.name,
        input_names=problem.inputs,
        results=", ".join(problem.outputs) if len(problem.outputs) > 1 else f"({problem.outputs[0]},)",
        dim_names=tuple(d.name for d in (*gather_dims(problem), *dims)),
        spread=bool(problem.scaled_k),
        gathered=gathered_text(problem),
        row_groups=row_groups_text(problem),
        row_group_names=row_group_names(problem),
        product_lines=tuple(_product(problem)),
        shorter_references=tuple(
            ShorterText(
                " and ".join(f"{name} is None" for name in omitted), _reference_lines(without(problem, omitted), 12)
            )
            for omitted in reversed(tuple(list_omissions(problem)))
        ),
        reference_lines=_reference_lines(problem, 8),
        flops=f"2 * {product} * {problem.k.name}{per_output}",
        bytes=tuple(_bytes(shapes.values(), problem)),
    )


def _shorter(problem: GemmProblem, omitted: tuple[str, ...]) -> ShorterText:
    condition = " and ".join(f"{name} is None" for name in omitted)
    return ShorterText(condition, _reference_lines(without(problem, omitted), 12))


def _reference_lines(problem: GemmProblem, indent: int) -> tuple[str, ...]:
    lines = (*member_lines(problem), *torch_operand_lines(of_rows(problem)), *torch_lines(problem.epilogue))
    return tuple(statement(line, indent=indent) for line in lines)


def _reductions(reductions: tuple[Reduction, ...]) -> str:
    return "{" + ", ".join(f'"{r.name}": "{r.op}"' for r in reductions) + "}" if reductions else ""


def _names(names: tuple[str, ...]) -> str:
    """A tuple of strings; "" where it is empty."""
    texts = [f'"{name}"' for name in names]
    return f"({', '.join(texts)}{',' * (len(texts) == 1)})" if texts else ""


def _extent(dim: ProblemDim) -> str:
    return str(dim.value) if dim.value is not None else f"({dim.lo}, {dim.hi})"


def _arguments(
    before: str, names: Iterable[str], shapes: dict[str, TensorShape], optional: tuple[str, ...] = ()
) -> str:
    """A tuple of TensorArg and ScalarArg."""
    items = tuple(_argument(name, shapes, name in optional) for name in names)
    if len(items) > 1:
        return "(\n" + "".join(f"        {item},\n" for item in items) + "    )"
    return bracketed("(", items, ")", indent=4, used=len(before), is_tuple=True)


def _argument(name: str, shapes: dict[str, TensorShape], optional: bool) -> str:
    s = shapes.get(name)
    if s is None:
        return f'ScalarArg("{name}"{", optional=True" * optional})'
    dims = ", ".join(f'"{d.name}"' for d in s.dims) + ("," if len(s.dims) == 1 else "")
    parts = [f'"{name}"', f'"{s.dtype.torch}"', f"({dims})", f"contiguous={s.contiguous}", f"align={s.align}"]
    if s.multiple > 1:
        parts.append(f"multiple={s.multiple}")
    if s.axes and (s.tma or s.wide):
        parts.append(f"axes={s.axes}")
    if s.padded:
        parts.append("padded=True")
    if optional:
        parts.append("optional=True")
    if s.steps:
        parts.append(f"steps={s.steps}")
    return bracketed("TensorArg(", parts, ")", indent=8, used=1)


def _product(problem: GemmProblem) -> Iterable[str]:
    """Statements that leave the product in `acc`."""
    yield from gather_lines(problem)
    yield from _spreads(problem)
    a, b = _reference(problem.a, problem, transposed=False), _reference(problem.b, problem, transposed=True)
    if problem.groups and problem.groups.flat:
        tensor, count = problem.groups.tensor, f"{problem.b.name}.shape[{problem.b.axes[2]}]"
        yield f"members = self.row_groups.members({tensor}, {count}, {a}.shape[0])"
        yield f"acc = multiply_members({a}, {b}, members)"
    else:
        yield f"acc = torch.matmul({a}, {b})"


def _reference(t: MatrixOperand, problem: GemmProblem, *, transposed: bool) -> str:
    """The operand as torch.matmul takes it: ([batch,] rows, k), or ([batch,] k, rows)."""
    rows, k, *batch = t.axes
    order = (*batch, k, rows) if transposed else (*batch, rows, k)
    return t.name if order == tuple(range(len(order))) else f"{t.name}.permute{order}"


def _spreads(problem: GemmProblem) -> Iterable[str]:
    """Statements that multiply operands by scales that vary along k."""
    for t, s in ((problem.a, problem.a_scale), (problem.b, problem.b_scale)):
        if s is None:
            continue
        order, within = _batch_first(t.axes), _batch_first(s.axes)
        scale = s.name if within == tuple(range(len(within))) else f"{s.name}.permute{within}"
        turned = order != tuple(range(len(order)))
        shape = f"{t.name}.permute{order}.shape" if turned else f"{t.name}.shape"
        factor = f"spread_blocks({scale}, {shape}, {s.rows}, {s.depth})"
        if turned:  # back to the axes of the operand
            alike = "[None]" * (len(order) - len(within))
            factor += f"{alike}.permute{tuple(order.index(axis) for axis in range(len(order)))}"
        yield f"{t.name} = {t.name} * {factor}"


def _batch_first(axes: tuple[int, ...]) -> tuple[int, ...]:
    """([batch,] rows, k) from (rows, k[, batch])."""
    return *axes[2:], *axes[:2]


def _bytes(shapes: Iterable[TensorShape], problem: GemmProblem) -> Iterable[str]:
    """Every tensor once: the bytes that must move at least. m is the rows of all groups where there are any."""
    terms = list(shapes)
    updated = problem.epilogue.updated
    for i, s in enumerate(terms):
        counted = problem.groups is not None and problem.m in s.dims
        dims = [d for d in s.dims if not (counted and d is problem.batch)]
        named = gather_dims(problem) if problem.gathered and s.name == problem.gathered.name else ()
        # A part such as n/2 is whole, and so is the product that is divided last.
        halves = "".join(f" // {d.divisor}" for d in dims if d.divisor > 1 and not d.up)
        extents = (
            f"min({d.name}, {problem.m.name})"
            if d in named
            else f"-(-{d.base} // {d.divisor})"
            if d.up
            else d.base or d.name
            for d in dims
        )
        size = s.dtype.bytes * (2 if s.name in updated else 1)
        factors = " * ".join((*extents, str(size))) + halves
        note = s.name + ", read and written" * (s.name in updated)
        yield f"{'+ ' if i else ''}{factors}{',' if s is terms[-1] else ''}  # {note}"
