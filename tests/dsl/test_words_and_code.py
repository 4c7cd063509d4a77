"""What the key of a compiled kernel leaves out does not reach its code: comments, docstrings and layout."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest
from gemm_specs import FUSED
from test_build_command import REPOSITORY

from cutegen.render import render_package, write_package
from cutegen.resolve import resolve_file
from cutegen.runtime.sources import code_text

pytestmark = [
    pytest.mark.dsl,
    pytest.mark.skipif(importlib.util.find_spec("cutlass") is None, reason="nvidia-cutlass-dsl is not installed"),
]
COMPILE = """\
import hashlib, sys
sys.modules["torch"] = None  # TVM FFI imports it where it can, which takes longer than the compile
sys.path[:0] = [sys.argv[1], sys.argv[2]]
from importlib import import_module
plan = import_module("generated.probe").PLAN
key, tiling = next(iter(plan.tilings.items()))
module = import_module("generated.probe.kernel")
options = f"--gpu-arch sm_90a --enable-tvm-ffi --keep-ptx --keep-cubin --dump-dir {sys.argv[1]}"
made = module.compile_kernel(tiling, options)
print(hashlib.sha256(made.__ptx__.encode()).hexdigest(), hashlib.sha256(made.__cubin__).hexdigest())
"""


def compiled(folder: Path) -> str:
    command = [sys.executable, "-c", COMPILE, str(folder), str(REPOSITORY)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, cwd=folder)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_comments_docstrings_and_layout_do_not_reach_the_code(tmp_path: Path) -> None:
    (tmp_path / "probe.yaml").write_text(FUSED + "portfolio: 1\n")
    write_package(render_package(resolve_file(tmp_path / "probe.yaml").resolved), tmp_path / "generated")
    file = tmp_path / "generated" / "probe" / "kernel.py"
    plain, first = file.read_text(), compiled(tmp_path)
    told = re.sub(r"^( +)(for|if|def|with|self) ?", r"\n\1# said again\n\n\g<0>", plain, flags=re.MULTILINE)
    told = re.sub(r'"""([A-Z])', r'"""Said again. \1', told)
    assert told.count("again") > 20
    assert code_text(told) == code_text(plain)
    file.write_text(told)
    assert compiled(tmp_path) == first
    assert code_text(plain.replace("warpgroup", "warp_group")) != code_text(plain)
