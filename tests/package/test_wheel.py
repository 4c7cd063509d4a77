"""What the wheel holds: the package, templates and specs, and nothing else."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest

from cutegen import __version__

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    pytest.importorskip("hatchling")
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    (path,) = folder.iterdir()
    return zipfile.ZipFile(path)


def files(folder: str, *suffixes: str) -> set[str]:
    found = (path.relative_to(ROOT) for path in (ROOT / folder).rglob("*") if path.name.endswith(suffixes))
    return {path.as_posix() for path in found}


def test_contents(wheel: zipfile.ZipFile) -> None:
    packed = {name for name in wheel.namelist() if ".dist-info/" not in name}
    data = files("templates", ".jinja") | files("specs", ".yaml")
    starters = {name for name in files("cutegen", ".yaml") if name.endswith("/starter.yaml")}
    names = {name for name in files("cutegen", ".json") if name.endswith("/generated_names.json")}
    machine = {"cutegen/machine/forms.txt", "cutegen/machine/shim.c"}
    other = {"cutegen/py.typed", "cutegen/cli/words.json", *machine, *names}
    assert packed == files("cutegen", ".py") | other | starters | {f"cutegen/_data/{n}" for n in data}


def test_metadata(wheel: zipfile.ZipFile) -> None:
    info = f"cutegen-{__version__}.dist-info"
    metadata = Parser().parsestr(wheel.read(f"{info}/METADATA").decode())
    assert metadata["License-Expression"] == "Apache-2.0"
    assert wheel.read(f"{info}/licenses/LICENSE").decode() == (ROOT / "LICENSE").read_text()
    assert metadata["Author"] == "The cutegen authors"
    assert "cutegen = cutegen.__main__:start" in wheel.read(f"{info}/entry_points.txt").decode()
    always = [r for r in metadata.get_all("Requires-Dist") or () if "extra ==" not in r]
    # Rendering needs no compiler and no torch.
    assert not [r for r in always if r.startswith(("torch", "nvidia", "apache"))]
