"""From the default candidate and those of dispatch rows to kernel modules, named instances and a dispatch table."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TypeAlias

from cutegen.families.gemm.candidate import FEATURE_KNOBS, KNOBS, STRUCTURAL, Candidate, structure
from cutegen.families.gemm.features.feature_list import FEATURES
from cutegen.families.gemm.problem import GemmProblem
from cutegen.families.gemm.resolved import GemmKernel
from cutegen.families.gemm.tiling import describe_tiling
from cutegen.families.gemm.without_operands import without
from cutegen.families.optional_operands import list_omissions, suffix
from cutegen.families.resolved import DeviceRow, DispatchRow, When
from cutegen.families.tuned import TunedRow

Row: TypeAlias = "tuple[When, Candidate]"
# For values that say too little alone: what stands before any of a knob, or for one.
BEFORE = {"pdl_trigger": "trigger_", "promote_every": "promote_"}
INSTEAD = {(one.knob.field, value): said for one in FEATURE_KNOBS for value, said in one.words.items()}
PDL_WORDS = {(True, "last_tile"): "pdl", (False, "none"): "no_pdl"}  # by (pdl.wait, pdl.trigger)


def assemble(
    problem: GemmProblem,
    default: Candidate,
    rows: Sequence[Row],
    tuned: Sequence[tuple[TunedRow, Candidate]] = (),
    portfolio: Sequence[Candidate] = (),
    base: str = "kernel",
) -> tuple[tuple[GemmKernel, ...], tuple[DispatchRow, ...]]:
    """The modules, that of the default first, and the dispatch table, which ends with the default.

    rows: (comparisons that must hold, candidate), most specific first; tuned: those of single devices, which come
    before. portfolio: more instances, which no row names. Equal candidates share an instance. base: what names of
    modules begin with.
    """
    instances = tuple(dict.fromkeys((default, *(c for _, c in rows), *portfolio, *(c for _, c in tuned))))
    names = dict(zip(instances, _instance_names(instances)))
    structures = dict.fromkeys(map(structure, instances))
    kernels = []
    for key in structures:
        members = [c for c in instances if structure(c) == key]
        module = "_".join((base, *_differences(members[0], default, STRUCTURAL)))
        kernels.append(GemmKernel(module, tuple(describe_tiling(problem, c, names[c], module) for c in members)))
    for omitted in list_omissions(problem.optional):
        kernels += [_omit(problem, kernel, omitted) for kernel in kernels if not kernel.omitted]
    dispatch: list[DispatchRow] = [DeviceRow(row.when, names[c], row.device) for row, c in tuned if row.device]
    dispatch += [DispatchRow(when, names[c]) for when, c in rows]
    return tuple(kernels), (*dispatch, DispatchRow((), names[default]))


def _omit(problem: GemmProblem, kernel: GemmKernel, omitted: tuple[str, ...]) -> GemmKernel:
    """The module beside another that does without optional operands, and without their ring where it is empty."""
    rest, end = without(problem, omitted), suffix(omitted)
    module = kernel.module + end
    candidates = [t.candidate for t in kernel.tilings]
    if not rest.kernel_epilogue.tiles:
        candidates = [replace(c, load_stages=0) for c in candidates]
    for feature in FEATURES:
        candidates = [*feature.without_operands(rest, candidates)]
    tilings = []
    for t, c in zip(kernel.tilings, candidates):
        tilings.append(replace(describe_tiling(rest, c, t.name + end, module), omitted=omitted))
    return GemmKernel(module, tuple(tilings))


def _instance_names(instances: Sequence[Candidate]) -> Iterable[str]:
    """The tile, the structural knobs in which an instance is not the first one, and as many others as it takes to tell
    it from those before: t128x256x64, t64x256x64_pingpong, t64x256x64_pingpong_cluster_1x2. Where those are used up,
    what it has in common with the first one and not with the one whose name it would take."""
    others = [knob.field for knob in KNOBS if knob.field not in ("tile", *STRUCTURAL)]
    taken: dict[str, Candidate] = {}
    for c in instances:
        size = "t" + "x".join(map(str, c.tile))
        words = [size, *_differences(c, instances[0], STRUCTURAL)]
        more = _differences(c, instances[0], others)
        while (name := "_".join(words)) in taken:
            words.append(next(more, None) or next(w for w in _differences(c, taken[name], others) if w not in words))
        taken[name] = c
        yield name


def _differences(c: Candidate, default: Candidate, names: Iterable[str]) -> Iterator[str]:
    """A word for each knob among `names` in which `c` is not the default; one for both of programmatic launch."""
    pdl = [(x.pdl_wait, x.pdl_trigger) for x in (c, default)]
    word = PDL_WORDS.get(pdl[0]) if set(pdl) == PDL_WORDS.keys() else None
    for name in names:
        value = getattr(c, name)
        if value == getattr(default, name) or (word and name == "pdl_trigger"):
            continue
        if word and name == "pdl_wait":
            yield word
            continue
        if isinstance(value, bool):
            yield name if value else f"no_{name}"
        elif isinstance(value, str):
            yield INSTEAD.get((name, value), BEFORE.get(name, "") + value)
        else:
            yield f"{name}_{'x'.join(map(str, value)) if isinstance(value, tuple) else value}"
