"""Groups of rows: from the section `groups` of a spec to the RowGroups of a problem."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, get_args

from cutegen.arch import ARCHS
from cutegen.diagnostics import Rule, declare, register, suggest
from cutegen.families.gemm.problem import GroupForm, ProblemDim, RowGroups
from cutegen.spec.base import UNKNOWN_TENSOR

if TYPE_CHECKING:
    from cutegen.epilogue import Output, Report
    from cutegen.families.gemm.roles import Roles
    from cutegen.families.gemm.spec import GemmSpec

FORMS: tuple[GroupForm, ...] = get_args(GroupForm)
DEFAULT_ALIGN = 128
# Every CTA keeps a table of the groups in shared memory, and one warp adds up its windows of 32.
MAX_GROUPS = 1024
_EXAMPLE = (
    "tensors:\n  a: bf16[m, k]\n  b: bf16[g, n, k]\n  group: i32[m]\n  d: bf16[m, n]\n"
    "groups: {labels: group, align: 128}"
)

GROUPS = declare(
    "groups",
    "`groups` names one tensor that says which rows are whose",
    "The operand on the left of `mainloop` has the rows, the one on the right a matrix for each group. With "
    "`labels` (`i32` over the rows) and `offsets` (`i32` over the groups) the rows of all groups are one dim, so "
    "that the left operand and the outputs lack the dim of groups; with `counts` (`i32` over the groups) they have "
    "it. A tensor of the epilogue with the dim of groups and without that of rows holds values for each group.",
    _EXAMPLE,
)
GROUP_COUNT = declare(
    "group-count",
    f"there are at most {MAX_GROUPS} groups",
    "Each CTA tabulates the groups in shared memory: 4 bytes for a group with `counts`, 12 with `labels` and "
    "`offsets`. A promised range of the dim makes the table as small as that.",
    "dims: {g: [2048, 4096]}",
)
GROUP_ALIGNMENT = register(
    Rule(
        "group-alignment",
        "the tiles of a cluster never exceed what groups are aligned to",
        "With `groups: {labels: ...}` a tile takes its group from the label of its first row, so all of its rows, and "
        "all rows of the cluster's tiles, must be of that group or padding: `align` is a multiple of the tile's extent "
        "along the rows times the cluster's. That is m, or n with swap_ab.",
        "groups: {labels: group, align: 64}\ntiling: {tile: [128, 256, 64]}",
    )
)


class Grouping:
    """Reads the section of one spec; what does not fit is reported."""

    def __init__(self, spec: GemmSpec, report: Report) -> None:
        self.spec, self.section, self.report = spec, spec.groups, report
        forms = [form for form in FORMS if self.section and getattr(self.section, form) is not None]
        self.form = forms[0] if len(forms) == 1 else None
        self.tensor: str = getattr(self.section, self.form) if self.form else ""
        self.faults = 0
        if self.section and len(forms) != 1:
            said = f"`groups` has {' and '.join(forms)}" if forms else "`groups` does not say which rows are whose"
            self.refuse(said, "give one of labels, counts and offsets, with the name of an i32 tensor")

    def refuse(self, message: str, remedy: str, *path: str | int, rule: str = GROUPS, key: bool = False) -> None:
        self.faults += 1
        self.report(rule, path or ("groups",), message, remedy, key=key or not path)

    def claim(self, taken: tuple[str, ...]) -> str | None:
        """The tensor that the section names, which is thereby none of the epilogue. taken: the mainloop's operands."""
        if self.form is None:
            return None
        path = ("groups", self.form)
        if self.tensor not in self.spec.tensors:
            remedy = suggest(self.tensor, self.spec.tensors) or f"declare it under `tensors`: {self.tensor}: i32[m]"
            self.refuse(f"no tensor is named `{self.tensor}`", remedy, *path, rule=UNKNOWN_TENSOR.id)
        elif self.tensor in taken:
            self.refuse(f"`{self.tensor}` is an operand of the mainloop", "name an i32 tensor", *path)
        elif self.tensor in self.spec.epilogue:
            self.refuse(f"`{self.tensor}` is assigned in the epilogue", "name an input", *path)
        else:
            return self.tensor
        return None

    def bind(self, operands: tuple[str, ...], outputs: Iterable[str], roles: Roles) -> RowGroups | None:
        """The groups, or None: there are none, or they were found wrong. `claim` has found the tensor."""
        if self.form is None or self.section is None or self.tensor not in self.spec.tensors:
            return None
        before, section, flat = self.faults, self.section, self.form != "counts"
        a, b = operands
        if roles.batch is None or not self.has(b, roles.batch):
            said = f"`{b}` has no dim of groups, so that all rows would meet the same matrix"
            self.refuse(said, f"give `{b}` a matrix for each group, such as [g, {roles.n}, {roles.k}]", "tensors", b)
            return None
        for name in (a, *outputs):
            if flat and self.has(name, roles.batch):
                said = f"`{name}` has the dim {roles.batch}, but with `{self.form}` the rows of all groups are one dim"
                self.refuse(said, f"drop {roles.batch}, or use `groups: {{counts: ...}}`", "tensors", name)
        if not flat and not self.has(a, roles.batch):
            said = f"`{a}` lacks the dim {roles.batch}: with `counts` each group has its own room for rows"
            self.refuse(said, f"write [{roles.batch}, {roles.m}, {roles.k}], or use labels or offsets", "tensors", a)
        needed = roles.m if self.form == "labels" else roles.batch
        decl = self.spec.tensors[self.tensor]
        if decl.dtype.name != "i32" or decl.optional or [d.text for d in decl.shape] != [needed]:
            what = "the group of each row" if self.form == "labels" else f"{self.form} of each group"
            said = f"`{self.tensor}` is {decl}, and holds {what}"
            self.refuse(said, f"declare it as i32[{needed}]", "tensors", self.tensor)
        if section.align is not None and self.form != "labels":
            said = f"with `{self.form}` groups begin anywhere: `align` would promise nothing"
            self.refuse(said, "remove it", "groups", "align", key=True)
        elif section.align is not None and section.align % (step := ARCHS[self.spec.arch].mma_n[2]):
            said = f"groups begin at multiples of {section.align} rows, and no tile is narrower than {step}"
            self.refuse(said, f"align groups to a multiple of {step} rows", "groups", "align", rule=GROUP_ALIGNMENT.id)
        if self.faults > before:
            return None
        align = (section.align or DEFAULT_ALIGN) if self.form == "labels" else 1
        return RowGroups(self.form, self.tensor, "m", align, section.expected_rows)

    def check_outputs(self, outputs: Iterable[Output], groups: RowGroups) -> None:
        """With offsets, a bulk store moves its descriptor by whole rows."""
        for output in outputs:
            if groups.form == "offsets" and output.major == groups.along and not output.direct:
                said = f"rows are the contiguous dim of `{output.name}`, where TMA cannot end a store at a group's end"
                by_threads = f"`tma: {{{output.name}: {{store: direct}}}}`"
                remedy = f"make the other dim contiguous, or store it by threads: {by_threads}"
                self.refuse(said, remedy, "tensors", output.name)

    def has(self, tensor: str, dim: str) -> bool:
        return dim in {d.text for d in self.spec.tensors[tensor].shape}

    def bound_count(self, dim: ProblemDim) -> ProblemDim:
        """The dim of groups with what the table can hold as its upper end."""
        least = dim.value or dim.lo
        if least > MAX_GROUPS:
            where = ("dims", dim.name) if dim.name in self.spec.dims else ("tensors",)
            said = f"{least} groups; the table of a CTA holds {MAX_GROUPS}"
            self.refuse(said, "split the groups among calls", *where, rule=GROUP_COUNT)
        return dim if dim.value is not None else replace(dim, hi=min(dim.hi or MAX_GROUPS, MAX_GROUPS))
