"""Reductions in the kernel module: which tiles wait for each other, and what warps have of them in shared memory."""

from __future__ import annotations

from dataclasses import dataclass

from cutegen.epilogue import Reduction
from cutegen.families.gemm.problem import GemmProblem

WORDS = {"m": "row", "n": "column"}


@dataclass(frozen=True, slots=True)
class JoinText:
    """Reductions whose tiles wait for each other: along `kept`, m or n, or in all, or of a batch index (`of_batch`)."""

    kept: str
    of_batch: bool
    reductions: tuple[Reduction, ...]


@dataclass(frozen=True, slots=True)
class ReductionsText:
    """What the templates read as k.reductions. batched: whether a tile has a batch index, of which outputs have a
    member."""

    outputs: tuple[Reduction, ...]
    joins: tuple[JoinText, ...]
    batched: bool

    @property
    def masks_rows(self) -> bool:
        """Whether elements past the last row of the product are told from others; masks_columns: past the column."""
        return any(r.kept != "m" for r in self.outputs)

    @property
    def masks_columns(self) -> bool:
        return any(r.kept != "n" for r in self.outputs)

    @property
    def arrivals(self) -> str:
        """What the counters of tiles are of, in words."""
        return ", ".join(f"per {WORDS[join.kept]} of tiles" if join.kept else "in all" for join in self.joins)

    @property
    def scratch(self) -> tuple[str, ...]:
        """Names of the scratch arguments: partial results and the counters."""
        return (*(f"p_{r.name}" for r in self.outputs), "arrivals") if self.outputs else ()


def reductions_text(problem: GemmProblem) -> ReductionsText:
    """In the kernel's frame."""
    found = problem.kernel_epilogue.reductions
    batched = problem.batch is not None and not (problem.groups and problem.groups.flat)
    kinds = (("m", batched), ("n", batched), ("", True), ("", False))
    joins = (
        JoinText(kept, of_batch, tuple(r for r in found if r.kept == kept and (kept or r.batched == of_batch)))
        for kept, of_batch in kinds
    )
    return ReductionsText(found, tuple(join for join in joins if join.reductions), batched)
