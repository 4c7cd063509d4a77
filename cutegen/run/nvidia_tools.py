"""Programs of NVIDIA's CUDA toolkit and Nsight Compute, and where they are found."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

NSIGHT = Path("/opt/nvidia/nsight-compute")  # a folder for each version, where it is installed without a toolkit


def find_program(name: str) -> str:
    """The program; "" where it is neither on the PATH, nor in a CUDA toolkit at its usual place."""
    homes = (os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH"), "/usr/local/cuda")
    places = [os.environ.get("PATH", os.defpath), *(str(Path(home, "bin")) for home in homes if home)]
    return shutil.which(name, path=os.pathsep.join(places)) or ""


def find_ncu() -> str:
    """Nsight Compute's command line; "" where there is none."""
    installed = (shutil.which("ncu", path=str(folder)) for folder in _versions(NSIGHT))
    return find_program("ncu") or next(filter(None, installed), "")


def find_ncu_module(ncu: str) -> Path | None:
    """The folder of Nsight Compute's module `ncu_report`: that of this `ncu`, else of an installation next to it; None
    where there is none. The `ncu` of a toolkit's `bin` is a script, and the installation is in the toolkit."""
    home = Path(ncu).resolve().parent
    toolkit = home.parent
    for folder in (home, toolkit, *_versions(toolkit, "nsight-compute*"), *_versions(NSIGHT)):
        if (Path(folder) / "extras/python/ncu_report.py").is_file():
            return Path(folder) / "extras/python"
    return None


def _versions(folder: Path, pattern: str = "*") -> Iterator[Path]:
    """Its folders of such names, the newest version first."""
    found = [path for path in folder.glob(pattern) if path.is_dir()]
    yield from sorted(found, key=lambda path: [int(n) for n in re.findall(r"\d+", path.name)], reverse=True)
