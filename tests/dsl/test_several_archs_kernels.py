"""The kernels of a package for several architectures: each is built, executed on the CPU, and part of a bundle."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest

pytest.importorskip("numpy")
pytest.importorskip("torch")

from gemm_specs import PLAIN

from cutegen.build.facts import find_nvdisasm
from cutegen.cli import main
from cutegen.machine import Simulation, assert_passes, load
from cutegen.machine.host import missing_tool
from cutegen.run.subject import list_plans

pytestmark = [
    pytest.mark.dsl,
    pytest.mark.skipif(importlib.util.find_spec("cutlass") is None, reason="nvidia-cutlass-dsl is not installed"),
    pytest.mark.skipif(find_nvdisasm() is None, reason="nvidia-cuda-nvdisasm is not installed"),
    pytest.mark.skipif(missing_tool() is not None, reason=str(missing_tool())),
]
ARCHS = ("sm_90a", "sm_100a")
BOTH = (
    PLAIN.replace("sm_90a", "[sm_90a, sm_100a]")
    + """\
portfolio: 1
tiling: {tile: [128, 64, 64], cluster: [1, 1]}
for: {sm_90a: {warpgroups: {schedule: cooperative}}}
"""
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("archs")
    (folder / "gemm_both.yaml").write_text(BOTH)
    assert main(["render", str(folder / "gemm_both.yaml"), "-o", str(folder / "out")]) == 0
    return folder


def test_each_is_built_as_planned(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["build", str(folder / "gemm_both.yaml"), "--keep", str(folder / "kept")]) == 0
    said = capsys.readouterr().out
    assert all(f"gemm_both ({arch})" in said for arch in ARCHS)
    code = {arch: next(folder.glob(f"kept/gemm_both/{arch}/*/*.sass")).read_text() for arch in ARCHS}
    assert "HGMMA" in code["sm_90a"]
    assert "UTCHMMA" in code["sm_100a"]
    assert "HGMMA" not in code["sm_100a"]


def test_each_is_right_on_the_cpu(folder: Path) -> None:
    plans = list_plans(folder / "out" / "gemm_both")
    assert [path.stem for path in plans] == ["plan_sm_100a", "plan_sm_90a"]
    for path in plans:
        subject = load(path, simulation := Simulation(strict=True))
        assert_passes(subject, {"m": 136, "n": 72, "k": 136})
        assert simulation.launches == 1


def test_check_tells_them_apart(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shape = ["--orders", "1", "--shape", "m=8,n=8,k=8"]
    assert main(["check", "--on", "cpu", *shape, "--json", str(folder / "out" / "gemm_both")]) == 0
    found = json.loads(capsys.readouterr().out)["checks"]
    assert [check["name"] for check in found] == [f"gemm_both ({arch})" for arch in ("sm_100a", "sm_90a")]


def test_a_bundle_has_all_of_them(folder: Path) -> None:
    assert main(["bundle", str(folder / "gemm_both.yaml"), "-o", str(folder / "served")]) == 0
    manifest = json.loads((folder / "served" / "manifest.json").read_text())
    assert manifest["specs"]["gemm_both"]["arch"] == "sm_90a sm_100a"
    assert [(k["arch"], k["module"]) for k in manifest["kernels"]] == [(arch, f"kernel_{arch}") for arch in ARCHS]
    header = (folder / "served" / "served.h").read_text()
    assert all(f"served_pick_gemm_both_{arch}(" in header for arch in ARCHS)
    assert (folder / "served" / "gemm_both" / "plan_sm_100a.py").is_file()
