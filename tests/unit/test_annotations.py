"""--output-format github: each finding as a workflow command, escaped, next to the text that people read."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from gemm_specs import PLAIN

from cutegen.build.contract import Check
from cutegen.cli import main
from cutegen.cli.annotations import annotate, annotation
from cutegen.diagnostics import CutegenError

GITHUB = ["--output-format", "github"]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("GITHUB_WORKSPACE", raising=False)
    Path("plain.yaml").write_text(PLAIN)
    return tmp_path


def annotations(out: str) -> list[str]:
    return [line for line in out.splitlines() if line.startswith("::error")]


def test_validate(capsys: pytest.CaptureFixture[str]) -> None:
    Path("bad.yaml").write_text(PLAIN + "colour: red\n")
    assert main(["validate", *GITHUB, "plain.yaml", "bad.yaml"]) == 1
    out, err = capsys.readouterr()
    (line,) = annotations(out)
    place = PLAIN.count("\n") + 1
    head = f"::error file=bad.yaml,line={place},endLine={place},col=1,endColumn=6,title=cutegen%3A unknown-key::"
    assert line.startswith(head)
    assert "bad.yaml:" in err  # for people who read the log


def test_a_finding_without_a_place_is_at_its_spec(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["lock", "--check", *GITHUB, "plain.yaml"]) == 1
    assert annotations(capsys.readouterr().out) == [
        "::error file=plain.yaml::plain.yaml has no lock%0Arun `cutegen lock plain.yaml` and commit the lock"
    ]


def test_render_marks_what_has_drifted(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["render", "plain.yaml"]) == 0
    Path("generated/plain/plan.py").write_text("# mine\n")
    Path("generated/plain/kernel.py").unlink()
    capsys.readouterr()
    assert main(["render", "--check", "--output-format=github", "plain.yaml"]) == 1
    remedy = "%0Arun `cutegen render plain.yaml` and commit the result"
    assert annotations(capsys.readouterr().out) == [
        f"::error file=plain.yaml::generated/plain/kernel.py is missing{remedy}",
        f"::error file=generated/plain/plan.py::generated/plain/plan.py is changed{remedy}",
    ]


@pytest.mark.parametrize("asked", [GITHUB, ["--output-format=github"]])
def test_an_error_that_ends_the_command(asked: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["validate", *asked, "nothing.yaml"]) == 2
    (line,) = annotations(capsys.readouterr().out)
    assert line.startswith("::error::nothing.yaml does not exist%0A")
    assert main(["validate", "nothing.yaml"]) == 2
    assert capsys.readouterr().out == ""


def test_json_may_be_asked_for_in_either_way(capsys: pytest.CaptureFixture[str]) -> None:
    main(["validate", "--json", "plain.yaml"])
    printed = capsys.readouterr().out
    main(["validate", "--output-format", "json", "plain.yaml"])
    assert capsys.readouterr().out == printed
    assert main(["validate", "--output-format", "xml", "plain.yaml"]) == 2


def test_escapes() -> None:
    """As GitHub's runner takes them apart: `%`, line ends; in properties `:` and `,` as well. Nothing turns the log
    around or moves its cursor."""
    line = annotation("100%\r\nof: a, b", Path("a,b:c%.yaml"), "x", {"line": 3})
    assert line == "::error file=a%2Cb%3Ac%25.yaml,line=3,title=cutegen%3A x::100%25\\r%0Aof: a, b"
    assert annotate(CutegenError("::set-output name=x::y\n::stop", details=["::stop"])) == [
        "::error::::set-output name=x::y\\n::stop%0A  ::stop"
    ]
    assert annotation("\u202e\x1b[2J", Path("a\x9b.yaml")) == r"::error file=a\x9b.yaml::\u202e\x1b[2J"


def test_files_are_named_from_the_checkout(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wherever in it the command runs."""
    inner = folder / "inner"
    inner.mkdir()
    monkeypatch.setenv("GITHUB_WORKSPACE", str(folder))
    monkeypatch.chdir(inner)
    named = [re.search("file=(.*)::x", annotation("x", Path(p)))[1] for p in ("a.yaml", "../a.yaml", "/else/a.yaml")]
    assert named == ["inner/a.yaml", "a.yaml", "/else/a.yaml"]


def test_code_that_is_not_as_planned_is_marked_at_its_spec(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(kernels: list[Any], **options: object) -> list[SimpleNamespace]:
        check = Check("mma", "64x256x16", "none", False, "no MMA")
        outcome = SimpleNamespace(
            error="TypeError: no\nway", facts=None, log="", warnings=(), cached=False, unknown=False
        )
        found = {"spec": "plain", "shown": "plain", "arch": "sm_90a", "ok": False, "outcome": outcome}
        return [SimpleNamespace(tiling=f"t{i}", checks=checks, **found) for i, checks in enumerate(((check,), ()))]

    monkeypatch.setattr("cutegen.build.kernels.build_kernels", fail)
    assert main(["build", *GITHUB, "plain.yaml"]) == 1
    assert annotations(capsys.readouterr().out) == [
        "::error file=plain.yaml::t0: the code is not what was planned%0Amma: planned 64x256x16, found none: no MMA",
        "::error file=plain.yaml::t1 does not compile: TypeError: no%0Away",
    ]
