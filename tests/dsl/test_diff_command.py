"""`cutegen diff` on files and on revisions of a repository, with real compiled code."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from gemm_specs import PLAIN

from cutegen.build.facts import find_nvdisasm
from cutegen.cli import main

pytestmark = [
    pytest.mark.dsl,
    pytest.mark.skipif(importlib.util.find_spec("cutlass") is None, reason="nvidia-cutlass-dsl is not installed"),
    pytest.mark.skipif(find_nvdisasm() is None, reason="nvidia-cuda-nvdisasm is not installed"),
]
ROOT = Path(__file__).parents[2]
OTHERS = [python for python in os.environ.get("CUTEGEN_DSL_PYTHONS", "").split(os.pathsep) if python]
TUNED = "gemm_bf16_bias_gelu_sm90a"
BEFORE = PLAIN + "portfolio: 1\ntiling: {tile: [128, 128, 64]}\npipeline: {stages: 4}\n"


def git(folder: Path, *arguments: str) -> None:
    who = {f"GIT_{who}_{what}": f"a@b.{who}" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    environment = {**os.environ, **who, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
    subprocess.run(["git", *arguments], cwd=folder, env=environment, check=True, capture_output=True)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "product.yaml").write_text(BEFORE)
    return tmp_path


@pytest.fixture
def repository(folder: Path) -> Path:
    """Two commits: in the second a knob, in the files as they are a comment has changed as well."""
    git(folder, "init", "-q", "-b", "main")
    for text in (BEFORE, BEFORE.replace("stages: 4", "stages: 3")):
        (folder / "product.yaml").write_text(text)
        git(folder, "add", ".")
        git(folder, "commit", "-q", "-m", "change")
    (folder / "product.yaml").write_text("# as it is\n" + (folder / "product.yaml").read_text())
    return folder


def compared(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> Any:
    capsys.readouterr()
    assert main(["diff", *arguments, "--json"]) == code
    (found,) = json.loads(capsys.readouterr().out)
    return found


def test_a_knob_between_revisions(repository: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = compared(capsys, "HEAD~1..HEAD", "product.yaml")
    assert found["keys"] == [{"name": "pipeline.stages", "old": 4, "new": 3}]
    (tiling,) = found["tilings"]
    changes = {c["name"]: (c["old"], c["new"]) for c in tiling["changes"]}
    assert tiling["code"] == "changed"
    assert changes["stages"] == (4, 3)
    assert changes["smem_bytes"][0] - changes["smem_bytes"][1] == 32768
    assert compared(capsys, "main..", ".")["same"]  # the comment is not part of the meaning
    assert compared(capsys, "HEAD~1..HEAD~1", "product.yaml", "--exit-code")["same"]
    assert main(["diff", "HEAD~1..", "product.yaml", "--exit-code"]) == 1
    text = capsys.readouterr().out
    assert re.search(r"pipeline.stages +4 +3\n", text)
    assert "stages 4 -> 3 (-25.0%)" in text
    assert "tilings, by their code: 1 changed" in text
    assert main(["diff", "HEAD~1..", "product.yaml", "--markdown"]) == 0
    assert "| pipeline.stages | 4 | 3 |" in capsys.readouterr().out


def test_two_specs_of_the_same_kernel_have_the_same_code(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Their names are part of the cubin, and not of the instructions."""
    (folder / "other.yaml").write_text(BEFORE)
    found = compared(capsys, "product.yaml", "other.yaml", "--exit-code")
    assert [t["code"] for t in found["tilings"]] == ["identical"]
    (folder / "other.yaml").write_text(BEFORE.replace("[128, 128, 64]", "[128, 256, 64]"))
    found = compared(capsys, "product.yaml", "other.yaml", "--exit-code", code=1)
    assert sorted(t["code"] for t in found["tilings"]) == ["added", "removed"]
    found = compared(capsys, "product.yaml", "other.yaml", "--no-build")
    assert not any(c["name"] == "registers" for t in found["tilings"] for c in t["changes"])


def test_winners_of_another_epilogue_are_stale(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, change in ((f"{TUNED}.yaml", ("gelu_tanh(", "relu(")), (f"{TUNED}.lock.yaml", ("", ""))):
        text = (ROOT / "specs" / name).read_text()
        (folder / name).write_text(text)
        (folder / name.replace(TUNED, "changed")).write_text(text.replace(*change))
    found = compared(capsys, f"{TUNED}.yaml", "changed.yaml", "--no-build")
    assert [(c["name"], c["new"]) for c in found["keys"]] == [("epilogue.d", "relu(acc + bias)")]
    assert {w["state"] for w in found["winners"]} == {"stale"}
    assert all("what was measured is another problem" in w["why"] for w in found["winners"])
    assert any(w["gain"] and w["gain"] > 1 for w in found["winners"])
    shape = ["--shape", "m=64,n=4096,k=4096"]
    times = compared(capsys, f"{TUNED}.yaml", "changed.yaml", "--no-build", *shape)["times"]
    assert [(t["how"], t["new"] is None) for t in times] == [("predicted", False), ("measured on NVIDIA H200", True)]
    assert all(0 < us < 100 for t in times for us, _ in (t["old"],))
    assert main(["diff", f"{TUNED}.yaml", "changed.yaml", "--no-build", "--markdown", *shape]) == 0
    assert "| m=64 n=4096 k=4096 | predicted |" in capsys.readouterr().out
    assert main(["diff", "nvidia-cutlass-dsl==4.7.1..", "changed.yaml", *shape]) == 2
    (folder / "changed.lock.yaml").unlink()
    found = compared(capsys, f"{TUNED}.yaml", "changed.yaml", "--no-build")
    assert {w["state"] for w in found["winners"]} == {"dropped"}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["nowhere..HEAD", "product.yaml"], "'nowhere' is not a commit of this repository"),
        (["--", "-p..HEAD", "product.yaml"], "'-p' is not a commit of this repository"),
        (["HEAD~1..HEAD", "later.yaml"], "HEAD~1 has no later.yaml"),
        (["product.yaml"], "two specs are compared, and there are 1"),
        (["HEAD~1..HEAD"], "of which specs?"),
        (["../missing.yaml", "product.yaml"], "missing.yaml: cannot be read"),
        (["HEAD~1..HEAD", "broken.yaml"], "HEAD:broken.lock.yaml"),
    ],
)
def test_what_cannot_be_compared(
    arguments: list[str], said: str, repository: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (repository / "later.yaml").write_text(BEFORE)
    (repository / "broken.yaml").write_text(BEFORE)
    git(repository, "add", "broken.yaml")
    git(repository, "commit", "-q", "-m", "a spec")
    (repository / "broken.lock.yaml").write_text("not: [a lock")
    git(repository, "add", "broken.lock.yaml")
    git(repository, "commit", "-q", "-m", "its lock")
    assert main(["diff", *arguments]) == 2
    assert said in capsys.readouterr().err


def test_a_folder_without_a_repository(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(folder.parent))
    assert main(["diff", "HEAD..", "product.yaml"]) == 2
    assert "not a git repository" in capsys.readouterr().err
    monkeypatch.setenv("PATH", str(folder))
    assert main(["diff", "HEAD..", "product.yaml"]) == 2
    assert "needs git, which is not installed" in capsys.readouterr().err


@pytest.mark.parametrize("python", [sys.executable, *OTHERS[:1]])
def test_another_version_of_the_dsl(
    python: str, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In an environment that is there already: this one, which makes the same SASS, or an older one."""
    monkeypatch.setattr("cutegen.cli.upgrade.make_environment", lambda requirement, where: Path(python))
    small = PLAIN + "portfolio: 1\ntiling: {tile: [64, 64, 64], cluster: [1, 1]}\n"
    (folder / "product.yaml").write_text(small)
    assert main(["doctor", "--upgrade", "nvidia-cutlass-dsl==4.6.9", "product.yaml", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["upgrade"].endswith("-> 4.6.9")
    (tiling,) = found["specs"][0]["tilings"]
    assert (found["ok"], found["worse"]) == (True, [])
    assert tiling["code"] == "identical" or python in OTHERS
    assert main(["diff", "nvidia-cutlass-dsl==4.6.9..", "product.yaml"]) == 0
    assert "tilings, by their code: 1 " in capsys.readouterr().out
    assert main(["doctor", "--upgrade", "4.6.9", "product.yaml", "--markdown"]) == 0
    assert "1 kernels of 1 specs: none got worse" in capsys.readouterr().out
