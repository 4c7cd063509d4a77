"""`cutegen bundle --wheel`: what a wheel holds, and that it runs where it is installed."""

from __future__ import annotations

import base64
import csv
import hashlib
import importlib.util
import io
import json
import os
import re
import subprocess
import sys
import zipfile
from email.parser import Parser
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from gemm_specs import PLAIN

import cutegen
from cutegen.build.facts import find_nvdisasm
from cutegen.build.wheel import SBOM, read_name, write_wheel
from cutegen.cli import main
from cutegen.diagnostics import CutegenError
from cutegen.runtime.bundled import LIBRARY, MANIFEST, RUNTIME

pytestmark = [
    pytest.mark.dsl,
    pytest.mark.skipif(importlib.util.find_spec("cutlass") is None, reason="nvidia-cutlass-dsl is not installed"),
    pytest.mark.skipif(find_nvdisasm() is None, reason="nvidia-cuda-nvdisasm is not installed"),
]
INFO = "my_kernels-1.2rc1.dist-info"


class Made(NamedTuple):
    folder: Path
    wheel: Path
    files: dict[str, bytes]
    manifest: dict[str, Any]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    folder = tmp_path_factory.mktemp("wheels")
    (folder / "alone.yaml").write_text(PLAIN + "portfolio: 1\ntiling: {tile: [128, 128, 64]}\n")
    command = ["bundle", str(folder / "alone.yaml"), "-o", str(folder / "served"), "--wheel", "My.Kernels==1.2rc1"]
    assert main(command) == 0
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        files = {name: archive.read(name) for name in archive.namelist()}
    return Made(folder, wheel, files, json.loads((folder / "served" / MANIFEST).read_text()))


def test_it_holds_the_bundle_as_it_is(made: Made) -> None:
    """With a record of each file, which installers compare."""
    bundle = made.folder / "served"
    held = {f"served/{p.relative_to(bundle).as_posix()}": p.read_bytes() for p in bundle.rglob("*") if p.is_file()}
    assert {name: data for name, data in made.files.items() if name.startswith("served/")} == held
    rows = {
        name: (digest, size) for name, digest, size in csv.reader(io.StringIO(made.files[f"{INFO}/RECORD"].decode()))
    }
    assert rows.keys() == made.files.keys()
    for name, data in made.files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).decode().rstrip("=")
        assert rows[name] == (("", "") if name.endswith("/RECORD") else (f"sha256={digest}", str(len(data))))


def test_its_metadata(made: Made) -> None:
    read = Parser().parsestr
    metadata, wheel = (read(made.files[f"{INFO}/{name}"].decode()) for name in ("METADATA", "WHEEL"))
    assert (metadata["Name"], metadata["Version"]) == ("My.Kernels", "1.2rc1")
    assert metadata.get_all("Requires-Dist") == made.manifest["requires"]
    assert metadata["Requires-Python"] == ">=3.10"
    for name in metadata.get_all("License-File") or ():
        assert f"{INFO}/licenses/{name}" in made.files
    assert made.wheel.name == f"my_kernels-1.2rc1-{wheel['Tag']}.whl"
    assert wheel["Root-Is-Purelib"] == "false"
    # The kernels' own code needs no newer system than NVIDIA's runtime does.
    own, runtime = (newest_glibc(made.files[f"served/{name}"]) for name in (LIBRARY, RUNTIME))
    assert own < runtime
    assert f"manylinux_{'_'.join(map(str, runtime))}_" in wheel["Tag"]


def newest_glibc(library: bytes) -> tuple[int, int]:
    return max((int(major), int(minor)) for major, minor in re.findall(rb"GLIBC_(\d+)\.(\d+)", library))


def test_what_it_was_made_of(made: Made) -> None:
    sbom = json.loads(made.files[f"{INFO}/{SBOM}"])
    assert (sbom["bomFormat"], sbom["specVersion"]) == ("CycloneDX", "1.6")
    spec, runtime = sbom["components"]
    facts = made.manifest["specs"]["alone"]
    assert (spec["name"], spec["version"]) == ("alone", facts["digest"])
    assert spec["hashes"] == [
        {"alg": "SHA-256", "content": hashlib.sha256((made.folder / "alone.yaml").read_bytes()).hexdigest()}
    ]
    assert {"name": "cutegen:lock", "value": facts["lock"]} in spec["properties"]
    assert runtime["hashes"][0]["content"] == hashlib.sha256(made.files[f"served/{RUNTIME}"]).hexdigest()
    tools = {tool["name"]: tool["version"] for tool in sbom["metadata"]["tools"]["components"]}
    assert tools["cutegen"] == cutegen.__version__
    assert tools["nvidia-cutlass-dsl"] == made.manifest["toolchain"]["nvidia_cutlass_dsl"]


def test_equal_bundles_make_equal_wheels(made: Made) -> None:
    before = made.wheel.read_bytes()
    path = write_wheel(made.folder / "served", made.manifest, read_name("My.Kernels==1.2rc1"))
    assert path == made.wheel
    assert path.read_bytes() == before


def test_it_runs_where_it_is_installed(made: Made, tmp_path: Path) -> None:
    """Without cutegen and the compiler."""
    pytest.importorskip("pip")
    command = [sys.executable, "-m", "pip", "install", "-q", "--no-index", "--no-deps", "--target", str(tmp_path)]
    subprocess.run([*command, str(made.wheel)], check=True)
    code = """
import importlib.metadata, sys
for name in ("cutlass", "cuda", "cutegen", "torch"):
    sys.modules[name] = None
from served.alone import PLAN
PLAN.warm_up()
print(importlib.metadata.version("my-kernels"), *PLAN._kernels)"""
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    run = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert run.stdout.split() == ["1.2rc1", "t128x128x64"], run.stderr


@pytest.mark.parametrize("text", ["kernels", "kernels==", "==1.0", "a b==1.0", "kernels==one", "kernels==1.0/../x"])
def test_names_that_no_wheel_has(text: str, made: Made, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(CutegenError, match="it is not NAME==VERSION"):
        read_name(text)
    command = ["bundle", str(made.folder / "alone.yaml"), "-o", str(made.folder / "none"), "--wheel", text]
    assert main(command) == 2
    assert "write such as my-kernels==1.0" in capsys.readouterr().err
    assert not (made.folder / "none").exists()
