"""Which thread has which elements of a row. Of a row of pairs a thread has one vector of each half of its columns, or
of neighbours; its elements are numbered by pairs."""

from __future__ import annotations

from cutegen.runtime.arguments import divided
from cutegen.runtime.rowwise.plan import RowPlan


def count_elements(plan: RowPlan, columns: int) -> int:
    """Elements that threads go through in a row of so many columns."""
    return columns // (1 + plan.halved)


def find_element(plan: RowPlan, dim: str, place: int, extent: int) -> int | None:
    """The element at a place of a tensor's last dim, of so many places; the first one of a block; None: the tensor has
    one value for a row."""
    name, divisor = divided(dim)
    if name != plan.columns:
        return None
    if divisor > 1:
        return place * (divisor // (1 + plan.halved))
    if not plan.halved:
        return place
    return place // 2 if plan.interleaved else place % (extent // 2)


def name_columns(plan: RowPlan, first: int, end: int, columns: int) -> str:
    """The columns of elements `first` to `end` - 1 in words: n 0 to 511, and of halves also those of the second."""
    if plan.halved and plan.interleaved:
        first, end = 2 * first, 2 * end
    said = f"{plan.columns} {first} to {end - 1}"
    if plan.halved and not plan.interleaved:
        said += f" and {columns // 2 + first} to {columns // 2 + end - 1}"
    return said
