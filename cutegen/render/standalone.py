"""Rendered packages that need no cutegen: the parts of device/ and runtime/ that they import are copied, into one
package or once for several."""

from __future__ import annotations

import ast
import hashlib
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain

from cutegen.diagnostics import CutegenError
from cutegen.render.environment import PACKAGE
from cutegen.render.package import RenderedPackage, with_header

INNER = "_cutegen"
# What a generated package imports beside cutegen and the standard library.
NEEDED = ("cuda", "cutlass", "torch")
# Rendered files are their owner's; copies of ours stay under our licence.
LICENCE = "# Part of cutegen. SPDX-License-Identifier: Apache-2.0\n\n"
_IMPORT = re.compile(r"^(\s*from )cutegen\.(?=(?:device|runtime)\b)", re.MULTILINE)


def make_standalone(package: RenderedPackage) -> RenderedPackage:
    """The package with every imported module of cutegen below NAME/_cutegen, and imports made relative. CutegenError:
    its family, or an op of its epilogue, is of another package."""
    refuse_foreign(package)
    files = {name: _relative(text, f".{INNER}.") for name, text in package.files.items()}
    for name, body in _copy_modules(package.files.values()).items():
        files[f"{INNER}/{name}"] = with_header(package.name, package.digest, body)
    return replace(package, files=dict(sorted(files.items())))


def refuse_foreign(package: RenderedPackage) -> None:
    """CutegenError: the family of a package, or an op of its epilogue, is of a distribution that is not cutegen."""
    if foreign := sorted({module for text in package.files.values() for module in _foreign(text)}):
        said = f"{package.name} imports {', '.join(foreign)}, of another package that its family or an op comes from"
        remedy = "render it without --standalone, and install that package where the kernel is used"
        raise CutegenError(f"{said}; a standalone package has only what is part of cutegen", remedy)


def share_parts(packages: Sequence[RenderedPackage]) -> tuple[RenderedPackage, ...]:
    """Packages that lie side by side, with relative imports, and behind them the one that they share: `_cutegen`, every
    module of cutegen that one of them imports. CutegenError: as of make_standalone."""
    for package in packages:
        refuse_foreign(package)
    sharing = [
        replace(package, files={name: _relative(text, f"..{INNER}.") for name, text in package.files.items()})
        for package in packages
    ]
    copies = _copy_modules(text for package in packages for text in package.files.values())
    digest = hashlib.sha256("\0".join(chain(*sorted(copies.items()))).encode()).hexdigest()
    shared = {name: with_header(INNER, digest, body) for name, body in sorted(copies.items())}
    return (*sharing, RenderedPackage(INNER, digest, shared))


def shares_parts(text: str) -> bool:
    """Whether a module is of a package that share_parts made."""
    return f"from ..{INNER}." in text


def _copy_modules(texts: Iterable[str]) -> dict[str, str]:
    """The modules of cutegen that sources import, directly or not, by path below _cutegen, with imports made relative
    and no header."""
    copies: dict[str, str] = {}
    pending = [name for text in texts for name in _imports(text)]
    while pending:
        module = pending.pop()
        if module == PACKAGE.name:  # what that offers is not part of a generated package
            continue
        path = PACKAGE.joinpath(*module.split(".")[1:])
        file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
        name = file.relative_to(PACKAGE).as_posix()
        if name not in copies and file.is_file():
            copies[name] = text = file.read_text(encoding="utf-8")
            pending += _imports(text)
            pending.append(module.rpartition(".")[0])
    copies.setdefault("__init__.py", '"""The parts of cutegen that this package uses."""\n')
    return {name: LICENCE + _relative(text, "." * (name.count("/") + 1)) for name, text in copies.items()}


def _imports(text: str) -> list[str]:
    """Modules of cutegen that a source imports; a name imported from a package may be a module."""
    found = []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("cutegen."):
            found += [str(node.module), *(f"{node.module}.{alias.name}" for alias in node.names)]
    return found


def _foreign(text: str) -> Iterator[str]:
    """Modules outside of the package that are neither cutegen's nor among what every package needs."""
    for node in ast.walk(ast.parse(text)):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom) and not node.level:
            names = [str(node.module)]
        for name in names:
            top = name.partition(".")[0]
            if top not in (PACKAGE.name, *NEEDED) and top not in sys.stdlib_module_names:
                yield name


def _relative(text: str, prefix: str) -> str:
    return _IMPORT.sub(lambda match: match[1] + prefix, text)
