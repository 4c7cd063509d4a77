"""Operands that are ready before the kernel in front ends: who decides whether they are loaded before the wait."""

from __future__ import annotations

from dataclasses import replace

import pytest
from gemm_specs import EDGES, H200, LABELS, PLAIN, SM90, gathered, resolve_text, values

from cutegen.diagnostics import SpecError
from cutegen.families.gemm.cost_model import Shape
from cutegen.families.gemm.search_space import explore
from cutegen.render import render_package


@pytest.mark.parametrize(
    ("text", "ahead"),
    [
        (PLAIN + "dims: {m: 16, n: 4096, k: 4096}\npdl: {ready: [b]}\n", (False, True)),
        (PLAIN + "dims: {m: 16, n: 4096, k: 4096}\npdl: {ready: [b, a]}\n", (False, True)),
        (PLAIN + "dims: {m: 16, n: 4096, k: 4096}\npdl: {ready: [b], wait: false}\n", (False, False)),
        (PLAIN + "dims: {m: 512, n: 4096, k: 4096}\npdl: {ready: [b]}\n", (False, False)),
        (PLAIN + "dims: {m: 16, n: 4096, k: 4096}\n", (False, False)),
        (PLAIN + "pdl: {ready: [b]}\n", (False, False)),
        (LABELS + "pdl: {ready: [b]}\n", (False, False)),
        (PLAIN + "dims: {m: 4096, n: 16, k: 4096}\npdl: {ready: [a]}\n", (True, False)),
        (gathered(PLAIN, "copy") + "dims: {m: 16, n: 4096, k: 4096}\npdl: {ready: [a, b]}\n", (False, False)),
    ],
)
def test_what_is_ready_is_loaded_ahead_where_rows_are_few(text: str, ahead: tuple[bool, bool]) -> None:
    found = resolve_text(text)
    c = found.resolved.default.candidate
    assert (c.load_ahead_a, c.load_ahead_b) == ahead
    told = [key for key in values(found) if key.endswith("load_ahead")]
    assert told == [
        f"tma.{name}.load_ahead" for name in "ab" if name in text.partition("ready: [")[2].partition("]")[0]
    ]


@pytest.mark.parametrize(
    ("tail", "reason"),
    [
        ("pdl: {ready: [b], wait: false}\n", "pdl.wait is false"),
        ("pdl: {ready: [b]}\ninstances: [{m: 16}, {m: 128}]\n", "more than 64 rows"),
        ("pdl: {ready: [b]}\n", "at most 64 rows of the other operand: 0 to 10% less"),
    ],
)
def test_why_it_is_loaded_ahead_or_not(tail: str, reason: str) -> None:
    rows = "" if "instances" in tail else "m: 16, "
    found = resolve_text(PLAIN + f"dims: {{{rows}n: 4096, k: 4096}}\n" + tail)
    (decision,) = [d for d in found.resolved.decisions if d.key == "tma.b.load_ahead"]
    assert decision.reason.startswith(reason)


@pytest.mark.parametrize(
    ("tail", "told"),
    [
        ("pdl: {ready: [b, b]}\n", "`b` is named twice"),
        ("pdl: {ready: [d]}\n", "`d` is not multiplied by the mainloop"),
        ("pdl: {ready: [w]}\n", "no tensor is named"),
        ("pdl: {ready: b}\n", "write [b]"),
        ("tune: {schedule: pingpong}\n", "write [pingpong]"),
        ("tune: {load_ahead_b: [true, false]}\n", "pdl.ready does not name `b`"),
        ("pdl: {ready: [b]}\ntune: {load_ahead_a: [true]}\n", "pdl.ready does not name `a`"),
    ],
)
def test_promises_that_are_none(tail: str, told: str) -> None:
    with pytest.raises(SpecError) as caught:
        resolve_text(PLAIN + tail)
    assert told in str(caught.value)


def test_both_ways_to_load_what_is_ready_are_tried() -> None:
    resolution = resolve_text(PLAIN + "pdl: {ready: [b]}\n")
    problem = resolution.resolved.problem
    found = explore(problem, {}, SM90, H200, Shape(16, 4096, 4096), unordered=False)
    tried = [f.candidate for f in found if not f.refusals]
    assert tried[0].load_ahead_b
    varied = [c for c in tried if not c.load_ahead_b]
    assert varied
    assert all(replace(c, load_ahead_b=True) in tried for c in varied)
    assert not any(c.load_ahead_a for c in tried)


@pytest.mark.parametrize(
    ("name", "operands"),
    [("loaded_ahead", ["B"]), ("loaded_ahead_transposed", ["A"]), ("both_loaded_ahead_of_parts", ["A", "B"])],
)
def test_the_module_says_what_comes_before_the_wait(name: str, operands: list[str]) -> None:
    """By the names of the spec, whichever operand of the MMA it is."""
    text = render_package(resolve_text(EDGES[name]).resolved).files["kernel.py"]
    what = "tiles of a and tiles of b" if len(operands) == 2 else "tiles of b"
    assert f"the ring's first slots get their {what} before" in text
    body = text[text.index("def load_ahead(") : text.index("def load(")]
    assert [x for x in "AB" if f"p.tma_atom_{x}" in body] == operands
