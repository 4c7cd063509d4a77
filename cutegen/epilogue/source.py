"""An epilogue as source text: device statements on scalars, and the PyTorch reference on tensors."""

from __future__ import annotations

from collections.abc import Callable

from cutegen.epilogue.expression import Binary, Call, Expr, Name, Negate, Number, Stored, walk
from cutegen.epilogue.ops import OPS
from cutegen.epilogue.program import EpilogueProgram, Operand, Output

_SUM, _PRODUCT, _SIGN, _ATOM = range(4)
_PRECEDENCE = {"+": _SUM, "-": _SUM, "*": _PRODUCT, "/": _PRODUCT}


def device_lines(program: EpilogueProgram) -> tuple[str, ...]:
    """Python statements for one element, in order, such as `d = gelu_tanh(acc + bias)`.

    They read `acc` and the operands by name, all Float32 scalars, and assign locals and outputs (Float32, not yet
    rounded; a local that is constant is a Python float). They call what `device_imports` lists, and mention
    `cutlass` where `stored` occurs.
    """
    dtypes = {output.name: output.dtype for output in program.outputs}

    def stored(name: str) -> str:
        return name if dtypes[name].name == "f32" else f"stored({name}, cutlass.{dtypes[name].cutlass})"

    def call(op: str, args: list[str]) -> str:
        return _apply(f"{OPS[op].device}({', '.join(f'{{{i}}}' for i in range(len(args[:2])))})", args)

    return tuple(f"{s.name} = {_render(s.expr, call, stored)[0]}" for s in program.statements)


def device_imports(program: EpilogueProgram) -> tuple[str, ...]:
    """Names that `device_lines` needs from `cutegen.device.activation`, sorted."""
    nodes = [node for s in program.statements for node in walk(s.expr)]
    dtypes = {output.name: output.dtype.name for output in program.outputs}
    names = {OPS[node.op].device for node in nodes if isinstance(node, Call)}
    if any(isinstance(node, Stored) and dtypes[node.name] != "f32" for node in nodes):
        names.add("stored")
    return tuple(sorted(names))


def torch_operand_lines(program: EpilogueProgram) -> tuple[str, ...]:
    """Statements that bring each operand of a call into the form that `torch_lines` expects.

    Before: host scalars are Python numbers, the rest torch tensors as declared. After, in f32: scalars have shape (),
    row vectors ([batch,] 1, n), column vectors ([batch,] m, 1), tiles ([batch,] m, n).
    """
    return tuple(f"{operand.name} = {_torch_operand(operand)}" for operand in program.operands)


def torch_lines(program: EpilogueProgram) -> tuple[str, ...]:
    """The reference as statements on tensors of one float dtype (f32, or f64 for a finer one), such as
    `d = torch.nn.functional.gelu(acc + bias, approximate="tanh")`.

    Before: `acc` is the product, ([batch,] m, n), and operands are as `torch_operand_lines` leaves them. After: each
    output has its dtype and the order of dims it was declared with. Needs `torch` in scope.
    """
    dtypes = {output.name: output.dtype for output in program.outputs}

    def stored(name: str) -> str:
        return f"{name}.to(torch.{dtypes[name].torch}).to({name}.dtype)"

    def call(op: str, args: list[str]) -> str:
        return _apply(OPS[op].torch, args)

    lines = [f"{s.name} = {_render(s.expr, call, stored)[0]}" for s in program.statements]
    lines += [f"{o.name} = {o.name}.to(torch.{o.dtype.torch}){_to_torch_order(o)}" for o in program.outputs]
    return tuple(lines)


def _apply(pattern: str, args: list[str]) -> str:
    """`pattern` filled in; with more than two arguments, from the left two at a time."""
    text = pattern.format(*args[:2])
    for arg in args[2:]:
        text = pattern.format(text, arg)
    return text


def _render(expr: Expr, call: Callable[[str, list[str]], str], stored: Callable[[str], str]) -> tuple[str, int]:
    """Text and precedence of `expr`, with the parentheses that its structure needs and no others."""

    def at_least(part: Expr, level: int) -> str:
        text, precedence = _render(part, call, stored)
        return text if precedence >= level else f"({text})"

    match expr:
        case Number(value):
            return repr(value), _ATOM
        case Name(name):
            return name, _ATOM
        case Stored(name):
            return stored(name), _ATOM
        case Negate(operand):
            return f"-{at_least(operand, _SIGN)}", _SIGN
        case Call(op, args):
            return call(op, [at_least(arg, _SUM) for arg in args]), _ATOM
        case Binary(op, left, right):
            # The right side keeps its parentheses at equal precedence: f32 sums do not regroup.
            level = _PRECEDENCE[op]
            return f"{at_least(left, level)} {op} {at_least(right, level + 1)}", level


def _torch_operand(operand: Operand) -> str:
    name, axes = operand.name, operand.axes
    match operand.kind:
        case "host_scalar":
            return f"torch.tensor({name}, dtype=torch.float32)"
        case "device_scalar":
            return f"{name}.float()"
        case "row_vector" | "column_vector":
            order = axes[::-1] if operand.batched else axes
            return f"{name}.float(){_permute(order)}.unsqueeze({-2 if operand.kind == 'row_vector' else -1})"
    return f"{name}.float(){_permute((*axes[2:], *axes[:2]))}"


def _to_torch_order(output: Output) -> str:
    """From ([batch,] m, n) to the declared order of dims."""
    kernel_order = (*output.axes[2:], *output.axes[:2])
    return _permute(tuple(kernel_order.index(axis) for axis in range(len(kernel_order))))


def _permute(order: tuple[int, ...]) -> str:
    return "" if order == tuple(range(len(order))) else f".permute({', '.join(map(str, order))})"
