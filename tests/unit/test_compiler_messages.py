"""Known messages of the compiler: each is found by its sample, in short, with its place; unknown ones stay readable."""

from __future__ import annotations

import pytest

from cutegen.build.messages import KNOWN, MOST_LINES, describe, explain
from cutegen.diagnostics import CutegenError
from cutegen.run.bench import _reason

VERIFICATION = """\
\x1b[91m\x1b[1m[Error] MLIRError: Verification failed:
error: unknown: 'nvvm.setmaxregister' op new register size must be multiple of 8
 note: unknown: see current operation: "nvvm.setmaxregister"() <{regCount = 252 : i32}> : () -> ()\x1b[0m

  File "/env/site-packages/nvidia_cutlass_dsl/dsl_packages/cutlass/_mlir_helpers/op.py", line 523, in wrapper
    res_or_list.verify()
  File "/kernels/generated/mine/kernel.py", line 71, in kernel
"""
ASSEMBLY = """\
error: PTX assembly failed
  --> /kernels/kernel.py:73:0
  ptxas application ptx input, line 24; error   : Not a name of any known instruction: 'bogus'
"""


@pytest.mark.parametrize("known", KNOWN, ids=lambda known: known.pattern[:20])
def test_a_sample_is_found_by_its_own_pattern_first(known: object) -> None:
    first, cause, remedy = explain(known.sample).split("\n")  # type: ignore[attr-defined]
    assert cause == f"  cause: {known.cause}"  # type: ignore[attr-defined]
    assert remedy == f"  = help: {known.remedy}"  # type: ignore[attr-defined]
    assert "\\" not in first
    assert first


@pytest.mark.parametrize(
    ("text", "first"),
    [
        (VERIFICATION, "setmaxnreg is refused: new register size must be multiple of 8 (kernel.py:71)"),
        (ASSEMBLY, "ptxas refuses an instruction: Not a name of any known instruction: 'bogus' (kernel.py:73)"),
    ],
)
def test_a_message_names_the_line_of_the_kernel(text: str, first: str) -> None:
    """And no frame of the DSL."""
    assert describe(RuntimeError(text)).splitlines()[0] == first


def test_bench_leaves_a_problem_out_with_the_message_in_short() -> None:
    assert _reason(RuntimeError(ASSEMBLY)) == describe(RuntimeError(ASSEMBLY)).splitlines()[0]
    assert _reason(ValueError("one\ntwo")) == "ValueError: one"
    assert _reason(CutegenError("no kernel")) == "no kernel"


def test_an_unknown_message_is_cut_and_has_no_colours() -> None:
    said = describe(ValueError("\x1b[91mone\x1b[0m\n\n" + "more\n" * 99))
    assert said.startswith("ValueError: one\n  more\n")
    assert len(said.splitlines()) == MOST_LINES
