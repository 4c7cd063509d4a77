"""How outputs are stored: by TMA or by threads, and which TMA adds to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from cutegen.epilogue import EpilogueProgram, Output, Report, find_added
from cutegen.epilogue.rules import REDUCE_ADD
from cutegen.epilogue.tree import Pairing
from cutegen.families.gemm.placement import unaligned_extent
from cutegen.families.gemm.problem import ProblemDim

if TYPE_CHECKING:
    from cutegen.families.gemm.spec import GemmSpec


def stores_directly(spec: GemmSpec, output: Output, pairing: Pairing | None, extents: Mapping[str, ProblemDim]) -> bool:
    """Whether threads store the output: as the spec says, else where TMA cannot: a constant extent, or every second
    column of rows."""
    knobs = spec.tma.get(output.name)
    if knobs is None or knobs.store == "auto":
        scattered = pairing == "interleaved" and output.major == "n" and not output.half
        return scattered or unaligned_extent(output, pairing, extents) is not None
    return knobs.store == "direct"


def let_tma_add(spec: GemmSpec, program: EpilogueProgram, report: Report) -> EpilogueProgram:
    """The program with outputs that TMA adds to, as the spec says: their statements are what it adds."""
    for output in program.outputs:
        knobs = spec.tma.get(output.name)
        if knobs is None or knobs.store != "reduce_add" or not program.statements:
            continue
        added = find_added(program.statements, output.name)
        if isinstance(added, tuple):
            report(REDUCE_ADD, ("tma", output.name, "store"), *added)
            continue
        program = replace(
            program,
            statements=tuple(replace(s, expr=added) if s.name == output.name else s for s in program.statements),
            outputs=tuple(replace(o, adds=True) if o is output else o for o in program.outputs),
        )
    return program
