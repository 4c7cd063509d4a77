"""`cutegen render`: specs to generated packages, or what would change."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import click

from cutegen.cli.annotations import annotation
from cutegen.cli.console import (
    attempt,
    claim_name,
    default_output,
    drop_winners_option,
    findings,
    format_option,
    mark,
    note,
    output_option,
    print_json,
    report,
    say,
    specs_argument,
    written_files,
)
from cutegen.cli.stdin import READERS, refuse_unnamed, stdin_option, typed_text
from cutegen.diagnostics import CutegenError, plain_lines, printable
from cutegen.render import (
    Drift,
    RenderedPackage,
    compare_package,
    make_standalone,
    refuse_left_out,
    render_package,
    share_parts,
    write_package,
)
from cutegen.render.origin import Line, find_origins
from cutegen.render.standalone import INNER
from cutegen.resolve import Resolution, resolve_archs, save_lock

CODE_WIDTH = 88  # columns of generated lines that --origin aligns what wrote them behind


@dataclass(frozen=True, slots=True)
class _Rendered:
    """A package, and the resolutions of its spec; none of what several packages share."""

    package: RenderedPackage
    found: Sequence[Resolution] = ()
    notes: Sequence[str] = ()


@click.command()
@specs_argument
@stdin_option
@click.option("--check", is_flag=True, help="Write nothing; exit 1 when a file differs from what would be rendered.")
@click.option("--diff", is_flag=True, help="Write nothing; show what would change, and exit 1 if anything would.")
@click.option("--locked", is_flag=True, help="Fail when the lock is missing, stale or does not hold.")
@drop_winners_option
@click.option(
    "--standalone",
    is_flag=True,
    help="Copy the parts of cutegen that the package uses into it; those of several specs share one copy, "
    "OUTPUT/_cutegen.",
)
@click.option(
    "--origin",
    is_flag=True,
    help="Write nothing; show what wrote each line of kernel modules and of the plan: "
    "a line of a template, and fields of the objects that it reads.",
)
@click.option(
    "--file", default="", metavar="FILE[:LINE]", help="One file of the package for --origin, or a line of it."
)
@output_option
@format_option
def render(
    specs: list[Path],
    check: bool,
    diff: bool,
    locked: bool,
    drop_winners: bool,
    standalone: bool,
    origin: bool,
    file: str,
    output: Path,
    as_json: bool,
) -> int:
    """Render each spec to OUTPUT/NAME, and write its lock when there is none or a decision had to change."""
    if origin or file:
        others = {"--check": check, "--diff": diff, "--standalone": standalone, "--drop-winners": drop_winners}
        return _show_origins(specs, [name for name, given in others.items() if given], origin, file, locked, as_json)
    if not (check or diff) and any(typed_text(path) is not None for path in specs):
        raise CutegenError("no package is written from standard input", READERS, exit_code=2)
    for path in specs if locked or check else ():
        refuse_unnamed(path)
    if drop_winners and (check or diff or locked):
        raise CutegenError("--drop-winners changes locks: leave out --check, --diff and --locked", exit_code=2)
    shared = standalone and len(specs) > 1
    owners: dict[str, Path] = {}

    def prepare(path: Path) -> _Rendered:
        found = resolve_archs(path, locked=locked or check, raw=typed_text(path), drop_winners=drop_winners)
        package = render_package(*(resolution.resolved for resolution in found))
        claim_name(owners, package.name, path)
        notes = [text for resolution in found for text in resolution.notes]
        return _Rendered(make_standalone(package) if standalone and not shared else package, found, notes)

    def settle(path: Path, made: _Rendered) -> dict[str, object]:
        """Writes the package, or compares it; the row of its spec."""
        name = made.package.name
        if not as_json:
            for text in made.notes:
                note(f"{path}: {text}")
        if check or diff:
            drifts = compare_package(made.package, output)
            changed = [{"file": str(d.path), "kind": d.kind} for d in drifts]
            if not as_json:
                options = " --standalone" * standalone + f" -o {output}" * (output != default_output())
                command = f"cutegen render {' '.join(map(str, specs if shared else [path]))}{options}"
                _show(path, drifts, diff, f"run `{command}` and commit the result")
        else:
            for resolution in made.found:
                save_lock(resolution, path)
            written = write_package(made.package, output)
            changed = [{"file": str(p), "kind": "written"} for p in written]
            if not as_json:
                say(f"{path}: {output / name}: {written_files(written)}")
        ok = not (changed and (check or diff))
        row = {"spec": str(path), "ok": ok, "findings": [], "package": str(output / name)}
        return {**row, "changed": changed, "notes": made.notes}

    every: Iterable[tuple[Path, _Rendered | CutegenError]] = ((path, attempt(prepare, path)) for path in specs)
    if shared:
        every = _share(list(every), output)
    results: list[dict[str, object]] = []
    code = 0
    for path, made in every:
        try:
            if isinstance(made, CutegenError):
                raise made
            results.append(settle(path, made))
            code = max(code, int(not results[-1]["ok"]))
        except CutegenError as error:
            code = max(code, error.exit_code)
            results.append({"spec": str(path), "ok": False, "findings": findings(error)})
            report(error, path)
    if as_json:
        print_json(results)
    return code


def _share(
    every: Sequence[tuple[Path, _Rendered | CutegenError]], output: Path
) -> list[tuple[Path, _Rendered | CutegenError]]:
    """The same with one copy of cutegen's modules, which is the last. Where one spec has errors, so have all: what is
    shared would lack what that one needs."""
    made = [(path, item) for path, item in every if not isinstance(item, CutegenError)]
    if len(made) < len(every):
        bad = next(path for path, item in every if isinstance(item, CutegenError))
        return [(path, item if isinstance(item, CutegenError) else _left(path, bad)) for path, item in every]
    *packages, parts = share_parts([item.package for _, item in made])
    refuse_left_out(packages, output)
    sharing = [(path, replace(item, package=package)) for (path, item), package in zip(made, packages)]
    return [*sharing, (Path(INNER), _Rendered(parts))]


def _left(path: Path, bad: Path) -> CutegenError:
    said = f"{path} is not rendered: it would share {INNER} with {bad}, which has errors"
    return CutegenError(said, "mend that one first, or render this one alone")


def _show(path: Path, drifts: tuple[Drift, ...], diff: bool, remedy: str) -> None:
    if not drifts:
        say(f"{path}: up to date")
    for drift in drifts:
        say(f"{path}: {printable(str(drift.path))} is {drift.kind}")
        if diff and drift.foreign:
            note(f"  note: it was not generated by cutegen, so its text is not shown: {drift.path}")
        elif diff and drift.diff:
            say(plain_lines(drift.diff))
    if drifts and not diff:
        note(f"  = help: {remedy}")
    mark(annotation(f"{d.path} is {d.kind}\n{remedy}", d.path if d.path.exists() else path) for d in drifts)


def _show_origins(specs: list[Path], others: list[str], origin: bool, file: str, locked: bool, as_json: bool) -> int:
    """others: options that say what a render does with a package, which this does not write."""
    if not origin:
        raise CutegenError("--file is for --origin", "add --origin", exit_code=2)
    if others:
        said = "--origin shows a package, and neither writes nor compares it"
        raise CutegenError(said, f"leave out {', '.join(others)}", exit_code=2)
    if len(specs) > 1:
        raise CutegenError(f"--origin shows the package of one spec, not of {len(specs)}", "name one", exit_code=2)
    (path,) = specs
    if locked:
        refuse_unnamed(path)
    try:
        resolutions = resolve_archs(path, locked=locked, raw=typed_text(path))
        notes = [text for resolution in resolutions for text in resolution.notes]
        kernels = [resolution.resolved for resolution in resolutions]
        package = render_package(*kernels)
        found = _chosen(find_origins(kernels[0], package, *kernels[1:]), package.name, file)
    except CutegenError as error:
        report(error, path)
        if as_json:
            print_json([{"spec": str(path), "ok": False, "findings": findings(error)}])
        return error.exit_code
    if as_json:
        files = {name: [line.to_json() for line in lines] for name, lines in found.items()}
        print_json([{"spec": str(path), "ok": True, "findings": [], "files": files, "notes": notes}])
        return 0
    for text in notes:
        note(f"{path}: {text}")
    for name, lines in found.items():
        if len(found) > 1:
            say(f"{package.name}/{name}")
        for line in lines:
            say(plain_lines(f"{line.number:>4}  {line.text:<{CODE_WIDTH}}  {line.describe()}".rstrip()))
    return 0


def _chosen(files: dict[str, tuple[Line, ...]], package: str, wanted: str) -> dict[str, tuple[Line, ...]]:
    """wanted: FILE[:LINE], below the package or with its folder; "" for its kernel modules and plan. CutegenError
    (exit 2): there is no such file, or no such line in it."""
    if not wanted:
        shown = [name for kind in ("kernel", "plan") for name in files if name.startswith(kind)]
        return {name: files[name] for name in shown}
    name, _, number = wanted.partition(":")
    path = Path(name)
    if path.name not in files or path.parent.name not in ("", package):
        raise CutegenError(f"{package} has no file `{name}`", f"its files are {', '.join(files)}", exit_code=2)
    lines = files[path.name]
    if number and not (number.isdecimal() and 1 <= int(number) <= len(lines)):
        raise CutegenError(f"{path.name} has no line `{number}`", f"it has lines 1 to {len(lines)}", exit_code=2)
    return {path.name: tuple(line for line in lines if not number or line.number == int(number))}
