"""Launches that overlap by programmatic dependent launch: each reads what the one in front writes, and shares its
scratch. Their bits are those of launches that wait for one another."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from gemm_specs import AHEAD, DYNAMIC, LABELS, OFFSETS, PINGPONG, PLAIN, resolve_text

from cutegen.render import render_package, write_package
from cutegen.run.subject import load_subject

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.gpu

ONE = "warpgroups: {schedule: cooperative, consumer: {count: 1}}\n"
SPLIT = "tiling: {tile: [64, 64, 64], cluster: [1, 1], split_k: 4, split_k_sum: %s}\n" + ONE
REDUCED = PLAIN.replace("  d:", "  r: f32[m]\n  d:") + "epilogue: {d: acc, r: 'max_abs(acc, n)'}\n"
SPECS = {
    "default": PLAIN,
    "transposed": PLAIN + PINGPONG + "tiling: {tile: [64, 32, 64], swap_ab: true}\n",
    "ahead": PLAIN + AHEAD,
    "ahead_transposed": PLAIN + AHEAD + PINGPONG + "tiling: {tile: [64, 32, 64], swap_ab: true}\n",
    "ahead_dynamic": PLAIN + AHEAD + DYNAMIC + "tiling: {tile: [64, 64, 64], cluster: [2, 1]}\n",
    "ahead_split": PLAIN + AHEAD + SPLIT % "ordered_parallel",
    "dynamic": PLAIN + DYNAMIC + "tiling: {tile: [64, 64, 64], cluster: [2, 1]}\n",
    "split": PLAIN + SPLIT % "ordered_parallel",
    "split_dynamic": PLAIN + DYNAMIC + SPLIT % "ordered_turnstile",
    "reduced": REDUCED + "tiling: {tile: [64, 64, 64]}\n",
    "added": PLAIN.replace("  d:", "  h: f32[m, n]\n  d:") + "epilogue: {d: acc, h: h + acc}\n",
    "labels": LABELS + "tiling: {tile: [128, 64, 64]}\n",
    "offsets": OFFSETS + "tiling: {tile: [128, 64, 64]}\n",
}
DIMS = {"m": 512, "n": 512, "k": 512, "g": 4}  # a tile or less for each SM: what surrounds it counts
LAUNCHES, REPLAYS = 32, 20


class Chain:
    """Launches of which each has the d of the one in front as its a."""

    def __init__(self, plan: Any, dims: dict[str, int]) -> None:
        self.plan = plan
        self.start = plan.prepare_inputs(**{dim: dims[dim] for dim in plan.dims})
        self.inputs = [value.clone() for value in self.start]
        self.outputs = [value.zero_() for value in plan.allocate_outputs(*self.inputs)]
        self.d = [o.name for o in plan.fresh_outputs].index("d")
        assert plan.inputs[0].name == "a"

    def reset(self) -> None:
        for value, first in zip(self.inputs, self.start):
            value.copy_(first)
        for value in self.outputs:
            value.zero_()

    def launch(self, count: int, between: Callable[[], None] = lambda: None) -> None:
        inputs, outputs = list(self.inputs), list(self.outputs)
        for _ in range(count):
            self.plan.launch_fn(*inputs, *outputs)
            inputs[0], outputs[self.d] = outputs[self.d], inputs[0]
            between()

    def results(self) -> list[Any]:
        return [value.clone() for value in (*self.inputs, *self.outputs)]


@pytest.mark.parametrize("name", SPECS)
def test_bits_are_those_of_launches_that_wait_for_one_another(name: str, tmp_path: Path) -> None:
    resolved = resolve_text(SPECS[name]).resolved
    assert resolved.default.candidate.pdl_wait
    assert resolved.default.candidate.pdl_trigger == "last_tile"
    write_package(render_package(resolved), tmp_path)
    plan = load_subject(tmp_path / resolved.name).plan
    assert plan
    plan.warm_up()
    chain = Chain(plan, DIMS)
    chain.launch(LAUNCHES, torch.cuda.synchronize)
    expected = chain.results()
    assert all(value.isfinite().all() for value in expected if value.is_floating_point())
    assert expected[0].abs().max() > 0.1  # the chain has not died out
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        chain.launch(LAUNCHES)
    for _ in range(REPLAYS):
        chain.reset()
        graph.replay()
        torch.cuda.synchronize()
        assert all(torch.equal(*pair) for pair in zip(chain.results(), expected))
