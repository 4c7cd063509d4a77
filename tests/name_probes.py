"""Specs whose kernels have what those of other tests have not: with `gemm_specs` and the shipped ones, every form."""

from __future__ import annotations

import itertools

import gemm_specs
import mla_specs
import spec_variety

PROBE = """\
cutegen: 1
kernel: gemm
arch: sm_90a
tensors:
  a: bf16[{batch}m, k]@{major_a}
  b: bf16[{batch}n, k]@{major_b}
  row: f32[n]
  column: bf16[m]
  c: bf16[{batch}m, n]
  host: f32
  device: f32[]
  d: bf16[{batch}m, n]
  e: f32[{batch}m, n]@{major_d}
mainloop: a @ b
epilogue:
  x: max(gelu_tanh(acc + row), silu(host), 0)
  d: x + c * device
  e: stored(d) + column
warpgroups: {{schedule: {schedule}}}
tiling: {{swap_ab: {swap_ab}{split}}}
scheduler: {scheduler}
"""
GEMM = [
    PROBE.format(
        schedule=schedule,
        swap_ab=swap_ab,
        split=split,
        scheduler=scheduler,
        batch=batch,
        major_a=a,
        major_b=b,
        major_d=d,
    )
    for (schedule, split, scheduler), swap_ab, batch, (a, b, d) in itertools.product(
        (
            ("cooperative", "", "static_persistent"),
            ("pingpong", "", "dynamic_persistent"),
            ("cooperative", ", split_k: 4, split_k_sum: unordered_atomic", "dynamic_persistent"),
            ("pingpong", ", split_k: 2", "static_persistent"),
            ("cooperative", ", cluster: [1, 1], split_k: 2, split_k_sum: ordered_cluster", "static_persistent"),
        ),
        ("false", "true"),
        ("", "l, "),
        (("k", "k", "n"), ("m", "n", "m")),
    )
]

# What the probe has not got: pairs of columns and reductions.
GATED = """\
cutegen: 1
kernel: gemm
arch: sm_90a
tensors:
  a: bf16[m, k]
  b: bf16[n, k]
  row: f32[n]
  half: f32[n/2]
  e: bf16[m, n]
  r: f32[m]
  d: bf16[m, n/2]
mainloop: a @ b
epilogue:
  e: acc + row
  d: silu(e[:, 0::2]) * e[:, 1::2] + half
  r: sum(d2, n)
  d2: where(acc[:, 0::2] > 0, acc[:, 1::2], row[1::2])
warpgroups: {schedule: SCHEDULE}
"""
GEMM += [GATED.replace("SCHEDULE", schedule) for schedule in ("cooperative", "pingpong")]

# Neither of them has outputs that are read, inputs with blocks, and such that may be None.
UPDATED = """\
cutegen: 1
kernel: gemm
arch: sm_90a
tensors:
  a: bf16[m, k]
  b: bf16[n, k]
  s: f32[m, n/128]
  v: f32[ceil(n/16)]
  row: f32[n]?
  e: f32[m, n]
  d: bf16[m, n]
mainloop: a @ b
epilogue:
  e: acc + e
  d: (d + acc + row) * s - v
warpgroups: {schedule: SCHEDULE}
tma: {e: {store: reduce_add}}
"""
GEMM += [UPDATED.replace("SCHEDULE", schedule) for schedule in ("cooperative", "pingpong")]

# A last tile that is loaded and stored in stages of A.
BOXED = """\
cutegen: 1
kernel: gemm
arch: sm_90a
tensors:
  a: bf16[l, m, k]
  b: bf16[n, k]
  c: bf16[l, m, n]
  d: bf16[l, m, n]
mainloop: a @ b
epilogue:
  d: acc + c
warpgroups: {schedule: SCHEDULE}
"""
GEMM += [BOXED.replace("SCHEDULE", schedule) for schedule in ("cooperative", "pingpong")]


# Two operands that may be None; what is reduced to rows, to columns and to a scalar; tiles loaded ahead of the wait.
OMITTED = """\
cutegen: 1
kernel: gemm
arch: sm_90a
tensors:
  a: bf16[m, k]
  b: bf16[n, k]
  row: f32[n]?
  c: bf16[m, n]?
  d: bf16[m, n]
epilogue: {d: relu(acc + row) + c}
"""
REDUCED = """\
cutegen: 1
kernel: gemm
arch: sm_90a
tensors:
  a: bf16[{batch}m, k]
  b: bf16[n, k]
  r: f32[{batch}m]
  s: f32[{batch}n]
  top: f32[{scalar}]
  d: bf16[{batch}m, n]
epilogue:
  d: acc
  r: rms_sum
  s: sum(acc, m)
  top: max_abs(acc, m, n)
warpgroups: {{schedule: {schedule}}}
"""
READY = """\
cutegen: 1
kernel: gemm
arch: sm_90a
tensors: {a: "bf16[m, k]", b: "bf16[n, k]", d: "bf16[m, n]"}
pdl: {ready: [b]}
"""
GEMM += [OMITTED, READY, READY.replace("pdl: {", "tiling: {swap_ab: true}\npdl: {")]
GEMM += [
    REDUCED.format(batch=batch, scalar=batch.rstrip(", "), schedule=schedule).replace("rms_sum", "sum(acc * acc, n)")
    for batch in ("", "l, ")
    for schedule in ("cooperative", "pingpong")
]
# Gathered rows that a kernel copies, and that threads copy; with groups, and with scales that are gathered, too.
GATHERED = [
    form
    for how in ("copy", "cp_async")
    for form in (
        gemm_specs.gathered(gemm_specs.PLAIN, how),
        gemm_specs.gathered(gemm_specs.group_fused(gemm_specs.LABELS), how),
        gemm_specs.gathered(gemm_specs.group_fused(gemm_specs.OFFSETS), how),
        gemm_specs.gathered_scales(gemm_specs.BLOCKS, how=how),
        gemm_specs.gathered_scales(gemm_specs.BLOCKS, True, how=how),
        gemm_specs.gathered_scales(gemm_specs.ROW_SCALES, how=how),
        gemm_specs.gathered_scales(gemm_specs.group_quantised(gemm_specs.LABELS), how=how),
    )
]
GROUPED = [
    change(form)
    for form in (gemm_specs.LABELS, gemm_specs.COUNTS, gemm_specs.OFFSETS)
    for change in (str, gemm_specs.group_scaled)
]
GEMM += [*GATHERED, *GROUPED, *spec_variety.BLOCK_VALUES]
MLA_DECODE = [mla_specs.MLA, mla_specs.SINGLE, mla_specs.WIDE, *mla_specs.EDGES.values()]
