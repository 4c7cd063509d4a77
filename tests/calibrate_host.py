"""Public kernels compiled for tests/calibrate.py."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from cutlass import cute


def compile_host(host: Any, arguments: list[Any], arch: str, more: str = "") -> tuple[str, bytes]:
    """PTX of the kernels of a host function, and its object file. more: options of the compiler."""
    with tempfile.TemporaryDirectory() as folder:
        options = f"--gpu-arch {arch} --enable-tvm-ffi --keep-ptx --dump-dir {folder} {more}"
        made = cute.compile(host, *arguments, options=options)
        made.export_to_c(f"{folder}/kernel.o", function_name="cutegen_0123456789abcdef")
        return made.__ptx__, Path(folder, "kernel.o").read_bytes()
