"""The section of `explain` that is about rounds."""

from __future__ import annotations

from cutegen.families.rowwise.problem import RowProblem, first_number
from cutegen.families.section import Section


def explain_rounds(p: RowProblem) -> Section:
    """What is computed of a row, and in which order: one exchange of all threads for each round of reductions."""
    rows = []
    for number, r in enumerate(p.cut.rounds, first_number(p.cut)):
        reduced = ", ".join(f"{x.name} ({x.op})" for x in r.reduced) or "none"
        rows.append((str(number), reduced, ", ".join(r.gives) or "none"))
    if blocks := p.cut.blocks:
        reduced = ", ".join(f"{x.name} ({x.op})" for x in blocks.reduced)
        rows.append((f"blocks of {p.program.block}", reduced, ", ".join(blocks.gives) or "none"))
    names = ", ".join(o.name for o in p.program.outputs if o.name in p.elements) or "none"
    lines = [f"then, for each element: {names}"]
    if sums := [x.name for r in p.streamed_cut.rounds for x in r.reduced if x.op == "exp_sum"]:
        lines.append(f"of rows that are streamed {', '.join(sums)} is joined in the round of its maximum")
    title = f"Rounds of a row of {p.columns}"
    return Section(title, tuple(lines), ("round", "reduced", "then computed once"), tuple(rows))
