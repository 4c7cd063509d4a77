"""`cutegen new`: a spec to start from, a family's starter or another spec, and the schema that editors check it by."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import click
from click.shell_completion import CompletionItem

from cutegen import elsewhere
from cutegen.cli import console
from cutegen.config import Config
from cutegen.diagnostics import CutegenError, suggest
from cutegen.families.registry import family_folder, family_names, has_family, list_families
from cutegen.files import write_texts
from cutegen.roots import read_file

MAX_SCHEMA = 1 << 20  # bytes: ours take 0.05 MB
# The line of a spec that names its schema to editors; the path is relative to the spec.
SERVER = "# yaml-language-server: $schema="


def complete_families(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    return [CompletionItem(name) for name in family_names() if name.startswith(incomplete)]


def _complete_specs(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Names of shipped specs, and files."""
    names = [path.stem for path in shipped_specs() if path.stem.startswith(incomplete)]
    return [*map(CompletionItem, names), CompletionItem(incomplete, type="file")]


@click.command()
@click.argument("words", nargs=-1, required=True, metavar="[FAMILY] NAME", shell_complete=complete_families)
@click.option("--from", "origin", metavar="SPEC", shell_complete=_complete_specs,
              help="Start from this spec and its comments: a shipped one by its name, or any by its path.")  # fmt: skip
@click.option("-o", "--output", "folder", type=click.Path(path_type=Path, file_okay=False), default=Path("specs"),
              show_default=True, help="Folder of the spec; made if it is not there.")  # fmt: skip
@click.option("--no-schema", is_flag=True, help="Write no schema for editors, and no line that names it.")
def new(words: tuple[str, ...], origin: str | None, folder: Path, no_schema: bool) -> None:
    """Write a commented spec NAME.yaml to start from.

    FAMILY is a kernel family, see `cutegen list`; with --from it is that of the other spec. An existing spec is never
    touched. The schema for editors goes to schema/FAMILY.json next to the spec.
    """
    from cutegen.spec.names import kernel_name, name_problem, propose_name

    if len(words) != (1 if origin else 2):
        asked = "NAME alone: --from says the family" if origin else "a FAMILY and a NAME, or a NAME and --from SPEC"
        raise click.UsageError(f"Name {asked}.", click.get_current_context())
    name = words[-1].removesuffix(".yaml")
    family, text = _read_origin(origin, name) if origin else (check_family(words[0]), _read_starter(words[0]))
    if problem := name_problem(kernel_name(name)):
        raise CutegenError(f"`{name}` {problem}", f"choose a name such as {propose_name(name)}", exit_code=2)
    path = folder / f"{name}.yaml"
    if os.path.lexists(path):
        raise CutegenError(f"{path} exists", "choose another name or folder", exit_code=2)
    schema = None if no_schema else _place_schema(folder, family)
    texts = {path: name_schema(text, os.path.relpath(schema[0], folder) if schema else "")}
    write_texts(texts | ({schema[0]: schema[1]} if schema and schema[1] else {}), folder)
    console.say(str(path))
    if origin:
        console.note("  note: what it leaves open is decided again; locks and winners are not copied")
    console.note(f"next: cutegen validate {path}")


def shipped_specs() -> list[Path]:
    """The specs that come with cutegen."""
    from cutegen.render.environment import data_folder

    folder = data_folder("specs")
    return Config(folder).find_specs(folder)


def check_family(name: str) -> str:
    """The same name. CutegenError (exit 2): there is no such family."""
    if not has_family(name):
        remedy = elsewhere.answer_family(name, family_names(), list_families())
        raise CutegenError(f"unknown kernel family `{name}`", remedy, exit_code=2)
    return name


def name_schema(text: str, schema: str) -> str:
    """The text of a spec with a first line that names its schema; without one where `schema` is empty."""
    rest = re.sub(rf"^{re.escape(SERVER)}.*\n", "", text, flags=re.MULTILINE)
    return f"{SERVER}{schema}\n{rest}" if schema else rest


def _read_starter(family: str) -> str:
    starter = family_folder(family) / "starter.yaml"
    try:
        return starter.read_text(encoding="utf-8")
    except FileNotFoundError:
        said = f"kernel family `{family}` has no spec to start from: {starter} is missing"
        raise CutegenError(said, "name a spec to start from with --from", exit_code=2) from None


def _read_origin(origin: str, name: str) -> tuple[str, str]:
    """Family and text of another spec, with its name changed where it is mentioned."""
    from cutegen.spec import load_document

    shipped = {path.stem: path for path in shipped_specs()}
    path = shipped.get(origin.removesuffix(".yaml")) or Path(origin)
    if not path.exists() and not path.suffix:
        hint = suggest(origin, shipped) or "`cutegen list` shows the specs"
        raise CutegenError(f"cutegen ships no spec `{origin}`", hint, exit_code=2)
    document = load_document(console.spec_file(path))
    family = document.data.get("kernel") if isinstance(document.data, dict) else None
    if family is None:
        raise CutegenError(
            f"{path} has no key `kernel`", "name a spec; `cutegen list` shows those shipped", exit_code=2
        )
    return check_family(str(family)), re.sub(rf"\b{re.escape(path.stem)}\b", name, document.text)


def _place_schema(folder: Path, family: str) -> tuple[Path, str] | None:
    """The schema of a spec in `folder`, and its text where it is to be written: in a checkout of cutegen there is one
    already. None: another file is in its place; CutegenError: a link out of the folder is."""
    from cutegen.families.registry import load_spec_model
    from cutegen.render.environment import PACKAGE
    from cutegen.spec.schema import IDENTITY, schema_text

    committed = PACKAGE.parent / "docs" / "schema" / f"{family}.json"
    if committed.is_file() and folder.resolve().is_relative_to(PACKAGE.parent):
        return committed, ""
    path = folder / "schema" / f"{family}.json"
    if os.path.lexists(path):
        try:
            ours = json.loads(read_file(path, MAX_SCHEMA, folder))["$id"] == f"{IDENTITY}:{family}"
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            ours = False
        if not ours:
            return None
    return path, schema_text(load_spec_model(family))
