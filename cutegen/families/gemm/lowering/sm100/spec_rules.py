"""What an sm_100a spec may not ask for yet: each is refused by name, where it stands."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from cutegen.diagnostics import Diagnostic, Rule, register
from cutegen.dtypes import DTYPES
from cutegen.families.gemm.derived import in_subtile
from cutegen.families.gemm.orientation import block_passes
from cutegen.families.gemm.problem import GemmProblem

if TYPE_CHECKING:
    from cutegen.families.gemm.spec import GemmSpec
    from cutegen.spec import KeyPath, SpecDocument

SM100_SPEC = register(
    Rule(
        "sm100-spec",
        "some parts of a GEMM spec are not supported yet on sm_100a",
        "sm_100a has dense products, batched or not, with elementwise epilogues, gated or not, that read tiles, "
        "vectors and scalars, with reductions, with values of blocks that no tile goes into, and outputs that TMA "
        "stores, of groups of rows or not, gathered or not. f32 scales along k, and the "
        "section `warpgroups` are of sm_90a and sm_120a.",
        "arch: sm_100a\nepilogue: {x: acc + c, s: 'max_abs(x, n, 128)', d: x / s}",
    )
)
REMEDY = "use `arch: sm_90a`"


def refuse_unsupported(spec: GemmSpec, doc: SpecDocument, problem: GemmProblem) -> Iterator[Diagnostic]:
    """A finding for each part that kernels of the problem's architecture lack."""
    for path, what in _unsupported(spec, problem) if problem.target.tensor_memory else ():
        said = f"{what} on {problem.arch}"
        remedy = "write it under `for: {sm_90a: ...}`" if doc.archs and path[0] in spec.by_arch else REMEDY
        if path == ("groups",):  # of packed scales, which sm_90a has not
            remedy = "use labels or counts"
        elif problem.packed_scales and problem.gather:
            remedy = "gather the rows before the call, and pack their scales"
        yield doc.diagnostic(SM100_SPEC.id, path, f"{said} is not supported yet", remedy, key=True)
    if problem.packed_scales and problem.epilogue.pairing == "interleaved":
        said = "pairs of columns side by side have their scales in one chunk, which TMA moves as a whole"
        n = problem.n.name
        yield doc.diagnostic(
            SM100_SPEC.id, ("epilogue",), said, f"slice halves: acc[:, :{n}/2], acc[:, {n}/2:]", key=True
        )


def _unsupported(spec: GemmSpec, problem: GemmProblem) -> Iterator[tuple[KeyPath, str]]:
    program, outer = problem.kernel_epilogue, problem.epilogue
    if "warpgroups" in spec.model_fields_set:
        yield ("warpgroups",), "a choice of warpgroups"
    if problem.groups and problem.groups.form == "offsets" and (problem.packed_scales or outer.chunks):
        yield ("groups",), "a product of groups that begin anywhere, with scales in chunks of 128 rows,"
    if problem.gather and problem.packed_scales:
        yield ("mainloop",), "a product of gathered rows with scales in chunks of 128 rows"
    if problem.scaled_k:
        yield ("mainloop",), "a product with f32 scales that vary along k"
    if outer.block and not in_subtile(problem) and block_passes(problem).tiles_before:
        yield ("epilogue",), "a value of blocks that is made of a tile"
    elif outer.block and problem.mma.accumulator is not DTYPES["f32"]:
        yield ("epilogue",), f"a value of blocks of {problem.mma.accumulator} sums"
    for o in outer.operands:
        name = o.updates or o.name
        if o.kind == "block_input":
            yield ("tensors", name), f"the epilogue operand `{name}`, with a value for each block,"
    for d in program.outputs:
        if d.direct or d.adds:
            yield ("tensors", d.name), f"the output `{d.name}`, which TMA does not store,"
