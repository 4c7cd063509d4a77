"""`explain` of what was tuned: the kernel that a call runs, as its plan chooses it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from gemm_specs import OFFSETS, gathered
from mla_specs import MLA
from scripted_backend import ScriptedMeasuring
from tune_setup import lock_spec, script_measuring, tune, winners

from cutegen.cli import main
from cutegen.resolve import lock_path, resolve_file
from cutegen.resolve.winners import DEFAULT

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


def test_a_gathered_product_runs_its_winner_with_any_rows_to_gather_from(
    spec: Path, measuring: Any, explained: Any
) -> None:
    measuring(device=DEVICE)
    rewrite(spec, gathered(OFFSETS))
    problem = "g=8,m=1024,n=4096,k=7168"
    assert tune(spec, "--shape", f"t=512,{problem}", "--candidates", "10") == 0
    (won,) = winners(spec)
    assert won.calls == {"t": 512, "g": 8, "m": (257, 1024), "n": 4096, "k": 7168}
    for shape in (f"t=512,{problem}", f"t=511,{problem}", problem):
        assert explained(shape)["instance"] == won.tiling
    assert resolve_file(spec, locked=True).notes == ()
    assert tune(spec, "--confirm", "--fresh") == 0
    assert winners(spec)[0].calls == won.calls


def test_of_problems_that_differ_in_rows_to_gather_from_the_larger_one_stands(
    spec: Path, measuring: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    measuring(device=DEVICE)
    rewrite(spec, gathered(OFFSETS) + "portfolio: 1\n")
    problems = [f"t={t},g=8,m={m},n=4096,k=7168" for t, m in ((4096, 1024), (512, 1024), (512, 512))]
    shapes = [word for problem in problems for word in ("--shape", problem)]
    assert tune(spec, *shapes, "--candidates", "4") == 0
    found = {w.problem["m"]: w for w in winners(spec)}
    assert {m: (w.problem["t"], w.calls["m"]) for m, w in found.items()} == {
        512: (512, (129, 512)),
        1024: (4096, (513, 1024)),
    }
    assert DEFAULT not in {w.tiling for w in found.values()}
    said = "t=512 g=8 m=1024 n=4096 k=7168: left out of the lock: the same calls were measured with more rows to gather"
    assert said in " ".join(capsys.readouterr().out.split())
