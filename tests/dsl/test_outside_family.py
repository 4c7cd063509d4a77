"""The kernel family that docs/adding-a-kernel-family.md builds, taken from the page: an installed distribution that
renders, builds under the contract, and computes what its reference does, on the PTX machine."""

from __future__ import annotations

import ast
import importlib.util
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("numpy")
pytest.importorskip("torch")

from guide_family import NAME, PACKAGE, guide_files, install_family
from op_packages import on_path

from cutegen.build.facts import find_nvdisasm
from cutegen.cli import main
from cutegen.diagnostics import RULES
from cutegen.families.generated_names import read_table
from cutegen.machine import Simulation, assert_equal_bits, assert_passes, load
from cutegen.machine.host import missing_tool
from cutegen.run.case_list import list_cases

pytestmark = [
    pytest.mark.dsl,
    pytest.mark.skipif(importlib.util.find_spec("cutlass") is None, reason="nvidia-cutlass-dsl is not installed"),
]
on_the_machine = pytest.mark.skipif(missing_tool() is not None, reason=str(missing_tool()))


@pytest.fixture
def spec(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A spec that starts as the family's starter, where its package is installed."""
    site, here = tmp_path / "site", tmp_path / "here"
    for folder in (site, here):
        folder.mkdir()
    install_family(site)
    monkeypatch.chdir(here)
    with on_path(site):
        assert main(["new", NAME, "norm", "--no-schema"]) == 0
        yield Path("specs/norm.yaml")
    RULES.pop("norm-threads", None)  # what other tests list are those of cutegen


@pytest.mark.skipif(find_nvdisasm() is None, reason="nvidia-cuda-nvdisasm is not installed")
def test_it_renders_and_builds_under_the_contract(spec: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["render", str(spec)]) == 0
    assert main(["render", "--check", "--locked", str(spec)]) == 0
    kernel = Path("generated/norm/kernel.py").read_text(encoding="utf-8")
    assert f"from {PACKAGE}.runtime import RmsNormTiling" in kernel
    capsys.readouterr()
    assert main(["build", str(spec)]) == 0
    assert "1 as planned" in capsys.readouterr().err


@on_the_machine
@pytest.mark.parametrize(
    ("change", "shape"),
    [
        ("", {"m": 37, "n": 1304}),
        ("eps: 0.5\nthreads: 32\ndims: {n: 264}", {"m": 5, "n": 264}),
        ("eps: 1\nthreads: 64\ndims: {m: [1, 16]}", {"m": 16, "n": 8}),
    ],
)
def test_it_computes_what_its_reference_does(change: str, shape: dict[str, int], spec: Path) -> None:
    spec.write_text(spec.read_text(encoding="utf-8") + change + "\n", encoding="utf-8")
    simulation = Simulation(sm_count=2)
    subject = load(spec, simulation)
    for mode in ("numerics", "strides", "repeat"):
        assert_passes(subject, shape, mode=mode)
    assert not simulation.unknown()
    (assembler,) = simulation.assemblers
    moved = [i.text for i in assembler.program.instructions if i.text.startswith(("ld.global", "st.global"))]
    assert moved
    assert all(".v4.b32" in text for text in moved)
    assert_equal_bits(subject, simulation, **shape)


@on_the_machine
def test_a_wrong_kernel_is_found(spec: Path) -> None:
    """eps counts where squares are small; the weights are those of the column."""
    import torch

    subject = load(spec, Simulation(sm_count=1))
    assert subject.plan
    x, w = subject.plan.prepare_inputs(m=3, n=264)
    small = x * 2.0**-10
    y = subject.plan.kernel_fn(small, w)
    torch.testing.assert_close(y, subject.plan.reference_fn(small, w), rtol=2**-7, atol=0)
    assert not torch.allclose(y, subject.plan.kernel_fn(x, w), rtol=2**-5)
    with pytest.raises(ValueError, match="w: shape"):
        subject.plan.plan(x, w[:128])
    with pytest.raises(ValueError, match="needs a multiple of 8 elements"):
        subject.plan.plan(x[:, :4], w[:4])


@on_the_machine
def test_check_knows_its_problems(spec: Path) -> None:
    subject = load(spec, Simulation(sm_count=1))
    cases = {(case.name, case.mode) for case in list_cases(subject)}
    assert {("ragged", "strides"), ("one row", "numerics"), ("m = 0", "empty")} <= cases
    assert_passes(subject, {"m": 0, "n": 8}, mode="empty")
    assert subject.proving
    names = [baseline.name for baseline in subject.proving.list_baselines(subject.plan)]
    assert names == ["torch eager", "torch.compile"]
    assert next(iter(subject.proving.bench_dims(subject.plan))) == {"m": 4096, "n": 4096}
    assert subject.plan
    assert subject.plan._algorithmic_flops_bytes(m=4, n=8) == (4 * 4 * 8, 2 * (4 * 8 + 8 + 4 * 8))


def test_it_says_what_it_decides(spec: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["validate", str(spec)]) == 0
    assert main(["explain", str(spec), "--shape", "m=64,n=4096"]) == 0
    said = capsys.readouterr().out
    assert "eight CTAs fill an SM" in said
    assert "1.057 MB" in said
    assert main(["explain", str(spec), "--why-not", "threads=100"]) == 0
    assert "refused[norm-threads]: 100 threads are not 1 to 32 warps" in capsys.readouterr().out
    assert main(["explain", "norm-threads"]) == 0
    assert main(["explain", "eps"]) == 0
    assert main(["pin", str(spec)]) == 0
    assert "threads: 256" in spec.read_text(encoding="utf-8")
    assert main(["tune", str(spec), "--shape", "m=64,n=4096"]) == 2
    assert "nothing to tune" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("w: bf16[n]", "w: f16[n]", "error[tensor-form]: `w` is f16[n], and cannot be w: T[columns]"),
        ("y: bf16[m, n]", "y: bf16[n, m]", "error[tensor-form]: `y` is bf16[n, m]"),
        ("  y: bf16[m, n]\n", "", "error[tensor-form]: 2 tensors; `kernel: rms_norm` takes 3"),
        ("w: bf16[n]", "out: bf16[n]", "error[name-collision]: `out` is the parameter of the package's function"),
        ("# eps: 1e-6", "eps: tiny", "`eps` must be a number above 0, not the text `tiny`"),
        ("# threads: 256", "threads: 100", "error[norm-threads]: 100 threads"),
    ],
)
def test_what_is_wrong_is_said(old: str, new: str, said: str, spec: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = spec.read_text(encoding="utf-8")
    assert old in text
    spec.write_text(text.replace(old, new), encoding="utf-8")
    assert main(["validate", str(spec)]) == 1
    assert said in capsys.readouterr().err


def test_names_of_generated_source_are_refused_where_they_stand(
    spec: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """By the table that `cutegen names` makes, which lies in the package."""
    table = tmp_path / "site" / PACKAGE / "generated_names.json"
    constant = Path("specs/constant.yaml")
    text = spec.read_text(encoding="utf-8")
    constant.write_text(text + "dims: {n: 4096}\n", encoding="utf-8")
    assert main(["names", str(spec), str(constant), "-o", str(table)]) == 0
    read_table.cache_clear()
    try:
        for name, place in (("PLAN", "8:3"), ("sms", "8:3"), ("cute", "10:11"), ("annotations", "")):
            old, new = ("m]", f"{name}]") if name == "cute" else ("w:", f"{name}:")
            renamed = text.replace("[m, n]", f"[{name}, n]") if name == "cute" else text.replace(old, new)
            spec.write_text(renamed, encoding="utf-8")
            assert main(["validate", str(spec)]) == int(bool(place))
            if place:
                said = capsys.readouterr().err
                assert "error[reserved-name]" in said
                assert f"`{name}` is a name of generated source" in said
    finally:
        read_table.cache_clear()


def test_a_standalone_package_is_refused(spec: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["render", "--standalone", str(spec)]) == 1
    assert f"norm imports {PACKAGE}.runtime" in capsys.readouterr().err


def test_sources_of_the_family_are_in_the_key_of_a_kernel(spec: Path, tmp_path: Path) -> None:
    from cutegen.runtime.sources import kernel_key

    assert main(["render", str(spec)]) == 0
    path = Path("generated/norm/kernel.py")
    text = path.read_text(encoding="utf-8")
    before = kernel_key(text, "norm.kernel", path, (), "sm_90a", "")
    runtime = tmp_path / "site" / PACKAGE / "runtime.py"
    runtime.write_text(runtime.read_text(encoding="utf-8") + "\n# a comment\n")
    assert kernel_key(text, "norm.kernel", path, (), "sm_90a", "") == before
    runtime.write_text(runtime.read_text(encoding="utf-8") + "\nMORE = 1\n")
    assert kernel_key(text, "norm.kernel", path, (), "sm_90a", "") != before


def test_the_example_is_short_and_parses() -> None:
    files = guide_files()
    assert len(files) == 8
    assert sum(len(text.splitlines()) for text in files.values()) <= 300
    for path, text in files.items():
        assert all(len(line) <= 120 for line in text.splitlines()), path
        if path.endswith(".py"):
            ast.parse(text)
