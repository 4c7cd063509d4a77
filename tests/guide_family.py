"""The family of docs/adding-a-kernel-family.md, taken from the page and installed as an installer leaves it."""

from __future__ import annotations

import configparser
import re
from pathlib import Path

from op_packages import install

from cutegen.families import registry

GUIDE = Path(__file__).parent.parent / "docs" / "adding-a-kernel-family.md"
_FILE = re.compile(r"^\*\*`([\w./-]+)`\*\*.*?\n```\w+\n(.*?)^```$", re.MULTILINE | re.DOTALL)
NAME, PACKAGE = "rms_norm", "acme_norms"


def guide_files() -> dict[str, str]:
    """Text by path of every file that the guide shows."""
    return {match[1]: match[2] for match in _FILE.finditer(GUIDE.read_text(encoding="utf-8"))}


def install_family(folder: Path, name: str = "acme-norms", points: str = "") -> None:
    """The example in `folder`, with the entry points of its pyproject.toml, or others."""
    files = guide_files()
    project = configparser.ConfigParser()
    project.read_string(files.pop("pyproject.toml"))
    own = project[f'project.entry-points."{registry.GROUP}"']
    points = points or "".join(f"{key} = {value.strip(chr(34))}\n" for key, value in own.items())
    install(folder, points, files, name, "0.1", registry.GROUP)
