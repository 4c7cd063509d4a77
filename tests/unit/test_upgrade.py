"""`doctor --upgrade`: what is a version, what counts as worse, and what an index says that has none."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from gemm_specs import PLAIN, resolve_text
from test_build_contract import FACTS

from cutegen.build.between_specs import TilingChange, ValueChange, compare_builds
from cutegen.build.contract import Check
from cutegen.build.environment import make_environment, read_requirement
from cutegen.build.facts import Facts
from cutegen.build.kernels import KernelReport
from cutegen.build.worker import Outcome
from cutegen.cli import main
from cutegen.cli.upgrade import compare_versions
from cutegen.diagnostics import CutegenError


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("nvidia-cutlass-dsl==4.8.1", "4.8.1"),
        ("nvidia-cutlass-dsl[cu13]==4.9.0.dev0", "4.9.0.dev0"),
        ("4.7.1", "4.7.1"),
    ],
)
def test_a_version(text: str, version: str) -> None:
    found = read_requirement(text)
    assert found.version == version
    assert found.name == version + "[cu13]" * ("cu13" in text)  # in the report


@pytest.mark.parametrize("text", ["", "nvidia-cutlass-dsl>=4.8", "torch==2.6", "-r x", "nvidia-cutlass-dsl==4.8 --pre"])
def test_what_is_no_version(text: str) -> None:
    with pytest.raises(CutegenError, match="is not one version"):
        read_requirement(text)


def report(facts: Facts | None, *checks: Check, error: str = "") -> KernelReport:
    outcome = Outcome(facts, error=error)
    return KernelReport("one", "t128x128x64", "sm_90a", "0" * 64, None, outcome, checks)  # type: ignore[arg-type]


BROKEN = Check("spills", "0 B", "256 B", False)


@pytest.mark.parametrize(
    ("new", "worse"),
    [
        (report(FACTS), ()),
        (report(replace(FACTS, registers=FACTS.registers - 2, instructions=1)), ()),
        (report(replace(FACTS, spill_store_bytes=None, spill_load_bytes=None)), ()),
        (
            report(replace(FACTS, registers=255, stack_bytes=256)),
            (f"registers {FACTS.registers} -> 255", "stack bytes 0 -> 256"),
        ),
        (report(FACTS, BROKEN), ("contract holds -> broken: spills",)),
        (report(None, error="no"), ("build - -> no",)),
    ],
)
def test_what_is_worse(new: KernelReport, worse: tuple[str, ...]) -> None:
    resolution = resolve_text(PLAIN + "portfolio: 1\ntiling: {tile: [128, 128, 64]}\n")
    name = resolution.resolved.default.name
    old, new = (replace(one, tiling=name) for one in (report(FACTS), new))
    (tiling,) = compare_builds(resolution, [old], [new]).tilings
    assert tiling.worse == worse


def test_what_was_broken_before_is_no_change() -> None:
    change = ValueChange("contract", "broken: spills", "holds")
    assert TilingChange("t", "changed", (change,)).worse == ()


def test_an_index_without_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pip")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.delenv("PIP_FIND_LINKS", raising=False)
    with pytest.raises(CutegenError, match=r"nvidia-cutlass-dsl==1\.2\.3 cannot be installed") as caught:
        make_environment(read_requirement("1.2.3"), tmp_path / "environment")
    assert "No matching distribution found" in str(caught.value)
    assert caught.value.exit_code == 2


def test_a_version_that_cannot_be_had_is_told_before_anything_is_built(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("pip")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.delenv("PIP_FIND_LINKS", raising=False)
    monkeypatch.setattr("cutegen.cli.upgrade.installed_version", lambda: "4.8.1")
    monkeypatch.setattr("cutegen.cli.upgrade.build_kernels", lambda *_, **__: pytest.fail("it was built"))
    (tmp_path / "one.yaml").write_text(PLAIN)
    with pytest.raises(CutegenError, match=r"nvidia-cutlass-dsl==1\.2\.3 cannot be installed"):
        compare_versions([tmp_path / "one.yaml"], "", "1.2.3")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["doctor", "one.yaml"], "add --upgrade"),
        (["doctor", "--upgrade", "torch==2", "one.yaml"], "is not one version"),
        (["doctor", "--upgrade", "4.8.1"], "of which specs?"),
        (["diff", "nvidia-cutlass-dsl==4.8.1", "one.yaml"], "write nvidia-cutlass-dsl==4.7.1..4.8.1"),
        (["diff", "nvidia-cutlass-dsl==4.7.1..", "one.yaml", "--no-build"], "without --no-build"),
    ],
)
def test_calls_that_are_refused(
    arguments: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "one.yaml").write_text(PLAIN)
    assert main(arguments) == 2
    assert said in capsys.readouterr().err
