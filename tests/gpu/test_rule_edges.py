"""What the rules accept computes the right thing: specs at every edge, and any others, on the GPU."""

from __future__ import annotations

import math
from functools import cache
from pathlib import Path

import pytest
from gemm_specs import CONSTANTS, EDGE_SHAPES, EDGES, random_specs

from cutegen.render import render_package, write_package
from cutegen.resolve import resolve_document
from cutegen.run.output_check import judge, reference_outputs
from cutegen.run.shapes import product_space
from cutegen.run.subject import load_subject
from cutegen.spec import load_text

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.gpu

SEED, DRAWN = 1, 24


@cache
def specs() -> dict[str, str]:
    """To draw them takes a second, which processes that only collect the tests have no use for."""
    return {**EDGES, **CONSTANTS, **random_specs(SEED, DRAWN)}


@pytest.mark.parametrize("name", [*EDGES, *CONSTANTS, *(f"random_{SEED}_{i}" for i in range(DRAWN))])
def test_numerics(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUTEGEN_CACHE", "0")
    resolved = resolve_document(load_text(specs()[name], name), None).resolved
    write_package(render_package(resolved), tmp_path / "generated")
    subject = load_subject(tmp_path / "generated" / name)
    plan = subject.plan
    assert plan
    for shape in EDGE_SHAPES:
        dims = product_space(subject).legal(shape)
        inputs = plan.prepare_inputs(**dims)
        outputs = plan.allocate_outputs(*inputs)
        for output in outputs:
            output.fill_(math.nan)
        plan.launch_fn(*inputs, *outputs)
        for i, (output, reference) in enumerate(zip(outputs, reference_outputs(subject, inputs))):
            _, found = judge(i, output, reference, inputs, subject, dims)
            assert not found.mismatches, (dims, resolved.tilings[0].numbers, found)
