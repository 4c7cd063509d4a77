"""`check` on MLA decode kernels of the CPU: the right one passes, each planted fault is found where it shows."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import pytest

torch = pytest.importorskip("torch")

from mla_cpu import CpuMla, tiling  # noqa: E402

from cutegen.run.case_list import Case, list_cases  # noqa: E402
from cutegen.run.cases import CaseResult, run_case  # noqa: E402
from cutegen.run.subject import plan_subject  # noqa: E402

NAMES = tuple(dict.fromkeys(c.name for c in list_cases(plan_subject(CpuMla(), Path("mla")))))
LARGE = ("one request, many parts", "long tail", "more requests than SMs")


def run_all(plan: CpuMla, names: Any = NAMES, mode: str = "") -> list[CaseResult]:
    subject = plan_subject(plan, Path("mla"))
    cases = [c for c in list_cases(subject) if c.name in names and mode in ("", c.mode)]
    return [run_case(subject, case, seed) for seed, case in enumerate(cases)]


def words(results: list[CaseResult]) -> str:
    return "\n".join(f"{r.case.name}, {r.case.mode}: {text}" for r in results for text in r.detail)


def test_right_kernel_passes() -> None:
    results = run_all(CpuMla())
    assert {r.status for r in results} == {"pass", "skipped"}, words(results)
    assert {r.case.mode for r in results if r.status == "skipped"} == {"stream", "graph"}
    shares = [e.max_error / e.allowed for r in results for e in r.errors if e.allowed]
    assert 0.2 < max(shares) < 0.9


class SplitPlan(CpuMla):
    split_q, causal, lse_base, lse_layout = True, False, "2", "bsh"


class Half(CpuMla):
    dtype = "float16"


@pytest.mark.parametrize("plan", [SplitPlan(), Half()])
def test_other_interfaces_and_dtypes_pass(plan: CpuMla) -> None:
    results = run_all(plan, set(NAMES) - set(LARGE))
    assert {r.status for r in results} == {"pass", "skipped"}, words(results)
    shares = [e.max_error / e.allowed for r in results for e in r.errors if e.allowed]
    assert 0.2 < max(shares) < 0.9


SMALL = tuple(n for n in NAMES if n not in LARGE)


@pytest.mark.parametrize(
    ("fault", "names", "found", "innocent"),
    [
        ("tail", SMALL, "edges, last keys decide, numerics: ", "one block"),
        ("past the length", SMALL, "is nan", "one block"),
        ("table", SMALL, "IndexError", ""),
        ("causal", SMALL, "fewer keys than tokens, numerics: ", "one key"),
        ("page stride", SMALL, "pages of a pool of layers, numerics: ", "most rows"),
        ("lse of nothing", SMALL, "no keys at all, numerics: 24 of 24 wrong", "one block"),
        ("column", ("one block",), "(request 0, row block 0, row 14 of it; warpgroup 1, column 44 of it)", ""),
        ("counters", ("one block",), "semaphores: 1 elements are not zero after the launch", ""),
        ("workspace", ("one block",), "workspace: wrote outside of the tensor", ""),
        ("stale slot", ("one key",), "is nan", ""),
        ("chance", ("edges of blocks",), "not repeatable", ""),
    ],
)
def test_planted_fault_is_found(fault: str, names: tuple[str, ...], found: str, innocent: str) -> None:
    results = run_all(CpuMla(fault), names)
    assert found in words(results)
    assert any(r.status in ("wrong", "raised") for r in results)
    if innocent:
        assert all(r.status in ("pass", "skipped") for r in results if r.case.name == innocent)


def test_missed_part_of_a_long_request_shows() -> None:
    assert "long tail, numerics" in words(run_all(CpuMla("tail"), ("long tail",), "numerics"))


class Uncut(CpuMla):
    tilings: ClassVar = {"seesaw": tiling(max_splits=1)}


def test_requests_that_are_not_cut_are_run_alone() -> None:
    (result,) = run_all(Uncut(), ("never cut",))
    assert (result.case.mode, result.status) == ("alone", "pass")
    assert "words of batch member 39 differ when it is alone" in words(run_all(Uncut("company"), ("never cut",)))


def test_problems_reach_both_ends_of_the_promises() -> None:
    cases: list[Case] = list(list_cases(plan_subject(CpuMla(), Path("mla")), [{"batch": 2, "query_len": 1, "heads": 4,
                                                                               "kv_len": 99}]))  # fmt: skip
    for dim, ends in (("heads", (2, 5)), ("query_len", (1, 3))):
        assert {c.shape[dim] for c in cases} >= set(ends)
    assert any(c.shape["heads"] % 2 for c in cases)
    assert cases[-1].name == "given"
    assert cases[-1].draw.lengths == "random"
    assert max(c.shape["batch"] for c in cases) > 132
    assert {"numerics", "strides", "stream", "graph", "repeat", "empty"} == {c.mode for c in cases}
