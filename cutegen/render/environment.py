"""The template environment. A template gets one typed object; a name that does not exist is an error."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from contextlib import suppress
from contextvars import ContextVar
from functools import cache
from pathlib import Path
from typing import Any

import jinja2
from jinja2 import BytecodeCache, ChoiceLoader, Environment, FileSystemLoader, StrictUndefined
from jinja2.bccache import Bucket
from markupsafe import Markup

from cutegen.diagnostics import CutegenError
from cutegen.families.generated_names import tensor_stem
from cutegen.render.layout import entry, given, source
from cutegen.render.params import declared, values
from cutegen.runtime.cache import default_root, read_kept, write_kept
from cutegen.runtime.trust import seal

PACKAGE = Path(__file__).resolve().parent.parent


@cache
def data_folder(name: str) -> Path:
    """`templates` or `specs`: beside the package in a checkout, inside it when installed from a wheel."""
    for folder in (PACKAGE / "_data" / name, PACKAGE.parent / name):
        if folder.is_dir():
            return folder
    raise CutegenError(f"the folder `{name}` is missing from this installation", "reinstall cutegen", exit_code=2)


class _Bytecode(BytecodeCache):
    """Compiled templates in the cache directory: compiling them takes a third of a cold render. What is damaged, or may
    be others' work, never reaches `marshal`: it is a miss. Where nothing can be written nothing is kept."""

    folder = "templates"

    def __init__(self, root: Path, kind: str) -> None:
        self.root, self.kind = root, kind

    def load_bytecode(self, bucket: Bucket) -> None:
        name = self._name(bucket)
        kept, _, data = (read_kept(self.root, self.folder, name) or b"").partition(b"\n")
        if kept == name.encode():  # and not a file that was moved there
            bucket.bytecode_from_string(data)

    def dump_bytecode(self, bucket: Bucket) -> None:
        name = self._name(bucket)
        with suppress(OSError):
            write_kept(self.root, (self.folder,), name, seal(name.encode() + b"\n" + bucket.bytecode_to_string()))

    def _name(self, bucket: Bucket) -> str:
        return f"{bucket.key}.{self.kind}"


def _bytecode(markup: bool) -> _Bytecode | None:
    root = default_root()
    # An entry tells its template's text and Python's version; the rest is up to Jinja and to this file.
    here = hashlib.sha256(Path(__file__).read_bytes()).hexdigest()[:12]
    kind = f"jinja-{jinja2.__version__}-{here}{'-markup' if markup else ''}"
    return _Bytecode(root, kind) if root else None


# Neither in XML nor in HTML, escaped or not (XML 1.0, production 2).
_NO_MARKUP = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")


def _printable(value: object) -> object:
    """Text for a page, with a mark in place of each character that no page may have."""
    return value if isinstance(value, Markup) or not isinstance(value, str) else _NO_MARKUP.sub("\ufffd", value)


class TemplateEnvironment(Environment):
    """What every template is rendered in. folder: of a family of another package."""

    def __init__(self, folder: Path | None = None, **options: Any) -> None:
        shipped = FileSystemLoader(data_folder("templates"))
        super().__init__(
            loader=ChoiceLoader([FileSystemLoader(folder), shipped]) if folder else shipped,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
            keep_trailing_newline=True,
            **options,
        )
        self.filters |= {"entry": entry, "given": given, "source": source, "stem": tensor_stem, "tuple": tuple}
        self.filters |= {"declared": declared, "values": values}


@cache
def _environment(markup: bool = False, folder: Path | None = None) -> Environment:
    finalize = _printable if markup else None
    return TemplateEnvironment(folder, finalize=finalize, autoescape=markup, bytecode_cache=_bytecode(markup))


# Given a folder as `render_template` has it, makes the environment, for who looks at a render from inside.
OTHER_ENVIRONMENT: ContextVar[Callable[[Path | None], Environment] | None]
OTHER_ENVIRONMENT = ContextVar("other environment", default=None)


def render_markup(name: str, **objects: Any) -> str:
    """The text of a template of HTML or SVG: what it is given is escaped, unless it is Markup."""
    return _environment(markup=True).get_template(name).render(**objects).rstrip("\n") + "\n"


def render_template(name: str, folder: Path | None = None, /, **objects: Any) -> str:
    """The text of template `name`, ending in one newline. folder: of a family of another package, whose templates may
    include those that are shipped, `_shared/` among them."""
    other = OTHER_ENVIRONMENT.get()
    environment = other(folder) if other else _environment(folder=folder)
    return environment.get_template(name).render(**objects).rstrip("\n") + "\n"
