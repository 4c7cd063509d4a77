"""The function of a GEMM package: its operands and results in words."""

from __future__ import annotations

from cutegen.families.call_text import CallText, OperandText, call_text
from cutegen.families.gemm.arguments import TensorShape, tensor_shapes
from cutegen.families.gemm.resolved import ResolvedGemm


def gemm_call_text(resolved: ResolvedGemm) -> CallText:
    problem = resolved.problem
    shapes, updated = tensor_shapes(problem), problem.epilogue.updated
    inputs = [_operand(name, shapes.get(name), name in updated, name in problem.optional) for name in problem.inputs]
    results = [OperandText(name, _layout(shapes[name])) for name in problem.outputs]
    return call_text(resolved.function, inputs, results, [name for name in problem.outputs if name not in updated])


def _operand(name: str, shape: TensorShape | None, updated: bool, optional: bool) -> OperandText:
    if shape is None:
        return OperandText(name, "a number", scalar=True, optional=optional)
    return OperandText(name, _layout(shape) + ", updated in place" * updated, optional=optional)


def _layout(shape: TensorShape) -> str:
    """Dtype, dims and what is asked of strides, such as `bf16[m, k], k contiguous and a multiple of 8`."""
    text = shape.shape_text
    if shape.packed:
        return f"{text}, made by pack_scales of cutegen.runtime.gemm.scale_packing"
    if shape.dtype.packing > 1:
        text += f", as torch.{shape.dtype.torch}"
    if shape.contiguous is None:
        return text
    inner = shape.dims[shape.contiguous]
    text += f", {inner.name} contiguous" * (len(shape.dims) > 1)
    if shape.multiple > 1 and inner.value is None:
        text += f" and a multiple of {shape.multiple}" if len(shape.dims) > 1 else f", a multiple of {shape.multiple}"
    return text + f", {shape.align}-byte aligned" * shape.tma
