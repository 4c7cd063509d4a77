"""An epilogue as source text: device statements on scalars, and the PyTorch reference on tensors."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace

from cutegen.dtypes import DType
from cutegen.epilogue.blocks import Passes, find_block_values, find_elements, find_passes, is_of_blocks
from cutegen.epilogue.in_place import old_name
from cutegen.epilogue.installed import find_op
from cutegen.epilogue.ops import BUILT_IN_MODULE, EpilogueOp
from cutegen.epilogue.program import BlockOutput, EpilogueProgram, Operand, Output
from cutegen.epilogue.tree import (
    Binary,
    Call,
    Compare,
    Expr,
    Logic,
    Name,
    Negate,
    Number,
    Paired,
    Reduce,
    Slice,
    Stored,
    Where,
    is_constant,
    walk,
)

_SUM, _PRODUCT, _SIGN, _CALL = range(4)
_PRECEDENCE = {"+": _SUM, "-": _SUM, "*": _PRODUCT, "/": _PRODUCT}
_TURNED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "==": "==", "!=": "!="}

_TORCH_DIMS = {"batch": -3, "m": -2, "n": -1}
# Of cutegen.runtime.epilogue.
REFERENCE_FUNCTIONS = ("ceil_pow2", "divide", "pack_exponents", "reduce_blocks", "spread_values")


class _Writer:
    """Statements with the parentheses that their structure needs and no others; subclasses write ops.

    where: the function that chooses.
    """

    where: str

    def __init__(self, program: EpilogueProgram) -> None:
        self.program = program
        stored: tuple[Output | BlockOutput, ...] = (*program.outputs, *program.block_outputs)
        self.dtypes = {output.name: output.dtype for output in stored}
        self.constants: set[str] = set()
        self.lines: list[str] = []
        for statement in program.statements:
            if is_constant(statement.expr, self.constants):
                self.constants.add(statement.name)
            self.lines.append(f"{statement.name} = {self.text(statement.expr)}")

    def text(self, expr: Expr, level: int = _SUM) -> str:
        """Source of `expr` as a part of something that binds as tightly as `level`."""
        match expr:
            case Number(value):
                return repr(value)
            case Name(name):
                return name
            case Stored(name):
                return self.stored(name)
            case Slice():
                return self.slice(expr)
            case Paired(pairing, first, second):
                both = f"({self.text(first)}, {self.text(second)}), dim=-1"
                return f"torch.cat({both})" if pairing == "concatenated" else f"torch.stack({both}).flatten(-2)"
            case Reduce():
                return self.reduce(expr)
            case Call(op, args):
                return self.call(op, args)
            case Where(condition, chosen, other):
                return f"{self.where}({self.text(condition)}, {self.text(chosen)}, {self.text(other)})"
            case Compare():
                text = self.compare(expr)
                return f"({text})" if level else text
            case Logic("not", (part,)):
                return f"~{self.text(part, _SIGN)}"
            case Logic(op, parts):
                own, text = _SUM, f" {'&' if op == 'and' else '|'} ".join(self.text(part, _SIGN) for part in parts)
            case Negate(operand):
                own, text = _SIGN, f"-{self.text(operand, _SIGN)}"
            case Binary("*") if scaled := self.find_scaled(expr):
                return self.scale(*scaled)
            case Binary("/", left, right) if not is_constant(expr, self.constants) and (
                function := self.divide(expr, right)
            ):
                return f"{function}({self.text(left)}, {self.text(right)})"
            case Binary(op, left, right):
                # The right side keeps its parentheses at equal precedence: f32 sums do not regroup.
                own = _PRECEDENCE[op]
                text = f"{self.text(left, own)} {op} {self.text(right, own + 1)}"
        return text if own >= level else f"({text})"

    def compare(self, expr: Compare) -> str:
        """What is constant stands on the right, where linters want it."""
        op, left, right = expr.op, expr.left, expr.right
        if is_constant(left, ()):  # and right is not: the spec may not compare two constants
            op, left, right = _TURNED[op], right, left
        return f"{self.text(left)} {op} {self.text(right)}"

    def divide(self, quotient: Expr, divisor: Expr) -> str:
        """The function that `/` becomes where it is not constant; "" for the operator."""
        raise NotImplementedError

    def call(self, op: str, args: tuple[Expr, ...]) -> str:
        raise NotImplementedError

    def stored(self, name: str) -> str:
        raise NotImplementedError

    def slice(self, expr: Slice) -> str:
        raise NotImplementedError

    def reduce(self, expr: Reduce) -> str:
        raise NotImplementedError

    def find_scaled(self, product: Binary) -> tuple[str, str] | None:
        """(scalar, tile), as text, of the product of a scalar and a tile that counts only where it is not 0."""
        for pair in ((product.left, product.right), (product.right, product.left)):
            match pair:
                case Name(scalar), (Name(name) | Slice(name=name)) as tile if (name, scalar) in self.program.scaled:
                    return scalar, self.text(tile)
        return None

    def scale(self, scalar: str, tile: str) -> str:
        """The product that is 0 where `scalar` is, whatever the tile holds."""
        return f"{self.where}({scalar} != 0.0, {scalar} * {tile}, 0.0)"


class _DeviceWriter(_Writer):
    where = "where"

    def divide(self, quotient: Expr, divisor: Expr) -> str:
        return "divide"

    def call(self, op: str, args: tuple[Expr, ...]) -> str:
        function = find_op(op).device
        if find_op(op).arguments is not None:
            return f"{function}({', '.join(self.text(arg) for arg in args)})"
        text = self.text(args[0])
        for arg in args[1:]:
            text = f"{function}({text}, {self.text(arg)})"
        return text

    def stored(self, name: str) -> str:
        exact = self.dtypes[name].name in ("f32", "e8m0")  # of e8m0 values are powers of two
        return name if exact else f"stored({name}, cutlass.{self.dtypes[name].cutlass})"

    def reduce(self, expr: Reduce) -> str:
        """What one element contributes; the kernel joins the contributions."""
        return self.call("abs", (expr.value,)) if expr.op == "max_abs" else self.text(expr.value)


class OnceWriter(_DeviceWriter):
    """For each row of a block."""

    def divide(self, quotient: Expr, divisor: Expr) -> str:
        return "exact_divide"


class AfterWriter(_DeviceWriter):
    """For each element, the values of its block being known."""

    def __init__(self, program: EpilogueProgram, inverses: dict[str, str]) -> None:
        self.inverses = inverses
        super().__init__(program)

    def text(self, expr: Expr, level: int = _SUM) -> str:
        match expr:
            case Binary("/", left, Name(name, span)) if name in self.inverses and str(self.dtypes.get(name)) == "e8m0":
                return super().text(Binary("*", left, Name(self.inverses[name], span), expr.span), level)
            case Binary("/", left, Name(name)) if name in self.inverses:
                return f"exact_quotient({self.text(left)}, {name}, {self.inverses[name]})"
        return super().text(expr, level)


class TorchWriter(_Writer):
    where = "torch.where"

    def __init__(self, program: EpilogueProgram) -> None:
        self.of_blocks = find_block_values(program.statements, program.operands)
        self.elements = find_elements(program.statements, program.operands)
        super().__init__(program)

    def divide(self, quotient: Expr, divisor: Expr) -> str:
        return (
            "divide"
            if is_of_blocks(divisor, self.of_blocks, self.elements)
            or is_of_blocks(quotient, self.of_blocks, self.elements)
            else ""
        )

    def call(self, op: str, args: tuple[Expr, ...]) -> str:
        constant = [is_constant(arg, self.constants) for arg in args]
        level = _CALL if find_op(op).method else _SUM
        return find_op(op).torch_text([self.text(arg, level) for arg in args], constant)

    def stored(self, name: str) -> str:
        return f"{rounded_text(name, self.dtypes[name])}.to({name}.dtype)"

    def slice(self, expr: Slice) -> str:
        if expr.pairing == "interleaved":
            return f"{expr.name}[..., {expr.part}::2]"
        half = f"{expr.name}.shape[-1] // 2"
        return f"{expr.name}[..., {half} :]" if expr.part else f"{expr.name}[..., : {half}]"

    def reduce(self, expr: Reduce) -> str:
        value = self.text(expr.value)
        if expr.block:
            return f'reduce_blocks({value}, {expr.block}, "{expr.op}")'
        dims = sorted(_TORCH_DIMS[role] for role in expr.over)
        dim = f"dim={tuple(dims) if len(dims) > 1 else dims[0]}"
        if expr.op == "sum":
            return f"torch.sum({value}, {dim})"
        return f"torch.amax({f'torch.abs({value})' if expr.op == 'max_abs' else value}, {dim})"


def device_lines(program: EpilogueProgram) -> tuple[str, ...]:
    """Python statements for one element, in order, such as `d = gelu_tanh(acc + bias)`. The program has no slices:
    `split_pairs` turns them into names.

    They read `acc` and the operands by name, all Float32 scalars, and assign locals and outputs (Float32, not yet
    rounded; a local that is constant is a Python float). They call what `device_imports` lists, and mention
    `cutlass` where `stored` occurs.
    """
    return tuple(_DeviceWriter(program).lines)


def before_lines(program: EpilogueProgram, passes: Passes) -> tuple[str, ...]:
    """`device_lines` of what blocks are reduced of, for one element."""
    return device_lines(replace(program, statements=passes.before))


def once_lines(program: EpilogueProgram, passes: Passes) -> tuple[str, ...]:
    """`device_lines` of the values of one row of a block."""
    lines = OnceWriter(replace(program, statements=passes.once)).lines
    return (*lines, *(f"{inverse} = exact_inverse({name})" for name, inverse in passes.inverses))


def after_lines(program: EpilogueProgram, passes: Passes) -> tuple[str, ...]:
    """`device_lines` of the outputs, for one element."""
    return tuple(AfterWriter(replace(program, statements=passes.after), dict(passes.inverses)).lines)


def device_imports(program: EpilogueProgram) -> dict[str, tuple[str, ...]]:
    """Names that the device source needs, by the module they are in: the built-in one, then others; sorted."""
    return imports_of(program, _all_device_lines(program))


def installed_ops(program: EpilogueProgram) -> tuple[EpilogueOp, ...]:
    """The ops of other packages that a program calls."""
    calls = {node.op for s in program.statements for node in walk(s.expr) if isinstance(node, Call)}
    return tuple(op for op in map(find_op, sorted(calls)) if op.module != BUILT_IN_MODULE)


def _all_device_lines(program: EpilogueProgram) -> tuple[str, ...]:
    if not program.block:
        return device_lines(program)
    passes = find_passes(program)
    assert isinstance(passes, Passes)
    return (*before_lines(program, passes), *once_lines(program, passes), *after_lines(program, passes))


def torch_imports(program: EpilogueProgram) -> tuple[str, ...]:
    """Names that the lines of the reference need from `cutegen.runtime.epilogue`, sorted."""
    return torch_functions((*torch_operand_lines(program), *torch_lines(program)))


def torch_functions(lines: Iterable[str]) -> tuple[str, ...]:
    """Of `cutegen.runtime.epilogue`, those that lines of a reference call, sorted."""
    return tuple(name for name in _called(lines) if name in REFERENCE_FUNCTIONS)


def _called(lines: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted(set(re.findall(r"(?<![\w.])(\w+)\(", " ".join(lines)))))


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
    output has its dtype and the order of dims it was declared with. Needs `torch` in scope, and what tensors of 4 bits
    and chunks of scales are made by: `encode_e2m1` and `pack_scales`.
    """

    def of_blocks(o: BlockOutput) -> str:
        return rounded_text(f"{o.name}[..., ::{program.block}]", o.dtype)

    blocks = (
        f"{o.name} = pack_scales({of_blocks(o)})" if o.chunks else f"{o.name} = {of_blocks(o)}{_to_torch_order(o)}"
        for o in program.block_outputs
    )
    stores = (f"{o.name} = {_stored(o)}{_to_torch_order(o)}" for o in program.outputs)
    reduced = (
        f"{r.name} = {rounded_text(r.name, r.dtype)}{_permute(r.axes[::-1] if r.batched else r.axes)}"
        for r in program.reductions
    )
    return (*TorchWriter(program).lines, *stores, *blocks, *reduced)


def write_torch(program: EpilogueProgram, statements: Mapping[str, Expr]) -> tuple[str, ...]:
    """Statements on tensors for other expressions over the values of a program."""
    writer = TorchWriter(program)
    return tuple(f"{name} = {writer.text(expr)}" for name, expr in statements.items())


def _stored(output: Output) -> str:
    """What the tensor holds afterwards. TMA adds values of the tensor's dtype, and rounds the sum to it."""
    if not output.adds:
        return rounded_text(output.name, output.dtype)
    old = old_name(output.name)
    return rounded_text(f"({old} + {rounded_text(output.name, output.dtype)}.to({output.name}.dtype))", output.dtype)


def rounded_text(name: str, dtype: DType) -> str:
    """A value rounded to a dtype. torch makes NaN of what is too large for an 8-bit type, the device its largest; of
    i8 torch would drop what is behind the point, and it converts nothing to e2m1."""
    limits = "" if dtype.largest is None else f".clamp({-dtype.largest}, {dtype.largest})"
    if dtype.name == "e2m1":
        return f"encode_e2m1({name})"
    if dtype.name == "i8":
        limits = ".round().clamp(-128.0, 127.0)"
    return f"{name}{limits}.to(torch.{dtype.torch})"


def _torch_operand(operand: Operand) -> str:
    name, axes = operand.tensor, operand.axes
    match operand.kind:
        case "host_scalar":
            return f"torch.tensor({name}, dtype=torch.float32)"
        case "device_scalar":
            return f"{name}.float(){'.unsqueeze(-1).unsqueeze(-1)' * operand.batched}"
        case "row_vector" | "column_vector":
            order = axes[::-1] if operand.batched else axes
            return f"{name}.float(){_permute(order)}.unsqueeze({-2 if operand.kind == 'row_vector' else -1})"
    if operand.kind == "block_input":
        count = len(operand.present)
        widened = f".unsqueeze({-2 if operand.missing == 'm' else -1})" if operand.missing else ""
        values = f"{name}.float(){_permute((*axes[count:], *axes[:count]))}{widened}"
        return f"spread_values({values}, {operand.block}, acc)"
    return f"{name}.float(){_permute((*axes[2:], *axes[:2]))}"


def _to_torch_order(output: Output | BlockOutput) -> str:
    """From ([batch,] m, n) to the declared order of dims."""
    kernel_order = (*output.axes[2:], *output.axes[:2])
    return _permute(tuple(kernel_order.index(axis) for axis in range(len(kernel_order))))


def _permute(order: tuple[int, ...]) -> str:
    return "" if order == tuple(range(len(order))) else f".permute({', '.join(map(str, order))})"


def imports_of(program: EpilogueProgram, lines: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """Names that device lines need, by the module they are in: the built-in one, then others; sorted."""
    modules = {op.device: op.module for op in installed_ops(program)}
    found: dict[str, list[str]] = {}
    for name in _called(lines):
        found.setdefault(modules.get(name, BUILT_IN_MODULE), []).append(name)
    order = sorted(found, key=lambda module: (module != BUILT_IN_MODULE, module))
    return {module: tuple(found[module]) for module in order}
