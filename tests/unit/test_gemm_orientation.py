"""swap_ab: the problem in the kernel's frame, what rules blame there, and when `auto` chooses it."""

from __future__ import annotations

import pytest
from gemm_specs import FUSED, PLAIN, SM90, bind_text, candidate, resolve_text, values

from cutegen.families.gemm.cost_model import Shape
from cutegen.families.gemm.orientation import kernel_frame, kernel_shape, transpose
from cutegen.families.gemm.rules import refusals
from cutegen.families.gemm.tiling_numbers import derive

DECODE = PLAIN + "dims: {n: 4096, k: 4096}\nm: [8, 16]\n"


def test_the_transposed_problem_computes_the_same_output() -> None:
    problem = bind_text(FUSED.replace("bf16[m, k]", "bf16[k, m]"))
    t = transpose(problem)
    assert (t.m.name, t.n.name, t.k.name) == ("n", "m", "k")
    assert (t.a.name, t.a.major, t.b.name, t.b.major) == ("b", "k", "a", "n")
    kinds = {o.name: (o.kind, o.major, o.axes) for o in t.epilogue.operands}
    assert kinds == {
        "bias": ("column_vector", None, (0,)),
        "scale": ("row_vector", None, (0,)),
        "alpha": ("host_scalar", None, ()),
        "residual": ("tile", "m", (1, 0)),
    }
    assert [(o.name, o.major, o.axes) for o in t.epilogue.outputs] == [("d", "m", (1, 0))]
    assert transpose(t) == problem


def test_knobs_of_a_tensor_go_with_the_tensor() -> None:
    problem = bind_text(PLAIN)
    c = candidate(problem, swap_ab=True, multicast_a=1, multicast_b=2, swizzle_a=64, swizzle_b=128)
    framed, k = kernel_frame(problem, c)
    assert (framed.a.name, k.multicast_a, k.multicast_b, k.swizzle_a, k.swizzle_b) == ("b", 2, 1, 128, 64)
    assert kernel_frame(framed, k) == (problem, c)
    assert kernel_shape(Shape(16, 4096, 512), c) == Shape(4096, 16, 512)
    same = candidate(problem)
    assert kernel_frame(problem, same) == (problem, same)


def test_epilogue_vectors_follow_the_frame() -> None:
    problem = bind_text(FUSED)
    c = candidate(problem, swap_ab=True, tile=(128, 32, 64), cluster=(1, 1), multicast_b=1)
    sizes = {r.name: r.bytes for r in derive(*kernel_frame(problem, c)).smem}
    assert (sizes["sBias"], sizes["sScale"]) == (128 * 4, 32 * 4)


def test_a_refusal_blames_the_knob_of_the_tensor() -> None:
    problem = bind_text(PLAIN)
    c = candidate(problem, swap_ab=True, multicast_b=1, multicast_a=4)
    (found,) = refusals(problem, c, SM90)
    assert (found.rule, found.knobs[0]) == ("multicast", "multicast_a")
    assert "multicast 4 of `a`" in found.reason
    assert "2 CTAs along m" in found.reason


@pytest.mark.parametrize(
    ("text", "swapped"),
    [
        (PLAIN, False),
        (DECODE.replace("n: 4096", "n: 8192"), True),
        (DECODE, True),
        (DECODE + "tiling: {split_k: 1}\n", True),
        (DECODE.replace("bf16[m, k]", "bf16[k, m]") + "tiling: {split_k: 1}\n", True),
        (DECODE.replace("8, 16", "128"), False),  # rows fill tiles
    ],
)
def test_auto_transposes_where_rows_are_few(text: str, swapped: bool) -> None:
    assert values(resolve_text(text))["tiling.swap_ab"] is swapped


def test_comments_of_a_plan_say_what_its_numbers_are() -> None:
    text = PLAIN + "tiling: {tile: [128, 208, 64], cluster: [1, 1], swap_ab: true, split_k: 2, "
    text += "split_k_sum: ordered_parallel}\n"
    tiling, *_ = resolve_text(text).resolved.tilings
    assert (tiling.numbers.epilogue_tile[1], tiling.numbers.covers) == (16, (208, 128))
    assert tiling.sources["epilogue_tile"].endswith(", 16 columns: widest of 32, 16, 8 that divides tile n")
    assert tiling.sources["covers"] == "tile x cluster, transposed: (m, n) of the product"
