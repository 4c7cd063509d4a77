"""What `check`, `bench` and `tune` are given: specs, generated packages, Python files, and shapes."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import click

from cutegen.cli import console

targets_argument = click.argument("targets", nargs=-1, required=True, metavar="SPEC|FILE.py|PACKAGE...",
                                  callback=lambda ctx, parameter, value: target_files(map(Path, value)))  # fmt: skip
shapes_option = click.option("--shape", "shapes", multiple=True, metavar="DIM=EXTENT,..",
                             help="A problem; may be repeated.",
                             callback=lambda ctx, parameter, value: _readable(value))  # fmt: skip


def target_files(paths: Iterable[Path]) -> list[Path]:
    """Python files and generated packages as they are; specs, and the specs of a folder."""
    found: list[Path] = []
    for path in console.without_locks(paths):
        plain = path.suffix == ".py" or (path / "plan.py").is_file()
        found += [path] if plain and path.exists() else console.spec_files([path])
    return list(dict.fromkeys(found))


def _readable(shapes: tuple[str, ...]) -> tuple[str, ...]:
    """The same texts. CutegenError before anything is built or run: one is no shape."""
    from cutegen.run.shapes import read_shape

    for text in shapes:
        read_shape(text)
    return shapes
