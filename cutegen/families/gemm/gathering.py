"""Gathered rows: `a[rows] @ b`, whose left operand is as tall as the index, and lies in memory as it was declared."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from cutegen.diagnostics import Rule, register

if TYPE_CHECKING:
    from cutegen.epilogue import Report
    from cutegen.epilogue.tree import Gather
    from cutegen.families.gemm.mainloop import Mainloop
    from cutegen.spec import TensorDecl

GATHER = register(
    Rule(
        "gather",
        "an index names a row of the left operand for each row of the product",
        "`mainloop: a[rows] @ b` with `rows: i32[m]` reads row rows[i] of a for row i; a: [t, k] has any number of "
        "rows. TMA cannot gather on Hopper, so threads copy 16 bytes each along k, which is contiguous. A row that the "
        "index names and a does not have is zero.",
        "tensors: {a: 'bf16[t, k]', b: 'bf16[n, k]', rows: 'i64[m]', d: 'bf16[m, n]'}\nmainloop: a[rows] @ b",
    )
).id


def see_gathered(
    mainloop: Mainloop, tensors: Mapping[str, TensorDecl], assigned: Mapping[str, str], report: Report
) -> tuple[Mapping[str, TensorDecl], str] | None:
    """The tensors with the left operand as the product sees it, as tall as the index, and the dim that its rows have
    ("" where none are gathered); None after a finding."""
    gather = mainloop.gather
    if gather is None:
        return tensors, ""
    found = _refusal(gather, mainloop, tensors, assigned)
    if found is not None:
        name, message, remedy = found
        report(GATHER, ("tensors", name), message, remedy)
        return None
    decl, index = tensors[gather.name], tensors[gather.index]
    shared = {d.text for d in tensors[mainloop.operands[1]].dims or ()}
    (own,) = (d for d in decl.dims or () if d.text not in shared)
    (rows,) = index.dims or ()
    dims = tuple(rows if d is own else d for d in decl.dims or ())
    return {**tensors, gather.name: replace(decl, dims=dims)}, own.text


def _refusal(
    gather: Gather, mainloop: Mainloop, tensors: Mapping[str, TensorDecl], assigned: Mapping[str, str]
) -> tuple[str, str, str] | None:
    """Tensor, message and remedy."""
    a, rows = gather.name, gather.index
    decl, index = tensors[a], tensors[rows]
    if rows in mainloop.operands or rows in assigned:
        taken = "assigned" if rows in assigned else "an operand"
        return rows, f"`{rows}` names rows of `{a}`, and is {taken}", "name an i32 tensor"
    if index.dtype.name != "i32" or index.optional or len(index.dims or ()) != 1:
        said = f"`{rows}` is {index}, and names the row of `{a}` for each row of the product"
        return rows, said, "declare it as i32[m]"
    shared = {d.text for d in tensors[mainloop.operands[1]].dims or ()}
    own = [d for d in decl.dims or () if d.text not in shared]
    if len(decl.dims or ()) != 2 or len(own) != 1:
        remedy = "declare it as [t, k]; where rows fall into groups, use labels or offsets"
        return a, f"rows are gathered from a matrix, and `{a}` is {decl}", remedy
    contiguous = decl.contiguous or (decl.dims or ())[-1].text
    if contiguous == own[0].text:
        said = f"`{a}` has {contiguous} contiguous: its rows cannot be copied 16 bytes at a time"
        return a, said, "make k the last dim, or write its name after @"
    return None
