"""Whether tests find faults: each mutant is one wrong text in a copy of the checkout, and a test has to fail there.

    python tests/mutants.py                  run all, write docs/measurements/mutants.json and docs/mutants.md
    python tests/mutants.py NAME... --check  run these, write nothing; exit code 1 where one survives

A mutant runs the tests that should find it, up to the first failure. What survives those is run through all tests
without a GPU if `--fall-back` says so. Mutants of templates and of `device/` are judged by kernels that are compiled
and run on the PTX machine, not by the text of generated/.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from mutant_list import IN_CODE, IN_KERNELS, MUTANTS, Mutant

ROOT = Path(__file__).parents[1]
RESULTS, PAGE = Path("docs/measurements/mutants.json"), Path("docs/mutants.md")
ENDLESS_S = 900  # of a mutant's tests; one that takes longer hangs, and a suite that hangs has found it


class StaleError(Exception):
    """A mutant's text is not in its file, or more than once."""


def changed_text(mutant: Mutant, root: Path = ROOT) -> str:
    """The file with the fault. StaleError: the checkout does not have the old text once."""
    text = (root / mutant.file).read_text(encoding="utf-8")
    if (count := text.count(mutant.old)) != 1:
        raise StaleError(f"{mutant.name}: {mutant.file} has {count} times what the mutant replaces; write it again")
    return text.replace(mutant.old, mutant.new)


def copy_checkout(folder: Path) -> None:
    """What git has of the working tree, or would add."""
    listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(listed, cwd=ROOT, check=True, capture_output=True, text=True).stdout.split("\0")
    for name in filter(None, names):
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name)


def environment_of(folder: Path) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(folder), "CUTEGEN_CACHE_DIR": str(folder / ".cache-of-mutants")}


def render_again(folder: Path) -> None:
    """The packages of generated/, of a copy whose templates have a fault."""
    command = [sys.executable, "-m", "cutegen", "render", "specs"]
    subprocess.run(command, cwd=folder, env=environment_of(folder), check=True, capture_output=True)


def run_tests(folder: Path, tests: Sequence[str]) -> str | None:
    """The first test that fails in a copy; "" if they hang; None if all pass."""
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "-m", "not gpu", *tests]
    try:
        run = subprocess.run(
            command, cwd=folder, env=environment_of(folder), capture_output=True, text=True, timeout=ENDLESS_S
        )
    except subprocess.TimeoutExpired:
        return ""
    if run.returncode == 0:
        return None
    if failed := re.search(r"^(?:FAILED|ERROR) (\S+)", run.stdout, re.MULTILINE):
        return failed[1] if failed[1].count("[") == failed[1].count("]") else failed[1].partition("[")[0]
    raise RuntimeError(f"{' '.join(command)}: exit code {run.returncode}\n{run.stdout[-2000:]}{run.stderr[-2000:]}")


def judge(mutant: Mutant, fall_back: bool) -> dict[str, Any]:
    """What becomes of one mutant, in a copy of its own."""
    with tempfile.TemporaryDirectory(prefix="cutegen-mutant-") as name:
        folder = Path(name)
        copy_checkout(folder)
        (folder / mutant.file).write_text(changed_text(mutant), encoding="utf-8")
        if mutant.file.startswith("templates/"):
            render_again(folder)
        test = run_tests(folder, mutant.tests)
        if test is None and fall_back:
            test = run_tests(folder, ["tests"])
    found = test is not None
    print(f"{mutant.name}: {test or 'hangs' if found else 'SURVIVES'}", flush=True)
    return {
        "name": mutant.name,
        "part": mutant.part,
        "file": mutant.file,
        "found": found,
        "by": test or "",
    }


def draw_page(rows: Sequence[Mapping[str, Any]]) -> str:
    """docs/mutants.md, from what mutants.json holds."""
    return "\n".join([*_draw_page(rows), ""])


def _draw_page(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    unseen = {mutant.name: mutant.unseen or "not known why" for mutant in MUTANTS}
    yield "# Faults that the tests find"
    yield ""
    yield "Each row is one wrong text in a copy of the checkout. The test is the first that fails then, of those that"
    yield "the fault concerns. `python tests/mutants.py` runs them again and writes this page, from"
    yield f"[its data]({RESULTS.relative_to('docs')})."
    for part in (IN_CODE, IN_KERNELS):
        own = [row for row in rows if row["part"] == part]
        yield ""
        yield f"## In {part}: {sum(row['found'] for row in own)} of {len(own)}"
        yield ""
        yield "| fault | in | found by |"
        yield "| --- | --- | --- |"
        for row in own:
            by = f"none: {unseen[row['name']]}" if not row["found"] else "a test that hangs"
            if row["by"]:
                by = f"`{row['by'].removeprefix('tests/')}`"
            yield f"| {row['name']} | `{row['file']}` | {by.replace('|', chr(92) + '|')} |"


def write_results(found: Sequence[Mapping[str, Any]]) -> None:
    """With what is held of other mutants, in their order."""
    results = ROOT / RESULTS
    held = json.loads(results.read_text(encoding="utf-8")) if results.exists() else []
    rows = {row["name"]: row for row in [*held, *found]}
    kept = [rows[mutant.name] for mutant in MUTANTS if mutant.name in rows]
    results.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")
    (ROOT / PAGE).write_text(draw_page(kept), encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python tests/mutants.py", description=__doc__)
    parser.add_argument("names", nargs="*", help="of mutants, or parts of names; all of them by default")
    parser.add_argument("--check", action="store_true", help="write nothing")
    parser.add_argument("--fall-back", action="store_true", help="run all tests where the expected ones find nothing")
    parser.add_argument("--jobs", type=int, default=1, help="mutants at a time")
    options = parser.parse_args()
    for mutant in MUTANTS:
        changed_text(mutant)
    chosen = [m for m in MUTANTS if not options.names or any(name in m.name for name in options.names)]
    found = []
    with ThreadPoolExecutor(options.jobs) as pool:
        for row in pool.map(lambda mutant: judge(mutant, options.fall_back), chosen):
            found.append(row)
            if not options.check:
                write_results(found)  # each as it comes: all of them take an hour
    survivors = [row["name"] for row in found if not row["found"]]
    print(f"{len(found) - len(survivors)} of {len(found)} found")
    sys.exit(1 if survivors else 0)


if __name__ == "__main__":
    main()
