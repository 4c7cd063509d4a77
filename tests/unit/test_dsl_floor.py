"""The lowest DSL: one number, declared, tested, and told where an older one is installed."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace

import pytest

from cutegen.build import doctor
from cutegen.build.doctor import TESTED_DSL
from cutegen.build.trial import try_compiler
from cutegen.runtime import compile as compiler
from cutegen.runtime.cache import KernelCache
from cutegen.runtime.sources import DSL_FLOOR, DSL_REQUIREMENT, TVM_FFI_REQUIREMENT

ROOT = Path(__file__).parents[2]
FLOOR = ".".join(map(str, DSL_FLOOR))


def test_what_is_declared_is_what_ci_tests() -> None:
    declared = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert f'"{DSL_REQUIREMENT}"' in declared
    assert f'"{TVM_FFI_REQUIREMENT}"' in declared
    low, high = re.fullmatch(r"nvidia-cutlass-dsl>=([\d.]+),<([\d.]+)", DSL_REQUIREMENT).groups()
    assert low == FLOOR
    script = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    tested = [tuple(map(int, v.split("."))) for v in re.search(r'^versions="(.*)"$', script, re.M)[1].split()]
    assert min(tested) == DSL_FLOOR
    assert TESTED_DSL[0] == DSL_FLOOR[:2]
    assert tuple(map(int, high.split("."))) == (TESTED_DSL[1][0], TESTED_DSL[1][1] + 1)


@pytest.mark.parametrize("version", [(4, 6, 1), (4, 5), (3, 9, 9)])
def test_an_older_dsl_is_refused_before_anything_is_traced(
    version: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compiler, "dsl_version", lambda: version)
    said = f"nvidia-cutlass-dsl {'.'.join(map(str, version))} is too old, kernels need {FLOOR} or later"
    compiling = compiler.compile_kernel(KernelCache(None), "0" * 64, "no.such.module", None, "sm_90a")
    with pytest.raises(ImportError, match=re.escape(f"{said}: pip install '{DSL_REQUIREMENT}'")), compiling:
        pass


def test_a_trial_that_hangs_dies_or_fails_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the DSL should be lies something else."""
    driver = tmp_path / "cuda" / "__init__.py"
    driver.parent.mkdir(parents=True)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")  # the file changes within the second that bytecode goes by
    driver.write_text("import time; time.sleep(60)")
    assert try_compiler("sm_90a", timeout_s=0.5).error == "no answer in 0 s"
    driver.write_text("import os; print('last words', flush=True); os._exit(3)")
    assert try_compiler("sm_90a").error == "the compiler died: exit code 3; last words"
    driver.write_text("raise TypeError('set_name_prefix() got an unexpected keyword argument')")
    assert "TypeError: set_name_prefix() got" in try_compiler("sm_90a").error


@pytest.mark.dsl
def test_a_trial_compiles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And keeps nothing."""
    pytest.importorskip("cutlass")
    monkeypatch.setenv("CUTEGEN_CACHE_DIR", str(tmp_path / "cache"))
    assert try_compiler("sm_90a").error == ""
    assert not (tmp_path / "cache").exists()
    assert try_compiler("sm_1").error


def test_wheels_of_several_versions(monkeypatch: pytest.MonkeyPatch) -> None:
    """They share folders: what pip left of them compiles nothing, or worse."""
    versions = {"nvidia_cutlass_dsl": "4.6.2", "nvidia_cutlass_dsl_libs_base": "4.5.0", "apache_tvm_ffi": "0.1.9"}
    monkeypatch.setattr(doctor, "distribution_versions", lambda: versions)
    monkeypatch.setattr(doctor, "find_nvdisasm", lambda: "/opt/nvdisasm")
    monkeypatch.setattr(doctor, "dsl_version", lambda: (4, 6, 2))
    monkeypatch.setattr(doctor.importlib.util, "find_spec", lambda name: SimpleNamespace(origin=None))
    monkeypatch.setattr(doctor, "try_compiler", lambda arch: pytest.fail("nothing is to be tried"))
    items, verdicts = doctor.examine()
    (wheels,) = [item for item in items if item.name == "DSL wheels"]
    assert wheels.ok is False
    assert "nvidia-cutlass-dsl 4.6.2, nvidia-cutlass-dsl-libs-base 4.5.0" in wheels.value
    assert "pip uninstall -y nvidia-cutlass-dsl nvidia-cutlass-dsl-libs-base && pip install" in wheels.remedy
    build = next(v for v in verdicts if v.command == "build")
    assert not build.ok
    assert "several versions" in build.why
    versions["nvidia_cutlass_dsl_libs_base"] = "4.6.2"
    monkeypatch.setattr(doctor, "dsl_version", lambda: (4, 6, 1))
    items, verdicts = doctor.examine()
    assert "too old: kernels need 4.6.2 or later" in next(i.value for i in items if i.name == "CuTe DSL")
    assert not next(v.ok for v in verdicts if v.command == "build")
