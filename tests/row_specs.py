"""Specs of row kernels in every form of their templates: kinds of tensors and dtypes, rounds, parts of rows."""

HEAD = "cutegen: 1\nkernel: rowwise\narch: sm_90a\n"
NORM = (
    HEAD
    + "dims: {n: [8, 8192]}\ntensors: {x: 'bf16[m, n]', w: 'bf16[n]', y: 'bf16[m, n]'}\n"
    + "rows:\n  y: x * rsqrt(mean(square(x), n) + 1e-6) * w\n"
)
FORMS = {
    # Rows of two dims, of odd extent and so element by element; every kind of operand; values before any reduction.
    "all_kinds": HEAD
    + """\
dims: {n: 1001}
pdl: {ready: [w], trigger: none}
prefetch: true
tensors:
  x: f32[t, h, n]
  s: f32[t, h]
  w: bf16[n]
  c: f32
  d: f32[]
  y: f16[t, h, n]
  lse: f32[t, h]
rows:
  t2: s * d + c
  z: s * x + t2 * w
  lse: log(sum(exp(z - max(z, n)), n)) + max(z, n) + d
  y: z - lse * s
""",
    # Two reductions in one exchange, of rows that are parts of a warp and stored alone.
    "moments": HEAD
    + """\
dims: {n: 96}
vector: 4
tensors: {x: 'bf16[m, n]', mu: 'f32[m]', largest: 'f16[m]'}
rows:
  mu: mean(x, n)
  largest: max_abs(x, n)
""",
    # The kernel in front is not overlapped.
    "one_warp": HEAD
    + "pdl: {wait: false}\nthreads: 32\n"
    + "dims: {n: 32}\ntensors: {x: 'f32[m, n]', y: 'f32[m, n]'}\nrows: {y: 'x / sum(square(x), n)'}\n",
    # Something is computed once after each of the rounds.
    "rounds": HEAD
    + """\
dims: {n: 64}
alias: {y: x}
tensors: {x: 'bf16[m, n]', y: 'bf16[m, n]'}
rows:
  x1: 1 + square(mean(x, n))
  x2: 1 + mean(square(x - x1), n)
  x3: 1 + mean(square(x - x2), n)
  x4: 1 + mean(square(x - x3), n)
  y: x * x4
""",
    # Blocks after a round, of which the last is a part, and values of them in an exact quotient.
    "blocks": HEAD
    + """\
dims: {n: [16, 4096]}
prefetch: true
tensors: {x: 'bf16[m, n]', w: 'f32[n]', q: 'e4m3[m, n]', y: 'f32[m, n]', scale: 'f32[m, ceil(n/128)]@m', norm: 'f32[m]'}
rows:
  norm: sqrt(mean(square(x), n) + 1e-6)
  y: x / norm * w
  least: 2 * 5e-5
  scale: max(max_abs(y, n, 128), least) / 448
  q: y / scale
""",
    # Scales that are powers of two: of rows, of blocks, and of four blocks in one i32.
    "exponents": HEAD
    + """\
dims: {n: [16, 4096]}
tensors:
  x: bf16[t, h, n]
  q: e4m3[t, h, n]
  p: e5m2[t, h, n]
  scale: e8m0[t, h, ceil(n/128)]@h
  apart: e8m0[t, h, ceil(n/128)]
  whole: e8m0[t, h]
rows:
  scale: ceil_pow2(max_abs(x, n, 128) / 448)
  apart: ceil_pow2(sum(x, n, 128))
  whole: ceil_pow2(max(max_abs(x, n), 1e-4) / 57344)
  q: x / stored(scale)
  p: x / whole
""",
    # Blocks alone, which are stored as they are reduced.
    "block_values": HEAD
    + """\
tensors: {x: 'bf16[m, n]', s: 'f32[m, n/64]', total: 'f32[m, n/64]'}
rows:
  s: max_abs(x, n, 64)
  total: sum(square(x), n, 64)
""",
    # Places of elements, in a round and after it, with integers of rows and of all.
    "labels": HEAD
    + """\
dims: {n: [8, 600]}
tensors: {x: 'bf16[m, n]', label: 'i32[m]', ignored: 'i32[]', y: 'f32[m, n]', picked: 'f32[m]'}
rows:
  picked: where(label == ignored, 0, pick(x, label))
  y: where(index(n) == label, 0, x - picked) + 0.5 * index(n)
""",
    # Elements in i8, rounded to the nearest even, and labels as torch has them.
    "integers": HEAD
    + """\
dims: {n: [16, 600]}
tensors:
  x: i8[m, n]
  r: f32[m, n]
  s: f32[m]
  label: i64[m]
  ignored: i64[]
  q: i8[m, n]
  z: f32[m, n]
  scale: f32[m]
rows:
  y: x * s + r
  picked: where(label == ignored, 0, pick(y, label))
  scale: max(max_abs(y, n), 1e-6) / 127
  q: y / scale
  z: y - stored(q) * scale + picked
""",
    # Rows that are not held: values of rows, columns and places, rounds, and blocks after them.
    "streamed": HEAD
    + """\
bounds: []
threads: 64
tensors:
  x: bf16[m, n]
  s: f32[m]
  w: bf16[n]
  q: e4m3[m, n]
  scale: f32[m, ceil(n/128)]@m
  top: f32[m]
rows:
  z: s * x + index(n)
  top: max(z, n)
  y: (z - top) / sum(exp(z - top), n) * w
  scale: max(max_abs(y, n, 128), 1e-4) / 448
  q: y / scale
""",
    # Reductions over rows of two dims, of which a warp has several, next to those of rows and of blocks.
    "over_rows": HEAD
    + """\
dims: {n: 128}
prefetch: false
tensors:
  x: bf16[t, h, n]
  s: f32[t, h]
  y: bf16[t, h, n]
  scale: f32[t, h, ceil(n/64)]
  total: bf16[n]
  largest: f32[n]
rows:
  z: s * x / sum(square(x), n)
  scale: max_abs(z, n, 64)
  y: z / scale
  total: sum(z / (1 + scale), t, h)
  largest: max_abs(x, h, t)
""",
    # Nothing else: rows are held, and need no exchange.
    "only_over_rows": HEAD
    + """\
dims: {n: [8, 600]}
tensors: {dy: 'bf16[m, n]', db: 'f32[n]'}
rows: {db: 'sum(dy, m)'}
""",
    # Partial results of rows that are not held.
    "streamed_over_rows": HEAD
    + """\
bounds: []
threads: 64
tensors: {x: 'bf16[m, n]', y: 'bf16[m, n]', total: 'f32[n]', top: 'f16[n]'}
rows:
  y: x / sum(square(x), n)
  total: sum(x * y, m)
  top: max(x, m)
""",
    # Rows of a cluster of 8 CTAs: two rounds, means, blocks, and what is loaded before the kernel in front has ended.
    "clusters": HEAD
    + """\
dims: {n: [8, 16384]}
bounds: [1024, 16384]
threads: 2048
pdl: {ready: [w]}
tensors: {x: 'bf16[m, n]', w: 'bf16[n]', y: 'f32[m, n]', scale: 'f32[m, ceil(n/128)]', lse: 'f32[m]', mu: 'f32[m]'}
rows:
  mu: mean(x, n)
  e: exp(x - max(x, n))
  y: e / sum(e, n) * w
  scale: max_abs(y, n, 128)
  lse: log(sum(e, n)) + max(x, n)
""",
    # Rows that are read once, and elements that are picked by their places, one of them with more operands.
    "clusters_once": HEAD
    + """\
bounds: [4096, 8192, 16384]
threads: 2048
tensors: {x: 'bf16[m, n]', w: 'f32[n]', label: 'i32[m]', c: f32, lse: 'f32[m]', own: 'f32[m]', other: 'f32[m]'}
rows:
  top: max(x, n)
  lse: log(sum(exp(x - top), n)) + top
  own: pick(x, label)
  other: pick(x * w + index(n), c)
""",
    # Halves of rows, reduced together and alone, with values that are the same for some dims of rows.
    "halves": HEAD
    + """\
dims: {d: [16, 256], h: 3}
prefetch: true
tensors:
  x: bf16[t, h, d]
  w: f32[d]
  s: f32[h]
  cos: bf16[t, d/2]
  sin: f32[d/2]
  y: bf16[t, h, d]
  u: f32[t, h, d/2]
  least: f32[t, h]
rows:
  z: x * rsqrt(mean(square(x), d) + 1e-6) * w
  left: z[..., :d/2]
  least: max_abs(z, d) + mean(left, d)
  y: halves(left * cos - z[:, :, d/2:] * sin, s * z[..., d/2:])
  u: left + x[..., d/2:] * least
""",
    # Neighbours as pairs: read, joined, and stored in turn, with values of columns.
    "pairs": HEAD
    + """\
dims: {d: [16, 128]}
prefetch: true
tensors: {x: 'bf16[t, h, d]', w: 'f32[d]', cos: 'f32[t, d/2]', y: 'bf16[t, h, d]', u: 'e4m3[t, h, d/2]'}
rows:
  z: x * w / sum(square(x), d)
  y: pairs(z[..., 0::2] * cos, z[..., 1::2] - cos)
  u: x[..., 1::2]
""",
    # A gate and what it multiplies in one row, in blocks, without a reduction of rows.
    "gated_blocks": HEAD
    + """\
tensors: {x: 'bf16[m, n]', q: 'e4m3[m, n/2]', scale: 'f32[m, ceil(n/256)]@m'}
rows:
  y: round_bf16(silu(x[:, :n/2]) * x[:, n/2:])
  scale: max(max_abs(y, n, 128), 1e-4) / 448
  q: y / scale
""",
    # Halves of rows that are not held.
    "streamed_halves": HEAD
    + """\
bounds: []
threads: 64
tensors: {x: 'bf16[m, n]', y: 'bf16[m, n]'}
rows:
  top: max(x, n)
  total: sum(exp(x - top), n)
  y: halves(exp(x[:, n/2:] - top) / total, x[:, :n/2])
""",
    # Operands that a call may leave out: of rows, with what is computed of it, and of columns.
    "optional": HEAD
    + """\
dims: {n: [64, 1024]}
bounds: [1024]
tensors: {x: 'bf16[m, n]', residual: 'bf16[m, n]?', b: 'f32[n]?', c: 'f32', h: 'bf16[m, n]', y: 'bf16[m, n]'}
rows:
  scaled: c * residual
  h: x + scaled
  y: h * rsqrt(mean(square(h), n) + 1e-6) + b
""",
    # Eight-bit elements in and out, a row longer than what a CTA has at once.
    "parts": HEAD
    + """\
tensors: {x: 'e5m2[m, n]', g: 'e4m3[m, n]', w: 'f32[n]', s: 'f32[m]', y: 'e4m3[m, n]', z: 'f32[m, n]'}
rows:
  y: relu(x * s) * w
  z: stored(y) + g
""",
}
