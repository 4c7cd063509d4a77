"""What is asked of an architecture's lowering. Problems and candidates are in the kernel's frame."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Protocol, TypeAlias

from cutegen.families.code_plan import MmaPlan
from cutegen.families.gemm.candidate import Candidate, Core
from cutegen.families.gemm.problem import GemmProblem
from cutegen.model.kernel import NamedBarrier, Pipeline, Role
from cutegen.model.smem import SmemField

Cores: TypeAlias = tuple[tuple[str, int, tuple[int, int, int], str], ...]
"""(schedule, consumers, tile, reason), best first; tile k in 16-bit elements."""
NVGPU = "cutlass.cute.nvgpu"


class Lowering(Protocol):
    """trigger_gain: what was measured of letting the next kernel start early; "" where nobody measured it.
    claims_tiles: whether clusters may claim tiles while the kernel runs. clusters: what `auto` proposes, and why."""

    trigger_gain: str
    claims_tiles: bool
    clusters: Mapping[tuple[int, int], str]

    def list_cores(self, problem: GemmProblem) -> Cores:
        """What candidates are built around where no shape is known."""

    def list_flat_cores(self, problem: GemmProblem) -> Iterable[tuple[Core, str]]:
        """Cores, and why, of transposed products of few rows: tried first where no rates rank candidates."""

    def import_mma(self, problem: GemmProblem) -> Mapping[str, tuple[str, ...]]:
        """Names, by module, that have the classes of its MMAs and of what TMA does."""

    def list_modules(self, problem: GemmProblem) -> tuple[str, ...]:
        """Of cutegen.device: what handles products and sums."""

    def explain_sums(self, tiling: Any, d: Any) -> tuple[str, tuple[str, ...]]:
        """Title and lines about where sums are, of a ResolvedGemmTiling and its Derived numbers."""

    def list_roles(self, problem: GemmProblem, c: Candidate) -> tuple[Role, ...]:
        """Those of the warps of a CTA."""

    def list_pipelines(self, problem: GemmProblem, c: Candidate, d: Any) -> Iterator[Pipeline]:
        """In the order in which a tile goes through them. d: its Derived numbers."""

    def list_barriers(self, problem: GemmProblem, c: Candidate) -> tuple[NamedBarrier, ...]:
        """Hardware barriers that the roles use."""

    def list_fields(self, problem: GemmProblem, c: Candidate) -> Iterator[SmemField]:
        """Shared memory behind the barriers of the ring of A and B."""

    def empty_arrivals(self, c: Candidate) -> tuple[int, str]:
        """That free a slot of that ring, and where the number comes from."""

    def numbers(self, problem: GemmProblem, c: Candidate) -> Mapping[str, tuple[Any, str]]:
        """Fields of GemmTiling: value, and where it comes from."""

    def sources(self) -> Mapping[str, str]:
        """Where numbers come from that all architectures have, if not from where they do in common."""

    def operand_registers(self, problem: GemmProblem, c: Candidate) -> int:
        """Registers of a consumer thread that hold A and B."""

    def set_registers(self, c: Candidate) -> tuple[int, int]:
        """(producer, consumer) registers of a thread by setmaxnreg; 0 where it stays at what it is launched with."""

    def count_mma_ctas(self, c: Candidate) -> int:
        """CTAs of one product, where the spec does not say."""

    def count_scale_copies(self, problem: GemmProblem, c: Candidate) -> int:
        """Instructions in the code that bring scales to the tensor core."""

    def count_matrix_loads(self, problem: GemmProblem, c: Candidate) -> int:
        """Places in the code where a warp reads rows of A or B from shared memory."""

    def plan_mma(self, problem: GemmProblem, c: Candidate) -> MmaPlan:
        """The tensor-core instructions in the code."""
