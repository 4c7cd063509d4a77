"""Suites: named lists of problems, their diagnostics, and what `bench` makes of them."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from gemm_specs import OFFSETS, PLAIN, gathered
from mla_specs import MLA

from cutegen.cli import main
from cutegen.diagnostics import CutegenError, SpecError
from cutegen.resolve import resolve_file
from cutegen.run.intervals import summarise_speeds
from cutegen.run.subject import load_subject
from cutegen.run.suite import Suite, load_suite
from cutegen.run.targets import open_target

ROOT = Path(__file__).parents[2]
DIMS: dict[str, Any] = {"m": (1, None), "n": 64}


def write(tmp_path: Path, text: str) -> Suite:
    (tmp_path / "small.yaml").write_text(text)
    return load_suite("small", tmp_path)


def test_grid_and_shapes(tmp_path: Path) -> None:
    suite = write(tmp_path, "cutegen: 1\ngrid: {m: [1, 2], n: [64, 128]}\nshapes: [{m: 2, n: 64}, {m: 9, n: 64}]\n")
    shapes = [(r.shape["m"], r.shape["n"]) for r in suite.rows()]
    assert shapes == [(1, 64), (1, 128), (2, 64), (2, 128), (9, 64)]
    suite.check_dims(DIMS, "gemm")


def test_shipped_suite_is_the_measured_grid() -> None:
    shapes = [r.shape for r in load_suite("mla_decode_h200", ROOT / "specs" / "suites").rows()]
    assert len(shapes) == 160
    assert list(shapes[0]) == ["batch", "query_len", "heads", "kv_len"]
    assert list(shapes[1].values()) == [1, 1, 16, 4096]
    assert list(shapes[-1].values()) == [128, 2, 128, 16384]


@pytest.mark.parametrize(
    ("text", "where", "message"),
    [
        ("grid: {m: [1, x]}\n", "1:15", "`grid.m[1]` must be"),
        ("grid: {m: []}\n", "1:1", "the suite lists no problem"),
        ("shapes: [{m: 0}]\n", "1:14", "`shapes[0].m` must be"),
        ("shapes: 3\n", "1:9", "`shapes` must be a list"),
        ("description: x\ngrids: {m: [1]}\n", "2:1", "unknown key `grids`"),
        ("description: nothing\n", "1:1", "the suite lists no problem"),
        ("grid: {m: [1]}\ngrid: {m: [2]}\n", "2:1", "grid"),
    ],
)
def test_bad_suites_are_located(tmp_path: Path, text: str, where: str, message: str) -> None:
    with pytest.raises(CutegenError) as caught:
        write(tmp_path, text)
    report = caught.value.report()
    assert f"small.yaml:{where}: error[" in report
    assert message in report


@pytest.mark.parametrize(
    ("text", "where", "message"),
    [
        ("grid: {n: [64], mm: [1]}\n", "1:17", "`gemm` has no dim `mm`"),
        ("grid: {n: [64]}\n", "1:1", "`m` is missing, which `gemm` needs"),
        ("shapes:\n  - {m: 1}\n  - {n: 64}\n", "3:6", "`m` is missing, which `gemm` needs"),
    ],
)
def test_dims_that_a_kernel_does_not_have_are_located(tmp_path: Path, text: str, where: str, message: str) -> None:
    with pytest.raises(CutegenError) as caught:
        write(tmp_path, text).check_dims(DIMS, "gemm")
    report = caught.value.report()
    assert f"small.yaml:{where}: error[" in report
    assert message in report


@pytest.mark.parametrize(
    "text", ["hunter2-pass: y\n", "a: *hunter2\n", "hunter2:\n  grid: 1\n", "hunter2: {problems: 1}\n"]
)
def test_of_a_file_that_is_no_suite_nothing_is_told(tmp_path: Path, text: str) -> None:
    with pytest.raises(SpecError, match=r"small\.yaml: this is not a suite: no line begins with") as caught:
        write(tmp_path, text)
    assert "hunter2" not in str(caught.value)


def test_sources_that_are_alike_are_compared_for_what_is_shown(tmp_path: Path) -> None:
    sources = "".join(f"  sourcesource{i:04d}: x\n" for i in range(500))
    problems = "".join(f"  - {{name: p{i}, shape: {{m: 1}}, source: saurcesource{i:04d}}}\n" for i in range(500))
    begin = time.process_time()
    with pytest.raises(SpecError, match="did you mean `sourcesource0007`") as caught:
        write(tmp_path, f"sources:\n{sources}problems:\n{problems}")
    assert time.process_time() - begin < 3
    assert caught.value.more == 200


def test_a_grid_has_few_dims(tmp_path: Path) -> None:
    """Each problem would have an extent of each."""
    grid = ", ".join(f"g{i}: [1]" for i in range(17))
    with pytest.raises(SpecError, match="`grid` has 17 dims; at most 16 are allowed"):
        write(tmp_path, f"grid: {{{grid}}}\n")


def test_missing_suite_names_those_that_exist(tmp_path: Path) -> None:
    write(tmp_path, "grid: {m: [1]}\n")
    with pytest.raises(CutegenError, match=r"large\.yaml does not exist.*\n.*there are .*llm_gemm.* small"):
        load_suite("large", tmp_path)
    (tmp_path / "folder.yaml").mkdir()
    for name in ("folder", "x" * 5000, "a\0b"):
        with pytest.raises(CutegenError, match=r"does not exist[^|]*there are flash_mla_dense, ") as caught:
            load_suite(name, tmp_path)
        assert "folder" not in caught.value.remedy


def test_a_spec_that_names_no_suite_is_a_finding(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """For `validate`, and for what runs a spec."""
    spec = tmp_path / "wide.yaml"
    spec.write_text(PLAIN + "bench:\n  suite: llm_gem\n")
    assert main(["validate", str(spec)]) == 1
    report = capsys.readouterr().err
    assert f"{spec}:9:10: error[unknown-suite]: " in report
    assert "did you mean `llm_gemm`" in report
    with pytest.raises(SpecError, match="unknown-suite"):
        open_target(spec, tmp_path / "scratch")
    (tmp_path / "suites").mkdir()
    (tmp_path / "suites" / "llm_gem.yaml").write_text("shapes: [{m: 64, n: 64, k: 64}]\n")
    assert main(["validate", str(spec)]) == 0


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("shapes:\n  - {m: 64, k: 64}\n", ""),
        ("shapes:\n  - {m: 64, n: 64, k: 64}\n", ""),  # a constant may be given
        ("shapes:\n  - {m: 64, n: 64}\n", "2:6: error[missing-dim]: `k` is missing, which `wide` needs"),
        ("grid: {m: [1], k: [64], kk: [8]}\n", "1:25: error[unknown-dim]: `wide` has no dim `kk`"),
        (
            "grid: {m: [1]}\nproblems:\n  - {name: qkv, shape: {k: 64, o: 8}}\n",
            "3:32: error[unknown-dim]: `wide` has no dim `o`",
        ),
    ],
)
def test_a_suite_of_other_dims_is_a_finding(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, said: str
) -> None:
    spec, suite = tmp_path / "wide.yaml", tmp_path / "suites" / "own.yaml"
    spec.write_text(PLAIN + "dims: {n: 64}\nbench: {suite: own}\n")
    suite.parent.mkdir()
    suite.write_text(text)
    assert main(["validate", str(spec)]) == bool(said)
    if said:
        assert f"{suite}:{said}" in capsys.readouterr().err


@pytest.mark.parametrize(
    "text",
    [PLAIN, PLAIN.replace("[n, k]", "[4096, k]").replace("[m, n]", "[m, 4096]") + "dims: {m: [1, 64]}\n", OFFSETS,
     gathered(OFFSETS), MLA, MLA.replace("heads: [16, 128]", "heads: 16")],
)  # fmt: skip
def test_dims_of_a_resolved_kernel_are_those_of_its_plan(tmp_path: Path, text: str) -> None:
    spec = tmp_path / "product.yaml"
    spec.write_text(text)
    target = open_target(spec, tmp_path / "scratch")
    assert resolve_file(spec).resolved.dims == load_subject(target.path).dims


def test_shipped_suites_serve_specs_anywhere(tmp_path: Path) -> None:
    assert load_suite("llm_gemm", tmp_path).document.path == str(ROOT / "specs" / "suites" / "llm_gemm.yaml")
    own = write(tmp_path, "grid: {m: [1]}\n")
    (tmp_path / "llm_gemm.yaml").write_text(own.document.text)
    assert len(load_suite("llm_gemm", tmp_path).rows()) == 1


def test_summary_is_the_geomean_of_each_round() -> None:
    s = summarise_speeds([[2.0, 2.0, 4.0], [1.0, 1.0, 1.0]], [[1.0, 2.0, 1.0], [2.0, 2.0, 2.0]])
    assert (s.problems, s.least, s.most, s.below_one) == (2, 0.5, 2.0, 1)
    assert s.geomean.median == pytest.approx(1.0)
    assert (s.geomean.low, s.geomean.high) == (pytest.approx(0.5**0.5), pytest.approx(2**0.5))


def test_names_of_problems_are_shown_as_text(tmp_path: Path) -> None:
    suite = write(tmp_path, 'sources: {a: "\\e[30m"}\nproblems: [{name: "\\e[30mx", shape: {m: 1}, source: a}]\n')
    assert [(row.name, row.source) for row in suite.rows()] == [("\\x1b[30mx", "\\x1b[30m")]
