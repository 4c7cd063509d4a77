"""The table of names that generated source has besides those of a spec, collected from rendered modules.

Specs are rendered with names that nothing else can have. What stands in one scope with them, and what is made of them,
is what families/generated_names.py reads.
"""

from __future__ import annotations

import ast
import builtins
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import cutegen.runtime
from cutegen.diagnostics import CutegenError
from cutegen.epilogue.ops import FUNCTIONS
from cutegen.render.package import render_package
from cutegen.resolve import Lock, Resolution, resolve_archs, resolve_document, resolve_parts, split_document
from cutegen.spec import SpecDocument, load_document, load_text
from cutegen.spec.base import RUN_SECTIONS
from cutegen.spec.yaml_text import write_yaml

KINDS = {"i": "input", "o": "output", "u": "updated", "l": "local", "d": "dim", "s": "spec"}
FUNCTION = "zqs_probe_qz"  # the name of a probe
_MADE = re.compile(r"(z|Z)q([ioulds])_\w+?_qz")  # Z of what is made of a name's stem
_BUILTINS = frozenset(dir(builtins))
_DIVISOR = re.compile(r"(?<=_over_)[0-9]+")  # of a dim, of the spec or of what it lies in
Scopes = dict[str, set[str]]


def probe_name(kind: str, name: str) -> str:
    """A name that tells its kind, a letter of KINDS, and that nothing else has."""
    return f"zq{kind}_{name}_qz"


def probe_file(path: Path) -> tuple[Resolution, ...]:
    """A spec of declared tensors with each of its names made into one that tells its kind. CutegenError: its family
    does not say which are inputs and outputs (TensorProblem)."""
    found, document = resolve_archs(path)[0], load_document(path)
    problem = found.resolved.problem
    if not hasattr(problem, "kinds"):
        said = f"the problem of `kernel: {found.spec.kernel}` has no `kinds`"
        raise CutegenError(said, "give it one, name -> input, output or dim, as TensorProblem has it", exit_code=2)
    letters = {kind: letter for letter, kind in KINDS.items()}
    names = {name: probe_name(letters[kind], name) for name, kind in problem.kinds.items()}
    return resolve_probe(write_yaml(_renamed(document, names)))


def resolve_probe(text: str, lock: Lock | None = None) -> tuple[Resolution, ...]:
    """What a spec with such names resolves to for each of its architectures. lock: of a spec for one."""
    parts = split_document(load_text(text, FUNCTION))
    return resolve_parts(parts, lambda part: resolve_document(part, lock))


def _renamed(document: SpecDocument, names: Mapping[str, str]) -> dict[str, object]:
    """The data of a spec with other names, by old one, less what has no effect on names."""
    idle = (*RUN_SECTIONS, "function", "instances", "m")
    data: dict[str, object] = {key: value for key, value in document.data.items() if key not in idle}
    word = re.compile(rf"\b({'|'.join(map(re.escape, names))})\b")
    for section in ("tensors", "dims"):
        if isinstance(listed := document.data.get(section), dict):
            data[section] = {
                names.get(key, key): word.sub(lambda m: names[m[1]], value) if isinstance(value, str) else value
                for key, value in listed.items()
            }
    return data


def collect(probes: Iterable[Sequence[Resolution]]) -> Scopes:
    """For each scope the names in it; what is made of a name of the spec with the name's kind in its place. probes: of
    each what it resolves to for its architectures."""
    found: Scopes = {}
    for scope, names in (*_runtime_scopes(), *(s for probe in probes for s in render_scopes(probe))):
        found.setdefault(scope, set()).update(names)
    return found


def render_scopes(probe: Sequence[Resolution]) -> Iterator[tuple[str, set[str]]]:
    """The scopes of the modules that a spec renders to."""
    package = render_package(*(resolution.resolved for resolution in probe))
    # Which tilings have modules is for the cost model to say; no function is named as one: function_problem. Modules of
    # one tiling without some inputs must differ.
    modules = {Path(file).stem for file in package.files}
    modules = {name for name in modules if not re.match("kernel_(?!without_)|plan_", name)}
    for file, source in package.files.items():
        module = next((kind for kind in ("kernel", "plan") if file.startswith(kind)), Path(file).stem)
        for scope, names in _scopes(ast.parse(source)):
            # Refused where it is an operand of a call with new results: made_names.check_call_names.
            names -= {"out"} if module == "__init__" else set()
            names |= modules if (file, scope) == ("__init__.py", "module") else set()
            seen = {_generalise(name) for name in names if not name.startswith("_")}
            # Methods are not functions.
            yield f"{module}: {scope}", seen if scope[0].islower() or "." in scope else seen - {"{op}"}


def _generalise(name: str) -> str:
    if name in FUNCTIONS:
        return "{op}"
    made = _MADE.sub(lambda match: f"{{{KINDS[match[2]].title() if match[1] == 'Z' else KINDS[match[2]]}}}", name)
    return _DIVISOR.sub("{number}", made) if "{dim}" in made else made


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
    for path in sorted(Path(cutegen.runtime.__path__[0]).rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        yield from ((scope, names) for scope, names in _scopes(tree) if scope.startswith("keywords of "))
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "add_argument":
                first = node.args[0]
                if isinstance(first, ast.Constant) and isinstance(first.value, str):
                    yield "command line", {"{dim}", "help", first.value.lstrip("-")}


def table_text(scopes: Scopes) -> str:
    """One line a scope; of names that are fixed only those that could be one of, or made of, a name of a spec."""
    table = {}
    for scope, names in sorted(scopes.items()):
        made = sorted(name for name in names if "{" in name)
        forms = [re.compile(re.sub(r"\\\{\w+\\\}", r"\\w+", re.escape(name))) for name in made]
        fixed = sorted(name for name in names - set(made) if any(form.fullmatch(name) for form in forms))
        if made:
            table[scope] = {"made": made, "fixed": fixed}
    lines = (f"  {json.dumps(scope)}: {json.dumps(entry)}" for scope, entry in table.items())
    return "{\n" + ",\n".join(lines) + "\n}\n"
