"""Files as large as a spec may be, of any content: little time and memory, and findings that end."""

from __future__ import annotations

import resource
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from effort import RESOLVE, too_long

from cutegen.cli import main
from cutegen.diagnostics import MAX_KEPT, SpecError
from cutegen.resolve import resolve_document
from cutegen.spec import load_text, parse_spec
from cutegen.spec.text_rules import MAX_BYTES, MAX_VALUES

ROOT = Path(__file__).parents[2]
HEAD = "cutegen: 1\nkernel: gemm\narch: sm_90a\n"
TENSORS = "tensors:\n  a: bf16[m, k]\n  b: bf16[n, k]\n  d: bf16[m, n]\n"
# Beginning, repeated part, end, and keys and values to a part.
CASES: dict[str, tuple[str, Callable[[int], str], str, int]] = {
    "anchors": (HEAD + "x: [", lambda i: "&a 1,", "1]\n", 1),
    "tags": (HEAD + "x: [", lambda i: "!t 1,", "1]\n", 1),
    "tabs": (HEAD, lambda i: "\t\n", "", 0),
    "unknown keys": (HEAD + TENSORS, lambda i: f"q{i}:\n", "", 2),
    "integers": (HEAD + TENSORS + "m: [", lambda i: f"{i + 1},", "1]\n", 1),
    "dims": (HEAD + TENSORS + "dims:\n", lambda i: f"  q{i}: 8\n", "", 2),
    "tensors": (HEAD + TENSORS, lambda i: f"  v{i}: f32[n]\n", "epilogue: {d: acc}\n", 2),
    "no tensors": (HEAD + TENSORS, lambda i: f"  v{i}: f33[n]\n", "epilogue: {d: acc}\n", 2),
    "outputs": (HEAD + TENSORS + "epilogue:\n", lambda i: f"  v{i}: acc\n", "", 2),
    "knobs": (HEAD + TENSORS + "tune: {stages: [", lambda i: "x,", "4]}\n", 1),
    "problems": (HEAD + TENSORS + "bench: {shapes: [", lambda i: "{z: x},", "{z: 1}]}\n", 4),
    "aliases": (HEAD + TENSORS + "alias:\n", lambda i: f"  q{i}: a\n", "", 2),
    "swizzles": (HEAD + TENSORS + "tma:\n", lambda i: f"  q{i}: {{swizzle: 128}}\n", "", 5),
    "instances": (HEAD + TENSORS + "instances: [", lambda i: "{n: 8, k: 8},", "{n: 8, k: 8}]\n", 6),
    "one line": (HEAD + "x: ", lambda i: "a ", "\n", 0),
    "brackets": (HEAD + "x: ", lambda i: "[", "\n", 0),
    "a list": ("", lambda i: "- 1\n", "", 1),
}


def fill(name: str, bound: int = MAX_VALUES - 200) -> str:
    """As many parts as the bytes, and so many keys and values, leave room for."""
    begin, part, end, values = CASES[name]
    parts, size = [], len(begin) + len(end)
    while size < MAX_BYTES and len(parts) * values < bound:
        parts.append(part(len(parts)))
        size += len(parts[-1])
    return begin + "".join(parts[: -1 if size > MAX_BYTES else None]) + end


@pytest.mark.parametrize("name", CASES)
def test_findings_end(name: str) -> None:
    with pytest.raises(SpecError) as caught:
        resolve_document(load_text(fill(name), "large"), None)
    error = caught.value
    assert len(error.diagnostics) <= MAX_KEPT
    assert len(str(error)) < 60_000
    lines = {id(d.source_line) for d in error.diagnostics if d.source_line}
    assert len(lines) <= len({d.location.line for d in error.diagnostics if d.location})  # one copy of each


@pytest.mark.parametrize("text", ["\n" * 60_000, "x: 1" + "\n" * 60_000, "[" + "\n" * 60_000, "{" * 60_000])
def test_empty_lines_take_no_longer_than_others(text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Also of a file that is none: its lines are searched for a key of a spec."""
    (tmp_path / "x.yaml").write_text(text)
    begin = time.process_time()
    assert main(["validate", str(tmp_path / "x.yaml")]) == 1
    assert not too_long(time.process_time() - begin, 3, RESOLVE, text, 30_000_000)
    assert len(capsys.readouterr().err) < 1000


def test_names_that_are_alike_are_compared_for_what_is_shown() -> None:
    tensors = "".join(f"  t{i}: f32[dimension{i}]\n" for i in range(700))
    shapes = "".join(f"    - {{dimensian{i}: 1}}\n" for i in range(700))
    text = HEAD + TENSORS + tensors + "bench:\n  shapes:\n" + shapes
    begin = time.process_time()
    with pytest.raises(SpecError, match="did you mean `dimension0`"):
        parse_spec(load_text(text, "large"))
    assert not too_long(time.process_time() - begin, 3, RESOLVE, text, 30_000_000)


def test_the_rest_is_counted() -> None:
    text = HEAD + TENSORS + "".join(f"q{i}:\n" for i in range(1000))
    with pytest.raises(SpecError, match=r"\.\.\. and 950 more findings$") as caught:
        parse_spec(load_text(text, "large"))
    assert (len(caught.value.diagnostics), caught.value.more) == (MAX_KEPT, 700)
    assert caught.value.diagnostics[0].message == "unknown key `q0`"


def test_more_values_than_a_spec_has_end_the_reading() -> None:
    with pytest.raises(SpecError, match=f"the file has more than {MAX_VALUES} keys and values"):
        load_text(fill("integers", 2 * MAX_VALUES), "large")


@pytest.mark.parametrize("name", ["anchors", "no tensors", "tensors", "problems"])
def test_time_and_memory(name: str, tmp_path: Path) -> None:
    """The worst of each kind, as a command."""
    path = tmp_path / "large.yaml"
    path.write_text(fill(name))
    code = "import resource, sys; from cutegen.cli import main; main(['validate', sys.argv[1]]); "
    # Not ru_maxrss: a child begins with that of the process that started it, whatever it runs.
    code += "u = resource.getrusage(resource.RUSAGE_SELF); held = open('/proc/self/status').read().split('VmHWM:')[1]; "
    code += "print(u.ru_utime + u.ru_stime, int(held.split()[0]) / 1024)"
    limit = (60, 60)  # what takes longer is taken for endless
    run = subprocess.run(
        [sys.executable, "-c", code, str(path)], cwd=ROOT, capture_output=True, text=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CPU, limit),
    )  # fmt: skip
    seconds, mebibytes = map(float, run.stdout.split())
    assert not too_long(seconds, 3, RESOLVE, fill(name), 30_000_000)
    assert mebibytes < 300
