"""Imports go one way, and commands that need no GPU stay away from the compiler and from torch."""

from __future__ import annotations

import ast
import functools
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from gemm_specs import PLAIN
from mla_specs import MLA

from cutegen.families.registry import FAMILIES

ROOT = Path(__file__).parents[2]
# Lowest first; the longest prefix of a name gives the layer. A module imports its own layer and lower ones.
LAYERS = (
    # The registry only names families and loads them when asked.
    (
        "cutegen.config",
        "cutegen.defaults",
        "cutegen.elsewhere",
        "cutegen.dtypes",
        "cutegen.files",
        "cutegen.globs",
        "cutegen.toml_file",
        "cutegen.roots",
        "cutegen.cache_words",
        "cutegen.child",
        "cutegen.interrupts",
        "cutegen.progress",
        "cutegen.diagnostics",
        "cutegen.distributions",
        "cutegen.arch",
    ),
    ("cutegen.families.registry", "cutegen.families.generated_names"),
    ("cutegen.epilogue",),
    ("cutegen.spec",),
    # The engine that families render with; packages and files come later.
    ("cutegen.render.environment", "cutegen.render.layout", "cutegen.render.params"),
    ("cutegen.model",),
    ("cutegen.families",),
    ("cutegen.resolve",),
    ("cutegen.render",),
    ("cutegen.loaded", "cutegen.api", "cutegen.gradients"),
    ("cutegen.build",),
    ("cutegen.compat",),
    ("cutegen.run",),
    ("cutegen.machine",),
    ("cutegen.tune",),
    ("cutegen.report",),
    ("cutegen.cli", "cutegen.__main__"),
)
# What generated packages import, and of what: usable alone, and open to every layer.
STANDALONE = {"cutegen.runtime": ("cutegen.runtime",), "cutegen.device": ("cutegen.device", "cutegen.runtime")}
HEAVY = ("torch", "cutlass", "cuda", "tvm_ffi")
FEW = PLAIN + "dims: {m: [64, 128], n: 4096, k: 4096}\n"  # problems for which tilings are chosen


def modules() -> dict[str, Path]:
    found = {}
    for path in sorted((ROOT / "cutegen").rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


MODULES = modules()


def prefixed(name: str, prefix: str) -> bool:
    return name == prefix or name.startswith(prefix + ".")


def layer(name: str) -> int:
    if name in ("cutegen", "cutegen.families"):
        return 0
    fits = [(len(p), i) for i, prefixes in enumerate(LAYERS) for p in prefixes if prefixed(name, p)]
    assert fits, f"{name} has no layer"
    return max(fits)[1]


@functools.cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def imports(path: Path, top_level: bool = False) -> Iterator[str]:
    """Absolute names that a file imports; `from package import module` counts as package.module."""
    tree = parsed(path)
    for node in tree.body if top_level else ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are absolute"
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                yield full if full in MODULES else str(node.module)


def test_imports_point_down() -> None:
    faults = []
    for name, path in MODULES.items():
        ours = {i for i in imports(path) if prefixed(i, "cutegen")}
        alone = next((p for p in STANDALONE if prefixed(name, p)), None)
        if alone:
            wrong = {i for i in ours if not any(prefixed(i, p) for p in STANDALONE[alone])}
        elif name == "cutegen":
            continue  # what it offers comes when it is asked for
        else:
            below = {i for i in ours if not any(prefixed(i, p) for p in STANDALONE)}
            wrong = {i for i in below if layer(i) > layer(name)}
        faults += [f"{name} imports {i}" for i in sorted(wrong)]
    assert faults == []


def test_the_package_itself_imports_nothing() -> None:
    """Every module of it imports the package first; what it offers comes when it is asked for."""
    loaded = loaded_after("import cutegen, sys; assert not [m for m in sys.modules if m.startswith('cutegen.')]")
    assert not loaded & {"pydantic", "jinja2", "click", "ruamel", *HEAVY}
    code = "import cutegen\nassert {'load', 'Spec', 'SpecError'} <= set(dir(cutegen))\ncutegen.load"
    assert not loaded_after(code) & {*HEAVY, "click", "rich"}


def test_heavy_packages_are_imported_where_they_are_used() -> None:
    allowed = ("cutegen.runtime", "cutegen.build", "cutegen.compat", "cutegen.run", "cutegen.machine", "cutegen.tune")
    faults = []
    for name, path in MODULES.items():
        heavy = {i for i in imports(path) if any(prefixed(i, h) for h in HEAVY)}
        if prefixed(name, "cutegen.device"):
            wrong = {i for i in heavy if not (prefixed(i, "cutlass") or prefixed(i, "cuda"))}
        else:
            wrong = heavy if not any(prefixed(name, p) for p in allowed) else set()
            wrong |= {i for i in imports(path, top_level=True) if any(prefixed(i, h) for h in HEAVY)}
        faults += [f"{name} imports {i}" for i in sorted(wrong)]
    assert faults == []


def loaded_after(code: str) -> set[str]:
    """Top-level packages that a fresh interpreter holds after running the code."""
    report = "\nimport sys\nprint('LOADED', *sorted({m.partition('.')[0] for m in sys.modules}))"
    run = subprocess.run([sys.executable, "-c", code + report], capture_output=True, text=True, cwd=ROOT, check=True)
    return set(run.stdout.rpartition("LOADED")[2].split())


@pytest.mark.parametrize(
    "arguments",
    [
        ["--help"],
        ["validate", "--help"],
        ["bench", "--help"],
        ["validate", "SPEC"],
        ["resolve", "SPEC"],
        ["lock", "SPEC"],
        ["pin", "SPEC"],
        ["explain", "SPEC"],
        ["explain", "tile-m"],
        ["render", "SPEC", "-o", "OUT"],
        ["schema"],
        ["list"],
    ],
    ids=lambda arguments: "-".join(arguments[:2]).lower(),
)
def test_commands_that_load_neither_torch_nor_cutlass(arguments: list[str], tmp_path: Path) -> None:
    check_light(FEW, arguments, tmp_path)


@pytest.mark.parametrize("command", ["resolve", "lock", "explain"])
def test_every_family_is_decided_without_them(command: str, tmp_path: Path) -> None:
    check_light(MLA, [command, "SPEC"], tmp_path)


def check_light(text: str, arguments: list[str], tmp_path: Path) -> None:
    spec = tmp_path / "plain.yaml"
    spec.write_text(text)
    given = [{"SPEC": str(spec), "OUT": str(tmp_path / "out")}.get(a, a) for a in arguments]
    code = f"from cutegen.cli import main\ntry:\n    assert main({given!r}) == 0\nexcept SystemExit:\n    pass"
    assert not loaded_after(code) & {*HEAVY, "rich"}


def test_what_generated_plans_import_needs_no_generator() -> None:
    names = [name for name in MODULES if prefixed(name, "cutegen.runtime")]
    loaded = loaded_after("import " + ", ".join(names))
    assert not loaded & {"jinja2", "pydantic", "click", "ruamel", *HEAVY}


def test_what_families_share_imports_none_of_them() -> None:
    """runtime and device have a folder for each family, and what lies next to these is for all."""
    folders = {f"{package}.{family}": family for package in STANDALONE for family in FAMILIES}
    assert {folder for folder in folders if folder in MODULES} == set(folders)
    faults = []
    for name, path in MODULES.items():
        if any(prefixed(name, package) for package in STANDALONE):
            own = next((family for folder, family in folders.items() if prefixed(name, folder)), None)
            others = [folder for folder, family in folders.items() if family != own]
            faults += [f"{name} imports {i}" for i in imports(path) if any(prefixed(i, folder) for folder in others)]
    assert faults == []


def test_the_machine_names_no_family() -> None:
    faults = []
    for name, path in MODULES.items():
        if prefixed(name, "cutegen.machine"):
            faults += [f"{name} imports {i}" for i in imports(path) for f in FAMILIES if f".{f}" in f"{i}."]
            faults += [f"{name}: {family}" for family in FAMILIES if family in path.read_text(encoding="utf-8")]
    assert faults == []
