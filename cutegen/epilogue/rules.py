"""The rules of expressions and epilogues: what `cutegen explain RULE` says."""

from __future__ import annotations

from cutegen.diagnostics import declare
from cutegen.diagnostics import rules as shared

MAX_EXPRESSION, MAX_DEPTH = 1024, 64  # characters, and levels of nesting
TOO_DEEP = f"the expression nests deeper than {MAX_DEPTH} levels"
SPLIT = "name parts of it as locals: further keys under `epilogue`"
MAX_STATEMENTS = 64
BLOCKS = range(32, 257, 32)  # columns of a block: whole subtiles of an epilogue, and no more than a tile has
NARROW_BLOCK = 16  # where a thread has all columns of a subtile
MAX_PAIRS = 128  # of columns, in a tile

NOT_YET_SUPPORTED = shared.NOT_YET_SUPPORTED.id


EXPRESSION = declare(
    "expression-syntax",
    "an expression uses names, numbers, + - * /, comparisons, parentheses and ops",
    f"Expressions are parsed against a whitelist and never run. At most {MAX_EXPRESSION:,} ASCII characters, nested at "
    f"most {MAX_DEPTH} deep; no strings, attributes, keywords, powers, lambdas or comprehensions.",
    "d: gelu_tanh(acc + bias) * 0.5",
)
CONDITION = declare(
    "condition",
    "conditions choose, and values are f32",
    "`where(condition, x, y)` is x where the condition holds and y elsewhere; both are computed. A condition compares "
    "values (< <= > >= == !=, or a chain such as 0 < x < 1) or joins conditions by and, or and not. It is not a value: "
    "it has no place outside of `where`. A comparison with NaN is false, but for `!=`, which is true.",
    "d: where(acc > 0 and acc < 6, acc, 0)",
)
NUMBER = declare(
    "expression-number",
    "numbers in expressions are normal f32 numbers or zero",
    "Epilogue values are f32: a literal beyond 3.4e38 would be infinite, one below 1.2e-38 would lose its digits.",
)
UNKNOWN_OP = declare(
    "unknown-op",
    "a call names an op of the registry",
    "`cutegen list` prints the ops; `cutegen explain OP` tells what one does.",
)
OP_PACKAGE = declare(
    "op-package",
    "an op of an installed package can be loaded",
    "Distributions add ops through the entry point group `cutegen.epilogue_ops`, each under the name that specs call. "
    "The package is imported when a spec calls the op. It has to import, hold what docs/adding-an-epilogue-op.md says, "
    "and be the only one that offers the name; built-in names stay what they are.",
)
OP_ARITY = declare("op-arity", "an op gets as many arguments as it takes", "Arguments are positional.")
UNDEFINED_NAME = declare(
    "undefined-name",
    "a name in the epilogue is `acc`, a tensor or a local",
    "A local is a further key under `epilogue`. Dims are not values.",
    "epilogue: {x: acc + bias, d: relu(x)}",
)
CYCLE = declare(
    "epilogue-cycle",
    "assignments of an epilogue do not depend on themselves",
    "The order of keys does not matter: each value is computed from what it reads, so a circle has no start.",
)
CONSTANT = declare(
    "constant-expression",
    "a constant part of an epilogue is plain arithmetic with a finite value",
    "What depends on neither acc nor a tensor is computed once when the kernel is traced: write numbers there, not "
    "ops, and do not divide by zero.",
)
OUTPUT_WITHOUT_ACC = declare(
    "output-without-acc",
    "every output depends on `acc`",
    "An output that does not need the product needs no GEMM.",
)
OUTPUT_WITHOUT_ROW = declare(
    "output-without-row",
    "every output of `rows` depends on a tensor with rows",
    "What depends on vectors and scalars alone is the same for all rows, and would be computed for each of them again.",
    "tensors: {x: 'bf16[m, n]', w: 'bf16[n]', y: 'bf16[m, n]', v: 'f32[m]'}\nrows: {y: x * w, v: 'sum(w, n)'}",
)
UNUSED_LOCAL = declare(
    "unused-local", "every local of the epilogue reaches an output", "Remove it, or use it in an output."
)
STATEMENTS = declare(
    "epilogue-size",
    f"an epilogue has at most {MAX_STATEMENTS} assignments",
    "Each live value takes a register per element in every epilogue thread.",
)
REDUCTION = declare(
    "reduction",
    "a reduction of all columns or rows is all of an output's expression, and nothing else reads it",
    "`r: sum(square(acc), n)` gives one value a row, into a tensor without the dim n; `max(x, m)` one a column, and "
    "`max_abs(x, m, n)` one in all: sum, max or max_abs of a value. It is complete when every tile that it is over is, "
    "so no other value of the kernel can be computed from it. Partial results of tiles are joined in the order of the "
    "tiles, so that equal inputs give equal bits. The value of a block, `max_abs(x, n, 128)`, is complete within a "
    "tile: anything can be computed from it.",
    "tensors: {r: 'f32[m]'}\nepilogue: {d: acc, r: 'sum(square(acc), n)'}",
)
BLOCK = declare(
    "reduction-block",
    f"a block has {BLOCKS[0]} to {BLOCKS[-1]} columns, in steps of {BLOCKS.step}, or {NARROW_BLOCK} on sm_100a, "
    "and all blocks of an epilogue as many",
    "`s: max_abs(x, n, 128)` gives one value for each row and 128 columns of x, which the rest of the epilogue can "
    f"read: a thread holds pieces of {BLOCKS.step} columns, and a tile of up to {BLOCKS[-1]} columns holds whole "
    "blocks. The value that is reduced depends on no other block's value. In a gated product blocks have up to "
    f"{MAX_PAIRS} pairs.",
    "tensors: {q: 'e4m3[m, n]', s: 'f32[m, n/128]'}\nepilogue: {s: 'max_abs(acc, n, 100) / 448', q: acc / s}",
)
REDUCE_ADD = declare(
    "reduce-add",
    "what TMA adds to a tensor is a value without it",
    "`tma: {grad: {store: reduce_add}}` has TMA add to what the tensor holds, so that no tile of it is read: grad is "
    "updated by a sum in which it is one term, and its new value, which no thread has, is read by nothing. The term is "
    "rounded to the dtype of the tensor before it is added, and the sum once more: in bf16 and f16 results may differ "
    "by an ulp from those of the other stores.",
    "epilogue: {grad: 2 * grad + acc}\ntma: {grad: {store: reduce_add}}",
)
OPTIONAL = declare(
    "optional-operand",
    "an operand that may be None is a term or a factor of the epilogue",
    "`bias: f32[n]?` may be None in a call. A term of a sum is then left out, as is a factor or divisor of what "
    "depends on acc; what is computed from it and scalars alone is left out with it. There is a kernel for each "
    "choice of operands that are left out, so at most two are optional; inputs of the epilogue only.",
    "epilogue: {d: 'max(acc, bias)'}   # with bias: f32[n]?",
)
SLICE = declare(
    "slice",
    "a slice takes every second column of a value, or one half of its columns",
    "An output with half the columns of the product is computed from pairs of them: neighbours, `acc[:, 0::2]` and "
    "`acc[:, 1::2]`, or halves, `acc[:, :n/2]` and `acc[:, n/2:]`. One epilogue has one kind of pair.",
    "d: silu(acc[:, 0::2]) * acc[:, 1::2]",
)
COLUMNS = declare(
    "columns",
    "values that meet in an expression have the same columns",
    "A value has the n columns of the product, half of them (a slice, a tensor with a dim `n/2`), one for each block "
    "of them (`max_abs(x, n, 128)`, an output with a dim `n/128`), or none (scalars, column vectors); the last two go "
    "with the others. What is assigned to an output has the output's columns.",
    "tensors: {d: 'bf16[m, n/2]'}\nepilogue: {d: acc}",
)
STORED = declare(
    "stored-output",
    "`stored(x)` names an output that the epilogue assigns",
    "It is the value of x after rounding to its dtype. Locals and inputs are not rounded.",
    "epilogue: {h: acc + bias, d: relu(stored(h))}",
)
