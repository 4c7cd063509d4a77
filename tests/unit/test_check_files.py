"""`check` of Python files that are not products: given tolerances, plain indices, and machines without a GPU."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cutegen.cli import main
from cutegen.run.case_list import Case
from cutegen.run.cases import CaseResult
from cutegen.run.check import _lacks_gpu

pytest.importorskip("torch")

NORM = """\
import torch

def get_inputs(rows=6, width=32):
    return (torch.linspace(1, 2, rows * width).reshape(rows, width),)

def reference_fn(x):
    return x.double() * x.double().square().mean(-1, keepdim=True).rsqrt()

def kernel_fn(x):
    out = reference_fn(x).float()
    WRONG
    return out
"""
SPEC = Path(__file__).parents[2] / "specs" / "gemm_bf16_sm90a.yaml"


def check(tmp_path: Path, wrong: str, *options: str, text: str = NORM) -> int:
    (tmp_path / "norm.py").write_text(text.replace("WRONG", wrong))
    return main(["check", str(tmp_path / "norm.py"), *options])


def test_a_given_tolerance_replaces_the_derived_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    off = "out = out * 1.01"
    assert check(tmp_path, off) == 1
    assert ", as given" not in capsys.readouterr().out
    assert check(tmp_path, off, "--rtol", "0.02", "--atol", "1e-9") == 0
    assert "output 0: |error| <= 0.02 |ref| + 1e-09, as given\n" in capsys.readouterr().out
    assert check(tmp_path, off, "--rtol", "0.005") == 1
    capsys.readouterr()
    assert check(tmp_path, off, "--atol", "0.1", "--json") == 0
    (found,) = json.loads(capsys.readouterr().out)["checks"]
    assert found["given_tolerance"] == {"relative": 0.0, "scaled": 0.0, "absolute": 0.1, "by_row": False}
    assert {e["tolerance"]["absolute"] for c in found["cases"] for e in c["errors"]} == {0.1}


def test_a_dtype_without_a_tolerance_asks_for_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = NORM.replace("x.double() * x", "(100 * x.double()).int()  # ").replace(".float()", "")
    assert check(tmp_path, "", text=text) == 1
    assert "no tolerance follows from dtype int32: give --rtol and --atol" in capsys.readouterr().out
    assert check(tmp_path, "", "--atol", "0", text=text) == 0
    assert check(tmp_path, "out[0, 0] += 1", "--atol", "0", text=text) == 1


@pytest.mark.parametrize("values", [("nan",), ("inf",), ("-1",), ("x",)])
def test_a_tolerance_is_a_number(tmp_path: Path, values: tuple[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert check(tmp_path, "", "--rtol", *values) == 2
    assert "'--rtol'" in capsys.readouterr().err


def test_the_tolerance_of_a_spec_is_derived(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", str(SPEC), "--rtol", "0.1"]) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"error: {SPEC}: --rtol and --atol are for Python files\n  = help: leave them out")


def test_places_of_a_file_that_is_not_a_product_are_indices(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert check(tmp_path, "out[2:4, 5] += 1") == 1
    said = capsys.readouterr().out
    assert "2 of 192 wrong, all within axis 0 2..3 of 6, axis 1 5 of 32; first output 0[2, 5] is " in said
    assert "CTA tile" not in said


@pytest.mark.parametrize(
    ("said", "lacks"),
    [
        ("AssertionError: Torch not compiled with CUDA enabled", True),
        ("RuntimeError: Found no NVIDIA driver on your system. Please check that you have an NVIDIA GPU", True),
        ("RuntimeError: No CUDA GPUs are available", True),
        ("RuntimeError: 0 active drivers ([]). There should only be one.", True),
        ("NameError: name 'x' is not defined", False),
    ],
)
def test_what_frameworks_say_without_a_gpu_is_known(said: str, lacks: bool) -> None:
    assert _lacks_gpu(CaseResult(Case("defaults", {}, "numerics", None), "raised", (said,))) is lacks


def test_a_file_that_finds_no_driver_was_not_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    import torch

    if torch.cuda.is_available():
        pytest.skip("this machine has a GPU")
    said = "Found no NVIDIA driver on your system. Please check"
    assert check(tmp_path, f"raise RuntimeError({said!r})") == 2
    assert capsys.readouterr().out == f"norm: not run: no CUDA device; RuntimeError: {said}\n"
    assert check(tmp_path, "raise NameError('x')") == 1
