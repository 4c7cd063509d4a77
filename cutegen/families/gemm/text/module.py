"""What a kernel module says of itself, and what it imports."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from cutegen.epilogue import device_imports
from cutegen.epilogue.ops import BUILT_IN_MODULE
from cutegen.families.gemm.arguments import formula
from cutegen.families.gemm.lowering import lowering_of
from cutegen.families.gemm.orientation import spec_frame
from cutegen.families.gemm.problem import GemmProblem
from cutegen.families.gemm.resolved import GemmKernel, ResolvedGemm
from cutegen.families.gemm.text.load import RingTensor
from cutegen.families.gemm.text.overview import list_overview
from cutegen.render.environment import PACKAGE
from cutegen.render.layout import import_order

# Of cutegen.device, next to the folders of families.
SHARED_MODULES = frozenset(path.stem for path in PACKAGE.joinpath("device").glob("*.py"))


@dataclass(frozen=True, slots=True)
class ModuleText:
    """What the templates read as k.module. symbol: the kernel's, without its tiling. title, overview: the docstring.
    foreign_imports: whole statements; device_modules, own_modules, activations, smem_functions: names out of
    cutegen.device, its gemm, its activation and its smem."""

    symbol: str
    title: str
    overview: tuple[str, ...]
    foreign_imports: tuple[str, ...]
    device_modules: tuple[str, ...]
    own_modules: tuple[str, ...]
    activations: tuple[str, ...]
    smem_functions: tuple[str, ...]


def module_text(
    resolved: ResolvedGemm,
    kernel: GemmKernel,
    problem: GemmProblem,
    ahead: Iterable[RingTensor],
    cutlass_names: Iterable[str],
    device_modules: Iterable[str],
) -> ModuleText:
    """problem: in the kernel's frame. ahead: what the load warp loads before the wait. cutlass_names, device_modules:
    what the body of the module needs."""
    functions = device_imports(spec_frame(problem).kernel_epilogue)  # passes over blocks are of the spec's frame
    nvgpu = lowering_of(problem).import_mma(problem)
    scaled_columns = problem.row_scale is not None and problem.row_scale[1] == "n"
    return ModuleText(
        symbol=resolved.name + kernel.module.removeprefix("kernel"),
        title=f"Persistent warp-specialised GEMM for {resolved.arch}: {formula(problem)}.",
        overview=tuple(list_overview(problem, kernel, ahead)),
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
