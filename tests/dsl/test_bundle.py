"""`cutegen bundle`: bundles are made here, and imported by processes that have neither the compiler nor cutegen."""

from __future__ import annotations

import ctypes
import hashlib
import importlib.util
import json
import os
import random
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from c_structs import H200, Call, build_example, device, read_structs
from gemm_specs import PLAIN

import cutegen
from cutegen.build.cpu import C_COMPILER_REMEDY
from cutegen.build.doctor import examine
from cutegen.build.facts import find_nvdisasm
from cutegen.cli import main
from cutegen.runtime.bundled import LIBRARY, MANIFEST, RUNTIME
from cutegen.runtime.gpu import probe_gpu
from cutegen.runtime.sources import TORCH_REQUIREMENT

pytestmark = [
    pytest.mark.dsl,
    pytest.mark.skipif(importlib.util.find_spec("cutlass") is None, reason="nvidia-cutlass-dsl is not installed"),
    pytest.mark.skipif(find_nvdisasm() is None, reason="nvidia-cuda-nvdisasm is not installed"),
]
ROOT = Path(__file__).parents[2]
GPU = probe_gpu("sm_90a").ok
TUNED = "gemm_bf16_bias_gelu_sm90a"
# No compiler and no cutegen; nor may a damaged bundle reach the point where a library is loaded.
BLOCKED = """
import json, sys
for name in ("cutlass", "cuda", "cutegen", {more}):
    sys.modules[name] = None
import tvm_ffi
loaded, load = [], tvm_ffi.load_module
tvm_ffi.load_module = lambda path: loaded.append(path) or load(path)
try:
    {body}
except Exception as error:
    print(json.dumps([type(error).__name__, str(error), loaded]))
"""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bundles")
    (folder / "alone.yaml").write_text(PLAIN + "portfolio: 1\ntiling: {tile: [128, 128, 64]}\n")
    specs = [str(ROOT / "specs" / f"{TUNED}.yaml"), str(folder / "alone.yaml")]
    assert main(["bundle", *specs, "-o", str(folder / "served")]) == 0
    return folder


@pytest.fixture
def served(made: Path, tmp_path: Path) -> Path:
    """A copy, to be spoilt."""
    return Path(shutil.copytree(made / "served", tmp_path / "served", ignore=shutil.ignore_patterns("__pycache__")))


def run(folder: Path, body: str, head: str = "", blocked: str = "torch") -> Any:
    """What a process without a compiler prints, as JSON; its working directory is above the bundles. blocked: another
    module that it lacks; TVM FFI imports torch where it can, which takes seconds."""
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"} | {"CUTEGEN_CACHE": "0"}
    code = head + BLOCKED.format(body=body.replace("\n", "\n    "), more=repr(blocked))
    child = subprocess.run([sys.executable, "-c", code], cwd=folder, env=environment, capture_output=True, text=True)
    assert child.returncode == 0, child.stderr
    return json.loads(child.stdout)


def refusal(folder: Path, body: str = "import served", head: str = "") -> str:
    """The message of the ImportError that an import ends with, before anything is loaded."""
    kind, text, loaded = run(folder, body, head)
    assert (kind, loaded) == ("BundleError", [])
    return str(text)


def change_manifest(bundle: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """A bundle that was made with another manifest."""
    manifest = json.loads((bundle / MANIFEST).read_text())
    before = hashlib.sha256((bundle / MANIFEST).read_bytes()).hexdigest()
    change(manifest)
    (bundle / MANIFEST).write_text(json.dumps(manifest))
    after = hashlib.sha256((bundle / MANIFEST).read_bytes()).hexdigest()
    loader = bundle / "__init__.py"
    loader.write_text(loader.read_text().replace(before, after))


def test_every_kernel_is_found_in_the_library_without_a_compiler(made: Path) -> None:
    body = f"""\
from served.{TUNED} import PLAN
from served.alone import PLAN as ALONE
for plan in PLAN, ALONE:
    plan.warm_up()
kinds = sorted({{type(kernel).__name__ for plan in (PLAN, ALONE) for kernel in plan._kernels.values()}})
print(json.dumps([sorted(PLAN._kernels), sorted(ALONE._kernels), kinds, len(loaded)]))"""
    tuned, alone, kinds, loads = run(made, body)
    plan = cutegen.load(ROOT / "specs" / f"{TUNED}.yaml")
    assert tuned == sorted(plan.get_warmup_keys())
    assert len(tuned) > 10
    assert len(alone) == 1
    assert (kinds, loads) == (["Function"], 1)
    manifest = json.loads((made / "served" / MANIFEST).read_text())
    assert len({k["symbol"] for k in manifest["kernels"]}) == len(tuned) + 1
    assert manifest["specs"][TUNED]["devices"] == ["NVIDIA H200"]
    assert manifest["specs"]["alone"]["devices"] == []
    # Shared parts lie there once, and none of them can compile.
    parts = {p.name for p in (made / "served").rglob("*.py") if "_cutegen" in p.parts}
    assert "bundled.py" in parts
    assert not parts & {"compile.py", "dsl.py"}


def test_calls_run_what_the_package_would_run(made: Path) -> None:
    """The dispatch of a plan, and golden picks by the bundle's copy of the cost model."""
    rng = random.Random(7)
    shapes = [(rng.randint(1, 5000), 8 * rng.randint(1, 1000), 8 * rng.randint(1, 1000)) for _ in range(200)]
    golden = ROOT / "tests" / "golden" / "picks.json"
    body = f"""\
from types import SimpleNamespace
from served.{TUNED} import PLAN
from served._cutegen.runtime.device_rates import Rates
from served._cutegen.runtime.gemm.cost_model import Form, Instance
from served._cutegen.runtime.gemm.portfolio import Portfolio, Traits
keys = [PLAN.dispatch(m=m, n=n, k=k) for m, n, k in {shapes}]
winners = [[device, list(shape), [list(row) for row in rows]]
           for device, table in PLAN.winners.items() for shape, rows in table.items()]
data = json.load(open({str(golden)!r}))
rates, sets, shared, wrong = [Rates(**r) for r in data["rates"].values()], [], Instance._fields[:7], 0
for given in data["sets"]:
    form = Form(**{{**given["form"], "moved": tuple(map(tuple, given["form"]["moved"]))}})
    tilings, traits = {{}}, {{}}
    for number, values in enumerate(given["instances"]):
        knobs = dict(zip(Instance._fields, (tuple(v) if isinstance(v, list) else v for v in values)))
        tilings[str(number)] = SimpleNamespace(**{{name: knobs.pop(name) for name in shared}})
        traits[str(number)] = Traits(**knobs)
    sets.append((Portfolio(data["model"], form, traits, tuple(tilings)), tilings))
picks = data["picks"][::5]
for number, device, *extents, best, clocks in picks:
    portfolio, tilings = sets[number]
    wrong += portfolio.rank(tilings, rates[device], tuple(extents))[0] != (clocks, str(best))
print(json.dumps([keys, winners, len(picks), wrong]))"""
    keys, winners, picks, wrong = run(made, body)
    plan: Any = cutegen.load(ROOT / "specs" / f"{TUNED}.yaml")
    assert keys == [plan.dispatch(m=m, n=n, k=k) for m, n, k in shapes]
    assert len(set(keys)) > 5
    held = [[d, list(s), [list(row) for row in rows]] for d, table in plan.winners.items() for s, rows in table.items()]
    assert winners == held
    assert (picks, wrong) == (2000, 0)


@pytest.mark.parametrize(
    ("name", "spoil"),
    [
        (LIBRARY, "changed"),
        (LIBRARY, "truncated"),
        (LIBRARY, "missing"),
        (RUNTIME, "changed"),
        (f"{TUNED}/plan.py", "changed"),
        ("_cutegen/runtime/gemm/cost_model.py", "truncated"),
    ],
)
def test_damage_is_refused_before_a_library_is_loaded(name: str, spoil: str, served: Path) -> None:
    file = served / name
    if spoil == "changed":
        with open(file, "r+b") as stream:
            stream.seek(file.stat().st_size // 2)
            byte = stream.read(1)
            stream.seek(-1, 1)
            stream.write(bytes([byte[0] ^ 1]))
    elif spoil == "truncated":
        os.truncate(file, file.stat().st_size - 1)
    else:
        file.unlink()
    said = "cannot be read" if spoil == "missing" else "is not the file that the bundle was made with"
    assert f"{file.name} {said}" in refusal(served.parent)


def test_a_damaged_manifest_is_refused(served: Path) -> None:
    manifest = served / MANIFEST
    manifest.write_text(manifest.read_text().replace('"host"', '"hosts"', 1))
    assert f"{MANIFEST} is not what the bundle was made with" in refusal(served.parent)
    manifest.unlink()
    assert f"{MANIFEST} cannot be read" in refusal(served.parent)


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("machine", ["linux", "sparc64"], "it was made for linux on sparc64"),
        ("host", ["avx1024"], "a CPU with avx1024, which this one lacks"),
        ("format", 99, "its format is 99"),
        ("requires", ["torch>=9999.1"], "it needs torch>=9999.1, and torch "),
        ("requires", ["apache-tvm-ffi>=0.0.1,<0.0.2"], "it needs apache-tvm-ffi>=0.0.1,<0.0.2, and apache-tvm-ffi "),
        ("requires", ["no-such-library>=1"], "no-such-library, which is not installed: pip install"),
    ],
)
def test_another_machine_or_library_is_refused(key: str, value: Any, said: str, served: Path) -> None:
    change_manifest(served, lambda manifest: manifest.update({key: value}))
    assert said in refusal(served.parent)


def test_another_runtime_in_the_process_is_refused(served: Path, tmp_path: Path) -> None:
    """The linker would take that one. A copy with the same bytes does no harm."""
    (tmp_path / "dsl").mkdir()
    other = Path(shutil.copyfile(served / RUNTIME, tmp_path / "dsl" / RUNTIME))
    head = f"import ctypes; ctypes.CDLL({str(other)!r})\n"
    body = "from served.alone import PLAN\nPLAN.warm_up()\nprint(json.dumps(len(PLAN._kernels)))"
    assert run(served.parent, body, head) == 1
    with open(other, "ab") as stream:
        stream.write(b"\0")
    assert "this process has loaded" in refusal(served.parent, body, head)


@pytest.fixture
def entry(made: Path) -> Any:
    """call(**fields) of the bundle's plain product by the C entry, with pointers that nobody looks at: "" or why it
    fails. A process without CUDA launches nothing."""
    pytest.importorskip("tvm_ffi")
    library = ctypes.CDLL(str(made / "served" / LIBRARY))
    library.served_error.restype = ctypes.c_char_p
    kind = read_structs((made / "served" / "served.h").read_text(), "served")["alone"]
    packed = (ctypes.c_int64 * 2)(64, 1)
    where = device(H200)

    def call(**fields: Any) -> str:
        values = kind(m=64, n=64, k=64, a=4096, b=8192, d=16384, a_strides=packed, b_strides=packed, d_strides=packed)
        for name, value in fields.items():
            setattr(values, name, value)
        code = library.served_run_alone(ctypes.byref(Call(ctypes.pointer(where))), ctypes.byref(values))
        text: bytes = library.served_error()
        return text.decode() if code else ""

    return call


@pytest.mark.skipif(GPU, reason="the addresses passed here are not those of a GPU")
def test_the_c_entry_calls_the_compiled_kernel(entry: Any) -> None:
    """Which looks at strides, alignment and dtypes itself, and then finds no GPU."""
    assert "Cuda Runtime Error" in entry()
    assert "Invalid a.strides[0] on argument #0" in entry(a_strides=(ctypes.c_int64 * 2)(63, 1))
    assert "Mismatched d.strides[1] on argument #2" in entry(d_strides=(ctypes.c_int64 * 2)(64, 2))
    assert "Misaligned Tensor data on argument #1" in entry(b=8193)
    assert entry(a=0) == "alone: a is NULL"
    assert entry(m=0) == ""


@pytest.mark.skipif(shutil.which("g++") is None, reason="there is no g++")
def test_the_example_links_and_runs(made: Path, tmp_path: Path) -> None:
    """It ends where it finds no GPU; tests/gpu runs it to the end."""
    program = build_example(made / "served", "alone", tmp_path)
    run = subprocess.run([program], capture_output=True, text=True)
    if GPU:
        assert (run.returncode, ": 0 of " in run.stdout) == (0, True), run.stderr
    else:
        assert (run.returncode, run.stderr.partition(": ")[0]) == (2, "device 0")


def test_the_header_is_c_and_cpp(made: Path, tmp_path: Path) -> None:
    header = made / "served" / "served.h"
    for language, compiler in (("c", "gcc"), ("c++", "g++")):
        if shutil.which(compiler) is None:
            pytest.skip(f"there is no {compiler}")
        command = [compiler, "-fsyntax-only", "-Wall", "-Wextra", "-pedantic", "-Werror", "-x", language, str(header)]
        assert subprocess.run(command, capture_output=True, text=True).stderr.replace("#pragma once", "") == ""


def test_a_kernel_outside_of_the_bundle_is_named_with_the_command_that_adds_it(
    made: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    spec = ROOT / "specs" / f"{TUNED}.yaml"
    assert main(["bundle", str(spec), "-o", str(made / "few"), "--tiling", "t64x16*", "--json"]) == 0
    assert [k["tiling"] for k in json.loads(capsys.readouterr().out)["manifest"]["kernels"]] == ["t64x16x128"]
    body = f"""\
from few.{TUNED} import PLAN
PLAN.warm_up(["t64x16x128"])
PLAN.warm_up(["t64x32x64"])"""
    kind, text, loaded = run(made, body)
    assert (kind, len(loaded)) == ("RuntimeError", 1)
    assert f"`cutegen bundle {spec} -o {made / 'few'}` adds it" in text
    assert "tile=(64, 32, 64)" in text


def test_two_bundles_cannot_have_one_operator(made: Path, tmp_path: Path) -> None:
    """The second names the first, and may be registered under another name."""
    pytest.importorskip("torch")
    for name in ("first", "second"):
        shutil.copytree(made / "served", tmp_path / name)
    body = """\
import first.alone, second.alone
first.alone.PLAN.register_torch_op()
second.alone.PLAN.register_torch_op("alone_2")
import importlib
try:
    second.alone.Plan().register_torch_op("alone")
except ValueError as error:
    print(json.dumps(str(error)))"""
    assert "torch.ops.cutegen.alone is the plan of first.alone.plan" in run(tmp_path, body, blocked="jinja2")


def test_what_is_not_a_bundle_stays(
    made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    spec = str(made / "alone.yaml")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("kept")
    for name, said in (("mine", "holds notes.txt, which is not part of a bundle"), ("a-b", "is not a name of one")):
        assert main(["bundle", spec, "-o", str(tmp_path / name)]) == 1
        assert said in capsys.readouterr().err
    assert [p.name for p in tmp_path.rglob("*.txt")] == ["notes.txt"]
    assert main(["bundle", spec, "-o", str(tmp_path / "none"), "--tiling", "t1x1"]) == 1
    assert "no tiling matches t1x1" in capsys.readouterr().err
    for variable, value, remedy in (
        ("CC", "no-such-compiler", "names no program"),
        ("CUTEGEN_CACHE", "0", "it is off"),
    ):
        with monkeypatch.context() as patch:
            patch.setenv(variable, value)
            assert main(["bundle", spec, "-o", str(tmp_path / "none")]) == 2
        assert remedy in capsys.readouterr().err
    assert not (tmp_path / "none").exists()


def test_a_machine_without_a_c_compiler(
    made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The command and `doctor` say the same."""
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setattr("cutegen.build.linker.find_c_compiler", lambda: None)
    assert main(["bundle", str(made / "alone.yaml"), "-o", str(tmp_path / "none")]) == 2
    assert f"{C_COMPILER_REMEDY}; or set CC" in capsys.readouterr().err
    verdict = next(v for v in examine()[1] if v.command == "bundle")
    assert not verdict.ok
    assert verdict.why.endswith(f"{C_COMPILER_REMEDY}; or set CC")


def test_an_older_bundle_is_replaced_whole(made: Path, served: Path) -> None:
    (served / "alone" / "__pycache__").mkdir(exist_ok=True)
    (served / "alone" / "__pycache__" / "plan.cpython-311.pyc").write_bytes(b"")
    assert main(["bundle", str(made / "alone.yaml"), "-o", str(served)]) == 0
    assert not (served / TUNED).exists()
    assert [p.name for p in served.parent.iterdir()] == ["served"]


def test_the_bound_of_torch_is_the_one_that_is_declared() -> None:
    declared = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert re.findall(r'"(torch>=[\d.]+)"', declared) == [TORCH_REQUIREMENT] * 2
