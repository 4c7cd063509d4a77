"""`python -m tests.sass FOLDER [SPEC ...]` writes the SASS of shipped kernels, one tiling of each kernel module,
without the names of symbols and the addresses of instructions; `python -m tests.sass --compare BASE NEW` lists the
modules whose SASS differs, or that only one of the two folders has, and then exits with 1.

A change of names, comments or layout in generated source must not show here. SPEC: names of specs/; all if none.
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
from pathlib import Path

from cutegen.build.kernels import build_kernels
from cutegen.resolve import resolve_file

SPECS = Path(__file__).parents[1] / "specs"
_ENTRY = re.compile(r"^\s*\.global\s+([\w$.]+)\s*$", re.MULTILINE)
_ADDRESS = re.compile(r"^\s*/\*[0-9a-f]{4,}\*/\s*")
_LABEL = re.compile(r"\.L_\w+")


def neutralise(sass: str) -> str:
    """Instructions and labels, a line each: what nvdisasm prints, without what names and places it."""
    for entry in sorted(_ENTRY.findall(sass), key=len, reverse=True):
        sass = sass.replace(entry, "KERNEL")
    labels: dict[str, str] = {}
    kept = []
    for line in sass.splitlines():
        instruction = _ADDRESS.match(line)
        if instruction or line.lstrip().startswith(".L_"):
            text = line[instruction.end() :] if instruction else line
            kept.append(_LABEL.sub(lambda m: labels.setdefault(m[0], f"L{len(labels)}"), text.strip()))
    return "\n".join(kept) + "\n"


def dump(folder: Path, names: list[str]) -> list[str]:
    """Writes FOLDER/SPEC/MODULE.sass of each kernel module; the kernels that did not build."""
    files = [SPECS / f"{name}.yaml" for name in names] or sorted(SPECS.glob("*_sm90a.yaml"))
    failed = []
    for file in files:
        resolved = resolve_file(file).resolved
        with tempfile.TemporaryDirectory() as kept:
            reports = build_kernels([resolved], sample=True, workers=1, keep=Path(kept))
            failed += [
                f"{report.spec} {report.tiling}: {report.outcome.error}" for report in reports if report.outcome.error
            ]
            for tiling in resolved.sample:
                built = Path(kept) / resolved.name / tiling.name / "kernel.sass"
                if built.is_file():
                    target = folder / resolved.name / f"{tiling.module}.sass"
                    target.parent.mkdir(parents=True, exist_ok=True)
                    target.write_text(neutralise(built.read_text()))
    return failed


def compare(base: Path, new: Path) -> list[str]:
    """Modules, as SPEC/MODULE, whose SASS differs or that one folder lacks."""
    both = [{file.relative_to(side): file.read_bytes() for file in side.rglob("*.sass")} for side in (base, new)]
    return [
        str(name.with_suffix("")) for name in sorted({*both[0], *both[1]}) if both[0].get(name) != both[1].get(name)
    ]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.sass", description=__doc__)
    parser.add_argument("--compare", nargs=2, type=Path, metavar=("BASE", "NEW"))
    parser.add_argument("folder", nargs="?", type=Path)
    parser.add_argument("specs", nargs="*", metavar="SPEC")
    args = parser.parse_args()
    if not args.compare and not args.folder:
        parser.error("a folder, or --compare BASE NEW")
    lines = compare(*args.compare) if args.compare else dump(args.folder, args.specs)
    print("\n".join(lines) or "identical" if args.compare else "\n".join(lines))
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
