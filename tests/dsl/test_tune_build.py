"""Candidates of a tune compiled for real, several structures in one package; who measures finds them in the cache."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

import pytest
from gemm_specs import PLAIN
from scripted_backend import ScriptedMeasuring

from cutegen.build.facts import find_nvdisasm
from cutegen.cli import main
from cutegen.resolve import lock_path, read_lock, resolve_file
from cutegen.runtime.cache import KernelCache, default_root
from cutegen.runtime.compile import instance_key
from cutegen.tune import session
from cutegen.tune.store import TimingStore

pytestmark = [
    pytest.mark.dsl,
    pytest.mark.skipif(importlib.util.find_spec("cutlass") is None, reason="nvidia-cutlass-dsl is not installed"),
    pytest.mark.skipif(find_nvdisasm() is None, reason="nvidia-cuda-nvdisasm is not installed"),
]
LISTS = "tune: {tile: [[64, 32, 64], [128, 128, 64]], cluster: [[1, 1]], schedule: [cooperative, pingpong]}\n"


class Measuring(ScriptedMeasuring):
    """Notes under which keys the measuring process looks for the kernels of the package."""

    keys: dict[str, str]

    def make_script(self, package: Path) -> Any:
        sys.path.insert(0, str(package.parent))
        try:
            plan = importlib.import_module(f"{package.name}.plan")
            self.keys = {}
            for key, tiling in plan.TILINGS.items():
                path = package / f"{plan.MODULES[key]}.py"
                text = path.read_text()
                name = f"{package.name}.{plan.MODULES[key]}"
                self.keys[key] = instance_key(text, name, path, tiling, "sm_90a")
        finally:
            sys.path.remove(str(package.parent))
            for name in [m for m in sys.modules if m.partition(".")[0] == package.name]:
                del sys.modules[name]
        return super().make_script(package)


@pytest.mark.parametrize("budget_s", [float("inf"), 300.0])
def test_candidates_of_several_structures(budget_s: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUTEGEN_CACHE_DIR", str(tmp_path / "cache"))
    spec = tmp_path / "tuned_kernel.yaml"
    spec.write_text(PLAIN + LISTS + "portfolio: 1\n")
    assert main(["lock", str(spec)]) == 0
    log = tmp_path / "log"
    log.write_text("")
    measuring = Measuring(log, lambda tiling: 1e-6 * tiling.tile[0] / (1 + tiling.stages / 100))
    store = TimingStore(None)
    options = session.Options(budget_s)
    report = session.Session(spec, measuring, store, options).run([{"m": 64, "n": 4096, "k": 4096}])
    (problem,) = report.problems
    assert len(problem.trials) == 4
    assert [t.fault for t in problem.trials] == [None] * 4
    assert all(t.timing for t in problem.trials)
    assert report.seconds < 200
    cache = KernelCache(default_root())
    assert all(cache.find(key) for key in measuring.keys.values())
    assert len(measuring.keys) == 5
    lock = read_lock(lock_path(spec))
    assert lock
    (winner,) = lock.winners
    assert winner.tiling.startswith("t64x32x64")
    # The package that is rendered from the lock builds as well.
    assert resolve_file(spec, locked=True).resolved.tilings[-1].name == winner.tiling
    assert main(["build", str(spec)]) == 0
