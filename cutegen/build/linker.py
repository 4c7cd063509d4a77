"""Links objects of kernels into one shared library, which needs the DSL's runtime and TVM FFI's."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from cutegen.build.cpu import C_COMPILER_REMEDY, find_c_compiler
from cutegen.diagnostics import CutegenError

LINK_SECONDS = 300.0


def find_linker() -> list[str]:
    """The C compiler, which calls the linker: $CC, else what find_c_compiler finds. CutegenError: there is none."""
    if chosen := shlex.split(os.environ.get("CC", "")):
        if shutil.which(chosen[0]):
            return chosen
        raise CutegenError(
            f"CC={os.environ['CC']} names no program", "set CC to a C compiler, or unset it", exit_code=2
        )
    if found := find_c_compiler():
        return [found]
    said = "linking a bundle needs a C compiler, and there is none on the PATH"
    raise CutegenError(said, f"{C_COMPILER_REMEDY}; or set CC", exit_code=2)


def compile_c(source: Path, includes: Sequence[Path], output: Path) -> None:
    """An object of a C file of which only what it exports is seen. CutegenError: the compiler refuses it."""
    options = ["-std=gnu11", "-O2", "-fPIC", "-fvisibility=hidden", "-w", "-c"]
    folders = [word for folder in includes for word in ("-I", str(folder))]
    _run([*find_linker(), *options, *folders, str(source), "-o", str(output)], "compile the C entry")


def link_library(objects: Sequence[Path], libraries: Sequence[Path], output: Path) -> None:
    """A shared library of `objects` that finds `libraries` next to itself, or where the process has them. CutegenError:
    the linker fails, or a symbol is defined nowhere."""
    arguments = output.with_suffix(".args")  # a command line has no room for hundreds of paths
    arguments.write_text("".join(f"{_quoted(path)}\n" for path in (*objects, *libraries)), encoding="utf-8")
    command = [*find_linker(), "-shared", "-o", str(output), f"@{arguments}"]
    command += ["-ldl", "-Wl,-rpath,$ORIGIN", "-Wl,--no-undefined", "-Wl,--allow-shlib-undefined", "-Wl,--strip-debug"]
    try:
        _run(command, "link the kernels")
    finally:
        arguments.unlink(missing_ok=True)


def _run(command: Sequence[str], what: str) -> None:
    try:
        run = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=LINK_SECONDS)
    except subprocess.TimeoutExpired:
        said = f"{command[0]} did not {what} within {LINK_SECONDS:g} s"
        raise CutegenError(said, "try again", exit_code=2) from None
    if run.returncode:
        said = "\n  ".join(run.stderr.strip().splitlines()[-6:])
        raise CutegenError(f"{command[0]} cannot {what}:\n  {said}", "set CC to another C compiler")


def _quoted(path: Path) -> str:
    text = str(path).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{text}"'
