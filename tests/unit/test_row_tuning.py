"""Winners of row kernels: candidates by threads, ranges of extents in the lock, and what plans and C entries run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from c_library import compile_entries
from c_structs import H100, H200, PCIE, device
from gemm_specs import resolve_text
from row_specs import FORMS, NORM
from tune_setup import GPU, script_measuring, tune, winners

from cutegen.build.c_translation import Translation
from cutegen.build.cpu import find_c_compiler
from cutegen.build.entries import Entry
from cutegen.cli import main
from cutegen.families.registry import load_family
from cutegen.families.rowwise.candidate import has_clusters
from cutegen.families.tuned import TunedRow
from cutegen.render import render_package, write_package
from cutegen.resolve import resolve_file, resolve_tuned, tuning_space
from cutegen.run.subject import load_subject

torch = pytest.importorskip("torch")

OPTIONAL = NORM.replace("w: 'bf16[n]'", "w: 'bf16[n]?'")
WON = {"threads": 160, "bounds": [5120], "prefetch": False, "pdl.wait": True, "pdl.trigger": "last_tile"}


def row(device: str = GPU, calls: Any = (2049, 5120), **knobs: object) -> TunedRow:
    return TunedRow(device, {"m": 64, "n": calls}, "won", {**WON, **knobs})


def test_a_winner_goes_into_the_lock_for_rows_of_a_range_of_extents(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Measured with few rows and with many, of which those count."""
    monkeypatch.setenv("CUTEGEN_CACHE_DIR", str(tmp_path / "cache"))
    spec = tmp_path / "norm.yaml"
    spec.write_text(NORM)
    assert main(["lock", str(spec)]) == 0
    measured = script_measuring(tmp_path, monkeypatch)
    measured(lambda t: 1e-5 * (1 + abs(t.threads - 320) / 1000))
    assert tune(spec, "--shape", "m=64,n=5120", "--shape", "m=4096,n=5120") == 0
    capsys.readouterr()
    found = [w for w in winners(spec) if not w.unused]
    assert {w.tiling for w in found} == {"n5120_threads320"}
    assert {w.calls["n"] for w in found} == {(1281, 5120)}
    resolved = resolve_file(spec, locked=True).resolved
    write_package(render_package(resolved), tmp_path / "out")
    plan = load_subject(tmp_path / "out" / "norm").plan
    assert plan
    monkeypatch.setattr("cutegen.runtime.measured._device_name", lambda index: GPU if index == 3 else "")
    assert [plan.pick(n, 3) for n in (1280, 1288, 5120, 5128)] == [
        "n1536", "n5120_threads320", "n5120_threads320", "n6144",
    ]  # fmt: skip
    assert plan.pick(5120, 0) == plan.dispatch(m=1, n=5120) == "n6144"


def test_a_winner_has_a_kernel_for_calls_without_each_optional_operand(tmp_path: Path) -> None:
    resolution = resolve_text(OPTIONAL)
    outcome = resolve_tuned(resolution, [row()])
    assert outcome.instances == {"won": "n5120_threads160"}
    write_package(render_package(outcome.resolved), tmp_path)
    plan = load_subject(tmp_path / outcome.resolved.name).plan
    assert plan
    numbers = [plan.tilings[f"n5120_threads160{end}"] for end in ("", "_without_w")]
    assert [(t.threads, t.vectors, t.most) for t in numbers] == [(160, 4, 5120)] * 2
    assert plan.whole_keys[0] == "n5120_threads160"
    assert "n5120_threads160" not in plan.anywhere


@pytest.mark.skipif(find_c_compiler() is None, reason="no C compiler")
def test_c_runs_what_the_plan_runs(tmp_path: Path) -> None:
    pytest.importorskip("tvm_ffi")
    outcome = resolve_tuned(resolve_text(NORM), [row(H200.name), row(H100.name, (1, 4000))])
    write_package(render_package(outcome.resolved), tmp_path)
    plan = load_subject(tmp_path / outcome.resolved.name).plan
    assert plan
    translation = Translation()
    entry = Entry(plan.name, plan.arch, "", load_family("rowwise").c_entry(plan, translation), {})
    library = compile_entries(tmp_path, [entry], translation, {plan.name: plan})
    for facts, won in ((H200, (2049, 5120)), (H100, (1, 4000)), (PCIE, (0, 0))):
        where = device(facts)
        for n in (8, 128, 2048, 2056, 4000, 4008, 5120, 5128, 8192):
            expected = "n5120_threads160" if won[0] <= n <= won[1] else plan.dispatch(m=1, n=n)
            assert library.pick(plan.name, where, 0, library.fill(plan.name, {"m": 3, "n": n})) == expected


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"prefetch": True}, "prefetch"),
        ({"bounds": [1024, 5120]}, "a winner has one"),
        ({"threads": 100}, "cannot have 100 threads"),
        ({"threads": 2048}, "rows of this kernel have none"),
        ({"calls": (5121, 8192), "bounds": [9000]}, "goes beyond 8192"),
    ],
)
def test_winners_that_do_not_hold_say_why(given: dict[str, Any], why: str) -> None:
    (unfit,) = resolve_tuned(resolve_text(NORM), [row(**given)]).unfit.values()
    assert why in unfit


def test_candidates_hold_rows_of_the_extent_with_up_to_eight_loads_a_thread() -> None:
    """Where there are clusters these are among them; what is streamed, or has bounds of the spec, has no other."""
    open_rows = resolve_text(NORM.replace("dims: {n: [8, 8192]}\n", ""))
    space = tuning_space(open_rows)
    for columns, clusters in ((8192, False), (65536, True)):
        found = [p.candidate for p in space.propose({"m": 1, "n": columns}) if not p.refusals]
        assert {c.bounds for c in found} == {(columns,)}
        assert any(has_clusters(c) for c in found) is clusters
        assert all(c.threads * 8 * 8 >= columns for c in found)
        fit = [TunedRow("", {}, str(i), space.describe(c)) for i, c in enumerate(found)]
        assert not resolve_tuned(open_rows, fit).unfit
    assert list(space.propose({"m": 1, "n": 1 << 20})) == []
    assert list(tuning_space(resolve_text(NORM + "bounds: [8192]\n")).propose({"m": 1, "n": 4096})) == []


def test_rows_that_are_not_reduced_have_nothing_to_tune(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    spec = tmp_path / "parts.yaml"
    spec.write_text(FORMS["parts"])
    assert main(["lock", str(spec)]) == 0
    script_measuring(tmp_path, monkeypatch)()
    assert tune(spec, "--shape", "m=64,n=5120") == 2
    assert "nothing to tune" in capsys.readouterr().err
