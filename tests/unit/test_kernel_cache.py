"""The life of a cache entry, with a kernel module whose compiler is a stand-in that counts its runs."""

from __future__ import annotations

import dataclasses
import importlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest
from capabilities import bound_by_permissions

from cutegen.runtime import cache as cache_module
from cutegen.runtime import compile as compile_module
from cutegen.runtime import sources
from cutegen.runtime.cache import CacheWarning, KernelCache, default_root
from cutegen.runtime.compile import CUBIN, OBJECT, compile_kernel, instance_key
from cutegen.runtime.trust import seal, unseal

REPOSITORY = Path(__file__).parents[2]
KERNEL = """\
import os, time
from pathlib import Path

class Compiled:
    __ptx__, __cubin__ = "ptx", b"cubin"
    def export_to_c(self, path, function_name):
        Path(path).write_bytes(b"object " * 4096)

def compile_kernel(tiling, options):
    with open(os.environ["COMPILE_LOG"], "a") as log:
        log.write(f"{tiling}\\n")
    time.sleep(float(os.environ.get("COMPILE_SECONDS", "0")))
    return Compiled()
"""


@dataclasses.dataclass(frozen=True)
class Tiling:
    tile: tuple[int, int] = (128, 256)


class Kernels:
    """A folder with the stand-in kernel, a cache, and how often the compiler ran."""

    def __init__(self, folder: Path) -> None:
        self.path, self.log = folder / "fake_kernel.py", folder / "log"
        self.path.write_text(KERNEL)
        self.log.touch()
        self.cache = KernelCache(folder / "cache")

    def key(self, tiling: object = Tiling(), arch: str = "sm_90a") -> str:
        return instance_key(self.path.read_text(), "fake_kernel", self.path, tiling, arch)

    def compile(self, key: str = "k" * 64) -> tuple[bool, bytes]:
        """(whether it came from the cache, the object)"""
        with compile_kernel(self.cache, key, "fake_kernel", Tiling(), "sm_90a") as compiled:
            return compiled.cached, compiled.entry.files[OBJECT] if compiled.entry else b""

    @property
    def runs(self) -> int:
        return len(self.log.read_text().splitlines())


@pytest.fixture
def kernels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Kernels:
    return make_kernels(tmp_path, monkeypatch)


def make_kernels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Kernels:
    made = Kernels(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "fake_kernel", raising=False)
    monkeypatch.setenv("COMPILE_LOG", str(made.log))
    return made


def test_miss_then_hit(kernels: Kernels) -> None:
    assert kernels.compile() == (False, b"object " * 4096)
    assert kernels.compile() == (True, b"object " * 4096)
    assert kernels.runs == 1
    assert not list((kernels.cache.root / "stage").iterdir())


@pytest.mark.parametrize("damage", ["truncated object", "no cubin", "garbage manifest", "other format", "other key"])
def test_broken_entry_is_a_miss_and_replaced(kernels: Kernels, damage: str) -> None:
    kernels.compile()
    entry = kernels.cache.root / "kernels" / ("k" * 64)
    manifest = entry / cache_module.MANIFEST
    if damage == "truncated object":
        (entry / OBJECT).write_bytes((entry / OBJECT).read_bytes()[:-1])
    elif damage == "no cubin":
        (entry / CUBIN).unlink()
    elif damage == "garbage manifest":
        manifest.write_bytes(b"\xff{")
    elif damage == "other format":
        manifest.write_bytes(seal(unseal(manifest.read_bytes()).replace(b'"format": 2', b'"format": 1')))
    else:
        manifest.write_bytes(seal(unseal(manifest.read_bytes()).replace(b"k" * 64, b"j" * 64)))
    assert kernels.cache.find("k" * 64) is None
    assert kernels.compile()[0] is False
    assert kernels.compile() == (True, b"object " * 4096)
    assert kernels.runs == 2


@pytest.mark.parametrize(("version", "said"), [((4, 8), " remarks{ptx},use-a-pass=false "), ((4, 7), "")])
def test_options_of_a_module_reach_the_passes_of_a_dsl_that_takes_them(
    kernels: Kernels, monkeypatch: pytest.MonkeyPatch, version: tuple[int, int], said: str
) -> None:
    monkeypatch.setattr(compile_module, "dsl_version", lambda: version)
    text = KERNEL.replace('f"{tiling}\\n"', 'options + "\\n"') + '\nPIPELINE_OPTIONS = ("use-a-pass=false",)\n'
    assert text.count("options") == 2
    kernels.path.write_text(text)
    kernels.compile()
    options = kernels.log.read_text()
    assert said in options
    assert ("use-a-pass" in options) == bool(said)


def test_key_follows_what_reaches_the_code(kernels: Kernels, monkeypatch: pytest.MonkeyPatch) -> None:
    first = kernels.key()
    assert first == kernels.key(Tiling((128, 256)))
    others = [kernels.key(Tiling((256, 128))), kernels.key(arch="sm_100a")]
    monkeypatch.setenv("CUTE_DSL_LINEINFO", "1")
    others.append(kernels.key())
    monkeypatch.delenv("CUTE_DSL_LINEINFO")
    monkeypatch.setattr(sources, "distribution_versions", lambda: {"nvidia_cutlass_dsl": "4.7.1"})
    others.append(kernels.key())
    monkeypatch.undo()
    kernels.path.write_text(KERNEL + "\nMORE = 1\n")
    others.append(kernels.key())
    assert len({first, *others}) == 6


def test_key_follows_imported_modules_and_not_the_place(tmp_path: Path) -> None:
    def key(folder: str, rows: int) -> str:
        package = tmp_path / folder / "generated" / "g"
        (package / "device").mkdir(parents=True, exist_ok=True)
        (package / "kernel.py").write_text("import cutlass\nfrom .device import load\nfrom cutegen.device import tma\n")
        (package / "device" / "__init__.py").write_text("")
        (package / "device" / "load.py").write_text("from ..rows import ROWS\n")
        (package / "rows.py").write_text(f"ROWS = {rows}\n")
        (package / "unused.py").write_text(folder)
        path = package / "kernel.py"
        return instance_key(path.read_text(), "generated.g.kernel", path, Tiling(), "sm_90a")

    assert key("here", 1) == key("there", 1)
    assert key("here", 2) != key("there", 1)


def test_a_copy_of_the_runtime_finds_the_sources_beside_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "copied" / "g"
    for folder in (package, package / "runtime", package / "device"):
        folder.mkdir(parents=True)
        (folder / "__init__.py").touch()
    shutil.copy(sources.__file__, package / "runtime")
    monkeypatch.syspath_prepend(str(tmp_path))
    copy = importlib.import_module("copied.g.runtime.sources")

    def key(rows: int, text: str) -> str:
        (package / "device" / "load.py").write_text(f"ROWS = {rows}\n")
        made: str = copy.kernel_key(text, "copied.g.kernel", package / "kernel.py", Tiling(), "sm_90a", "")
        return made

    for text in ("from .device import load", "from copied.g.device import load", "import copied.g.device.load"):
        assert key(1, text) != key(2, text)


def test_imported_device_module_is_part_of_the_key() -> None:
    text = "from cutegen.device.gemm import tile_scheduler\nimport cutegen.runtime.gemm.tiling\n"
    found = sources._imported(text, "kernel", Path("kernel.py"))
    device = REPOSITORY / "cutegen" / "device"
    assert (device / "gemm" / "tile_scheduler.py").read_text() in found
    assert (REPOSITORY / "cutegen" / "runtime" / "gemm" / "tiling.py").read_text() in found
    assert len(found) >= 3  # the package's __init__, too


def compile_elsewhere(kernels: Kernels, first: str = "", **environment: str) -> subprocess.Popen[str]:
    code = first + (
        "from pathlib import Path; from cutegen.runtime.cache import KernelCache\n"
        "from cutegen.runtime.compile import compile_kernel\n"
        f"cache = KernelCache(Path({str(kernels.cache.root)!r}))\n"
        "with compile_kernel(cache, 'k' * 64, 'fake_kernel', 0, 'sm_90a') as c:\n"
        "    print(c.cached, c.entry is not None and len(c.entry.files['kernel.o']))\n"
    )
    path = os.pathsep.join([str(REPOSITORY), str(kernels.path.parent)])
    return subprocess.Popen(
        [sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": path, **environment}, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip


def test_two_processes_compile_once(kernels: Kernels) -> None:
    processes = [compile_elsewhere(kernels, COMPILE_SECONDS="0.5") for _ in range(2)]
    answers = sorted(process.communicate(timeout=60)[0].split()[0] for process in processes)
    assert answers == ["False", "True"]
    assert kernels.runs == 1


def test_killed_holder_does_not_block(kernels: Kernels) -> None:
    holder = compile_elsewhere(kernels, COMPILE_SECONDS="60")
    while not kernels.runs:
        time.sleep(0.02)
    holder.kill()
    holder.communicate()
    assert kernels.compile()[0] is False


def test_full_disk_still_compiles(kernels: Kernels) -> None:
    limit = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000))\n"
    out, err = compile_elsewhere(kernels, limit).communicate(timeout=60)
    assert out.split() == ["False", "False"], err
    assert err.count("CacheWarning: cannot write to") == 2  # nor to the temporary directory
    assert kernels.runs == 1
    assert not list((kernels.cache.root / "stage").iterdir())


def test_failing_publish_is_a_warning(kernels: Kernels, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(cache_module.os, "rename", full)
    with pytest.warns(CacheWarning, match="No space left on device.; set CUTEGEN_CACHE_DIR"):
        assert kernels.compile() == (False, b"object " * 4096)


def test_unwritable_root_is_a_warning(kernels: Kernels) -> None:
    kernels.cache = KernelCache(kernels.log / "below_a_file")
    with pytest.warns(CacheWarning, match="cannot write to"):
        assert kernels.compile() == (False, b"object " * 4096)


def test_without_any_place_to_write_it_still_compiles(kernels: Kernels, monkeypatch: pytest.MonkeyPatch) -> None:
    def nowhere() -> str:
        raise FileNotFoundError(2, "No usable temporary directory found")  # what a full disk gives

    monkeypatch.setattr(tempfile, "gettempdir", nowhere)
    kernels.cache = KernelCache(kernels.log / "below_a_file")
    with pytest.warns(CacheWarning, match="No usable temporary directory"):
        assert kernels.compile() == (False, b"")


def test_read_only_root_is_a_warning(kernels: Kernels) -> None:
    kernels.cache.root.mkdir()
    kernels.cache.root.chmod(0o500)
    with bound_by_permissions(), pytest.warns(CacheWarning, match="cannot write to"):
        assert kernels.compile()[0] is False


def test_a_compile_error_is_no_disk_error(kernels: Kernels, monkeypatch: pytest.MonkeyPatch) -> None:
    kernels.path.write_text("def compile_kernel(tiling, options):\n    raise ValueError('no such layout')\n")
    with pytest.raises(ValueError, match="no such layout"):
        kernels.compile()
    assert not list((kernels.cache.root / "stage").iterdir())


def test_missing_dsl_names_the_package(kernels: Kernels) -> None:
    kernels.path.write_text("import cutlass_missing\n")
    with pytest.raises(ModuleNotFoundError, match="cutlass_missing"):
        kernels.compile()
    kernels.path.write_text("raise ModuleNotFoundError(name='cutlass')\n")
    with pytest.raises(ImportError, match=r"pip install 'nvidia-cutlass-dsl"):
        kernels.compile()


def test_stale_stage_is_swept(kernels: Kernels) -> None:
    stale = kernels.cache.root / "stage" / "cutegen-0123456789abcdef"
    stale.mkdir(parents=True)
    os.utime(stale, (0, 0))
    kernels.compile()
    assert not stale.exists()


def test_cache_off_keeps_nothing(kernels: Kernels) -> None:
    kernels.cache = KernelCache(None)
    assert [kernels.compile()[0], kernels.compile()[0]] == [False, False]
    assert sorted(p.name for p in kernels.path.parent.iterdir() if p.is_dir()) in ([], ["__pycache__"])


def test_default_root(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("CUTEGEN_CACHE", raising=False)
    monkeypatch.delenv("CUTEGEN_CACHE_DIR", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert default_root() == tmp_path / "cutegen"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")  # must be ignored, by the XDG specification
    assert default_root() == Path.home() / ".cache" / "cutegen"
    monkeypatch.setenv("CUTEGEN_CACHE_DIR", str(tmp_path / "mine"))
    assert default_root() == tmp_path / "mine"
    monkeypatch.setenv("CUTEGEN_CACHE_DIR", "~nobody-of-this-name/cache")
    with pytest.warns(CacheWarning, match="nothing is kept in CUTEGEN_CACHE_DIR=~nobody-of-this-name/cache"):
        assert default_root() is None
    monkeypatch.setenv("CUTEGEN_CACHE", "0")
    assert default_root() is None


def test_without_versions_of_the_dsl_nothing_is_cached(kernels: Kernels, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compile_module, "dsl_version", lambda: None)
    monkeypatch.setattr(compile_module, "_load", lambda data, key: data)
    monkeypatch.setenv("CUTEGEN_CACHE_DIR", str(kernels.cache.root))
    assert compile_module.load_kernel("fake_kernel", Tiling(), "sm_90a") == b"object " * 4096
    assert not kernels.cache.root.exists()
    assert kernels.runs == 1


def test_a_package_that_is_rendered_anew_meanwhile_stays_what_it_was(
    kernels: Kernels, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that has imported one text of a kernel must not publish it under the key of another."""
    monkeypatch.setenv("CUTEGEN_CACHE_DIR", str(kernels.cache.root))
    monkeypatch.setattr(compile_module, "dsl_version", lambda: (4, 8, 1))
    monkeypatch.setattr(compile_module, "_load", lambda data, key: key)
    monkeypatch.setattr(compile_module, "_imported", {})
    first = kernels.key(Tiling((1, 1)))
    assert compile_module.load_kernel("fake_kernel", Tiling((1, 1)), "sm_90a") == first
    then, now = kernels.key(Tiling((2, 2))), kernels.path.write_text(KERNEL + "MORE = 1\n")
    assert now
    assert compile_module.load_kernel("fake_kernel", Tiling((2, 2)), "sm_90a") == then  # what is imported, by its key
    assert kernels.cache.find(then)
    assert kernels.cache.find(kernels.key(Tiling((2, 2)))) is None
    # Changed between the first look at the file and its import: nobody can tell what was compiled.
    monkeypatch.delitem(sys.modules, "fake_kernel")
    monkeypatch.setattr(compile_module, "_imported", {})
    compiled = compile_module.load_kernel("fake_kernel", Tiling((3, 3)), "sm_90a")
    assert not isinstance(compiled, str)  # the function itself: nothing was published
    assert kernels.runs == 3


def test_an_entry_that_neither_loads_nor_can_be_moved_is_built_anew(
    kernels: Kernels, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUTEGEN_CACHE_DIR", str(kernels.cache.root))
    monkeypatch.setattr(compile_module, "dsl_version", lambda: (4, 8, 1))
    kernels.compile(kernels.key(Tiling((32, 32))))
    (kernels.cache.root / "stage").rmdir()
    (kernels.cache.root / "stage").touch()

    loads: list[bytes] = []

    def load(data: bytes, key: str) -> object:
        loads.append(data)
        if len(loads) == 1:
            raise RuntimeError("symbol not found")
        return print

    monkeypatch.setattr(compile_module, "_load", load)
    assert compile_module.load_kernel("fake_kernel", Tiling((32, 32)), "sm_90a") is print
    assert kernels.runs == 2


def test_an_entry_that_does_not_load_is_built_anew(kernels: Kernels, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUTEGEN_CACHE_DIR", str(kernels.cache.root))
    monkeypatch.setattr(compile_module, "dsl_version", lambda: (4, 8, 1))
    kernels.compile(kernels.key(Tiling((64, 64))))
    loads: list[bytes] = []

    def load(data: bytes, key: str) -> object:
        loads.append(data)
        if len(loads) == 1:
            raise RuntimeError("symbol not found")
        return print

    monkeypatch.setattr(compile_module, "_load", load)
    assert compile_module.load_kernel("fake_kernel", Tiling((64, 64)), "sm_90a") is print
    assert (len(loads), kernels.runs) == (2, 2)
    assert compile_module.load_kernel("fake_kernel", Tiling((64, 64)), "sm_90a") is print  # from memory
    assert len(loads) == 2
