"""The resolved GEMM: no `auto` left, every number with its origin. Templates, build, explain and the lock read it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from cutegen.families.gemm.problem import GemmProblem
from cutegen.runtime.gemm import GemmTiling

Schedule = Literal["cooperative", "pingpong"]
Origin = Literal["spec", "lock", "auto"]


@dataclass(frozen=True, slots=True)
class Decision:
    """One user-level knob and why it has its value. key: dotted path in the spec, such as `tiling.tile`."""

    key: str
    value: object
    origin: Origin
    reason: str


@dataclass(frozen=True, slots=True)
class SmemRegion:
    """One field of SharedStorage, in order. offset and bytes in bytes; what: dtype, shape and stages in words."""

    name: str
    offset: int
    bytes: int
    align: int
    what: str


@dataclass(frozen=True, slots=True)
class PipelinePlan:
    """One ring of buffers. kind: TmaAsync or TmaStore. full, empty: what completes a full and an empty barrier."""

    name: str
    kind: str
    producer: str
    consumer: str
    stages: int
    stage_bytes: int
    full: str
    empty: str


@dataclass(frozen=True, slots=True)
class Role:
    """One warp-specialised role. warps: inclusive range of warp indices in the CTA."""

    name: str
    warps: tuple[int, int]
    registers: int
    does: str


@dataclass(frozen=True, slots=True)
class ResolvedTiling:
    """One kernel instance: its literal numbers, and for each where it comes from (`field -> spec key or formula`)."""

    name: str
    numbers: GemmTiling
    sources: dict[str, str]
    smem: tuple[SmemRegion, ...]
    pipelines: tuple[PipelinePlan, ...]
    roles: tuple[Role, ...]


@dataclass(frozen=True, slots=True)
class DispatchRow:
    """`when`: comparisons that must all hold, such as ("m", "<=", 128); empty for the last row."""

    when: tuple[tuple[str, str, int], ...]
    tiling: str


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
    tilings: tuple[ResolvedTiling, ...]
    dispatch: tuple[DispatchRow, ...]
    decisions: tuple[Decision, ...]
    digest: str
