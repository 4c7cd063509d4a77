"""Tensor declarations: `bf16[m, k]@m`, `f32`, `f32[]`, `bf16[n]?`."""

from __future__ import annotations

import re
from dataclasses import dataclass

from cutegen import elsewhere
from cutegen.diagnostics import Rule, register, suggest
from cutegen.dtypes import DTYPES, DType
from cutegen.spec.dims import Dim, parse_dim
from cutegen.spec.finding import FieldError, Finding

MAX_RANK = 8

TENSOR_SYNTAX = register(Rule(
    "tensor-syntax", "a tensor is declared as `dtype[dims]@dim?`",
    "`bf16[m, k]` is a tensor whose last dim is contiguous; `bf16[m, k]@m` has m contiguous; `bf16[n]?` may be None; "
    "`f32` without brackets is a number passed by value; `f32[]` is a device tensor with one element.",
    "a: bf16(m, k)",
))  # fmt: skip
UNKNOWN_DTYPE = register(Rule(
    "unknown-dtype", "the element type exists",
    f"Element types: {', '.join(DTYPES)}.",
    "a: float16[m, k]",
))  # fmt: skip
CONTIGUOUS_DIM = register(Rule(
    "contiguous-dim", "the dim after @ is one of the tensor's own",
    "`@dim` says which dim has stride 1, so the tensor must have it.",
    "a: bf16[m, k]@n",
))  # fmt: skip

_ALIASES = {
    **{name.lower(): dtype.name for dtype in DTYPES.values() for name in (dtype.torch, dtype.cutlass)},
    "half": "f16", "fp16": "f16", "float": "f32", "fp32": "f32", "fp8": "e4m3", "float8_e4m3": "e4m3",
    "fp8_e4m3": "e4m3", "e4m3fn": "e4m3", "fp8_e5m2": "e5m2", "ue8m0": "e8m0", "s8": "i8", "s32": "i32", "s64": "i64",
    "long": "i64", "fp4": "e2m1", "f4": "e2m1", "float4_e2m1": "e2m1", "float4_e2m1fn": "e2m1",
}  # fmt: skip
_FORM = re.compile(r"\s*(?P<dtype>\w+)\s*(?P<shape>\[(?P<dims>[^\[\]]*)\])?\s*(?:@\s*(?P<at>\w+))?\s*(?P<opt>\?)?\s*")
# The same form for JSON schema, whose expressions know no named groups.
TENSOR_PATTERN = f"^{re.sub('[?]P<[a-z]+>', '?:', _FORM.pattern)}$"


@dataclass(frozen=True, slots=True)
class TensorDecl:
    """One declared operand.

    dims: the torch shape; () for a device scalar (`f32[]`), None for a host scalar (`f32`). contiguous: the dim after
    @; None when the last one is contiguous. optional: may be None in a call.
    """

    dtype: DType
    dims: tuple[Dim, ...] | None
    contiguous: str | None = None
    optional: bool = False

    @property
    def shape(self) -> tuple[Dim, ...]:
        """The dims; () for scalars of either kind."""
        return self.dims or ()

    @property
    def inner(self) -> str:
        """The text of the dim that is contiguous; IndexError for scalars."""
        return self.contiguous or self.shape[-1].text

    def __str__(self) -> str:
        shape = "" if self.dims is None else f"[{', '.join(map(str, self.dims))}]"
        return f"{self.dtype}{shape}{f'@{self.contiguous}' if self.contiguous else ''}{'?' if self.optional else ''}"


def parse_tensor(text: str) -> TensorDecl:
    """Parse a declaration; raises FieldError with every finding in it."""
    form = _FORM.fullmatch(text)
    if form is None:
        shown = text if len(text) <= 40 else f"{text[:37]}..."
        raise FieldError([Finding(TENSOR_SYNTAX.id, f"`{shown}` is not a tensor declaration",
                               "write dtype[dims], such as bf16[m, k], bf16[m, k]@m, f32[n] or f32")])  # fmt: skip
    findings: list[Finding] = []
    dtype = DTYPES.get(form["dtype"])
    if dtype is None:
        near = _ALIASES.get(form["dtype"].lower())
        instead = elsewhere.DTYPES.get(form["dtype"].lower(), "")
        hint = f"did you mean `{near}`?" if near else instead or suggest(form["dtype"], DTYPES)
        findings.append(Finding(UNKNOWN_DTYPE.id, f"unknown dtype `{form['dtype']}`",
                                hint or f"one of {', '.join(DTYPES)}", span=form.span("dtype")))  # fmt: skip
    dims: list[Dim] | None = None
    if form["shape"] is not None:
        dims, offset = [], form.start("dims")
        for part in form["dims"].split(",") if form["dims"].strip() else []:
            dim = parse_dim(part, offset)
            offset += len(part) + 1
            if isinstance(dim, Dim):
                dims.append(dim)
            else:
                findings.append(dim)
        if len(dims) > MAX_RANK:
            findings.append(Finding(TENSOR_SYNTAX.id, f"{len(dims)} dims; {MAX_RANK} is the most"))
    names = [d.text for d in dims or () if d.kind == "name"]
    if form["at"] and form["at"] not in names and not findings:
        have = f"its dims are {', '.join(names)}" if names else "a scalar has no dims"
        findings.append(Finding(CONTIGUOUS_DIM.id, f"`{form['at']}` is not a dim of this tensor", have,
                                span=form.span("at")))  # fmt: skip
    if findings or dtype is None:
        raise FieldError(findings)
    return TensorDecl(dtype, None if dims is None else tuple(dims), form["at"], bool(form["opt"]))
