"""The tensors of a GEMM spec, each placed in the product: which axis is m, n, k or batch, and which is contiguous."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Literal, cast

from cutegen import elsewhere
from cutegen.arch import Arch, Mma
from cutegen.arch.architecture import TMA_ALIGN
from cutegen.diagnostics import suggest
from cutegen.epilogue import BlockOutput, EpilogueProgram, Operand, Output, Reduction, Report
from cutegen.epilogue.tree import Pairing, Reduce, Span
from cutegen.families.gemm import problem_rules as rules
from cutegen.families.gemm.problem import MatrixOperand, ProblemDim
from cutegen.families.gemm.roles import Roles

if TYPE_CHECKING:
    from cutegen.spec import SpecDocument, TensorDecl

# Bytes: of base addresses and of every stride but the contiguous one (CUDA driver API, cuTensorMapEncodeTiled).
HALF = 2  # columns of a pair
BLOCK_STEP = 8  # columns that one group of accumulators of a thread lies in

Dims = Mapping[str, ProblemDim]


class Placement:
    """Turns declarations into operands and outputs; what does not fit is reported, and None."""

    def __init__(self, tensors: Mapping[str, TensorDecl], doc: SpecDocument, arch: Arch, report: Report) -> None:
        self.tensors = tensors
        self.arch = arch
        self.doc = doc
        self.report = report

    def refuse(self, rule: str, name: str, message: str, remedy: str, axis: int | None = None) -> None:
        """A finding about tensor `name`, or about one of its dims."""
        self.report(rule, ("tensors", name), message, remedy, span=None if axis is None else self.dim_span(name, axis))

    def dim_span(self, name: str, axis: int) -> Span:
        """Where a dim stands in the text of the declaration."""
        text = cast("dict[str, str]", self.doc.data["tensors"])[name]
        start = text.index("[") + 1
        parts = text[start : text.index("]")].split(",")
        start += sum(len(part) + 1 for part in parts[:axis])
        return start + len(parts[axis]) - len(parts[axis].lstrip()), start + len(parts[axis].rstrip())

    def has_blocks(self, name: str) -> bool:
        """Whether a tensor has one value for each block of rows or columns, n/2 being halves of a gated product."""
        return any(d.rounds_up or (d.divided and d.factor > HALF) for d in self.tensors[name].shape)

    def block_input(self, name: str, roles: Roles) -> Operand | None:
        """An input such as f32[m, n/128] or f32[ceil(m/128), ceil(n/128)]."""
        decl = self.tensors[name]
        axes: dict[str, int] = {}
        for axis, dim in enumerate(decl.shape):
            role = roles.role_of(dim.base)
            if role not in ("m", "n", "batch") or role in axes:
                have = ", ".join(d for d in (roles.batch, roles.m, roles.n) if d)
                said = f"`{dim}` is not a block of a dim of the product that `{name}` has not yet: acc has [{have}]"
                self.refuse(rules.EPILOGUE_SHAPE, name, said, rules.SHAPES, axis)
                return None
            if dim.divided and (role == "batch" or dim.factor % BLOCK_STEP):
                said = f"`{dim}`: a block is one or a multiple of {BLOCK_STEP} rows or columns"
                self.refuse(rules.BLOCK_INPUT, name, said, f"such as {dim.name}/128", axis)
                return None
            axes[role] = axis
        if roles.flat and "batch" in axes:
            said = f"`{name}` has blocks and the dim {roles.batch} of groups: not supported yet"
            self.refuse(rules.NOT_YET_SUPPORTED, name, said, f"drop {roles.batch}", axes["batch"])
            return None
        of = {role: decl.shape[axis] for role, axis in axes.items()}
        block = tuple(of[r].factor if r in of and of[r].divided else 1 for r in "mn")
        up = tuple(r in of and of[r].rounds_up for r in "mn")
        missing = cast("Literal['m', 'n'] | None", next((r for r in "mn" if r not in of), None))
        inner = cast(Literal["m", "n"], self.major(name, roles))
        order = tuple(axes[role] for role in ("m", "n", "batch") if role in axes)
        return Operand(
            name, "block_input", decl.dtype, "batch" in axes, order, None,
            block=(block[0], block[1]), up=(up[0], up[1]), inner=inner, missing=missing,
        )  # fmt: skip

    def check_block_input(self, operand: Operand, program: EpilogueProgram, m: ProblemDim, n: ProblemDim) -> None:
        """What a constant extent and the rest of the epilogue ask of an input with blocks."""
        places = dict(zip(operand.present, operand.axes))
        for dim, size, up, axis in zip((m, n), operand.block, operand.up, map(places.get, "mn")):
            if dim.value is not None and dim.value % size and not up:
                said = f"{dim.name} = {dim.value} is not a multiple of {size}"
                self.refuse(rules.EXACT_DIVISION, operand.name, said, f"write ceil({dim.name}/{size})", axis)
        what = "a gated product" if program.pairing else "outputs that are computed from values of blocks"
        if program.pairing or program.block:
            said = f"an input with blocks together with {what} is not supported yet"
            self.refuse(rules.NOT_YET_SUPPORTED, operand.name, said, "apply it in the next kernel")

    def dims(self, name: str, *, divided: bool, blocks: bool = False) -> tuple[str, ...] | None:
        """The dims as texts, in torch order; () of scalars; None after a finding. divided: whether `x/2` may occur;
        blocks: whether any quotient may."""
        decl = self.tensors[name]
        ok = True
        texts = tuple(dim.text for dim in decl.shape)
        for axis, dim in enumerate(decl.shape):
            if blocks and dim.divided:
                continue
            if dim.kind not in ("name", "int") and not (divided and dim.kind == "div" and dim.factor == HALF):
                said = f"the dim `{dim}` is not supported yet in a GEMM"
                remedy = "use plain names and integers; in an epilogue tensor n/2, or blocks, [m, n/128]"
                self.refuse(rules.NOT_YET_SUPPORTED, name, said, remedy, axis)
                ok = False
            elif dim.text in texts[:axis]:
                remedy = "give both a name, and their value under `dims`" if dim.kind == "int" else "use two names"
                self.refuse(rules.REPEATED_DIM, name, f"`{name}` has the dim {dim} twice", remedy, axis)
                ok = False
        return texts if ok else None

    def place(self, name: str, roles: Roles) -> tuple[dict[str, int], bool] | None:
        """Torch axis of each role that an epilogue tensor has, in the order m, n, batch; whether it has n/2 columns, or
        one value for each block of them."""
        axes: dict[str, int] = {}
        half = False
        for axis, dim in enumerate(self.tensors[name].shape):
            role = roles.role_of(dim.base)
            if dim.divided and role != "n" and role is not None:
                said = f"`{dim}`: only {roles.n} is halved, by slices of acc, or reduced by blocks"
                self.refuse(rules.EPILOGUE_SHAPE, name, said, rules.SHAPES, axis)
                return None
            if role is None or role == "k":
                have = [dim for dim in (roles.batch, roles.m, roles.n) if dim]
                said = f"`{dim}` is {'contracted' if role else 'no dim of the product'}: acc has [{', '.join(have)}]"
                self.refuse(rules.EPILOGUE_SHAPE, name, said, suggest(dim.text, have) or rules.SHAPES, axis)
                return None
            if role in axes:
                remedy = f"use {roles.n} or {dim}"
                self.refuse(rules.REPEATED_DIM, name, f"`{name}` has the dim {roles.n} twice", remedy, axis)
                return None
            axes[role] = axis
            half = half or (dim.divided and dim.factor > 1)
        if roles.flat and {"m", "batch"} <= axes.keys():
            said = f"`{name}` has the dims {roles.m} and {roles.batch}, but a row is of one group"
            self.refuse(rules.EPILOGUE_SHAPE, name, said, f"drop {roles.batch}, or {roles.m}", axes["batch"])
            return None
        return {role: axes[role] for role in ("m", "n", "batch") if role in axes}, half

    def major(self, name: str, roles: Roles) -> Literal["m", "n", "k"]:
        """The role of the contiguous dim."""
        decl = self.tensors[name]
        assert decl.dims
        role = roles.role_of(decl.contiguous or decl.dims[-1].base)
        if role == "batch":
            remedy = "put it first, or name the contiguous dim after @"
            self.refuse(rules.CONTIGUOUS_BATCH, name, f"the contiguous dim of `{name}` is the batch dim", remedy)
        return cast(Literal["m", "n", "k"], role)

    def matrix(self, name: str, rows: Literal["m", "n"], roles: Roles) -> MatrixOperand:
        """An operand of the mainloop; `find_roles` has seen that it has the dims for it."""
        decl = self.tensors[name]
        axes = {roles.role_of(dim.text): axis for axis, dim in enumerate(decl.shape)}
        order = tuple(axes[role] for role in (rows, "k", "batch") if role in axes)
        return MatrixOperand(name, decl.dtype, self.major(name, roles), order, "batch" in axes)

    def check_dtype(self, name: str, what: str, supported: tuple[str, ...]) -> bool:
        dtype = self.tensors[name].dtype
        if dtype.name in supported:
            return True
        said = f"{dtype} is not supported yet for {what}"
        self.refuse(rules.NOT_YET_SUPPORTED, name, said, f"supported: {', '.join(supported)}")
        return False

    def operand(self, name: str, roles: Roles) -> Operand | None:
        """An input of the epilogue."""
        decl = self.tensors[name]
        if decl.dims is None:
            ok = self.check_dtype(name, "a host scalar", ("f32",))
            return Operand(name, "host_scalar", decl.dtype, False, (), None) if ok else None
        if not self.check_dtype(name, "an epilogue operand", rules.EPILOGUE_DTYPES):
            return None
        if not decl.dims:
            return Operand(name, "device_scalar", decl.dtype, False, (), None)
        if self.has_blocks(name):
            return self.block_input(name, roles)
        if (placed := self.place(name, roles)) is None:
            return None
        axes, half = placed
        if set(axes) == {"batch"}:
            return Operand(name, "device_scalar", decl.dtype, True, tuple(axes.values()), None)
        major = self.major(name, roles)
        order, batched = tuple(axes.values()), "batch" in axes
        if "m" in axes and "n" in axes:
            return Operand(name, "tile", decl.dtype, batched, order, cast(Literal["m", "n"], major), half)
        return Operand(name, "row_vector" if "n" in axes else "column_vector", decl.dtype, batched, order, None, half)

    def reduction(self, name: str, expr: Reduce, roles: Roles) -> Reduction | None:
        """An output with one value for all columns, rows or both."""
        decl = self.tensors[name]
        ok = self.check_dtype(name, "a reduction", ("f32",))
        if (placed := self.place(name, roles)) is None or not ok:
            return None
        axes, half = placed
        of_product = {"batch": None if roles.flat else roles.batch, "m": roles.m, "n": roles.n}
        over = {roles.role_of(dim) for dim in expr.over}
        legal = [{"n"}, {"m"}, {"m", "n"}, *([{"batch", "m", "n"}] if of_product["batch"] else [])]
        if over not in legal:
            listed = " or ".join(", ".join(of_product[role] or "" for role in sorted(dims)) for dims in legal)
            said = f"a reduction over {', '.join(expr.over)} is not supported"
            self.report(rules.NOT_YET_SUPPORTED, ("epilogue", name), said, f"reduce {listed}", span=expr.span)
            return None
        left = {role: dim for role, dim in of_product.items() if dim and role not in over}
        if decl.dims is None:
            said = f"`{name}` is a number that a call passes by value: nothing is stored to it"
            self.refuse(rules.EPILOGUE_SHAPE, name, said, f"declare {name}: f32[{', '.join(left.values())}]")
            return None
        if axes.keys() != left.keys():
            reduced = " and ".join(expr.over)
            said = f"`{name}` has other dims than what is left of {reduced} being reduced"
            self.refuse(rules.EPILOGUE_SHAPE, name, said, f"declare {name}: f32[{', '.join(left.values())}]")
            return None
        kept = next((role for role in ("m", "n") if role in left), "")
        kept_role = cast(Literal["m", "n", ""], kept)
        return Reduction(name, expr.op, decl.dtype, "batch" in axes, tuple(axes.values()), kept_role, half)

    def output(self, name: str, roles: Roles) -> Output | BlockOutput | None:
        decl, blocks = self.tensors[name], self.has_blocks(name)
        dtypes = ("f32", *self.arch.list_stored_scales()) if blocks else rules.list_output_dtypes(self.arch)
        ok = self.check_dtype(name, "a value of blocks" if blocks else "an output", dtypes)
        if (placed := self.place(name, roles)) is None or not ok:
            return None
        axes, half = placed
        needed = {"batch": None if roles.flat else roles.batch, "m": roles.m, "n": roles.n}
        missing = [dim for role, dim in needed.items() if dim and role not in axes]
        if missing:
            said = f"output `{name}` lacks the dim {' and '.join(missing)}"
            remedy = f"an output has all dims of the product: {', '.join(filter(None, needed.values()))}"
            if missing == [roles.batch]:
                remedy += "; where rows fall into groups, say how under `groups`"
            self.refuse(rules.EPILOGUE_SHAPE, name, said, remedy)
            return None
        major = cast(Literal["m", "n"], self.major(name, roles))
        if blocks:
            dim = decl.shape[axes["n"]]
            up = dim.rounds_up
            order, chunks = tuple(axes.values()), decl.dtype.name != "f32"
            return BlockOutput(name, decl.dtype, "batch" in axes, order, major, dim.factor, up, chunks=chunks)
        if decl.dtype.packing > 1 and major != "n":
            said = f"`{name}` has {roles.m} contiguous, and two elements of {decl.dtype} in a byte are of one row"
            self.refuse(rules.NOT_YET_SUPPORTED, name, said, f"make {roles.n} the last dim, or write its name after @")
        return Output(name, decl.dtype, "batch" in axes, tuple(axes.values()), major, half=half)

    def check_block(self, output: BlockOutput, program: EpilogueProgram, n: ProblemDim, span: Span) -> None:
        """The blocks that the output is declared with are those that its value has. span: of its expression."""
        whole = program.block * (HALF if program.pairing else 1)
        if output.divisor != whole:
            each = f"{program.block} pairs of columns" if program.pairing else f"{whole} columns"
            said = f"`{output.name}` has one value for {output.divisor} columns of {n.name}, its value one for {each}"
            dim = f"ceil({n.name}/{whole})" if output.up else f"{n.name}/{whole}"
            self.report(rules.COLUMNS, ("epilogue", output.name), said, f"declare it with {dim}", span=span)
        elif not output.up and n.value is not None and n.value % whole:
            said, remedy = f"{n.name} = {n.value} is not a multiple of {whole}", f"write ceil({n.name}/{whole})"
            self.refuse(rules.EXACT_DIVISION, output.name, said, remedy, output.axes[1])

    def let_pad(
        self, program: EpilogueProgram, a: MatrixOperand, b: MatrixOperand, updated: tuple[str, ...]
    ) -> EpilogueProgram:
        """The program with tiles whose rows need not be full: where nothing else that TMA moves has that dim
        contiguous, and so asks for whole rows."""
        if program.pairing:
            return program
        whole: set[str] = {a.major, b.major}
        whole |= {o.major for o in program.outputs if not o.direct or o.name in updated}
        operands = (
            replace(o, padded=True) if o.kind == "tile" and o.major not in whole else o for o in program.operands
        )
        return replace(program, operands=tuple(operands))

    def check_mma(self, a: MatrixOperand, b: MatrixOperand, mma: Mma | None, arch: Arch) -> None:
        if mma is None:
            works = "there are bf16 @ bf16, f16 @ f16, e4m3 or e5m2 @ e4m3 or e5m2"
            if ("i8", "i8") in arch.mmas:
                works += ", i8 @ i8"
            if scales := " or ".join(f"{t}[.., k/{block}]" for t, block in arch.list_scales(a.dtype, b.dtype)):
                works = f"give both scales of blocks, {scales}, and write `mainloop: (a * sa) @ (b * sb)`"
            elif {a.dtype.name, b.dtype.name} == {"i8"}:
                works = f"{arch.name} multiplies no i8, as sm_90a and sm_100a do; {works}"
            elif {a.dtype.name, b.dtype.name} == {"e2m1"}:
                works = f"on sm_100a and sm_120a there is one with scales of blocks; {works}"
            elif a.dtype.bits != b.dtype.bits:
                works = f"{elsewhere.MIXED}; {works}"
            elif {a.dtype.name, b.dtype.name} == {"f32"}:
                works = f"{elsewhere.TF32}; {works}"
            self.refuse(rules.MMA_DTYPES, b.name, f"there is no product {a.dtype} @ {b.dtype}", works)
            return
        for operand in (a, b):
            if mma.k_major_only and operand.major not in ("k", None):
                said = f"`{operand.name}` is {operand.major.upper()}-major; MMA reads {operand.dtype} with k contiguous"
                self.refuse(rules.MMA_MAJOR, operand.name, said, "make k the last dim, or write its name after @")

    def check_alignment(self, tensor: MatrixOperand | Operand | Output, pairing: Pairing | None, dims: Dims) -> None:
        """Contiguous extents that are constants; a call checks the dynamic ones."""
        dim, step = unaligned_extent(tensor, pairing, dims), elements_per_step(tensor, "n" if pairing else "")
        if dim is None or dim.value is None:
            return
        dtype = tensor.dtype
        said = f"{dim.name} = {dim.value} is contiguous: {dim.value} x {dtype.width} = {dim.value * dtype.bits / 8:g} B"
        remedy = f"make {dim.name} a multiple of {step}; the next is {-(-dim.value // step) * step}"
        if isinstance(tensor, Output):
            remedy += f"; or store it by threads: `tma: {{{tensor.tensor}: {{store: direct}}}}`"
        self.refuse(rules.TMA_ALIGNMENT, tensor.tensor, f"{said}, no multiple of {dtype.size(step)}", remedy)

    def check_pairs(self, b: MatrixOperand, program: EpilogueProgram, n: ProblemDim) -> None:
        """What the columns of a gated product ask of tensors."""
        tensors: tuple[Operand | Output, ...] = (*program.operands, *program.outputs)
        for tensor in tensors:
            if tensor.half and n.value is not None and n.value % HALF:
                axis = tensor.axes[1 if len(tensor.axes) > 1 and tensor.major else 0]
                said = f"{n.name} = {n.value} is odd: it has no half"
                self.refuse(rules.EXACT_DIVISION, tensor.tensor, said, f"use {n.value + 1}", axis)
        if program.pairing == "interleaved":
            stored = [o for o in program.outputs if not o.direct]
            by_tma: tuple[MatrixOperand | Operand | Output, ...] = (*program.operands, *stored)
            whole = [t for t in by_tma if t.major == "n" and not (isinstance(t, Operand | Output) and t.half)]
            for t in (*([b] if b.major == "n" else []), *whole):
                said = f"every second column of `{t.tensor}` cannot be moved by TMA"
                by_k = f"store it [{n.name}, k], or" if t is b else f"declare two tensors with {n.name}/2, or"
                halves = f"acc[:, :{n.name}/2], acc[:, {n.name}/2:]"
                self.refuse(rules.PAIRED_COLUMNS, t.tensor, said, f"{by_k} slice halves: {halves}")


def unaligned_extent(
    tensor: MatrixOperand | Operand | Output, pairing: Pairing | None, dims: Dims
) -> ProblemDim | None:
    """The contiguous dim, where it is a constant of no whole number of TMA's 16 bytes."""
    dim = dims.get(tensor.major or "")
    if dim is None or dim.value is None or dim.value % elements_per_step(tensor, "n" if pairing else "") == 0:
        return None
    return dim


def elements_per_step(tensor: MatrixOperand | Operand | Output, paired: Literal["m", "n", ""]) -> int:
    """What the extent of the dim that is contiguous in a TMA-moved tensor is a multiple of.

    Its rows are multiples of 16 bytes, but for those that may be padded; so are halves of them, where pairs along the
    dim `paired` are moved half by half.
    """
    if isinstance(tensor, Operand) and tensor.padded:
        return 1
    step = tensor.dtype.fit(TMA_ALIGN)
    return step * HALF if tensor.major == paired else step
