"""Calls of a bundle from C and C++ against those of the package."""

from __future__ import annotations

import ctypes
import importlib.util
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from c_structs import Call, Device, build_example, fill_values, read_structs

import cutegen
from cutegen.cli import main
from cutegen.runtime.bundled import LIBRARY

torch = pytest.importorskip("torch")

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(importlib.util.find_spec("cutlass") is None, reason="nvidia-cutlass-dsl is not installed"),
]
ROOT = Path(__file__).parents[2]
# Split k, reductions with counters, groups, copies of gathered rows, rows, and parts with semaphores.
PROBLEMS: dict[str, list[dict[str, int]]] = {
    "gemm_bf16_sm90a": [{"m": 16, "n": 512, "k": 8192}, {"m": 512, "n": 4096, "k": 4096}],
    "gemm_bf16_rms_sm90a": [{"m": 300, "n": 4096, "k": 1024}],
    "grouped_gemm_bf16_sm90a": [{"m": 1024, "n": 512, "k": 1024, "g": 4}],
    "grouped_gemm_bf16_gather_sm90a": [
        {"m": 8, "t": 20, "n": 512, "k": 1024, "g": 4},
        {"m": 8192, "t": 900, "n": 2048, "k": 1024, "g": 4},
    ],
    "add_rmsnorm_quant_e4m3_sm90a": [{"m": 333, "n": 4096}],
    "mla_decode_bf16_mtp_sm90a": [{"batch": 3, "query_len": 2, "heads": 64, "kv_len": 3000}],
}


@pytest.fixture(scope="module")
def kernels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bundle") / "kernels"
    assert main(["bundle", *(str(ROOT / "specs" / f"{name}.yaml") for name in PROBLEMS), "-o", str(folder)]) == 0
    return folder


def scratch(size: int) -> Any:
    return torch.zeros(size + 256, dtype=torch.uint8, device="cuda")


def aligned(tensor: Any) -> int:
    return -(-tensor.data_ptr() // 256) * 256


@pytest.mark.parametrize("name", PROBLEMS)
@pytest.mark.parametrize("sms", [0, 64])
def test_a_call_from_c_has_the_bits_of_the_plans(name: str, sms: int, kernels: Path) -> None:
    import tvm_ffi  # noqa: F401  # its library, which that of the bundle needs

    library = ctypes.CDLL(str(kernels / LIBRARY))
    library.kernels_error.restype = ctypes.c_char_p
    getattr(library, f"kernels_tiling_{name}").restype = ctypes.c_char_p
    kind = read_structs((kernels / "kernels.h").read_text(), "kernels")[name]
    plan = cutegen.load(ROOT / "specs" / f"{name}.yaml")
    device = Device()
    assert library.kernels_open_device(torch.cuda.current_device(), ctypes.byref(device)) == 0, library.kernels_error()
    facts = torch.cuda.get_device_properties(torch.cuda.current_device())
    assert (device.name.decode(), device.sms, device.l2_bytes) == (
        facts.name, facts.multi_processor_count, facts.L2_cache_size,
    )  # fmt: skip
    for dims in PROBLEMS[name]:
        inputs = plan.prepare_inputs(**dims)
        expected = plan.kernel_fn(*inputs, sms=sms or None)
        expected = expected if isinstance(expected, tuple) else (expected,)
        outputs = plan.allocate_outputs(*inputs)
        args = (*plan.inputs, *plan.fresh_outputs)
        values = fill_values(kind, args, (*inputs, *outputs))
        key = library_call(library, f"kernels_pick_{name}", device, sms, values)
        assert getattr(library, f"kernels_tiling_{name}")(key).decode() == plan.choose_instance(
            inputs, plan.problem_dims(*inputs), sms or None
        )
        sizes = [ctypes.c_int64(), ctypes.c_int64()]
        library_call(library, f"kernels_scratch_{name}", device, sms, values, *sizes)
        workspace, zeroed = (scratch(size.value) for size in sizes)
        stream = torch.cuda.Stream()
        call = Call(ctypes.pointer(device), stream.cuda_stream, sms, 0, aligned(workspace), sizes[0].value,
                    aligned(zeroed), sizes[1].value)  # fmt: skip
        torch.cuda.synchronize()
        for _ in range(3):
            code = getattr(library, f"kernels_run_{name}")(ctypes.byref(call), ctypes.byref(values))
            assert code == 0, library.kernels_error().decode()
        torch.cuda.synchronize()
        assert not zeroed.any()
        for i, (want, found) in enumerate(zip(expected, plan.order_results(inputs, outputs), strict=True)):
            same, free = want.float() == found.float(), plan.free_elements(i, inputs)
            assert bool((same if free is None else same | free).all())


def library_call(library: Any, name: str, device: Device, sms: int, values: Any, *rest: Any) -> int:
    code: int = getattr(library, name)(ctypes.byref(device), sms, ctypes.byref(values), *map(ctypes.byref, rest))
    assert code >= 0, library.kernels_error().decode()
    return code


@pytest.mark.skipif(shutil.which("g++") is None, reason="there is no g++")
@pytest.mark.parametrize("extents", [("512", "4096", "4096"), ("16", "512", "8192"), ("1", "8", "8")])
def test_a_program_in_cpp(extents: tuple[str, ...], kernels: Path, tmp_path: Path) -> None:
    program = build_example(kernels, "gemm_bf16_sm90a", tmp_path)
    run = subprocess.run([program, *extents], capture_output=True, text=True)
    print(run.stdout)
    assert run.returncode == 0, run.stderr + run.stdout
    assert ": 0 of " in run.stdout
