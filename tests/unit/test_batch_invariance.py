"""`invariance: batch`: what it refuses, and the check that proves it, with kernels that run on the CPU."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import pytest
from bound_winners import TOOLS, bound
from gemm_specs import PLAIN, SM90, bind_text, candidate, resolve_text

from cutegen.families.gemm.features.split_k.rules import unsplit_sum
from cutegen.families.gemm.invariance import BATCH_INVARIANCE, other_sum
from cutegen.render import render_package
from cutegen.resolve import resolve_tuned, tuning_space
from cutegen.resolve.winners import Winner

torch = pytest.importorskip("torch")

from test_bench import CpuPlan, Tiling  # noqa: E402 (needs torch)

from cutegen.run.case_list import list_cases  # noqa: E402
from cutegen.run.cases import run_case  # noqa: E402
from cutegen.run.subject import Subject, plan_subject  # noqa: E402

INVARIANT = PLAIN + "invariance: batch\n"


def test_the_rule_refuses_other_sums() -> None:
    problem, free = bind_text(INVARIANT), bind_text(PLAIN)
    default = candidate(problem)
    split, deep = replace(default, split_k=2), replace(default, tile=(128, 256, 128))
    refusal = unsplit_sum(problem, split, SM90)
    assert refusal
    assert refusal.rule == BATCH_INVARIANCE.id
    assert refusal.reason.startswith("split_k = 2 adds up 2 sums over parts of K")
    other = other_sum(problem, default, deep)
    assert other
    assert other.reason == "tile k = 128, but the default's is 64, and `invariance: batch` wants one for all"
    promoted = other_sum(problem, default, replace(default, promote_every=4))
    assert promoted
    assert promoted.reason.startswith("promote_every = 4, but the default's is never")
    assert unsplit_sum(problem, default, SM90) is other_sum(problem, default, default) is None
    assert unsplit_sum(free, split, SM90) is other_sum(free, default, deep) is None


SUMS = INVARIANT.replace("  d:", "  r: f32[m]\n  d:") + "epilogue: {d: acc, r: 'sum(acc, n)'}\n"


@pytest.mark.parametrize(
    ("text", "knobs", "reason"),
    [
        (SUMS, {"tile": (128, 128, 64)}, "tile n = 128, but the default's is 256"),
        (SUMS, {"swap_ab": True}, "swap_ab = True, but the default's is False"),
        (SUMS, {"tile": (64, 256, 64), "consumers": 1}, ""),
        (SUMS.replace("sum(", "max("), {"tile": (128, 128, 64)}, ""),  # no order of a maximum makes a difference
        (SUMS.replace("f32[m]", "f32[n]").replace(", n)", ", m)"), {"tile": (128, 128, 64)}, ""),  # no value of a row
        (INVARIANT, {"tile": (128, 128, 64), "swap_ab": True}, ""),
    ],
)
def test_columns_of_a_row_are_summed_up_by_equal_tiles(text: str, knobs: dict[str, Any], reason: str) -> None:
    problem = bind_text(text)
    default = candidate(problem, tile=(128, 256, 64))
    refusal = other_sum(problem, default, replace(default, **knobs))
    assert (refusal.reason if refusal else "").startswith(reason)
    assert bool(refusal) is bool(reason)


def test_winners_with_another_tile_k_are_run_by_no_call() -> None:
    tilings = {
        name: {"tiling.tile": [128, 128, k], "warpgroups.schedule": "cooperative", "warpgroups.consumer.count": 2}
        for name, k in (("same", 64), ("deep", 128))
    }
    won = [
        Winner("GPU", {"m": (low, high), "n": 8, "k": 8}, name, 1.0, None, "", None, "x", TOOLS)
        for name, low, high in (("same", 1, 16), ("deep", 17, 64))
    ]
    for text, kept in ((PLAIN, 2), (INVARIANT, 1)):
        lock = resolve_text(text).lock.with_winners(tilings, bound(won, tilings, text))
        resolution = resolve_text(text, lock)
        assert [w.tiling for w in resolution.lock.winners if not w.unused] == ["same", "deep"][:kept]
        assert len(resolution.notes) == 2 - kept
    assert "`invariance: batch` wants one for all" in resolution.notes[0]


def test_a_tuner_prunes_them() -> None:
    text = INVARIANT + "tune: {tile: [[128, 128, 64], [128, 128, 128]]}\n"
    assert [[r.rule for r in p.refusals] for p in proposed(text)] == [[], ["batch-invariance"]]


def proposed(text: str) -> list[Any]:
    return list(tuning_space(resolve_text(text)).propose({"m": 16, "n": 4096, "k": 4096}))


def test_what_a_tuner_chooses_beside_listed_knobs_keeps_to_them() -> None:
    lists = "tune: {schedule: [pingpong, cooperative], swap_ab: [true, false]}\n"
    assert {p.candidate.tile[2] for p in proposed(PLAIN + lists)} - {64}  # few rows
    found = proposed(INVARIANT + lists)
    assert [p.refusals for p in found] == [()] * 4
    assert [p.candidate.tile[2] for p in found] == [64] * 4


def test_the_kernel_is_the_same_and_the_plan_promises_it() -> None:
    plain, invariant = resolve_text(PLAIN).resolved, resolve_text(INVARIANT).resolved
    assert invariant.digest != plain.digest
    before, after = (render_package(r).files for r in (plain, invariant))
    body = [text["kernel.py"].partition("\n\n")[2] for text in (before, after)]
    assert body[0] == body[1]
    assert "    batch_invariant = True\n" in after["plan.py"]
    assert "batch_invariant" not in before["plan.py"]
    assert resolve_tuned(resolve_text(INVARIANT), ()).resolved.digest == invariant.digest


class InvariantPlan(CpuPlan):
    """Two tilings; subclasses let the second one depend on what it must not."""

    batch_invariant = True
    tilings: ClassVar = {"one": Tiling(), "two": Tiling()}

    def dispatch(self, device: int | None = None, /, **dims: int) -> str:
        return "one"

    def compile(self, key: str) -> Callable[..., None]:
        def launch(a: Any, b: Any, d: Any, sms: int) -> None:
            d.copy_(self.multiply(key, a.double(), b.double()))

        return launch

    def multiply(self, key: str, a: Any, b: Any) -> Any:
        # Row by row, because a CPU library adds in an order of its own for each shape.
        return torch.stack([(row[:, None] * b).sum(0) for row in a])


class SplitsFewRows(InvariantPlan):
    def multiply(self, key: str, a: Any, b: Any) -> Any:
        exact = super().multiply(key, a, b)
        return exact * (1 + 2**-7) if key == "two" and len(a) < 20 else exact


class KnowsItsPlace(InvariantPlan):
    def multiply(self, key: str, a: Any, b: Any) -> Any:
        exact = super().multiply(key, a, b)
        exact[:1] *= 1 + 2**-7
        return exact


def rows_cases(plan: CpuPlan) -> list[Any]:
    subject: Subject = plan_subject(plan, Path(plan.name))
    return [run_case(subject, case, 0) for case in list_cases(subject) if case.mode == "rows"]


def test_a_kernel_that_keeps_the_promise_passes() -> None:
    results = rows_cases(InvariantPlan())
    assert [r.case.name for r in results] == ["ragged", "around the ring", "several waves"]
    assert [(r.status, r.detail) for r in results] == [("pass", ())] * 3
    assert all(r.errors for r in results)


@pytest.mark.parametrize(
    ("plan", "text"), [(SplitsFewRows, "with tiling two, rows 0 to 0 alone"), (KnowsItsPlace, "tiling one, rows 16 to")]
)
def test_a_kernel_that_breaks_it_is_found(plan: type[InvariantPlan], text: str) -> None:
    results = rows_cases(plan())
    assert {r.status for r in results} == {"wrong"}
    assert any(text in detail for detail in results[0].detail)
    assert any("words differ" in detail for detail in results[0].detail)


def test_kernels_that_do_not_promise_it_are_not_asked() -> None:
    subject = plan_subject(CpuPlan(), Path("plain"))
    assert not any(case.mode == "rows" for case in list_cases(subject))


def test_every_pair_of_a_portfolio_is_compared() -> None:
    """All with the first, bit by bit, so that equal ones among those that differ from it are reported as well."""

    class Portfolio(InvariantPlan):
        tilings: ClassVar = {name: Tiling() for name in ("one", "two", "three", "four")}
        odd: ClassVar[tuple[str, ...]] = ()

        def multiply(self, key: str, a: Any, b: Any) -> Any:
            exact = super().multiply(key, a, b)
            return exact.mul(1 + 2**-7) if key in self.odd else exact

    assert {r.status for r in rows_cases(Portfolio())} == {"pass"}
    for odd in (("four",), ("three", "four"), ("two", "three", "four")):
        Portfolio.odd = odd
        for result in rows_cases(Portfolio()):
            assert result.status == "wrong"
            told = {key for key in Portfolio.tilings if any(f"with tiling {key}, all rows" in d for d in result.detail)}
            assert told == set(odd)


def test_the_portfolio_of_an_invariant_spec_is_what_check_compares() -> None:
    resolved = resolve_text(INVARIANT + "dims: {n: 4096, k: 4096}\n", portfolio=True).resolved
    package = render_package(resolved).files["plan.py"]
    names = set(resolved.picks)
    assert len(names) > 1
    assert all(f'        "{name}":' in package for name in names)
