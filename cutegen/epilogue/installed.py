"""Ops that installed distributions add, through the entry point group `cutegen.epilogue_ops`.

A spec that calls built-in ops alone costs nothing here: metadata is read when a name is none of theirs, and a package
is imported when one of its ops is called or explained. A package cannot change what a built-in name means. Ops come
from distributions that an installer has put into a folder for packages, and from nowhere else on sys.path: not from the
working directory, and not from the checkout that a spec lies in.
"""

from __future__ import annotations

import ast
import functools
import json
import keyword
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from cutegen.diagnostics import describe_error
from cutegen.epilogue.ops import BUILT_IN_MODULE, FUNCTIONS, OPS, EpilogueOp

GROUP = "cutegen.epilogue_ops"
NO_OPS = "CUTEGEN_NO_OPS"
_MODULE = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*", re.ASCII)
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]*")


@dataclass(frozen=True, slots=True)
class Offer:
    """An entry point: the op's name, `module:Class`, and the distribution, such as `acme-ops 1.2`. folders: where its
    modules lie."""

    name: str
    target: str
    distribution: str
    folders: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.target} of {self.distribution}"


@dataclass(frozen=True, slots=True)
class Unusable:
    """Why an op that is installed cannot be called, and what to do."""

    reason: str
    remedy: str


@dataclass(frozen=True, slots=True)
class Installed:
    """offers: by name, in the order of sys.path. unreadable: distributions whose entry points cannot be read."""

    offers: Mapping[str, tuple[Offer, ...]]
    unreadable: tuple[str, ...]


def refuses_ops() -> bool:
    """Whether no op of another package may be imported."""
    return os.environ.get(NO_OPS, "") not in ("", "0")


def package_folders() -> tuple[str, ...]:
    """The folders that installers put packages into."""
    import site
    import sysconfig

    folders = [sysconfig.get_path("purelib"), sysconfig.get_path("platlib"), *site.getsitepackages()]
    folders += [site.getusersitepackages()] if site.ENABLE_USER_SITE else []
    return tuple(dict.fromkeys(map(os.path.realpath, folders)))


def find_installed() -> Installed:
    """What the installed distributions offer, by their metadata; no package is imported."""
    return Installed(MappingProxyType({}), ()) if refuses_ops() else _find_installed()


@functools.cache
def _find_installed() -> Installed:
    from importlib import metadata

    offers: dict[str, list[Offer]] = {}
    unreadable: list[str] = []
    seen: set[str] = set()
    here = package_folders()
    for distribution in metadata.distributions(path=list(here)):
        try:
            points = [point for point in distribution.entry_points if point.group == GROUP]
        except Exception as error:
            unreadable.append(f"{_title(distribution)} ({describe_error(error)})")
            continue
        title = _title(distribution) if points else ""
        if not points or title.partition(" ")[0] in seen:  # of two on sys.path, Python imports the first
            continue
        seen.add(title.partition(" ")[0])
        for point in points:
            folders = (*here, *_source_folders(distribution))
            offers.setdefault(point.name, []).append(Offer(point.name, point.value, title, folders))
    listed = {name: tuple(found) for name, found in sorted(offers.items())}
    return Installed(MappingProxyType(listed), tuple(unreadable))


def _source_folders(distribution: object) -> tuple[str, ...]:
    """Where somebody has installed a distribution from, to work on it: pip notes it in direct_url.json."""
    from urllib.parse import urlparse
    from urllib.request import url2pathname

    try:
        data = json.loads(distribution.read_text("direct_url.json") or "{}")  # type: ignore[attr-defined]
        url = urlparse(data["url"] if data["dir_info"]["editable"] is True else "")
    except Exception:
        return ()
    return (os.path.realpath(url2pathname(url.path)),) if url.scheme == "file" else ()


def _title(distribution: object) -> str:
    """Name and version; metadata may lack both."""
    try:
        name, version = (getattr(distribution, key, None) for key in ("name", "version"))
    except Exception:
        name = version = None
    return f"{name or 'a distribution without a name'} {version or ''}".strip()


def load_op(name: str) -> EpilogueOp | Unusable | None:
    """The op of that name, its package imported; None: nothing offers it. Built-in names are the built-in ops."""
    return OPS[name] if name in OPS else None if refuses_ops() else _load_installed(name)


@functools.cache
def _load_installed(name: str) -> EpilogueOp | Unusable | None:
    offers = find_installed().offers.get(name, ())
    if not offers:
        return None
    first = offers[0]
    if len(offers) > 1:
        said = f"`{name}` is offered by {' and by '.join(o.distribution for o in offers)}"
        return Unusable(said, "uninstall all of them but one")
    loaded = _load(first)
    if isinstance(loaded, EpilogueOp):
        return loaded
    return Unusable(f"`{name}`, {first}, cannot be used: {loaded}", f"fix or uninstall {first.distribution}")


def find_op(name: str) -> EpilogueOp:
    """The op that a parsed call names."""
    op = load_op(name)
    assert isinstance(op, EpilogueOp), name
    return op


def clashes() -> Iterator[str]:
    """Entry points that no spec can call, because their name means something else."""
    for name, offers in find_installed().offers.items():
        if _taken(name):
            yield from (f"`{name}`, {offer}, is never called: the name is built in" for offer in offers)


def _taken(name: str) -> bool:
    return name in OPS or name in FUNCTIONS


def _load(offer: Offer) -> EpilogueOp | str:
    """The op of an entry point, or why there is none."""
    from importlib.metadata import EntryPoint

    if _taken(offer.name):
        return "the name is built in"
    if elsewhere := _elsewhere(offer.target, offer.folders):
        return elsewhere
    try:
        found = EntryPoint(offer.name, offer.target, GROUP).load()
        op = found() if isinstance(found, type) and issubclass(found, EpilogueOp) else found
    except (Exception, SystemExit) as error:
        return describe_error(error)
    if not isinstance(op, EpilogueOp):
        return "it is not a class derived from cutegen.epilogue.EpilogueOp"
    try:
        return next(_faults(op, offer.name), _elsewhere(op.module, offer.folders) or op)
    except Exception as error:
        return describe_error(error)


def _elsewhere(module: str, folders: tuple[str, ...]) -> str:
    """Why a module, or `module:Class`, is not what an installer put into these folders, "" where it is: another one of
    the name may come first on sys.path, such as one of the working directory. Looking imports nothing."""
    from importlib.util import find_spec

    top = module.partition(":")[0].partition(".")[0].strip()
    try:
        spec = find_spec(top)
    except (ImportError, ValueError) as error:
        return describe_error(error)
    places = [*([spec.origin] if spec and spec.has_location and spec.origin else []),
              *((spec.submodule_search_locations or ()) if spec else ())]  # fmt: skip
    for place in map(os.path.realpath, places):
        if not any(place.startswith(folder + os.sep) for folder in folders):
            return f"Python would import `{top}` from {place}, where it is not installed"
    return ""


def _faults(op: EpilogueOp, name: str) -> Iterator[str]:
    """What is wrong with the attributes of an op."""
    missing = [key for key in ("name", "device", "flops") if not hasattr(op, key)]
    if missing:
        yield f"it has no `{missing[0]}`"
        return
    if op.name != name or not _NAME.fullmatch(name) or keyword.iskeyword(name) or keyword.issoftkeyword(name):
        yield f"its name is {op.name!r}, that of its entry point {name!r}: both have to be one identifier"
    if not op.doc or op.__doc__ == EpilogueOp.__doc__:
        yield "it has no docstring, which is its documentation"
    if op.arguments is not None and (not _is_int(op.arguments) or op.arguments < 1):
        yield f"`arguments` is {op.arguments!r}: how many, from 1 on, or None for two or more"
    count = op.arguments or 2
    if not all(_is_int(index) and 0 <= index < count for index in op.numbers):
        yield f"`numbers` is {op.numbers!r}: indices of its {count} arguments"
    if not _is_int(op.flops) or op.flops < 0:
        yield f"`flops` is {op.flops!r}: a whole number"
    if not isinstance(op.error, float | int) or not 0 <= op.error < 1:
        yield f"`error` is {op.error!r}: a number from 0 to 1"
    for name in ("derivative", "derivative_constant"):
        texts = getattr(op, name)
        if not isinstance(texts, tuple) or not all(isinstance(text, str) for text in texts) or len(texts) > count:
            yield f"`{name}` is {texts!r}: a tuple with an expression for each of its {count} arguments"
    yield from _device_faults(op)
    for constant in ([False] * count, [i in op.numbers or i > 0 for i in range(count)]):
        text, sums = (
            op.torch_text([form.format(i) for i in range(count)], constant) for form in ("x{0}", "x{0} + y{0}")
        )
        if reason := _reference_fault(text, sums, count):
            yield f"its torch reference {reason}: {text}"


def _is_int(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _device_faults(op: EpilogueOp) -> Iterator[str]:
    """What is wrong with the device function, as far as the text of its module tells: importing it needs the DSL."""
    from importlib.util import find_spec

    if not isinstance(op.device, str) or not _NAME.fullmatch(op.device) or keyword.iskeyword(op.device):
        yield f"`device` is {op.device!r}: the name of a function"
    elif op.device in FUNCTIONS:
        yield f"`device` is {op.device!r}, which is built in: choose another name"
    elif not isinstance(op.module, str) or not _MODULE.fullmatch(op.module):
        yield f"`module` is {op.module!r}: the dotted name of a module"
    elif op.module == BUILT_IN_MODULE:
        yield "it has no `module`, where its device function is"
    elif (spec := find_spec(op.module)) is None:
        yield f"there is no module {op.module}, where its device function is"
    elif spec.origin and spec.origin.endswith(".py"):
        tree = ast.parse(Path(spec.origin).read_text(encoding="utf-8"))
        if op.device not in _bound(tree):
            yield f"{op.module} defines no `{op.device}`"


def _bound(tree: ast.Module) -> set[str]:
    """Names that the statements of a module bind, those inside of `if` and `try` included."""
    names: set[str] = set()
    pending: list[ast.AST] = list(tree.body)
    while pending:
        node = pending.pop()
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            names.update(alias.asname or alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        else:
            pending += ast.iter_child_nodes(node)
    return names


class _Sums(ast.NodeTransformer):
    """Writes `x0 + y0` for the argument `x0`."""

    def visit_Name(self, node: ast.Name) -> ast.expr:
        if node.id == "torch":
            return node
        return ast.BinOp(node, ast.Add(), ast.Name(node.id.replace("x", "y"), ast.Load()))


def _reference_fault(text: str, sums: str, count: int) -> str | None:
    """Why a reference cannot stand in the plan: one expression over torch and its arguments, which binds as a call
    whatever its arguments are. sums: the same with a sum for each argument."""
    try:
        node = ast.parse(text, mode="eval").body
    except SyntaxError:
        return "is not an expression"
    known = {"torch", *(f"x{i}" for i in range(count))}
    if unknown := sorted({n.id for n in ast.walk(node) if isinstance(n, ast.Name)} - known):
        return f"reads `{unknown[0]}`; it may read torch and its arguments"
    if not isinstance(node, ast.Call) and node.col_offset == 0:
        return "is not enclosed in parentheses"
    if ast.dump(_Sums().visit(node)) != ast.dump(ast.parse(sums, mode="eval").body):
        return "has an argument that is neither one of a call nor in parentheses"
    return None
