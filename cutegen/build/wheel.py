"""A wheel of a bundle: its folder as it is, and what it was made of as a bill of materials.

Sources: the binary distribution format (packaging.python.org), PEP 600 (manylinux), PEP 770 (sboms in wheels), and
CycloneDX 1.6. Equal bundles make equal wheels: nothing in one is of the time or place that it was made at.
"""

from __future__ import annotations

import base64
import csv
import hashlib
import importlib.metadata
import io
import json
import os
import platform
import re
import sys
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cutegen
from cutegen.diagnostics import CutegenError
from cutegen.runtime.bundled import LIBRARY, MANIFEST, RUNTIME

_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?")
# PEP 440, of final releases, release candidates and local versions.
_VERSION = re.compile(r"\d+(\.\d+)*((a|b|rc)\d+)?(\.post\d+)?(\.dev\d+)?(\+[a-z0-9]+(\.[a-z0-9]+)*)?")
_GLIBC = re.compile(rb"\bGLIBC_(\d+)\.(\d+)")
OLDEST_GLIBC = (2, 17)  # of manylinux
TIME = (1980, 1, 1, 0, 0, 0)  # of all files; the first that a zip has
SBOM = "sboms/cutegen.cdx.json"


@dataclass(frozen=True, slots=True)
class WheelName:
    """name, version: as they were given."""

    name: str
    version: str

    @property
    def stem(self) -> str:
        """How files are called: NAME-VERSION."""
        return f"{re.sub(r'[-_.]+', '_', self.name).lower()}-{self.version}"


def read_name(text: str) -> WheelName:
    """`NAME==VERSION`. CutegenError (exit 2): it is not that."""
    name, _, version = text.partition("==")
    if not _NAME.fullmatch(name) or not _VERSION.fullmatch(version):
        raise CutegenError(f"--wheel {text}: it is not NAME==VERSION", "write such as my-kernels==1.0", exit_code=2)
    return WheelName(name, version)


def write_wheel(bundle: Path, manifest: Mapping[str, Any], of: WheelName) -> Path:
    """The wheel of a bundle, next to its folder, in place of an older one; its path."""
    libraries = [bundle / LIBRARY, bundle / RUNTIME]
    tag = f"py3-none-manylinux_{'_'.join(map(str, _needed_glibc(libraries)))}_{platform.machine()}"
    info = f"{of.stem}.dist-info"
    names = sorted([MANIFEST, "__init__.py", *manifest["files"]])
    files = {f"{bundle.name}/{name}": (bundle / name).read_bytes() for name in names}
    files |= {f"{info}/licenses/{name}": data for name, data in _licences()}
    files[f"{info}/{SBOM}"] = (json.dumps(list_materials(manifest, of), indent=1) + "\n").encode()
    files[f"{info}/METADATA"] = _metadata(bundle.name, manifest, of, [n for n in files if "/licenses/" in n]).encode()
    files[f"{info}/WHEEL"] = (
        f"Wheel-Version: 1.0\nGenerator: cutegen {cutegen.__version__}\nRoot-Is-Purelib: false\nTag: {tag}\n".encode()
    )
    files[f"{info}/RECORD"] = _record(files, f"{info}/RECORD").encode()
    path = bundle.absolute().parent / f"{of.stem}-{tag}.whl"
    staged = path.with_name(f".{path.name}.{os.urandom(4).hex()}")
    try:
        with zipfile.ZipFile(staged, "x", zipfile.ZIP_DEFLATED) as archive:
            for name, data in files.items():
                entry = zipfile.ZipInfo(name, TIME)
                entry.compress_type = zipfile.ZIP_DEFLATED
                entry.external_attr = (0o100755 if name.endswith(".so") else 0o100644) << 16
                archive.writestr(entry, data)
        os.replace(staged, path)
    finally:
        staged.unlink(missing_ok=True)
    return path


def list_materials(manifest: Mapping[str, Any], of: WheelName) -> dict[str, Any]:
    """What a bundle was made of, by CycloneDX: specs and locks, the toolchain, and NVIDIA's runtime, which is in it."""
    specs = [
        {"type": "data", "name": name, "version": facts["digest"], "hashes": _hashes(facts["spec"]),
         "properties": [{"name": f"cutegen:{key}", "value": text} for key, text in _properties(facts)]}
        for name, facts in manifest["specs"].items()
    ]  # fmt: skip
    runtime = {"type": "library", "name": RUNTIME, "hashes": _hashes(manifest["files"][RUNTIME])}
    tools = {"cutegen": manifest["cutegen"], **manifest["toolchain"]}
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            "component": {"type": "library", "name": of.name, "version": of.version},
            "tools": {"components": [_distribution(name, version) for name, version in tools.items()]},
        },
        "components": [*specs, runtime],
    }


def _properties(facts: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    yield "arch", facts["arch"]
    yield "lock", facts["lock"]
    for device in facts["devices"]:
        yield "measured-on", device


def _distribution(name: str, version: str) -> dict[str, str]:
    name = name.replace("_", "-")
    return {"type": "application", "name": name, "version": version, "purl": f"pkg:pypi/{name}@{version}"}


def _hashes(digest: str) -> list[dict[str, str]]:
    return [{"alg": "SHA-256", "content": digest}]


def _needed_glibc(libraries: list[Path]) -> tuple[int, int]:
    """The version of glibc without which one of them does not load, by the names of versions that are in them."""
    found = (match for path in libraries for match in _GLIBC.findall(path.read_bytes()))
    return max([OLDEST_GLIBC, *((int(major), int(minor)) for major, minor in found)])


def _licences() -> Iterator[tuple[str, bytes]]:
    """Of the distributions that have the runtime."""
    for distribution in importlib.metadata.distributions():
        files = distribution.files or ()
        if any(file.name == RUNTIME for file in files):
            for file in files:
                if file.parent.name == "licenses":
                    name = f"{distribution.metadata['Name']}-{file.name}"
                    yield name, Path(str(distribution.locate_file(file))).read_bytes()


def _metadata(package: str, manifest: Mapping[str, Any], of: WheelName, licences: list[str]) -> str:
    specs = ", ".join(manifest["specs"])
    lines = [
        "Metadata-Version: 2.4",
        f"Name: {of.name}",
        f"Version: {of.version}",
        f"Summary: Compiled CUDA kernels in the package {package}: {specs}"[:500],
        f"Requires-Python: {_python()}",
        *(f"Requires-Dist: {requirement}" for requirement in manifest["requires"]),
        *(f"License-File: {name.partition('/licenses/')[2]}" for name in licences),
    ]
    return "\n".join(lines) + "\n"


def _python() -> str:
    """The versions of Python that cutegen's parts in a bundle run on."""
    try:
        return importlib.metadata.metadata("cutegen")["Requires-Python"]
    except importlib.metadata.PackageNotFoundError:  # it runs from its sources
        return f">={sys.version_info.major}.{sys.version_info.minor}"


def _record(files: Mapping[str, bytes], own: str) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    for name, data in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        writer.writerow((name, f"sha256={digest}", len(data)))
    writer.writerow((own, "", ""))
    return text.getvalue()
