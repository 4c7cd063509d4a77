"""Rows that fall into groups, as plans and references see them, and the ways of dealing rows out that break kernels.

Importing this module imports neither torch nor cutlass.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

Kind = Literal["random", "near", "even", "one", "ones", "edges", "none", "full"]
KINDS: tuple[Kind, ...] = ("random", "near", "even", "one", "ones", "edges", "none", "full")


@dataclass(frozen=True, slots=True)
class RowGroups:
    """form: labels, counts or offsets. tensor: the i32 argument that says which rows are whose. rows, groups: dims.
    align: rows that each group begins at a multiple of. expected_rows: of a group, 0 for no expectation."""

    form: Literal["labels", "counts", "offsets"]
    tensor: str
    rows: str
    groups: str
    align: int = 1
    expected_rows: int = 0

    @property
    def flat(self) -> bool:
        """Whether the rows of all groups are one dim."""
        return self.form != "counts"

    def members(self, value: Any, groups: int, rows: int) -> Any:
        """i64: the group of each row, -1 for none; (rows,) where they are one dim, else (groups, rows)."""
        import torch

        index = torch.arange(rows, device=value.device)
        if self.form == "counts":
            each = torch.arange(groups, device=value.device)[:, None]
            return torch.where(index < value[:, None], each, -1)
        if self.form == "offsets":
            found = torch.searchsorted(value.long(), index, right=True)
            return torch.where(found < groups, found, -1)
        return torch.where((value >= 0) & (value < groups), value.long(), -1)


@dataclass(frozen=True, slots=True)
class Deal:
    """How rows are dealt out to groups.

    random: any number each, some none; near: 70% to 130% of what is expected, else of what all have room for; even: the
    same number each; one: all to one group in the middle; ones: one row each; edges: around multiples of `step`, none
    among them; none: no group has a row; full: random, and no row is left. ordered: labelled groups stand in ascending
    order, not in any.
    """

    kind: Kind = "random"
    step: int = 64
    ordered: bool = False


def deal_rows(deal: Deal, form: RowGroups, groups: int, rows: int) -> list[int]:
    """Rows of each group, on the CPU's random numbers. They fit `rows` with the groups aligned, or, with counts, are up
    to `rows` each."""
    import torch

    if not groups:
        return []
    shared = form.flat
    slots = -(-rows // form.align) if shared else groups * rows  # what can be given to groups
    unit = form.align if shared else 1

    def cut(total: int) -> list[int]:
        """`total` slots at random, about a quarter of the groups without any."""
        weights = torch.rand(groups) * (torch.rand(groups) > 0.25)
        if not float(weights.sum()):
            weights[int(torch.randint(groups, ()))] = 1.0
        ends = (weights.cumsum(0) / weights.sum() * total).round().long().tolist()
        return [end - begin for begin, end in zip([0, *ends[:-1]], ends)]

    def ragged(count: int) -> int:
        """Some rows of `count` slots, of the last at least one."""
        return max(0, (count - 1) * unit + int(torch.randint(1, unit + 1, ()))) if count else 0

    match deal.kind:
        case "none":
            sizes = [0] * groups
        case "one":
            sizes = [0] * groups
            sizes[groups // 2] = rows
        case "ones":
            sizes = [1] * groups
        case "even":
            sizes = [slots // groups * unit if shared else rows] * groups
        case "edges":
            step = deal.step
            marks = (0, 1, step - 1, step, step + 1, 0, 2 * step - 1, 2 * step, 2 * step + 1)
            sizes = [marks[i % len(marks)] for i in range(groups)]
        case "near":
            share = form.expected_rows or (slots // groups * unit if shared else rows) / 1.3
            sizes = [int(share * x) for x in (0.7 + 0.6 * torch.rand(groups)).tolist()]
        case "full":
            sizes = [count * unit for count in cut(slots)] if shared else [rows] * groups
        case _:
            some = cut(int(torch.randint(slots // 2, slots + 1, ()))) if shared else []
            sizes = [ragged(count) for count in some] or torch.randint(0, rows + 1, (groups,)).tolist()
    return _fit(sizes, form, rows)


def _fit(sizes: Sequence[int], form: RowGroups, rows: int) -> list[int]:
    """The sizes, cut where there is no room for them."""
    begin, fitting = 0, []
    for size in sizes:
        size = min(size, max(rows - begin, 0))
        fitting.append(size)
        begin += -(-size // form.align) * form.align if form.flat else 0
    return fitting


def fill_index(value: Any, form: RowGroups, sizes: Sequence[int], *, ordered: bool) -> None:
    """Writes what says that groups have these sizes. ordered: labelled groups in ascending order, else in any."""
    import torch

    if form.form == "counts":
        value.copy_(torch.tensor(sizes, dtype=torch.int32))
    elif form.form == "offsets":
        value.copy_(torch.tensor(sizes, dtype=torch.int32).cumsum(0))
    else:
        value.fill_(-1)
        begin = 0
        order = [group for group, size in enumerate(sizes) if size]
        if not ordered:  # but the last: it may be cut short by the end of the rows
            order[:-1] = [order[i] for i in torch.randperm(max(len(order) - 1, 0)).tolist()]
        for group in order:
            value[begin : begin + sizes[group]] = group
            begin += -(-sizes[group] // form.align) * form.align


def multiply_members(a: Any, b: Any, members: Any) -> Any:
    """(rows, n): each row of a (rows, k) by its group's matrix in b (groups, k, n); 0 where it has no group."""
    product = a.new_zeros(a.shape[0], b.shape[2])
    order = members.argsort(stable=True)
    groups, counts = members[order].unique_consecutive(return_counts=True)
    for group, rows in zip(groups.tolist(), order.split(counts.tolist())):
        if 0 <= group < b.shape[0]:
            product[rows] = a[rows] @ b[group]
    return product
