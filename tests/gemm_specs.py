"""Specs as text, and the shortest way from one to what it resolves to."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from cutegen.arch import ARCHS, DEVICES
from cutegen.diagnostics import SpecError
from cutegen.families.gemm.auto import Choice, choose
from cutegen.families.gemm.binding import bind
from cutegen.families.gemm.candidate import Candidate
from cutegen.families.gemm.cores import GRID
from cutegen.families.gemm.problem import GemmProblem
from cutegen.resolve import Lock, Resolution, resolve_document
from cutegen.spec import load_text, parse_spec

PLAIN = """\
cutegen: 1
kernel: gemm
arch: sm_90a
tensors:
  a: bf16[m, k]
  b: bf16[n, k]
  d: bf16[m, n]
"""
# One tiling, and no portfolio with it: for tests about something else that resolve files or documents.
ALONE = PLAIN + "portfolio: 1\n"
FUSED = """\
cutegen: 1
kernel: gemm
arch: sm_90a
tensors:
  a: bf16[m, k]
  b: bf16[n, k]
  bias: f32[n]
  scale: f32[m]
  alpha: f32
  residual: bf16[m, n]
  d: bf16[m, n]
epilogue:
  d: gelu_tanh(alpha * scale * acc + bias) + residual
"""
# Rows in groups, in the three forms.
LABELS = """\
cutegen: 1
kernel: gemm
arch: sm_90a
tensors:
  a: bf16[m, k]
  b: bf16[g, n, k]
  group: i32[m]
  d: bf16[m, n]
groups: {labels: group}
"""
COUNTS = """\
cutegen: 1
kernel: gemm
arch: sm_90a
tensors:
  a: bf16[g, m, k]
  b: bf16[g, n, k]
  rows: i32[g]
  d: bf16[g, m, n]
groups: {counts: rows}
"""
OFFSETS = LABELS.replace("group: i32[m]", "ends: i32[g]").replace("labels: group", "offsets: ends")


def gathered(text: str, how: str = "cp_async") -> str:
    """A spec whose rows an index gathers from an `a` with others; the mainloop is the default, or scaled. how: the knob
    `gather`; "": `auto`."""
    text = text.replace("[m, k]", "[t, k]\n  rows: i32[m]", 1) + gather_knob(how)
    return text.replace("(a * sa)", "(a[rows] * sa)") if "mainloop:" in text else text + "mainloop: a[rows] @ b\n"


def gather_knob(how: str) -> str:
    return f"tma: {{a: {{gather: {how}}}}}\n" if how else ""


def gathered_scales(text: str, rows_contiguous: bool = False, how: str = "cp_async") -> str:
    """A scaled spec whose rows an index gathers, and scales with them: their blocks of k lie side by side, or rows."""
    text += gather_knob(how)
    text = text.replace("[m, k]", "[t, k]\n  rows: i32[m]", 1).replace("(a * sa)", "(a * sa)[rows]")
    blocks = "sa: f32[t, ceil(k/128)]" + "@t" * rows_contiguous
    return text.replace("sa: f32[m, ceil(k/128)]@m", blocks).replace("sa: f32[m]", "sa: f32[t]")


def group_scaled(text: str) -> str:
    """LABELS, COUNTS or OFFSETS with e4m3 operands and scales of blocks."""
    lead = "g, " if text == COUNTS else ""
    scales = f"  sa: f32[{lead}m, ceil(k/128)]@m\n  sb: f32[g, ceil(n/128), ceil(k/128)]\n  d:"
    operands = text.replace("a: bf16", "a: e4m3").replace("b: bf16", "b: e4m3")
    return operands.replace("  d:", scales) + "mainloop: (a * sa) @ (b * sb)\n"


def group_quantised(text: str) -> str:
    """LABELS or OFFSETS with e4m3 operands, scales of blocks, and swiglu quantised by blocks of columns."""
    text = group_scaled(text).replace("ceil(n/128)", "n/128")
    text = text.replace("  d: bf16[m, n]\n", "  q: e4m3[m, n/2]\n  scale: f32[m, n/256]@m\n")
    return text + (
        "epilogue:\n  x: round_bf16(silu(acc[:, :n/2]) * acc[:, n/2:])\n"
        "  scale: max(max_abs(x, n, 128), 1e-4) / 448\n  q: x / scale\n"
    )


def group_fused(text: str) -> str:
    """LABELS or OFFSETS with values for each group, for each row and for each element."""
    operands = "  bias: f32[g, n]\n  scale: f32[g]\n  weight: f32[m]\n  c: bf16[m, n]\n  d: bf16[m, n]\n"
    return text.replace("  d: bf16[m, n]\n", operands) + "epilogue: {d: weight * silu(scale * acc + bias) + c}\n"


# One spec at the edge of each register and SMEM rule, and of each layout. The most accumulators in pingpong and of one
# consumer are those of kernels that keep more beside them: labels, and sums of parts.
PINGPONG = "warpgroups: {schedule: pingpong}\n"
N_MAJOR_B = PLAIN.replace("b: bf16[n, k]", "b: bf16[k, n]")
EDGES = {
    "most_accumulators_of_two_consumers": FUSED + "tiling: {tile: [256, 208, 64]}\n",
    "widest_mma_of_three_consumers": FUSED.replace("d: bf16[m, n]", "d: e4m3[n, m]")
    + "warpgroups: {consumer: {count: 3}}\ntiling: {tile: [192, 200, 64]}\n",
    "tallest_tile": FUSED + "warpgroups: {consumer: {count: 3}}\ntiling: {tile: [384, 128, 64], cluster: [2, 1]}\n",
    "smallest_tile": FUSED + PINGPONG + "tiling: {tile: [64, 8, 16], cluster: [1, 1]}\n",
    "narrowest_slices": N_MAJOR_B + "tiling: {tile: [128, 128, 64], cluster: [2, 1]}\n",
    "m_major_everything": PLAIN.replace("bf16[m, k]", "bf16[k, m]").replace("bf16[m, n]", "f32[n, m]"),
    "odd_columns": PLAIN + "dims: {n: 513}\n",
    "odd_everything": FUSED.replace("residual: bf16[m, n]", "residual: f32[m]")
    + PINGPONG
    + "tma: {d: {store: direct}}\ntiling: {tile: [128, 208, 64]}\n",
    "most_accumulators_with_labels": group_fused(LABELS) + PINGPONG + "tiling: {tile: [128, 208, 64]}\n",
    "most_accumulators_with_offsets": group_fused(OFFSETS) + "tiling: {tile: [256, 208, 64]}\n",
    "four_ctas_that_round_to_f16": PLAIN + "epilogue: {d: round_f16(acc)}\ntiling: {cluster: [2, 2]}\n",
    "transposed": FUSED + "tiling: {swap_ab: true, tile: [128, 16, 128], cluster: [2, 1]}\n",
    "transposed_pingpong": FUSED + PINGPONG + "tiling: {swap_ab: true, tile: [64, 40, 64], cluster: [1, 2]}\n",
}
REDUCED = PLAIN.replace("  d:", "  rows: f32[m]\n  columns: f32[n]\n  c: f32[m, n]\n  d:") + PINGPONG
EDGES |= {
    "row_sums_beside_f32_tiles": REDUCED.replace("  columns: f32[n]\n", "")
    + "epilogue: {d: acc + c, rows: 'sum(square(d), n)'}\n",
    "column_sums_in_pingpong": REDUCED.replace("  rows: f32[m]\n", "").replace("  c: f32[m, n]\n", "")
    + "epilogue: {d: gelu_erf(acc), columns: 'max(acc, m)'}\n",
    "row_and_column_sums_in_pingpong": REDUCED
    + "epilogue: {d: gelu_tanh(acc) + c, rows: 'max_abs(d, n)', columns: 'max(d, m)'}\n",
    "stored_beside_its_blocks_in_pingpong": PLAIN.replace("  d:", "  s: f32[m, ceil(n/128)]\n  q: e4m3[m, n]\n  d:")
    + "epilogue: {d: acc, s: 'max(max_abs(stored(d), n, 128), 1e-4) / 448', q: stored(d) / s}\n"
    + PINGPONG,
}
AHEAD = "pdl: {ready: [b]}\ntma: {b: {load_ahead: true}}\n"
DYNAMIC = "scheduler: dynamic_persistent\n"
EDGES |= {
    "loaded_ahead": FUSED + AHEAD + "tiling: {tile: [128, 64, 64], cluster: [2, 1]}\n",
    "loaded_ahead_transposed": PLAIN
    + AHEAD
    + PINGPONG
    + DYNAMIC
    + "tiling: {swap_ab: true, tile: [64, 32, 64], cluster: [1, 2]}\n",
    "gathered_beside_loaded_ahead": gathered(PLAIN, "")
    + "pdl: {ready: [b]}\ntma: {a: {gather: cp_async}, b: {load_ahead: true}}\n"
    + "tiling: {tile: [64, 64, 64], cluster: [2, 1]}\n",
    "both_loaded_ahead_of_parts": PLAIN
    + "pdl: {ready: [a, b]}\ntma: {a: {load_ahead: true}, b: {load_ahead: true}}\n"
    + "warpgroups: {schedule: cooperative, consumer: {count: 1}}\n"
    + "tiling: {tile: [64, 64, 64], cluster: [1, 1], split_k: 4, split_k_sum: ordered_parallel}\n",
}
FP8 = PLAIN.replace("a: bf16", "a: e4m3").replace("b: bf16", "b: e5m2")
FAST = FP8 + "accumulate: {promote_every: never}\n"
EDGES |= {
    "most_accumulators_with_promotion": FP8 + "tiling: {tile: [128, 208, 128]}\n",
    "promotion_of_two_parts": FP8 + "tiling: {tile: [256, 128, 128], cluster: [1, 2]}\n",
    "promotion_in_pingpong": FP8 + PINGPONG + "tiling: {tile: [128, 128, 128]}\n",
    "promotion_of_three_consumers": FP8
    + "warpgroups: {consumer: {count: 3}}\ntiling: {tile: [192, 128, 256]}\naccumulate: {promote_every: 2}\n",
    "promotion_of_one_consumer": FP8 + "warpgroups: {consumer: {count: 1}}\ntiling: {tile: [128, 128, 128]}\n",
    "fast_accumulation": FAST + "tiling: {tile: [128, 256, 128]}\n",
    "integers": FUSED.replace("a: bf16", "a: i8").replace("b: bf16", "b: i8") + "tiling: {tile: [256, 208, 128]}\n",
}
EDGES |= {
    "turnstile_with_most_accumulators": FUSED
    + "tiling: {tile: [256, 200, 64], split_k: 3, split_k_sum: ordered_turnstile}\n",
    "parallel_sum_with_most_accumulators": FUSED + PINGPONG + DYNAMIC + "tiling: {tile: [128, 208, 64], split_k: 3}\n",
    "atomic_sum_with_most_accumulators": FUSED
    + "warpgroups: {consumer: {count: 1}}\n"
    + "tiling: {tile: [128, 200, 64], split_k: 128, split_k_sum: unordered_atomic}\n",
    "dynamic_with_three_consumers": FUSED
    + DYNAMIC
    + "warpgroups: {consumer: {count: 3}}\ntiling: {tile: [192, 192, 64], cluster: [1, 1]}\n",
    "dynamic_and_split_in_clusters": PLAIN + DYNAMIC + PINGPONG + "tiling: {cluster: [2, 1], split_k: 2}\n",
    "transposed_and_split": FUSED + DYNAMIC + "tiling: {swap_ab: true, tile: [128, 32, 128], split_k: 4}\n",
    "cluster_sum_with_most_accumulators": PLAIN.replace("  d:", "  bias: f32[n]\n  d:")
    + "epilogue: {d: relu(acc + bias)}\n"
    + "warpgroups: {schedule: cooperative, consumer: {count: 1}}\n"
    + "tiling: {tile: [128, 200, 64], cluster: [1, 1], split_k: 2, split_k_sum: ordered_cluster}\n",
    "cluster_sum_of_three_consumers": PLAIN.replace("a: bf16", "a: i8").replace("b: bf16", "b: i8")
    + "warpgroups: {schedule: cooperative, consumer: {count: 3}}\n"
    + "tiling: {tile: [192, 96, 128], cluster: [1, 1], split_k: 3, split_k_sum: ordered_cluster}\n",
    "cluster_sum_of_eight_parts": PLAIN
    + "warpgroups: {schedule: cooperative, consumer: {count: 1}}\n"
    + "tiling: {swap_ab: true, tile: [64, 8, 64], cluster: [1, 1], split_k: 8, split_k_sum: ordered_cluster}\n",
}
BLOCKS = (
    FP8.replace("  d:", "  sa: f32[m, ceil(k/128)]@m\n  sb: f32[ceil(n/128), ceil(k/128)]\n  d:")
    + "mainloop: (a * sa) @ (b * sb)\n"
)
ROW_SCALES = FP8.replace("  d:", "  sa: f32[m]\n  sb: f32[n]\n  d:") + "mainloop: (a * sa) @ (b * sb)\n"
EDGES |= {
    "scales_of_blocks": BLOCKS,
    "scales_of_blocks_in_pingpong": BLOCKS + PINGPONG + "tiling: {tile: [128, 128, 128], cluster: [1, 2]}\n",
    "scales_of_blocks_of_three_consumers": BLOCKS
    + "warpgroups: {consumer: {count: 3}}\ntiling: {tile: [192, 128, 256]}\n",
    "scales_of_blocks_split_in_pingpong": BLOCKS + PINGPONG + "tiling: {tile: [128, 128, 128], split_k: 2}\n",
    "promotion_split_by_atomic_sums": FP8 + DYNAMIC + "tiling: {split_k: 3, split_k_sum: unordered_atomic}\n",
    "scales_of_rows_only": BLOCKS.replace("sb: f32[ceil(n/128), ceil(k/128)]", "sb: f32[n]") + PINGPONG,
    "scales_of_columns_only": BLOCKS.replace("sa: f32[m, ceil(k/128)]@m", "sa: f32[]")
    + "tiling: {tile: [128, 64, 128]}\n",
    "scales_of_blocks_of_integers": BLOCKS.replace("e4m3", "i8").replace("e5m2", "i8"),
    "scales_of_blocks_turned": BLOCKS.replace("f32[m, ceil(k/128)]@m", "f32[ceil(k/128), m]").replace(
        "f32[ceil(n/128), ceil(k/128)]", "f32[ceil(k/128), ceil(n/128)]"
    ),
    "scales_of_blocks_transposed": BLOCKS + "tiling: {swap_ab: true, tile: [128, 160, 128]}\n",
    "scales_of_blocks_transposed_in_two_waves": BLOCKS.replace("n/128", "n/64")
    + "tiling: {swap_ab: true, tile: [256, 16, 256], cluster: [2, 1]}\n",
    "scales_of_blocks_transposed_and_split": BLOCKS
    + PINGPONG
    + "tiling: {swap_ab: true, tile: [128, 96, 128], split_k: 2}\n",
}
# Both x, which is stored, and y are needed again after a block of y was reduced.
TWICE = (
    PLAIN.replace("  d:", "  pre: bf16[m, n]\n  s: f32[m, n/64]\n  top: f32[]\n  d:")
    + "epilogue:\n  pre: acc\n  y: gelu_tanh(acc)\n  s: max_abs(y, n, 64) / 448\n  d: y / s\n"
    + "  top: max_abs(y, m, n)\ntiling: {tile: [128, 256, 64]}\n"
)
EDGES["most_values_computed_twice"] = TWICE
EDGES |= {
    "gathered_by_two_warps": gathered(FUSED) + "tiling: {tile: [256, 176, 64]}\n",
    "gathered_by_one_warp": gathered(FUSED) + DYNAMIC + "tiling: {tile: [128, 128, 64], cluster: [2, 1]}\n",
    "gathered_by_one_warp_in_pingpong": gathered(group_fused(OFFSETS)) + DYNAMIC + PINGPONG,
    "gathered_transposed": gathered(PLAIN) + "tiling: {swap_ab: true, tile: [256, 128, 128], cluster: [1, 2]}\n",
    "gathered_scales_by_one_warp": gathered_scales(BLOCKS, True).replace("  d:", "  c: bf16[m, n]\n  d:")
    + "epilogue: {d: acc + c}\n"
    + DYNAMIC
    + "tiling: {tile: [256, 64, 128]}\n",
    "gathered_scales_transposed": gathered_scales(BLOCKS) + "tiling: {swap_ab: true, tile: [128, 144, 128]}\n",
    "gathered_scales_of_rows": gathered_scales(ROW_SCALES) + PINGPONG + "tiling: {tile: [128, 128, 128]}\n",
    "gathered_scales_gated_and_quantised": gathered_scales(group_quantised(LABELS)),
}
BLOCKS_OF_PAIRS = (
    BLOCKS.replace("ceil(n/128)", "n/128").replace("  d: bf16[m, n]\n", "  q: e4m3[m, n/2]\n  scale: f32[m, n/256]@m\n")
    + "epilogue:\n  scale: max(max_abs(acc[:, :n/2] * acc[:, n/2:], n, 128), 1e-4) / 448\n"
    + "  q: acc[:, :n/2] * acc[:, n/2:] / scale\ntiling: {swap_ab: true, tile: [256, 104, 128]}\n"
)
EDGES["scales_and_blocks_of_pairs"] = BLOCKS_OF_PAIRS
# Constants that fit in a tile, a subtile of the epilogue or a row of one, by tiles of each form.
GATED = PLAIN.replace("d: bf16[m, n]", "d: bf16[m, n/2]") + "epilogue:\n  d: silu(acc[:, :n/2]) * acc[:, n/2:]\n"
CONSTANTS = {
    "constant_columns_of_a_row": PLAIN + "dims: {n: 8}\n",
    "constant_columns_of_a_subtile": FUSED + "dims: {n: 32}\n" + PINGPONG + "tiling: {tile: [128, 128, 64]}\n",
    "constant_columns_of_a_tile": FUSED + "dims: {n: 96}\ntiling: {tile: [128, 64, 64], cluster: [1, 2]}\n",
    "constant_columns_of_pairs": GATED + "dims: {n: 32}\ntiling: {tile: [128, 128, 64]}\n",
    "constant_rows_of_a_warpgroup": FUSED + "dims: {m: 64}\n" + PINGPONG + "tiling: {tile: [128, 64, 64]}\n",
    "constant_rows_of_a_cluster": PLAIN
    + "dims: {m: 64}\ntiling: {tile: [128, 64, 64], cluster: [2, 1], split_k: 2, split_k_sum: unordered_atomic}\n",
    "constant_rows_transposed": FUSED
    + "dims: {m: 16, n: 64}\n"
    + "tiling: {swap_ab: true, tile: [128, 64, 64], cluster: [2, 1]}\n",
    "constant_columns_of_groups": group_fused(OFFSETS) + "dims: {n: 16}\ntiling: {tile: [128, 64, 64]}\n",
    "constant_rows_gathered": gathered(FUSED) + "dims: {m: 24, t: 40, n: 64}\ntiling: {tile: [128, 64, 64]}\n",
    "constant_everything": BLOCKS + "dims: {m: 40, n: 48, k: 96}\ntiling: {tile: [128, 64, 128], cluster: [2, 1]}\n",
}
# Less than a tile, ragged in every dim, more than one wave; three of a batch and of groups.
OTHER_DIMS = {"l": 3, "g": 3, "t": 200}
EDGE_SHAPES = (
    {"m": 8, "n": 8, "k": 8, **OTHER_DIMS},
    {"m": 264, "n": 520, "k": 200, **OTHER_DIMS},
    {"m": 3000, "n": 2504, "k": 328, **OTHER_DIMS},
)
SM90, H200 = ARCHS["sm_90a"], DEVICES["h200"]


def resolve_text(
    text: str, lock: Lock | None = None, name: str = "product", portfolio: bool = False, **flags: bool
) -> Resolution:
    """portfolio: with what else `auto` takes for other extents; it takes a second, and few tests are about it."""
    alone = "portfolio: 1\n" if "kernel: gemm" in text and "portfolio:" not in text and not portfolio else ""
    text += "\n" if alone and not text.endswith("\n") else ""
    return resolve_document(load_text(text + alone, name, f"{name}.yaml"), lock, **flags)


def bind_text(text: str) -> GemmProblem:
    document = load_text(text, "product", "product.yaml")
    return bind(parse_spec(document), document)  # type: ignore[arg-type]


def candidate(problem: GemmProblem, **knobs: Any) -> Candidate:
    """The default candidate of a problem with some knobs replaced, legal or not; threads gather rows."""
    choice = choose(problem, {"gather": "cp_async"} if problem.gather else {}, SM90, H200, ())
    assert isinstance(choice, Choice)
    return replace(choice.candidate, **knobs)


def values(resolution: Resolution) -> Mapping[str, object]:
    """Decided values by dotted knob path."""
    return {d.key: d.value for d in resolution.resolved.decisions}


def random_specs(seed: int, count: int) -> dict[str, str]:
    """Accepted specs of any layout, epilogue, schedule, tile and cluster, by name; the same for the same arguments."""
    rng, found = random.Random(seed), {}
    epilogues = [
        ("", "acc"),
        ("bias: f32[n]", "relu(acc + bias)"),
        ("scale: bf16[m]", "silu(acc * scale)"),
        ("c: bf16[m, n]", "acc + c"),
        ("c: f32[n, m]\n  alpha: f32\n  e: f16[m, n]", "alpha * acc + c * e"),
    ]
    while len(found) < count:
        a, b = rng.choice(("m, k", "k, m")), rng.choice(("n, k", "k, n"))
        d = rng.choice(("bf16[m, n]", "f32[m, n]", "f16[n, m]", "bf16[l, m, n]"))
        batch = "l, " if "l" in d else ""
        extra, expression = rng.choice(epilogues)
        schedule, consumers, tile_m = rng.choice(GRID)
        tile = [tile_m, rng.choice(range(16, 257, 16)), rng.choice((64, 64, 64, 32, 128))]
        cluster = rng.choice(([1, 1], [2, 1], [1, 2], [2, 2], [4, 1]))
        swap_ab = rng.choice(("false", "false", "true"))
        text = (
            f"cutegen: 1\nkernel: gemm\narch: sm_90a\ntensors:\n  a: bf16[{batch}{a}]\n  b: bf16[{b}]\n"
            + (f"  {extra}\n" if extra else "")
            + f"  d: {d}\nepilogue: {{d: {expression}}}\n"
            f"tiling: {{tile: {tile}, cluster: {cluster}, swap_ab: {swap_ab}}}\n"
            f"warpgroups: {{schedule: {schedule}, consumer: {{count: {consumers}}}}}\n"
        )
        text += rng.choice(("", "", "tma: {d: {store: direct}}\n"))
        with contextlib.suppress(SpecError):
            resolve_text(text)
            found[f"random_{seed}_{len(found)}"] = text
    return found
