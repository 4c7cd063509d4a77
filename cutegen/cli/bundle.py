"""The command that compiles kernels for processes without a compiler."""

from __future__ import annotations

import shlex
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import click

from cutegen.cli import console
from cutegen.diagnostics import CutegenError

if TYPE_CHECKING:
    from cutegen.resolve import Resolution


@click.command()
@console.specs_argument
@click.option("-o", "--output", type=click.Path(path_type=Path), required=True, metavar="DIR",
              help="The folder of the bundle, whose name is imported.")  # fmt: skip
@click.option("--tiling", "tilings", multiple=True, metavar="PATTERN",
              help="Only tilings of such names, as t64*; may be repeated.")  # fmt: skip
@click.option("--wheel", metavar="NAME==VERSION", help="Make a wheel of the bundle as well, next to DIR.")
@click.option("-j", "--jobs", type=click.IntRange(1), metavar="N", help="Compile processes; by default one a CPU.")
@console.json_option
def bundle(
    specs: list[Path], output: Path, tilings: tuple[str, ...], wheel: str | None, jobs: int | None, as_json: bool
) -> int:
    """Compile all kernels of specs into one library, with plans that need torch and apache-tvm-ffi alone.

    `from DIR.NAME import PLAN` is the plan of spec NAME, with the dispatch of its package; `DIR/DIR.h` declares the
    same for C and C++. Calls never compile. Nothing is written where a kernel does not compile or is not as planned
    (exit code 1; 2: not compiled for want of disk, memory or a C compiler).
    """
    from cutegen.build.bundling import check_output, write_bundle
    from cutegen.build.wheel import read_name, write_wheel
    from cutegen.cli.progress import show_bar
    from cutegen.resolve import resolve_archs

    start = time.perf_counter()
    check_output(output)
    named = read_name(wheel) if wheel else None
    owners: dict[str, Path] = {}

    def resolve(path: Path) -> tuple[Resolution, ...]:
        found = resolve_archs(path)
        console.claim_name(owners, found[0].resolved.name, path)
        return found

    results = {path: console.attempt(resolve, path) for path in specs}
    if errors := {path: r for path, r in results.items() if isinstance(r, CutegenError)}:
        for path, error in errors.items():
            console.report(error, path, end="\n")
        return console.worst(errors.values())
    resolved = {path: r for path, r in results.items() if not isinstance(r, CutegenError)}
    for path, found in resolved.items():
        for text in (text for resolution in found for text in resolution.notes):
            console.note(f"{path}: {text}")
    command = shlex.join(["cutegen", "bundle", *map(str, specs), "-o", str(output)])
    with show_bar("compiling") as bar:
        made = write_bundle(resolved, output, command, tilings=tilings, workers=jobs,
                            on_progress=bar.progress, on_current=bar.name)  # fmt: skip
    packed = write_wheel(output, made.manifest, named) if named else None
    seconds = time.perf_counter() - start
    if as_json:
        facts = {"bytes": made.size, "runtime_bytes": made.runtime, "seconds": round(seconds, 3)}
        of = {"wheel": str(packed)} if packed else {}
        console.print_json({"folder": str(output), **of, **facts, "manifest": made.manifest})
        return 0
    counts = Counter(kernel["spec"] for kernel in made.manifest["kernels"])
    rows = [(name, facts["arch"], counts[name]) for name, facts in made.manifest["specs"].items()]
    console.say(console.table(("spec", "arch", "kernels"), rows))
    cached = sum(report.outcome.cached for report in made.reports)
    own = (made.size - made.runtime) / 1e6
    console.note(
        f"\n{output}: {len(made.reports)} kernels in {seconds:.1f} s ({cached} from the cache); {own:.1f} MB, and "
        f"{made.runtime / 1e6:.1f} MB of NVIDIA's runtime, whose licence holds for that copy"
    )
    if packed:
        console.note(f"{packed}: {packed.stat().st_size / 1e6:.1f} MB")
    return 0
