"""One problem of a suite, and which kernels it is for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from cutegen.dtypes import DTYPES
from cutegen.run.epilogue_form import PLAIN, epilogue_form
from cutegen.run.shapes import Shape, problem_title
from cutegen.run.subject import Subject
from cutegen.runtime.arguments import TensorArg, range_fault
from cutegen.runtime.gemm.plan import KernelPlan

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
    if not isinstance(plan, KernelPlan):
        dtype = next((a.dtype for a in plan.inputs if isinstance(a, TensorArg)), "") if plan else ""
        wrong = plan is not None and row.dtype and _NAMES.get(dtype, dtype) != row.dtype
        return f"operands are {_NAMES.get(dtype, dtype)}, not {row.dtype}" if wrong else ""
    operands = [a.dtype for a in plan.inputs if isinstance(a, TensorArg) and plan.reduced in a.dims]
    for what, wanted, found in (
        ("operands are", row.dtype, {_NAMES.get(d, d) for d in operands}),
        ("the output is", row.output, {_NAMES.get(plan.outputs[0].dtype, "")}),
        ("the product is", row.mainloop, {plan.mainloop}),
        ("it computes", row.epilogue, {epilogue_form(plan)}),
    ):
        if wanted and found != {wanted}:
            return f"{what} {_word(' and '.join(sorted(found)))}, not {_word(wanted)}"
    return ""


def _word(text: str) -> str:
    return f"`{text}`" if " " in text or text == PLAIN else text
