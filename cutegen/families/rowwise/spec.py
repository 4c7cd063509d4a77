"""The spec of `kernel: rowwise`: the expression language of epilogues, applied to rows."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from cutegen.spec.base import NAMES, Auto, Expression, Name, Positive, TensorSpec, knob


class RowSpec(TensorSpec):
    """Values of rows: norms, softmax, activations. The last dim of the tensors is that of a row's elements, the others
    number the rows."""

    meaning: ClassVar[frozenset[str]] = TensorSpec.meaning | {"rows", "vector"}

    kernel: Literal["rowwise"] = Field(description="The kernel family.")
    arch: Literal["sm_90a"] = Field(description="The architecture to generate for.")
    rows: dict[Name, Expression] = Field(
        min_length=1,
        json_schema_extra=NAMES,
        description="Values of a row by name, as expressions; names of tensors are outputs, all others locals. `sum(x, "
        "n)`, `mean(x, n)`, `max(x, n)` and `max_abs(x, n)` are values of a row, which others may read.",
    )
    vector: Positive | Auto = knob(
        "Elements of one load or store, a power of two of at most 16 bytes: the elements of a row, and the distance of "
        "rows, are multiples of it. auto: as many as a constant extent lets there be, all 16 bytes of another."
    )
    threads: Positive | Auto = knob("Threads of a CTA.")
