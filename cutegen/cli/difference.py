"""The command that compares two specs, or two revisions of specs."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cutegen.cli import console
from cutegen.cli.targets import shapes_option
from cutegen.config import find_config
from cutegen.diagnostics import CutegenError

if TYPE_CHECKING:
    from cutegen.build.between_specs import Difference, TilingChange, TimeChange, ValueChange
    from cutegen.resolve import Resolution
    from cutegen.spec import SpecDocument

_VERSIONS = "nvidia-cutlass-dsl=="
_RANGE = re.compile(r"(?:^|[^./])\.\.(?![/.])")  # of revisions; `..` of a path has a slash beside it


@click.command()
@click.argument("what", nargs=-1, required=True, metavar="OLD NEW | A..B SPEC...")
@click.option("--no-build", is_flag=True, help="Compare what is planned, and no compiled code.")
@click.option("--exit-code", "gate", is_flag=True, help="Exit with 1 where anything differs.")
@click.option("--markdown", is_flag=True, help="Print Markdown, for a comment on a pull request.")
@click.option("-j", "--jobs", type=click.IntRange(1), metavar="N", help="Compile processes; by default one a CPU.")
@shapes_option
@console.json_option
def diff(
    what: tuple[str, ...],
    no_build: bool,
    gate: bool,
    markdown: bool,
    jobs: int | None,
    shapes: tuple[str, ...],
    as_json: bool,
) -> int:
    """Show what differs between two specs, or between git revisions A and B of specs.

    With versions of the DSL in place of revisions, `nvidia-cutlass-dsl==4.7.1..4.8.1`, what each of them makes of
    specs; a version that is not installed gets an environment of its own, which is thrown away.

    Keys of the spec, decisions, and for each tiling its numbers, registers, spills, instructions and whether its SASS
    is identical; then winners that are kept, stale or dropped. `A..` compares with the files as they are. Specs and
    locks are of the revision, and kernels are rendered from them by the cutegen that runs. With --shape times of that
    problem as well: what the cost model predicts, and what winners were measured with.
    """
    from cutegen.build.between_specs import compare_resolutions
    from cutegen.cli.progress import show_bar
    from cutegen.run.shapes import read_shape

    if what[0].startswith(_VERSIONS):
        if shapes:
            raise CutegenError("--shape: versions of the DSL have no predicted times", "leave it out", exit_code=2)
        return _compare_versions(what, no_build, gate, markdown, jobs, as_json)
    problems = [read_shape(text) for text in shapes]
    found = []
    for old, new in _pairs(what):
        with show_bar("compiling") as bar:
            found.append(compare_resolutions(old, new, build=not no_build, workers=jobs, shapes=problems,
                                             on_progress=bar.progress, on_current=bar.name))  # fmt: skip
    _say(found, markdown, as_json)
    return int(gate and not all(d.same for d in found))


def _say(found: Sequence[Difference], markdown: bool, as_json: bool) -> None:
    if as_json:
        console.print_json(differences_json(found))
        return
    for difference in found:
        console.say(show_difference(difference, markdown))


def differences_json(found: Sequence[Difference]) -> list[dict[str, Any]]:
    return [{"same": difference.same, **asdict(difference)} for difference in found]


def show_difference(difference: Difference, markdown: bool) -> str:
    """As text, or as Markdown."""
    return "\n".join(_markdown(difference) if markdown else _text(difference))


def _compare_versions(
    what: Sequence[str], no_build: bool, gate: bool, markdown: bool, jobs: int | None, as_json: bool
) -> int:
    """`nvidia-cutlass-dsl==A..B SPEC...`."""
    from cutegen.cli.upgrade import compare_versions

    if no_build or ".." not in what[0]:
        said = f"{what[0]}: versions of the DSL differ in what they compile"
        raise CutegenError(said, f"write {_VERSIONS}4.7.1..4.8.1, without --no-build", exit_code=2)
    old, new = what[0].removeprefix(_VERSIONS).split("..", 1)
    _, found = compare_versions(_named_specs(what), old, new, jobs=jobs)
    _say(found, markdown, as_json)
    return int(gate and not all(d.same for d in found))


def say_upgrade(title: str, found: Sequence[Difference], markdown: bool, as_json: bool) -> int:
    """Prints what an upgrade changes. The exit code of a gate: 1 where a kernel gets worse."""
    worse = [
        f"{difference.name}, {tiling.tiling}: {', '.join(tiling.worse)}"
        for difference in found
        for tiling in difference.tilings
        if tiling.worse
    ]
    if as_json:
        console.print_json({"upgrade": title, "ok": not worse, "worse": worse, "specs": differences_json(found)})
        return int(bool(worse))
    console.say(f"## {title}\n" if markdown else f"{title}\n")
    for difference in found:
        console.say(f"{show_difference(difference, markdown)}\n")
    kernels = sum(len(difference.tilings) for difference in found)
    verdict = "none got worse" if not worse else f"{len(worse)} got worse:"
    console.say(f"{kernels} kernels of {len(found)} specs: {verdict}")
    for text in worse:
        console.say(f"- {text}" if markdown else f"  {text}")
    return int(bool(worse))


def _named_specs(what: Sequence[str]) -> list[Path]:
    """Those behind the range, or those of pyproject.toml."""
    named = [*map(Path, what[1:])] or [*find_config(Path.cwd()).existing_specs()]
    if not named:
        raise CutegenError(f"{what[0]}: of which specs?", "name specs or a folder after it", exit_code=2)
    return console.spec_files(named)


def _pairs(what: Sequence[str]) -> list[tuple[Resolution, Resolution]]:
    """Old and new of each comparison. CutegenError: they cannot be told or read."""
    from cutegen.resolve import resolve_archs

    if not _RANGE.search(what[0]) or os.path.exists(what[0]):
        if len(what) != 2:
            remedy = "give an old and a new spec, or revisions as `main..HEAD` and then specs"
            raise CutegenError(f"two specs are compared, and there are {len(what)}", remedy, exit_code=2)
        return _by_arch(resolve_archs(Path(what[0])), resolve_archs(Path(what[1])), " and ".join(what))
    old, new = what[0].split("..", 1)
    specs = _named_specs(what)
    return [
        pair
        for path in specs
        for pair in _by_arch(_at(old or "HEAD", path), _at(new, path) if new else resolve_archs(path), str(path))
    ]


def _by_arch(old: Sequence[Resolution], new: Sequence[Resolution], what: str) -> list[tuple[Resolution, Resolution]]:
    """A pair for each architecture; those of specs for one are compared whichever they are for."""
    if len(old) == len(new) == 1:
        return [(old[0], new[0])]
    before, after = ({r.resolved.arch: r for r in found} for found in (old, new))
    if before.keys() != after.keys():
        said = f"{what}: one is for {' and '.join(before)}, the other one for {' and '.join(after)}"
        raise CutegenError(said, "compare specs for the same architectures", exit_code=2)
    return [(before[arch], found) for arch, found in after.items()]


def _at(revision: str, path: Path) -> tuple[Resolution, ...]:
    """A spec, with its locks, as a revision has them: a resolution for each architecture."""
    from cutegen.cli.revisions import find_commit, read_revision
    from cutegen.resolve import resolve_parts, split_document
    from cutegen.spec.load import load_document

    commit = find_commit(revision, path.parent)
    raw = read_revision(commit, path)
    if raw is None:
        remedy = "name a spec that both revisions have, or compare two files"
        raise CutegenError(f"{revision} has no {path}", remedy, exit_code=2)
    parts = split_document(load_document(path, raw))
    return resolve_parts(parts, lambda part: _resolve_at(revision, commit, path, part))


def _resolve_at(revision: str, commit: str, path: Path, document: SpecDocument) -> Resolution:
    from cutegen.cli.revisions import read_revision
    from cutegen.resolve import lock_path, read_lock, resolve_document
    from cutegen.runtime.temporary import temporary_folder

    file = lock_path(path, document.arch)
    held = read_revision(commit, file)
    if held is None:
        return resolve_document(document, None)
    with temporary_folder() as folder:
        copy = folder / file.name
        copy.write_bytes(held)
        try:
            lock = read_lock(copy)
        except CutegenError as error:
            said = str(error).replace(str(copy), f"{revision}:{file}")
            raise CutegenError(said, "compare with another revision", exit_code=2) from None
    return resolve_document(document, lock)


def _shown(value: object) -> str:
    if value is None:
        return "-"
    return "x".join(map(str, value)) if isinstance(value, tuple) else str(value)


def _arrow(change: ValueChange) -> str:
    """`5 -> 4`, and by how much where both are numbers."""
    text = f"{_shown(change.old)} -> {_shown(change.new)}"
    numbers = [v for v in (change.old, change.new) if isinstance(v, int) and not isinstance(v, bool)]
    return f"{text} ({(numbers[1] / numbers[0] - 1) * 100:+.1f}%)" if len(numbers) == 2 and numbers[0] else text


def _of_tiling(tiling: TilingChange) -> str:
    """What changed of a tiling, in a line. One that came or went has the numbers that it is chosen by."""
    if tiling.code in ("added", "removed"):
        kept = ("tile", "stages", "smem_bytes", "registers", "instructions")
        values = ((c.name, c.old if tiling.code == "removed" else c.new) for c in tiling.changes if c.name in kept)
        return ", ".join(f"{name} {_shown(value)}" for name, value in values)
    return ", ".join(f"{c.name} {_arrow(c)}" for c in tiling.changes)


def _time(side: tuple[float, str] | None) -> str:
    return f"{side[0]:.4g} ({side[1]})" if side else "-"


def _ratio(change: TimeChange) -> str:
    return f"{change.new[0] / change.old[0]:.3f}" if change.old and change.new else ""


def _counted(words: Iterable[str]) -> str:
    return ", ".join(f"{count} {word}" for word, count in Counter(words).items())


def _sections(difference: Difference) -> list[tuple[str, tuple[str, ...], list[tuple[Any, ...]]]]:
    """(title, header, rows) of what differs."""
    sections: list[tuple[str, tuple[str, ...], list[tuple[Any, ...]]]] = []
    for title, changes in (("spec", difference.keys), ("decisions", difference.decisions)):
        if changes:
            rows = [(c.name, _shown(c.old), _shown(c.new)) for c in changes]
            sections.append((title, ("key", "old", "new"), rows))
    title = f"tilings, by their code: {_counted(t.code for t in difference.tilings)}"
    rows = [(t.tiling, t.code, _of_tiling(t)) for t in difference.tilings if not t.same]
    sections.append((title, ("tiling", "SASS", "what changed"), rows))
    if difference.times:
        times = [(t.shape, t.how, _time(t.old), _time(t.new), _ratio(t)) for t in difference.times]
        sections.append(("times, us", ("problem", "", "old", "new", "new / old"), times))
    if difference.winners:
        title = f"winners: {_counted(w.state for w in difference.winners)}"
        winners = [
            (w.state, w.device, w.calls, w.tiling, f"{w.us:g}", f"{w.gain:.2f}x" if w.gain else "", w.why)
            for w in difference.winners
            if w.state != "kept"
        ]
        sections.append((title, ("", "device", "calls", "tiling", "us", "gain", "why"), winners))
    return sections


def _text(difference: Difference) -> list[str]:
    lines = [f"{difference.name}: {'nothing differs' if difference.same else 'differs'}"]
    for title, header, rows in _sections(difference):
        lines.append(f"\n{title}")
        if rows:
            lines.append(console.table(header, rows))
    return lines


def _markdown(difference: Difference) -> list[str]:
    lines = [f"### `{difference.name}`{': nothing differs' if difference.same else ''}", ""]
    for title, header, rows in _sections(difference):
        lines += [f"**{title}**", ""]
        if rows:
            table = [header, ["---"] * len(header), *rows]
            lines += [f"| {' | '.join(str(c).replace('|', chr(92) + '|') for c in row)} |" for row in table] + [""]
    return lines
