"""Named lists of problems to measure: specs/suites/NAME.yaml."""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import product
from math import prod
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, WithJsonSchema

from cutegen.diagnostics import CutegenError, Rule, SpecError, cut, printable, raised_together, register, suggest
from cutegen.dtypes import DTYPES
from cutegen.epilogue import parse_expression
from cutegen.epilogue.tree import Name, Slice, Span, Stored, walk
from cutegen.render.environment import data_folder
from cutegen.run.row import Row
from cutegen.runtime.arguments import Extent
from cutegen.runtime.epilogue_form import DIMS, KINDS, form_of_statements
from cutegen.spec import KernelSpec, KeyPath, Kind, SpecDocument, load_document, parse_section, word_findings
from cutegen.spec.base import GIVEN_TWICE, MISSING_DIM, UNKNOWN_DIM, Expression, Positive, Section, Version, list_names
from cutegen.spec.finding import FieldError, Finding, Unworded
from cutegen.spec.parse import MISSING_KEY

MAX_ROWS = 10_000
MAX_GRID = 16  # dims of a grid; each problem has an extent of each of them
_OPERAND = re.compile(rf"({'|'.join(KINDS)})\d*")
REMEDY = "list problems, such as shapes: [{m: 4096, n: 4096, k: 4096}]"
UNKNOWN_SUITE = register(Rule(
    "unknown-suite", "`bench.suite` names a suite that exists",
    "A suite is the file NAME.yaml in the folder `suites` next to the spec, or one of those that cutegen ships, which "
    "`cutegen list` shows.",
    "bench: {suite: llm_gem}",
))  # fmt: skip
UNKNOWN_SOURCE = register(Rule(
    "unknown-source", "a problem of a suite has its source in `sources`",
    "A suite says where its problems come from, once for each source; a problem refers to it by name.",
    "sources: {llama: the model card}\nproblems: [{name: qkv, shape: {n: 6144}, source: lama}]",
))  # fmt: skip
SUITE_SIZE = register(Rule(
    "suite-size", f"a suite has at most {MAX_ROWS} problems, and {MAX_GRID} dims in its grid",
    "The points of a grid multiply; a problem takes seconds to measure.",
    "grid: {m: [1, 2, 3], n: [8, 16, 24]}",
))  # fmt: skip
SUITE_EPILOGUE = register(Rule(
    "suite-epilogue", "the epilogue of a suite's problem is an expression over `acc` and operands named by shape",
    "A suite is for kernels of any spec, so operands are named by their shape relative to the output: `tile` is m x n, "
    "`row` has one element a column, `column` one a row, `scalar` one; a second of a kind is `row2`. A map holds "
    "locals first and the output last.",
    "problems: [{name: down, shape: {m: 1, n: 4096, k: 14336}, epilogue: acc +}]",
))  # fmt: skip


def _check_dtype(name: str) -> str:
    if name not in DTYPES:
        raise ValueError("not in the table")
    return name


DtypeName = Annotated[str, AfterValidator(_check_dtype), WithJsonSchema({"type": "string", "enum": list(DTYPES)})]


Text = Annotated[str, AfterValidator(printable)]  # tables show it


def _check_epilogue(value: str | dict[str, str]) -> str | dict[str, str]:
    """The expressions of specs, of other names."""
    known = {"acc"}
    for key, text in (value if isinstance(value, dict) else {"": value}).items():
        if found := list(_find_slips(text, known)):
            path = (key,) if key else ()
            raise FieldError([Finding(SUITE_EPILOGUE.id, said, remedy, path, span) for span, said, remedy in found])
        known.add(key)
    return value


def _find_slips(text: str, known: Container[str]) -> Iterator[tuple[Span, str, str]]:
    """Where they are, what is wrong, and the remedy. known: `acc` and locals."""
    found: list[tuple[Span, str, str]] = []
    tree = parse_expression(text, lambda rule, *slip: found.append(slip), DIMS)
    yield from found
    for node in walk(tree) if tree else ():
        if isinstance(node, Name | Stored | Slice) and not (node.name in known or _OPERAND.fullmatch(node.name)):
            yield node.span, f"`{node.name}` is not an operand", f"names are acc, {', '.join(KINDS)}, and locals before"


class Problem(Section):
    """A problem with a name. Kernels that compute something else are left out of it, with the reason."""

    name: Text = Field(min_length=1, max_length=80, description="What it is, such as `Llama-3-8B qkv, decode`.")
    shape: dict[str, Positive] = Field(min_length=1, description="Extents by dim; those of `grid` are left open.")
    source: str = Field(default="", description="Where it comes from, a key of `sources`.")
    dtype: DtypeName | None = Field(default=None, description="Of both operands; any, when left out.")
    output: DtypeName | None = Field(
        default=None, description="Of the output; left out, that of `dtype`, bf16 for one of 8 bits, or any."
    )
    mainloop: Literal["a @ b", "(a * sa) @ (b * sb)"] = Field(
        default="a @ b", description="`sa`, `sb`: block scales, f32[m, k/128] and f32[n/128, k/128]."
    )
    epilogue: Annotated[Expression | dict[str, Expression], AfterValidator(_check_epilogue)] | None = Field(
        default=None, description="What is done to `acc`, operands named by shape; anything, when left out."
    )
    lengths: Literal["alike", "ragged", "gaps"] = Field(
        default="alike",
        description="Of requests, or tokens with sparse keys: all as given; `ragged`, spread from 1 on up to that, "
        "the same ones in every run; `gaps`, so, and every other one 0.",
    )
    keys: Literal["all", "some", "none"] = Field(
        default="all", description="Of sparse keys within a length: those whose index names a row of the cache."
    )


class SuiteFile(Section):
    """A suite as it is written."""

    cutegen: Version = Field(default=1, description="Version of the language.")
    description: str = Field(default="", description="What the problems are.")
    sources: dict[str, Text] = Field(default={}, description="Where problems come from, by a short name.")
    grid: dict[str, list[Positive]] = Field(
        default={},
        description="Extents of each dim; every combination is a problem, the last dim varying fastest. Where there "
        "are `problems`, each of them is combined with all of these instead.",
    )
    problems: list[Problem] = Field(default=[], description="Problems with names, sources and what they compute.")
    shapes: list[dict[str, Positive]] = Field(default=[], description="Problems, one by one.")


SUITE = Kind("suite", tuple(SuiteFile.model_fields), REMEDY)


@dataclass(frozen=True)
class Suite:
    document: SpecDocument
    content: SuiteFile

    @property
    def name(self) -> str:
        return self.document.name

    def rows(self) -> list[Row]:
        """Every problem: named ones at all points of the grid, or the grid itself; then the shapes; each once."""
        content = self.content
        points = [dict(zip(content.grid, extents)) for extents in product(*content.grid.values())]
        if content.problems:
            rows = [self._row(p, point) for p in content.problems for point in points]
        else:
            rows = [Row(point) for point in points if point]
        return list(dict.fromkeys([*rows, *(Row(shape) for shape in content.shapes)]))

    def _row(self, problem: Problem, point: Mapping[str, int]) -> Row:
        epilogue = problem.epilogue
        statements = {"": epilogue} if isinstance(epilogue, str) else epilogue or {}
        return Row(
            shape={**point, **problem.shape},
            name=problem.name,
            source=self.content.sources.get(problem.source, ""),
            dtype=problem.dtype or "",
            output=problem.output or _usual_output(problem.dtype),
            mainloop=problem.mainloop,
            epilogue=form_of_statements(statements, str) if statements else "",
            lengths=problem.lengths if problem.lengths != "alike" else "",
            keys=problem.keys if problem.keys != "all" else "",
        )

    def check(self) -> None:
        """SpecError: it lists no problem, or one names a source that is not given or a dim of the grid."""
        content = self.content
        if len(content.grid) > MAX_GRID:
            message = f"`grid` has {len(content.grid)} dims; at most {MAX_GRID} are allowed"
            raise SpecError([self.document.diagnostic(SUITE_SIZE.id, ("grid",), message, "list shapes", key=True)])
        count = max(1, len(content.problems)) * prod(map(len, content.grid.values())) + len(content.shapes)
        if count > MAX_ROWS:
            message = f"the suite has {count} problems; at most {MAX_ROWS} are allowed"
            remedy = "measure fewer extents of each dim"
            raise SpecError([self.document.diagnostic(SUITE_SIZE.id, ("grid",), message, remedy, key=True)])
        findings: list[Finding | Unworded] = []
        if not self.rows():
            findings.append(Finding(MISSING_KEY.id, "the suite lists no problem", REMEDY))
        sources = content.sources
        known = f"sources are {list_names(sources)}" if sources else "add it to `sources`"
        for i, problem in enumerate(content.problems):
            path: KeyPath = ("problems", i)
            if (source := problem.source) and source not in sources:
                findings.append(
                    _unknown(UNKNOWN_SOURCE.id, (*path, "source"), "`sources` has no", source, sources, known)
                )
            for dim in problem.shape:
                if dim in content.grid:
                    message = f"`{cut(dim)}` has an extent here, and {len(content.grid[dim])} in `grid`"
                    findings.append(Finding(GIVEN_TWICE.id, message, "keep one", (*path, "shape", dim), key=True))
        self._refuse(findings)

    def check_dims(self, dims: Mapping[str, Extent], kernel: str) -> None:
        """SpecError: a problem names a dim that the kernel does not have, or gives none for one that is open."""
        content = self.content
        used: list[tuple[KeyPath, Mapping[str, int], Container[str]]] = [
            *((("problems", i, "shape"), p.shape, content.grid) for i, p in enumerate(content.problems)),
            *((("shapes", i), shape, ()) for i, shape in enumerate(content.shapes)),
        ]
        if content.grid and not content.problems:
            used.append((("grid",), {}, content.grid))
        what, known = f"`{kernel}` has no dim", f"its dims are {list_names(dims)}"
        named = [("grid", dim) for dim in content.grid] + [(*place, dim) for place, shape, _ in used for dim in shape]
        findings: list[Finding | Unworded] = [
            _unknown(UNKNOWN_DIM.id, path, what, str(path[-1]), dims, known, key=True)
            for path in named
            if path[-1] not in dims
        ]
        needed = [d for d, extent in dims.items() if not isinstance(extent, int)]
        for place, shape, grid in used:
            if missing := next((d for d in needed if d not in shape and d not in grid), None):
                message = f"`{missing}` is missing, which `{kernel}` needs"
                findings.append(Finding(MISSING_DIM.id, message, known, place))
        self._refuse(findings)

    def _refuse(self, findings: Sequence[Finding | Unworded]) -> None:
        if findings:
            raise SpecError(*word_findings(findings, self.document))


def _unknown(
    rule: str, path: KeyPath, what: str, name: str, known: Iterable[str], otherwise: str, *, key: bool = False
) -> Unworded:
    def word() -> list[Finding]:
        return [Finding(rule, f"{what} `{cut(name)}`", suggest(name, known) or otherwise, path, key=key)]

    return Unworded(path, key, word)


def _usual_output(operands: str | None) -> str:
    return "" if operands is None else operands if DTYPES[operands].bits == 16 else "bf16"


def load_suite(name: str, folder: Path) -> Suite:
    """The suite of the file NAME.yaml in a folder, else the one that cutegen ships. CutegenError: there is none;
    SpecError: it is wrong."""
    path = _find(name, folder)
    if path is None:
        raise CutegenError(*_missing(name, folder), exit_code=2)
    # A link may lead to the suite of another folder of specs.
    document = load_document(path, within=path.parent.parent, kind=SUITE)
    with raised_together(document.faults):
        suite = Suite(document, parse_section(document, SuiteFile, SUITE))
        suite.check()
    return suite


def spec_suite(spec: KernelSpec, document: SpecDocument, folder: Path) -> Suite | None:
    """The suite that a spec names, if it does. SpecError: there is none, or it is wrong."""
    name = spec.bench.suite
    if name is None:
        return None
    if _find(name, folder) is None:
        raise SpecError((document.diagnostic(UNKNOWN_SUITE.id, ("bench", "suite"), *_missing(name, folder)),))
    return load_suite(name, folder)


def _find(name: str, folder: Path) -> Path | None:
    """None as well for a name that no file can have."""
    with suppress(OSError, ValueError):
        return next((p for p in (folder / f"{name}.yaml", shipped_suites() / f"{name}.yaml") if p.is_file()), None)
    return None


def _missing(name: str, folder: Path) -> tuple[str, str]:
    """Message and remedy."""
    known = sorted({p.stem for place in (folder, shipped_suites()) for p in place.glob("*.yaml") if p.is_file()})
    remedy = f"there are {', '.join(known)}" if known else "a suite lies in the folder `suites` next to the specs"
    message = f"{folder / cut(name)}.yaml does not exist, and cutegen ships no suite `{cut(name)}`"
    return message, " ".join(filter(None, (suggest(name, known), remedy)))


def suite_folder(given: Path) -> Path:
    """Where suites are looked for: beside a spec, else beside those of the working directory."""
    return given.parent / "suites" if given.suffix == ".yaml" else Path("specs/suites")


def shipped_suites() -> Path:
    """The folder of the suites that come with cutegen."""
    return data_folder("specs") / "suites"
