"""Specs whose kernels have what those of other tests have not: with `gemm_specs` and the shipped ones, every form."""

from __future__ import annotations

import itertools

import gemm_specs
import mla_specs
import row_specs
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

# Products in tensor memory, of one CTA and of pairs.
SM100 = """\
cutegen: 1
kernel: gemm
arch: sm_100a
tensors:
  a: bf16[{batch}m, k]
  b: bf16[{batch}n, k]
  row: f32[{batch}n]
  column: bf16[m]
  host: f32
  device: f32[]
  d: bf16[{batch}m, n]
  e: f32[{batch}m, n]
mainloop: a @ b
epilogue:
  x: max(gelu_tanh(acc + row), silu(host), 0)
  d: x * device
  e: x + column
tiling: {{mma_ctas: {ctas}}}
pdl: {{{pdl}}}
"""
SM100_PDL = "wait: false, trigger: none"
GEMM += [SM100.format(batch=batch, ctas=ctas, pdl=pdl) for batch, ctas, pdl in (("", 1, ""), ("l, ", 2, SM100_PDL))]
GEMM.append("cutegen: 1\nkernel: gemm\narch: sm_100a\ntensors: {a: 'f16[m, k]', b: 'f16[k, n]@k', d: 'f16[m, n]'}\n")
SM100_GATED = """\
cutegen: 1
kernel: gemm
arch: sm_100a
tensors: {{a: 'i8[{batch}m, k]', b: 'i8[{batch}n, k]', tile: 'bf16[{batch}m, n/2]', d: 'bf16[{batch}m, n/2]'{device}}}
epilogue: {{d: 'acc[{every}:, :n/2] * acc[{every}:, n/2:] + {factor}tile'}}
tiling: {{mma_ctas: {ctas}}}
"""
GEMM.append(SM100_GATED.format(batch="l, ", every=":, ", device=", device: 'f32[]'", factor="device * ", ctas=1))
GEMM.append(SM100_GATED.format(batch="", every="", device="", factor="", ctas=2))
SM100_GROUPS = (
    "tensors: {a: 'bf16[m, k]', b: 'bf16[g, n, k]', ends: 'i32[g]', d: 'bf16[m, n]'}\ngroups: {offsets: ends}\n"
)
GEMM.append("cutegen: 1\nkernel: gemm\narch: sm_100a\n" + SM100_GROUPS)
SM100_HALF_CHUNKS = (
    "tensors: {a: 'e4m3[m, k]', b: 'e4m3[n, k]', sa: 'e8m0[m, k/32]', sb: 'e8m0[n, k/32]', d: 'bf16[m, n]'}\n"
    "mainloop: (a * sa) @ (b * sb)\ntiling: {tile: [128, 192, 128]}\n"
)
GEMM.append("cutegen: 1\nkernel: gemm\narch: sm_100a\n" + SM100_HALF_CHUNKS)

SM120 = """\
cutegen: 1
kernel: gemm
arch: sm_120a
tensors: {{a: '{a}', b: '{b}', d: 'bf16[m, n]'}}
warpgroups: {{schedule: {schedule}}}
tiling: {{split_k: {parts}}}
"""
GEMM += [
    SM120.format(a="bf16[k, m]", b="bf16[k, n]", schedule="pingpong", parts=1),
    SM120.format(a="e4m3[m, k]", b="e4m3[n, k]", schedule="cooperative", parts=2),
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
ROWWISE = list(row_specs.FORMS.values())
MLA_DECODE = [mla_specs.MLA, mla_specs.SINGLE, mla_specs.WIDE, *mla_specs.EDGES.values(), mla_specs.OF_PAIRS]
MLA_DECODE += [mla_specs.MLA.replace("sm_90a", arch) for arch in ("sm_100a", "[sm_90a, sm_100a]")]
MLA_DECODE += [mla_specs.QUANTISED_PAIRS, mla_specs.MLA.replace("sm_90a", "sm_100a") + "invariance: batch\n"]
# Keys on M over rows of 16 bits, over a cache with one scale, and where the rotary part is a part of V.
FEW_SPARSE = mla_specs.SPARSE.replace("[1, 128]", "[1, 8]") + "variant: keys_on_m\n"
FEW_COPIED = FEW_SPARSE.replace("  latent: {dtype: e4m3}\n  rope: {dtype: e4m3}\n", "")
FEW_NARROW = FEW_SPARSE.replace(
    "latent: {dtype: e4m3}", "latent: {dtype: e4m3, scale: {dtype: f32, block: 64, place: plane}}"
)
FEW_NARROW = FEW_NARROW.replace("rope: {dtype: e4m3}", "rope: {dtype: bf16}") + "latent_dim: 448\n"
MLA_DECODE += [FEW_SPARSE, FEW_COPIED, FEW_NARROW]
# What none of these has, by the line of the template that it is for.
HALVES = "epilogue: {d: 'silu(acc[:, :n/2]) * acc[:, n/2:]'}\n"
GATED_BLOCKS = gemm_specs.BLOCKS.replace("m, n]", "m, n/2]").replace("ceil(n/128)", "n/128") + HALVES
SWAPPED = "tiling: {swap_ab: true, tile: [128, 32, 128], cluster: [1, 1]}\n"
ALIASED = gemm_specs.FUSED + "alias: {d: residual}\n"
LONG = "a_name_that_makes_a_list_of_results_too_long_for_a_li"[:40]
WIDE_BLOCKS = (
    spec_variety.BLOCK_VALUES[0].replace("  s:", f"  {LONG}:").replace("/ s)", f"/ {LONG})"),
    spec_variety.BLOCK_VALUES[0].replace("  q:", f"  {LONG}: bf16[m, n]\n  q:", 1) + f"  {LONG}: acc * 2\n",
)
OF_ROWS = (
    gemm_specs.PLAIN.replace("  d:", "  w: f32[m]\n  s: f32[m, n/64]\n  d:")
    + "epilogue:\n  x: acc * w\n  s: max_abs(x, n, 64) / (448 + w)\n  d: x / s\n"
)
TILE_BEFORE = (
    gemm_specs.PLAIN.replace("  d:", "  c: bf16[m, n]\n  s: f32[m, n/64]\n  d:")
    + "epilogue:\n  x: acc + c\n  s: max_abs(x, n, 64) / 448\n  d: x / s\n"
)
SWITCHED = BOXED.replace("  d: bf16[l", "  beta: f32\n  d: bf16[l").replace("acc + c", "acc + beta * c")
GEMM += [gemm_specs.PLAIN + "invariance: batch\n", ALIASED, GATED_BLOCKS, GATED_BLOCKS + SWAPPED, OF_ROWS, TILE_BEFORE]
GEMM += [form + "tiling: {tile: [128, 64, 64], swap_ab: true}\n" for form in (OF_ROWS, TILE_BEFORE, *WIDE_BLOCKS)]
GEMM += [*WIDE_BLOCKS, *(SWITCHED.replace("SCHEDULE", schedule) for schedule in ("cooperative", "pingpong"))]
GEMM += [gemm_specs.gathered(gemm_specs.PLAIN) + "tiling: {split_k: 2, tile: [128, 128, 64], cluster: [1, 1]}\n"]
GEMM += [
    gemm_specs.OFFSETS.replace("  d:", "  r: f32[m]\n  d:") + "epilogue: {d: acc, r: 'sum(acc * acc, n)'}\n",
    gemm_specs.PLAIN.replace("m, n]", "m, n/2]")
    + HALVES
    + "tiling: {cluster: [1, 1], split_k: 2, split_k_sum: ordered_cluster}\n",
]
TOP = "a_name_that_makes_the_list_of_the_results_too_long"[:36]
WIDE_REDUCTION = (
    gemm_specs.PLAIN.replace("  d:", "  s: f32[m, n/64]\n  u: f32[m, n/64]\n  d:")
    + f"epilogue:\n  {TOP}: relu(acc)\n  {TOP}_2: acc + 1\n  s: max_abs({TOP}, n, 64) / 448\n"
    + f"  u: max_abs({TOP}_2, n, 64) / 448\n  d: acc / s\n"
)
GEMM += [WIDE_REDUCTION, WIDE_REDUCTION + "tiling: {tile: [128, 64, 64], swap_ab: true}\n"]
GEMM += [GATED_BLOCKS.replace("sa: f32[m, ceil(k/128)]@m", "sa: f32[]")]
GEMM += [GATED_BLOCKS.replace(":n/2", "0::2").replace("n/2:", "1::2") + SWAPPED]
GEMM += [gemm_specs.PLAIN.replace("sm_90a", "[sm_90a, sm_100a]")]
GATED_BLOCKED = gemm_specs.PLAIN.replace("  d: bf16[m, n]", "  w: f32[]\n  s: f32[m, n/256]\n  d: bf16[m, n/2]")
GATED_BLOCKED = GATED_BLOCKED.replace("sm_90a", "sm_100a")
GATED_BLOCKED += "epilogue: {x: 'w * acc[:, :n/2] * acc[:, n/2:]', s: 'max_abs(x, n, 128) / 448', d: x / s}\n"
OF_BOTH = gemm_specs.PLAIN.replace("  d:", "  r: f32[m]\n  c: f32[n]\n  d:")
OF_BOTH += "epilogue: {r: 'sum(acc, n)', c: 'max(acc, m)', d: acc}\n"
GEMM += [OF_BOTH.replace("sm_90a", "sm_100a"), GATED_BLOCKED]
GEMM += [gemm_specs.PLAIN.replace("sm_90a", "sm_100a") + "scheduler: clc\ntiling: {cluster: [1, 1]}\n"]
IN_PARTS = gemm_specs.PLAIN.replace("sm_90a", "sm_100a").replace(
    "  d: bf16[m, n]", "  c: bf16[m, n/2]\n  d: bf16[m, n/2]"
)
GEMM += [IN_PARTS + "epilogue: {d: 'acc[:, :n/2] * acc[:, n/2:] + c'}\ntiling: {split_k: 2}\n"]
# With what else `auto` takes for other extents: several modules, and tilings that a call chooses among.
PORTFOLIOS = (
    gemm_specs.PLAIN,
    OMITTED,
    gemm_specs.LABELS,
    gemm_specs.COUNTS + "dims: {n: 4096, k: 4096}\n",
    UPDATED.replace("SCHEDULE", "cooperative"),
    BOXED.replace("SCHEDULE", "cooperative"),
    *spec_variety.BLOCK_VALUES,
)
