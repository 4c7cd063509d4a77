"""Calls of a bundle, in a process without a compiler, against those of the package."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import cutegen
from cutegen.cli import main

torch = pytest.importorskip("torch")

pytestmark = pytest.mark.gpu

ROOT = Path(__file__).parents[2]
CALLS = """
import sys
for name in ("cutlass", "cuda", "cutegen"):
    sys.modules[name] = None
import torch
from served.NAME import PLAN
op = PLAN.register_torch_op()
results = []
for inputs in torch.load("inputs.pt"):
    inputs = [x.cuda() for x in inputs]
    results.append((PLAN(*inputs).cpu(), op(*inputs).cpu()))
x = [value.cuda() for value in torch.load("inputs.pt")[0]]
out = PLAN.allocate_outputs(*x)
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    PLAN.launch_fn(*x, *out)
graph.replay()
torch.cuda.synchronize()
torch.save((results, out[0].cpu(), sorted(PLAN._kernels)), "results.pt")
"""


@pytest.mark.parametrize(
    ("name", "shapes"),
    [
        ("gemm_bf16_bias_gelu_sm90a", [(m, 4096, 4096) for m in (1, 16, 64, 500, 4096)]),
        ("gemm_bf16_swiglu_sm90a", None),
    ],
)
def test_a_bundled_call_has_the_bits_of_the_packages(
    name: str, shapes: list[tuple[int, int, int]] | None, tmp_path: Path
) -> None:
    spec = ROOT / "specs" / f"{name}.yaml"
    assert main(["bundle", str(spec), "-o", str(tmp_path / "served")]) == 0
    plan = cutegen.load(spec)
    free = [dim for dim, extent in plan.dims.items() if not isinstance(extent, int)]
    problems = [dict(zip("mnk", s)) for s in shapes] if shapes else [dict.fromkeys(free, e) for e in (256, 1024)]
    inputs = [plan.prepare_inputs(**dims) for dims in problems]
    expected = [plan(*values).cpu() for values in inputs]
    torch.save([[x.cpu() for x in values] for values in inputs], tmp_path / "inputs.pt")
    environment = dict(os.environ, CUTEGEN_CACHE="0")
    code = CALLS.replace("NAME", name)
    run = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    results, replayed, keys = torch.load(tmp_path / "results.pt")
    for want, (called, through_op) in zip(expected, results, strict=True):
        assert torch.equal(want, called)
        assert torch.equal(want, through_op)
    assert torch.equal(expected[0], replayed)
    assert keys == sorted(plan._kernels)
