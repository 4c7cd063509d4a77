"""From a resolved GEMM to what plan.py.jinja reads: arguments, tilings, dispatch, reference and algorithmic work."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from cutegen.arch import ARCHS
from cutegen.epilogue import EpilogueProgram, Reduction, cost, torch_imports
from cutegen.families.argument_text import arguments_text, dims_text
from cutegen.families.gemm.arguments import TensorShape, formula, tensor_shapes
from cutegen.families.gemm.candidate import COPIED
from cutegen.families.gemm.derived import promoted_k
from cutegen.families.gemm.resolved import ResolvedGemm
from cutegen.families.gemm.text.algorithmic import AlgorithmicText, algorithmic_text
from cutegen.families.gemm.text.gather import gathered_text
from cutegen.families.gemm.text.groups import row_group_names, row_groups_text
from cutegen.families.gemm.text.portfolio import PortfolioText, portfolio_text
from cutegen.families.gemm.text.reference import ReferenceText, reference_text
from cutegen.families.plan_text import (
    DeviceText,
    TilingText,
    device_texts,
    tiling_texts,
)
from cutegen.render.layout import bracketed
from cutegen.runtime.arguments import Argument, ScalarArg


@dataclass(frozen=True, slots=True)
class WinnersText:
    """What the template reads as p.winners. point_names: the dims of a call but `along`. otherwise: what "" means."""

    devices: tuple[DeviceText, ...]
    point_names: str
    along: str
    otherwise: str


@dataclass(frozen=True, slots=True)
class PlanText:
    """What plan.py.jinja, init.py.jinja and main.py.jinja read."""

    name: str
    arch: str
    formula: str
    argument_classes: tuple[str, ...]
    dims: str
    reduced: str
    batch_invariant: bool
    promoted_k: int
    scales: str
    approximation: str
    reductions: str
    block_values: str
    functions: tuple[str, ...]
    epilogue: tuple[str, ...]
    inputs: str
    outputs: str
    in_place: str
    aliases: str
    scaled_tiles: str
    tilings: tuple[TilingText, ...]
    modules: tuple[tuple[str, str], ...]
    module: str
    portfolio: PortfolioText | None
    winners: WinnersText | None
    spread: bool
    gathered: str
    copied_tilings: str
    row_groups: str
    row_group_names: tuple[str, ...]
    reference: ReferenceText
    work: AlgorithmicText


def plan_text(resolved: ResolvedGemm) -> PlanText:
    problem = resolved.problem
    shapes = tensor_shapes(problem)
    several = len(resolved.kernels) > 1
    return PlanText(
        name=resolved.name,
        arch=resolved.arch,
        formula=formula(problem),
        argument_classes=("ScalarArg", "TensorArg") if any(x not in shapes for x in problem.inputs) else ("TensorArg",),
        dims=dims_text(resolved.dims),
        reduced=problem.k.name,
        batch_invariant=problem.batch_invariant,
        promoted_k=promoted_k(problem, resolved.default.candidate, ARCHS[resolved.arch]),
        scales=_names(problem.scales),
        approximation=_approximation(cost(problem.epilogue).errors),
        reductions=_reductions(problem.epilogue.reductions),
        block_values=_names(tuple(o.name for o in problem.epilogue.block_outputs)),
        functions=torch_imports(problem.epilogue),
        epilogue=tuple(f'"{s.name}": {json.dumps(s.text)}' for s in problem.epilogue.statements),
        inputs=arguments_text("inputs = ", _arguments(problem.inputs, shapes, problem.optional)),
        outputs=arguments_text("outputs = ", _arguments(problem.outputs, shapes)),
        aliases=", ".join(f'"{output}": "{name}"' for output, name in problem.aliases),
        scaled_tiles=_scaled_tiles(problem.epilogue),
        in_place=_names(problem.epilogue.updated),
        tilings=tiling_texts(resolved.instances),
        modules=tuple((t.name, t.module) for t in resolved.instances) if several else (),
        module='f"{__package__}.{MODULES[key]}"' if several else f'f"{{__package__}}.{resolved.kernels[0].module}"',
        portfolio=portfolio_text(resolved),
        winners=_winners(resolved, [d.name for d in problem.dispatch_dims if d is not problem.m]),
        spread=bool(problem.scaled_k),
        gathered=gathered_text(problem),
        copied_tilings=_names(tuple(t.name for t in resolved.instances if t.candidate.gather == COPIED)),
        row_groups=row_groups_text(problem),
        row_group_names=row_group_names(problem),
        reference=reference_text(problem),
        work=algorithmic_text(problem),
    )


def _winners(resolved: ResolvedGemm, others: list[str]) -> WinnersText | None:
    """others: names of the dims that decide, but m."""
    along = resolved.problem.m.name
    devices = device_texts(resolved.dispatch, others, along)
    if not devices:
        return None
    otherwise = "what the portfolio picks" if len(resolved.picks) > 1 else "the default"
    return WinnersText(devices, ", ".join(others), along, otherwise)


def _approximation(errors: Mapping[str, float]) -> str:
    """One number where it is that of all outputs."""
    if len(set(errors.values())) == 1:
        return repr(next(iter(errors.values())))
    parts = [f'"{name}": {error!r}' for name, error in errors.items()]
    return bracketed("{", parts, "}", indent=4, used=len("approximation = "), literal=True)


def _reductions(reductions: tuple[Reduction, ...]) -> str:
    return "{" + ", ".join(f'"{r.name}": "{r.op}"' for r in reductions) + "}" if reductions else ""


def _scaled_tiles(program: EpilogueProgram) -> str:
    """Items of a dict: tensor to scalar. Of a tensor in parts each part is a tile."""
    tensors = {o.name: o.updates or (o.part_of or o).name for o in program.operands}
    return ", ".join(f'"{tensor}": "{scalar}"' for tensor, scalar in {tensors[t]: s for t, s in program.scaled}.items())


def _names(names: tuple[str, ...]) -> str:
    """A tuple of strings; "" where it is empty."""
    texts = [f'"{name}"' for name in names]
    return f"({', '.join(texts)}{',' * (len(texts) == 1)})" if texts else ""


def _arguments(names: Iterable[str], shapes: dict[str, TensorShape], optional: Collection[str] = ()) -> list[Argument]:
    return [shapes[n].argument(n in optional) if n in shapes else ScalarArg(n, n in optional) for n in names]
