"""The nearest problems that kernels take, whatever is asked for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from gemm_specs import EDGE_SHAPES, EDGES, resolve_text

pytest.importorskip("torch")

from cutegen.render import render_package, write_package
from cutegen.run.shapes import product_space
from cutegen.run.subject import load_subject
from cutegen.runtime.call_faults import find_faults

# Edges whose extents are bound to something: a constant, 8-bit operands, scales of blocks, groups, gathered rows.
BOUND = (
    "odd_columns", "integers", "fast_accumulation", "scales_of_blocks", "scales_of_blocks_turned",
    "scales_of_blocks_transposed_in_two_waves", "most_accumulators_with_labels", "gathered_by_one_warp_in_pingpong",
)  # fmt: skip


@pytest.mark.parametrize("name", BOUND)
def test_kernels_take_the_shapes_that_edges_run_on(name: str, tmp_path: Path) -> None:
    resolved = resolve_text(EDGES[name]).resolved
    write_package(render_package(resolved), tmp_path)
    subject = load_subject(tmp_path / resolved.name)
    plan: Any = subject.plan
    plan.device = "cpu"
    for shape in EDGE_SHAPES[:2]:
        dims = product_space(subject).legal(shape)
        assert set(dims) == set(plan.dims)
        assert all(dims[d] == promised for d, promised in plan.dims.items() if isinstance(promised, int))
        values = plan.prepare_inputs(**dims)
        values += plan.allocate_outputs(*values)
        assert not list(find_faults(plan.dims, (*plan.inputs, *plan.outputs), values, "cpu", plan.reduced))
    assert product_space(subject).legal({"nothing": 3}) == {}
