"""What the tensors of a spec of rows have values for, and how a call passes them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from cutegen.arch.architecture import WARP_THREADS
from cutegen.diagnostics import Diagnostic
from cutegen.epilogue import BlockOutput, EpilogueProgram, Operand, OperandKind, Output
from cutegen.epilogue.context import ROWS
from cutegen.epilogue.rules import NOT_YET_SUPPORTED
from cutegen.epilogue.tree import Span
from cutegen.families.rowwise.rules import ROW_SHAPE, ROW_VECTOR
from cutegen.families.tensor_problem import VECTOR_BYTES
from cutegen.runtime.arguments import Argument, Extent, ScalarArg, TensorArg
from cutegen.runtime.epilogue import EXPONENTS

if TYPE_CHECKING:
    from cutegen.families.rowwise.spec import RowSpec
    from cutegen.spec import KeyPath, SpecDocument, TensorDecl

INPUTS = ("bf16", "f16", "f32", "e4m3", "e5m2", "i8")  # and outputs, but those with one value for a row
LABELS = ("i32", "i64")
EXPONENT = "e8m0"  # outputs with one value for a row or block, which are powers of two


class RowTensors:
    """Tensors of one spec. rows, columns: names of the dims that number rows, and of that of their elements. findings:
    all so far."""

    def __init__(self, spec: RowSpec, doc: SpecDocument) -> None:
        self.spec, self.doc = spec, doc
        self.findings: list[Diagnostic] = []
        widest = max(spec.tensors.values(), key=lambda t: (len(t.shape), not (t.shape and t.shape[-1].divided)))
        *rows, columns = [d.text for d in widest.shape] or [""]
        self.rows, self.columns = tuple(rows), columns
        self.context = replace(ROWS, columns=columns)

    def report(
        self, rule: str, path: KeyPath, message: str, remedy: str = "", *, key: bool = False, span: Span | None = None
    ) -> None:
        self.findings.append(self.doc.diagnostic(rule, path, message, remedy, key=key, span=span))

    def refuse_tensor(self, rule: str, name: str, message: str, remedy: str) -> None:
        self.report(rule, ("tensors", name), message, remedy)

    def kind(self, name: str, decl: TensorDecl) -> OperandKind | None:
        """What a tensor has values for; None after a finding."""
        shape = tuple(d.text for d in decl.shape)
        with_columns = bool(shape) and decl.shape[-1].base == self.columns
        lead = shape[: len(shape) - with_columns]
        kind: OperandKind | None = "host_scalar" if decl.dims is None else "device_scalar"
        if shape:
            kind = ("tile" if with_columns else "column_vector") if lead else "row_vector"
        if lead != tuple(d for d in self.rows if d in lead):
            kind = None
        whole, half = f"{', '.join((*self.rows, self.columns))}", self.is_half(decl)
        if self.refuse_optional(name, decl):
            pass
        elif not self.rows:
            said = f"`{name}` is {decl}: there is no dim that numbers rows"
            self.refuse_tensor(ROW_SHAPE, name, said, "declare a dim for them, such as [m, n]")
        elif any(d.kind != "name" for d in decl.shape[: len(shape) - half]) or len({*shape}) < len(shape):
            said = f"`{name}` is {decl}; dims of rows are names, each of them once"
            self.refuse_tensor(ROW_SHAPE, name, said, "give it a name, and its extent under `dims`")
        elif kind is None or (kind != "column_vector" and shape and decl.contiguous not in (None, shape[-1])):
            last = f", {self.columns} contiguous" if kind else ""
            remedy = f"the widest tensor has [{whole}]: declare [{whole}], [{self.columns}] or [{', '.join(self.rows)}]"
            said = f"`{name}` is {decl}, which is not a tensor of these rows"
            self.refuse_tensor(ROW_SHAPE, name, said, remedy + last)
        elif kind == "column_vector" and decl.inner != shape[-1]:
            self.refuse_tensor(ROW_SHAPE, name, f"`{name}` is {decl}", f"its last dim, {shape[-1]}, is contiguous")
        else:
            return kind
        return None

    def refuse_optional(self, name: str, decl: TensorDecl) -> bool:
        if not decl.optional or not (name in self.spec.rows or self.is_half(decl)):
            return False
        said = f"an optional {'output' if name in self.spec.rows else 'tensor with half of the columns'}"
        self.refuse_tensor(NOT_YET_SUPPORTED, name, f"{said} is not supported yet", "drop the `?`")
        return True

    def operand(self, name: str) -> Operand | None:
        decl = self.spec.tensors[name]
        kind = self.kind(name, decl)
        labels = {"host_scalar": ("f32",), "device_scalar": ("f32", *LABELS), "column_vector": (*INPUTS, *LABELS)}
        supported = labels.get(kind or "", INPUTS)
        if kind is None or not self.check_dtype(name, decl, supported):
            return None
        axes = {"tile": (0, 1), "row_vector": (0,), "column_vector": (0,)}.get(kind, ())
        return Operand(name, kind, decl.dtype, False, axes, "n" if kind == "tile" else None, half=self.is_half(decl))

    def output(self, name: str) -> Output | BlockOutput | None:
        decl = self.spec.tensors[name]
        if decl.shape and decl.shape[-1].divided and not self.is_half(decl):
            return self.block_output(name, decl)
        kind = self.kind(name, decl)
        if kind is None or not self.check_dtype(name, decl, INPUTS if kind == "tile" else (*INPUTS[:-1], EXPONENT)):
            return None
        if kind not in ("tile", "column_vector"):
            dims = ", ".join(self.rows)
            said = f"output `{name}` has no value for each row, nor for each column"
            remedy = f"declare [{dims}, {self.columns}], [{dims}], or [{self.columns}] of a reduction over rows"
            self.refuse_tensor(ROW_SHAPE, name, said, remedy)
            return None
        if len(decl.shape) < len(self.rows) + (kind == "tile"):
            said = f"output `{name}` is {decl}, and lacks a dim of rows"
            self.refuse_tensor(ROW_SHAPE, name, said, f"declare all of {', '.join(self.rows)}")
            return None
        return Output(name, decl.dtype, False, (0, 1) if kind == "tile" else (0,), "n", half=self.is_half(decl))

    def is_half(self, decl: TensorDecl) -> bool:
        """Whether a tensor has a value for each of half of the columns."""
        return bool(decl.shape) and (decl.shape[-1].kind, decl.shape[-1].text) == ("div", f"{self.columns}/2")

    def of_columns(self, name: str) -> bool:
        """Whether an output has a value for each column."""
        return [d.text for d in self.spec.tensors[name].shape] == [self.columns] and bool(self.rows)

    def block_output(self, name: str, decl: TensorDecl) -> BlockOutput | None:
        """An output with a value for each row and block of its elements, such as f32[m, ceil(n/128)]@m."""
        *rows, last = decl.shape
        low, high = self.spec.shape_dims().get(self.columns) or (1, None)
        if self.refuse_optional(name, decl):
            return None
        if tuple(d.text for d in rows) != self.rows or last.name != self.columns:
            whole = ", ".join((*self.rows, f"ceil({self.columns}/128)"))
            self.refuse_tensor(
                ROW_SHAPE, name, f"`{name}` is {decl}, which has no blocks of a row", f"declare [{whole}]"
            )
        elif low == high and low % last.factor and not last.rounds_up:
            said = f"{self.columns} = {low} is not a multiple of {last.factor}"
            self.refuse_tensor(ROW_SHAPE, name, said, f"write ceil({self.columns}/{last.factor})")
        elif self.check_dtype(name, decl, ("f32", EXPONENT)):
            axes, packed = tuple(range(len(decl.shape))), self.is_packed(decl)
            if not packed or last.rounds_up:
                return BlockOutput(name, decl.dtype, False, axes, "n", last.factor, last.rounds_up, packed)
            said = "exponents of four blocks share an i32, of which the last may have fewer"
            self.refuse_tensor(ROW_SHAPE, name, said, f"write ceil({self.columns}/{last.factor})")
        return None

    def is_packed(self, decl: TensorDecl) -> bool:
        """Whether an output has exponents of blocks, of those next to each other in a row four in one i32."""
        return decl.dtype.name == EXPONENT and decl.inner != decl.shape[-1].text

    def check_dtype(self, name: str, decl: TensorDecl, supported: tuple[str, ...]) -> bool:
        if decl.dtype.name in supported:
            return True
        said = f"{decl.dtype} is not supported yet for `{name}`"
        self.refuse_tensor(NOT_YET_SUPPORTED, name, said, f"supported: {', '.join(supported)}")
        return False

    def vector(self, halved: bool) -> int:
        """Elements of a load or store: a power of two, 16 bytes of the narrowest tensor with elements at most. By
        default 16 bytes of the widest: then threads next to each other read and write whole sectors of memory. But
        threads of one warp have a block."""
        of_columns = (self.columns, f"{self.columns}/2")
        tensors = [t for t in self.spec.tensors.values() if t.shape and t.shape[-1].text in of_columns]
        step = 1 + halved
        most = VECTOR_BYTES // min(t.dtype.bytes for t in tensors)
        low, high = self.spec.shape_dims()[self.columns] or (1, None)
        if self.spec.vector == "auto":
            widest = max(t.dtype.bytes for t in tensors if len(t.shape) > len(self.rows)) if self.rows else 1
            others = [t for t in self.spec.tensors.values() if t.shape and t not in tensors]
            blocks = [t.shape[-1].factor // step for t in others if t.shape[-1].divided]
            wanted = min(most, max(VECTOR_BYTES // widest, *(b // WARP_THREADS for b in blocks), 1))
            return [v for v in powers(wanted) if low != high or low % (v * step) == 0][-1]
        vector = self.spec.vector
        if vector not in powers(most):
            said = f"{vector} elements are not one of {', '.join(map(str, powers(most)))}"
            self.report(ROW_VECTOR, ("vector",), said, f"use {most}, or leave it out")
        elif low == high and low % (vector * step):
            said = f"{self.columns} = {low} is not a multiple of {vector * step}"
            self.report(ROW_VECTOR, ("vector",), said, "leave it out")
        return vector

    def argument(self, name: str, vector: int, program: EpilogueProgram) -> Argument:
        return replace(self._argument(name, vector, program), optional=self.spec.tensors[name].optional)

    def _argument(self, name: str, vector: int, program: EpilogueProgram) -> Argument:
        decl = self.spec.tensors[name]
        if decl.dims is None:
            return ScalarArg(name)
        dims = tuple(d.text for d in decl.shape)
        half = self.is_half(decl)
        if dims and decl.shape[-1].divided and not half:
            inner = [d.name if d.kind == "name" else d.text for d in decl.shape].index(decl.inner)
            scales = inner < len(dims) - 1  # of an operand, whose rows products read by TMA
            align = VECTOR_BYTES if scales else decl.dtype.bytes
            if self.is_packed(decl):
                dims = (*dims[:-1], f"ceil({self.columns}/{EXPONENTS * decl.shape[-1].factor})")
                return TensorArg(name, "int32", dims, inner, align=align, padded=True)
            return TensorArg(name, decl.dtype.torch, dims, inner, align=align, padded=scales)
        if not dims or not (half or dims[-1] == self.columns):  # element by element
            return TensorArg(name, decl.dtype.torch, dims, len(dims) - 1 if dims else None, align=decl.dtype.bytes)
        align = min(VECTOR_BYTES, vector * decl.dtype.bytes)
        multiple = vector if half or program.pairing is None else 2 * vector
        return TensorArg(name, decl.dtype.torch, dims, len(dims) - 1, align=align, multiple=multiple)


def powers(most: int) -> list[int]:
    return [1 << i for i in range(most.bit_length())]


def extent(promise: tuple[int, int] | None) -> Extent:
    low, high = promise or (1, None)
    return low if low == high else (low, high)
