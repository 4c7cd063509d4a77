"""Rules about a spec that no choice of knobs can mend: lists of shapes, names under `tma`."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

from cutegen.diagnostics import Diagnostic, Rule, register
from cutegen.epilogue import Operand, Output
from cutegen.families.decide import written_knobs
from cutegen.families.gemm import problem_rules
from cutegen.families.gemm.candidate import FEATURE_KNOBS, knobs_of
from cutegen.families.gemm.features.feature_list import FEATURES
from cutegen.families.gemm.lowering.sm100 import spec_rules as sm100_spec
from cutegen.families.gemm.lowering.sm120 import spec_rules as sm120_spec
from cutegen.families.gemm.placement import HALF, elements_per_step
from cutegen.families.gemm.problem import GemmProblem, MatrixOperand
from cutegen.families.knobs import show
from cutegen.runtime.gemm.scale_packing import ROWS as PACKED_ROWS
from cutegen.spec.base import GIVEN_TWICE

if TYPE_CHECKING:
    from cutegen.families.gemm.spec import GemmSpec
    from cutegen.spec import KeyPath, SpecDocument
    from cutegen.spec.base import Shape

CONSTANT_M = register(
    Rule(
        "constant-m",
        "a list of values of m needs m to be dynamic",
        "`m: [...]` lists the row counts that build and tune cover; a constant or promised m must agree with them.",
        "dims: {m: 4096}\nm: [1, 16]",
    )
)
TMA_KNOB = register(
    Rule(
        "tma-knob",
        "TMA knobs stand with the tensors that have them",
        "`multicast`, `swizzle` and `load_ahead` belong to the operands of the mainloop, `gather` to the one whose "
        "rows an index names, `store` to outputs. Scalars and vectors are not moved by TMA.",
        "tma: {bias: {swizzle: 128}}",
    )
)
READY_OPERAND = register(
    Rule(
        "ready-operand",
        "what is ready before the preceding kernel starts is an operand of the mainloop, named once",
        "`pdl: {ready: [b]}` lets kernels load `b` before they wait for the preceding kernel. Of what the epilogue "
        "reads nothing is loaded that early, and outputs are written after the wait.",
        "pdl: {ready: [d]}",
    )
)

WRITTEN_CANDIDATE = register(
    Rule(
        "written-candidate",
        "a knob with candidates under `tune` is open, or one of them",
        "What a spec writes holds for every kernel of it, so a candidate with another value could never win.",
        "tiling: {cluster: [2, 1]}\ntune: {cluster: [[1, 1], [1, 2]]}",
    )
)


def findings(spec: GemmSpec, doc: SpecDocument, problem: GemmProblem) -> Iterator[Diagnostic]:
    """Every finding of these rules, located."""
    yield from sm100_spec.refuse_unsupported(spec, doc, problem)
    yield from sm120_spec.refuse_unsupported(doc, problem)
    yield from _m(spec, doc, problem)
    yield from _shapes(spec, doc, problem)
    yield from _tma(spec, doc, problem)
    yield from _ready(spec, doc, problem)
    yield from _tune(spec, doc, problem)


def _m(spec: GemmSpec, doc: SpecDocument, problem: GemmProblem) -> Iterator[Diagnostic]:
    dim = problem.m
    for index, value in enumerate(spec.m):
        if dim.lo <= value and (dim.hi is None or value <= dim.hi) and dim.value in (None, value):
            continue
        promise = f"is {dim.value}" if dim.value is not None else f"is promised to be from {dim.lo} to {dim.hi}"
        remedy = f"drop the value, or change `{dim.name}` in `dims`"
        yield doc.diagnostic(CONSTANT_M.id, ("m", index), f"m = {value}, but `{dim.name}` {promise} in `dims`", remedy)
    for index, instance in enumerate(spec.instances if spec.m else ()):
        if dim.name in instance:
            message = f"`{dim.name}` has an extent here, and {len(spec.m)} in `m`"
            yield doc.diagnostic(GIVEN_TWICE.id, ("instances", index, dim.name), message, "keep one", key=True)


def _shapes(spec: GemmSpec, doc: SpecDocument, problem: GemmProblem) -> Iterator[Diagnostic]:
    steps = alignments(problem)
    for name, promise in spec.dims.items():
        step, tensor = steps.get(name, (1, ""))
        if isinstance(promise, tuple) and promise[1] // step * step < promise[0]:
            message = f"no {name} from {promise[0]} to {promise[1]} is a multiple of {step}, as `{tensor}` needs"
            yield doc.diagnostic(
                problem_rules.TMA_ALIGNMENT, ("dims", name), message, f"include {_up(promise[1], step)}"
            )
    for path, name, value in _listed_extents(spec, problem):
        step, tensor = steps.get(name, (1, ""))
        if value % step:
            message = f"{name} = {value} is not a multiple of {step} elements, as `{tensor}` needs"
            remedy = f"use a multiple of {step}, such as {_up(value, step)}"
            yield doc.diagnostic(problem_rules.TMA_ALIGNMENT, path, message, remedy)


def _listed_extents(spec: GemmSpec, problem: GemmProblem) -> Iterator[tuple[KeyPath, str, int]]:
    """(path, dim, extent) of every extent in the lists of a spec."""
    yield from ((("m", index), problem.m.name, value) for index, value in enumerate(spec.m))
    lists: tuple[tuple[KeyPath, list[Shape]], ...] = (
        (("instances",), spec.instances),
        (("check", "shapes"), spec.check.shapes),
        (("bench", "shapes"), spec.bench.shapes),
    )
    for path, shapes in lists:
        for index, shape in enumerate(shapes):
            yield from (((*path, index, name), name, extent) for name, extent in shape.items())


def _up(value: int, step: int) -> int:
    return -(-value // step) * step


def alignments(problem: GemmProblem) -> dict[str, tuple[int, str]]:
    """For each dim that is contiguous in a TMA-moved tensor, or that a scale or an input cuts into whole blocks: the
    elements it must be a multiple of, and that tensor."""
    steps: dict[str, tuple[int, str]] = {problem.n.name: (HALF, problem.outputs[0])} if problem.paired else {}

    def need(dim: str, step: int, tensor: str) -> None:
        before, _ = steps.get(dim, (1, ""))
        if before % step:
            steps[dim] = (math.lcm(before, step), tensor)

    for scale, rows in ((problem.a_scale, problem.m), (problem.b_scale, problem.n)):
        if scale is None:
            continue
        whole = scale.rows * (HALF if problem.scaled_halves and not scale.by_row else 1)
        blocks = ((rows, whole, scale.up[0]), (problem.k, scale.depth, scale.up[1]))
        for dim, step, up in blocks:
            need(dim.name, 1 if up else step, scale.name)
    for packed in problem.packed_scales:
        need(problem.k.name, packed.block, packed.name)
        if problem.paired and packed is problem.b_packed:
            need(problem.n.name, HALF * PACKED_ROWS, packed.name)
    for o in problem.epilogue.operands:
        for dim, size, up in zip((problem.m, problem.n), o.block, o.up):
            need(dim.name, 1 if up else size, o.name)
    tensors: tuple[MatrixOperand | Operand | Output, ...] = (
        problem.a,
        problem.b,
        *problem.epilogue.operands,
        *(output for output in problem.epilogue.outputs if not output.direct),
    )
    for tensor in tensors:
        if tensor.major is None:
            continue
        need(problem.extents[tensor.major].name, elements_per_step(tensor, problem.paired_dim), tensor.tensor)
    return steps


def _tma(spec: GemmSpec, doc: SpecDocument, problem: GemmProblem) -> Iterator[Diagnostic]:
    operands = (problem.a.name, problem.b.name)
    declared = ((one.knob.path, one.held_by) for one in FEATURE_KNOBS)
    own = {path[-1]: held_by(problem) if held_by else operands for path, held_by in declared if path[0] == "tma"}
    fitting = {"multicast": operands, "swizzle": operands, **own, "store": problem.outputs}
    for name, knobs in spec.tma.items():
        for key, fit in fitting.items():
            if getattr(knobs, key) != "auto" and name not in fit:
                message = f"`{name}` has no knob `{key}`"
                remedy = f"tensors with `{key}`: {', '.join(fit)}"
                if not fit:
                    remedy = f"drop it; rows are gathered by `mainloop: {problem.a.name}[rows] @ {problem.b.name}`"
                yield doc.diagnostic(TMA_KNOB.id, ("tma", name, key), message, remedy, key=True)


def _ready(spec: GemmSpec, doc: SpecDocument, problem: GemmProblem) -> Iterator[Diagnostic]:
    operands = (problem.a.name, problem.b.name)
    for index, name in enumerate(spec.pdl.ready):
        at = ("pdl", "ready", index)
        if name in spec.pdl.ready[:index]:
            yield doc.diagnostic(READY_OPERAND.id, at, f"`{name}` is named twice", "drop one of them")
        elif name in spec.tensors and name not in operands:
            message = f"`{name}` is not multiplied by the mainloop"
            yield doc.diagnostic(READY_OPERAND.id, at, message, f"operands are {' and '.join(operands)}")


def _tune(spec: GemmSpec, doc: SpecDocument, problem: GemmProblem) -> Iterator[Diagnostic]:
    knobs = knobs_of(problem)
    written = written_knobs(spec, knobs)
    for knob in knobs:
        for index, value in enumerate(getattr(spec.tune, knob.short)):
            for feature in FEATURES:
                if refused := feature.refuse_listed(problem, knob.field, value):
                    rule, message, remedy = refused
                    yield doc.diagnostic(rule, ("tune", knob.short, index), message, remedy)
            if knob.field in written and value != written[knob.field]:
                message = f"a candidate {show(value)}, but `{knob.key}` is written: {show(written[knob.field])}"
                remedy = f"drop it, or leave `{knob.key}` open"
                yield doc.diagnostic(WRITTEN_CANDIDATE.id, ("tune", knob.short, index), message, remedy)
