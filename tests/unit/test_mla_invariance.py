"""`invariance: batch` of MLA decode: what it decides, the scratch that it needs, and the check that proves it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import pytest
from bound_winners import bound
from gemm_specs import resolve_text, values
from mla_specs import MLA, SPARSE, bind_mla, mla_candidate
from test_winners import MLA_TILINGS, mla_winner

from cutegen.families.mla_decode.rules import other_cut
from cutegen.render import render_package
from cutegen.resolve import tuning_space

torch = pytest.importorskip("torch")

from mla_cpu import CpuMla, tiling  # noqa: E402

from cutegen.machine.case_list import CpuCase, list_cpu_cases, needed_tilings  # noqa: E402
from cutegen.run.case_list import Case, list_cases  # noqa: E402
from cutegen.run.cases import run_case  # noqa: E402
from cutegen.run.subject import plan_subject  # noqa: E402
from cutegen.runtime.mla_decode.inputs import Draw  # noqa: E402

INVARIANT = MLA + "invariance: batch\n"


def test_what_it_decides() -> None:
    found = values(resolve_text(INVARIANT))
    assert (found["variant"], found["split_kv.max"], found["scheduler.unit"]) == ("both", 4, 2)
    assert found["scheduler.split_columns"] is False
    assert values(resolve_text(INVARIANT + "split_kv: {max: 64, keys: 512}\n"))["split_kv.max"] == 64


def test_the_cut_is_part_of_what_a_spec_means() -> None:
    plain, invariant, longer = (
        resolve_text(text).resolved for text in (MLA, INVARIANT, INVARIANT + "split_kv: {keys: 512}\n")
    )
    assert len({plain.digest, invariant.digest, longer.digest}) == 3
    files = [render_package(r).files for r in (plain, invariant, longer)]
    assert ["piece_keys" in text["plan.py"] for text in files] == [False, True, True]
    assert "    piece_keys = 256\n" in files[1]["plan.py"]
    assert "PIECE = 4  # pairs of key blocks" in files[2]["kernel.py"]
    assert (
        "slots = batch * query_len * t.max_splits"
        in render_package(
            resolve_text(
                SPARSE.replace("{unit: 1, split_columns: false}", "{unit: 2}") + "invariance: batch\n"
            ).resolved
        ).files["kernel.py"]
    )


def test_kernels_of_one_spec_cut_alike() -> None:
    problem, free = bind_mla(INVARIANT), bind_mla(MLA)
    default = mla_candidate(problem)
    finer = replace(default, max_splits=16)
    refusal = other_cut(problem, default, finer)
    assert refusal
    assert refusal.reason == "split_kv.max = 16, but the default's is 4, and one batch has one cut"
    assert other_cut(free, default, finer) is other_cut(problem, default, replace(default, overhead=4)) is None


def test_winners_that_cut_in_another_way_are_run_by_no_call() -> None:
    won = [mla_winner(8, 128, 1025, 4000, "ahead")]
    tilings = {"ahead": {**MLA_TILINGS["ahead"], "split_kv.max": "any"}}
    lock = resolve_text(INVARIANT).lock.with_winners(tilings, bound(won, tilings, INVARIANT))
    assert "has a place in the workspace" in resolve_text(INVARIANT, lock).notes[0]


def test_a_tuner_tries_what_does_not_change_the_cut() -> None:
    proposed = list(
        tuning_space(resolve_text(INVARIANT)).propose({"batch": 32, "query_len": 1, "heads": 128, "kv_len": 4096})
    )
    assert not any(p.refusals for p in proposed)
    assert {(p.candidate.unit, p.candidate.split_columns, p.candidate.join_ratio) for p in proposed} == {
        (2, False, 100)
    }
    assert {p.candidate.overhead for p in proposed} == {1, 2, 4}


class Pieces(CpuMla):
    """Cut at PARTS_KEYS, whatever the batch."""

    piece_keys = 512
    tilings: ClassVar = {"seesaw": tiling(max_splits=8), "two": tiling(max_splits=8)}

    def sm_count(self, index: int) -> int:
        return 8

    def choose_tiling(self, rows: int, requests: int, query_len: int, /) -> str:
        return "seesaw"


class SparsePieces(Pieces):
    topk, causal = (1, 700), False


def test_a_cpu_has_all_kernels_compiled_whose_bits_are_compared() -> None:
    for plan, expected in ((Pieces(), ["seesaw", "two"]), (type("Free", (Pieces,), {"piece_keys": 0})(), ["seesaw"])):
        subject = plan_subject(plan, Path("mla"))
        cases = [case for case in list_cpu_cases(subject) if case.case.tiling is None]
        assert cases or not plan.batch_invariant
        alone = CpuCase(Case("alone", {"batch": 2, "query_len": 1, "heads": 2, "kv_len": 600}, "alone", None), 4)
        assert needed_tilings(subject, [*cases, alone]) == expected


def test_the_workspace_has_a_slot_for_each_piece() -> None:
    plan = Pieces()
    assert plan.workspace_shapes(7, 10, sm_count=132)["workspace"] == (7 * 8 * 10 * 258,)
    assert plan.workspace_shapes(7, 10, sm_count=2)["workspace"] == (7 * 8 * 10 * 258,)
    assert plan.own_sizes(-1, (7, 2, 5))[0] == 7 * 8 * 10 * 258  # of the call's rows
    assert SparsePieces().own_sizes(-1, (7, 2, 5))[0] == 7 * 2 * 8 * 5 * 258
    assert type("Whole", (Pieces,), {"tilings": {"seesaw": tiling(max_splits=1)}})().workspace_shapes(
        7, 10, sm_count=132
    )["workspace"] == (0,)
    inputs = plan.prepare_inputs(batch=3, query_len=2, heads=2, kv_len=70)
    workspace, semaphores = plan.allocate_scratch(*inputs)
    small = (*inputs, *plan.allocate_outputs(*inputs), workspace[:-1], semaphores)
    with pytest.raises(
        ValueError,
        match=r"4 rows of 3 requests in 8 pieces each need 24768: size it by workspace_shapes\(3, 4, sm",
    ):
        plan.launch_fn(*small)
    sparse = SparsePieces()
    inputs = sparse.prepare_inputs(batch=3, query_len=2, heads=2, topk=70)
    workspace, semaphores = sparse.allocate_scratch(*inputs)
    small = (*inputs, *sparse.allocate_outputs(*inputs), workspace[:-1], semaphores)
    with pytest.raises(ValueError, match=r"workspace_shapes\(6, 2, sm_count=8"):
        sparse.launch_fn(*small)


class Honest(Pieces):
    """Has as many parts of a request as its length gives, however many parts a launch has."""

    def compile(self, key: str) -> Callable[..., None]:
        kernel = super().compile(key)
        return lambda *values: kernel(*values[:-1], 8)


def run_alone(plan: CpuMla) -> Any:
    subject = plan_subject(plan, Path("mla"))
    case = next(case for case in list_cases(subject) if case.mode == "alone")
    small = replace(case, shape={"batch": 3, "query_len": 2, "heads": 2, "kv_len": 600}, draw=Draw(peaked=True))
    return run_case(subject, small, 0)


def test_a_kernel_that_keeps_the_promise_passes() -> None:
    result = run_alone(Honest())
    assert (result.status, result.detail) == ("pass", ())
    assert result.errors


@pytest.mark.parametrize(
    ("plan", "told"),
    [
        (Honest("company"), "words of batch member 2 differ when it is alone with tiling two"),
        (Pieces(), "differ when the batch is in reverse, on 1 SMs with tiling seesaw"),
        (Honest("column"), "3 of 6144 wrong"),
    ],
    ids=["company", "the number of SMs", "values"],
)
def test_a_kernel_that_breaks_it_is_found(plan: CpuMla, told: str) -> None:
    result = run_alone(plan)
    assert result.status == "wrong"
    assert told in "\n".join(result.detail)


def test_every_plan_that_promises_it_is_asked() -> None:
    for plan in (Honest(), SparsePieces()):
        cases = [c for c in list_cases(plan_subject(plan, Path("mla"))) if c.mode == "alone"]
        assert [c.name for c in cases] == ["alone and together", "of most heads"]
        assert all(c.tiling is None for c in cases)
