"""Gathered rows: `a[rows] @ b`, whose left operand is as tall as the index, and lies in memory as it was declared; so
do scales that are gathered with it, `(a * sa)[rows] @ b`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from cutegen.diagnostics import declare

if TYPE_CHECKING:
    from cutegen.epilogue import Report
    from cutegen.epilogue.tree import Gather, ReportAt
    from cutegen.families.gemm.mainloop import Mainloop, Scale
    from cutegen.spec import TensorDecl
    from cutegen.spec.dims import Dim

GATHER = declare(
    "gather",
    "an index names a row of the left operand for each row of the product",
    "`mainloop: a[rows] @ b` with `rows: i32[m]` reads row rows[i] of a for row i; a: [t, k] has any number of "
    "rows. TMA cannot gather on Hopper: threads copy 16 bytes each along k, which is contiguous, to shared memory "
    "or to scratch (`tma: {a: {gather: ...}}`). A row that is named and not there is zero. `(a * sa)[rows] @ b` "
    "gathers a scale of the rows of a with them, `(a[rows] * sa) @ b` has one for each row of the product.",
    "tensors: {a: 'bf16[t, k]', b: 'bf16[n, k]', rows: 'i64[m]', d: 'bf16[m, n]'}\nmainloop: a[rows] @ b",
)


def see_gathered(
    mainloop: Mainloop,
    tensors: Mapping[str, TensorDecl],
    assigned: Mapping[str, str],
    report: Report,
    report_at: ReportAt,
) -> tuple[Mapping[str, TensorDecl], str] | None:
    """The tensors with what is gathered as the product sees it, as tall as the index, and the dim that its rows have
    ("" where none are gathered); None after a finding. report_at: about a part of the mainloop."""
    gather = mainloop.gather
    if gather is None:
        return tensors, ""
    found = _refusal(gather, mainloop, tensors, assigned)
    if found is not None:
        name, message, remedy = found
        report(GATHER, ("tensors", name), message, remedy)
        return None
    decl, index = tensors[gather.name], tensors[gather.index]
    shared = {d.text for d in tensors[mainloop.operands[1]].shape}
    (own,) = (d for d in decl.shape if d.text not in shared)
    (rows,) = index.shape
    wrong = [(s, said) for s in mainloop.scales if (said := _refuse_rows(s, tensors, gather, own.text, rows.text))]
    for scale, (message, remedy) in wrong:
        report_at(GATHER, scale.span, message, remedy)
    seen = {name: _as_tall(tensors[name], own.text, rows) for name in (gather.name, *mainloop.gathered)}
    return None if wrong else ({**tensors, **seen}, own.text)


def _as_tall(decl: TensorDecl, own: str, rows: Dim) -> TensorDecl:
    """The declaration with `rows` in place of the dim `own`."""
    dims = tuple(rows if d.text == own else d for d in decl.shape)
    return replace(decl, dims=dims, contiguous=rows.text if decl.contiguous == own else decl.contiguous)


def _refuse_rows(
    scale: Scale, tensors: Mapping[str, TensorDecl], gather: Gather, own: str, rows: str
) -> tuple[str, str] | None:
    """Message and remedy where a scale of the left operand has other rows than its place in the mainloop says. own: the
    dim of the operand's rows; rows: of the product's."""
    a, name, index = gather.name, scale.name, gather.index
    dims = {d.base for d in tensors[name].shape}
    if scale.side or own == rows:
        return None
    if scale.gathered and own not in dims:
        said = f"`{name}` is gathered with the rows of `{a}`, and has no dim {own}"
        return said, f"give it that dim, or write ({a}[{index}] * {name}) with a value for each row of the product"
    if not scale.gathered and own in dims:
        said = f"`{name}` has a value for each row of `{a}`, and is used with gathered rows"
        return said, f"gather both: ({a} * {name})[{index}]"
    return None


def _refusal(
    gather: Gather, mainloop: Mainloop, tensors: Mapping[str, TensorDecl], assigned: Mapping[str, str]
) -> tuple[str, str, str] | None:
    """Tensor, message and remedy."""
    a, rows = gather.name, gather.index
    decl, index = tensors[a], tensors[rows]
    if rows in mainloop.operands or rows in assigned:
        taken = "assigned" if rows in assigned else "an operand"
        return rows, f"`{rows}` names rows of `{a}`, and is {taken}", "name an i32 tensor"
    if index.dtype.name != "i32" or index.optional or len(index.shape) != 1:
        said = f"`{rows}` is {index}, and names the row of `{a}` for each row of the product"
        return rows, said, "declare it as i32[m]"
    shared = {d.text for d in tensors[mainloop.operands[1]].shape}
    own = [d for d in decl.shape if d.text not in shared]
    if len(decl.shape) != 2 or len(own) != 1:
        remedy = "declare it as [t, k]; where rows fall into groups, use labels or offsets"
        return a, f"rows are gathered from a matrix, and `{a}` is {decl}", remedy
    contiguous = decl.inner
    if contiguous == own[0].text:
        said = f"`{a}` has {contiguous} contiguous: its rows cannot be copied 16 bytes at a time"
        return a, said, "make k the last dim, or write its name after @"
    return None
