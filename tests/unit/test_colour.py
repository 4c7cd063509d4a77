"""Colour off a terminal: asked for on the command line or by the environment, whatever comes first."""

from __future__ import annotations

from pathlib import Path

import pytest
from gemm_specs import PLAIN

from cutegen.cli import main


@pytest.mark.parametrize(
    ("environment", "before", "after", "coloured"),
    [
        ({}, [], [], False),
        ({"FORCE_COLOR": "1"}, [], [], True),
        ({"FORCE_COLOR": "0"}, [], [], False),
        ({"FORCE_COLOR": ""}, [], [], False),
        ({"CLICOLOR_FORCE": "1"}, [], [], True),
        ({"FORCE_COLOR": "1", "TERM": "dumb"}, [], [], True),
        ({"FORCE_COLOR": "1", "NO_COLOR": "1"}, [], [], False),
        ({"FORCE_COLOR": "1"}, ["--color", "never"], [], False),
        ({"NO_COLOR": "1"}, ["--color=always"], [], True),
        ({}, [], ["--color", "always"], True),
        ({}, ["--color=always"], ["--color", "never"], False),
    ],
)
def test_colour_follows_the_command_line_then_the_environment(
    environment: dict[str, str],
    before: list[str],
    after: list[str],
    coloured: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for name in ("NO_COLOR", "FORCE_COLOR", "CLICOLOR_FORCE", "TERM"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    (tmp_path / "good.yaml").write_text(PLAIN)
    (tmp_path / "bad.yaml").write_text("cutegen: 1\nkernel: gem\n")
    assert main([*before, "validate", *after, str(tmp_path)]) == 1
    out, err = capsys.readouterr()
    assert ("\x1b[32mok" in out) is coloured
    assert ("\x1b[31m\x1b[1merror[unknown-family]:" in err) is coloured
    assert main(["validate", str(tmp_path / "good.yaml"), "--color", "never"]) == 0  # nothing stays for the next run
    assert "\x1b" not in capsys.readouterr().out


def test_colours_that_a_file_brings_along_are_shown_as_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Black on black hides a line of a diff."""
    monkeypatch.chdir(tmp_path)
    Path("good.yaml").write_text(PLAIN)
    assert main(["render", "good.yaml"]) == 0
    plan = Path("generated/good/plan.py")
    plan.write_text(plan.read_text() + "\x1b[30mhidden()\x1b[0m\n\tx\n")
    capsys.readouterr()
    assert main(["render", "--diff", "--color", "always", "good.yaml"]) == 1
    out, err = capsys.readouterr()
    assert "-\\x1b[30mhidden()\\x1b[0m\n-\tx\n" in out
    assert "\x1b" not in out + err


def test_other_words_for_it_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--color", "yes", "list"]) == 2
    assert "'yes' is not one of 'auto', 'always', 'never'" in capsys.readouterr().err
