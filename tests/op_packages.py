"""Distributions with epilogue ops or kernel families, as an installer leaves them: a package next to its dist-info."""

from __future__ import annotations

import contextlib
import importlib
import sys
from collections.abc import Iterator
from pathlib import Path

from cutegen import distributions
from cutegen.epilogue import installed
from cutegen.families import registry

OPS = '''\
from cutegen.epilogue import EpilogueOp


class Softsign(EpilogueOp):
    """x / (1 + |x|)."""

    name = "softsign"
    module = "acme_ops.device"
    device = "softsign"
    torch = "torch.nn.functional.softsign({0})"
    flops = 4


class Blend(EpilogueOp):
    """x + t (y - x)."""

    name = "blend"
    module = "acme_ops.device"
    device = "blend"
    arguments = 3
    numbers = (2,)
    torch = "(({0}) + ({2}) * (({1}) - ({0})))"
    flops = 3
'''
DEVICE = """\
from acme_ops.scale import ONE
from cutegen.device.activation import absolute, divide


def softsign(x):
    return divide(x, absolute(x) + ONE)


def blend(x, y, t):
    return x + t * (y - x)
"""
FILES = {
    "acme_ops/__init__.py": "",
    "acme_ops/ops.py": OPS,
    "acme_ops/device.py": DEVICE,
    "acme_ops/scale.py": "ONE = 1.0\n",
}
POINTS = "softsign = acme_ops.ops:Softsign\nblend = acme_ops.ops:Blend\n"


def install(
    folder: Path,
    points: str = POINTS,
    files: dict[str, str] = FILES,
    name: str = "acme-ops",
    version: str = "1.2",
    group: str = installed.GROUP,
) -> None:
    """points: lines of the entry point group. files: text by path below `folder`, which stands on sys.path."""
    info = folder / f"{name.replace('-', '_')}-{version}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    (info / "entry_points.txt").write_text(f"[{group}]\n{points}")
    for path, text in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)


@contextlib.contextmanager
def on_path(folder: Path) -> Iterator[None]:
    """The folder on sys.path, as one for packages; what was read and imported of it is forgotten at the end."""
    before, folders = set(sys.modules), distributions.package_folders
    sys.path.insert(0, str(folder))
    distributions.package_folders = lambda: (str(folder), *folders())
    forget()
    try:
        yield
    finally:
        sys.path.remove(str(folder))
        distributions.package_folders = folders
        forget()
        tops = {"acme_ops", *(path.stem for path in folder.iterdir())}
        for name in set(sys.modules) - before:
            if name.partition(".")[0] in tops:
                del sys.modules[name]


def forget() -> None:
    importlib.invalidate_caches()
    distributions._find_offers.cache_clear()
    installed._load_installed.cache_clear()
    registry._load_installed.cache_clear()
