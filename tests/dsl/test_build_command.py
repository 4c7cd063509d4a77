"""`cutegen build` on specs, end to end, without a GPU."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from gemm_specs import EDGES, FUSED, PINGPONG, PLAIN
from mla_specs import PAIRED

from cutegen.build.doctor import COMPILER_REMEDY
from cutegen.build.facts import find_nvdisasm
from cutegen.render import render_package
from cutegen.resolve import resolve_file

pytestmark = [
    pytest.mark.dsl,
    pytest.mark.skipif(importlib.util.find_spec("cutlass") is None, reason="nvidia-cutlass-dsl is not installed"),
    pytest.mark.skipif(find_nvdisasm() is None, reason="nvidia-cuda-nvdisasm is not installed"),
]
REPOSITORY = Path(__file__).parents[2]
ALONE = "portfolio: 1\n"
SPEC = PLAIN + ALONE + "tiling: {{tile: {tile}}}\n"
COMMAND = "import sys; from cutegen.cli import main; code = main(sys.argv[1:]); {after}; raise SystemExit(code)"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("build")
    (path / "wide.yaml").write_text(SPEC.format(tile=[128, 256, 64]))
    (path / "square.yaml").write_text(SPEC.format(tile=[128, 128, 64]))
    return path


def run(
    folder: Path, *arguments: str, after: str = "pass", python: str = sys.executable, shared_cache: bool = False
) -> subprocess.CompletedProcess[str]:
    cache = {} if shared_cache else {"CUTEGEN_CACHE_DIR": str(folder / "cache")}
    return subprocess.run(
        [python, "-c", COMMAND.format(after=after), "build", *arguments],
        env={**os.environ, "PYTHONPATH": str(REPOSITORY), **cache},
        cwd=folder, capture_output=True, text=True, timeout=600,
    )  # fmt: skip


def kernels(process: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    return {kernel["spec"]: kernel for kernel in json.loads(process.stdout)["kernels"]}


def test_build_then_build_from_the_cache(folder: Path) -> None:
    first = run(folder, str(folder), "--json", "--keep", "kept")
    assert first.returncode == 0, first.stdout + first.stderr
    built = kernels(first)
    assert set(built) == {"wide", "square"}
    assert all(k["ok"] and not k["cached"] and k["compile_seconds"] > 0 for k in built.values())
    assert built["wide"]["facts"]["opcodes"]["HGMMA.64x256x16.F32.BF16"] % 4 == 0
    assert built["wide"]["plan"]["smem_bytes"] > 0
    kept = {path.name for path in (folder / "kept" / "wide").glob("*/*")}
    assert kept >= {"kernel.o", "kernel.ptx", "kernel.cubin", "kernel.sass"}

    unused = "print([m for m in ('cutlass', 'torch', 'tvm_ffi') if m in sys.modules], file=sys.stderr)"
    second = run(folder, str(folder), "--json", after=unused)
    assert "[]" in second.stderr
    again = kernels(second)
    assert all(k["cached"] for k in again.values())
    assert {n: k["facts"] for n, k in again.items()} == {n: k["facts"] for n, k in built.items()}


def test_the_runtime_finds_what_build_compiled(folder: Path) -> None:
    assert run(folder, "wide.yaml").returncode == 0
    entries = sorted(path.name for path in (folder / "cache" / "kernels").iterdir())
    code = (
        "from pathlib import Path; from cutegen.render import render_package, write_package\n"
        "from cutegen.resolve import resolve_file\n"
        "write_package(render_package(resolve_file(Path('wide.yaml')).resolved), Path('elsewhere'))\n"
        "import sys; sys.path.insert(0, '.'); from elsewhere.wide import PLAN\n"
        "assert not {'torch', 'cutlass'} & set(sys.modules); PLAN.warm_up()\n"
    )
    process = subprocess.run(
        [sys.executable, "-c", code], cwd=folder, capture_output=True, text=True,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY), "CUTEGEN_CACHE_DIR": str(folder / "cache")},
    )  # fmt: skip
    assert process.returncode == 0, process.stderr
    assert sorted(path.name for path in (folder / "cache" / "kernels").iterdir()) == entries


def test_the_table_shows_plan_and_outcome(folder: Path) -> None:
    process = run(folder, "wide.yaml")
    assert "setmaxnreg" in process.stdout
    assert "HGMMA.64x256x16" in process.stdout
    assert "compiled" in process.stderr
    assert "Traceback" not in process.stderr


def test_a_bad_spec_does_not_hide_the_others(folder: Path) -> None:
    (folder / "bad").mkdir(exist_ok=True)
    (folder / "bad" / "bad.yaml").write_text("cutegen: 1\nkernel: gemm\n")
    process = run(folder, "bad/bad.yaml", "wide.yaml", "--json")
    assert process.returncode == 1
    assert {found["file"] for found in json.loads(process.stdout)["findings"]} == {"bad/bad.yaml"}
    assert kernels(process)["wide"]["ok"]


def test_specs_of_one_name_are_refused(folder: Path) -> None:
    (folder / "twin").mkdir(exist_ok=True)
    (folder / "twin" / "wide.yaml").write_text(SPEC.format(tile=[128, 128, 64]))
    process = run(folder, "twin/wide.yaml", "wide.yaml")
    assert process.returncode == 1
    assert "wide.yaml and twin/wide.yaml are both named `wide`" in process.stderr


def test_a_timeout_is_reported(folder: Path) -> None:
    (folder / "slow").mkdir(exist_ok=True)
    (folder / "slow" / "slow.yaml").write_text(SPEC.format(tile=[64, 256, 64]))
    process = run(folder, "slow/slow.yaml", "--timeout", "0.05")
    assert process.returncode == 1
    assert "did not finish within 0.05 s" in process.stdout


def test_without_the_dsl_it_says_what_to_install(folder: Path) -> None:
    (folder / "new").mkdir(exist_ok=True)
    (folder / "new" / "new.yaml").write_text(SPEC.format(tile=[64, 128, 64]))
    code = (
        "import sys; import cutegen.build.kernels as k; k.dsl_version = lambda: None\n"
        "from cutegen.cli import main; raise SystemExit(main(['build', 'new/new.yaml']))"
    )
    process = subprocess.run(
        [sys.executable, "-c", code], cwd=folder, capture_output=True, text=True,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY), "CUTEGEN_CACHE_DIR": str(folder / "cache")},
    )  # fmt: skip
    assert process.returncode == 2
    assert f"  = help: {COMPILER_REMEDY}\n" in process.stderr


# More interpreters, each with another version of the DSL. This one builds every kernel that is shipped, the others
# one kernel of every kind of text: shipped specs of one tiling, for integers, blocks, pairs, reductions, rows in
# groups, and rows that are gathered and copied with their scales; a residual, which the last tile of a CTA gets through
# stages of A, as it is and transposed; a transposed product whose tiles are handed out and that loads ahead; and parts
# of k that are summed in a cluster. The first of them, which is the oldest, has MLA decode by clusters.
OTHERS = [python for python in os.environ.get("CUTEGEN_DSL_PYTHONS", "").split(os.pathsep) if python]
KINDS = {
    "gemm_bf16_rowmax_sm90a",
    "gemm_bf16_swiglu_quant_block128_sm90a",
    "gemm_i8_sm90a",
    "grouped_gemm_bf16_counts_sm90a",
    "grouped_gemm_e4m3_block128_gather_sm90a",
}
STAGES = "pipeline: {last_tile: stages}\n"
OWN = {
    "ahead": EDGES["loaded_ahead_transposed"] + ALONE,
    "residual": FUSED + ALONE + PINGPONG + STAGES + "tiling: {tile: [64, 64, 64]}\n",
    "residual_transposed": FUSED + ALONE + PINGPONG + STAGES + "tiling: {swap_ab: true, tile: [64, 64, 64]}\n",
    "summed_in_a_cluster": PLAIN + ALONE + "tiling: {tile: [64, 32, 64], split_k: 2, split_k_sum: ordered_cluster}\n",
}
LARGEST = {"largest": PAIRED + "variant: seesaw_2cta\n"}


def shipped_kernels(name: str) -> set[tuple[str, object]]:
    """The instances of a shipped spec: text without the spec's name, and numbers. Kernels of the two 16-bit types that
    differ in the name of the type alone are one."""
    resolved = resolve_file(REPOSITORY / "specs" / f"{name}.yaml", locked=True).resolved
    files = render_package(resolved).files
    code = {t.module: plain_text(files[f"{t.module}.py"].replace(name, "")) for t in resolved.built}
    return {(code[t.module], t.numbers) for t in resolved.built}


def plain_text(text: str) -> str:
    """Without the line of the spec, and with one name for types of 16 bits, also in the order of what is imported."""
    text = re.sub(r"^# Spec: .*$", "", text, flags=re.MULTILINE).replace("BFloat16", "Float16").replace("bf16", "f16")
    names = re.compile(r"^from cutlass import (.*)$", re.MULTILINE)
    return names.sub(lambda found: ", ".join(sorted({*found[1].split(", ")})), text)


def different(names: Iterable[str]) -> set[str]:
    """Those whose kernels are not all kernels of others, of which the one with the shortest name stays, and that of
    bf16, which the PTX machine runs."""
    kept: dict[str, set[tuple[str, object]]] = {}
    for name in sorted(names, key=lambda name: ("_f16_" in name, len(name), name)):
        found = shipped_kernels(name)
        if not found <= set().union(*kept.values()):
            kept[name] = found
    return set(kept)


@pytest.mark.thorough
@pytest.mark.parametrize("python", [sys.executable, *OTHERS])
def test_every_shipped_kernel_keeps_the_contract(python: str, tmp_path: Path) -> None:
    """With the cache that tests share: the PTX machine runs many of these kernels."""
    specs = {path.stem: path for path in (REPOSITORY / "specs").glob("*.yaml") if ".lock" not in path.name}
    assert specs.keys() >= KINDS
    wanted = set() if python in OTHERS else different(specs.keys())
    files = [str(specs[name]) for name in sorted(wanted)]
    own = {name: specs[name].read_text(encoding="utf-8") + ALONE for name in KINDS} | OWN if python in OTHERS else {}
    own |= LARGEST if python in OTHERS[:1] else {}
    for name, text in own.items():
        spec = tmp_path / f"{name}.yaml"
        spec.write_text(text)
        wanted, files = {*wanted, name}, [*files, str(spec)]
    process = run(tmp_path, *files, "--json", python=python, shared_cache=True)
    assert process.returncode == 0, process.stdout[-4000:] + process.stderr[-4000:]
    built = kernels(process)
    assert set(built) == wanted
    assert all(kernel["ok"] for kernel in built.values())


def test_lines_of_the_source_in_what_is_kept(tmp_path: Path) -> None:
    spec = tmp_path / "small.yaml"
    spec.write_text(PLAIN + ALONE + "tiling: {tile: [64, 64, 64], cluster: [1, 1]}\n")
    process = run(tmp_path, str(spec), "--keep", str(tmp_path / "kept"), "--lineinfo", shared_cache=True)
    assert process.returncode == 0, process.stderr
    (ptx,) = (tmp_path / "kept").rglob("kernel.ptx")
    assert re.search(r"^\s*\.loc\s", ptx.read_text(), re.MULTILINE)
    assert "kernel.py" in ptx.read_text()
    assert run(tmp_path, str(spec), "--lineinfo").returncode == 2
