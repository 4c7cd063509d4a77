"""A spec on standard input, as an editor or a hook has it: `-`, named by --stdin-filename."""

from __future__ import annotations

import io
import json
from pathlib import Path
from types import SimpleNamespace

import pytest
from gemm_specs import PLAIN

from cutegen.cli import main


@pytest.fixture
def typed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Puts text on standard input."""
    monkeypatch.chdir(tmp_path)

    def put(text: str) -> None:
        monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(text.encode())))

    return put


def test_findings_name_the_file_that_is_being_written(typed, capsys: pytest.CaptureFixture[str]) -> None:
    Path("mine.yaml").write_text(PLAIN)  # what is typed counts, not this
    typed(PLAIN + "colour: red\n")
    assert main(["validate", "-", "--stdin-filename", "mine.yaml", "--json"]) == 1
    (result,) = json.loads(capsys.readouterr().out)
    assert (result["spec"], result["findings"][0]["rule"]) == ("mine.yaml", "unknown-key")
    typed(PLAIN)
    assert main(["validate", "-"]) == 0
    assert capsys.readouterr().out == "stdin.yaml: ok\n"
    typed(PLAIN)
    assert main(["validate", "-", "--stdin-filename", "2gemm.yaml"]) == 1
    assert "2gemm" in capsys.readouterr().err


def test_explain_and_resolve(typed, capsys: pytest.CaptureFixture[str]) -> None:
    for command, said in (("explain", "mine: "), ("resolve", "mine.yaml: kernel ")):
        typed(PLAIN)
        assert main([command, "-", "--stdin-filename", "mine.yaml"]) == 0
        assert said in capsys.readouterr().out
    assert list(Path().iterdir()) == []


def test_render_compares_and_honours_the_lock_beside(typed, capsys: pytest.CaptureFixture[str]) -> None:
    Path("mine.yaml").write_text(PLAIN)
    assert main(["render", "mine.yaml"]) == 0
    before = {path: path.read_bytes() for path in Path().rglob("*") if path.is_file()}
    typed(PLAIN)
    assert main(["render", "--check", "-", "--stdin-filename", "mine.yaml"]) == 0
    typed(PLAIN)
    assert main(["render", "--origin", "-", "--stdin-filename", "mine.yaml", "--file", "kernel.py"]) == 0
    typed(PLAIN + "pipeline: {stages: 3}\n")
    capsys.readouterr()
    assert main(["render", "--diff", "-", "--stdin-filename", "mine.yaml"]) == 1
    out, err = capsys.readouterr()
    assert "+    stages=3," in out.replace(" " * 8, " " * 4)
    assert "pipeline.stages: the spec now says 3" in err
    typed(PLAIN)
    assert main(["render", "-", "--stdin-filename", "mine.yaml"]) == 2
    assert "with --check, --diff or --origin" in capsys.readouterr().err
    assert {path: path.read_bytes() for path in Path().rglob("*") if path.is_file()} == before


@pytest.mark.parametrize("words", [["render", "--check"], ["render", "--diff", "--locked"], ["resolve", "--locked"]])
def test_a_lock_has_to_be_named(words: list[str], typed, capsys: pytest.CaptureFixture[str]) -> None:
    typed(PLAIN)
    assert main([*words, "-"]) == 2
    err = capsys.readouterr().err
    assert "--stdin-filename NAME" in err
    assert "stdin.yaml" not in err


@pytest.mark.parametrize("command", ["lock", "pin", "build", "run", "tune", "check", "bench"])
def test_other_commands_do_not_read_it(command: str, typed, capsys: pytest.CaptureFixture[str]) -> None:
    typed(PLAIN)
    assert main([command, "-"]) == 2
    assert "does not read a spec from standard input" in capsys.readouterr().err


def test_it_is_read_once_and_may_be_closed(
    typed, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    typed(PLAIN)
    assert main(["validate", "-", "-"]) == 0
    assert capsys.readouterr().out == "stdin.yaml: ok\n"
    typed("")
    assert main(["validate", "-"]) == 1
    assert "stdin.yaml: the file is empty" in capsys.readouterr().err
    typed("x" * 2_000_000)
    assert main(["validate", "-"]) == 1
    assert "file-size" in capsys.readouterr().err
    monkeypatch.setattr("sys.stdin", None)
    assert main(["validate", "-"]) == 2
    assert "standard input is closed" in capsys.readouterr().err
