"""Runs a compiled host function without a GPU and takes down its launch.

The function that CuTe DSL compiled checks the arguments, packs tensor maps and computes the grid. Its object file is
linked with shim.c, which stands in for the DSL's runtime library.
"""

from __future__ import annotations

import ctypes
import functools
import re
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from cutegen.build.cpu import find_c_compiler, lacking_for_cpu
from cutegen.machine.machine import Launch
from cutegen.machine.parser import Program, PtxError

SHIM = Path(__file__).with_name("shim.c")
CUDA = 2  # dlpack.h, kDLCUDA
# dlpack.h: (type code, bits) by torch dtype.
_DTYPES = {
    "bfloat16": (4, 16), "float16": (2, 16), "float32": (2, 32), "float64": (2, 64), "int8": (0, 8), "int32": (0, 32),
    "int64": (0, 64), "uint8": (1, 8), "float8_e4m3fn": (10, 8), "float8_e5m2": (12, 8), "bool": (6, 8),
    "float8_e8m0fnu": (14, 8), "int16": (0, 16), "float4_e2m1fn_x2": (17, 4),
}  # fmt: skip
NONE, INT, FLOAT, TENSOR = 0, 1, 3, 7  # tvm/ffi/c_api.h, TVMFFITypeIndex
# cudaLaunchAttributeClusterDimension, cudaLaunchAttributeProgrammaticStreamSerialization
CLUSTER, PROGRAMMATIC = 4, 6


class _Any(ctypes.Structure):
    _fields_ = (("type_index", ctypes.c_int32), ("padding", ctypes.c_uint32), ("value", ctypes.c_uint64))


class _Tensor(ctypes.Structure):
    """DLTensor."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("offset", ctypes.c_uint64),
    )


class _Config(ctypes.Structure):
    """cudaLaunchConfig_t."""

    _fields_ = (
        ("grid", ctypes.c_uint32 * 3),
        ("block", ctypes.c_uint32 * 3),
        ("shared_bytes", ctypes.c_size_t),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.c_void_p),
        ("count", ctypes.c_uint32),
    )


class _Attribute(ctypes.Structure):
    """cudaLaunchAttribute."""

    _fields_ = (("id", ctypes.c_uint32), ("padding", ctypes.c_uint32), ("value", ctypes.c_uint32 * 16))


class _Error(ctypes.Structure):
    """The TVM-FFI object of an error, up to its message."""

    _fields_ = (
        ("header", ctypes.c_uint64 * 3),
        ("kind", ctypes.c_char_p),
        ("kind_size", ctypes.c_size_t),
        ("message", ctypes.c_char_p),
        ("message_size", ctypes.c_size_t),
    )


_CALLBACK = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.POINTER(ctypes.c_void_p))


def missing_tool() -> str | None:
    """Why kernels cannot be executed here; None where they can, once they are compiled."""
    return "; ".join(lacking_for_cpu()) or None


def link(object_file: Path, folder: Path) -> Path:
    """The host function as a shared library in `folder`. PtxError: it does not link."""
    ffi, goal = _find_ffi(), folder / "host.so"
    symbols = set(re.findall(rb"__tvm_ffi_cutegen_[0-9a-f]+", object_file.read_bytes()))
    if len(symbols) != 1:
        raise PtxError(f"{object_file} has {len(symbols)} host functions, expected one")
    # -Bsymbolic: once the DSL has compiled in this process, its runtime library defines the same names globally.
    flags = ["-shared", "-nostdlib", "-Wl,-Bsymbolic", f"-Wl,--defsym=HOST_FUNCTION={symbols.pop().decode()}"]
    _run("link", *flags, f"{_shim_folder().name}/shim.o", str(object_file), str(ffi), f"-Wl,-rpath,{ffi.parent}", goal)
    return goal


@functools.cache
def _shim_folder() -> tempfile.TemporaryDirectory[str]:
    """With shim.o, which all host functions are linked with; until this process ends."""
    folder = tempfile.TemporaryDirectory(prefix="ptx-machine-")
    _run("compile", "-c", "-fPIC", "-O1", str(SHIM), Path(folder.name) / "shim.o")
    return folder


def _run(verb: str, *arguments: str | Path) -> None:
    """The C compiler; the last argument is the file to write."""
    command = [find_c_compiler() or "cc", *map(str, arguments[:-1]), "-o", str(arguments[-1])]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise PtxError(f"the C compiler does not {verb} the host function:\n{done.stderr}")


def _find_ffi() -> Path:
    import tvm_ffi

    return next(Path(tvm_ffi.__file__).parent.rglob("libtvm_ffi.so"))


class HostFunction:
    """A linked host function; a call returns the launches that it would do, in order. programs: by the name of the
    kernel."""

    def __init__(self, library: Path, programs: Mapping[str, Program]) -> None:
        self._ffi = ctypes.CDLL(str(_find_ffi()))
        try:
            self._library = ctypes.CDLL(str(library))
        except OSError as error:
            raise PtxError(f"the host function needs what shim.c does not have: {error}") from error
        self._library.ptx_machine_call.argtypes = (ctypes.c_void_p, ctypes.c_int32, ctypes.c_void_p)
        self.programs = programs
        if len(programs) > 1:
            self._library.ptx_machine_has_several_kernels()
        self._launches: list[Launch] = []
        self._callback = _CALLBACK(self._record)  # outlives the call

    def __call__(self, values: Sequence[Any]) -> list[Launch]:
        """values: torch tensors (on any device; they are passed as CUDA tensors), ints, floats or None."""
        arguments = (_Any * len(values))()
        keep: list[Any] = []
        for slot, value in zip(arguments, values):
            slot.type_index, slot.value = self._pack(value, keep)
        result = _Any()
        self._launches = []
        self._library.ptx_machine_on_launch(self._callback)
        if self._library.ptx_machine_call(arguments, len(values), ctypes.byref(result)):
            raise PtxError(f"the host function refuses the call: {self._message()}")
        if not self._launches:
            raise PtxError("the host function launched nothing")
        return self._launches

    def _pack(self, value: Any, keep: list[Any]) -> tuple[int, int]:
        if value is None:
            return NONE, 0
        if isinstance(value, (bool, int)):
            return INT, value & (1 << 64) - 1
        if isinstance(value, float):
            return FLOAT, int(np.float64(value).view(np.uint64))
        code, bits = _DTYPES[str(value.dtype).removeprefix("torch.")]
        extents = (ctypes.c_int64 * value.dim())(*value.shape)
        strides = (ctypes.c_int64 * value.dim())(*value.stride())
        tensor = _Tensor(value.data_ptr(), CUDA, 0, value.dim(), code, bits, 2 if bits == 4 else 1, extents, strides, 0)
        keep += [tensor, extents, strides]
        return TENSOR, ctypes.addressof(tensor)

    def _record(self, config: int, kernel: int, arguments: Any) -> int:
        found = _Config.from_address(config)
        if len(self.programs) == 1:
            (name,) = self.programs
        else:
            name = ctypes.string_at(kernel).decode(errors="replace")
            if name not in self.programs:
                return 1
        program = self.programs[name]
        data = bytearray(program.parameter_bytes)
        for i, parameter in enumerate(program.parameters.values()):
            data[parameter.offset : parameter.offset + parameter.size] = ctypes.string_at(arguments[i], parameter.size)
        attributes = (_Attribute * found.count).from_address(found.attributes) if found.count else []
        cluster = [tuple(a.value[:3]) for a in attributes if a.id == CLUSTER]
        launch = Launch(
            tuple(found.grid),
            cluster[0] if cluster else (1, 1, 1),
            tuple(found.block),
            found.shared_bytes,
            bytes(data),
            any(a.id == PROGRAMMATIC and a.value[0] for a in attributes),
            name,
        )
        self._launches.append(launch)
        return 0

    def _message(self) -> str:
        error = ctypes.c_void_p()
        self._ffi.TVMFFIErrorMoveFromRaised(ctypes.byref(error))
        if not error.value:
            return "without a message"
        text = _Error.from_address(error.value)
        return ctypes.string_at(text.message, text.message_size).decode(errors="replace")
