"""One problem of a suite, and which kernels it is for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from cutegen.diagnostics import CutegenError
from cutegen.dtypes import DTYPES
from cutegen.families.proving import operand_dtype
from cutegen.run.shapes import Shape, problem_title
from cutegen.run.subject import Subject
from cutegen.runtime.arguments import range_fault
from cutegen.runtime.epilogue_form import PLAIN

# What a row says of whom it is for, and how that is said.
SAYS = {"dtype": "operands are", "output": "the output is", "mainloop": "the product is", "epilogue": "it computes"}
_NAMES = {d.torch: d.name for d in DTYPES.values()}


@dataclass(frozen=True)
class Row:
    """shape: extents by dim. name, source: of a layer of a model, as people know it. What a kernel has to compute to be
    measured on it, "" where that is open: dtype of both operands, output (its dtype), mainloop, and epilogue in the
    words of `epilogue_form`. lengths, keys: how inputs are drawn, as `Problem` in suite.py says; "": as by default."""

    shape: Shape
    name: str = ""
    source: str = ""
    dtype: str = ""
    output: str = ""
    mainloop: str = ""
    epilogue: str = ""
    lengths: str = ""
    keys: str = ""

    def __hash__(self) -> int:
        return hash((self.name, *self.shape.items()))

    @property
    def title(self) -> str:
        return problem_title(self.name, self.shape)

    def to_json(self) -> dict[str, Any]:
        """What there is beside the shape."""
        words = {"name": self.name, "source": self.source, "dtype": self.dtype, "output": self.output}
        return words | {"mainloop": self.mainloop, "epilogue": self.epilogue} | self._drawn()

    def draw(self, subject: Subject) -> Any:
        """What decides the inputs besides the extents; None: nothing."""
        return _draw_as(subject, **self._drawn()) if self.lengths or self.keys else None

    def _drawn(self) -> dict[str, str]:
        return {"lengths": self.lengths, "keys": self.keys}


def fit_rows(subject: Subject, rows: Sequence[Row], suite: str) -> tuple[tuple[Row, ...], tuple[str, ...]]:
    """The rows that a kernel is for, and a note for each reason why others are left out. CutegenError (exit 2): it is
    for none of them."""
    reasons = [refuse(subject, row) for row in rows]
    notes = [
        f"{n} of {len(rows)} problems of {suite} are left out: {why}" for why, n in Counter(reasons).items() if why
    ]
    if fitting := tuple(row for row, why in zip(rows, reasons) if not why):
        return fitting, tuple(notes)
    first = next(filter(None, reasons), "it has no problem")
    raise CutegenError(f"{subject.name}: no problem of {suite} is for it", f"name another suite: {first}", exit_code=2)


def refuse(subject: Subject, row: Row) -> str:
    """Why a kernel is not for a row, in one line; "" when it is. Files say nothing about themselves, so they fit."""
    plan = subject.plan
    for dim, extent in row.shape.items():
        if fault := range_fault(dim, extent, subject.dims[dim]):
            return fault
        if extent % subject.steps[dim]:
            return f"{dim} must be a multiple of {subject.steps[dim]}, not {extent}"
    if row.lengths and _draw_as(subject, lengths=row.lengths) is None:
        return "it has no requests, whose lengths could differ"
    if row.keys and _draw_as(subject, keys=row.keys) is None:
        return "its keys are not sparse, so all of them count"
    if plan is None:
        return ""
    has = subject.proving.describe_work(plan) if subject.proving else operand_dtype(plan)
    for key, said in SAYS.items():
        wanted, found = getattr(row, key), {_NAMES.get(word, word) for word in has.get(key, ())}
        if wanted and found and found != {wanted}:
            return f"{said} {_word(' and '.join(sorted(found)))}, not {_word(wanted)}"
    return ""


def _draw_as(subject: Subject, lengths: str = "", keys: str = "") -> Any:
    return subject.proving.draw_as(subject.plan, lengths, keys) if subject.proving else None


def _word(text: str) -> str:
    return f"`{text}`" if " " in text or text == PLAIN else text
