"""Commands for people who write specs: validate, list, schema, and docs, which regenerates the reference."""

from __future__ import annotations

from itertools import takewhile
from pathlib import Path

import click

from cutegen.cli import console
from cutegen.cli.start import check_family, complete_families, shipped_specs
from cutegen.cli.stdin import stdin_option, typed_text
from cutegen.config import FILE, SECTION
from cutegen.diagnostics import CutegenError
from cutegen.families.registry import FAMILIES, find_families, unused_families
from cutegen.files import write_output, write_texts
from cutegen.roots import read_file
from cutegen.spec.load import own_line
from cutegen.spec.text_rules import MAX_BYTES


@click.command()
@console.specs_argument
@stdin_option
@console.format_option
def validate(specs: list[Path], as_json: bool) -> int:
    """Report every problem of specs that can be found in one pass: text, then keys and expressions, then rules.

    A folder stands for the specs in it and in its folders, `-` for standard input. Exit code 1: there is a finding.
    """
    results = {path: console.attempt(_examine, path) for path in specs}
    errors = {path: result for path, result in results.items() if isinstance(result, CutegenError)}
    if as_json:
        console.print_json(
            [
                {"spec": str(path), "ok": path not in errors, "findings": console.findings(errors.get(path))}
                for path in results
            ]
        )
    else:
        for path in results:
            if path in errors:
                console.report(errors[path], path, end="\n")
            else:
                console.say(f"{path}: {console.verdict(True)}")
        if len(results) > 1:
            console.note(f"{len(results)} specs, {len(errors)} with findings")
        for path in filter(_is_foreign, errors):
            console.note(f"  note: {path} has no key `cutegen`: one that is not a spec is left out by `exclude` in "
                         f"[{SECTION}] of {FILE}")  # fmt: skip
    return console.worst(errors.values())


def _is_foreign(path: Path) -> bool:
    """Whether a file, spec or not, does not even begin to be one: it lies in a folder of specs, it may be."""
    text = typed_text(path)
    if text is None:
        try:
            text = read_file(path, MAX_BYTES)
        except (OSError, CutegenError):
            return False
    return bool(text.strip()) and not own_line(("cutegen",)).search(text.decode("utf-8", "replace"))


def _examine(path: Path) -> None:
    from cutegen.resolve import resolve_archs

    resolution = resolve_archs(path, raw=typed_text(path))[0]  # what is run is the same for all
    if resolution.spec.bench.suite:
        from cutegen.run.suite import spec_suite, suite_folder

        suite = spec_suite(resolution.spec, resolution.document, suite_folder(path))
        if suite:
            suite.check_dims(resolution.resolved.dims, resolution.resolved.name)


@click.command("list")
@console.json_option
def list_(as_json: bool) -> None:
    """Show the kernel families, the shipped specs and suites, and the epilogue operations."""
    from cutegen.epilogue import CALLS, OPS, clashes, find_installed
    from cutegen.families.registry import load_spec_model
    from cutegen.run.suite import load_suite, shipped_suites
    from cutegen.spec import load_document

    families = [(name, _first_line(load_spec_model(name).__doc__)) for name in FAMILIES]
    families += [(name, f"installed by {offer.distribution}") for name, offer in find_families().items()]
    specs = []
    for path in shipped_specs():
        data = load_document(path).data
        specs.append((_shorten(path), str(data.get("kernel")), _archs(data.get("arch")), _summary(path)))
    suites = []
    for path in sorted(shipped_suites().glob("*.yaml")):
        suite = load_suite(path.stem, path.parent)
        suites.append((suite.name, str(len(suite.rows())), suite.content.description.partition(". ")[0].rstrip(".")))
    ops = [(name, op.arity_text(), op.doc) for name, op in OPS.items()]
    installed = find_installed()
    ops += [_installed_op(name) for name in installed.offers if name not in OPS]
    ops += CALLS.values()
    unused = [*clashes(), *(f"entry points cannot be read: {text}" for text in installed.unreadable)]
    unusable = [*unused_families()]
    if as_json:
        console.print_json({
            "families": [dict(zip(("name", "summary"), row)) for row in families],
            "specs": [dict(zip(("path", "kernel", "arch", "summary"), row)) for row in specs],
            "suites": [dict(zip(("name", "problems", "summary"), row)) for row in suites],
            "ops": [dict(zip(("name", "arguments", "summary"), row)) for row in ops],
            "unused_ops": unused,
            "unused_families": unusable,
        })  # fmt: skip
        return
    console.say(console.table(("family", "computes"), families))
    console.say()
    console.say(console.table(("shipped spec", "kernel", "arch", "is"), specs))
    console.say()
    console.say(console.table(("suite", "problems", "holds"), suites))
    console.say()
    console.say(console.table(("epilogue op", "takes", "is"), ops))
    for text in dict.fromkeys((*unused, *unusable)):
        console.note(f"  note: {text}")


def _installed_op(name: str) -> tuple[str, str, str]:
    """The row of an op that another package offers."""
    from cutegen.epilogue import EpilogueOp, Unusable, find_installed, load_op

    op, origin = load_op(name), find_installed().offers[name][0].distribution
    if isinstance(op, EpilogueOp):
        return name, op.arity_text(), f"{op.doc} ({origin})"
    assert isinstance(op, Unusable)
    return name, "-", f"not usable: {op.reason}"


@click.command()
@click.argument("family", default=next(iter(FAMILIES)), shell_complete=complete_families)
@click.option("-o", "--output", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE", help="Write a file.")
def schema(family: str, output: Path | None) -> None:
    """Print the JSON schema of a family's specs, for editors.

    A spec names its schema in its first line; `cutegen new` writes both. That gives completion and checks in editors
    that know the YAML language server:

        # yaml-language-server: $schema=schema/gemm.json
    """
    from cutegen.families.registry import load_spec_model
    from cutegen.spec.schema import schema_text

    check_family(family)
    text = schema_text(load_spec_model(family))
    if output is None:
        click.echo(text, nl=False)
    else:
        write_output(output, text)


@click.command(hidden=True)
@click.argument("specs", nargs=-1, required=True, type=click.Path(path_type=Path, exists=True, dir_okay=False))
@click.option("-o", "--output", type=click.Path(path_type=Path, dir_okay=False), help="Write a file.")
def names(specs: tuple[Path, ...], output: Path | None) -> None:
    """Print the names that packages of SPECS add to those of the specs: a family's generated_names.json.

    The specs are of one family, and have every form of its templates.
    """
    from cutegen.render.names_table import collect, probe_file, table_text

    text = table_text(collect(map(probe_file, specs)))
    if output is None:
        click.echo(text, nl=False)
    else:
        write_output(output, text)


@click.command(hidden=True)
@click.option("--check", is_flag=True, help="Write nothing; exit 1 when a page is not what would be written.")
@click.option("-o", "--output", "folder", type=click.Path(path_type=Path, file_okay=False), default=Path("docs"),
              metavar="DIR", show_default=True, help="Folder of the pages.")  # fmt: skip
def docs(check: bool, folder: Path) -> int:
    """Regenerate the reference pages from models, rules and ops, and the tables and the chart from stored results."""
    from cutegen.cli.explain_word import INDEX
    from cutegen.cli.pages import draw_charts, fill_sections, list_pages
    from cutegen.cli.reference import pages, words

    texts = {INDEX: words(), **{folder / name: text for name, text in pages().items()}, **draw_charts(folder)}
    for page in list_pages(folder):
        if page not in texts and (text := fill_sections(page, folder.resolve().parent)) is not None:
            texts[page] = text
    stale = [path for path, text in texts.items() if not path.is_file() or path.read_text(encoding="utf-8") != text]
    if not check:
        write_texts({path: texts[path] for path in stale})
    for path in stale:
        console.say(f"{_shorten(path)}: {console.verdict(False, 'stale') if check else 'written'}")
    return int(check and bool(stale))


def _shorten(path: Path) -> str:
    """Relative to the current folder where it is in it, so that the line can be pasted into a command."""
    return str(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path)


def _archs(arch: object) -> str:
    return ", ".join(map(str, arch)) if isinstance(arch, list) else str(arch)


def _summary(path: Path) -> str:
    """The first sentence of the comment that a spec begins with; what is for an editor left out."""
    comment = takewhile(lambda line: line.startswith("#"), path.read_text(encoding="utf-8").splitlines())
    text = " ".join(line.lstrip("# ").rstrip() for line in comment if "yaml-language-server" not in line)
    return text.partition(". ")[0].removesuffix(".")


def _first_line(text: str | None) -> str:
    return (text or "").strip().partition("\n")[0]
