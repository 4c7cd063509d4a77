"""`check --sanitize`: what is read of the tools' reports, and what the command makes of it, with a scripted tool."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from cutegen.cli import main
from cutegen.run import sanitizer
from cutegen.run.sanitizer import TOOLS, Said, pick_spread, read_log, read_tools

PACKAGE = "generated/gemm_bf16_sm90a"
MEMCHECK = """\
========= COMPUTE-SANITIZER
========= Invalid __global__ read of size 4 bytes
=========     at made_up_128x64x64_1x1+0x710
=========     by thread (64,0,0) in block (3,0,0)
=========     Access to 0x7f28a0000200 is out of bounds
=========
========= Invalid __global__ read of size 4 bytes
=========     at made_up_128x64x64_1x1+0x710
=========     by thread (65,0,0) in block (3,0,0)
=========
========= ERROR SUMMARY: 2 errors
"""
RACECHECK = """\
========= COMPUTE-SANITIZER
========= Error: Race reported between Write access at made_up(int, float)+0x3560
=========     and Read access at made_up(int, float)+0x50c0 [48 hazards]
=========     and Read access at made_up(int, float)+0x50d0 [16 hazards]
=========
========= RACECHECK SUMMARY: 1 hazard displayed (1 error, 0 warnings)
"""
SYNCCHECK = """\
========= Barrier error detected. Divergent thread(s) in warp
=========     at made_up+0x1b0
=========     by thread (0,0,0) in block (0,0,0)
=========
========= ERROR SUMMARY: 1 error
"""
# In place of compute-sanitizer: each run begins the next tiling and finds an error in it, until all have been skipped.
TOOL = """\
#!{python}
import json, pathlib, sys
arguments = sys.argv[1:]
log = arguments[arguments.index("--log-file") + 1]
package, most, *skip = arguments[arguments.index("-m") + 2:]
left = [k for k in ("wide", "tall") if k not in skip]
pathlib.Path({calls!r}).open("a").write(json.dumps(arguments) + "\\n")
for kernel in left[:1]:
    print(json.dumps({{"kernel": kernel}}))
    if {finds}:
        pathlib.Path(log).write_text({text!r})
        sys.exit("RuntimeError: CUDA error: unspecified launch failure")
    print(json.dumps({{"kernel": kernel, "case": "ragged", "shape": {{}}, "wrong": [{wrong}]}}))
if not {finds}:
    pathlib.Path(log).write_text("========= ERROR SUMMARY: 0 errors\\n")
"""


@pytest.fixture
def scripted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """make(finds, wrong): a compute-sanitizer on a machine with a GPU; it returns a function that lists the calls."""

    def make(finds: bool = False, wrong: int = 0, text: str = MEMCHECK) -> Any:
        calls = tmp_path / "calls"
        program = tmp_path / "bin" / "compute-sanitizer"
        program.parent.mkdir()
        program.write_text(TOOL.format(python=sys.executable, calls=str(calls), finds=finds, text=text, wrong=wrong))
        program.chmod(0o755)
        monkeypatch.setenv("PATH", str(program.parent))
        monkeypatch.setattr("cutegen.run.targets.probe_gpu", lambda arch: SimpleNamespace(reason=""))
        return lambda: [json.loads(line) for line in calls.read_text().splitlines()]

    return make


@pytest.mark.parametrize(
    ("log", "said", "summary"),
    [
        (MEMCHECK, [Said("Invalid __global__ read of size 4 bytes", "made_up_128x64x64_1x1+0x710", 2)], "2 errors"),
        (
            RACECHECK,
            [
                Said(
                    "Error: Race reported between Write access",
                    "made_up+0x3560 and made_up+0x50c0 and made_up+0x50d0",
                    1,
                )
            ],
            "1 hazard displayed (1 error, 0 warnings)",
        ),
        (SYNCCHECK, [Said("Barrier error detected. Divergent thread(s) in warp", "made_up+0x1b0", 1)], "1 error"),
        ("========= ERROR SUMMARY: 0 errors\n", [], "0 errors"),
        ("", [], ""),
        (MEMCHECK[: MEMCHECK.index("========= ERROR")], [Said("Invalid __global__ read of size 4 bytes",
         "made_up_128x64x64_1x1+0x710", 2)], ""),  # the process ended before the summary
    ],
)  # fmt: skip
def test_what_a_tool_says_is_counted_by_instruction(log: str, said: list[Said], summary: str) -> None:
    assert read_log(log) == (said, summary)


def test_nothing_found_is_a_pass(scripted: Any, capsys: pytest.CaptureFixture[str]) -> None:
    calls = scripted()
    assert main(["check", PACKAGE, "--sanitize", "racecheck,initcheck", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["ok"]
    (check,) = report["checks"]
    assert [(t["tool"], t["cases"], t["said"]) for t in check["tools"]] == [("racecheck", 1, []), ("initcheck", 1, [])]
    race, init = calls()
    assert race[:5] == ["--tool", "racecheck", "--racecheck-report", "analysis", "--kernel-name"]
    assert race[5] == "kernel_substring=gemm_bf16_sm90a"
    assert "--kernel-name" not in init  # it has to see who writes
    assert init[-1] == "1"  # a problem of each tiling


def test_a_kernel_with_an_error_ends_the_process_and_the_others_still_run(
    scripted: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    calls = scripted(finds=True)
    assert main(["check", PACKAGE, "--sanitize", "memcheck"]) == 1
    out = capsys.readouterr().out
    assert out.count("memcheck: Invalid __global__ read of size 4 bytes, 2 times") == 2
    assert "at made_up_128x64x64_1x1+0x710" in out
    assert "0 of 1 tools of compute-sanitizer find nothing" in out
    count = str(sanitizer.CASES)
    assert [call[call.index(count) + 1 :] for call in calls()] == [[], ["wide"], ["wide", "tall"]]


def test_a_wrong_result_fails_even_if_the_tool_is_content(scripted: Any, capsys: pytest.CaptureFixture[str]) -> None:
    scripted(wrong=3)
    assert main(["check", PACKAGE, "--sanitize", "synccheck", "--json"]) == 1
    (tool,) = json.loads(capsys.readouterr().out)["checks"][0]["tools"]
    assert (tool["wrong"], tool["said"], tool["ok"]) == (1, [], False)


def test_a_machine_without_the_tool_runs_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("cutegen.run.targets.probe_gpu", lambda arch: SimpleNamespace(reason=""))
    monkeypatch.setattr("cutegen.run.nvidia_tools.shutil.which", lambda name, path=None: None)
    assert main(["check", PACKAGE, "--sanitize", "memcheck"]) == 2
    assert "not run: no compute-sanitizer on the PATH" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([PACKAGE, "--sanitize", "memchek"], "'memchek' is not a tool of compute-sanitizer"),
        ([PACKAGE, "--sanitize", ","], "',' is not a tool of compute-sanitizer"),
        ([PACKAGE, "--sanitize", "all", "--shape", "m=1,n=8,k=8"], "leave out --shape, --suite, --shrink and --on cpu"),
        ([PACKAGE, "--sanitize", "all", "--on", "cpu"], "leave out --shape, --suite, --shrink and --on cpu"),
        ([__file__, "--sanitize", "all"], "--sanitize is for specs and generated packages"),
    ],
)
def test_options_that_do_not_go_together(arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", *arguments]) == 2
    assert said in capsys.readouterr().err


def test_which_tools_and_cases() -> None:
    assert read_tools("all") == tuple(TOOLS)
    assert read_tools("racecheck, memcheck,racecheck") == ("racecheck", "memcheck")
    assert pick_spread(list(range(9)), 4) == [0, 3, 6]
    assert pick_spread([1, 2], 4) == [1, 2]
    assert pick_spread([], 4) == []
