"""The key of a compiled kernel covers code, and no words about it."""

from pathlib import Path

import pytest

from cutegen.runtime import sources
from cutegen.runtime.compile import instance_key

KEYED = '''"""A module."""
def load(x):
    """Loads."""
    return x + 1  # one more
'''
TOLD_ANEW = '''"""Another docstring,
of two lines."""

# a comment


def load(x):
    # here, too
    return (
        x + 1
    )
'''


@pytest.mark.parametrize(
    ("text", "line_info", "same"),
    [
        (TOLD_ANEW, "", True),
        (TOLD_ANEW, "1", False),  # its lines are in the cubin
        (KEYED.replace("x + 1", "x + 2"), "", False),
        (KEYED.replace('"""Loads."""', '"""Loads."""; "not a docstring"'), "", False),
        (KEYED.replace("# one more", "# two more") + "def read(): return load.__doc__\n", "", False),
    ],
    ids=["words", "line info", "number", "another string", "code"],
)  # fmt: skip
def test_words_about_the_code_do_not_change_its_key(
    text: str, line_info: str, same: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUTE_DSL_LINEINFO", line_info)
    package = tmp_path / "generated"
    package.mkdir()

    def key(imported: str, kernel: str) -> str:
        (package / "load.py").write_text(imported)
        return instance_key(kernel, "generated.kernel", package / "kernel.py", (128, 256), "sm_90a")

    first = key(KEYED, "from generated.load import load\n")
    assert (key(text, "from generated.load import load\n") == first) is same
    used = "from generated.load import load\n"
    assert (key(KEYED, text + used) == key(KEYED, KEYED + used)) is same


def test_a_module_that_reads_its_own_text_is_keyed_by_all_of_it() -> None:
    reading = KEYED + "SAID = load.__doc__\n"
    assert sources.code_text(reading) != sources.code_text(reading.replace("Loads.", "Loads it."))
    assert sources.code_text("no python (") == "no python ("
