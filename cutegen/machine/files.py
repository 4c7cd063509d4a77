"""Python files on the machine: what they compile with CuTe DSL runs here, and tensors of their CUDA device are on the
CPU. Of PyTorch that is all that is imitated: its device, its current stream, and waiting for it."""

from __future__ import annotations

import hashlib
import tempfile
from pathlib import Path
from typing import Any

from cutegen.machine.package import Simulation
from cutegen.machine.parser import PtxError
from cutegen.runtime.compile import OBJECT

DEFAULT_ARCH = "sm_90a"  # of a file that says none, as without a GPU the DSL cannot know


def adopt_files(simulation: Simulation) -> None:
    """From now on in this process, `cute.compile` makes kernels that run on the machine, and the device "cuda" is the
    CPU. Not to be undone: for a process of its own."""
    _pretend_device()
    try:
        from cutlass.base_dsl.compiler import CompileCallable
    except ImportError:
        return  # the file imports no CuTe DSL either, or says what is missing
    compile_one = CompileCallable._compile

    def compiled(self: Any, function: Any, *arguments: Any, **settings: Any) -> Any:
        options = settings.pop("options", None) or ""
        if not isinstance(options, str):
            raise PtxError("options of cute.compile are a text here, such as options='--enable-tvm-ffi'")
        with tempfile.TemporaryDirectory(prefix="ptx-machine-") as folder:
            options += f" --enable-tvm-ffi --keep-ptx --dump-dir {folder}"
            if "--gpu-arch" not in options:
                options += f" --gpu-arch {DEFAULT_ARCH}"
            made = compile_one(self, function, *arguments, options=options.strip(), **settings)
            text, path = made.__ptx__, Path(folder, OBJECT)
            made.export_to_c(str(path), function_name=f"cutegen_{hashlib.sha256(text.encode()).hexdigest()[:16]}")
            return simulation.bind(text, path.read_bytes())

    CompileCallable._compile = compiled  # type: ignore[method-assign, assignment]


def _pretend_device() -> None:
    import torch
    from torch.overrides import TorchFunctionMode

    def moved(value: Any) -> Any:
        if isinstance(value, torch.device):
            return torch.device("cpu") if value.type == "cuda" else value
        return "cpu" if isinstance(value, str) and value.partition(":")[0] == "cuda" else value

    class CudaOnCpu(TorchFunctionMode):
        def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if function is torch.Tensor.cuda:
                return args[0]
            named = {name: moved(value) for name, value in (kwargs or {}).items()}
            return function(*map(moved, args), **named)

    class Stream:
        cuda_stream = 0

        def synchronize(self) -> None:
            pass

    CudaOnCpu().__enter__()
    torch.cuda.current_stream = lambda *device: Stream()  # type: ignore[assignment, return-value]
    torch.cuda.synchronize = lambda *device: None
