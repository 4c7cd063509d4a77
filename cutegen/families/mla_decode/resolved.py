"""The resolved MLA decode: no `auto` left, every number with its origin. Templates, build, explain and the lock read
it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from cutegen.arch import ARCHS
from cutegen.families.mla_decode.candidate import REGISTERS, Candidate, Variant, list_knobs
from cutegen.families.mla_decode.problem import MlaProblem
from cutegen.families.resolved import Decision, DispatchRow, ResolvedTiling
from cutegen.runtime.arguments import Extent
from cutegen.runtime.mla_decode.tiling import MlaTiling

CALL_DIMS = ("batch", "query_len", "heads")


@dataclass(frozen=True, slots=True)
class FreeGroup:
    """Tiles of one K buffer that `warpgroup` gives back together. arrivals: warps, over the cluster, that free it."""

    buffer: int
    warpgroup: int
    tiles: tuple[int, ...]
    arrivals: int


@dataclass(frozen=True, slots=True)
class ResolvedMlaTiling(ResolvedTiling[MlaTiling]):
    """One kernel instance. candidate: what it was made of. free_groups: in the order in which the load warp waits for
    them. q_bytes, tile_bytes: TMA transaction bytes of Q and of one tile of K."""

    candidate: Candidate
    free_groups: tuple[FreeGroup, ...]
    q_bytes: int
    tile_bytes: int


@dataclass(frozen=True, slots=True)
class ResolvedMla:
    """Everything the templates need. digest: hash of the meaning of spec and decisions, not of comments.
    archs: where the spec is for several, all of them."""

    family: ClassVar[str] = "mla_decode"

    name: str
    arch: str
    device: str
    problem: MlaProblem
    variant: Variant
    tilings: tuple[ResolvedMlaTiling, ...]
    dispatch: tuple[DispatchRow, ...]
    decisions: tuple[Decision, ...]
    digest: str
    function: str
    archs: tuple[str, ...] = ()

    @property
    def dims(self) -> dict[str, Extent]:
        """What a call gives extents of, as the plan's base class declares it."""
        promised = (self.problem.query_len, self.problem.heads)
        query_len, heads = (low if low == high else (low, high) for low, high in promised)
        topk = self.problem.topk
        length: Extent = (0, None) if topk is None else topk[0] if topk[0] == topk[1] else topk
        return dict(zip((*CALL_DIMS, self.problem.length), ((1, None), query_len, heads, length)))

    @property
    def names(self) -> tuple[str, ...]:
        """None: what a call takes has the same names in every spec."""
        return ()

    @property
    def decided(self) -> Candidate:
        """The candidate of the decisions, which may stand for several kernels."""
        values = {d.key: d.value for d in self.decisions}
        held = {knob.field: values[knob.key] for knob in list_knobs(ARCHS[self.arch])}
        return Candidate(**{**dict.fromkeys(REGISTERS, 0), **held})  # type: ignore[arg-type]

    @property
    def built(self) -> tuple[ResolvedMlaTiling, ...]:
        """All that are built."""
        return self.tilings

    @property
    def sample(self) -> tuple[ResolvedMlaTiling, ...]:
        """Those that prove the package: each tiling is code of its own."""
        return self.tilings
