"""Named lists of problems to measure: specs/suites/NAME.yaml."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Literal

from pydantic import Field

from cutegen.diagnostics import CutegenError, Diagnostic, SpecError, suggest
from cutegen.run.shapes import Shape
from cutegen.runtime.arguments import Extent
from cutegen.spec import KeyPath, SpecDocument, load_document, parse_section
from cutegen.spec.base import MISSING_DIM, UNKNOWN_DIM, Positive, Section
from cutegen.spec.parse import MISSING_KEY

REMEDY = "list problems, such as shapes: [{m: 4096, n: 4096, k: 4096}]"


class SuiteFile(Section):
    """A suite as it is written."""

    cutegen: Literal[1] = Field(default=1, description="Version of the language.")
    description: str = Field(default="", description="What the problems are, and where they come from.")
    grid: dict[str, list[Positive]] = Field(
        default={}, description="Extents of each dim; every combination is a problem, the last dim varying fastest."
    )
    shapes: list[dict[str, Positive]] = Field(default=[], description="Problems, one by one.")


@dataclass(frozen=True)
class Suite:
    document: SpecDocument
    content: SuiteFile

    @property
    def name(self) -> str:
        return self.document.name

    def shapes(self) -> list[Shape]:
        """Every problem: the grid's, then those listed; each once."""
        grid = self.content.grid
        found = [dict(zip(grid, extents)) for extents in product(*grid.values())] if grid else []
        found += [s for s in self.content.shapes if s not in found]
        return found

    def check_dims(self, dims: Mapping[str, Extent], kernel: str) -> None:
        """SpecError: a problem names a dim that the kernel does not have, or gives none for one that is open."""
        findings = list(self._find_dims(("grid",), self.content.grid, dims, kernel)) if self.content.grid else []
        for i, shape in enumerate(self.content.shapes):
            findings += self._find_dims(("shapes", i), shape, dims, kernel)
        if findings:
            raise SpecError(findings)

    def _find_dims(
        self, place: KeyPath, names: Iterable[str], dims: Mapping[str, Extent], kernel: str
    ) -> Iterator[Diagnostic]:
        known = f"its dims are {', '.join(dims)}"
        for name in names:
            if name not in dims:
                message = f"`{kernel}` has no dim `{name}`"
                yield self.document.diagnostic(
                    UNKNOWN_DIM.id, (*place, name), message, suggest(name, dims) or known, key=True
                )
        if missing := [d for d, extent in dims.items() if d not in names and not isinstance(extent, int)]:
            message = f"`{missing[0]}` is missing, which `{kernel}` needs"
            yield self.document.diagnostic(MISSING_DIM.id, place, message, known)


def load_suite(name: str, folder: Path) -> Suite:
    """The suite of the file NAME.yaml in a folder. CutegenError: there is none; SpecError: it is wrong."""
    path = folder / f"{name}.yaml"
    if not path.is_file():
        there = ", ".join(sorted(p.stem for p in folder.glob("*.yaml")))
        remedy = f"suites in {folder}: {there}" if there else "a suite lies in the folder `suites` beside the specs"
        raise CutegenError(f"{path} does not exist", remedy)
    document = load_document(path)
    suite = Suite(document, parse_section(document, SuiteFile))
    if not suite.shapes():
        raise SpecError([document.diagnostic(MISSING_KEY.id, (), "the suite lists no problem", REMEDY)])
    return suite
