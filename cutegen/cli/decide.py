"""Commands about decisions: resolve, lock, pin, explain."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cutegen.cli import console
from cutegen.cli.explain_word import complete_words, explain_word, refuse_word
from cutegen.cli.stdin import STDIN, refuse_unnamed, stdin_option, typed_text
from cutegen.diagnostics import CutegenError

if TYPE_CHECKING:
    from cutegen.families.section import Section
    from cutegen.resolve import Resolution

_upgrade = click.option(
    "--upgrade", is_flag=True, help="Decide everything again, ignoring the lock; keeps tuned winners."
)
_locked = click.option("--locked", is_flag=True, help="Fail when the lock is missing, stale or does not hold.")


@click.command()
@console.specs_argument
@stdin_option
@_locked
@_upgrade
@console.format_option
def resolve(specs: list[Path], locked: bool, upgrade: bool, as_json: bool) -> int:
    """Print every decision and derived number with its reason; write nothing."""
    from cutegen.resolve import resolve_archs

    if locked and upgrade:
        raise CutegenError("--locked and --upgrade exclude each other", "give one of them", exit_code=2)
    for path in specs if locked else ():
        refuse_unnamed(path)

    def run(path: Path) -> tuple[Resolution, ...]:
        return resolve_archs(path, locked=locked, upgrade=upgrade, raw=typed_text(path))

    results = {path: console.attempt(run, path) for path in specs}
    if as_json:
        console.print_json([row for path, result in results.items() for row in _as_json(path, result)])
    for path, result in results.items():
        if isinstance(result, CutegenError):
            console.report(result, path)
        else:
            for resolution in () if as_json else result:
                _print_resolution(path, resolution)
    return console.worst(results.values())


@click.command()
@console.specs_argument
@click.option("--check", is_flag=True, help="Write nothing; exit 1 when a file is of an older version.")
@console.format_option
def migrate(specs: list[Path], check: bool, as_json: bool) -> int:
    """Bring specs and their locks to the version of today: keys that have another name, or are gone.

    Comments and layout of a spec stay; decisions and winners of a lock do, too. A spec of a later version is an error.
    """
    from cutegen.files import write_text
    from cutegen.resolve.migrate import migrate as migrate_file

    results = {path: console.attempt(migrate_file, path) for path in specs}
    files = [file for result in results.values() if isinstance(result, list) for file in result]
    for file in files:
        if file.changes and not check:
            write_text(file.path, file.text)
    if as_json:
        errors = [result for result in results.values() if isinstance(result, CutegenError)]
        console.print_json({
            "files": [{"path": str(f.path), "changes": f.changes, "notes": f.notes} for f in files],
            "findings": [finding for error in errors for finding in console.findings(error)],
        })  # fmt: skip
    for path, result in results.items():
        if isinstance(result, CutegenError):
            console.report(result, path)
    for file in () if as_json else files:
        console.say(f"{file.path}: {'; '.join(file.changes) or 'up to date'}")
        for text in file.notes:
            console.note(f"{file.path}: {text}")
    return console.worst(results.values(), int(check and any(file.changes for file in files)))


@click.command()
@console.specs_argument
@_upgrade
@click.option("--check", is_flag=True, help="Write nothing; exit 1 when a lock is missing, stale or does not hold.")
@console.drop_winners_option
@console.format_option
def lock(specs: list[Path], upgrade: bool, check: bool, drop_winners: bool, as_json: bool) -> int:
    """Write the lock of each spec: the decisions it leaves open, with their reasons.

    Decisions of an existing lock are kept as long as they are legal; --upgrade makes all of them again. Winners that
    are illegal by now, or were measured as something else, stay in the lock, marked `unused`.
    """
    from cutegen.resolve import lock_path, resolve_archs, save_lock
    from cutegen.resolve.toolchain import report_other_toolchains

    def run(path: Path) -> list[tuple[str, str, tuple[str, ...]]]:
        """Of each lock its path, what became of it, and notes."""
        done = []
        for resolution in resolve_archs(path, locked=check, upgrade=upgrade, drop_winners=drop_winners):
            stale = tuple(report_other_toolchains(resolution.lock.winners, path))
            result = "written" if not check and save_lock(resolution, path) else "up to date"
            done.append((str(lock_path(path, resolution.document.arch)), result, (*resolution.notes, *stale)))
        return done

    if check and upgrade:
        raise CutegenError("--check and --upgrade exclude each other", "give one of them", exit_code=2)
    if check and drop_winners:
        raise CutegenError("--check and --drop-winners exclude each other", "give one of them", exit_code=2)
    results = {path: console.attempt(run, path) for path in specs}
    rows: list[dict[str, object]] = []
    for path, result in results.items():
        if isinstance(result, CutegenError):
            failed = {"lock": str(lock_path(path)), "result": "failed", "findings": console.findings(result)}
            rows.append({"spec": str(path), "ok": False, **failed})
            console.report(result, path)
            continue
        for where, done, notes in result:
            row = {"lock": where, "result": done, "findings": [], "notes": list(notes)}
            rows.append({"spec": str(path), "ok": True, **row})
            if not as_json:
                console.say(f"{where}: {console.verdict(True, done)}")
                print_notes(notes)
    if as_json:
        console.print_json(rows)
    return console.worst(results.values())


@click.command()
@console.spec_argument
@click.option(
    "--key", "keys", multiple=True, metavar="KEY", help="Only this decision, such as tiling.tile; repeatable."
)
@console.json_option
def pin(spec: Path, keys: tuple[str, ...], as_json: bool) -> None:
    """Write decisions into the spec, where people review them; its comments and layout stay.

    The kernel stays the same. What is not pinned stays in the lock, as do knobs for which `tune` lists other values.
    Of a spec for several architectures each has its own, under `for`.
    """
    from cutegen.families.knobs import show
    from cutegen.files import keep_style, write_text
    from cutegen.resolve import list_open, pin_archs, save_lock, tunable_keys
    from cutegen.roots import read_file
    from cutegen.spec.text_rules import MAX_BYTES

    text, done = pin_archs(spec, keys)
    notes: list[str] = []
    added: dict[str, object] = {}
    for before, after in done:
        of = f"for.{before.document.arch}." if before.document.archs else ""
        left = () if keys else tunable_keys(before)
        notes += [*before.notes, *(f"{of}{key}: left open: `tune` lists other values for it" for key in left)]
        written = {d.key for d in after.resolved.decisions if d.origin == "spec"}
        added |= {f"{of}{key}": value for key, value in list_open(before).items() if key in written}
    print_notes(tuple(notes))
    changed = write_text(spec, keep_style(text, read_file(spec, MAX_BYTES)))
    for _, after in done:
        save_lock(after, spec)
    if as_json:
        console.print_json({"spec": str(spec), "pinned": list(added), "notes": notes})
    elif changed:
        console.say(f"{spec}: {len(added)} decision{'s' * (len(added) != 1)} written")
        console.say("\n".join(f"  {key}: {show(value)}" for key, value in added.items()))
    else:
        console.say(f"{spec}: nothing to pin")


@click.command()
@click.argument("target", metavar="SPEC|RULE|OP|KEY", shell_complete=complete_words)
@stdin_option
@click.option("--shape", callback=lambda ctx, parameter, value: _read_shape(value), metavar="DIM=EXTENT,..",
              help="A problem, such as m=4096,n=4096,k=4096, whose share of the SMs and roofline to show.")  # fmt: skip
@click.option("--why-not", metavar="KNOBS", help='Other values, such as "tile=256x256 stages=3": what refuses them?')
@console.json_option
def explain(target: str, shape: dict[str, int] | None, why_not: str | None, as_json: bool) -> None:
    """Explain a spec's kernel, a rule, an epilogue op, or a key of specs.

    For a spec: roles, pipelines, map of shared memory, registers, decisions.
    """
    path = Path(target)
    is_spec = target == STDIN or path.suffix.lower() in (".yaml", ".yml") or path.is_file()
    sections: Sequence[Section] = () if is_spec else explain_word(target)  # a folder may be called as a key is
    if sections and (shape is not None or why_not is not None):
        raise CutegenError("--shape and --why-not go with a spec", exit_code=2)
    if not sections:
        if not (is_spec or path.exists()):
            refuse_word(target)
        sections = _explain_spec(console.spec_file(path), shape, why_not)
    if as_json:
        console.print_json(
            [
                {"title": s.title, "lines": s.lines, "table": [dict(zip(_keys(s.header), row)) for row in s.rows]}
                for s in sections
            ]
        )
        return
    console.say("\n\n".join(map(_draw, sections)))


def print_notes(notes: tuple[str, ...]) -> None:
    """What was decided again, or is to be known of winners, on stderr."""
    for text in notes:
        console.note(f"  note: {text}")


def _explain_spec(path: Path, shape: dict[str, int] | None, why_not: str | None) -> Sequence[Section]:
    from cutegen.families.registry import load_family
    from cutegen.resolve import resolve_archs
    from cutegen.resolve.toolchain import report_other_toolchains

    sections: list[Section] = []
    for resolution in resolve_archs(path, raw=typed_text(path)):
        print_notes((*resolution.notes, *report_other_toolchains(resolution.lock.winners, path)))
        family = load_family(resolution.spec.kernel)
        if why_not is None:
            found = family.explain(resolution.resolved, shape)
        else:
            found = [family.why_not(resolution.spec, resolution.resolved, why_not, shape)]
        of = f"{resolution.document.arch}: " * bool(resolution.document.arch)
        sections += [replace(section, title=f"{of}{section.title}") for section in found]
    return sections


def _draw(section: Section) -> str:
    parts = [
        click.style(section.title, bold=True, underline=True),
        *(console.paragraph(f"  {line}".rstrip()) for line in section.lines),
    ]
    if section.rows:
        drawn = console.table(section.header, section.rows).splitlines()
        parts += [f"  {line}".rstrip() for line in (drawn if any(section.header) else drawn[1:])]
    return "\n".join(parts)


def _keys(header: tuple[str, ...]) -> tuple[str, ...]:
    """What JSON calls the columns; on a screen, names and their values have no headings."""
    return tuple(title or ("value" if i else "name") for i, title in enumerate(header))


def _read_shape(text: str | None) -> dict[str, int] | None:
    if text is None:
        return None
    from cutegen.run.shapes import read_shape

    return read_shape(text)


def _print_resolution(path: Path, resolution: Any) -> None:
    from cutegen.families.explanation import explain_decisions
    from cutegen.families.section import Section

    decisions = explain_decisions(resolution.resolved.decisions)
    of = f" for {resolution.document.arch}" if resolution.document.arch else ""
    console.say(_draw(replace(decisions, title=f"{path}: kernel {resolution.resolved.digest[:16]}{of}")))
    for tiling in resolution.resolved.tilings:
        numbers = tuple((f, str(getattr(tiling.numbers, f)), source) for f, source in tiling.sources.items())
        header = ("number", "value", "from")
        console.say("\n" + _draw(Section(f"Numbers of tiling {tiling.name}", header=header, rows=numbers)))
    print_notes(resolution.notes)
    console.say()


def _as_json(path: Path, result: Any) -> list[dict[str, object]]:
    if isinstance(result, CutegenError):
        return [{"spec": str(path), "ok": False, "findings": console.findings(result)}]
    return [
        {
            "spec": str(path),
            "ok": True,
            "findings": [],
            "arch": r.resolved.arch,
            "kernel": r.resolved.digest,
            "decisions": [asdict(d) for d in r.resolved.decisions],
            "tilings": [asdict(t) for t in r.resolved.tilings],
            "notes": list(r.notes),
        }
        for r in result
    ]
