"""Valid specs with everything that templates tell apart: names long and short, layouts, operands, outputs, tiles."""

from __future__ import annotations

import random

LONG = "a_name_as_long_as_the_spec_language_lets_it_be_1"  # 48 characters
LOCAL = "value_before_it_is_stored"
_HEAD = "cutegen: 1\nkernel: gemm\narch: sm_90a\ntensors:\n  a: bf16[m, k]\n  b: bf16[n, k]\n"
# Values of blocks: many functions to import, values that only the first pass has, a tile that it keeps for the second.
BLOCK_VALUES = (
    _HEAD
    + "  q: e4m3[m, n]\n  s: f32[m, n/64]\n  r: f32[]\nepilogue:\n"
    + "  s: ceil_pow2(max(max_abs(round_bf16(acc), n, 64), 1e-4) / 448)\n  q: round_bf16(acc) * (1 / s)\n"
    + "  r: max(acc, m, n)\n",
    _HEAD
    + "  s: f32[m, n/64]\n  d: bf16[m, n]\nepilogue: {s: 'sum(acc, n, 64)', d: acc}\n"
    + "tiling: {tile: [128, 16, 64], swap_ab: true}\n",
    _HEAD + "  q: e4m3[m, n]\nepilogue: {q: 'acc / (1 + max_abs(acc, n, 32))'}\n",
    _HEAD
    + "  c: bf16[m, n/2]\n  d: bf16[m, n/2]\nepilogue:\n  y: acc[:, :n/2] * acc[:, n/2:] + c\n"
    + "  d: d + y / (1 + max_abs(y, n, 32))\n",
)


def varied_spec(number: int, portfolio: bool = False) -> str:
    """A valid spec; another one for every number, every fourth an MLA decode. portfolio: a GEMM has one, which takes a
    second to decide, and not one tiling."""
    rng = random.Random(number)
    if number % 4 == 3:
        return _mla(number, rng)
    return _gemm(number, rng) + "portfolio: 1\n" * (not portfolio)


def _mla(number: int, rng: random.Random) -> str:
    variant, heads = rng.choice((("seesaw", [1 + number // 4, 128]), ("seesaw_2cta", 128)))
    return f"""\
cutegen: 1
kernel: mla_decode
arch: sm_90a
dtype: {rng.choice(("bf16", "f16"))}
heads: {heads}
query_len: {rng.choice((1, 2, [1, 4], [1, 16]))}
q: {rng.choice(("joined", "split"))}
mask: {rng.choice(("causal", "none"))}
kv_cache: {{page_size: {rng.choice((16, 32, 64, 128))}}}
lse: {{base: {rng.choice(("e", 2))}, layout: {rng.choice(("bhs", "bsh"))}}}
split_kv: {rng.choice(("1", "auto", "{max: 8}"))}
variant: {variant}
scheduler: {{join_ratio: {1 + number}}}
"""


def _gemm(number: int, rng: random.Random) -> str:

    def pick(*choices: str) -> str:
        return rng.choice(choices)

    row, tile, out = pick("bias", "r", LONG), pick("residual", "c"), pick("d", "o", "output_of_the_whole_layer")
    batch = pick("", "", "batch, ", "l, ")
    schedule = pick("cooperative", "pingpong")
    operand = pick("bf16", "f16")
    tensors = [f"a: {operand}[{batch}{pick('m, k', 'k, m')}]", f"b: {operand}[{pick('', batch)}{pick('n, k', 'k, n')}]"]
    expression = "acc"
    if pick("", "row"):
        tensors.append(f"{row}: {pick('f32', 'bf16')}[n]")
        expression = f"{pick('gelu_tanh', 'silu', 'relu')}({expression} + {row})"
    if pick("", "column"):
        tensors.append(f"scale_of_rows: f32[{pick('', batch)}m]")
        expression = f"scale_of_rows * {expression}"
    if pick("", "scalars"):
        tensors += ["alpha: f32", "beta: f32[]"]
        expression = f"alpha * {expression} + beta"
    if pick("", "tile"):
        tensors.append(f"{tile}: {pick('bf16', 'f32')}[{batch}{pick('m, n', 'n, m')}]")
        expression = f"{expression} + {tile} * 0.5"
    tensors.append(f"{out}: {pick('bf16', 'f32', 'f16')}[{batch}{pick('m, n', 'n, m', 'm, n')}]")
    statements = [f"{out}: {expression}"]
    if pick("", "two outputs"):
        tensors.append(f"second: f32[{batch}m, n]")
        statements = [f"{LOCAL}: {expression}", f"{out}: {LOCAL}", f"second: max({LOCAL}, 0) * acc"]
    lines = ["cutegen: 1", "kernel: gemm", "arch: sm_90a", "tensors:", *(f"  {t}" for t in tensors), "epilogue:"]
    lines += [*(f"  {s}" for s in statements), f"warpgroups: {{schedule: {schedule}}}"]
    lines.append(f"dims: {{n: {64 * (1 + number)}}}" if pick("", "dims") else f"m: [{8 * (number + 1)}]")
    if pick("", "tile"):
        lines.append(f"tiling: {{tile: {pick('[128, 128, 64]', '[64, 128, 64]')}}}")
    return "\n".join(lines) + "\n"
