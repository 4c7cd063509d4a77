"""The tensors of a GEMM as a call passes them: what kernel and plan both say about dims, strides and alignment."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial

from cutegen.arch.architecture import TMA_ALIGN
from cutegen.dtypes import DTYPES, DType
from cutegen.epilogue import BlockOutput, Operand, Output, Reduction
from cutegen.families.gemm.features.feature_list import FEATURES
from cutegen.families.gemm.placement import HALF, elements_per_step
from cutegen.families.gemm.problem import BlockScale, GemmProblem, MatrixOperand, PackedScale, ProblemDim
from cutegen.runtime.arguments import TensorArg
from cutegen.runtime.gemm.scale_packing import BLOCKS, CHUNK, ROWS

_CHUNK = ProblemDim(str(CHUNK), CHUNK, CHUNK, CHUNK)
_ROLES = {"tile": "mn", "row_vector": "n", "column_vector": "m", "device_scalar": ""}


@dataclass(frozen=True, slots=True)
class TensorShape:
    """One tensor argument. dims: in torch order. contiguous: the torch axis of stride 1, None for a scalar.

    axes: torch axes in kernel order, batch last. multiple: what the contiguous extent is a multiple of, in elements.
    wide: it has both m and n. steps: what the extent of each torch axis is a multiple of; () where any will do.
    """

    name: str
    dtype: DType
    dims: tuple[ProblemDim, ...]
    contiguous: int | None
    axes: tuple[int, ...]
    tma: bool
    multiple: int
    wide: bool = False
    steps: tuple[int, ...] = ()

    @property
    def align(self) -> int:
        """Bytes that the base address and the outer strides are multiples of."""
        return TMA_ALIGN if self.tma else self.dtype.size(self.dtype.packing)

    @property
    def padded(self) -> bool:
        """Whether rows lie multiples of `align` apart that need not be full."""
        return self.tma and len(self.dims) > 1 and self.multiple < self.stride_multiple

    @property
    def stride_multiple(self) -> int:
        """Elements that the outer strides are multiples of."""
        return self.dtype.fit(self.align)

    def argument(self, optional: bool) -> TensorArg:
        """As the plan declares it. axes: where a wrong element is looked for in a tile."""
        return TensorArg(
            self.name,
            self.dtype.torch,
            tuple(d.name for d in self.dims),
            self.contiguous,
            self.align,
            self.multiple,
            self.axes if self.tma or self.wide else (),
            padded=self.padded,
            optional=optional,
            steps=self.steps,
        )

    @property
    def packed(self) -> bool:
        """Whether it has chunks of scales, whose last dim is a number."""
        return bool(self.dims) and self.dims[-1].name.isdigit()

    @property
    def shape_text(self) -> str:
        """Dtype and dims, such as bf16[m, k=64]."""
        dims = (d.name if d.value is None or d.name.isdigit() else f"{d.name}={d.value}" for d in self.dims)
        return f"{self.dtype}[{', '.join(dims)}]"

    @property
    def text(self) -> str:
        at = f"@{self.dims[self.contiguous].name}" if self.contiguous not in (None, len(self.dims) - 1) else ""
        return f"{self.name}: {self.shape_text}{at}"


def tensor_shapes(problem: GemmProblem) -> dict[str, TensorShape]:
    """Every tensor argument by name; host scalars are not among them."""
    program, shape = problem.epilogue, partial(_shape, problem)
    shapes = [
        shape(problem.a, "mk", problem.a.major, tma=True),
        shape(problem.b, "nk", problem.b.major, tma=True),
    ]
    if problem.a_scale:
        shapes.append(_scale_shape(problem, problem.a_scale, problem.m))
    if problem.b_scale:
        shapes.append(_scale_shape(problem, problem.b_scale, problem.n))
    sides = ((problem.a_packed, problem.m), (problem.b_packed, problem.n))
    shapes += [_packed_shape(problem, s, rows) for s, rows in sides if s]
    for o in program.operands:
        if o.kind != "host_scalar" and not o.updates:
            shapes.append(shape(o, _ROLES.get(o.kind, o.present), o.inner or o.major, tma=o.kind == "tile"))
    for name, dim in (tensor for feature in FEATURES for tensor in feature.index_tensors(problem)):
        shapes.append(TensorShape(name, DTYPES["i32"], (dim,), 0, (0,), tma=False, multiple=1))
    for d in program.outputs:
        shapes.append(shape(d, "mn", d.major, tma=not d.direct or d.name in program.updated, wide=True))
    # Scales with rows side by side are read by TMA afterwards: columns of them are 16 bytes apart.
    rows_dim = "n" if problem.transposed else "m"
    shapes += [
        _chunk_shape(problem, o) if o.chunks else shape(o, "mn", o.major, tma=o.major == rows_dim, wide=True)
        for o in program.block_outputs
    ]
    shapes += [shape(r, r.kept, None, tma=False) for r in program.reductions]
    return {s.name: s for s in shapes}


def _shape(
    problem: GemmProblem,
    t: MatrixOperand | Operand | Output | BlockOutput | Reduction,
    roles: str,
    major: str | None,
    *,
    tma: bool,
    wide: bool = False,
) -> TensorShape:
    """roles: of its dims, of which `major` is contiguous, in the order of its axes but for the batch."""
    extents, paired = problem.extents, problem.paired_dim
    half = isinstance(t, Operand | Output | Reduction) and t.half
    own = {**extents, paired: extents[paired].over(HALF)} if half else extents
    if isinstance(t, Operand) and t.kind == "block_input":
        whole, parts = (problem.m, problem.n), zip(t.block, t.up)
        own = {r: d.over(b, up=up) if b > 1 else d for r, d, (b, up) in zip("mn", whole, parts)}
    if isinstance(t, BlockOutput):
        cut = "m" if problem.transposed else "n"
        own = {**extents, cut: extents[cut].over(t.divisor, up=t.up)}
    own = {**own, **problem.named_rows(t.name)}
    kernel_dims = [own[role] for role in roles] + ([problem.batch] if problem.batch and t.batched else [])
    dims = tuple(kernel_dims[t.axes.index(axis)] for axis in range(len(t.axes)))
    contiguous = t.axes[roles.index(major or roles) if roles else 0] if t.axes else None
    step = 1
    if tma and not isinstance(t, BlockOutput | Reduction):
        step = elements_per_step(t, paired) // (HALF if half and t.major == paired else 1)
    if isinstance(t, MatrixOperand):
        step = math.lcm(step, *(s.block for s in problem.packed_scales))
    steps: tuple[int, ...] = ()
    if isinstance(t, Output) and problem.epilogue.chunks:  # blocks of columns are whole
        block = problem.epilogue.block
        step = math.lcm(step, block) if t.major == "n" else step
        steps = () if t.major == "n" else tuple(block if axis == t.axes[1] else 1 for axis in range(len(dims)))
    return TensorShape(t.name, t.dtype, dims, contiguous, t.axes, tma, step, wide, steps)


def _scale_shape(problem: GemmProblem, s: BlockScale, rows: ProblemDim) -> TensorShape:
    """rows: of the operand that it scales."""
    named = [*problem.named_rows(s.name).values()]
    along_rows = named[0] if named else rows if s.by_row else rows.over(s.rows, up=s.up[0])
    ordered = [along_rows, problem.k.over(s.depth, up=s.up[1]), *([problem.batch] if problem.batch else [])]
    dims = tuple(ordered[s.axes.index(axis)] for axis in range(len(s.axes)))
    steps: tuple[int, ...] = ()
    if problem.scaled_halves and not s.by_row:  # as many blocks in one half as in the other
        steps = tuple(HALF if axis == s.axes[0] else 1 for axis in range(len(dims)))
    by_tma = s.by_row and not named
    return TensorShape(s.name, s.dtype, dims, s.axes[s.k_major], (), by_tma, 1, steps=steps)


def _packed_shape(problem: GemmProblem, s: PackedScale, rows: ProblemDim) -> TensorShape:
    """As `pack_scales` makes it: chunks of scales of 128 rows and 4 blocks of k."""
    paired = rows is problem.extents.get(problem.paired_dim)  # as many chunks in one half as in the other
    dims = (rows.over(ROWS, up=not paired), problem.k.over(BLOCKS * s.block, up=True), _CHUNK)
    batch = (problem.batch,) if problem.batch and s.batched else ()
    steps = (*(1 for _ in batch), HALF, 1, 1) if paired else ()
    multiple = TMA_ALIGN // s.dtype.bytes
    return TensorShape(s.name, s.dtype, (*batch, *dims), len(batch) + 2, (), True, multiple, steps=steps)


def _chunk_shape(problem: GemmProblem, o: BlockOutput) -> TensorShape:
    """Scales as `_packed_shape` has them, of columns of the product."""
    batch = (problem.batch,) if problem.batch and o.batched else ()
    dims = (*batch, problem.m.over(ROWS, up=True), problem.n.over(BLOCKS * o.divisor, up=True), _CHUNK)
    return TensorShape(o.name, o.dtype, dims, len(batch) + 2, (), True, TMA_ALIGN // o.dtype.bytes)


def formula(problem: GemmProblem) -> str:
    """Operands and outputs in one line, such as `a: bf16[m, k] x b: bf16[n, k] -> d: bf16[m, n]`."""
    shapes = tensor_shapes(problem)
    left, right = (problem.b, problem.a) if problem.transposed else (problem.a, problem.b)
    outputs = ", ".join(shapes[name].text for name in problem.outputs)
    return f"{shapes[left.name].text} x {shapes[right.name].text} -> {outputs}"
