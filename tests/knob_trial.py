"""`python -m tests.knob_trial` adds an integer knob to GEMM in a copy of the sources, in the folder of a feature,
renders a kernel that reads it, and lists the files that this took.

The knob is `pipeline.skew`, which does nothing: it takes what any integer does. Rules that refuse values, and what
varies it in a search, come on top in the same folder; what the cost model makes of it in another file.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
FEATURE = "cutegen/families/gemm/features/last_tile"
SPEC = """\
cutegen: 1
kernel: gemm
arch: sm_90a
tensors: {a: "bf16[m, k]", b: "bf16[n, k]", d: "bf16[m, n]"}
portfolio: 1
"""
# Of each file, what the knob adds, and the text that it stands behind.
EDITS = {
    f"{FEATURE}/knobs.py": (
        ("    last_tile: str = field(default=EPILOGUE_RINGS, metadata=SILENT)\n", "    skew: int = 1\n"),
        ("import Knob, ", "integer, "),
        ("from cutegen.runtime.base import SILENT\n", "from cutegen.spec.base import Positive\n"),
        (
            "KNOBS = (\n",
            '    DeclaredKnob(Knob("skew", "pipeline.skew", integer()), Positive, "Tiles that a wave is skewed by.", '
            'follows="load_stages", after="load_stages"),\n',
        ),
    ),
    f"{FEATURE}/feature.py": (
        ("        settling.settle(why, last_tile=ring)\n", '        settling.settle("what was measured", skew=2)\n'),
        (
            "    def numbers(self, problem: GemmProblem, c: Candidate) -> Mapping[str, tuple[Any, str]]:\n",
            '        return {"skew": (c.skew, "pipeline.skew"), **self.boxes(problem, c)}\n\n'
            "    def boxes(self, problem: GemmProblem, c: Candidate) -> Mapping[str, tuple[Any, str]]:\n",
        ),
    ),
    "cutegen/runtime/gemm/tiling.py": (("    raster_group: int\n", "    skew: int = 1\n"),),
    "templates/gemm/tile_scheduler.py.jinja": (("            t.raster_group,\n", "            t.skew,\n"),),
}


def add_knob(root: Path) -> None:
    """In sources below `root`. ValueError: a text that the knob stands behind is not there once."""
    for name, edits in EDITS.items():
        text = (root / name).read_text(encoding="utf-8")
        for before, added in edits:
            if text.count(before) != 1:
                raise ValueError(f"{name} has not one `{before.strip()}`")
            text = text.replace(before, before + added)
        (root / name).write_text(text, encoding="utf-8")


def render(root: Path, spec: str) -> dict[str, str]:
    """Modules of the package of `spec`, and its lock, by the sources below `root`. RuntimeError: what cutegen said."""
    folder = root / "rendered"
    folder.mkdir(exist_ok=True)
    (folder / "trial.yaml").write_text(spec, encoding="utf-8")
    surroundings = {**os.environ, "PYTHONPATH": str(root), "CUTEGEN_CACHE_DIR": str(root / "cache")}
    command = [sys.executable, "-m", "cutegen", "render", "trial.yaml"]
    done = subprocess.run(command, cwd=folder, env=surroundings, capture_output=True, text=True, timeout=120)
    if done.returncode:
        raise RuntimeError(done.stderr)
    found = (folder / "generated" / "trial" / "kernel.py", folder / "generated" / "trial" / "plan.py",
             folder / "trial.lock.yaml")  # fmt: skip
    return {path.name: path.read_text(encoding="utf-8") for path in found}


def copy_sources(root: Path) -> None:
    for folder in ("cutegen", "templates"):
        shutil.copytree(ROOT / folder, root / folder, ignore=shutil.ignore_patterns("__pycache__"))


def main() -> None:
    with tempfile.TemporaryDirectory() as place:
        copy_sources(Path(place))
        add_knob(Path(place))
        render(Path(place), SPEC)
    print(*EDITS, sep="\n")


if __name__ == "__main__":
    main()
