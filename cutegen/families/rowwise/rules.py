"""The rules of rows: what `cutegen explain RULE` says."""

from __future__ import annotations

from cutegen.diagnostics import declare

ROW_SHAPE = declare(
    "row-shape",
    "tensors of rows have the dims of the widest of them",
    "The tensor with the most dims has a row's elements in its last dim, which is contiguous, and rows in the others. "
    "Every tensor has all of its dims, in this order, or the last one alone (a value for each column), or all but the "
    "last (one for each row), or none.",
    "tensors: {x: 'bf16[m, n]', w: 'bf16[k]', y: 'bf16[m, n]'}\nrows: {y: x * w}",
)
ROW_OUTPUT = declare(
    "row-output",
    "some tensor is assigned under `rows`, and each is read or assigned there",
    "Tensors that are assigned are outputs, all others inputs.",
    "tensors: {x: 'bf16[m, n]', y: 'bf16[m, n]'}\nrows: {z: 2 * x}",
)
ROW_VECTOR = declare(
    "row-vector",
    "`vector` is a power of two of elements, at most 16 bytes of the narrowest tensor, and rows have whole ones",
    "Rows are read and written that many elements at a time; a row of a constant extent has whole ones.",
    "dims: {n: 100}\nvector: 8",
)
ROW_SUM = declare(
    "row-sum",
    "a reduction over rows is all of an output with a value for each column, and nothing else reads it",
    "`dw: sum(dy * x, m)` goes to a tensor `[n]`: sum, max or max_abs over all dims of rows, of a value of elements. "
    "It is complete when the last row is, so nothing of this kernel can be computed from it. CTAs join their partial "
    "results in an order that depends on their number alone: equal calls on as many SMs, equal bits.",
    "tensors: {x: 'bf16[m, n]', y: 'bf16[m, n]', dw: 'f32[n]'}\nrows: {dw: 'sum(x, m)', y: x * dw}",
)
ROW_EXPONENT = declare(
    "row-exponent",
    "an output in e8m0 is `ceil_pow2` of a value",
    "e8m0 has powers of two alone. What outputs are divided by has to be what is stored: `ceil_pow2(s)` is one that is "
    "not below s, so that quotients are not larger than with s. Scales of rows, `e8m0[m]`, and of blocks, "
    "`e8m0[m, ceil(n/128)]`, are bytes; `e8m0[m, ceil(n/128)]@m` has those of four blocks in one i32.",
    "tensors: {x: 'bf16[m, n]', q: 'e4m3[m, n]', s: 'e8m0[m]'}\nrows: {s: 'max_abs(x, n) / 448', q: x / s}",
)
ROW_READY = declare(
    "row-ready",
    "what is ready before the kernel in front starts has a value for each column, and is named once",
    "`pdl: {ready: [w]}` lets a kernel load `w` before it waits for the kernel in front. Rows and what has a value for "
    "each of them are loaded one by one, and outputs are written after the wait.",
    "pdl: {ready: [x]}",
)
