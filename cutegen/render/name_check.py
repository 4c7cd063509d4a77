"""The last look at a rendered module: it parses, and no name of the spec hides, or is hidden by, another name in it.

`bind` refuses names that clash by a table of what modules bind. This looks at the module itself, so that a name that
the table lacks ends a render, and not a kernel.
"""

from __future__ import annotations

import ast
import gc
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping

from cutegen.diagnostics import CutegenError


def check_modules(spec: str, texts: Mapping[str, str], names: Collection[str]) -> None:
    """CutegenError: names of the spec clash in the text of a module. texts: by file name. names: the spec's own."""
    collects = gc.isenabled()
    gc.disable()  # a tree has many nodes and no cycle: to look for some takes twice as long as all the rest
    try:
        for file, text in texts.items():
            _check(spec, file, text, names)
    finally:
        if collects:
            gc.enable()


def _check(spec: str, file: str, text: str, names: Collection[str]) -> None:
    try:
        tree = ast.parse(text, file)
    except SyntaxError as error:
        said = f"line {error.lineno} of {file} is not Python: {error.msg}"
    else:
        said = next(_clashes(tree, frozenset(names)), "")
        said = said and f"{said} in {file}"
    if said:
        remedy = "choose other names in the spec; cutegen should have refused these, so please report it"
        raise CutegenError(f"names of {spec} clash in generated source: {said}", remedy)


def _clashes(tree: ast.Module, names: frozenset[str]) -> Iterator[str]:
    yield from (f"`{name}` means two things" for name in _repeated(_defined(tree.body)))
    for node in (*tree.body, *(n for c in tree.body if isinstance(c, ast.ClassDef) for n in c.body)):
        if isinstance(node, ast.ClassDef):
            yield from _repeated_fields(node)
        elif isinstance(node, ast.FunctionDef):
            yield from _function_clashes(node, names)


def _function_clashes(node: ast.FunctionDef, names: frozenset[str]) -> Iterator[str]:
    every = (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)
    arguments = [argument.arg for argument in every]
    yield from (f"{node.name} has two arguments `{name}`" for name in _repeated(arguments))
    own = names.intersection(arguments)
    if arguments and not own:
        return
    yield from _lost(node.name, node.body, set(own), names if arguments else None)
    called = set()
    for child in ast.walk(node):
        if isinstance(child, ast.ClassDef):
            yield from _repeated_fields(child)
        elif isinstance(child, ast.Call) and isinstance(child.func, ast.Name):
            called.add(child.func.id)
        elif isinstance(child, ast.Name) and isinstance(child.ctx, ast.Store) and child.id in names:
            own |= {child.id}
    yield from (f"{node.name} calls `{name}`, which is a value there" for name in sorted(own & called))


def _lost(function: str, body: Iterable[ast.stmt], unread: set[str], watched: frozenset[str] | None) -> Iterator[str]:
    """Names that get another value before anything has read the one that they have. unread: names that have one;
    watched: names that count, None: all."""
    for statement in body:
        unread = unread - {n.id for n in ast.walk(statement) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)}
        if isinstance(statement, ast.Assign):
            every = [n.id for t in statement.targets for n in ast.walk(t) if isinstance(n, ast.Name) and n.id != "_"]
            yield from (f"`{name}` gets two values in {function}" for name in _repeated(every))
            bound = set(every) if watched is None else watched.intersection(every)
            yield from (f"`{name}` gets two values in {function}" for name in sorted(bound & unread))
            unread |= bound


def _repeated(names: Iterable[str]) -> list[str]:
    return [name for name, count in Counter(names).items() if count > 1]


def _repeated_fields(node: ast.ClassDef) -> Iterator[str]:
    fields = (s.target.id for s in node.body if isinstance(s, ast.AnnAssign) and isinstance(s.target, ast.Name))
    yield from (f"{node.name} has two fields `{name}`" for name in _repeated(fields))


def _defined(body: Iterable[ast.stmt]) -> Iterator[str]:
    """What statements of a module import and define. A package is imported by several names: `import a.b, a.c`."""
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Import | ast.ImportFrom):
            yield from (alias.asname or alias.name for alias in node.names)
        elif isinstance(node, ast.Assign):
            yield from (t.id for t in node.targets if isinstance(t, ast.Name))
