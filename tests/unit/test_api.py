"""cutegen.load and cutegen.Spec: findings as exceptions, the lock, and packages in the cache."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import os
import pickle
import py_compile
import shutil
import subprocess
import sys
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from gemm_specs import PLAIN
from mla_specs import MLA

import cutegen
from cutegen import loaded
from cutegen.resolve import resolve_file, save_lock
from cutegen.runtime import compile as compile_module
from cutegen.runtime.cache import CacheWarning

ONE = PLAIN + "portfolio: 1\n"
TEXT = ONE + "tiling: {tile: [128, 128, 64]}\n"  # little is left to choose
DATA: dict[str, Any] = {
    "cutegen": 1,
    "kernel": "gemm",
    "arch": "sm_90a",
    "portfolio": 1,
    "tensors": {"a": "bf16[m, k]", "b": "bf16[n, k]", "bias": "f32[n]", "d": "bf16[m, n]"},
    "epilogue": {"d": "relu(acc + bias)"},
}


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("CUTEGEN_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(loaded, "_held", {})
    monkeypatch.setattr(loaded, "_temporary", {})
    for name in [m for m in sys.modules if m.startswith("cutegen.loaded.")]:
        monkeypatch.delitem(sys.modules, name)
    return tmp_path / "cache" / "packages"


def write(folder: Path, text: str = TEXT, name: str = "plain") -> Path:
    path = folder / f"{name}.yaml"
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    ("text", "name", "said"), [("", None, "name is of type None"), (b"", "x", "text is of type b")]
)
def test_arguments_of_another_type_are_named(text: Any, name: Any, said: str) -> None:
    with pytest.raises(TypeError, match=said):
        cutegen.Spec.from_text(text, name)


def test_a_file_becomes_a_plan(tmp_path: Path, cache: Path) -> None:
    before = list(sys.path)
    plan = cutegen.load(write(tmp_path))
    assert (plan.name, plan.arch, list(plan.tilings)) == ("plain", "sm_90a", list(plan.get_warmup_keys()))
    assert cutegen.load(str(tmp_path / "plain.yaml")) is plan
    assert cutegen.load(write(tmp_path, TEXT + "# the same\n")) is plan
    assert sys.path == before
    (entry,) = cache.iterdir()
    assert type(plan).__module__ == f"cutegen.loaded.{entry.name}.plan"
    assert not (tmp_path / "plain.lock.yaml").exists()
    assert cutegen.load(write(tmp_path, MLA, "decode")).family == "mla_decode"


def test_another_content_is_another_plan(tmp_path: Path, cache: Path) -> None:
    first = cutegen.load(write(tmp_path))
    second = cutegen.load(write(tmp_path, TEXT + "pipeline: {stages: 3}\n"))
    assert first is not second
    assert {tiling.stages for tiling in second.tilings.values()} == {3}
    assert {tiling.stages for tiling in first.tilings.values()} != {3}
    assert len(list(cache.iterdir())) == 2


def test_the_lock_is_honoured(tmp_path: Path) -> None:
    path = write(tmp_path, ONE)
    with pytest.raises(cutegen.CutegenError, match="has no lock"):
        cutegen.load(path, locked=True)
    save_lock(resolve_file(path), path)
    lock = tmp_path / "plain.lock.yaml"
    lock.write_text(lock.read_text().replace("pipeline.stages: {value: 4", "pipeline.stages: {value: 3"))
    held = lock.read_text()
    plan = cutegen.load(path, locked=True)
    assert next(iter(plan.tilings.values())).stages == 3
    write(tmp_path, ONE + "pipeline: {stages: 4}\n")
    with pytest.warns(RuntimeWarning, match=r"plain.yaml: pipeline.stages: .*; `cutegen lock` writes it down"):
        assert next(iter(cutegen.load(path).tilings.values())).stages == 4
    assert cutegen.Spec.from_file(path).notes
    assert lock.read_text() == held
    lock.write_text("torn")
    with pytest.raises(cutegen.CutegenError, match=r"plain.lock.yaml"):
        cutegen.load(path)


def test_findings_come_as_exceptions(tmp_path: Path) -> None:
    path = write(tmp_path, PLAIN + "epilogue: {d: gelu(acc)}\ntiling: {tile: [1, 2]}\n")
    with pytest.raises(cutegen.SpecError) as caught:
        cutegen.load(path)
    assert isinstance(caught.value, cutegen.CutegenError)
    first, second = caught.value.diagnostics
    assert (first.rule, str(first.location)) == ("unknown-op", f"{path}:8:15")
    assert "gelu_tanh" in first.remedy
    assert (second.rule, second.location and second.location.line) == ("bad-value", 9)
    with pytest.raises(cutegen.CutegenError, match="cannot be read: No such file"):
        cutegen.load(tmp_path / "none.yaml")


def test_data_is_a_spec() -> None:
    spec = cutegen.Spec.from_dict(DATA, "fused")
    assert (spec.name, spec.notes) == ("fused", ())
    assert spec.load() is cutegen.Spec.from_text(spec.text, "fused").load()
    with pytest.raises(cutegen.SpecError) as caught:
        cutegen.Spec.from_dict({**DATA, "tiling": {"tile": (128, 256, "x")}, "stages": 3}, "fused")
    found = [(d.rule, str(d.location), d.source_line) for d in caught.value.diagnostics]
    assert found == [
        ("wrong-type", "<fused>:13:20", '  tile: [128, 256, "x"]'),
        ("unknown-key", "<fused>:14:1", "stages: 3"),
    ]


LOOP: dict[str, Any] = {}
LOOP["tensors"] = LOOP


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ({**DATA, "dims": {"n": object()}}, r"dims.n: a value of type object cannot stand in a spec"),
        ({**DATA, "dims": {1: 2}}, r"dims.1: a key of type int"),
        ({**DATA, "dims": {"n": float("nan")}}, r"wrong-type"),
        ({**DATA, "dims": {"n: 3\nm": 2}}, r"error\[bad-name\]"),
        ({**DATA, "epilogue": {"d": 'acc"}\nfunction: x'}}, r"error\["),
        ({**DATA, "bench": {"shapes": [{"m": True, "n": None}]}}, r"error\["),
        ({**DATA, "null": 1, "true": 2}, r"error\[unknown-key\]: [^~]*`null`"),
        (LOOP, r"nested deeper|yaml-depth"),
        ([], r"a spec is a dict, not a list"),
        ({}, r"`kernel` is missing|error\["),
    ],
)
def test_data_that_is_none(data: Any, said: str) -> None:
    with pytest.raises(cutegen.CutegenError, match=said):
        cutegen.Spec.from_dict(data, "fused")


def test_a_name_that_is_none() -> None:
    with pytest.raises(cutegen.SpecError, match=r"spec-name\]: `../x`, the kernel's name, is not an identifier"):
        cutegen.Spec.from_dict(DATA, "../x")


DAMAGES = {
    "truncated": lambda entry: (entry / "plan.py").write_text("import"),
    "changed": lambda entry: (entry / "kernel.py").write_text((entry / "kernel.py").read_text() + "x = 1\n"),
    "missing": lambda entry: (entry / "__init__.py").unlink(),
    "added": lambda entry: (entry / "plan.abi3.so").write_text("no code"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_package_is_rendered_again(tmp_path: Path, cache: Path, damage: str) -> None:
    path = write(tmp_path)
    plan = cutegen.load(path)
    (entry,) = cache.iterdir()
    good = {f.name: f.read_text() for f in entry.glob("*.py")}
    DAMAGES[damage](entry)
    assert cutegen.load(path) is plan
    assert {f.name: f.read_text() for f in entry.iterdir() if f.suffix in (".py", ".so")} == good


def forget(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a process that has imported no package yet."""
    monkeypatch.setattr(loaded, "_held", {})
    for name in [m for m in sys.modules if m.startswith("cutegen.loaded.")]:
        monkeypatch.delitem(sys.modules, name)


@pytest.mark.parametrize("place", ["bytecode", "text"])
def test_only_what_the_name_of_a_package_says_is_run(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    """Whoever has a spec or a pickle: the text that was compared is compiled, and there is no bytecode."""
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    path = write(tmp_path)
    plan = cutegen.load(path)
    (entry,) = cache.iterdir()
    assert not (entry / "__pycache__").exists()
    data, wrong = pickle.dumps(plan), entry / "plan.py"
    text = wrong.read_text()
    if place == "bytecode":
        compiled = Path(importlib.util.cache_from_source(wrong))
        compiled.parent.mkdir(mode=0o700)
        wrong.write_text(text + "raise SystemExit('bytecode was run')\n")
        py_compile.compile(str(wrong), str(compiled), invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH)
        wrong.write_text(text)
    else:
        wrong.write_text(text + "raise SystemExit('it was run')\n")
    forget(monkeypatch)
    with pytest.raises(ImportError, match=r"plain_\w+ (is not what its name says|cannot be read .*): delete it"):
        pickle.loads(data)
    assert list(cutegen.load(path).tilings) == list(plan.tilings)
    assert wrong.read_text() == text


def test_a_pickle_without_its_package_says_where_it_was_looked_for(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = pickle.dumps(cutegen.load(write(tmp_path)))
    forget(monkeypatch)
    (entry,) = cache.iterdir()
    shutil.rmtree(entry)
    with pytest.raises(ModuleNotFoundError, match=f"{entry} is not a package: load its spec with this cache"):
        pickle.loads(data)
    monkeypatch.setenv("CUTEGEN_CACHE", "0")
    with pytest.raises(ModuleNotFoundError, match="set CUTEGEN_CACHE_DIR"):
        pickle.loads(data)
    with pytest.raises(ModuleNotFoundError, match=r"No module named 'cutegen\.loaded\.nothing'"):
        importlib.import_module("cutegen.loaded.nothing")


def test_what_the_compiler_reads_is_what_was_compared(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The DSL asks `inspect` for source, and keys are made of it: neither looks at the file again."""
    plan = cutegen.load(write(tmp_path))
    (entry,) = cache.iterdir()
    text = (entry / "kernel.py").read_text()
    (entry / "kernel.py").write_text(text.replace("def ", "def x_"))
    (entry / "plan.py").unlink()  # as after `cutegen cache prune`
    name = f"cutegen.loaded.{entry.name}.kernel"
    assert compile_module.find_source(name) == entry / "kernel.py"
    assert compile_module._read_source(name) == text
    module = sys.modules[type(plan).__module__]
    assert module.__file__ == str(entry / "plan.py")
    assert "class" in inspect.getsource(type(plan))


CODE = """\
import pickle, sys, cutegen
plan = cutegen.load(sys.argv[1])
sys.stdout.buffer.write(pickle.dumps(plan))
"""


def run(code: str, *arguments: str, **variables: str) -> subprocess.Popen[bytes]:
    root = str(Path(cutegen.__file__).parents[1])
    environment = {**os.environ, "PYTHONPATH": root, **variables}
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment)


def test_processes_and_threads_load_at_once(tmp_path: Path, cache: Path) -> None:
    path = write(tmp_path)
    runs = [run(CODE, str(path)) for _ in range(3)]
    outputs = [process.communicate() for process in runs]
    assert [process.returncode for process in runs] == [0, 0, 0], outputs
    assert len(list(cache.iterdir())) == 1
    plans = [pickle.loads(output) for output, _ in outputs]
    with ThreadPoolExecutor(4) as pool:
        plans += pool.map(lambda _: cutegen.load(path), range(4))
    assert {type(plan) for plan in plans} == {type(plans[0])}
    assert len({id(plan) for plan in plans[3:]}) == 1


@pytest.mark.parametrize("how", ["off", "unusable"])
def test_without_a_cache_it_is_temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    path = write(tmp_path)
    if how == "off":
        monkeypatch.setenv("CUTEGEN_CACHE", "0")
        plan = cutegen.load(path)
    else:
        (tmp_path / "file").write_text("")
        monkeypatch.setenv("CUTEGEN_CACHE_DIR", str(tmp_path / "file"))
        with pytest.warns(CacheWarning):
            plan = cutegen.load(path)
    folder = Path(sys.modules[type(plan).__module__].__file__ or "").parent
    assert folder.parent.name.startswith("cutegen-")
    code = "import cutegen, sys\nprint(sys.modules[type(cutegen.load(sys.argv[1])).__module__].__file__)"
    output, errors = run(code, str(path), CUTEGEN_CACHE="0").communicate()
    assert not Path(output.decode().strip()).exists(), errors


@pytest.mark.parametrize("place", ["packages", "entry", "plan.py"])
def test_a_package_that_others_may_have_written_is_not_imported(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    path = write(tmp_path)
    data = pickle.dumps(cutegen.load(path))
    (entry,) = cache.iterdir()
    given = {"packages": cache, "entry": entry, "plan.py": entry / "plan.py"}[place]
    given.chmod(0o777 if given.is_dir() else 0o666)
    forget(monkeypatch)
    with pytest.raises(ImportError, match=r"may be written by others .*: it is not used"):
        pickle.loads(data)
    with pytest.warns(CacheWarning, match="may be written by others"):
        plan = cutegen.load(path)
    file = Path(sys.modules[type(plan).__module__].__file__ or "")
    assert file.stat().st_mode & 0o022 == file.parent.stat().st_mode & 0o022 == 0
    # What can be replaced is written again; a folder of packages that others may write to is for its owner to mend.
    assert file.is_relative_to(cache) == (place != "packages")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore" if place == "packages" else "error")
        assert cutegen.load(path) is plan


@pytest.mark.parametrize("cached", ["1", "0"])
def test_a_group_that_the_umask_lets_write_gets_no_say(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cached: str
) -> None:
    monkeypatch.setenv("CUTEGEN_CACHE", cached)
    path, before = write(tmp_path), os.umask(0o002)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            plan = cutegen.load(path)
            assert cutegen.load(path) is plan
    finally:
        os.umask(before)
    file = Path(sys.modules[type(plan).__module__].__file__ or "")
    assert file.stat().st_mode & 0o022 == file.parent.stat().st_mode & 0o022 == 0
