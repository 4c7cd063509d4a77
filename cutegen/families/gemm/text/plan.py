"""From a resolved GEMM to what plan.py.jinja reads: arguments, tilings, dispatch, reference and algorithmic work."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from cutegen.arch import ARCHS
from cutegen.epilogue import EpilogueProgram, cost, torch_imports
from cutegen.families.gemm.arguments import TensorShape, formula, tensor_shapes
from cutegen.families.gemm.candidate import STRUCTURAL
from cutegen.families.gemm.derived import promoted_k
from cutegen.families.gemm.resolved import ResolvedGemm, ResolvedGemmTiling
from cutegen.families.gemm.text.algorithmic import AlgorithmicText, algorithmic_text
from cutegen.families.gemm.text.portfolio import PortfolioText, portfolio_text
from cutegen.families.gemm.text.reference import ReferenceText, reference_text
from cutegen.families.plan_text import TilingsText, Winners, list_winners, tilings_text
from cutegen.runtime.arguments import Argument, ScalarArg


@dataclass(frozen=True, slots=True)
class PlanText:
    """What plan.py.jinja, init.py.jinja and main.py.jinja read. approximation: one number where it is that of all
    outputs. functions: of the epilogue's torch text. scaled_tiles: tensor to scalar. point_dims: see `list_winners`,
    which counts along m. copied_tilings: those that multiply a copy of gathered rows."""

    name: str
    arch: str
    formula: str
    resolved: ResolvedGemm
    inputs: tuple[Argument, ...]
    outputs: tuple[Argument, ...]
    promoted_k: int
    approximation: float | Mapping[str, float]
    functions: tuple[str, ...]
    scaled_tiles: Mapping[str, str]
    tilings: TilingsText
    portfolio: PortfolioText | None
    winners: Winners
    point_dims: tuple[str, ...]
    copied_tilings: tuple[str, ...]
    reference: ReferenceText
    work: AlgorithmicText


def plan_text(resolved: ResolvedGemm) -> PlanText:
    problem, shapes = resolved.problem, tensor_shapes(resolved.problem)
    errors = cost(problem.epilogue).errors
    point_dims = tuple(d.name for d in problem.dispatch_dims if d is not problem.m)
    return PlanText(
        name=resolved.name,
        arch=resolved.arch,
        formula=formula(problem),
        resolved=resolved,
        inputs=_arguments(problem.inputs, shapes, problem.optional),
        outputs=_arguments(problem.outputs, shapes),
        promoted_k=promoted_k(problem, resolved.default.candidate, ARCHS[resolved.arch]),
        approximation=errors if len(set(errors.values())) > 1 else next(iter(errors.values())),
        functions=torch_imports(problem.epilogue),
        scaled_tiles=_scaled_tiles(problem.epilogue),
        tilings=tilings_text(resolved.instances, _describe),
        portfolio=portfolio_text(resolved),
        winners=list_winners(resolved.dispatch, point_dims, problem.m.name),
        point_dims=point_dims,
        copied_tilings=tuple(t.name for t in resolved.instances if t.candidate.copies_rows),
        reference=reference_text(problem),
        work=algorithmic_text(problem),
    )


def _describe(t: ResolvedGemmTiling) -> tuple[str, ...]:
    """What may decide where a number of a tiling comes from."""
    knobs = [(name, getattr(t.candidate, name)) for name in STRUCTURAL]
    words = [f"with{'out' * (not x)} {name}" if isinstance(x, bool) else f"{name} {x}" for name, x in knobs]
    return (*words, f"without {' and '.join(t.omitted)}" if t.omitted else "with all operands")


def _scaled_tiles(program: EpilogueProgram) -> dict[str, str]:
    """Of a tensor in parts each part is a tile."""
    tensors = {o.name: o.updates or (o.part_of or o).name for o in program.operands}
    return {tensors[tile]: scalar for tile, scalar in program.scaled}


def _arguments(
    names: Iterable[str], shapes: Mapping[str, TensorShape], optional: Collection[str] = ()
) -> tuple[Argument, ...]:
    return tuple(shapes[n].argument(n in optional) if n in shapes else ScalarArg(n, n in optional) for n in names)
