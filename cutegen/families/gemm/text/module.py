"""What a kernel module says of itself, and what it imports."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from cutegen.epilogue import device_imports
from cutegen.epilogue.ops import BUILT_IN_MODULE
from cutegen.families.gemm.arguments import formula
from cutegen.families.gemm.features.feature_list import FEATURES
from cutegen.families.gemm.lowering import lowering_of
from cutegen.families.gemm.orientation import spec_frame
from cutegen.families.gemm.problem import GemmProblem
from cutegen.families.gemm.resolved import GemmKernel, ResolvedGemm
from cutegen.model.header import list_roles
from cutegen.model.timeline import draw_timeline
from cutegen.render.environment import PACKAGE
from cutegen.render.layout import import_order

WIDTH = 112  # characters of a line of running text
# Of cutegen.device, next to the folders of families.
SHARED_MODULES = frozenset(path.stem for path in PACKAGE.joinpath("device").glob("*.py"))


@dataclass(frozen=True, slots=True)
class ModuleText:
    """What the templates read as k.module. symbol: the kernel's, without its tiling. title: of the docstring; omitted:
    operands that calls do not have; names, features, roles, timeline: lines of it. foreign_imports: whole statements;
    device_modules, own_modules, activations, smem_functions: names out of cutegen.device, its gemm, its activation and
    its smem."""

    symbol: str
    title: str
    omitted: tuple[str, ...]
    names: tuple[str, ...]
    features: tuple[str, ...]
    roles: tuple[str, ...]
    timeline: tuple[str, ...]
    foreign_imports: tuple[str, ...]
    device_modules: tuple[str, ...]
    own_modules: tuple[str, ...]
    activations: tuple[str, ...]
    smem_functions: tuple[str, ...]


def module_text(
    resolved: ResolvedGemm,
    kernel: GemmKernel,
    problem: GemmProblem,
    cutlass_names: Iterable[str],
    device_modules: Iterable[str],
) -> ModuleText:
    """problem: in the kernel's frame. cutlass_names, device_modules:
    what the body of the module needs."""
    first = kernel.tilings[0]
    functions = device_imports(spec_frame(problem).kernel_epilogue)  # passes over blocks are of the spec's frame
    nvgpu = lowering_of(problem).import_mma(problem)
    scaled_columns = problem.row_scale is not None and problem.row_scale[1] == "n"
    return ModuleText(
        symbol=resolved.name + kernel.module.removeprefix("kernel"),
        title=f"Persistent warp-specialised GEMM for {resolved.arch}: {formula(problem)}.",
        omitted=kernel.omitted,
        names=tuple(_name_lines(problem)),
        features=tuple(line for feature in FEATURES for line in feature.overview(problem)),
        roles=tuple(list_roles(first.model.roles, first.name if len(kernel.tilings) > 1 else "")),
        timeline=tuple(draw_timeline(first.model)),
        foreign_imports=tuple(_foreign_imports(sorted(cutlass_names, key=import_order), functions, nvgpu)),
        device_modules=tuple(sorted(SHARED_MODULES.intersection(device_modules))),
        own_modules=tuple(sorted({*device_modules} - SHARED_MODULES)),
        activations=functions.get(BUILT_IN_MODULE, ()),
        smem_functions=(
            "epilogue_layout",
            *(["scale_layout"] if scaled_columns else []),
            "smem_tensor",
            "staged_layout",
        ),
    )


def _name_lines(problem: GemmProblem) -> Iterable[str]:
    """What A, B, m, n and k are in the spec, where they are called otherwise there."""
    lead = [f"Transposed (swap_ab): A of the MMA is `{problem.a.name}`, its B is `{problem.b.name}`."]
    renamed = _renamed(problem)
    sentences = [*(lead if problem.transposed else []), *([renamed] if renamed else [])]
    return textwrap.wrap(" ".join(sentences), WIDTH, break_long_words=False)


def _renamed(problem: GemmProblem) -> str:
    """What m, n and k of the module are in the spec; "" where they are called so there, too."""
    dims = (("m", problem.m.name), ("n", problem.n.name), ("k", problem.k.name))
    other = [(role, name) for role, name in dims if role != name]
    if not other:
        return ""
    first, *rest = [
        f"{role} is the spec's `{name}`" if i == 0 else f"{role} its `{name}`" for i, (role, name) in enumerate(other)
    ]
    return f"Below, {', '.join([first, *rest[:-1]])}{f' and {rest[-1]}' if rest else ''}."


def _foreign_imports(
    cutlass_names: Iterable[str], functions: Mapping[str, Iterable[str]], nvgpu: Mapping[str, Iterable[str]]
) -> Iterator[str]:
    """`from` imports that are not of cutegen: the DSL's, and those of the packages whose ops the epilogue calls.
    nvgpu: names of cute.nvgpu and of modules in it."""
    names: dict[str, Iterable[str]] = {
        "cutlass": cutlass_names,
        **nvgpu,
        "cutlass.cute.runtime": ("make_fake_stream", "make_fake_tensor"),
        **{module: found for module, found in functions.items() if module != BUILT_IN_MODULE},
    }
    for module in sorted(names, key=lambda module: (module.lower(), module)):
        yield f"from {module} import {', '.join(names[module])}"
