"""warm_up in processes: kernels are compiled by children, and found in the cache."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest
from gemm_specs import PLAIN, resolve_text

from cutegen.render import render_package, write_package

pytestmark = [
    pytest.mark.dsl,
    pytest.mark.skipif(importlib.util.find_spec("cutlass") is None, reason="nvidia-cutlass-dsl is not installed"),
]
REPOSITORY = Path(__file__).parents[2]
SPEC = PLAIN + (
    "tiling: {tile: [64, 32, 64]}\nwarpgroups: {schedule: cooperative, consumer: {count: 1}}\n"
    "portfolio:\n  - {tile: [64, 16, 64]}\n"
)
WARM_UP = """
import subprocess
import twice
ran, failed = [], []
run = subprocess.run
def counted(command, **options):
    done = run(command, **options)
    ran.append(command[4:])
    failed.append(done.returncode)
    return done
subprocess.run = counted
plan = twice.PLAN
plan.warm_up(processes=2)
print(sorted(plan._kernels) == sorted(plan.tilings), failed, sorted(key for keys in ran for key in keys))
"""


def test_children_compile_and_this_process_loads(tmp_path: Path) -> None:
    resolved = resolve_text(SPEC, name="twice").resolved
    write_package(render_package(resolved), tmp_path)
    environment = {
        **os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{REPOSITORY}", "CUTEGEN_CACHE_DIR": str(tmp_path / "cache"),
    }  # fmt: skip

    def warm_up() -> str:
        command = [sys.executable, "-c", WARM_UP]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    names = sorted(t.name for t in resolved.tilings)  # type: ignore[attr-defined]
    assert len(names) == 2
    assert warm_up() == f"True [0, 0] {names}"
    entries = {p: p.stat().st_mtime_ns for p in (tmp_path / "cache").rglob("*") if p.name == "kernel.cubin"}
    assert len(entries) == 2
    assert warm_up() == f"True [0, 0] {names}"
    assert entries == {p: p.stat().st_mtime_ns for p in entries}


def test_artefacts_of_one_kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of the tiling that was chosen, compiled or from the cache."""
    from cutegen.build.cubin import read_cubin
    from cutegen.run.subject import load_subject
    from cutegen.runtime.base import CuteKernel

    write_package(render_package(resolve_text(SPEC, name="kept").resolved), tmp_path)
    plan = load_subject(tmp_path / "kept").plan
    assert plan
    for key, where in zip(plan.tilings, ("first", "again")):
        kernel = CuteKernel(
            plan.kernel_fn, plan.launch_fn, (), (), plan.tilings[key], {}, lambda: (0, 0), plan=plan, key=key
        )
        files = kernel.compile(tmp_path / where)
        assert {"kernel.ptx", "kernel.cubin", "kernel.o"} <= set(files)
        assert all(path.is_file() and path.stat().st_size for path in files.values())
        (code,) = read_cubin(files["kernel.cubin"].read_bytes())
        assert code.code
        assert kernel.compile(tmp_path / "once more").keys() == files.keys()
    loader = sys.modules[type(plan).__module__].load_kernel.__module__
    monkeypatch.delattr(f"{loader}.keep_artefacts")
    with pytest.raises(RuntimeError, match="a bundle has no artefacts"):
        kernel.compile(tmp_path / "bundle")
