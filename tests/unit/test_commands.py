"""The list of commands: cheap, grouped, and what the commands say of themselves; names that a shell completes."""

from __future__ import annotations

import errno
import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.shell_completion import ShellComplete
from test_imports import loaded_after

from cutegen.cli import main, root
from cutegen.cli.commands import COMMANDS, GROUPS, HIDDEN
from cutegen.cli.explain_word import INDEX
from cutegen.cli.reference import words
from cutegen.epilogue import CALLS, OPS

ROOT = Path(__file__).parents[2]
SPEC_MODELS = {"pydantic", "ruamel", "jinja2", "rich", "torch", "cutlass"}


def command(name: str) -> click.Command:
    found = root.get_command(click.Context(root), name)
    assert found
    return found


@pytest.mark.parametrize("name", COMMANDS)
def test_the_list_says_what_the_command_says(name: str) -> None:
    assert command(name).get_short_help_str(300).rstrip(".") == COMMANDS[name].sentence.rstrip(".")
    assert command(name).hidden == (name in HIDDEN)


@pytest.mark.parametrize("name", [name for group in GROUPS.values() for name in group])
def test_examples_are_calls_of_the_command(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """With options that it has; and they are shown."""
    assert main([name, "--help"]) == 0
    shown = capsys.readouterr().out
    options = {option for p in command(name).params for option in p.opts}
    if isinstance(group := command(name), click.Group):
        options |= {option for inner in group.commands.values() for p in inner.params for option in p.opts}
    assert COMMANDS[name].examples
    for example in COMMANDS[name].examples:
        assert f"  {example}\n" in shown
        program, called, *rest = shlex.split(example, comments=True)
        assert (program, called) == ("cutegen", name)
        assert {word for word in rest if word.startswith("-") and word != "-"} <= options


@pytest.mark.parametrize(
    "arguments",
    [["--help"], ["--version"], ["explain", "gelu_tanh"], ["explain", "where"], ["cache"], ["valdate"]],
    ids=" ".join,
)
def test_what_has_to_be_quick_imports_no_models_of_specs(arguments: list[str]) -> None:
    """0.15 s of CPU for --help and 0.3 s for an op is what is left without them."""
    code = f"from cutegen.cli import main\ntry:\n    main({arguments!r})\nexcept SystemExit:\n    pass"
    assert not loaded_after(code) & SPEC_MODELS


def test_help_imports_no_command() -> None:
    code = "import sys; from cutegen.cli import main; main(['--help']); print('NAMES', *sys.modules)"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True).stdout
    modules = {entry.place.partition(":")[0] for entry in COMMANDS.values()}
    assert modules & set(said.rpartition("NAMES")[2].split()) == set()


def test_help_groups_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    out = capsys.readouterr().out
    places = [out.index(f"\n{title}:\n") for title in GROUPS]
    assert places == sorted(places)
    assert all(f"\n  {name} " in out for group in GROUPS.values() for name in group)
    assert "\n  docs " not in out


def complete(arguments: list[str], incomplete: str) -> list[tuple[str, str]]:
    found = ShellComplete(root, {}, "cutegen", "_CUTEGEN_COMPLETE").get_completions(arguments, incomplete)
    return [(item.value, item.type) for item in found]


def test_commands_are_completed() -> None:
    assert complete([], "re") == [("render", "plain"), ("report", "plain"), ("resolve", "plain")]
    assert complete(["valdate"], "x") == []  # and nothing is printed into the line that is typed
    assert complete(["cache"], "pr") == [("prune", "plain")]
    assert complete([], "do") == [("doctor", "plain")]  # `docs` is hidden


@pytest.mark.parametrize("name", ["validate", "render", "build", "explain", "pin", "check", "bench", "tune", "lock"])
def test_specs_are_completed_by_the_shell(name: str) -> None:
    assert ("specs/ge", "file") in complete([name], "specs/ge")


def test_words_are_completed() -> None:
    found = [value for value, _ in complete(["explain"], "smem")]
    assert "smem-capacity" in found
    assert {"gelu_tanh", "gelu_erf"} <= {value for value, _ in complete(["explain"], "gelu")}
    assert ("tiling.tile", "plain") in complete(["explain"], "tiling.t")
    assert complete(["explain"], "") == [("", "file")]


def test_families_specs_and_suites_are_completed() -> None:
    assert complete(["new"], "ge") == [("gemm", "plain")]
    assert complete(["schema"], "m") == [("mla_decode", "plain")]
    assert ("gemm_bf16_swiglu_sm90a", "plain") in complete(["new", "--from"], "gemm_bf16_sw")
    assert ("llm_gemm", "plain") in complete(["bench", "--suite"], "llm")


def test_listed_words_are_current() -> None:
    assert INDEX.read_text(encoding="utf-8") == words(), "run `cutegen docs`"
    assert all(f'"{name}"' in words() for name in (*OPS, *CALLS, "smem-capacity", "tma.<name>.swizzle", "gemm"))


def test_a_call_without_a_command_prints_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    shown = capsys.readouterr()
    assert main(["--help"]) == 0
    assert (shown.out, shown.err) == ("", capsys.readouterr().out)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["validate", "--json", "--bogus", "x.yaml"], "No such option '--bogus'."),
        (["validate", "--bogus", "--json", "x.yaml"], "No such option '--bogus'."),
        (["build", "--jobs", "x", "--output-format=json"], "'x' is not a valid integer range"),
        (["validate", "--output-format", "text", "--output-format", "json", "x.yaml"], "x.yaml does not exist"),
        (["cache", "prune", "--json"], "nothing says what to delete"),
        (["cache", "--json", "bogus"], "No such command 'bogus'."),
    ],
)
def test_what_ends_a_command_is_json_where_that_was_asked_for(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    shown = capsys.readouterr()
    found = json.loads(shown.out)
    assert found["ok"] is False
    assert said in found["findings"][0]["message"]
    assert said in shown.err


@pytest.mark.parametrize(
    "arguments",
    [["validate", "--output-format", "json", "--output-format", "text", "x.yaml"], ["schema", "--json", "--bogus"]],
    ids=" ".join,
)
def test_what_was_not_asked_for_as_json_is_text(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 2
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), RuntimeError("a bug")])
def test_other_ends_are_json_too(
    error: Exception, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def end(**options: object) -> None:
        raise error

    monkeypatch.setattr(command("doctor"), "callback", end)
    assert main(["doctor", "--json"]) == 2
    shown = capsys.readouterr()
    (found,) = json.loads(shown.out)["findings"]
    assert found["remedy"]
    assert found["message"].splitlines()[0] in shown.err


@pytest.mark.parametrize("output", ["json", "github"])
def test_a_full_disk_hides_no_error(output: str) -> None:
    arguments = ["validate", "none.yaml", "--output-format", output]
    with open("/dev/full", "w") as full:
        call = [sys.executable, "-m", "cutegen", *arguments]
        ran = subprocess.run(call, cwd=ROOT, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert ran.returncode == 2
    assert ran.stderr.startswith("error: none.yaml does not exist\n")
    assert "Traceback" not in ran.stderr


def test_commands_of_a_group_have_the_options_that_all_have(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CUTEGEN_CACHE_DIR", str(tmp_path))
    shared = ["--color", "always", "--root", str(tmp_path), "--no-ops"]
    assert main(["cache", "prune", *shared, "--all", "--dry-run"]) == 0, capsys.readouterr().err


def test_an_argument_that_cannot_be_encoded_is_no_internal_error(capsys: pytest.CaptureFixture[str]) -> None:
    """Half of a surrogate pair, as a program that calls `main` may pass it."""
    assert main(["report", "result.json", "\ud800"]) == 2
    err = capsys.readouterr().err
    assert err.startswith("error: `\\ud800` cannot be written as utf-8\n")
    assert "internal" not in err
