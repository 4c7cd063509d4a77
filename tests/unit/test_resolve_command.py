"""`cutegen resolve`: decisions and numbers with reasons; files stay as they are."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from gemm_specs import PLAIN

from cutegen.cli import main

# What only kernels with a split or a dynamic schedule have.
WORK = ("split_k", "queue_", "covers", "workspace", "sums", "semaphores", "box", "mma_", "accumulators", "tmem_", "clc")


@pytest.fixture
def spec(tmp_path: Path) -> Path:
    path = tmp_path / "plain.yaml"
    path.write_text(PLAIN)
    return path


def test_every_number_has_its_origin(spec: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["resolve", str(spec)]) == 0
    out = capsys.readouterr().out
    assert "tiling.tile" in out
    assert "(128 x 2 B + 256 x 2 B) x 64" in out
    assert [p.name for p in spec.parent.iterdir()] == ["plain.yaml"]


def test_json(spec: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bad = spec.with_name("bad.yaml")
    bad.write_text(PLAIN + "tiling: {tile: [128, 204, 64]}\n")
    assert main(["resolve", "--json", str(spec), str(bad)]) == 1
    good, broken = json.loads(capsys.readouterr().out)
    assert good["ok"]
    assert good["tilings"][0]["numbers"]["smem_bytes"] == 230400
    numbers = good["tilings"][0]["numbers"]
    assert set(good["tilings"][0]["sources"]) == {f for f in numbers if not f.startswith(WORK)}
    assert all(d["reason"] for d in good["decisions"])
    assert not broken["ok"]
    assert broken["findings"][0]["rule"] == "tile-n"


def test_a_lock_that_must_hold_is_not_ignored(spec: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["resolve", str(spec), "--locked", "--upgrade"]) == 2
    assert "--locked and --upgrade exclude each other" in capsys.readouterr().err


def test_locked(spec: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["resolve", "--locked", str(spec)]) == 1
    assert "has no lock" in capsys.readouterr().err
