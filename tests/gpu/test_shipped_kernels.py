"""Every shipped kernel on the GPU: numerics over edge shapes, refusals of real calls, and the command line."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from cutegen.cli import main
from cutegen.report.result import load_data
from cutegen.run.check import check_kernel
from cutegen.run.subject import load_subject
from cutegen.runtime.gemm.plan import KernelPlan

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.gpu

ROOT = Path(__file__).parents[2]
PACKAGES = sorted(p.parent for p in (ROOT / "generated").glob("*_sm90a/plan.py"))  # what these GPUs run
SPEC = str(ROOT / "specs" / "gemm_bf16_sm90a.yaml")
SMALL = ["--shape", "m=1024,n=1024,k=512"]


@pytest.mark.parametrize("package", PACKAGES, ids=lambda p: p.name)
def test_numerics_over_edge_shapes(package: Path) -> None:
    report = check_kernel(package)
    assert report.ok, "\n".join((report.summary(), *report.findings()))
    assert {r.case.mode for r in report.results if r.status == "pass"} >= {
        "numerics",
        "strides",
        "stream",
        "graph",
        "repeat",
    }
    assert not [r for r in report.results if r.status in ("skipped", "refused")]


@pytest.fixture(scope="module")
def plan() -> KernelPlan:
    found = load_subject(ROOT / "generated" / "gemm_bf16_sm90a").plan
    assert found
    found.warm_up()
    return found


@pytest.fixture
def values(plan: KernelPlan) -> list[Any]:
    inputs = plan.prepare_inputs(m=72, n=64, k=128)
    return [*inputs, *plan.allocate_outputs(*inputs)]


def bf16(*shape: int) -> Any:
    return torch.zeros(shape, dtype=torch.bfloat16, device="cuda")


@pytest.mark.parametrize(
    ("position", "make", "error", "message"),
    [
        (0, lambda a: a.float(), TypeError, "a: has dtype float32, needs bfloat16"),
        (0, lambda a: a.cpu(), ValueError, "a: is on cpu, needs cuda"),
        (0, lambda a: a[None], ValueError, "a: has shape (1, 72, 128) of rank 3"),
        (0, lambda a: bf16(128, 72).mT, ValueError, "a: stride(1) is 72, needs 1 (k contiguous)"),
        (0, lambda a: bf16(72, 132)[:, :128], ValueError, "a: stride(0) is 132 elements = 264 bytes; the kernel needs"),
        (0, lambda a: bf16(72, 144)[:, 4:132], ValueError, "a: data pointer is 8 bytes past a multiple of 16"),
        (1, lambda b: bf16(64, 136), ValueError, "b: shape[1] is 136, but k is 128 (from a)"),
        (2, lambda d: bf16(72, 72), ValueError, "d: shape[1] is 72, but n is 64 (from b)"),
        (0, lambda a: None, TypeError, "a: is None, needs a torch tensor"),
    ],
)
def test_wrong_calls_are_refused_in_words(
    plan: KernelPlan, values: list[Any], position: int, make: Any, error: type, message: str
) -> None:
    values[position] = make(values[position])
    with pytest.raises(error) as caught:
        plan.launch_fn(*values)
    assert message in str(caught.value)
    torch.cuda.synchronize()


def test_one_row_with_any_stride(plan: KernelPlan) -> None:
    a, b = plan.prepare_inputs(m=1, n=64, k=128)
    expected = plan.kernel_fn(a, b)
    assert torch.equal(plan.kernel_fn(a.as_strided((1, 128), (1, 1)), b), expected)
    assert torch.equal(plan.kernel_fn(a.as_strided((1, 128), (129, 1)), b), expected)


HOST_SHARE = 0.6  # of what cuBLAS through torch costs the host: 5.9 to 6.4 of 12.2 to 12.5 us on two hosts


def test_launch_costs_little_host_time(plan: KernelPlan, values: list[Any]) -> None:
    from cutegen.run.device import CudaDevice

    (a, b, d), device = values, CudaDevice()
    launches = (lambda: plan.launch_fn(a, b, d), lambda: torch.mm(a, b.T, out=d))
    seconds, cublas = (min(device.host_seconds(launch) for _ in range(5)) for launch in launches)
    print(f"host time per launch: {seconds * 1e6:.2f} us, through torch.mm {cublas * 1e6:.2f} us")
    assert seconds < HOST_SHARE * cublas


FILE = """
import torch

def get_inputs(m=256, n=256, k=128):
    return [torch.randn(e, k, device="cuda").bfloat16() for e in (m, n)]

def reference_fn(a, b):
    return a.double() @ b.double().mT

def kernel_fn(a, b):
    return a @ b.mT
"""


def check_file(tmp_path: Path, body: str, timeout: float = 60.0) -> Any:
    path = tmp_path / "file.py"
    path.write_text(FILE.replace("return a @ b.mT", body))
    return check_kernel(path, timeout=timeout)


def test_file_with_a_right_kernel(tmp_path: Path) -> None:
    report = check_file(tmp_path, "return a @ b.mT")
    assert report.ok, list(report.findings())
    assert {r.status for r in report.results} == {"pass"}


@pytest.mark.parametrize(
    ("body", "modes"),
    [
        ("with torch.cuda.stream(torch.cuda.default_stream()): return a @ b.mT", {"stream", "graph"}),
        ("return (a * (a[0, 0].item() != 1)) @ b.mT", {"graph"}),
        ("kernel_fn.kept = getattr(kernel_fn, 'kept', a.clone()) if getattr(kernel_fn, 'kept', a).shape == a.shape "
         "else a.clone(); return kernel_fn.kept @ b.mT", {"repeat", "graph", "stream"}),
    ],
)  # fmt: skip
def test_kernels_that_are_right_only_when_called_plainly(tmp_path: Path, body: str, modes: set[str]) -> None:
    report = check_file(tmp_path, body)
    assert not report.ok
    assert modes <= {r.case.mode for r in report.results if r.status in ("wrong", "raised", "crashed", "skipped")}


def test_kernel_that_hangs_on_the_device(tmp_path: Path) -> None:
    report = check_file(tmp_path, "torch.cuda._sleep(10**13 if a.shape[0] == 129 else 1); return a @ b.mT", timeout=15)
    by_name = {r.case.name: r.status for r in report.results if r.case.mode == "numerics"}
    assert by_name["ragged m"] == "hang"
    assert by_name["one tile"] == by_name["ragged n"] == "pass"


def test_kernel_that_faults_on_the_device(tmp_path: Path) -> None:
    bad = "torch.zeros(4, device='cuda')[torch.tensor([10**6 if a.shape[0] == 129 else 0], device='cuda')]"
    report = check_file(tmp_path, f"{bad}; return a @ b.mT")
    by_name = {r.case.name: r.status for r in report.results if r.case.mode == "numerics"}
    assert by_name["ragged m"] in ("raised", "crashed")
    assert by_name["one tile"] == by_name["ragged n"] == "pass"


def test_check_and_bench_from_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", SPEC, *SMALL]) == 0
    assert "largest error" in capsys.readouterr().out
    output = tmp_path / "bench.json"
    quick = ["--rounds", "5", "--slice", "5"]
    assert main(["bench", SPEC, *SMALL, *quick, "-o", str(output)]) == 0
    assert "torch.mm" in capsys.readouterr().out
    result = load_data(output)
    kernel, baseline, *_ = result["problems"][0]["candidates"]
    assert (kernel["right"], baseline["name"], baseline["right"]) == (True, "torch.mm", True)
    assert len(kernel["samples"]) == 5
    assert 0 < kernel["seconds"]["low"] <= kernel["seconds"]["median"] <= kernel["seconds"]["high"] < 1e-3
    assert kernel["sets"] * kernel["bytes"] > 2 * result["environment"]["gpu"]["l2_bytes"]
    assert 0 < kernel["share_of_floor"] < 1.5
    assert kernel["host_seconds"] < 1e-3
    assert result["command"].startswith("cutegen bench ")


def test_fused_kernel_beside_the_plain_one(capsys: pytest.CaptureFixture[str]) -> None:
    fused = str(ROOT / "specs" / "gemm_bf16_bias_gelu_sm90a.yaml")
    arguments = [
        "bench",
        SPEC,
        fused,
        *SMALL,
        "--rounds",
        "5",
        "--slice",
        "5",
        "--against",
        "gemm_bf16_sm90a",
        "--json",
    ]
    assert main([*arguments, "--baseline", "torch.mm", "--baseline", "torch eager"]) == 0
    (problem,) = json.loads(capsys.readouterr().out)["problems"]
    names = [c["name"] for c in problem["candidates"]]
    assert names[:3] == ["gemm_bf16_sm90a", "gemm_bf16_bias_gelu_sm90a", "torch.mm"]
    assert "gemm_bf16_bias_gelu_sm90a: torch eager" in names
    assert problem["candidates"][1]["speed"]["coverage"] > 0.9


@pytest.mark.parametrize("profile", ["disabled", "annotation", "ncu"])
def test_generated_command_line(profile: str) -> None:
    command = [sys.executable, "-m", "generated.gemm_bf16_sm90a", "--m", "1024", "--n", "1024", "--k", "512", "--check"]
    done = subprocess.run([*command, f"--prof_type={profile}"], cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert "d: right, 0 of 1048576 elements beyond" in done.stdout
    assert ("ncu --profile-from-start off" if profile == "ncu" else "TFLOP/s") in done.stdout
