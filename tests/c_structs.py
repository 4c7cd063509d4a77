"""Structs of the C entry of a bundle, for tests that call it."""

from __future__ import annotations

import ctypes
import subprocess
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from cutegen.build.cpu import find_c_compiler
from cutegen.build.linker import compile_c

# Devices as their driver describes them.
H200 = SimpleNamespace(name="NVIDIA H200", multi_processor_count=132, clock_rate=1_980_000,
                       memory_clock_rate=3_201_000, memory_bus_width=6144, L2_cache_size=50 * 2**20)  # fmt: skip
H100 = SimpleNamespace(name="NVIDIA H100 80GB HBM3", multi_processor_count=132, clock_rate=1_980_000,
                       memory_clock_rate=2_619_000, memory_bus_width=5120, L2_cache_size=50 * 2**20)  # fmt: skip
PCIE = SimpleNamespace(name="NVIDIA H100 PCIe", multi_processor_count=114, clock_rate=1_755_000,
                       memory_clock_rate=1_593_000, memory_bus_width=5120, L2_cache_size=50 * 2**20)  # fmt: skip
SILENT = SimpleNamespace(name="NVIDIA H300", multi_processor_count=150)  # a driver that says no more


class Device(ctypes.Structure):
    _fields_ = [
        ("index", ctypes.c_int32),
        ("sms", ctypes.c_int32),
        ("major", ctypes.c_int32),
        ("minor", ctypes.c_int32),
        ("clock_khz", ctypes.c_int32),
        ("memory_clock_khz", ctypes.c_int32),
        ("memory_bus_bits", ctypes.c_int32),
        ("reserved", ctypes.c_int32),
        ("l2_bytes", ctypes.c_int64),
        ("name", ctypes.c_char * 256),
    ]


def device(facts: Any, major: int = 9) -> Device:
    known = [getattr(facts, f, 0) for f in ("clock_rate", "memory_clock_rate", "memory_bus_width")]
    return Device(0, facts.multi_processor_count, major, 0, *known, 0, getattr(facts, "L2_cache_size", 0),
                  facts.name.encode())  # fmt: skip


class Call(ctypes.Structure):
    _fields_ = [
        ("device", ctypes.POINTER(Device)),
        ("stream", ctypes.c_void_p),
        ("sms", ctypes.c_int32),
        ("reserved", ctypes.c_int32),
        ("workspace", ctypes.c_void_p),
        ("workspace_bytes", ctypes.c_int64),
        ("zeroed", ctypes.c_void_p),
        ("zeroed_bytes", ctypes.c_int64),
    ]


def read_structs(header: str, bundle: str) -> dict[str, type[ctypes.Structure]]:
    """The structs of arguments, as C declares them."""
    kinds = {"int64_t ": ctypes.c_int64, "double ": ctypes.c_double}
    found = {}
    for part in header.split(f"typedef struct {bundle}_args_")[1:]:
        name, _, rest = part.partition(" {\n")
        fields: list[Any] = []
        for line in rest.partition("\n}")[0].splitlines():
            text = line.strip().partition(";")[0]
            kind = next((kind for word, kind in kinds.items() if text.startswith(word)), ctypes.c_void_p)
            field, _, count = text.split(" ")[-1].lstrip("*").partition("[")
            fields.append((field, kind * int(count[:-1]) if count else kind))
        found[name] = type(name, (ctypes.Structure,), {"_fields_": fields})
    return found


def compiled(folder: Path, code: str, includes: list[Path]) -> ctypes.CDLL:
    (folder / "code.c").write_text(code)
    compile_c(folder / "code.c", includes, folder / "code.o")
    compiler = find_c_compiler()
    assert compiler
    subprocess.run([compiler, "-shared", folder / "code.o", "-o", folder / "code.so", "-ldl"], check=True)
    return ctypes.CDLL(str(folder / "code.so"), mode=ctypes.RTLD_LOCAL)


def build_example(bundle: Path, name: str, folder: Path) -> str:
    """docs/bundle.cpp for spec `name` of a bundle, a plain bf16 product; the path of the program."""
    from tvm_ffi.libinfo import find_libtvm_ffi

    text = (Path(__file__).parents[1] / "docs" / "bundle.cpp").read_text(encoding="utf-8")
    text = text.replace("gemm_bf16_sm90a", name).replace("kernels", bundle.name).replace("KERNELS", bundle.name.upper())
    (folder / "bundle.cpp").write_text(text, encoding="utf-8")
    ffi = Path(find_libtvm_ffi()).parent
    command = ["g++", "-std=c++17", "-Wall", "-Wextra", "-Werror", str(folder / "bundle.cpp"), f"-I{bundle}"]
    command += [f"-L{bundle}", f"-L{ffi}", "-Wl,--no-as-needed", "-l:kernels.so", "-ltvm_ffi", "-ldl"]
    command += [f"-Wl,-rpath,{bundle}:{ffi}", "-o", str(folder / "bundle")]
    subprocess.run(command, check=True)
    return str(folder / "bundle")


def fill_values(kind: type[ctypes.Structure], args: Sequence[Any], values: Sequence[Any]) -> ctypes.Structure:
    """The struct of a call that passes torch tensors, and Python floats, as these arguments. None: left out."""
    filled = kind()
    for arg, value in zip(args, values, strict=True):
        if value is None:
            continue
        if not hasattr(value, "data_ptr"):
            setattr(filled, arg.name, value)
            continue
        setattr(filled, arg.name, value.data_ptr())
        if value.dim():
            setattr(filled, f"{arg.name}_strides", (ctypes.c_int64 * value.dim())(*value.stride()))
        for dim, extent in zip(arg.dims, arg.extents(value)):
            if hasattr(filled, dim):
                setattr(filled, dim, extent)
    return filled
