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
        "sm_120a has what sm_90a has, and scales of blocks, of 8 bits, but those neither of gated products nor of "
        "groups that begin anywhere.",
        "arch: sm_120a\ntensors: {a: 'e4m3[m, k]', b: 'e4m3[n, k]', sa: 'e8m0[m, k/32]', sb: 'e8m0[n, k/32]', "
        "d: 'bf16[m, n/2]'}\nmainloop: (a * sa) @ (b * sb)\nepilogue: {d: 'acc[:, :n/2] * acc[:, n/2:]'}",
    )
)


def refuse_unsupported(doc: SpecDocument, problem: GemmProblem) -> Iterator[Diagnostic]:
    """A finding for each part that kernels of the problem's architecture lack."""
    for path, what in _unsupported(problem) if problem.target.folder == FOLDER else ():
        said = f"{what} on {problem.arch} is not supported yet"
        remedy = "use labels or counts" if path == ("groups",) else "use `arch: sm_100a`"
        yield doc.diagnostic(SM120_SPEC.id, path, said, remedy, key=True)


def _unsupported(problem: GemmProblem) -> Iterator[tuple[KeyPath, str]]:
    if problem.packed_scales and problem.paired:
        yield ("epilogue",), "a gated product with scales of blocks"
    if problem.packed_scales and problem.groups and problem.groups.form == "offsets":
        yield ("groups",), "a product of groups that begin anywhere, with scales in chunks of 128 rows,"
