"""The gradient of a product with an epilogue: what torch computes of it element by element, and the specs of the
kernels that compute the rest."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace

from cutegen.epilogue import Operand, torch_operand_lines
from cutegen.epilogue.derivative import Adjoints, Leaf, differentiate, new_names, write
from cutegen.epilogue.source import write_torch
from cutegen.epilogue.tree import Expr
from cutegen.families.gemm.arguments import TensorShape, tensor_shapes
from cutegen.families.gemm.problem import GemmProblem
from cutegen.runtime.autograd import NotDifferentiable

FLOATS = ("bf16", "f16", "f32")
SUMMED = {"row_vector": "m", "column_vector": "n", "device_scalar": "mn"}
TORCH_DIMS = {"m": "-2", "n": "-1", "mn": "(-2, -1)"}


@dataclass(frozen=True, slots=True)
class KernelText:
    """A kernel of a gradient. data: its spec. operands: names of values of the call, in order, each with the axis that
    has to be contiguous, or None for what the call had. results: names, in order."""

    data: dict[str, object]
    operands: tuple[tuple[str, int | None], ...]
    results: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class GradientText:
    """What cutegen.runtime.autograd.Gradient holds, as text.

    reads: inputs of the call that the gradient is computed from. grads: names of the gradients of its outputs. lines:
    statements of torch, on all of these, that leave some `results` in a name each. local: the kernel that leaves the
    others, and computes the product again; after: statements of torch that sum what it left. products: by operand of
    the product, the kernel that multiplies the gradient of acc, which is called "acc", by the other one. results: by
    other inputs, the name of the value. parts: names of the gradient of acc, or of both of a pair of columns; pairing:
    of these. dtypes: of tensors, in torch.
    """

    reads: tuple[str, ...]
    grads: tuple[str, ...]
    lines: tuple[str, ...]
    local: KernelText | None
    after: tuple[str, ...]
    products: dict[str, KernelText]
    results: dict[str, str]
    parts: tuple[str, ...]
    pairing: str | None
    dtypes: dict[str, str]


def gradient_text(problem: GemmProblem, wanted: Collection[str]) -> GradientText:
    """wanted: names of inputs. NotDifferentiable: with the reason."""
    return _Gradient(problem, wanted).text()


class _Gradient:
    def __init__(self, problem: GemmProblem, wanted: Collection[str]) -> None:
        self.problem, self.program = problem, problem.epilogue
        self.shapes = tensor_shapes(problem)
        self.factors = [t for t in (problem.a, problem.b) if t.name in wanted]
        self.operands = [o for o in self.program.operands if o.tensor in wanted]
        self.refuse()
        self.new_name = new_names({*problem.arguments, *(s.name for s in self.program.statements), *self.dims()})
        self.grads = {o.name: self.new_name("grad") for o in self.program.outputs}
        names = [o.name for o in self.operands] + ["acc"] * bool(self.factors)
        self.adjoints: Adjoints = differentiate(self.program, names, self.grads, self.new_name)
        self.results = {leaf: self.new_name("result") for leaf in self.adjoints.results}

    def refuse(self) -> None:
        """NotDifferentiable, where there are no kernels for the gradient."""
        p = self.problem
        for found, reason in (
            (self.program.reductions, "a reduction over rows or columns has no gradient kernel"),
            (self.program.block_outputs, "values of blocks have no gradient kernel"),
            (any(o.dtype.name not in FLOATS for o in self.program.outputs), "an output of 8 bits has no gradient"),
            ({p.a.dtype.name, p.b.dtype.name} - {"bf16", "f16"}, "products of 8-bit operands have no gradient kernel"),
            (p.scales, "scales of the product have no gradient kernel"),
            (p.groups, "products of groups of rows have no gradient kernel"),
            (p.gather, "gathered rows have no gradient kernel"),
            (p.batch and not (p.a.batched and p.b.batched), "an operand that all members of a batch share has no"
             " gradient kernel"),
        ):  # fmt: skip
            if found:
                raise NotDifferentiable(reason)
        for operand in self.operands:
            if operand.kind == "block_input":
                raise NotDifferentiable(f"`{operand.name}` has values of blocks, which have no gradient kernel")
            if operand.part_of:
                raise NotDifferentiable(f"columns of `{operand.part_of.name}` are read in parts: no gradient kernel")

    def dims(self) -> dict[str, object]:
        """What the spec of a kernel says of the dims: those of the plan."""
        known = {d.name: d.value or ([d.lo, d.hi] if d.hi else None) for d in self.problem.dims}
        return {name: value for name, value in known.items() if value is not None}

    def text(self) -> GradientText:
        direct = [leaf for leaf, expr in self.adjoints.results.items() if not self.reads_product(expr)]
        others = [leaf for leaf in self.adjoints.results if leaf not in direct]
        parts = [self.results[leaf] for leaf in self.adjoints.results if leaf[0] == "acc"]
        by_name = {o.name: o for o in self.operands}
        results = {by_name[name].tensor: self.results[name, part] for name, part in self.results if name != "acc"}
        local = self.local(others) if others else None
        products = {factor.name: self.product(factor is self.problem.a) for factor in self.factors if parts}
        by_leaf: dict[Leaf, Operand] = {(o.name, None): o for o in self.operands}
        after = [f"{self.results[leaf]} = {self.results[leaf]}{self.summed(by_leaf[leaf])}"
                 for leaf in self.whole(others)]  # fmt: skip
        lines = tuple(self.lines(direct)) if direct else ()
        read = set().union(*(self.adjoints.reads(self.adjoints.results[leaf]) for leaf in direct))
        read |= {name for kernel in (local, *products.values()) if kernel for name, _ in kernel.operands}
        inputs = {o.name: o.tensor for o in self.program.operands}
        read = {inputs.get(name, name) for name in read}
        return GradientText(
            reads=tuple(name for name in self.problem.inputs if name in read),
            grads=tuple(self.grads[o.name] for o in self.program.outputs),
            lines=lines,
            local=local,
            after=tuple(after),
            products=products,
            results=results,
            parts=tuple(parts),
            pairing=self.program.pairing if any(part is not None for name, part in self.results) else None,
            dtypes={name: shape.dtype.torch for name, shape in self.shapes.items()},
        )

    def reads_product(self, expr: Expr) -> bool:
        return "acc" in self.adjoints.reads(expr)

    # -- by torch --

    def lines(self, leaves: Sequence[Leaf]) -> Iterator[str]:
        """As the reference of a plan: values in f32, ([batch,] m, n)."""
        statements = self.adjoints.needed(leaves)
        read = set().union(*(self.adjoints.reads(self.adjoints.results[leaf]) for leaf in leaves))
        grads = [self.grad_operand(o.name) for o in self.program.outputs]
        operands = [o for o in (*self.program.operands, *grads) if o.name in read]
        yield from torch_operand_lines(replace(self.program, operands=tuple(operands)))
        results = {self.results[leaf]: self.adjoints.results[leaf] for leaf in leaves}
        yield from write_torch(self.program, {**statements, **results})
        by_name = {o.name: o for o in self.operands}
        for leaf in leaves:
            name = self.results[leaf]
            if leaf[0] != "acc" and (summed := self.summed(by_name[leaf[0]])):
                yield f"{name} = {name}{summed}"

    def grad_operand(self, output: str) -> Operand:
        o = next(o for o in self.program.outputs if o.name == output)
        return Operand(self.grads[output], "tile", o.dtype, o.batched, o.axes, o.major, o.half)

    def summed(self, operand: Operand) -> str:
        """From ([batch,] m, n) to the dims of an operand, in its order."""
        text = f".sum({TORCH_DIMS[SUMMED[operand.kind]]})" if operand.kind in SUMMED else ""
        kept = "".join(role for role in "mn" if role not in SUMMED.get(operand.kind, ""))
        if self.problem.batch and not operand.batched:
            text += ".sum(0)"
        # axes: of (kept dims[, batch]) in torch; the value has the batch first.
        axes = operand.axes[len(kept) :] + operand.axes[: len(kept)]
        order = tuple(axes.index(i) for i in range(len(axes)))
        return text + (f".permute{order}" if order != tuple(range(len(order))) else "")

    # -- by kernels --

    def local(self, leaves: Sequence[Leaf]) -> KernelText:
        """The product again, with the chain rule as its epilogue."""
        p, tensors = self.problem, {}
        read = set().union(*(self.adjoints.reads(self.adjoints.results[leaf]) for leaf in leaves))
        for name in p.inputs:
            operand = next((o for o in self.program.operands if o.tensor == name), None)
            if name in (p.a.name, p.b.name) or (operand and operand.name in read):
                tensors[name] = self.declared(name)
        operands: list[tuple[str, int | None]] = [(name, None) for name in tensors]
        for output, grad in self.grads.items():
            if grad in read:
                tensors[grad] = self.declared(output)
                operands.append((grad, self.shapes[output].contiguous))
        epilogue = {name: write(expr) for name, expr in self.adjoints.needed(leaves).items()}
        whole = self.whole(leaves)
        for leaf in leaves:
            tensor, text = self.result(leaf, leaf in whole)
            tensors[self.results[leaf]], epilogue[self.results[leaf]] = tensor, text
        return self.kernel(f"{p.a.name} @ {p.b.name}", tensors, operands, [self.results[x] for x in leaves], epilogue)

    def whole(self, leaves: Sequence[Leaf]) -> list[Leaf]:
        """Results for a vector or a scalar that the kernel leaves element by element: it sums over no batch, and needs
        one output with rows and columns."""
        by_leaf: dict[Leaf, Operand] = {(o.name, None): o for o in self.operands if o.kind in SUMMED}
        vectors = [leaf for leaf in leaves if leaf in by_leaf]
        shared = [leaf for leaf in vectors if self.problem.batch and not by_leaf[leaf].batched]
        return shared or (vectors[:1] if len(vectors) == len(leaves) else [])

    def result(self, leaf: Leaf, whole: bool) -> tuple[str, str]:
        """Declaration and expression of a result of the kernel."""
        p, text = self.problem, write(self.adjoints.results[leaf])
        columns = f"{p.n.name}/2" if self.program.pairing else p.n.name
        dims = ", ".join((*([p.batch.name] if p.batch else []), p.m.name, columns))
        if leaf[0] == "acc":
            return f"{p.a.dtype}[{dims}]", text
        if whole:
            return f"f32[{dims}]", text
        operand = next(o for o in self.operands if o.name == leaf[0])
        if operand.kind not in SUMMED:
            return self.declared(operand.tensor), text
        over = ", ".join({"m": p.m.name, "n": p.n.name}[role] for role in SUMMED[operand.kind])
        dims = ", ".join(d.name for d in self.shapes[operand.tensor].dims)
        return f"f32[{dims}]", f"sum({text}, {over})"

    def product(self, left: bool) -> KernelText:
        """grad_a[m, k] = grad[m, n] b[n, k], or grad_b[n, k] = grad[m, n] a[m, k]."""
        p = self.problem
        factor, other = (p.a, p.b) if left else (p.b, p.a)
        grad, result = self.new_name("grad"), self.new_name("result")
        batch = [p.batch.name] if p.batch else []
        tensors = {
            grad: f"{factor.dtype}[{', '.join((*batch, p.m.name, p.n.name))}]",
            other.name: self.declared(other.name),
            result: self.declared(factor.name),
        }
        operands: list[tuple[str, int | None]] = [("acc", len(batch) + 1), (other.name, None)]
        return self.kernel(f"{grad} @ {other.name}", tensors, operands, [result], {result: "acc"})

    def declared(self, name: str) -> str:
        return declare(self.shapes[name])

    def kernel(
        self,
        mainloop: str,
        tensors: dict[str, str],
        operands: Sequence[tuple[str, int | None]],
        results: Sequence[str],
        epilogue: dict[str, str],
    ) -> KernelText:
        used = set(re.findall(r"\w+", " ".join(tensors.values())))
        dims = {name: value for name, value in self.dims().items() if name in used}
        data: dict[str, object] = {"cutegen": 1, "kernel": "gemm", "arch": self.problem.arch}
        data |= {"dims": dims} if dims else {}
        data |= {"tensors": tensors, "mainloop": mainloop, "epilogue": epilogue}
        return KernelText(data, tuple(operands), tuple(results))


def declare(shape: TensorShape) -> str:
    """A tensor as a spec declares it."""
    dims = [d.name for d in shape.dims]
    inner = "" if shape.contiguous in (None, len(dims) - 1) else f"@{dims[shape.contiguous]}"
    return f"{shape.dtype}[{', '.join(dims)}]{inner}"
