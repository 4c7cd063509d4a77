"""From a problem, a spec's knobs and locked decisions to a ResolvedMla with every number and its origin."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Literal, cast

from cutegen.families.decide import Choice, Choose, Decided, Locked, decide, kernel_digest
from cutegen.families.mla_decode.auto import choose
from cutegen.families.mla_decode.candidate import BOTH, KNOBS, Candidate
from cutegen.families.mla_decode.problem import MlaProblem
from cutegen.families.mla_decode.resolved import ResolvedMla
from cutegen.families.mla_decode.tiling import describe_tiling
from cutegen.families.refusal import Refusal
from cutegen.families.resolved import DispatchRow, Outcome
from cutegen.families.tuned import TunedRow
from cutegen.hardware import ARCHS, Device

if TYPE_CHECKING:
    from cutegen.families.mla_decode.spec import MlaSpec
    from cutegen.spec import SpecDocument

# Sharing loads pays from a batch on that fills the GPU, and with row blocks that pair up. Measured on an H200: 2 to 7%
# faster at batch 32 and 128 with 128 heads, 4% slower at batch 1.
_FULL = ("batch", ">=", 16)
DISPATCH = (
    DispatchRow((("rows", ">", 64), ("rows", "<=", 128), _FULL), "seesaw_2cta"),
    DispatchRow((("rows", ">", 192), _FULL), "seesaw_2cta"),
    DispatchRow((), "seesaw"),
)


def resolve(
    spec: MlaSpec, doc: SpecDocument, problem: MlaProblem, locked: Locked, tuned: Sequence[TunedRow]
) -> Outcome:
    """Decide every knob. Written knobs are constraints, locked ones too until a rule refuses them.

    SpecError with every finding when no candidate with the written knobs is legal.
    """
    decided = decide(spec, doc, KNOBS, locked, chooser(spec, problem), (), "kernel")
    refused = ("winners: dropped: `mla_decode` dispatches among its variants",) if tuned else ()
    return Outcome(_assemble(spec, doc, problem, decided), decided.notes + refused, tuple(range(len(tuned))))


def chooser(spec: MlaSpec, problem: MlaProblem) -> Choose:
    """`choose` for this problem."""
    arch = ARCHS[spec.arch]

    def run(fixed: Mapping[str, Any], device: Device) -> Choice | tuple[Refusal, ...]:
        return choose(problem, fixed, arch)

    return run


def _assemble(spec: MlaSpec, doc: SpecDocument, problem: MlaProblem, decided: Decided) -> ResolvedMla:
    c: Candidate = decided.candidate
    tilings = tuple(describe_tiling(problem, instance) for instance in c.instances())
    return ResolvedMla(
        name=doc.name,
        arch=spec.arch,
        device=decided.device.name,
        problem=problem,
        variant=cast(Literal["seesaw", "seesaw_2cta", "both"], c.variant),
        tilings=tilings,
        dispatch=DISPATCH if c.variant == BOTH else (DispatchRow((), c.variant),),
        decisions=decided.decisions,
        digest=kernel_digest(spec, doc.name, asdict(problem), decided.decisions, *(t.numbers for t in tilings)),
    )
