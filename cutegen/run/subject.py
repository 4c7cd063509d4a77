"""What is checked and measured: a generated package, or any Python file with kernel_fn, reference_fn and get_inputs."""

from __future__ import annotations

import hashlib
import importlib.util
import inspect
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from cutegen.diagnostics import CutegenError
from cutegen.families.proving import Proving, Roles
from cutegen.families.registry import load_proving
from cutegen.runtime.accuracy import Tolerance
from cutegen.runtime.arguments import Extent, step_of
from cutegen.runtime.base import BasePlan
from cutegen.runtime.by_arch import PlanByArch, name_for_arch, plan_module
from cutegen.runtime.header import read_digest

# What a plain file is taken for when it does not say: 16-bit operands with rows that TMA can read, this CTA tile.
FILE_STEP, FILE_TILE = 8, (128, 128, 64)
PLAN_OF_ARCH = plan_module("sm_")  # what the file of a package's plan for one of several architectures begins with


@dataclass(frozen=True)
class Subject:
    """Functions to run and what is known about their problem.

    dims: every dim that get_inputs takes: a constant, an inclusive range, or (for a file) its default as the lower
    bound is unknown: (1, None). defaults: a file's default extents. steps: what each dim is varied in. kernel_fn
    allocates its outputs; launch_fn, where there is one, writes into given ones. tilings: CTA tile and more, by key;
    None stands for the subject's own choice. deterministic: bitwise repeatable, so it promises. proving: of the plan's
    family (families/proving.py); None: of a file, which is taken for a product where its `roles` are known. allowed:
    the tolerance of every output, where somebody gave one; else it follows from dtypes and the problem.
    """

    name: str
    path: Path
    kernel_fn: Callable[..., Any]
    reference_fn: Callable[..., Any]
    get_inputs: Callable[..., Any]
    launch_fn: Callable[..., None] | None
    plan: BasePlan | None
    dims: Mapping[str, Extent]
    defaults: Mapping[str, int]
    steps: Mapping[str, int]
    roles: Roles
    tilings: Mapping[Any, Any]
    deterministic: bool
    shapes: tuple[Mapping[str, int], ...] = ()
    digest: str = ""
    proving: Proving | None = None
    allowed: Tolerance | None = None

    def launcher(self, tiling: str | None) -> Callable[..., None] | None:
        return self.plan.make_launch(tiling) if self.plan and tiling else self.launch_fn

    def inputs(self, dims: Mapping[str, int], draw: Any = None) -> tuple[Any, ...]:
        if self.plan and draw is not None:
            return self.plan.draw_inputs(draw, **dims)
        return as_tuple(self.get_inputs(**{d: n for d, n in dims.items() if d in self.dims}))

    def reduction(self, dims: Mapping[str, int], inputs: tuple[Any, ...]) -> int:
        """Products per output element; where unknown, the largest extent of any input, an upper bound for a product."""
        if self.roles.k in dims:
            return dims[self.roles.k]
        return max((n for v in inputs if hasattr(v, "shape") for n in v.shape), default=1)


def as_tuple(value: Any) -> tuple[Any, ...]:
    """What a function of a file returns: several values, or one alone."""
    return tuple(value) if isinstance(value, (tuple, list)) else (value,)


def list_plans(folder: Path) -> list[Path]:
    """What to load of a generated package: itself, or its plan for each of several architectures."""
    return sorted(file for file in folder.glob(f"{PLAN_OF_ARCH}*.py") if read_digest(file)) or [folder]


def is_plan(path: Path) -> bool:
    """Whether a file is the plan of a generated package for one of its architectures."""
    return path.name.startswith(PLAN_OF_ARCH) and path.is_file() and path in list_plans(path.parent)


def load_subject(path: Path) -> Subject:
    """The subject in a package directory (its plan.py has PLAN), in one of a package's plans by architecture, or in a
    .py file. CutegenError: it cannot be loaded."""
    name = path.stem if path.is_file() else path.name
    try:
        module = _load(path, name)
    except Exception as error:
        raise CutegenError(f"{path}: cannot be imported: {type(error).__name__}: {error}", exit_code=2) from error
    plan = getattr(module, "PLAN", None)
    if isinstance(plan, PlanByArch):
        named = " or ".join(file.name for file in list_plans(path))
        raise CutegenError(f"{path} has kernels for several architectures", f"name {named} in it", exit_code=2)
    return plan_subject(plan, path) if isinstance(plan, BasePlan) else _from_file(module, name, path)


def _load(path: Path, name: str) -> ModuleType:
    if path.is_dir() or is_plan(path):
        folder, plan = (path, "plan") if path.is_dir() else (path.parent, path.stem)
        package = f"checked_{folder.name}_{hashlib.sha256(str(folder.resolve()).encode()).hexdigest()[:8]}"
        _execute(package, folder / "__init__.py", [str(folder)])
        return importlib.import_module(f"{package}.{plan}")
    return _execute(f"checked_{name}", path, None)


def _execute(name: str, file: Path, search: list[str] | None) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, file, submodule_search_locations=search)
    if spec is None or spec.loader is None:
        raise ImportError("not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def name_plan(package: str, arch: str, path: Path) -> str:
    """What results call a plan. path: of its package, or of a plan of that for one of its architectures."""
    return name_for_arch(package, arch if path.suffix == ".py" else "")


def plan_subject(plan: BasePlan, path: Path) -> Subject:
    proving: Proving | None = load_proving(plan.family, plan.proving)
    return Subject(
        name=name_plan(plan.name, plan.arch, path),
        path=path,
        kernel_fn=plan.kernel_fn,
        reference_fn=lambda *inputs: plan.reference_fn(*inputs, precision="float64"),
        get_inputs=plan.prepare_inputs,
        launch_fn=plan.launch_fn,
        plan=plan,
        dims=plan.dims,
        defaults={},
        steps={d: step_of(d, (*plan.inputs, *plan.outputs)) for d in plan.dims},
        roles=proving.name_roles(plan) if proving else Roles(),
        tilings=plan.tilings,
        deterministic=True,
        digest=_digest(path),
        proving=proving,
    )


def _from_file(module: ModuleType, name: str, path: Path) -> Subject:
    """Optional names in the file: launch_fn(*inputs, *outputs); TILE = (m, n, k); STEP, what n and k are multiples of;
    CHECK_SHAPES = [{dim: extent}]; DETERMINISTIC = False."""
    if missing := [f for f in ("kernel_fn", "reference_fn", "get_inputs") if not callable(getattr(module, f, None))]:
        raise CutegenError(
            f"{path}: has no {', '.join(missing)}",
            "define kernel_fn(*inputs) -> outputs, reference_fn(*inputs) -> outputs and get_inputs(**dims) -> inputs",
            exit_code=2,
        )
    parameters = {p: q for p, q in inspect.signature(module.get_inputs).parameters.items() if _is_dim(q)}
    defaults = {p: q.default for p, q in parameters.items() if q.default is not q.empty}
    dims: dict[str, Extent] = dict.fromkeys(parameters, (1, None))
    step = getattr(module, "STEP", FILE_STEP)
    known = {role: role for role in ("m", "n", "k", "batch") if role in dims}
    return Subject(
        name=name,
        path=path,
        kernel_fn=module.kernel_fn,
        reference_fn=module.reference_fn,
        get_inputs=module.get_inputs,
        launch_fn=getattr(module, "launch_fn", None),
        plan=None,
        dims=dims,
        defaults=defaults,
        steps={d: step if d in ("n", "k") else 1 for d in dims},
        roles=Roles(**known),
        tilings={None: FileTiling(getattr(module, "TILE", FILE_TILE))},
        deterministic=getattr(module, "DETERMINISTIC", True),
        shapes=tuple(getattr(module, "CHECK_SHAPES", ())),
        digest=_digest(path),
    )


def _is_dim(parameter: inspect.Parameter) -> bool:
    """Whether it takes an extent by name; one with another default, `device="cuda"` or `causal=True`, keeps that."""
    named = parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY)
    return named and (parameter.default is parameter.empty or type(parameter.default) is int)


@dataclass(frozen=True, slots=True)
class FileTiling:
    tile: tuple[int, int, int]


def _digest(path: Path) -> str:
    """Hash of the source that runs."""
    folder = path.parent if is_plan(path) else path
    files = [path] if folder.is_file() else sorted(folder.glob("*.py"))
    return hashlib.sha256(b"".join(f.read_bytes() for f in files)).hexdigest()[:16]
