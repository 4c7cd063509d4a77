"""`python -m tests.measures [--all] [--json] [--list TEXT]`: what the house costs its readers, in figures that should
fall.

Share of lines and characters, of the lines of generated kernel modules that are not blank. A line is of templates alone
if all its words are, and wholly from Python if all are values of fields. Constants in the expressions of a template are
its text, and so is what a macro writes; indentation, the header of a file and what only the layout adds do not count.

Fragment. A field (or property, or method) of an object that templates read holds source fragments if a render puts a
value of it in code, that is outside of comments, docstrings and other string literals, which is not a single
identifier, number or string literal. `p.sA`, `n * t.tile[1]` and `acc: Float32` are fragments; `sA`, 128 and a sentence
of a docstring are not. Of a tuple each element is a value.

Circle. Modules that reach each other by imports, those under TYPE_CHECKING and in functions among them.

Function entered. A named function whose source is in cutegen/ and which a second render of the plain GEMM enters.

Mention. A file of cutegen/ or templates/ (.py, .jinja) whose text has the identifiers of a knob or feature.

Figures that need renders are those of SAMPLE, with --all those of every shipped spec.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from cutegen.render import render_package
from cutegen.render.tracing import Field, Part, Tracer, split_lines
from cutegen.resolve import resolve_file

ROOT = Path(__file__).parents[1]
PLAIN = "gemm_bf16_sm90a"
# They have most features between them, and take two seconds.
SAMPLE = (
    PLAIN,
    "gemm_bf16_rms_sm90a",
    "grouped_gemm_e4m3_block128_swiglu_quant_sm90a",
    "mla_decode_bf16_sm90a",
)
KNOBS = {
    "tiling.raster.group": r"\braster_group\b",
    "pipeline.epilogue_stages": r"\b(?:epilogue|store)_stages\b",
    "pdl": r"\bpdl(?:_\w+)?\b",
}
FEATURES = {
    "split_k": r"split_k(?!v)|k_split",
    "gather": r"gather",
    "groups": r"\b(?:row_)?groups\b|Grouped|RowGroups",
    "block_scales": r"block_scal",
    "reductions": r"\breductions?\b",
    "load_ahead": r"load_ahead|\bahead\b|AheadText",
    "last_tile": r"last_tile",
}
# What a change must not raise, in the figures of SAMPLE; `python -m tests.measures` prints both. Lines have some room.
HELD = {
    "classes that templates read": 59,
    "fields that templates read": 392,
    "classes with source fragments": 13,
    "fields with source fragments": 24,
    "% of lines of gemm kernels not of templates alone": 28,
    "% of lines of gemm kernels wholly from Python": 8,
    "% of characters of gemm kernels from Python": 14,
    "% of lines of mla_decode kernels not of templates alone": 17,
    "% of lines of mla_decode kernels wholly from Python": 7,
    "% of characters of mla_decode kernels from Python": 9,
    "functions entered to render the plain GEMM": 234,
    "import circles": 0,
    "modules in import circles": 0,
    "modules in the largest circle": 0,
    "files with the knob tiling.raster.group": 8,
    "files with the knob pipeline.epilogue_stages": 19,
    "files with the knob pdl": 65,
    "files with the feature split_k": 27,
    "files with the feature gather": 86,
    "files with the feature groups": 100,
    "files with the feature block_scales": 19,
    "files with the feature reductions": 80,
    "files with the feature load_ahead": 52,
    "files with the feature last_tile": 9,
    "names of several modules": 69,
    "names of several classes": 45,
    "lines of cutegen/": 74256,
    "lines of templates/": 8438,
}

Counted = Collection[str] | int  # a figure, or what there are so many of

_PLAIN_VALUE = re.compile(r"[^\W\d]\w*|-?[\d.]+(?:e-?\d+)?|\"[^\"]*\"|'[^']*'")
_NO_CODE = re.compile(r"#.*|\"\"\"|\"(?:[^\"\\]|\\.)*\"|'(?:[^'\\]|\\.)*'")
_FROM = re.compile(r"^[ \t]*from (cutegen[\w.]*) import (?:\(([^)]*)\)|([^\n(#]+))", re.MULTILINE)
_IMPORT = re.compile(r"^[ \t]*import (cutegen[\w.]*)", re.MULTILINE)
_CLASS = re.compile(r"^\s*class (\w+)", re.MULTILINE)


@cache
def sources() -> Mapping[str, str]:
    """The text of the files of cutegen/ and templates/, by path."""
    paths = (path for folder in ("cutegen", "templates") for path in (ROOT / folder).rglob("*"))
    return {
        path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8")
        for path in sorted(paths)
        if path.suffix in (".py", ".jinja")
    }


def count_lines() -> dict[str, Counted]:
    lines: Counter[str] = Counter()
    for path, text in sources().items():
        lines[path.partition("/")[0]] += len(text.splitlines())
    return {f"lines of {folder}/": count for folder, count in lines.items()}


def list_mentions() -> dict[str, Counted]:
    said = {**{f"files with the knob {name}": form for name, form in KNOBS.items()},
            **{f"files with the feature {name}": form for name, form in FEATURES.items()}}  # fmt: skip
    return {name: [path for path, text in sources().items() if re.search(form, text)] for name, form in said.items()}


def list_repeated_names() -> dict[str, Counted]:
    modules = Counter(Path(path).stem for path in sources() if path.endswith(".py"))
    classes = Counter(name for text in sources().values() for name in set(_CLASS.findall(text)))
    return {
        "names of several modules": [name for name, count in modules.items() if count > 1 and name[:2] != "__"],
        "names of several classes": [name for name, count in classes.items() if count > 1],
    }


def list_circles() -> dict[str, Counted]:
    circles = [sorted(circle) for circle in _circles(_imports()) if len(circle) > 1]
    return {
        "import circles": [", ".join(circle) for circle in circles],
        "modules in import circles": [module for circle in circles for module in circle],
        "modules in the largest circle": max(circles, key=len, default=[]),
    }


def _imports() -> dict[str, set[str]]:
    """Modules of the package that each imports, wherever in it."""
    texts = {_module(path): text for path, text in sources().items() if path.endswith(".py")}
    found: dict[str, set[str]] = {}
    for module, text in texts.items():
        names = set(_IMPORT.findall(text))
        for package, inside, behind in _FROM.findall(text):
            for name in (inside or behind).split(","):
                full = f"{package}.{name.split()[0]}" if name.split() else package
                names.add(full if full in texts else package)
        found[module] = names & texts.keys() - {module}
    return found


def _module(path: str) -> str:
    return path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def _circles(edges: Mapping[str, Iterable[str]]) -> Iterator[set[str]]:
    """Sets of what reaches each other, by Tarjan's algorithm."""
    number: dict[str, int] = {}
    lowest: dict[str, int] = {}
    open_: list[str] = []

    def visit(node: str) -> Iterator[set[str]]:
        number[node] = lowest[node] = len(number)
        open_.append(node)
        for other in edges[node]:
            if other not in number:
                yield from visit(other)
            if other in open_:
                lowest[node] = min(lowest[node], lowest[other])
        if lowest[node] == number[node]:
            at = open_.index(node)
            yield set(open_[at:])
            del open_[at:]

    for node in edges:
        if node not in number:
            yield from visit(node)


def list_functions() -> dict[str, Counted]:
    """Of a second render: what is kept from the first is not entered again."""
    resolved = resolve_file(ROOT / "specs" / f"{PLAIN}.yaml").resolved
    render_package(resolved)
    entered: set[CodeType] = set()

    def note(frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and not frame.f_code.co_name.startswith("<"):
            entered.add(frame.f_code)

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        render_package(resolved)
    finally:
        sys.setprofile(before)
    ours = ((Path(code.co_filename), code) for code in entered)
    places = (
        f"{path.relative_to(ROOT)}:{code.co_firstlineno} {code.co_name}"
        for path, code in ours
        if path.is_relative_to(ROOT / "cutegen")
    )
    return {"functions entered to render the plain GEMM": sorted(places)}


def measure_text(specs: Iterable[str]) -> dict[str, Counted]:
    """Fields of the objects that templates read, and shares in whole percent."""
    tracer = Tracer()
    fragments: set[Field] = set()
    shares: dict[str, Counter[str]] = {}
    for spec in specs:
        resolved = resolve_file(ROOT / "specs" / f"{spec}.yaml").resolved
        own = shares.setdefault(resolved.family, Counter())
        for file, parts in tracer.render(resolved).items():
            lines = split_lines(parts)
            fragments |= find_fragments(lines)
            if file.startswith("kernel"):
                own.update(_share(lines))
    return {
        "classes that templates read": _classes(tracer.fields),
        "fields that templates read": sorted(map(".".join, tracer.fields)),
        "classes with source fragments": _classes(fragments),
        "fields with source fragments": sorted(map(".".join, fragments)),
        **{name: value for family, own in sorted(shares.items()) for name, value in _percent(family, own).items()},
    }


def _classes(fields: Iterable[Field]) -> list[str]:
    return sorted({f"{field.module}.{field.owner}" for field in fields})


def _share(lines: Iterable[Sequence[Part]]) -> Counter[str]:
    """Lines by what wrote them, and characters, of which those from Python."""
    found: Counter[str] = Counter()
    for line in lines:
        ours, template = ("".join(part.text for part in line if _is_value(part) is value) for value in (True, False))
        if both := "".join((ours + template).split()):
            words = [re.search(r"\w", text) or text.strip() == both for text in (ours, template)]
            found["mixed" if all(words) else "python" if words[0] else "template"] += 1
            found["characters"] += len(both)
            found["characters from Python"] += len("".join(ours.split()))
    return found


def _is_value(part: Part) -> bool:
    return bool(part.source and part.source.fields)


def _percent(family: str, found: Counter[str]) -> dict[str, int]:
    lines = found["template"] + found["mixed"] + found["python"]
    return {
        f"% of lines of {family} kernels not of templates alone": round(100 * (1 - found["template"] / lines)),
        f"% of lines of {family} kernels wholly from Python": round(100 * found["python"] / lines),
        f"% of characters of {family} kernels from Python": round(
            100 * found["characters from Python"] / found["characters"]
        ),
    }


def find_fragments(lines: Iterable[Sequence[Part]]) -> set[Field]:
    """Fields with a value that is a fragment."""
    found: set[Field] = set()
    quoted = False
    for line in lines:
        text = "".join(part.text for part in line)
        at = 0
        code, quoted = _code(text, quoted)
        for part in line:
            value = part.text.strip()
            fields = part.source.fields if part.source else ()
            if fields and value and code[at : at + len(part.text)].strip() and not _PLAIN_VALUE.fullmatch(value):
                found.update(fields)
            at += len(part.text)
    return found


def _code(text: str, quoted: bool) -> tuple[str, bool]:
    """A line with blanks in place of comments and strings, and whether a docstring goes on behind it."""
    code, at = "", 0
    for literal in _NO_CODE.finditer(text):
        if literal.start() < at or (quoted and literal[0] != '"""'):
            continue
        code += " " * (literal.start() - at) if quoted else text[at : literal.start()]
        code += " " * len(literal[0])
        quoted ^= literal[0] == '"""'
        at = literal.end()
    return code + (" " * (len(text) - at) if quoted else text[at:]), quoted


def measure(specs: Iterable[str] = SAMPLE) -> dict[str, Counted]:
    """Every figure, by name; the lower the better."""
    return {
        **measure_text(specs),
        **list_functions(),
        **list_circles(),
        **list_mentions(),
        **list_repeated_names(),
        **count_lines(),
    }


def figure(counted: Counted) -> int:
    return counted if isinstance(counted, int) else len(counted)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--all", action="store_true", help="render every shipped spec, not only the sample")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    parser.add_argument("--list", metavar="TEXT", help="what is counted in the figures whose names have TEXT")
    given = parser.parse_args()
    shipped = sorted(path.stem for path in (ROOT / "specs").glob("*.yaml") if not path.name.endswith(".lock.yaml"))
    found = measure(shipped if given.all else SAMPLE)
    figures = {name: figure(value) for name, value in found.items()}
    if given.list is not None:
        for name, value in found.items():
            if given.list in name and not isinstance(value, int):
                print(f"{name}: {len(value)}", *value, sep="\n  ")
    elif given.json:
        print(json.dumps(figures, indent=2))
    else:
        width = max(map(len, figures))
        print(f"{'':<{width}}  {'now':>6}" + ("" if given.all else f"  {'held':>6}"))
        for name, value in figures.items():
            print(f"{name:<{width}}  {value:>6}" + ("" if given.all else f"  {HELD[name]:>6}"))


if __name__ == "__main__":
    main()
