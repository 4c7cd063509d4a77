"""The resolved GEMM: no `auto` left, every number with its origin. Templates, build, explain and the lock read it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from cutegen.families.gemm.candidate import Candidate
from cutegen.families.gemm.problem import GemmProblem
from cutegen.families.resolved import Decision, DispatchRow, ResolvedTiling
from cutegen.runtime.arguments import Extent
from cutegen.runtime.gemm.cost_model import MODEL
from cutegen.runtime.gemm.tiling import GemmTiling


@dataclass(frozen=True, slots=True)
class ResolvedGemmTiling(ResolvedTiling[GemmTiling]):
    """One kernel instance. candidate: the knobs that its numbers come from. omitted: optional operands that it does
    without. problem, framed: what it computes and its knobs in the kernel's frame."""

    candidate: Candidate
    problem: GemmProblem
    framed: Candidate
    omitted: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RowCopyKernel:
    """The kernel that copies gathered rows to scratch. pdl_wait: it may start before the kernel in front has ended."""

    pdl_wait: bool
    name: ClassVar[str] = "copy_rows"
    module: ClassVar[str] = "copy_rows"
    numbers: ClassVar[None] = None


@dataclass(frozen=True, slots=True)
class GemmKernel:
    """One generated module and its instances, which share all structural knobs."""

    module: str
    tilings: tuple[ResolvedGemmTiling, ...]

    @property
    def omitted(self) -> tuple[str, ...]:
        """Optional operands that the module does without."""
        return self.tilings[0].omitted

    @property
    def structure(self) -> Candidate:
        """A candidate to read structural knobs from; its other knobs are those of the first instance."""
        return self.tilings[0].candidate


@dataclass(frozen=True, slots=True)
class ResolvedGemm:
    """Everything the templates need. kernels: that of the default tiling first; those that do without optional operands
    last, each instance beside the one of all operands. digest: hash of the meaning of spec and decisions, not of
    comments. picks: names of the tilings that the cost model, of version `model`, chooses among for calls that nobody
    measured, the default first; why_picks: why these. archs: where the spec is for several, all of them."""

    family: ClassVar[str] = "gemm"

    name: str
    arch: str
    device: str
    problem: GemmProblem
    kernels: tuple[GemmKernel, ...]
    dispatch: tuple[DispatchRow, ...]
    decisions: tuple[Decision, ...]
    digest: str
    function: str
    picks: tuple[str, ...] = ()
    model: int = MODEL
    why_picks: str = ""
    archs: tuple[str, ...] = ()

    @property
    def dims(self) -> dict[str, Extent]:
        """What a call gives extents of, as the plan declares it."""
        return {d.name: (d.lo, d.hi) if d.value is None else d.value for d in self.problem.dims}

    @property
    def names(self) -> tuple[str, ...]:
        """Tensors, dims and locals of the spec."""
        return (*self.problem.arguments, *self.dims, *(s.name for s in self.problem.epilogue.statements))

    @property
    def default(self) -> ResolvedGemmTiling:
        """The instance of the last row of the dispatch table; the decisions are its knobs."""
        return self.kernels[0].tilings[0]

    @property
    def tilings(self) -> tuple[ResolvedGemmTiling, ...]:
        """The instances that the dispatch table names: of all operands."""
        return tuple(tiling for tiling in self.instances if not tiling.omitted)

    @property
    def instances(self) -> tuple[ResolvedGemmTiling, ...]:
        """Those that do without optional operands, too."""
        return tuple(tiling for kernel in self.kernels for tiling in kernel.tilings)

    @property
    def row_copy(self) -> RowCopyKernel | None:
        """What the package has in front of kernels that multiply a copy of gathered rows."""
        copying = [t for t in self.instances if t.candidate.copies_rows]
        return RowCopyKernel(any(t.candidate.pdl_wait for t in copying)) if copying else None

    @property
    def sample(self) -> tuple[ResolvedGemmTiling | RowCopyKernel, ...]:
        """One kernel of each module, the default among them: the others differ from it in numbers alone."""
        return (*(kernel.tilings[0] for kernel in self.kernels), *([self.row_copy] if self.row_copy else []))

    @property
    def built(self) -> tuple[ResolvedGemmTiling | RowCopyKernel, ...]:
        """All kernels of the package."""
        return (*self.instances, *([self.row_copy] if self.row_copy else []))
