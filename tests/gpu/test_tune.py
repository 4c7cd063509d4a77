"""`cutegen tune` on the GPU: a few candidates from the command line to a dispatch that runs them."""

from __future__ import annotations

import importlib
import json
import os
import time
from pathlib import Path

import pytest

from cutegen.cli import main
from cutegen.run.check import check_kernel
from cutegen.tune.gpu import GpuMeasuring
from cutegen.tune.measuring_process import CandidateFault

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.gpu

# The default is far from what 16 rows want, so that something wins.
SPEC = """\
cutegen: 1
kernel: gemm
arch: sm_90a
tensors:
  a: bf16[m, k]
  b: bf16[n, k]
  d: bf16[m, n]
tune: {tile: [[64, 64, 64], [64, 128, 64], [128, 64, 64]], cluster: [[1, 1]]}
invariance: batch
"""
SHAPE = ["--shape", "m=16,n=4096,k=4096"]


@pytest.fixture
def spec(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("CUTEGEN_CACHE_DIR", str(tmp_path / "cache"))
    path = tmp_path / "tuned_rows.yaml"
    path.write_text(SPEC)
    return path


def test_from_candidates_to_a_dispatch(
    spec: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["tune", str(spec), *SHAPE, "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    (problem,) = result["problems"]
    assert problem["counts"]["candidates"] == problem["counts"]["measured"] == 3
    assert result["device"] == torch.cuda.get_device_name()
    assert problem["winner"], problem["verdict"]
    assert all(c["samples"]["baseline_name"] == "torch.mm" for c in problem["candidates"])
    start = time.monotonic()
    assert main(["tune", str(spec), *SHAPE, "--json"]) == 0
    assert time.monotonic() - start < 10
    again = json.loads(capsys.readouterr().out)
    assert again["problems"][0]["counts"]["from_store"] == 3
    assert not again["lock_written"]
    assert main(["render", str(spec), "-o", str(tmp_path)]) == 0
    monkeypatch.syspath_prepend(tmp_path)
    plan = importlib.import_module("tuned_rows.plan").PLAN
    default = plan.dispatch(m=4096, n=4096, k=4096)
    assert plan.dispatch(m=16, n=4096, k=4096) != default
    inputs = plan.prepare_inputs(m=16, n=4096, k=4096)
    torch.testing.assert_close(plan.kernel_fn(*inputs), plan.reference_fn(*inputs), atol=2e-2, rtol=2e-2)
    report = check_kernel(tmp_path / "tuned_rows")
    assert report.ok, "\n".join((report.summary(), *report.findings()))
    assert any(r.case.mode == "rows" and r.status == "pass" for r in report.results)


def test_a_lost_context_costs_one_process(spec: Path, tmp_path: Path) -> None:
    from cutegen.render import render_package, write_package
    from cutegen.resolve import resolve_file

    resolved = resolve_file(spec).resolved
    write_package(render_package(resolved), tmp_path)
    station = GpuMeasuring().station(tmp_path / resolved.name)
    try:
        station.start()
        station.open({"m": 64, "n": 256, "k": 256}, resolved.default.name)
        assert station.admit(resolved.default.name) == ""
        assert station._child
        os.kill(station._child.process.pid, 9)
        with pytest.raises(CandidateFault, match="SIGKILL"):
            station.sample(resolved.default.name, 0.01)
        assert not station.alive
        station.start()
        station.open({"m": 64, "n": 256, "k": 256}, resolved.default.name)
        assert station.admit(resolved.default.name) == ""
        assert station.sample(resolved.default.name, 0.01) > 0
    finally:
        station.end()
