"""`cutegen check --on cpu`: what it says of specs, packages and Python files, of faults in them, and of what it cannot
execute."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

pytest.importorskip("numpy")
pytest.importorskip("torch")

from gemm_specs import PLAIN

from cutegen.build import cpu
from cutegen.cli import main
from cutegen.diagnostics import CutegenError
from cutegen.machine import Simulation, load
from cutegen.machine.case_list import list_cpu_cases
from cutegen.machine.host import missing_tool
from cutegen.machine.package import read_program
from cutegen.machine.worker import CpuRequest, execute

pytestmark = [
    pytest.mark.dsl,
    pytest.mark.skipif(importlib.util.find_spec("cutlass") is None, reason="nvidia-cutlass-dsl is not installed"),
    pytest.mark.skipif(missing_tool() is not None, reason=str(missing_tool())),
]
ROOT = Path(__file__).parents[2]
SPEC = PLAIN + "portfolio: 1\ntiling: {tile: [64, 64, 64], cluster: [1, 1]}\nwarpgroups: {schedule: cooperative}\n"
FILE = f"""
import sys

sys.path.insert(0, {str(Path(__file__).parent)!r})
import functools

import torch
from mini_gemm import MiniTiling, compile_kernel

TILE = (128, 128, 64)


@functools.cache
def kernel():
    return compile_kernel(MiniTiling(FAULT), "--enable-tvm-ffi")


def get_inputs(m=200, n=136, k=200, device="cuda"):
    return tuple(torch.randn(rows, k, device=device, dtype=torch.bfloat16) for rows in (m, n))


def launch_fn(a, b, d):
    kernel()(a, b, d)


def kernel_fn(a, b):
    d = torch.empty(a.shape[0], b.shape[0], dtype=a.dtype, device=a.device)
    launch_fn(a, b, d)
    return d


def reference_fn(a, b):
    return (a.double() @ b.double().T).to(a.dtype)
"""


def check(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, dict[str, Any]]:
    code = main(["check", "--on", "cpu", "--json", *map(str, arguments)])
    return code, json.loads(capsys.readouterr().out)


def write(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(text)
    return path


def test_a_spec_passes_in_every_order(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, result = check(capsys, write(tmp_path, "small.yaml", SPEC), "--orders", 3)
    (report,) = result["checks"]
    assert (code, report["ok"], report["where"], report["orders"], report["strict"]) == (0, True, "cpu", 3, True)
    assert {case["sms"] for case in report["cases"]} == {2, 4}
    assert all([r["status"] for r in case["results"]] == ["pass"] * 3 for case in report["cases"])
    assert {case["case"]["mode"] for case in report["cases"]} >= {"numerics", "strides"}
    (code_of,) = report["code"]
    assert 0 < len(code_of["unreached"]) < code_of["instructions"] // 10
    assert re.search(r"executed on the CPU: 3 orders, no race; .* cases pass; .* of the code", report["summary"])


def test_run_goes_on_to_the_cpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing of it enters the lock."""
    monkeypatch.setattr("cutegen.runtime.gpu.probe_driver", lambda: cpu_only())
    spec = write(tmp_path, "small.yaml", SPEC)
    assert main(["lock", str(spec)]) == 0
    lock = (tmp_path / "small.lock.yaml").read_text()
    capsys.readouterr()
    assert main(["run", str(spec), "-o", str(tmp_path / "out"), "--json"]) == 0
    (result,) = json.loads(capsys.readouterr().out)
    step = result["steps"]["check"]
    assert step["ok"] is True
    assert step["result"].startswith("compiled, executed on the CPU: 5 orders, no race")
    assert "not run on a GPU: no driver" in step["result"]
    assert step["details"]["where"] == "cpu"
    assert "bench" not in result["steps"]
    assert (tmp_path / "small.lock.yaml").read_text() == lock


def cpu_only() -> Any:
    from cutegen.runtime.gpu import Driver

    return Driver(None, (), "no driver")


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("kernel", "suite"), [("mla_decode_bf16_few", "flash_mla_dense"), ("mla_sparse_v32_few", "flash_mla_sparse")]
)
def test_cases_of_flash_mla(kernel: str, suite: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Those for up to 16 heads, cut down: kernels of one form, which compile soonest."""
    code, result = check(capsys, ROOT / "specs" / f"{kernel}_sm90a.yaml", "--orders", 1, "--suite", suite)
    (report,) = result["checks"]
    assert code == 0, report["summary"]
    assert len(report["cases"]) == 12
    assert {case["case"]["mode"] for case in report["cases"]} == {"numerics"}


def test_problems_are_ragged_and_take_several_waves() -> None:
    subject = load(ROOT / "generated" / "gemm_bf16_sm90a", Simulation())
    cases = list_cpu_cases(subject)
    for key in {case.case.tiling for case in cases}:
        tm, tn, tk = subject.tilings[key].tile
        shapes = [(case.sms, case.case.shape) for case in cases if case.case.tiling == key]
        assert all(s["m"] % tm and s["n"] % tn and s["k"] % tk for _, s in shapes)
        tiles = [(sms, -(-s["m"] // tm), -(-s["n"] // tn)) for sms, s in shapes]
        assert any(rows > 2 * sms and columns > 1 for sms, rows, columns in tiles)
        assert any(columns > 2 * sms for sms, _, columns in tiles)
        assert any(s["k"] > subject.tilings[key].stages * tk for _, s in shapes)


@pytest.mark.parametrize(
    ("fault", "status", "told"),
    [
        ("", "pass", ""),
        ("in_flight=1", "wrong|race|fault", "nan|race|in flight"),
        ("tma_store=False", "wrong", "never written"),
    ],
)
def test_a_file_with_a_kernel_of_its_own(
    fault: str, status: str, told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write(tmp_path, "mine.py", FILE.replace("FAULT", fault))
    code, result = check(capsys, path, "--orders", 2)
    (report,) = result["checks"]
    assert report["strict"] is False
    found = {r["status"] for case in report["cases"] for r in case["results"]}
    assert code == int(bool(fault)), report
    assert all(re.fullmatch(f"{status}|pass", s) for s in found), report
    assert re.search(told, json.dumps(report))


def test_a_race_is_told_with_lines_of_source_and_ptx(tmp_path: Path) -> None:
    """A barrier is taken out of the text of a package."""
    assert main(["render", str(write(tmp_path, "small.yaml", SPEC)), "-o", str(tmp_path)]) == 0
    kernel = tmp_path / "small" / "kernel.py"
    text = kernel.read_text()
    broken = re.sub(r"^( *)(cute\.arch\.barrier\(.*\))$", r"\1pass", text, flags=re.M)
    assert broken != text
    kernel.write_text(broken)
    found = [r for results in execute(CpuRequest(tmp_path / "small", orders=3)).results for r in results]
    told = "\n".join(t for r in found for t in r.detail)
    assert {r.status for r in found} & {"race", "fault"}, told
    assert re.search(r"PTX line \d+ \(kernel\.py:\d+\)", told), told


def test_line_information_changes_no_instruction(tmp_path: Path) -> None:
    """What is executed is compiled with it, what is built is not."""
    assert main(["render", str(write(tmp_path, "small.yaml", SPEC)), "-o", str(tmp_path)]) == 0
    code = (
        "from pathlib import Path; from cutegen.run.subject import load_subject; from cutegen.runtime import compile\n"
    )
    code += (
        f"compile._load = lambda data, key: print(key); load_subject(Path({str(tmp_path / 'small')!r})).plan.warm_up()"
    )
    programs = []
    for setting in ({}, {"CUTE_DSL_LINEINFO": "1"}):
        cache = tmp_path / f"cache{len(programs)}"
        environment = {**os.environ, "CUTEGEN_CACHE_DIR": str(cache), **setting}
        command = [sys.executable, "-c", code, str(tmp_path / "small")]
        subprocess.run(command, check=True, env=environment, cwd=ROOT, capture_output=True)
        (ptx,) = cache.rglob("kernel.ptx")
        programs.append(read_program(ptx.read_text()))
    plain, located = programs
    assert not plain.locations
    assert located.locations
    assert [i.opcode for i in plain.instructions] == [i.opcode for i in located.instructions]


ENDLESS = """
import cutlass
import cutlass.cute as cute
import torch
from cutlass.cute.runtime import make_fake_compact_tensor


@cute.kernel
def kernel(x: cute.Tensor):
    i = cutlass.Int32(1)
    while i != 0:
        i = i + 2
        if i % 64 == 1:
            x[0] = i


@cute.jit
def launch(x: cute.Tensor):
    kernel(x).launch(grid=(1, 1, 1), block=(32, 1, 1))


def get_inputs(n=8):
    return (torch.zeros(n, dtype=torch.int32, device="cuda"),)


def kernel_fn(x):
    fake = make_fake_compact_tensor(cutlass.Int32, (cute.sym_int(),))
    cute.compile(launch, fake, options="--enable-tvm-ffi")(x)
    return x


def reference_fn(x):
    return x
"""


def test_a_kernel_that_never_ends(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path, "endless.py", ENDLESS)
    code, result = check(capsys, path, "--orders", 1, "--timeout", 4)
    (report,) = result["checks"]
    (found,) = {r["status"] for case in report["cases"] for r in case["results"]}
    told = report["cases"][0]["results"][0]["detail"][0]
    assert (code, found) == (1, "hang")
    assert "did not end in the time that it was given" in told
    assert re.search(r"CTA \(0, 0, 0\) warps 0: runs.* at PTX line \d+", told)


def test_a_file_without_a_kernel_of_cute_dsl(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = FILE.replace("launch_fn(a, b, d)\n    return d", "return a @ b.T").replace("FAULT", "")
    path = write(tmp_path, "plain.py", text.replace("def launch_fn", "def _launch"))
    code, result = check(capsys, path, "--orders", 1)
    (report,) = result["checks"]
    assert code == 2
    assert "no kernel of CuTe DSL was launched" in report["not_run"]


def test_what_takes_too_long_or_too_much_is_not_begun(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    spec = write(tmp_path, "small.yaml", SPEC)
    large = "m=16384,n=16384,k=16384"
    code, result = check(capsys, spec, "--orders", 1, "--timeout", "0.01", "--shape", large)
    (report,) = result["checks"]
    assert code == 2
    assert re.search(r"one order is expected to take \d+ s, and --timeout allows 0.01 s", report["not_run"])


@pytest.mark.parametrize(
    ("missing", "told"),
    [("torch", "torch is not installed .a CPU build is enough.: pip install"), ("compiler", "there is no C compiler")],
)
def test_what_is_not_installed(
    missing: str, told: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from cutegen.runtime.gpu import Torch

    if missing == "torch":
        monkeypatch.setattr(cpu, "probe_torch", lambda: Torch(None, None))
    else:
        monkeypatch.setattr(cpu.shutil, "which", lambda name: None)
    code, result = check(capsys, write(tmp_path, "small.yaml", SPEC))
    assert code == 2
    assert re.search(told, result["checks"][0]["not_run"])


@pytest.mark.parametrize("form", ["svg", "txt"])
def test_a_timeline_of_the_first_case(form: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    spec, path = write(tmp_path, "small.yaml", SPEC), tmp_path / f"roles.{form}"
    code, _ = check(capsys, spec, "--orders", 2, "--timeline", path)
    text = path.read_text()
    assert code == 0
    assert "by steps of the PTX machine, not by time" in text
    assert "CTA 0,0,0 warp 0: loads" in text
    assert "multiplies, stores" in text
    assert re.search(
        r"waits for the phase of parity \d of mbarrier at shared\+\d+ .*at PTX line \d+ \(kernel\.py:", text
    )
    if form == "svg":
        root = ElementTree.fromstring(text)
        assert {rect.get("class") for rect in root.iter("{http://www.w3.org/2000/svg}rect")} >= {"load", "product", "i"}


def test_options_of_the_cpu_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", str(write(tmp_path, "small.yaml", SPEC)), "--orders", "3"]) == 2
    assert "add --on cpu" in capsys.readouterr().err
    spec = str(write(tmp_path, "small.yaml", SPEC))
    assert main(["check", spec, "--on", "cpu", "--timeline", str(tmp_path / "roles.png")]) == 2
    assert "name a .svg or a .txt" in capsys.readouterr().err


def test_python_m_of_a_package(capsys: pytest.CaptureFixture[str]) -> None:
    from cutegen.runtime.command import benchmark_kernel_argparse
    from generated.gemm_bf16_sm90a.plan import PLAN

    dims = ["--m", "70", "--n", "72", "--k", "72"]
    assert benchmark_kernel_argparse(PLAN, [*dims, "--check", "--on", "cpu"]) == 0
    printed = capsys.readouterr().out
    assert printed.count("executed on the CPU, no race") == printed.count("d: right, 0 of") == 5


def test_a_subject_that_does_not_load(tmp_path: Path) -> None:
    with pytest.raises(CutegenError, match="cannot be imported: SyntaxError"):
        execute(CpuRequest(write(tmp_path, "broken.py", "def (")))


def test_a_failure_is_shrunk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A producer that takes its fourth k block of B from the third, if the ring has four slots."""
    import cutegen.render
    from cutegen.families.gemm.shrinking import SHRINKING

    render, plainer = cutegen.render.render_package, type(SHRINKING).list_plainer
    right, wrong = "tBgB[None, n, k]", "tBgB[None, n, k - k // 3 * (t.stages // 4)]"

    def faulty(resolved: Any) -> Any:
        package = render(resolved)
        text = package.files["kernel.py"]
        assert right in text
        return replace(package, files={**package.files, "kernel.py": text.replace(right, wrong)})

    names = ("no epilogue", "fewest stages")  # each is a kernel to compile
    monkeypatch.setattr(type(SHRINKING), "list_plainer", lambda *of: (p for p in plainer(*of) if p.name in names))
    monkeypatch.setattr("cutegen.render.render_package", faulty)
    text = SPEC.replace("  d: bf16[m, n]\n", "  bias: f32[n]\n  d: bf16[m, n]\nepilogue: {d: acc + bias}\n")
    spec = write(tmp_path, "small.yaml", text + "pipeline: {stages: 4}\n")
    code, result = check(capsys, spec, "--orders", 1, "--shrink")
    shrunk = result["checks"][0]["shrunk"]
    assert (code, shrunk["smallest"]["shape"]) == (1, {"m": 1, "n": 8, "k": 200})
    assert shrunk["step"].startswith("k block 3 of 4 (k 192 to 199), slot 3 of the ring of 4")
    assert "warpgroup 0" in shrunk["fault"]["detail"][0]
    assert [(r["name"], r["outcome"]) for r in shrunk["knobs"]] == [*zip(names, ("still fails", "passes"))]
