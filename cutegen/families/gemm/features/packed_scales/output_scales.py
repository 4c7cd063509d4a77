"""Outputs that are scales by which a tensor core multiplies: those of blocks of k of the product that reads them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cutegen.arch import Arch
from cutegen.diagnostics import declare
from cutegen.epilogue import BlockOutput, EpilogueProgram, Report
from cutegen.epilogue.rules import NOT_YET_SUPPORTED
from cutegen.epilogue.tree import Call, Name, Stored, walk

if TYPE_CHECKING:
    from cutegen.spec import TensorDecl

POWER = "ceil_pow2"  # the op whose values e8m0 has

SCALE_OUTPUT = declare(
    "scale-output", "8-bit values of blocks are scales that a block-scaled product reads",
    "`e8m0[m, n/32]` and `e4m3[m, n/16]` are values of blocks of 32 and of 16 columns. They lie in chunks, those of "
    "128 rows and 4 blocks together, as the product whose k these columns are reads them: blocks are whole, n comes "
    "last, and a call passes e8m0[ceil(m/128), ceil(n/128), 512]. e8m0 has powers of two, so its value is "
    "ceil_pow2(..); e4m3 rounds, so that what divides by it reads `stored(scale)`.",
    "tensors: {q: 'e4m3[m, n]', s: 'e8m0[m, n/32]'}\nepilogue: {s: 'max_abs(acc, n, 32) / 448', q: acc / s}",
)  # fmt: skip


def check_scale_output(
    output: BlockOutput, decl: TensorDecl, program: EpilogueProgram, n: str, arch: Arch, report: Report
) -> None:
    """n: the name of the dim of columns."""
    block, path = arch.list_stored_scales()[output.dtype.name], ("tensors", output.name)
    rows, columns, *batch = (decl.shape[axis] for axis in output.axes)
    wanted = (*(d.text for d in (*batch, rows)), f"{columns.base}/{columns.factor}")
    if program.block != block:
        said = f"`{output.name}` has values of {program.block} columns, scales of {output.dtype} are of {block}"
        report(SCALE_OUTPUT, ("epilogue", output.name), said, f"write max_abs(x, {n}, {block})", key=True)
    elif decl.contiguous or tuple(d.text for d in decl.shape) != wanted:
        said = f"`{output.name}` is {decl}, and the scales of a block-scaled product are packed in one way"
        report(SCALE_OUTPUT, path, said, f"declare it {output.dtype}[{', '.join(wanted)}]")
    statement = next(s for s in program.statements if s.name == output.name)
    if output.dtype.name == "e8m0" and not (isinstance(statement.expr, Call) and statement.expr.op == POWER):
        said = f"`{output.name}` is e8m0, which has powers of two alone"
        remedy, span = f"write {POWER}({statement.text})", statement.expr.span
        report(SCALE_OUTPUT, ("epilogue", output.name), said, remedy, span=span)
    for s in program.statements if output.dtype.name != "e8m0" else ():
        for node in walk(s.expr):
            if isinstance(node, Name) and node.name == output.name:
                said = f"`{output.name}` is a value before {output.dtype} rounds it, by which no product multiplies"
                report(SCALE_OUTPUT, ("epilogue", s.name), said, f"read stored({output.name})", span=node.span)


def check_read_again(program: EpilogueProgram, report: Report) -> None:
    """Outputs of which two elements are a byte are not read again."""
    pairs = {o.name: o.dtype for o in program.outputs if o.dtype.packing > 1}
    for s in program.statements:
        for node in walk(s.expr):
            if isinstance(node, Stored) and node.name in pairs:
                said = f"`{node.name}` as {pairs[node.name]} rounds it is not supported yet as a value"
                report(NOT_YET_SUPPORTED, ("epilogue", s.name), said, "compute it in the next kernel", span=node.span)
