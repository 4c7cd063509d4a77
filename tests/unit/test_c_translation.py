"""What becomes of Python in C: functions of integers, and names."""

from __future__ import annotations

import ctypes
import subprocess
from pathlib import Path

import pytest
from c_structs import compiled

from cutegen.build.c_translation import Translation, TranslationError
from cutegen.build.cpu import find_c_compiler
from cutegen.build.entries import Entry, write_entries
from cutegen.families.c_entry import CEntry
from cutegen.runtime.arguments import ScalarArg, TensorArg

pytestmark = pytest.mark.skipif(find_c_compiler() is None, reason="there is no C compiler")


def outside(a: int, b: int) -> int:
    return sum(range(a, b))


def halves(a: int, b: int) -> tuple[int, int]:
    for divisor, rest in ((2, a), (4, b)):
        if rest % divisor:
            continue
        a, b = b, a - rest // divisor
    return a, -(-b // 4)


def test_functions_in_c_have_the_values_of_python(tmp_path: Path) -> None:
    """Python rounds down; names swap; what leaves the subset is refused."""
    translation = Translation()
    name = translation.function(halves)
    code = f"""
#include <stdint.h>
{translation.source()}
__attribute__((visibility("default"))) int64_t value(int64_t a, int64_t b, int32_t i) {{ return {name}(a, b).v[i]; }}
"""
    value = compiled(tmp_path, code, []).value
    value.argtypes, value.restype = [ctypes.c_int64, ctypes.c_int64, ctypes.c_int32], ctypes.c_int64
    for a in range(-9, 10):
        for b in range(-9, 10):
            assert (value(a, b, 0), value(a, b, 1)) == halves(a, b)
    with pytest.raises(TranslationError, match="outside"):
        translation.function(outside)


def test_names_that_c_has_taken(tmp_path: Path) -> None:
    """Words of C++, and fields that would be called alike."""
    args = (
        TensorArg("a", "float32", ("int", "k"), contiguous=1),
        TensorArg("a_strides", "float32", ("k",), contiguous=0, optional=True),
        ScalarArg("template", optional=True),
    )
    entry = CEntry({"int": (1, None), "k": 8}, args, ("a",), ("a",), ("only",), (1,), "")
    header, _ = write_entries("float", [Entry("double", "sm_90a", "/* a */", entry, {})], Translation(), "make")
    for field in ("int64_t int_;", "void *a;", "const void *a_strides;", "int64_t a_strides_[2];",
                  "int64_t a_strides_strides[1];", "const double *template_;"):  # fmt: skip
        assert f"  {field}" in header
    (tmp_path / "float.h").write_text(header)
    compiler = find_c_compiler()
    assert compiler
    subprocess.run([compiler, "-fsyntax-only", "-Werror", "-x", "c", tmp_path / "float.h"], check=True)
