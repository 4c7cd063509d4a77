"""What is asked of an architecture's lowering."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol

from cutegen.arch.architecture import Arch
from cutegen.families.code_plan import CodePlan
from cutegen.families.decide import Choice
from cutegen.families.mla_decode.candidate import Candidate
from cutegen.families.mla_decode.problem import MlaProblem
from cutegen.families.mla_decode.resolved import ResolvedMla, ResolvedMlaTiling
from cutegen.families.section import Section


class MlaLowering(Protocol):
    """search: what `tune` tries where its section lists nothing, by Candidate field. explain_tiles: what else there is
    to say of a tiling's buffers."""

    search: Mapping[str, tuple[Any, ...]]
    explain_tiles: tuple[Callable[[ResolvedMlaTiling], Section], ...]

    def candidates(self, problem: MlaProblem, fixed: Mapping[str, Any], arch: Arch) -> Iterator[Choice]:
        """Candidates with the fixed knobs, best first."""

    def describe_tiling(self, problem: MlaProblem, c: Candidate, name: str) -> ResolvedMlaTiling:
        """Of one kernel, as Candidate.instances has them."""

    def count_smem(self, problem: MlaProblem, c: Candidate) -> int:
        """Bytes of shared memory."""

    def plan_code(self, resolved: ResolvedMla, tiling: ResolvedMlaTiling) -> CodePlan:
        """What an instance is planned to compile to."""

    def kernel_text(self, resolved: ResolvedMla) -> Any:
        """What its kernel.py.jinja reads."""

    def explain_sums(self, resolved: ResolvedMla, tiling: ResolvedMlaTiling) -> Section:
        """Where sums are, and how many registers threads have."""
