"""What the installed DSL says of wrong kernels is what cutegen/build/messages.py knows."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from cutegen.build.messages import describe
from cutegen.runtime.compile import dsl_version

pytestmark = [
    pytest.mark.dsl,
    pytest.mark.skipif(importlib.util.find_spec("cutlass") is None, reason="nvidia-cutlass-dsl is not installed"),
    pytest.mark.skipif((dsl_version() or (4, 8)) < (4, 8), reason="DSLs before 4.8 say it in other words"),
]
HEAD = """
import cutlass
import cutlass.cute as cute
from cutlass import Float32, Int32


@cute.kernel
def kernel(x: cute.Tensor):
    t, _, _ = cute.arch.thread_idx()
"""
TAIL = """

@cute.jit
def launch(x: cute.Tensor):
    kernel(x).launch(grid=(1, 1, 1), block=(32, 1, 1))
"""
WRONG = [
    ("    if t > 3:\n        y = Float32(1.0)\n    x[0] = y", "`y` has no value there (kernel.py:12)", "sm_90a"),
    (
        "    y = Int32(0)\n    if t > 3:\n        y = Float32(1.0)\n    x[0] = Float32(y)",
        "`y` is Int32 on one path and Float32 on another (kernel.py:11)",
        "sm_90a",
    ),
    (
        "    if cutlass.const_expr(t > 3):\n        x[0] = Float32(1)",
        "a value of run time stands where one of compile time has to (kernel.py:10)",
        "sm_90a",
    ),
    ("    if t > 3:\n        return\n    x[0] = Float32(1)", "`return` stands in a dynamic `if` or loop", "sm_90a"),
    (
        "    cute.arch.setmaxregister_increase(252)\n    x[0] = Float32(1)",
        "setmaxnreg is refused: new register size must be multiple of 8",
        "sm_90a",
    ),
    ("    x[0] = Float32(1)", "this DSL knows no architecture sm_9x", "sm_9x"),
]


@pytest.mark.parametrize(("body", "said", "arch"), WRONG, ids=[said[:20] for _, said, _ in WRONG])
def test_a_wrong_kernel(body: str, said: str, arch: str, tmp_path: Path) -> None:
    import cutlass
    import cutlass.cute as cute
    from cutlass.cute.runtime import make_fake_compact_tensor

    path = tmp_path / "kernel.py"
    path.write_text(HEAD + body + TAIL)
    spec = importlib.util.spec_from_file_location("wrong_kernel", path)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    fake = make_fake_compact_tensor(cutlass.Float32, (cute.sym_int(),))
    with pytest.raises(Exception) as caught:  # noqa: PT011 (its class is the DSL's matter)
        cute.compile(module.launch, fake, options=f"--enable-tvm-ffi --gpu-arch {arch}")
    assert describe(caught.value).startswith(said)
