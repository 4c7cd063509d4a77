"""One problem of a suite, and which kernels it is for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

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
    words of `epilogue_form`. lengths: of requests, "ragged" or "", all alike."""

    shape: Shape
    name: str = ""
    source: str = ""
    dtype: str = ""
    output: str = ""
    mainloop: str = ""
    epilogue: str = ""
    lengths: str = ""

    def __hash__(self) -> int:
        return hash((self.name, *self.shape.items()))

    @property
    def title(self) -> str:
        return problem_title(self.name, self.shape)

    def to_json(self) -> dict[str, Any]:
        """What there is beside the shape."""
        words = {"name": self.name, "source": self.source, "dtype": self.dtype, "output": self.output}
        return words | {"mainloop": self.mainloop, "epilogue": self.epilogue, "lengths": self.lengths}

    def draw(self, subject: Subject) -> Any:
        """What decides the inputs besides the extents; None: nothing."""
        return subject.proving.ragged_draw if self.lengths and subject.proving else None


def refuse(subject: Subject, row: Row) -> str:
    """Why a kernel is not for a row, in one line; "" when it is. Files say nothing about themselves, so they fit."""
    plan = subject.plan
    for dim, extent in row.shape.items():
        if fault := range_fault(dim, extent, subject.dims[dim]):
            return fault
        if extent % subject.steps[dim]:
            return f"{dim} must be a multiple of {subject.steps[dim]}, not {extent}"
    if row.lengths and row.draw(subject) is None:
        return "it has no requests, whose lengths could differ"
    if plan is None:
        return ""
    has = subject.proving.describe_work(plan) if subject.proving else operand_dtype(plan)
    for key, said in SAYS.items():
        wanted, found = getattr(row, key), {_NAMES.get(word, word) for word in has.get(key, ())}
        if wanted and found and found != {wanted}:
            return f"{said} {_word(' and '.join(sorted(found)))}, not {_word(wanted)}"
    return ""


def _word(text: str) -> str:
    return f"`{text}`" if " " in text or text == PLAIN else text
