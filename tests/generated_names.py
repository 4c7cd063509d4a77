"""The table of names that generated source has besides those of a spec, collected from rendered modules.

Every form of every template is rendered with names of a spec that nothing else can have. What stands in one scope with
them, and what is made of them, is written to families/FAMILY/generated_names.json.
"""

from __future__ import annotations

import ast
import builtins
import functools
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import gemm_specs
import name_probes
from bound_winners import TILINGS, bound, winner

import cutegen.runtime
from cutegen.epilogue.ops import FUNCTIONS
from cutegen.render import render_package
from cutegen.resolve import Lock, Resolution, resolve_document
from cutegen.spec import SpecDocument, load_text, parse_spec

SPECS = Path(__file__).parent.parent / "specs"
KINDS = {"i": "input", "o": "output", "u": "updated", "l": "local", "d": "dim", "s": "spec"}
_MADE = re.compile(r"zq([ioulds])_\w+?_qz")
_BUILTINS = frozenset(dir(builtins))
_DIVISOR = re.compile(r"/\s*([0-9]+)")
Scopes = dict[str, set[str]]
# Most probes are about the forms of a module, for which the default tiling will do.
ONE_TILING = "portfolio: 1\n"


def collect(family: str) -> Scopes:
    """For each scope the names in it; what is made of a name of the spec with the name's kind in its place."""
    found: Scopes = {}
    for scope, names in (*_runtime_scopes(), *(s for probe in probes(family) for s in render_scopes(probe))):
        found.setdefault(scope, set()).update(names)
    return found


@functools.cache
def probes(family: str) -> tuple[Resolution, ...]:
    """Specs of the family in every form, with names that nothing else can have; one of them with winners."""
    shipped = [path.read_text(encoding="utf-8") for path in sorted(SPECS.glob("*.yaml")) if ".lock" not in path.name]
    others = {"gemm": [*gemm_specs.EDGES.values(), *gemm_specs.CONSTANTS.values(), *name_probes.GEMM],
              "mla_decode": name_probes.MLA_DECODE}[family]  # fmt: skip
    texts = (*(text for text in shipped if f"kernel: {family}\n" in text), *others)
    if family == "mla_decode":
        return tuple(_resolve(rename(text)) for text in dict.fromkeys(texts))
    alone = [_resolve(rename(text) + ONE_TILING) for text in dict.fromkeys(texts) if "\nportfolio:" not in text]
    whole = [_resolve(rename(text)) for text in name_probes.PORTFOLIOS]
    return (*alone, *whole, _with_winners(_resolve(rename(gemm_specs.PLAIN) + ONE_TILING)))


def _resolve(text: str, lock: Lock | None = None) -> Resolution:
    return resolve_document(load_text(text, "zqs_probe_qz"), lock)


def _with_winners(plain: Resolution) -> Resolution:
    dims = (dim.name for dim in plain.resolved.problem.dims)
    won = winner(1, 16, "turns")
    won = replace(won, calls=dict(zip(dims, won.calls.values())))
    winners = bound([won], text=plain.document.text)
    return _resolve(plain.document.text, plain.lock.with_winners({"turns": TILINGS["turns"]}, winners))


def rename(text: str) -> str:
    """The spec with each of its names made into one that tells its kind."""
    kinds = spec_kinds(load_text(text, "probe"))
    return with_names(text, {name: f"zq{kind}_{name}_qz" for name, kind in kinds.items()})


def with_names(text: str, names: Mapping[str, str]) -> str:
    """The spec with other names, by old one; without comments and what has no effect on names."""
    if not names:
        return text
    pattern = re.compile(rf"(?<![\w.-])(?!^m:)({'|'.join(sorted(names, key=len, reverse=True))})\b", re.MULTILINE)
    kept = "\n".join(line.partition(" #")[0] for line in _lines_with_names(text))
    product = "" if "\nmainloop:" in text else f"mainloop: {names.get('a', 'a')} @ {names.get('b', 'b')}\n"
    return pattern.sub(lambda match: names[match[1]], kept) + "\n" + product


def _lines_with_names(text: str) -> Iterator[str]:
    """Less comments, and the sections that have no effect on names."""
    kept = False
    for line in text.splitlines():
        if line[:1].strip():
            kept = not line.startswith(("bench:", "check:", "tune:", "#"))
        if kept:
            yield line


def spec_kinds(document: SpecDocument) -> dict[str, str]:
    """The names of a spec, each with the letter of its kind."""
    spec = parse_spec(document)
    if not hasattr(spec, "tensors"):
        return {}
    epilogue = spec.epilogue or {}
    rest = [name for name in spec.tensors if not re.search(rf"\b{name}\b", spec.mainloop)]
    assigned = set(epilogue) or set(rest[-1:])
    kinds = dict.fromkeys(spec.dim_names(), "d")
    for name in spec.tensors:
        updated = name in epilogue and re.search(rf"\b{name}\b", epilogue[name])
        kinds[name] = "u" if updated else "o" if name in assigned else "i"
    return kinds | {name: "l" for name in epilogue if name not in spec.tensors}


def render_scopes(probe: Resolution) -> Iterator[tuple[str, set[str]]]:
    """The scopes of the modules that a spec renders to."""
    package = render_package(probe.resolved)
    numbers = set(_DIVISOR.findall(probe.document.text))
    # Which tilings have modules is for the cost model to say; no function is named as one: function_problem. Modules of
    # one tiling without some inputs must be told apart.
    modules = {Path(file).stem for file in package.files}
    modules = {name for name in modules if not re.match("kernel_(?!without_)", name)}
    for file, source in package.files.items():
        module = "kernel" if file.startswith("kernel") else Path(file).stem
        for scope, names in _scopes(ast.parse(source)):
            # Refused where it is an operand of a call with new results: made_names.check_call_names.
            names -= {"out"} if module == "__init__" else set()
            names |= modules if (file, scope) == ("__init__.py", "module") else set()
            seen = {_generalise(name, numbers) for name in names if not name.startswith("_")}
            # Methods are not functions.
            yield f"{module}: {scope}", seen if scope[0].islower() or "." in scope else seen - {"{op}"}


def _generalise(name: str, numbers: Iterable[str]) -> str:
    if name in FUNCTIONS:
        return "{op}"
    made = _MADE.sub(lambda match: f"{{{KINDS[match[1]]}}}", name)
    if "{dim}" in made:
        for number in numbers:
            made = re.sub(rf"(?<![0-9]){number}(?![0-9])", "{number}", made)
    return made


def _scopes(tree: ast.Module) -> Iterator[tuple[str, set[str]]]:
    """The names bound or read in each scope, with those of scopes inside a function."""
    read = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    yield "module", {*_names(tree, whole=False), *(read & _BUILTINS)}
    pending: list[tuple[str, ast.AST]] = [("", tree)]
    while pending:
        outer, node = pending.pop()
        for child in ast.iter_child_nodes(node):
            inner = f"{outer}{child.name}." if isinstance(child, ast.FunctionDef | ast.ClassDef) else outer
            pending.append((inner, child))
            if isinstance(child, ast.FunctionDef | ast.ClassDef):
                scope = _MADE.sub("NAME", inner[:-1])
                yield scope, set(_names(child, whole=isinstance(child, ast.FunctionDef)))
            if isinstance(child, ast.FunctionDef) and child.args.kwarg and child.args.kwarg.arg == "dims":
                keywords = {argument.arg for argument in (*child.args.args, *child.args.kwonlyargs)}
                yield f"keywords of {inner[:-1]}", {"{dim}", *keywords}


def _names(node: ast.AST, whole: bool) -> Iterator[str]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Name):
            yield child.id
        elif isinstance(child, ast.arg):
            yield child.arg
        elif isinstance(child, ast.Import | ast.ImportFrom):
            yield from ((alias.asname or alias.name).partition(".")[0] for alias in child.names)
        elif isinstance(child, ast.FunctionDef | ast.ClassDef):
            yield child.name
            if not whole:
                continue
        if isinstance(child, ast.AnnAssign) and isinstance(node, ast.ClassDef) and whole:
            yield from _names(child.annotation, whole)  # a field is not a name of the function that the class stands in
            continue
        yield from _names(child, whole)


def _runtime_scopes() -> Iterator[tuple[str, set[str]]]:
    """What stands next to dims as keywords of a plan's functions, and as options of its command line."""
    for path in sorted(Path(cutegen.runtime.__path__[0]).glob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        yield from ((scope, names) for scope, names in _scopes(tree) if scope.startswith("keywords of "))
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "add_argument":
                first = node.args[0]
                if isinstance(first, ast.Constant):
                    yield "command line", {"{dim}", "help", first.value.lstrip("-")}


def table_text(family: str) -> str:
    """One line a scope; of names that are fixed only those that could be one of, or made of, a name of a spec."""
    table = {}
    for scope, names in sorted(collect(family).items()):
        made = sorted(name for name in names if "{" in name)
        forms = [re.compile(re.sub(r"\\\{\w+\\\}", r"\\w+", re.escape(name))) for name in made]
        fixed = sorted(name for name in names - set(made) if any(form.fullmatch(name) for form in forms))
        if made:
            table[scope] = {"made": made, "fixed": fixed}
    lines = (f"  {json.dumps(scope)}: {json.dumps(entry)}" for scope, entry in table.items())
    return "{\n" + ",\n".join(lines) + "\n}\n"
