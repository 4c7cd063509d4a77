"""What the machine can do: the GPU probe and doctor, with everything missing that can be missing."""

from __future__ import annotations

import json
import sys
import types
from pathlib import Path

import pytest

from cutegen import cache_words
from cutegen.build import cpu, doctor
from cutegen.build.trial import Trial
from cutegen.cli import main
from cutegen.runtime import gpu
from cutegen.runtime.gpu import Driver, Torch, arch_capability, probe_gpu

H200 = ("NVIDIA H200", (9, 0))
A100 = ("NVIDIA A100", (8, 0))
B200 = ("NVIDIA B200", (10, 0))
ROOT = Path(__file__).parents[2]
GOOD_TORCH = Torch("2.9.0", "12.8")


def pretend(monkeypatch: pytest.MonkeyPatch, driver: Driver, torch: Torch = GOOD_TORCH, flavour: str = "cu12") -> None:
    for module in (gpu, doctor):
        monkeypatch.setattr(module, "probe_driver", lambda: driver)
        monkeypatch.setattr(module, "probe_torch", lambda: torch)
    monkeypatch.setattr(cpu, "probe_torch", lambda: torch)
    versions = {"nvidia_cutlass_dsl": "4.8.1", f"nvidia_cutlass_dsl_libs_{flavour}": "4.8.1"}
    monkeypatch.setattr(gpu, "distribution_versions", lambda: versions)


def test_a_fitting_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(monkeypatch, Driver((13, 0), (H200,), ""))
    status = probe_gpu("sm_90a")
    assert (status.ok, status.reason, status.name, status.capability) == (True, "", "NVIDIA H200", (9, 0))


@pytest.mark.parametrize(
    ("driver", "torch", "flavour", "reason"),
    [
        (Driver(None, (), "no NVIDIA driver: install"), GOOD_TORCH, "cu12", "no NVIDIA driver"),
        (Driver((13, 0), (), gpu._no_device()), GOOD_TORCH, "cu12", "no CUDA device: check nvidia-smi"),
        (Driver((12, 4), (H200,), ""), GOOD_TORCH, "cu12", "supports CUDA 12.4, the installed CuTe DSL needs 12.9"),
        (Driver((12, 9), (H200,), ""), GOOD_TORCH, "cu13", "supports CUDA 12.9, the installed CuTe DSL needs 13.0"),
        (Driver((13, 0), (A100,), ""), GOOD_TORCH, "cu12", "needs compute capability 9.0; NVIDIA A100 has 8.0: use a"),
        (Driver((13, 0), (A100, H200), ""), GOOD_TORCH, "cu12", "NVIDIA A100 has 8.0: set CUDA_VISIBLE_DEVICES=1"),
        (Driver((13, 0), (H200,), ""), Torch(None, None), "cu12", "torch is not installed"),
        (Driver((13, 0), (H200,), ""), Torch("2.9.0+cpu", None), "cu12", "torch 2.9.0+cpu is a CPU build"),
        (Driver((12, 9), (H200,), ""), Torch("2.9.0", "13.0"), "cu12", "is for CUDA 13.0, the driver supports 12.9"),
    ],
)  # fmt: skip
def test_each_reason(monkeypatch: pytest.MonkeyPatch, driver: Driver, torch: Torch, flavour: str, reason: str) -> None:
    pretend(monkeypatch, driver, torch, flavour)
    status = probe_gpu("sm_90a")
    assert not status.ok
    assert len(status.reasons) == 1
    assert reason in status.reason


@pytest.mark.parametrize(
    ("device", "arch", "reason"),
    [
        (H200, "sm_100a", "sm_100a needs compute capability 10.0; NVIDIA H200 has 9.0"),
        (B200, "sm_90a", "sm_90a needs compute capability 9.0; NVIDIA B200 has 10.0"),
        (B200, "sm_100a", ""),
        (B200, "sm_103a", "sm_103a needs compute capability 10.3; NVIDIA B200 has 10.0"),
    ],
)
def test_a_gpu_of_another_architecture(
    monkeypatch: pytest.MonkeyPatch, device: tuple[str, tuple[int, int]], arch: str, reason: str
) -> None:
    pretend(monkeypatch, Driver((13, 0), (device,), ""))
    status = probe_gpu(arch)
    assert status.ok == (not reason)
    assert status.reason.startswith(reason)


def test_check_on_a_gpu_of_another_architecture(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pretend(monkeypatch, Driver((13, 0), (H200,), ""))
    assert main(["check", str(ROOT / "specs" / "gemm_bf16_sm100a.yaml")]) == 2
    assert "sm_100a needs compute capability 10.0; NVIDIA H200 has 9.0" in "".join(capsys.readouterr())


def test_capabilities_of_archs() -> None:
    assert [arch_capability(a) for a in ("sm_90a", "sm_100a", "sm_120a")] == [(9, 0), (10, 0), (12, 0)]


def test_no_libcuda(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise OSError(name)

    monkeypatch.setattr(gpu.ctypes, "CDLL", missing)
    assert gpu.probe_driver.__wrapped__() == Driver(None, (), gpu.probe_driver.__wrapped__().error)
    assert "libcuda.so.1 is missing" in gpu.probe_driver.__wrapped__().error


def fake_cuda(init: int, count: int) -> types.SimpleNamespace:
    """libcuda with `count` devices of capability 9.0."""

    def store(pointer: object, value: int) -> int:
        pointer._obj.value = value  # type: ignore[attr-defined]
        return 0

    def name(buffer: object, size: int, device: object) -> int:
        buffer.value = b"Fake"  # type: ignore[attr-defined]
        return 0

    return types.SimpleNamespace(
        cuDriverGetVersion=lambda p: store(p, 13010),
        cuInit=lambda flags: init,
        cuDeviceGetCount=lambda p: store(p, count),
        cuDeviceGet=lambda p, index: store(p, index),
        cuDeviceGetName=name,
        cuDeviceGetAttribute=lambda p, attribute, device: store(p, {gpu.MAJOR: 9, gpu.MINOR: 0}[attribute]),
    )


@pytest.mark.parametrize(
    ("init", "count", "devices", "error"),
    [
        (0, 2, 2, ""),
        (0, 0, 0, "no CUDA device"),
        (100, 0, 0, "no CUDA device"),
        (803, 0, 0, "the driver does not start (cuInit: 803)"),
    ],
)
def test_what_the_driver_says(monkeypatch: pytest.MonkeyPatch, init: int, count: int, devices: int, error: str) -> None:
    monkeypatch.setattr(gpu.ctypes, "CDLL", lambda name: fake_cuda(init, count))
    driver = gpu.probe_driver.__wrapped__()
    assert driver.cuda == (13, 1)
    assert driver.devices == (("Fake", (9, 0)),) * devices
    assert error in driver.error
    assert bool(driver.error) == bool(error)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("__version__ = '2.9.0+cu128'\ncuda: Optional[str] = '12.8'\n", Torch("2.9.0+cu128", "12.8")),
        ("__version__ = '2.9.0+cpu'\ncuda: Optional[str] = None\nhip: Optional[str] = '6'\n", Torch("2.9.0+cpu", None)),
        (None, Torch("unknown", None)),
    ],
)
def test_torch_is_read_and_not_imported(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, text: str | None, expected: Torch
) -> None:
    package = tmp_path / "torch"
    package.mkdir()
    (package / "__init__.py").write_text("raise SystemError('imported')\n")
    if text:
        (package / "version.py").write_text(text)
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    monkeypatch.syspath_prepend(str(tmp_path))
    assert gpu.probe_torch() == expected


def run_doctor(capsys: pytest.CaptureFixture[str]) -> dict[str, dict[str, object]]:
    assert main(["doctor"]) == 0
    assert "Traceback" not in capsys.readouterr().out
    assert main(["doctor", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    return {row.get("name") or row["command"]: row for row in result["facts"] + result["commands"]}


def test_doctor_on_a_bare_machine(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    pretend(monkeypatch, Driver(None, (), "no NVIDIA driver: install it"), Torch(None, None))
    for module in (doctor, gpu):
        monkeypatch.setattr(module, "distribution_versions", dict)
    monkeypatch.setattr(doctor, "dsl_version", lambda: None)
    monkeypatch.setattr(doctor, "find_nvdisasm", lambda: None)
    monkeypatch.setattr(cpu.shutil, "which", lambda name: None)
    monkeypatch.setenv("CUTEGEN_CACHE_DIR", str(tmp_path / "not" / "there"))
    rows = run_doctor(capsys)
    assert rows["validate, resolve, lock, pin, render, explain"]["ok"] is True
    assert rows["build"]["ok"] is False
    for remedy in ("nvidia-cutlass-dsl>=4.6.2", "apache-tvm-ffi", "nvidia-cuda-nvdisasm"):
        assert remedy in str(rows["build"]["why"])
    assert "no NVIDIA driver" in str(rows["check, bench, tune"]["why"])
    assert "torch is not installed" in str(rows["check, bench, tune"]["why"])
    for lacking in ("CuTe DSL not installed", "torch is not installed (a CPU build is enough)", "no C compiler (cc)"):
        assert lacking in str(rows["check --on cpu"]["why"])
    assert rows["cache"]["ok"] is True
    assert not (tmp_path / "not").exists()


def test_doctor_on_a_good_machine(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    pretend(monkeypatch, Driver((13, 0), (H200, A100), ""))
    versions = {"nvidia_cutlass_dsl": "4.8.1", "nvidia_cutlass_dsl_libs_cu13": "4.8.1", "apache_tvm_ffi": "0.1.11"}
    monkeypatch.setattr(doctor, "distribution_versions", lambda: versions)
    monkeypatch.setattr(doctor, "dsl_version", lambda: (4, 9, 0))
    monkeypatch.setattr(doctor, "try_compiler", lambda arch: Trial("", 1.5))
    monkeypatch.setattr(doctor, "find_nvdisasm", lambda: "/opt/nvdisasm")
    monkeypatch.setattr(cpu.shutil, "which", lambda name: f"/usr/bin/{name}")
    monkeypatch.setattr(doctor.importlib.util, "find_spec", lambda name: object())
    monkeypatch.setenv("CUTEGEN_CACHE", "0")
    rows = run_doctor(capsys)
    assert rows["check, bench, tune"] == {"command": "check, bench, tune", "ok": True, "why": ""}
    assert rows["check --on cpu"]["ok"] is True
    assert rows["GPU"]["value"] == "NVIDIA H200 (9.0: sm_90a); NVIDIA A100 (8.0: no kernels for it)"
    assert rows["compiler"]["value"] == "a trial kernel compiles for sm_90a, 1.5 s"
    assert (rows["build"]["ok"], rows["DSL wheels"]["value"]) == (True, "2, all 4.8.1")
    assert "outside the tested 4.6 to 4.8" in str(rows["CuTe DSL"]["value"])
    assert rows["cache"]["value"] == cache_words.OFF
    monkeypatch.setattr(doctor, "try_compiler", lambda arch: Trial("TypeError: no\n  such argument", 1.5))
    rows = run_doctor(capsys)
    said = "compiler a trial kernel does not compile: TypeError: no such argument"
    for command in ("build", "check, bench, tune"):
        assert rows[command]["ok"] is False
        assert str(rows[command]["why"]).startswith(said)


def test_doctor_says_that_the_cache_is_no_folder(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setattr(doctor, "try_compiler", lambda arch: Trial("", 1.5))
    monkeypatch.setenv("CUTEGEN_CACHE_DIR", str(tmp_path / "file"))
    row = run_doctor(capsys)["cache"]
    assert row["ok"] is False
    assert "CUTEGEN_CACHE_DIR" in str(row["remedy"])
