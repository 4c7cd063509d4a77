"""Everything that reaches the code of a compiled kernel, hashed to the key of its cache entry; imports no kernel."""

from __future__ import annotations

import ast
import functools
import hashlib
import importlib.util
import json
import os
import platform
import sys
from collections.abc import Mapping
from pathlib import Path

# The package this module is in: cutegen, or a generated one that has a copy of it. Its sources can reach a kernel.
PACKAGE = __name__.partition(".")[0]
ROOT = Path(__file__).parents[len(__name__.split(".")) - 2]
OWN_VARIABLE = "CUTE_DSL_LIBS"  # importing cutlass 4.6 sets it
DSL_FLOOR = (4, 6, 2)  # earlier ones refuse what generated kernels call
DSL_REQUIREMENT = "nvidia-cutlass-dsl>=4.6.2,<4.9"  # of pyproject.toml, as are the bounds here
TVM_FFI_REQUIREMENT = "apache-tvm-ffi>=0.1.6,<0.2"
TORCH_REQUIREMENT = "torch>=2.6"
DISTRIBUTIONS = ("nvidia_cutlass_dsl", "apache_tvm_ffi")
# What arguments are packed and copied with, on x86 and on Arm; there is no arithmetic that others would serve.
FEATURES = {"avx", "avx2", "avx512f", "avx512bw", "avx512dq", "avx512vl", "bmi1", "bmi2", "fma", "movbe"}
FEATURES |= {"asimd", "atomics", "sve", "sve2"}
VERSIONED = ("cutlass", "cuda")  # packages whose code the versions of distributions stand for
LINE_INFO = "CUTE_DSL_LINEINFO"  # puts file lines into the cubin
# By these a module can read its own text, docstrings or lines: then all of its text counts.
SELF_READING = ("__doc__", "getsource", "getdoc", "lineno", "currentframe", "_getframe", "__file__", "inspect")


@functools.cache
def distribution_versions() -> Mapping[str, str]:
    """Installed distributions of the DSL (its libs-cu12 or libs-cu13 tells the CUDA flavour) and of TVM FFI.

    Read from the names of the dist-info directories on sys.path: importlib.metadata would parse every package's
    metadata to list those with a prefix.
    """
    found: dict[str, str] = {}
    for folder in reversed(sys.path):
        for path in Path(folder).glob("*.dist-info") if os.path.isdir(folder) else ():
            name, _, version = path.stem.partition("-")
            name = name.lower().replace("-", "_").replace(".", "_")
            if name.startswith(DISTRIBUTIONS):
                found[name] = version
    return dict(sorted(found.items()))


def dsl_version() -> tuple[int, ...] | None:
    """(4, 8, 1), or None when nvidia-cutlass-dsl is not installed."""
    text = distribution_versions().get("nvidia_cutlass_dsl")
    return tuple(int(part) for part in text.split(".")[:3] if part.isdigit()) if text else None


@functools.cache
def host_features() -> frozenset[str]:
    """Of the CPU that this process runs on, as read_features has them."""
    return read_features(Path("/proc/cpuinfo"))


def read_features(info: Path) -> frozenset[str]:
    """Those of a CPU's instructions that the host code of an object may have and another CPU of the same kind lack:
    the DSL compiles it for the CPU at hand. None where the system does not tell."""
    try:
        with open(info, encoding="utf-8", errors="replace") as lines:
            for line in lines:  # to the first CPU's: a server has hundreds, and all take long
                name, _, flags = line.partition(":")
                if name.strip() in ("flags", "Features"):
                    return frozenset(FEATURES.intersection(flags.split()))
    except OSError:
        pass
    return frozenset()


def kernel_key(text: str, module: str, path: Path, tiling: object, arch: str, options: str) -> str:
    """Hash of a kernel instance. text: the kernel module's source; module, path: where its imports are resolved from.

    Changing anything that can change the compiled code changes the key, but for what packages of epilogue ops take from
    packages besides the DSL. Where the module lies does not change it, and neither do comments, docstrings and layout,
    unless the cubin gets line information.
    """
    read = str if os.environ.get(LINE_INFO) else code_text
    parts = {
        "sources": [read(text), *map(read, _imported(text, module, path))],
        "tiling": repr(tiling),
        "arch": arch,
        "options": options,
        "distributions": distribution_versions(),
        "python": sys.version_info[:2],
        "host": [sys.platform, platform.machine()],
        "environment": {k: v for k, v in os.environ.items() if k.startswith("CUTE_DSL_") and k != OWN_VARIABLE},
    }
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


@functools.lru_cache(maxsize=64)
def code_text(source: str) -> str:
    """What of a module's source can reach compiled code: its syntax tree without positions and docstrings. All of the
    source where the module may read that, and where it does not parse."""
    if any(word in source for word in SELF_READING):
        return source
    try:
        return ast.dump(_parse(source))
    except SyntaxError:
        return source


@functools.lru_cache(maxsize=64)
def _parse(source: str) -> ast.Module:
    """The syntax tree without docstrings."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)) and node.body:
            first = node.body[0].value if isinstance(node.body[0], ast.Expr) else None
            if isinstance(first, ast.Constant) and isinstance(first.value, str):
                del node.body[0]
    return tree


def _imported(text: str, module: str, path: Path) -> list[str]:
    """Sources of the modules that `text` imports, directly or not, in a fixed order: from this package, its own, and
    those of the epilogue ops that it calls."""
    roots = {PACKAGE: Path(__file__).parents[__name__.count(".") - 1]}
    top, *inner = module.split(".")
    if top not in roots:
        roots[top] = path.parents[len(inner) - 1] if inner else path.parent
    foreign = _foreign_roots({name.partition(".")[0] for name in _import_names(text, module, False)} - roots.keys())
    found: dict[str, tuple[Path, str]] = {}
    pending = [(module, text, False)]
    while pending:
        name, source, is_package = pending.pop()
        for imported in _import_names(source, name, is_package):
            root, *parts = imported.split(".")
            if imported in found or imported == module or root not in roots | foreign or not (parts or root in foreign):
                continue
            file = (roots | foreign)[root].joinpath(*parts)
            file, package = (file / "__init__.py", True) if file.is_dir() else (file.with_suffix(".py"), False)
            if file.is_file():
                found[imported] = (file, file.read_text(encoding="utf-8"))
                pending.append((imported, found[imported][1], package))
    return [source for _, (_, source) in sorted(found.items())]


def _foreign_roots(names: set[str]) -> dict[str, Path]:
    """Where top-level packages lie that are no part of Python and in no distribution whose version is in the key."""
    found = {}
    for name in sorted(names - sys.stdlib_module_names - set(VERSIONED)):
        spec = importlib.util.find_spec(name)
        if spec and spec.origin and spec.submodule_search_locations:
            found[name] = Path(spec.origin).parent
        elif spec and spec.origin:
            found[name] = Path(spec.origin).with_suffix("")
        elif spec and spec.submodule_search_locations:
            found[name] = Path(next(iter(spec.submodule_search_locations)))
    return found


@functools.lru_cache(maxsize=64)
def _import_names(source: str, module: str, is_package: bool) -> tuple[str, ...]:
    names: list[str] = []
    for node in ast.walk(_parse(source)):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parents = module.split(".")[: -(node.level - is_package) or None]
                base = ".".join([*parents, *filter(None, [base])])
            names += [base, *(f"{base}.{alias.name}" for alias in node.names)]
    return tuple(names)
