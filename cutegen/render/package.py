"""A rendered package: file names, texts, and a header that ties each file to its spec and to its own body."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from itertools import chain
from typing import Protocol

from cutegen.families.registry import load_family
from cutegen.render.layout import lay_out
from cutegen.render.name_check import check_modules
from cutegen.runtime.header import header


class Resolved(Protocol):
    """What every family's resolved kernel has. digest: hash of the meaning of spec and decisions. names: those of the
    spec that stand in generated source."""

    @property
    def family(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def arch(self) -> str: ...
    @property
    def digest(self) -> str: ...
    @property
    def names(self) -> tuple[str, ...]: ...


@dataclass(frozen=True, slots=True)
class RenderedPackage:
    """digest: of the kernel's meaning and of all texts. files: text by path below the package's folder, headers
    included."""

    name: str
    digest: str
    files: dict[str, str]


def render_package(resolved: Resolved, *others: Resolved) -> RenderedPackage:
    """The package of one resolved kernel; equal bytes for equal input on any machine. others: the same for the other
    architectures of its spec. CutegenError: names of the spec clash in it."""
    bodies = load_family(resolved.family).render(resolved, *others)
    bodies = {name: lay_out(body) for name, body in sorted(bodies.items())}
    digests = (kernel.digest for kernel in (resolved, *others))
    digest = hashlib.sha256("\0".join((*digests, *chain(*bodies.items()))).encode()).hexdigest()
    files = {name: with_header(resolved.name, digest, body) for name, body in bodies.items()}
    check_modules(resolved.name, files, resolved.names)
    return RenderedPackage(resolved.name, digest, files)


def with_header(name: str, package: str, body: str) -> str:
    """`body` below the mark, the spec's name and the digests of the package and of the body."""
    return lay_out(header(name, package, hashlib.sha256(body.encode()).hexdigest())) + body
