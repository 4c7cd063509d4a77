"""Tables of results for a page."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path


def draw_tables(
    files: Sequence[Path], by: str | None, full: bool, below: float | None, together: bool, kernels: Sequence[str],
    libraries: Sequence[str], page: Path | None = None, root: Path = Path(),
) -> str:  # fmt: skip
    """Of the results in these files, below `root`. page: where the tables will stand; links are relative to it.
    CutegenError (exit 2): a file is not a result, or there is nothing to show."""
    from cutegen.report.markdown import Source, View, markdown
    from cutegen.report.result import load_result

    dims = tuple(filter(None, (by or "").replace(" ", "").split(",")))
    sources = [Source(link_from(root / file, page), load_result(root / file)) for file in files]
    return markdown(sources, View(dims, full, below, together, tuple(kernels), tuple(libraries)))


def link_from(file: Path, page: Path | None) -> str:
    return Path(os.path.relpath(file, page.parent) if page else file).as_posix()
