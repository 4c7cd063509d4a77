"""How the work is cut and handed out, for the templates: output tiles or parts of them, in static or dynamic order."""

from __future__ import annotations

from dataclasses import dataclass

from cutegen.families.argument_text import FakeArgument, Symbol
from cutegen.families.gemm.candidate import Candidate
from cutegen.families.gemm.problem import GemmProblem
from cutegen.runtime.arguments import TensorArg
from cutegen.runtime.gemm.tiling import SCRATCH, GemmTiling


@dataclass(frozen=True, slots=True)
class WorkText:
    """What the templates read as k.work.

    dynamic: tiles are handed out; clc: by cluster launch control. in_cluster: CTAs of a cluster have the parts of a
    tile, exchange sums, and share out its epilogue. split_k_sum: how partial sums are added. scratch: names of the
    scratch arguments.
    """

    dynamic: bool
    clc: bool
    in_cluster: bool
    split_k_sum: str
    scratch: tuple[str, ...]
    fakes: tuple[FakeArgument, ...]
    device_modules: tuple[str, ...]

    @property
    def split(self) -> bool:
        return self.split_k_sum != "none"

    @property
    def last_finishes(self) -> bool:
        """The CTA of a tile's last part runs all of its epilogue."""
        return self.split and not self.in_cluster


def work_text(problem: GemmProblem, structure: Candidate, first: GemmTiling) -> WorkText:
    """All in the kernel's frame; first: of the instances of the kernel, which take the same scratch."""
    dynamic, split = structure.dynamic, structure.split_k_sum != "none"
    scratch = tuple(s for s in SCRATCH if s.name in first.scratch)
    clc = structure.launch_control
    queue = "launch_queue" if clc else "tile_queue"
    return WorkText(
        dynamic=dynamic,
        clc=clc,
        in_cluster=structure.in_cluster,
        split_k_sum=structure.split_k_sum,
        scratch=tuple(s.name for s in scratch),
        fakes=tuple(map(_fake, scratch)),
        device_modules=(
            *(["k_split"] if split else []),
            *(["cluster_sum"] if structure.in_cluster else []),
            *([queue] if dynamic else []),
        ),
    )


def _fake(s: TensorArg) -> FakeArgument:
    dtype = {"float32": "Float32", "int32": "Int32"}[s.dtype]
    return FakeArgument(s.text(), dtype, (Symbol("", s.name),), align=s.align)
