""".pre-commit-hooks.yaml: what pre-commit runs exists, passes where all is well, and fails where it is not."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
from gemm_specs import PLAIN
from ruamel.yaml import YAML

from cutegen.cli import main

HOOKS = YAML(typ="safe").load(Path(__file__).parents[2] / ".pre-commit-hooks.yaml")


@pytest.mark.parametrize("hook", HOOKS, ids=lambda hook: hook["id"])
def test_a_hook(
    hook: dict[str, object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    program, *arguments = shlex.split(str(hook["entry"]))
    assert (program, hook["language"], hook["pass_filenames"]) == ("cutegen", "python", False)
    monkeypatch.chdir(tmp_path)
    spec = tmp_path / "kernels" / "mine.yaml"
    spec.parent.mkdir()
    spec.write_text(PLAIN)
    assert main(arguments) == 2  # nothing says which specs
    assert "[tool.cutegen]" in capsys.readouterr().err
    (tmp_path / "pyproject.toml").write_text('[tool.cutegen]\nspecs = ["kernels"]\n')
    assert main(["render"]) == 0
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    assert main(arguments) == 0
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before
    spec.write_text(PLAIN + "pipeline: {stages: 99}\n")
    assert main(arguments) == 1
