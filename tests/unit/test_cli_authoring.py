"""validate, list, new, schema, docs, and the error boundary of every command."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from pathlib import Path

import click
import pytest
from gemm_specs import PLAIN

from cutegen import cli
from cutegen.cli import console, main
from cutegen.cli.targets import target_files
from cutegen.diagnostics import CutegenError
from cutegen.families.registry import FAMILIES

GOOD = PLAIN + "epilogue:\n  d: relu(acc)\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("CUTEGEN_TRACEBACK", raising=False)
    Path("good.yaml").write_text(GOOD + "portfolio: 1\n")
    Path("bad.yaml").write_text(GOOD.replace("relu", "rely") + "pipeline: {stage: 4}\n")
    Path("good.lock.yaml").write_text("")
    return tmp_path


def test_validate_says_ok(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("good.lock.yaml").unlink()
    assert main(["validate", "good.yaml"]) == 0
    assert capsys.readouterr() == ("good.yaml: ok\n", "")


def test_validate_a_folder_reports_schema_and_expressions_together(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("good.lock.yaml").unlink()
    assert main(["validate", "."]) == 1
    out, err = capsys.readouterr()
    assert out == "good.yaml: ok\n"
    assert "bad.yaml:9:6: error[unknown-op]" in err
    assert "bad.yaml:10:12: error[unknown-key]" in err
    assert "2 specs, 1 with findings" in err


def test_validate_json(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("good.lock.yaml").unlink()
    assert main(["validate", "--json", "good.yaml", "bad.yaml"]) == 1
    out, err = capsys.readouterr()
    good, bad = json.loads(out)
    assert good == {"spec": "good.yaml", "ok": True, "findings": []}
    assert [(f["rule"], f["line"]) for f in bad["findings"]] == [("unknown-op", 9), ("unknown-key", 10)]
    assert err == ""


def test_a_lock_given_beside_its_spec_is_passed_over(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("good.lock.yaml").unlink()
    assert main(["lock", "good.yaml"]) == 0
    capsys.readouterr()
    assert main(["validate", "good.lock.yaml", "good.yaml"]) == 0  # what a shell makes of *.yaml
    assert capsys.readouterr().out == "good.yaml: ok\n"
    assert target_files(map(Path, ("good.lock.yaml", "good.yaml"))) == [Path("good.yaml")]
    assert main(["validate", "good.lock.yaml"]) == 2
    assert "is a lock, not a spec" in capsys.readouterr().err


def test_specs_of_a_folder_end_in_either_way(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("inside").mkdir()
    Path("inside", "short.yml").write_text(Path("good.yaml").read_text())
    assert main(["validate", "inside"]) == 0
    assert capsys.readouterr().out == "inside/short.yml: ok\n"


@pytest.mark.parametrize("argument", ["nothing.yaml", "empty", "good"])
def test_missing_specs_are_usage_errors(argument: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("empty").mkdir()
    assert main(["validate", argument]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("error: ")


def test_missing_spec_suggests_the_one_that_exists(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["validate", "god.yaml"])
    assert "did you mean `good.yaml`?" in capsys.readouterr().err
    Path("specs").mkdir(exist_ok=True)
    Path("specs", "mine.yaml").touch()
    assert main(["validate", "mine"]) == 2
    assert "did you mean `specs/mine.yaml`?" in capsys.readouterr().err


@pytest.mark.parametrize("family", FAMILIES)
def test_new_spec_validates_and_is_never_overwritten(
    family: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["new", family, "mine", "-o", "made/here"]) == 0
    path = Path("made/here/mine.yaml")
    assert capsys.readouterr().out == f"{path}\n"
    assert main(["validate", str(path)]) == 0
    path.write_text("my work")
    assert main(["new", family, "mine", "-o", "made/here"]) == 2
    assert path.read_text() == "my work"


@pytest.mark.parametrize(("family", "name"), [("gem", "x"), ("gemm", "my.gemm"), ("gemm", "../x"), ("gemm", "class")])
def test_new_refuses_bad_names(family: str, name: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = sorted(folder.rglob("*"))
    assert main(["new", family, name, "-o", "made"]) == 2
    assert "= help:" in capsys.readouterr().err
    assert sorted(folder.rglob("*")) == before


def test_list(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list"]) == 0
    text = capsys.readouterr().out
    assert main(["list", "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert {op["name"] for op in data["ops"]} >= {"relu", "gelu_tanh"}
    assert [f["name"] for f in data["families"]] == [*FAMILIES]
    assert all(
        (row.get("name") or row["path"]) in text for key in ("families", "specs", "suites", "ops") for row in data[key]
    )
    summaries = {Path(row["path"]).stem: row["summary"] for row in data["specs"]}
    assert summaries["gemm_bf16_rms_sm90a"].endswith("taken before D is rounded")  # a sentence over two lines


def test_schema(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["schema"]) == 0
    printed = capsys.readouterr().out
    assert main(["schema", "gemm", "-o", "s.json"]) == 0
    assert json.loads(printed) == json.loads(Path("s.json").read_text())
    assert main(["schema", "gem"]) == 2


def test_docs_check_finds_a_stale_page(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["docs"]) == 0
    assert main(["docs", "--check"]) == 0
    capsys.readouterr()
    (folder / "docs" / "rules.md").write_text("old")
    assert main(["docs", "--check"]) == 1
    assert capsys.readouterr().out == "docs/rules.md: stale\n"
    assert (folder / "docs" / "rules.md").read_text() == "old"


@pytest.mark.parametrize("arguments", [["valdate", "x"], ["validate"], ["validate", "--nothing", "x"], ["new", "gemm"]])
def test_usage_errors_exit_2(arguments: list[str], folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert "Usage: cutegen" in err


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (CutegenError("no", "do this", exit_code=1), 1, "error: no\n  = help: do this\n"),
        (KeyboardInterrupt(), 130, "\ninterrupted\n"),
        (OSError(28, "No space left on device", "/x/y"), 2, "error: /x/y: No space left on device\n"),
        (PermissionError(13, "Permission denied", "/x"), 2, "error: /x: Permission denied\n"),
        (ZeroDivisionError("division by zero\nmore"), 2, "internal error: ZeroDivisionError: division by zero\n"),
        (EOFError("data too short"), 2, "\ninternal error: EOFError: data too short\n"),
        (RecursionError("deep"), 2, "internal error: RecursionError: deep\n"),
        (MemoryError(), 2, "internal error: MemoryError\n"),
    ],
)
def test_error_boundary(
    error: BaseException, code: int, message: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    @click.command()
    def fail() -> None:
        raise error

    monkeypatch.delenv("CUTEGEN_TRACEBACK", raising=False)
    monkeypatch.setattr(cli.LazyGroup, "get_command", lambda self, ctx, name: fail)
    assert main(["doctor"]) == code
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(message)
    assert "Traceback" not in err


def test_traceback_on_request(monkeypatch: pytest.MonkeyPatch) -> None:
    @click.command()
    def fail() -> None:
        raise ZeroDivisionError

    monkeypatch.setenv("CUTEGEN_TRACEBACK", "1")
    monkeypatch.setattr(cli.LazyGroup, "get_command", lambda self, ctx, name: fail)
    with pytest.raises(ZeroDivisionError):
        main(["doctor"])


def start(*arguments: str, **options: object) -> subprocess.Popen[str]:
    code = "import sys; from cutegen.cli import main; sys.exit(main())"
    environment = {**os.environ, "PYTHONPATH": str(Path(cli.__file__).parents[2])}
    return subprocess.Popen(
        [sys.executable, "-c", code, *arguments], text=True, env=environment, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, **options,  # type: ignore[call-overload]
    )  # fmt: skip


def test_a_reader_that_goes_away_is_no_error() -> None:
    process = start("schema")
    process.stdout.close()
    assert process.stderr.read() == ""
    assert process.wait() == 1


@pytest.mark.parametrize("command", ["validate", "explain", "pin", "build"])
def test_what_is_no_spec_is_called_what_it_is(command: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("package").mkdir()
    Path("package/plan.py").write_text("")
    for path, said in (("package", "is a generated package"), ("package/plan.py", "is a Python file, not a spec")):
        assert main([command, path]) == 2
        assert f"error: {path} {said}" in capsys.readouterr().err


def test_files_are_counted() -> None:
    counts = [console.written_files([Path()] * n) for n in (0, 1, 4)]
    assert counts == ["unchanged", "1 file written", "4 files written"]


@pytest.mark.parametrize(
    ("environment", "coloured"),
    [({}, True), ({"NO_COLOR": ""}, True), ({"NO_COLOR": "1"}, False), ({"TERM": "dumb"}, False)],
)
def test_colour_is_for_terminals_that_want_it(folder: Path, environment: dict[str, str], coloured: bool) -> None:
    shown, terminal = os.openpty()
    environment = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": str(Path(cli.__file__).parents[2]),
        "TERM": "xterm",
    } | environment
    command = "from cutegen.cli import main; raise SystemExit(main(['validate', 'bad.yaml', 'good.yaml']))"
    ended = subprocess.run(
        [sys.executable, "-c", command], env=environment, stdout=terminal, stderr=terminal, check=False
    )
    os.close(terminal)
    text = b""
    with contextlib.suppress(OSError):  # what Linux says at the end of it
        while part := os.read(shown, 65536):
            text += part
    os.close(shown)
    assert ended.returncode == 1
    assert b"unknown-op" in text
    assert (b"\x1b[" in text) == coloured


def test_table_aligns_numbers_to_the_right() -> None:
    text = click.unstyle(console.table(("name", "us"), [("a", "9.5"), ("long", "10.25")]))
    assert text == "name     us\na       9.5\nlong  10.25"
    assert click.unstyle(console.table(("name", "us"), [])) == "name  us"


def test_table_fits_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [("specs/a.yaml", "a sentence that is longer than the terminal has columns")]
    whole = click.unstyle(console.table(("spec", "is"), rows))
    monkeypatch.setenv("COLUMNS", "50")
    assert click.unstyle(console.table(("spec", "is"), rows)) == whole  # a pipe gets lines whole
    monkeypatch.setattr(console.sys.stdout, "isatty", lambda: True)
    lines = click.unstyle(console.table(("spec", "is"), rows)).splitlines()
    assert lines[1:] == ["specs/a.yaml  a sentence that is longer than the", " " * 14 + "terminal has columns"]
    monkeypatch.setenv("COLUMNS", "26")  # too narrow to be read in
    assert click.unstyle(console.table(("spec", "is"), rows)) == whole


def test_the_widest_columns_of_text_are_folded(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [("ab", 5, "all threads of the group", "the storing warp waits until TMA has read"), ("store", 12, "", "-")]
    monkeypatch.setenv("COLUMNS", "52")
    monkeypatch.setattr(console.sys.stdout, "isatty", lambda: True)
    assert click.unstyle(console.table(("ring", "stages", "full when", "empty when"), rows)).splitlines() == [
        "ring   stages  full when         empty when",
        "ab          5  all threads of    the storing warp",
        "               the group         waits until TMA",
        "                                 has read",
        "store      12                    -",
    ]
    text = "  tiles begin where groups may, and padding has none; groups begin at multiples"
    assert console.paragraph(text).splitlines() == [
        "  tiles begin where groups may, and padding has",
        "    none; groups begin at multiples",
    ]


@pytest.mark.parametrize(
    ("word", "shown"),
    [
        ("where", ["where(acc > 0, acc, 0)"]),
        ("stored", ["stored(d)"]),
        ("sum", ["sum(x, n)"]),
        ("max", ["op max", "max(x, n)"]),
        ("max_abs", ["max_abs(x, n, 128)"]),
    ],
)
def test_whatever_an_expression_may_call_is_listed_and_explained(
    word: str, shown: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["explain", word]) == 0
    explained = capsys.readouterr().out.splitlines()
    assert [line for line in explained if line in shown] == shown
    assert main(["list"]) == 0
    listed = capsys.readouterr().out
    assert all(form.removeprefix("op ") in listed for form in shown)
