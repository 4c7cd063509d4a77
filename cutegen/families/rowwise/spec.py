"""The spec of `kernel: rowwise`: the expression language of epilogues, applied to rows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, ClassVar, Literal

from pydantic import AfterValidator, Field

from cutegen.families.pdl import Pdl
from cutegen.spec.base import (
    NAMES,
    UNKNOWN_TENSOR,
    Auto,
    Bench,
    Expression,
    Name,
    Positive,
    TensorSpec,
    knob,
    unknown_name,
)
from cutegen.spec.finding import Finding, Unworded


class RowPdl(Pdl):
    """Programmatic dependent launch: overlap with the kernels before and after on the stream."""

    ready: list[Name] = Field(
        default=[],
        description="Tensors with a value for each column, weights mostly, that the caller promises to have been "
        "written before the preceding kernel could start. Where rows are reduced, the kernel loads them before it "
        "waits for that one.",
    )


class RowBench(Bench):
    """What `cutegen bench` runs; no effect on the kernel."""

    baselines: list[Literal["torch", "quack", "flashinfer", "liger", "sgl_kernel"]] = Field(  # type: ignore[assignment]
        default=[], description="What to measure against the kernel; not listed: all that have its function."
    )


class RowSpec(TensorSpec):
    """Values of rows: norms, softmax, activations. The last dim of the tensors is that of a row's elements, the others
    number the rows."""

    meaning: ClassVar[frozenset[str]] = TensorSpec.meaning | {"rows", "vector", "alias"}

    kernel: Literal["rowwise"] = Field(description="The kernel family.")
    arch: Literal["sm_90a"] = Field(description="The architecture to generate for.")
    rows: dict[Name, Expression] = Field(
        min_length=1,
        json_schema_extra=NAMES,
        description="Values of a row by name, as expressions; names of tensors are outputs, all others locals. `sum(x, "
        "n)`, `mean(x, n)`, `max(x, n)` and `max_abs(x, n)` are values of a row, which others may read.",
    )
    alias: dict[str, Name] = Field(
        default={},
        description="Outputs that a call may store where an input of the same dtype, dims and layout lies, as in "
        "`{h: residual}`.",
    )
    vector: Positive | Auto = knob(
        "Elements of one load or store, a power of two of at most 16 bytes: the elements of a row, and the distance of "
        "rows, are multiples of it. auto: 16 bytes of the widest tensor, or what divides a constant extent."
    )
    threads: Positive | Auto = knob(
        "Threads of one of the longest rows that registers hold, or of a part of a row that is not reduced. More than "
        "1024, a multiple of 256 up to 8192, are those of a cluster of 8 CTAs."
    )
    bounds: Annotated[list[Positive], AfterValidator(tuple)] | Auto = knob(
        "Rows of up to each of these extents, which ascend, have a kernel of their own, with as many threads as they "
        "need. Longer ones are loaded part by part, again in each round."
    )
    prefetch: bool | Auto = knob("A CTA loads its next row before it reduces the one that it has.")
    pdl: RowPdl = RowPdl()
    bench: RowBench = RowBench()

    def cross_check(self) -> Iterator[Finding | Unworded]:
        yield from super().cross_check()
        for index, name in enumerate(self.pdl.ready):
            if name not in self.tensors:
                at = ("pdl", "ready", index)
                yield unknown_name(UNKNOWN_TENSOR.id, name, self.tensors, at, "no tensor is named")
