"""`check` on kernels of the CPU: the right one passes, each wrong one is found, in the right words."""

from __future__ import annotations

from pathlib import Path

import pytest

from cutegen.diagnostics import CutegenError
from cutegen.run.case_list import list_cases
from cutegen.run.cases import CaseResult, run_case
from cutegen.run.check import check_kernel
from cutegen.run.subject import load_subject

pytest.importorskip("torch")

RIGHT = Path(__file__).parent / "kernels" / "right.py"
STORE = "d[i : i + tm, j : j + tn] = acc"
LOAD = "tm, tn, tk = TILE"


def mutate(tmp_path: Path, *changes: tuple[str, str]) -> Path:
    text = RIGHT.read_text()
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    path = tmp_path / "mutant.py"
    path.write_text(text)
    return path


def run_all(path: Path) -> list[CaseResult]:
    subject = load_subject(path)
    return [run_case(subject, case, seed) for seed, case in enumerate(list_cases(subject))]


def words(results: list[CaseResult]) -> str:
    return "\n".join(f"{r.case.name}, {r.case.mode}: {text}" for r in results for text in r.detail)


def test_right_kernel_passes_in_another_process() -> None:
    report = check_kernel(RIGHT)
    assert report.ok, list(report.findings())
    assert report.exit_code == 0
    assert {r.case.mode for r in report.results if r.status == "pass"} == {"numerics", "strides", "repeat"}
    assert {r.case.mode for r in report.results if r.status == "skipped"} == {"stream", "graph"}
    assert report.to_json()["environment"]["torch"]
    assert "0.0039 |ref|" in report.tolerances()[0]


@pytest.mark.parametrize(
    ("old", "new", "found", "innocent"),
    [
        # a k tail that is dropped: every other case is right
        ("math.ceil(a.shape[1] / tk)", "a.shape[1] // tk", "ragged k, numerics: ", "one tile"),
        ("range(0, d.shape[0], tm)", "range(0, d.shape[0] - 1, tm)", "elements were never written", "one tile"),
        ("j : j + tn] = acc", "j : j + tn] = acc.roll(1, 1)", "CTA tile (0, 0), row 0", ""),
        (STORE, STORE + "\n    if d.storage_offset(): d.as_strided((1,), (1,), d.storage_offset() + d.numel()).zero_()",
         "wrote outside of the tensor: 1 elements after the end", ""),
        (STORE, STORE.replace("=", "+="), "is nan", ""),
        (STORE, STORE + "\n    a.zero_()", "input 0 was changed", ""),
        ("acc +=", "acc += 3e-4 * torch.randn(()) +", "not repeatable", ""),
        (LOAD, LOAD + "\n    a = a.as_strided(a.shape, (a.shape[1], 1))", "ragged, strides: ", "one tile"),
        (LOAD, LOAD + "\n    assert a.shape[1] % 16 == 0, 'no'", "AssertionError: no", "one tile"),
        ("return d", "return d.mT", "has shape (32, 1), the reference (1, 32)", ""),
        ("return d", "return d, d", "returns 2 outputs, the reference 1", ""),
    ],
)  # fmt: skip
def test_wrong_kernel_is_found(tmp_path: Path, old: str, new: str, found: str, innocent: str) -> None:
    path = mutate(tmp_path, (old, new))
    if "return d" in old:  # only kernel_fn is wrong
        path = mutate(tmp_path, (old, new), ("def launch_fn", "def fill"), ("launch_fn(a", "fill(a"))
    results = run_all(path)
    assert found in words(results)
    assert any(r.status in ("wrong", "raised") for r in results)
    if innocent:
        assert all(r.status == "pass" for r in results if r.case.name == innocent)


ALLOCATING = (("def launch_fn", "def fill"), ("launch_fn(a", "fill(a"))


def test_output_that_is_never_written_is_seen_without_launch_fn(tmp_path: Path) -> None:
    path = mutate(tmp_path, *ALLOCATING, ("range(0, d.shape[0], tm)", "range(0, d.shape[0] - 1, tm)"))
    assert "is nan" in words(run_all(path))


def test_output_that_later_calls_change_is_seen(tmp_path: Path) -> None:
    cached = "d = CACHE.setdefault((a.shape, b.shape), torch.empty(a.shape[0], b.shape[0], dtype=a.dtype))"
    path = mutate(
        tmp_path,
        *ALLOCATING,
        ("d = torch.empty(a.shape[0], b.shape[0], dtype=a.dtype)", cached),
        ("TILE =", "CACHE = {}\nTILE ="),
    )
    assert "a later call changed the result of an earlier one" in words(run_all(path))


def test_first_wrong_element_is_located(tmp_path: Path) -> None:
    broken = STORE + "\n            if i == 32 and j == 32: d[40:44, 35:37] += 1"
    results = run_all(mutate(tmp_path, (STORE, broken)))
    (found,) = [r for r in results if r.case.name == "ragged" and r.case.mode == "numerics"]
    assert "8 of 4536 wrong, all within m 40..43 of 81, n 35..36 of 56" in found.detail[0]
    assert "output 0[m=40, n=35]" in found.detail[0]
    assert "CTA tile (1, 1), row 8, column 3 of it" in found.detail[0]


def test_strides_may_be_refused_by_a_file_but_nothing_else(tmp_path: Path) -> None:
    results = run_all(
        mutate(tmp_path, (LOAD, LOAD + "\n    if not a.is_contiguous(): raise ValueError('packed only')"))
    )
    assert {r.case.mode for r in results if r.status == "refused"} == {"strides"}
    assert {r.status for r in results} == {"pass", "refused", "skipped"}


def test_hang_is_reported_and_the_rest_still_runs(tmp_path: Path) -> None:
    path = mutate(tmp_path, (LOAD, LOAD + "\n    import time\n    while a.shape[0] == 13: time.sleep(1)"))
    report = check_kernel(path, timeout=5)
    by_name = {r.case.name: r for r in report.results if r.case.mode == "numerics"}
    assert by_name["below a tile"].status == "hang"
    assert "did not end within 5 seconds" in by_name["below a tile"].detail[0]
    assert by_name["one tile"].status == by_name["several waves"].status == "pass"
    assert report.exit_code == 1


def test_crashes_end_in_skips_not_in_a_loop(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    crash = (LOAD, LOAD + "\n    import os; os.abort()")
    report = check_kernel(mutate(tmp_path, crash, ("TILE =", "print('loaded')\nTILE =")))
    assert capfd.readouterr().err.count("loaded") == 3  # no process is started for what is not run
    assert [r.status for r in report.results[:4]] == ["crashed"] * 3 + ["skipped"]
    assert "ended the process (SIGABRT)" in report.results[0].detail[0]
    assert len(report.results) == len(list(list_cases(load_subject(RIGHT))))


def test_what_a_kernel_prints_is_no_part_of_the_result(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    report = check_kernel(mutate(tmp_path, (LOAD, LOAD + "\n    print('seen')"), ("TILE =", "print('loaded')\nTILE =")))
    shown = capfd.readouterr()
    assert report.ok
    assert shown.out == ""
    assert "loaded" in shown.err
    assert "seen" in shown.err


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("def kernel_fn", "def kernel", "has no kernel_fn"),
        ("import torch", "import nonsuch, torch", "cannot be imported: ModuleNotFoundError: No module named 'nonsuch'"),
        ("TILE =", "TILE = =", "cannot be imported: SyntaxError"),
    ],
)
def test_file_that_is_no_kernel(tmp_path: Path, old: str, new: str, message: str) -> None:
    with pytest.raises(CutegenError, match=message) as caught:
        check_kernel(mutate(tmp_path, (old, new)))
    assert caught.value.exit_code == 2


def test_failure_to_prepare_inputs_is_a_result(tmp_path: Path) -> None:
    results = run_all(mutate(tmp_path, ("a = torch.randn(m, k)", "a = torch.randn(m, k, device='meta?')")))
    assert {r.status for r in results} == {"raised"}


def test_what_a_file_varies_is_its_integers(tmp_path: Path) -> None:
    path = tmp_path / "own.py"
    path.write_text("""\
def get_inputs(m, n=16, *, k=8, device="cpu", causal=True, scale=None, **others):
    return m, n, k, device, causal, scale, others


def kernel_fn(*inputs):
    return inputs


reference_fn = kernel_fn
""")
    subject = load_subject(path)
    assert dict(subject.dims) == dict.fromkeys(("m", "n", "k"), (1, None))
    assert subject.defaults == {"n": 16, "k": 8}
    assert subject.inputs({"m": 4, "n": 16, "k": 8}) == (4, 16, 8, "cpu", True, None, {})
