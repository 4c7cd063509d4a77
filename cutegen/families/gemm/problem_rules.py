"""Rules about what a GEMM computes, and which dtypes it computes with."""

from __future__ import annotations

from cutegen.arch import Arch
from cutegen.diagnostics import declare
from cutegen.epilogue.rules import COLUMNS, NOT_YET_SUPPORTED, UNDEFINED_NAME
from cutegen.spec import parse

__all__ = ["COLUMNS", "NAME_COLLISION", "NOT_YET_SUPPORTED", "RESERVED_NAME", "UNDEFINED_NAME"]

EPILOGUE_DTYPES = ("bf16", "f16", "f32")
OUTPUT_DTYPES = (*EPILOGUE_DTYPES, "e4m3", "e5m2")


def list_output_dtypes(arch: Arch) -> tuple[str, ...]:
    """Of outputs with rows and columns; two of e2m1 are a byte, which a thread has of the rows of tensor memory."""
    return (*OUTPUT_DTYPES, *(["e2m1"] if arch.tensor_memory else []))


NAME_COLLISION = parse.NAME_COLLISION.id
RESERVED_NAME = parse.RESERVED_NAME.id
WRITE_MAINLOOP = "write a @ b, with the names of two tensors"
WRITE_SCALED = "such as (a * sa) @ (b * sb), where a and b have 8 or 16 bits and sa and sb are f32"
WRITE_PRODUCT = "such as a: bf16[m, k], b: bf16[n, k], d: bf16[m, n]"
SHAPES = (
    "an operand is a scalar, a row vector [n], a column vector [m], a tile [m, n] or one of blocks, [m, n/128]; each "
    "may have the batch dim"
)


MAINLOOP = declare(
    "mainloop", "the mainloop multiplies two tensors",
    "`mainloop: x @ y` names the operands of the product; without it they are `a` and `b`. Each may be multiplied by "
    "scales, which are f32: `(x * sx) @ (y * sy)`.",
    "mainloop: a + b",
)  # fmt: skip
CONTRACTION = declare(
    "contraction", "the operands share one dim that no output has",
    "That dim is k. What only the left operand has is m, what only the right one has is n; a further dim that an "
    "operand shares with the output is the batch dim, and an operand without it is used for every batch index.",
    "tensors: {a: 'bf16[m, k]', b: 'bf16[n, kk]', d: 'bf16[m, n]'}",
)  # fmt: skip
NO_OUTPUT = declare(
    "no-output", "some tensor is assigned",
    "Tensors assigned under `epilogue` are outputs. Without an epilogue the one tensor that the mainloop does not read "
    "is the output.",
)  # fmt: skip
UNUSED_TENSOR = declare(
    "unused-tensor", "every tensor is read or assigned",
    "A tensor that neither `mainloop` nor `epilogue` mentions would be an argument without effect.",
)  # fmt: skip
REPEATED_DIM = declare(
    "repeated-dim", "a tensor has each dim once",
    "Equal names mean equal extents of one dim; integers are distinguished by their value.",
    "a: bf16[4096, 4096]",
)  # fmt: skip
EPILOGUE_SHAPE = declare(
    "epilogue-shape", "epilogue tensors have dims of the product",
    "Outputs have all of (batch,) m, n, in any order; n/2 in place of n where they are computed from slices, n/128 "
    "where they are values of blocks. An input may lack some: it is broadcast along those.",
    "bias: f32[k]",
)  # fmt: skip
BLOCK_INPUT = declare(
    "block-input", "blocks of an input are 1 or a multiple of 8 rows or columns long",
    "`f32[m, n/128]`, `f32[m/128, n]`, `f32[m/128, n/128]` and `f32[n/128]` have one value for each block of elements; "
    "`ceil(n/128)` lets the last block be a part. The columns that a thread holds lie in groups of 8.",
    "tensors: {s: 'f32[m, n/12]'}",
)  # fmt: skip
EXACT_DIVISION = declare(
    "exact-division", "a dim that is divided is a multiple of the divisor",
    "`n/2` is exact: a constant n is even, and a call with another n is refused.",
    "dims: {n: 4095}\ntensors: {d: 'bf16[m, n/2]'}",
)  # fmt: skip
PAIRED_COLUMNS = declare(
    "paired-columns", "TMA can load and store the columns of a gated product pair by pair",
    "Both columns of a pair come from B with one load, which sees n as two halves, or as even and odd columns. TMA "
    "moves adjacent elements, so of a tensor whose contiguous dim is n it can move halves, not every second column. "
    "Of an output or a tile with all n columns, each half is moved as a tensor of its own.",
    "b: bf16[k, n]\nepilogue: {d: 'silu(acc[:, 0::2]) * acc[:, 1::2]'}",
)  # fmt: skip
CONTIGUOUS_BATCH = declare(
    "contiguous-batch", "the batch dim is not the contiguous one",
    "Tiles are moved as matrices, so one of their two dims must have stride 1.",
    "a: bf16[m, k, l]",
)  # fmt: skip
MMA_DTYPES = declare(
    "mma-dtypes", "the operand dtypes have an MMA instruction",
    "WGMMA takes bf16 with bf16, f16 with f16 and any mix of e4m3 and e5m2, accumulating in f32, and i8 with i8, "
    "accumulating in i32. It mixes no others. On sm_100a and sm_120a there is e2m1 with e2m1 as well, with scales of "
    "blocks.",
    "a: bf16[m, k], b: f16[n, k]",
)  # fmt: skip
SCALE = declare(
    "mainloop-scale", "a scale is f32 and constant along k, or along blocks of it; or of 8 bits for each block",
    "The dims of a scale decide. `f32` (a host value), `f32[]` and one value per row of the operand, `f32[m]` or "
    "`f32[n]`, factor out of the sum and are applied in the epilogue. One value per row and block of k for the left "
    "operand, `f32[m, k/128]@m`, and one per block of rows and of k for the right one, `f32[n/128, k/128]`, are "
    "applied when f32 registers take the sum of the block; `ceil(n/128)` and `ceil(k/128)` let the last block be a "
    "part. On sm_100a and sm_120a scales of both operands may have 8 bits, `e8m0[m, k/32]` and `e8m0[n, k/32]`, or, of "
    "e2m1 operands, `e4m3[m, k/16]` and `e4m3[n, k/16]`: the tensor core multiplies by them. A scale has no dims that "
    "its operand has not. One that is gathered with its operand, `(a * sa)[rows]`, may be contiguous either way.",
    "mainloop: (a * sa) @ b   # with sa: f32[n]",
)  # fmt: skip
MMA_MAJOR = declare(
    "mma-major", "8-bit operands are K-major",
    "WGMMA reads M- and N-major tiles of 16-bit elements only: an 8-bit operand has its k contiguous.",
    "b: e4m3[k, n]",
)  # fmt: skip
ACCUMULATOR = declare(
    "accumulator-dtype", "the accumulator has the dtype of the MMA",
    "Floating-point products are summed in f32, products of i8 in i32, without any loss. The epilogue computes in f32: "
    "an i32 sum is converted first.",
    "accumulate: {dtype: i32}   # with bf16 operands",
)  # fmt: skip
TMA_ALIGNMENT = declare(
    "tma-alignment", "contiguous extents are multiples of 16 bytes",
    "TMA moves tiles of a, b, outputs and full-tile inputs; it needs base addresses and outer strides in multiples of "
    "16 bytes. Constant dims are checked here, dynamic ones in each call.",
    "dims: {k: 4100}",
)  # fmt: skip
