"""What an sm_120a spec may not ask for yet: each is refused by name, where it stands."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from cutegen.diagnostics import Diagnostic, Rule, register
from cutegen.families.gemm.problem import GemmProblem

if TYPE_CHECKING:
    from cutegen.spec import KeyPath, SpecDocument

FOLDER = "sm120"
SM120_SPEC = register(
    Rule(
        "sm120-spec",
        "some parts of a GEMM spec are not supported yet on sm_120a",
        "sm_120a has what sm_90a has, but f32 scales along k, for which sums are promoted, and gathered rows.",
        "arch: sm_120a\ntensors: {a: 'e4m3[m, k]', b: 'e4m3[n, k]', sa: 'f32[m, k/128]'}\nmainloop: (a * sa) @ b",
    )
)


def refuse_unsupported(doc: SpecDocument, problem: GemmProblem) -> Iterator[Diagnostic]:
    """A finding for each part that kernels of the problem's architecture lack."""
    for path, what in _unsupported(problem) if problem.target.folder == FOLDER else ():
        said = f"{what} on {problem.arch} is not supported yet"
        yield doc.diagnostic(SM120_SPEC.id, path, said, "use `arch: sm_90a`", key=True)


def _unsupported(problem: GemmProblem) -> Iterator[tuple[KeyPath, str]]:
    if problem.gather:
        yield ("mainloop",), "a product of gathered rows"
    if problem.packed_scales and problem.paired:
        yield ("epilogue",), "a gated product with scales of blocks"
    if problem.packed_scales and problem.groups and problem.groups.form == "offsets":
        yield ("groups",), "a product of groups that begin anywhere, with scales in chunks of 128 rows,"
    if problem.scaled_k:
        yield ("mainloop",), "a product with f32 scales that vary along k"
