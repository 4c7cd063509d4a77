"""Which cases `check --on cpu` runs: problems small enough to be executed, and large enough to break a kernel."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

from cutegen.families.proving import Mode, Problem
from cutegen.run.case_list import Case, case_of
from cutegen.run.row import Row
from cutegen.run.shapes import Shape, complete, product_space
from cutegen.run.subject import Subject

SM_COUNTS = (2, 4)  # of the GPU that launches see: few, so that small problems take several waves
SUITE_EXTENT, SUITE_CASES = 300, 12  # the most of a dim where its family says no less; of problems that are run
ON_A_GPU: tuple[Mode, ...] = ("stream", "graph")
# What an order of a case is expected to take: multiply-adds a second with races looked for, on one core of 2.5 GHz,
# and what takes time whatever the size.
RATE, LEAST_SECONDS = 1e8, 0.1
# Bytes that a case takes for each byte that its kernel moves: copies, guard bands, a float64 reference, and the shadow
# of who wrote and read each unit.
BYTES_OF_A_BYTE = 24


@dataclass(frozen=True, slots=True)
class CpuCase:
    """sms: of the GPU that the launch sees. seconds, bytes: what one order is expected to take, None: unknown."""

    case: Case
    sms: int
    seconds: float | None = None
    bytes: int | None = None


def list_cpu_cases(
    subject: Subject, shapes: Sequence[Shape] = (), every: bool = False, suite: Sequence[Row] = ()
) -> list[CpuCase]:
    """For one tiling of each kernel module, or for every tiling; then `shapes` (the spec's, the user's) on the
    subject's own choice of tiling. suite: its problems alone, cut down; without `every` some of them."""
    if suite:
        return [
            _estimated(subject, CpuCase(case, _fewest_sms(subject, case.shape)))
            for case in _cut_down(subject, suite, every)
        ]
    proving, plan = subject.proving, subject.plan
    keys = set(subject.tilings) if every or plan is None else _sample(plan)
    found: list[CpuCase] = []
    for sms in SM_COUNTS:
        problems: Iterator[Problem]
        if proving:
            problems = iter(proving.list_small_problems(plan, sms))
        else:
            problems = product_space(subject).small_problems(subject.tilings, sms)
        for problem in problems:
            if problem.tiling is None or problem.tiling in keys:
                dims = dict(problem.dims) if plan else complete(subject, problem.dims, str(subject.path))
                least = max(sms, plan.least_sms(problem.tiling)) if plan and problem.tiling else sms
                for mode in problem.modes:
                    found.append(CpuCase(Case(problem.name, dims, mode, problem.tiling, problem.draw), least))
    for given in (*subject.shapes, *shapes):
        shape = complete(subject, given, "check shape")
        draw = proving.given_draw if proving else None
        found.append(CpuCase(Case("given", shape, "numerics", None, draw), _fewest_sms(subject, shape)))
    return [_estimated(subject, case) for case in found]


def needed_tilings(subject: Subject, cases: Sequence[CpuCase]) -> list[str]:
    """Those that the cases of a plan run, to be compiled before: what is compiled in a case is part of its time."""
    plan, modes = subject.plan, {case.case.mode for case in cases}
    if "rows" in modes or ("alone" in modes and getattr(plan, "batch_invariant", False)):
        return list(subject.tilings)  # bits with each of them are compared
    named = {case.case.tiling for case in cases}
    chosen = {plan.dispatch(**case.case.shape) for case in cases if plan and case.case.tiling is None}
    return [key for key in subject.tilings if key in named | chosen]


def _fewest_sms(subject: Subject, shape: Shape) -> int:
    """On which any of its tilings runs this problem."""
    needed = [subject.plan.fewest_sms(key, shape) for key in subject.tilings] if subject.plan else []
    return max(SM_COUNTS[-1], *needed) if needed else SM_COUNTS[-1]


def _cut_down(subject: Subject, suite: Sequence[Row], every: bool) -> list[Case]:
    """Problems of a suite with extents halved until they are small, those that are alike then once; without `every`
    SUITE_CASES of them, evenly spread."""
    most = subject.proving.cpu_extents if subject.proving else {}
    found: list[Case] = []
    for row in suite:
        shape = dict(row.shape)
        for dim, promised in subject.dims.items():
            low, step = (promised, 1) if isinstance(promised, int) else (promised[0], subject.steps.get(dim, 1))
            while shape.get(dim, 0) > most.get(dim, SUITE_EXTENT) and (half := shape[dim] // 2 // step * step) >= low:
                shape[dim] = half
        case = case_of(subject, replace(row, shape=shape))
        if case not in found:
            found.append(case)
    count = len(found) if every else min(len(found), SUITE_CASES)
    return [found[i * (len(found) - 1) // max(1, count - 1)] for i in range(count)]


def _sample(plan: Any) -> set[str]:
    """The first tiling of each kernel module, where a plan has a table of them, and of each form of its code: others
    differ in numbers."""
    modules: Mapping[str, str] = getattr(sys.modules[type(plan).__module__], "MODULES", {})
    first: dict[tuple[str, str], str] = {}
    for key in plan.tilings:
        first.setdefault((modules.get(key, key), plan.form_of(key)), key)
    return set(first.values())


def _estimated(subject: Subject, found: CpuCase) -> CpuCase:
    case = found.case
    runs = 3 if case.mode == "repeat" else 1
    try:
        if subject.plan:
            flops, moved = subject.plan._algorithmic_flops_bytes(**case.shape)
        else:
            flops = moved = 0
        if all(role in case.shape for role in (subject.roles.m, subject.roles.n, subject.roles.k)):
            m, n, k = (case.shape[role] for role in (subject.roles.m, subject.roles.n, subject.roles.k))
            batch = case.shape.get(subject.roles.batch, 1)
            tile = getattr(subject.tilings.get(case.tiling), "tile", (1, 1, 1))
            whole = (-(-extent // side) * side for extent, side in zip((m, n, k), tile))  # tiles are computed as such
            flops = max(flops, 2 * batch * prod(whole))
            moved = moved or 4 * batch * (m * k + n * k + m * n)
    except (ArithmeticError, TypeError, ValueError):  # of extents of 0, say
        return found
    if not flops:
        return found
    return replace(found, seconds=runs * (LEAST_SECONDS + flops / 2 / RATE), bytes=int(moved) * BYTES_OF_A_BYTE)
