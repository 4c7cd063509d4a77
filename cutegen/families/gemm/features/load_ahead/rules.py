"""Rules about what is loaded before the wait for the preceding kernel."""

from __future__ import annotations

from cutegen.arch.architecture import Arch
from cutegen.diagnostics import NOT_YET_SUPPORTED, Rule
from cutegen.families.gemm.candidate import Candidate
from cutegen.families.gemm.problem import GemmProblem
from cutegen.families.gemm.rule_book import BOOK
from cutegen.families.refusal import Objection


def write_ready(problem: GemmProblem, name: str) -> str:
    """How a spec says that one more operand is ready."""
    return f"ready: [{', '.join((*problem.ready, name))}]"


def _load_ahead(problem: GemmProblem, c: Candidate, side: str) -> Objection | None:
    operand, ahead = (problem.a, c.load_ahead_a) if side == "a" else (problem.b, c.load_ahead_b)
    name, ready = operand.name, operand.name in problem.ready
    if not ahead or problem.groups is not None:
        return None
    rows = problem.gather or problem.copied
    if rows and side == {"m": "a", "n": "b"}[rows.along]:
        return f"the rows of `{name}` are gathered, by an index that preceding kernels may write", "drop load_ahead"
    if c.pdl_wait and ready:
        return None
    reason = f"pdl.ready does not name `{name}`: it may be written while the preceding kernel runs"
    if ready:
        reason = f"pdl.wait is false: there is no wait that `{name}` could be loaded before"
    needed = [
        *(["wait: true"] if not c.pdl_wait else []),
        *([] if ready else [write_ready(problem, name)]),
    ]
    condition = "" if ready else f" if `{name}` was written before the preceding kernel could start"
    return reason, f"write `pdl: {{{', '.join(needed)}}}`{condition}, or drop load_ahead"


LOAD_AHEAD = Rule(
    "load-ahead",
    "only what was written before the preceding kernel could start is loaded before the wait for it",
    "`pdl: {ready: [b]}` promises that of an operand; no lock and no tuner assumes it. Where rows are gathered, the "
    "preceding kernel may write the index; and without `pdl.wait` a kernel starts when that one has ended.",
    "tma: {b: {load_ahead: true}}",
)


@BOOK.declare_form(LOAD_AHEAD, "load_ahead_a", "pdl_wait")
def load_ahead_a(problem: GemmProblem, c: Candidate, arch: Arch) -> Objection | None:
    return _load_ahead(problem, c, "a")


@BOOK.declare_form(LOAD_AHEAD, "load_ahead_b", "pdl_wait")
def load_ahead_b(problem: GemmProblem, c: Candidate, arch: Arch) -> Objection | None:
    return _load_ahead(problem, c, "b")


@BOOK.declare_form(NOT_YET_SUPPORTED, "load_ahead_a", "load_ahead_b")
def grouped_ahead(problem: GemmProblem, c: Candidate, arch: Arch) -> Objection | None:
    if problem.groups is None or not (c.load_ahead_a or c.load_ahead_b):
        return None
    what = "which tiles a grouped product has is written by preceding kernels: loading ahead of the wait"
    return f"{what} is not yet supported", "drop load_ahead"
