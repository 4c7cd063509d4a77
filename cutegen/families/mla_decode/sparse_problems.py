"""Problems with sparse keys to check a plan by."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from cutegen.arch import MOST_SMS
from cutegen.families.proving import ALL_MODES, Mode, Problem
from cutegen.runtime.arguments import Extent
from cutegen.runtime.mla_decode.inputs import EDGES, Draw
from cutegen.runtime.mla_decode.plan import MlaPlan
from cutegen.runtime.mla_decode.tiling import KEY_BLOCK


def list_sparse_problems(plan: MlaPlan) -> Iterator[Problem]:
    """One index up to the most, lengths around every edge of blocks, rows that are named twice, indices of no row, both
    ends of the promised ranges."""
    (few, many), (low, high) = ends(plan.query_len), ends(plan.heads)
    odd, short, edges = min(high, low + 1 | 1), max(EDGES), len(EDGES) + 1
    _, most = ends(plan.topk)
    holes = Draw("random", keys="holes")
    for key in plan.tilings:
        problem = partial(_problem, plan, key)
        yield problem("one index", Draw(), 1, few, low, 1)
        yield problem("one block", Draw(), 1, many, high, KEY_BLOCK)
        yield problem("an odd number of indices", Draw(peaked=True), 3, few, odd, 2 * KEY_BLOCK + 1)
        yield problem("edges of blocks", Draw("edges"), edges, few, odd, short, modes=ALL_MODES)
        yield problem("edges, last keys decide", Draw("edges", peaked=True), edges, many, odd, short)
        yield problem("indices of no row", holes, 5, many, odd, 700, modes=ALL_MODES)
        yield problem("indices of no row, most heads", holes, 40, few, high, 300)
        yield problem("no index is a row", Draw(keys="none"), 3, many, low, 100)
        yield problem("rows named twice", Draw("random", keys="repeated", peaked=True), 5, many, odd, 500)
        yield problem("most rows", Draw("random", peaked=True), 5, many, high, 700)
        yield problem("most indices", Draw(peaked=True), 2, few, high, most)
        yield problem("one token, many parts", Draw(), 1, few, low, most)
        yield problem("long tail", Draw("long", peaked=True), 40, many, low, most, modes=ALL_MODES)
        yield problem("more tokens than SMs", Draw("random"), 2 * MOST_SMS + 5, few, low, 200)
        yield problem("no keys at all", Draw("empty"), 4, many, low, KEY_BLOCK)
        yield problem("pages of a pool of layers", Draw("random", pitch=True), 7, many, odd, 500)


def list_small_sparse_problems(plan: MlaPlan, sms: int) -> Iterator[Problem]:
    """The same on a GPU of so few SMs, in seconds on a CPU."""
    (few, many), (low, high) = ends(plan.query_len), ends(plan.heads)
    odd, some = min(high, low + 1 | 1), min(many, 2)
    for key in plan.tilings:
        problem = partial(_problem, plan, key)
        yield problem("one index", Draw(), 1, few, low, 1)
        yield problem("edges of blocks", Draw("edges", peaked=True), sms + 3, few, odd, 2 * KEY_BLOCK + 1)
        yield problem("tokens in parts", Draw("random", peaked=True), sms + 1, few, odd, (sms + 1) * KEY_BLOCK + 5)
        yield problem("indices of no row", Draw("random", keys="holes"), 2, some, odd, 150, modes=("strides",))
        yield problem("rows named twice", Draw("random", keys="repeated"), 1, some, high, 130)
        yield problem("no index is a row", Draw(keys="none"), 1, few, low, 70)
        yield problem("pages of a pool of layers", Draw("random", pitch=True), 2, few, odd, KEY_BLOCK + 9)
        yield problem("no keys at all", Draw("empty"), 2, few, low, KEY_BLOCK)


def _problem(
    plan: MlaPlan, key: str, name: str, draw: Draw, *extents: int, modes: Sequence[Mode] = ("numerics",)
) -> Problem:
    """extents: of the plan's dims, the last within its promise."""
    *others, topk = extents
    fewest, most = ends(plan.topk)
    return Problem(name, dict(zip(plan.dims, (*others, min(max(topk, fewest), most)))), key, tuple(modes), draw)


def ends(extent: Extent | None) -> tuple[int, int]:
    """(low, high) of a promise, which the caller knows to end."""
    assert extent is not None
    low, high = (extent, extent) if isinstance(extent, int) else extent
    assert high is not None
    return low, high
