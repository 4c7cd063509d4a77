"""Kernels from Python: a spec is validated, resolved with its lock, rendered into the cache, and imported."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from cutegen.diagnostics import Diagnostic, SpecError
from cutegen.loaded import import_package
from cutegen.render import render_package
from cutegen.resolve import Resolution, resolve_archs, resolve_document, resolve_parts, split_document
from cutegen.spec import load_text
from cutegen.spec.names import name_problem
from cutegen.spec.text_rules import SPEC_NAME
from cutegen.spec.yaml_text import write_yaml

if TYPE_CHECKING:
    from cutegen.runtime.base import BasePlan


class Spec:
    """A spec without findings, with every decision made.

    name: of the kernel. notes: what was decided again because the lock no longer holds; () without a lock.
    """

    def __init__(self, *resolutions: Resolution) -> None:
        self._resolutions = resolutions  # one for each architecture
        self.name: str = resolutions[0].document.name
        self.notes: tuple[str, ...] = tuple(note for resolution in resolutions for note in resolution.notes)

    @classmethod
    def from_file(cls, path: str | os.PathLike[str], *, locked: bool = False) -> Spec:
        """A spec file with the lock next to it, of which nothing is written. locked: a lock that is missing, stale or
        illegal is an error. SpecError: every finding, with its place; CutegenError: the file, or its lock."""
        return cls(*resolve_archs(Path(path), locked=locked))

    @classmethod
    def from_text(cls, text: str, name: str) -> Spec:
        """The text of a spec file NAME.yaml, without a lock. Findings are located in `<NAME>`. TypeError: an argument
        is not a str."""
        for argument, value in (("text", text), ("name", name)):
            if not isinstance(value, str):
                raise TypeError(f"{argument} is of type {type(value).__name__}: pass a str")
        if problem := name_problem(name):
            said = f"`{name}`, the kernel's name, {problem}"
            raise SpecError([Diagnostic(SPEC_NAME.id, said, None, "choose a name such as gemm_bf16")])
        parts = split_document(load_text(text, name, f"<{name}>"))
        return cls(*resolve_parts(parts, lambda part: resolve_document(part, None)))

    @classmethod
    def from_dict(cls, data: Mapping[str, object], name: str) -> Spec:
        """The content of a spec file as plain data. Findings are located in its YAML, which `text` has, and which
        Diagnostic.source_line quotes."""
        return cls.from_text(write_yaml(data), name)

    @property
    def text(self) -> str:
        return self._resolutions[0].document.text

    def load(self) -> BasePlan:
        """The plan of the rendered package: one and the same in a process, for one and the same content. Of a spec for
        several architectures it is a PlanByArch, which is called as the plan for one is."""
        package = import_package(render_package(*(resolution.resolved for resolution in self._resolutions)))
        plan: BasePlan = package.PLAN
        return plan

    def __repr__(self) -> str:
        return f"<cutegen.Spec {self.name}>"


def load(path: str | os.PathLike[str], *, locked: bool = False) -> BasePlan:
    """The plan of a spec file: `Spec.from_file(path, locked=locked).load()`, and a RuntimeWarning for what the lock
    next to it says and no longer holds.

    A file that has changed since it was loaded gives another plan; the one from before stays what it was.
    """
    spec = Spec.from_file(path, locked=locked)
    for note in spec.notes:
        warnings.warn(f"{os.fspath(path)}: {note}; `cutegen lock` writes it down", RuntimeWarning, stacklevel=2)
    return spec.load()
