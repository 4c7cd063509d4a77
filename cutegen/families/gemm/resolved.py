"""The resolved GEMM: no `auto` left, every number with its origin. Templates, build, explain and the lock read it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from cutegen.families.gemm.problem import GemmProblem
from cutegen.families.resolved import Decision, DispatchRow, ResolvedTiling
from cutegen.runtime.gemm import GemmTiling

Schedule = Literal["cooperative", "pingpong"]


@dataclass(frozen=True, slots=True)
class ResolvedGemm:
    """Everything the templates need. digest: hash of the meaning of spec and decisions, not of comments or evidence."""

    family: ClassVar[str] = "gemm"

    name: str
    arch: str
    device: str
    problem: GemmProblem
    schedule: Schedule
    scheduler: str
    multicast_a: int
    multicast_b: int
    swizzle_a: int
    swizzle_b: int
    pdl_wait: bool
    pdl_trigger: bool
    tilings: tuple[ResolvedTiling[GemmTiling], ...]
    dispatch: tuple[DispatchRow, ...]
    decisions: tuple[Decision, ...]
    digest: str
