"""The frame of the kernel: with `swap_ab` it computes D^T = B A^T, so that its m runs along the spec's n. And where
gathered rows are copied beforehand, it multiplies the copy.

Tile, cluster and raster are the kernel's; knobs under `tma` go with their tensor. Rules, derived numbers and templates
work in the kernel's frame and know nothing of the exchange, nor of the copy.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from cutegen.epilogue import BlockOutput, EpilogueProgram, Operand, OperandKind, Output, Passes, find_passes
from cutegen.families.gemm.candidate import FEATURE_KNOBS, Candidate, Core
from cutegen.families.gemm.problem import GemmProblem, MatrixOperand, RowGather, once_each

if TYPE_CHECKING:
    from cutegen.families.gemm.cost_model import Shape

_SIDES = {"multicast_a": "multicast_b", "swizzle_a": "swizzle_b"}
_SIDES |= {one.knob.field: one.exchanged for one in FEATURE_KNOBS if one.exchanged}
EXCHANGED = {**_SIDES, **{b: a for a, b in _SIDES.items()}}
"""Candidate fields that trade places, both ways."""

_exchanged = attrgetter(*EXCHANGED.values())  # of a candidate

_OTHER: dict[Literal["m", "n"], Literal["m", "n"]] = {"m": "n", "n": "m"}
_MAJOR: dict[Literal["m", "n", "k"], Literal["m", "n", "k"]] = {"m": "n", "n": "m", "k": "k"}
_KEPT: dict[Literal["m", "n", ""], Literal["m", "n", ""]] = {"m": "n", "n": "m", "": ""}
Stored = TypeVar("Stored", Output, BlockOutput)
_KINDS: dict[str, OperandKind] = {"row_vector": "column_vector", "column_vector": "row_vector"}


def kernel_frame(problem: GemmProblem, c: Candidate) -> tuple[GemmProblem, Candidate]:
    """Problem and candidate in the kernel's frame; and the candidate back, since twice exchanged is as before."""
    if c.copies_rows and problem.gather:
        problem = copy_rows(problem)
    if not c.swap_ab:
        return problem, c
    return transpose(problem), c.vary(**dict(zip(EXCHANGED, _exchanged(c))))


def spec_frame(problem: GemmProblem) -> GemmProblem:
    """The problem in the frame of the spec, whatever the frame of the one given."""
    return transpose(problem) if problem.transposed else problem


@once_each
def block_passes(problem: GemmProblem) -> Passes:
    """The passes of an epilogue with values of blocks, whatever the frame of the problem."""
    found = find_passes(spec_frame(problem).kernel_epilogue, problem.mma.accumulator.name == "f32")
    assert isinstance(found, Passes)
    return found


def kernel_shape(shape: Shape, c: Candidate | Core) -> Shape:
    """The shape in the kernel's frame."""
    return shape._replace(m=shape.n, n=shape.m) if c.swap_ab else shape


def exchange_sides(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Values by candidate field, with those of A given to B and those of B to A."""
    return {EXCHANGED.get(field, field): value for field, value in fields.items()}


@once_each
def transpose(problem: GemmProblem) -> GemmProblem:
    """The problem of the transposed output; a tensor's torch axes stay what they are."""
    return replace(
        problem,
        transposed=not problem.transposed,
        m=problem.n,
        n=problem.m,
        groups=problem.groups and replace(problem.groups, along=_OTHER[problem.groups.along]),
        gather=_gather(problem.gather),
        copied=_gather(problem.copied),
        a=_matrix(problem.b),
        b=_matrix(problem.a),
        a_scale=problem.b_scale,
        b_scale=problem.a_scale,
        a_packed=problem.b_packed,
        b_packed=problem.a_packed,
        epilogue=_program(problem.epilogue),
        kernel_epilogue=_program(problem.kernel_epilogue),
    )


@once_each
def copy_rows(problem: GemmProblem) -> GemmProblem:
    """The problem of a kernel that gets gathered rows in order: the matrix as (rows, k), its scales along k as columns
    side by side in memory, as TMA reads them. What is transposed or not stays so."""
    gather, axes = problem.gather, (0, 1)
    assert gather
    scales = {
        side: replace(scale, axes=axes, k_major=False)
        for side, scale in (("a_scale", problem.a_scale), ("b_scale", problem.b_scale))
        if scale and problem.gathers(scale.name)
    }
    side = "a" if gather.along == "m" else "b"
    matrix = replace(problem.a if side == "a" else problem.b, axes=axes)
    inputs = tuple(name for name in problem.inputs if name != gather.index)
    changed: dict[str, Any] = {side: matrix, **scales}
    return replace(problem, gather=None, copied=gather, inputs=inputs, **changed)


def _program(program: EpilogueProgram) -> EpilogueProgram:
    operands, outputs = tuple(map(_operand, program.operands)), tuple(map(_stored, program.outputs))
    reductions = tuple(replace(r, kept=_KEPT[r.kept]) for r in program.reductions)
    blocks = tuple(map(_stored, program.block_outputs))
    return replace(program, operands=operands, outputs=outputs, reductions=reductions, block_outputs=blocks)


def _gather(gather: RowGather | None) -> RowGather | None:
    return gather and replace(gather, along=_OTHER[gather.along])


def _matrix(t: MatrixOperand) -> MatrixOperand:
    return replace(t, major=_MAJOR[t.major])


def _operand(o: Operand) -> Operand:
    if o.kind == "block_input":
        missing = _OTHER[o.missing] if o.missing else None
        axes = o.axes if o.missing else _transposed(o.axes)
        return replace(o, axes=axes, block=o.block[::-1], up=o.up[::-1], inner=_OTHER[o.inner or "n"], missing=missing)
    if o.kind != "tile":
        return replace(o, kind=_KINDS.get(o.kind, o.kind))
    assert o.major
    return replace(o, axes=_transposed(o.axes), major=_OTHER[o.major])


def _stored(o: Stored) -> Stored:
    return replace(o, axes=_transposed(o.axes), major=_OTHER[o.major])


def _transposed(axes: tuple[int, ...]) -> tuple[int, ...]:
    """(m, n[, batch]) -> (n, m[, batch])"""
    return (axes[1], axes[0], *axes[2:])
