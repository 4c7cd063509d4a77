"""Problems of specs that declare their tensors: which tensor and which dim of a spec is which, and how a call passes
them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cutegen.diagnostics import Diagnostic, Rule, SpecError, register
from cutegen.dtypes import DTYPES, DType
from cutegen.families.generated_names import find_clashes
from cutegen.runtime.arguments import Extent, TensorArg
from cutegen.spec import SpecDocument
from cutegen.spec.base import TensorSpec
from cutegen.spec.parse import NAME_COLLISION, RESERVED_NAME
from cutegen.spec.tensors import TensorDecl

TENSOR_FORM = register(Rule(
    "tensor-form", "the tensors are those that the family computes with, in its order",
    "A family says which tensors it takes, with which dims; equal letters stand for equal dtypes, equal dims for equal "
    "dims. A spec declares as many, in this order and row-major, under names of its own.",
))  # fmt: skip
VECTOR_BYTES = 16  # of one load or store, which rows are multiples of
_FORM = re.compile(r"(\w+)\[(.*)\]")


@dataclass(frozen=True, slots=True)
class TensorProblem:
    """dims: extents by name: a constant, or an inclusive range. roles: the name in the spec of each tensor and dim of
    the family. numbers: constants of the spec, such as eps. outputs are allocated by a call; all in order of a call."""

    dims: dict[str, Extent]
    inputs: tuple[TensorArg, ...]
    outputs: tuple[TensorArg, ...]
    roles: dict[str, str]
    numbers: dict[str, float]

    @property
    def kinds(self) -> dict[str, str]:
        """Which names of the spec are inputs, outputs and dims."""
        tensors = {"input": self.inputs, "output": self.outputs}
        return dict.fromkeys(self.dims, "dim") | {a.name: kind for kind, args in tensors.items() for a in args}

    @property
    def names(self) -> tuple[str, ...]:
        """Those of the spec that stand in generated source."""
        return tuple(self.kinds)

    def tensor(self, role: str) -> TensorArg:
        """The tensor that the family calls so."""
        return next(a for a in (*self.inputs, *self.outputs) if a.name == self.roles[role])

    @property
    def formula(self) -> str:
        """Inputs and outputs in one line, such as `x: bf16[m, n], w: bf16[n] -> y: bf16[m, n]`."""
        sides = (", ".join(f"{a.name}: {declared(a, self.dims)}" for a in s) for s in (self.inputs, self.outputs))
        return " -> ".join(sides)


def dtype_of(arg: TensorArg) -> DType:
    """What a spec calls the dtype that torch calls `arg.dtype`."""
    return next(d for d in DTYPES.values() if d.torch == arg.dtype)


def declared(arg: TensorArg, dims: Mapping[str, Extent]) -> str:
    """A tensor as a spec declares it, with the extents of constants: `bf16[m, n=4096]`."""
    extents = (f"{d}={dims[d]}" if isinstance(dims.get(d), int) else d for d in arg.dims)
    return f"{dtype_of(arg)}[{', '.join(extents)}]"


def bind_tensors(
    spec: TensorSpec,
    doc: SpecDocument,
    inputs: Mapping[str, str],
    outputs: Mapping[str, str],
    dtypes: Sequence[str],
    numbers: Mapping[str, float],
) -> TensorProblem:
    """The problem of a spec with the tensors of a family. inputs, outputs: by role, such as `x: T[rows, columns]`, each
    letter one of `dtypes`. SpecError with every finding: other tensors, or names that generated source has."""
    roles, found = _match(spec, doc, {**inputs, **outputs}, dtypes), list[Diagnostic]()
    if isinstance(roles, Diagnostic):
        raise SpecError([roles])
    args = {role: _argument(roles[role], spec.tensors[roles[role]]) for role in (*inputs, *outputs)}
    kinds = {"input": inputs, "output": outputs}
    names = [(roles[role], kind) for kind, sides in kinds.items() for role in sides]
    for clash in find_clashes(spec.kernel, [*((dim, "dim") for dim in spec.dim_names()), *names]):
        rule, remedy = NAME_COLLISION if clash.other else RESERVED_NAME, "choose another name"
        tensor = clash.name if clash.name in spec.tensors else _first_with(spec, clash.name)
        found.append(doc.diagnostic(rule.id, ("tensors", tensor), clash.words(), remedy, key=tensor == clash.name))
    results = [roles[role] for role in outputs]
    if "out" in spec.tensors and "out" not in results:
        said = f"`out` is the parameter of the package's function that takes `{results[0]}`"
        found.append(doc.diagnostic(NAME_COLLISION.id, ("tensors", "out"), said, "choose another name", key=True))
    if found:
        raise SpecError(found)
    return TensorProblem(
        dims={name: _extent(promise) for name, promise in spec.shape_dims().items()},
        inputs=tuple(args[role] for role in inputs),
        outputs=tuple(args[role] for role in outputs),
        roles=roles,
        numbers=dict(numbers),
    )


def _match(
    spec: TensorSpec, doc: SpecDocument, forms: Mapping[str, str], dtypes: Sequence[str]
) -> dict[str, str] | Diagnostic:
    """The name of each role, or the first thing that is not as the family has it."""
    said = ", ".join(f"{role}: {form}" for role, form in forms.items()) + f", each dtype one of {', '.join(dtypes)}"
    if len(spec.tensors) != len(forms):
        message = f"{len(spec.tensors)} tensors; `kernel: {spec.kernel}` takes {len(forms)}"
        return doc.diagnostic(TENSOR_FORM.id, ("tensors",), message, f"declare {said}", key=True)
    roles: dict[str, str] = {}
    types: dict[str, str] = {}
    for (role, form), (name, tensor) in zip(forms.items(), spec.tensors.items()):
        match = _FORM.fullmatch(form)
        assert match
        dims = [d.strip() for d in match[2].split(",")]
        plain = tensor.dims and len(tensor.dims) == len(dims) and all(d.kind == "name" for d in tensor.dims)
        fits = plain and tensor.inner == tensor.shape[-1].text and not tensor.optional and str(tensor.dtype) in dtypes
        fits = fits and types.setdefault(match[1], str(tensor.dtype)) == str(tensor.dtype)
        roles[role] = name
        if not fits or any(roles.setdefault(d, own.text) != own.text for d, own in zip(dims, tensor.shape)):
            message = f"`{name}` is {tensor}, and cannot be {role}: {form}"
            return doc.diagnostic(TENSOR_FORM.id, ("tensors", name), message, f"the tensors are {said}")
    return roles


def _argument(name: str, tensor: TensorDecl) -> TensorArg:
    """Row-major, read and written VECTOR_BYTES at a time."""
    dims = tuple(d.text for d in tensor.shape)
    return TensorArg(
        name, tensor.dtype.torch, dims, len(dims) - 1, align=VECTOR_BYTES, multiple=VECTOR_BYTES // tensor.dtype.bytes
    )


def _extent(promise: tuple[int, int] | None) -> Extent:
    low, high = promise or (1, None)
    return low if low == high else (low, high)


def _first_with(spec: TensorSpec, dim: str) -> str:
    return next(name for name, tensor in spec.tensors.items() if dim in (d.name for d in tensor.shape))
