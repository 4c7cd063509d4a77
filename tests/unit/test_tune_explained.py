"""`explain` of what was tuned: the kernel that a call runs, as its plan chooses it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from mla_specs import MLA
from scripted_backend import ScriptedMeasuring
from tune_setup import lock_spec, script_measuring, tune, winners

from cutegen.cli import main
from cutegen.resolve import lock_path

DEVICE = "NVIDIA H200"


@pytest.fixture
def spec(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return lock_spec(tmp_path, monkeypatch)


@pytest.fixture
def measuring(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., ScriptedMeasuring]:
    return script_measuring(tmp_path, monkeypatch)


@pytest.fixture
def explained(spec: Path, capsys: pytest.CaptureFixture[str]) -> Callable[[str], dict[str, str]]:
    """The table of a shape's section."""

    def run(shape: str) -> dict[str, str]:
        capsys.readouterr()
        assert main(["explain", str(spec), "--shape", shape, "--json"]) == 0
        sections = json.loads(capsys.readouterr().out)
        section = next(s for s in sections if "(data-sheet rates)" in s["title"])
        return {next(iter(row.values())): list(row.values())[1] for row in section["table"]}

    return run


def rewrite(spec: Path, text: str) -> None:
    spec.write_text(text)
    lock_path(spec).unlink()


def test_mla_decode_names_the_kernel_that_won(spec: Path, measuring: Any, explained: Any) -> None:
    measuring(lambda t: (10 - 2 * t.prefetch + t.cluster + t.overhead / 10) * 1e-6, device=DEVICE)
    rewrite(spec, MLA)
    problem = "batch=64,query_len=1,heads=128,kv_len="
    before = explained(f"{problem}4096")["kernel"]
    assert tune(spec, "--shape", f"{problem}4096", "--candidates", "8") == 0
    (won,) = winners(spec)
    assert won.tiling != before
    assert explained(f"{problem}4096")["kernel"] == won.tiling
    assert won.calls["kv_len"] == (1025, 4096)
    assert explained(f"{problem}1025")["kernel"] == won.tiling
    assert {explained(problem + n)["kernel"] for n in ("1024", "4097")} == {before}
    assert tune(spec, "--shape", f"{problem}4100", "--candidates", "8") == 0
    # A call goes by the width of its table: 4160 keys need as many pages as 4100 do.
    assert explained(f"{problem}4160")["kernel"] == winners(spec)[-1].tiling != before
