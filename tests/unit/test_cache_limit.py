"""The size of the cache: what is shown, what `prune` deletes, and what a limit takes out when a kernel is added."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from gemm_specs import PLAIN

import cutegen
from cutegen.cli import main
from cutegen.render import environment
from cutegen.runtime import cache_limit
from cutegen.runtime.cache import CacheWarning, KernelCache
from cutegen.runtime.cache_limit import ENTRY_NAMES, KERNELS, keep_limit, list_held, over_limit, read_size, take_out
from cutegen.runtime.trust import UntrustedError
from cutegen.tune.store import TimingStore, store_path

DAY = 86_400.0
TEMPLATE, PACKAGE, STORE = f"templates/{'0' * 40}.jinja-3.1.6-{'0' * 12}", f"packages/p_{'0' * 20}", "timings-2.sqlite"
ROOT = Path(__file__).parents[2]


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    root = tmp_path / "cache"
    monkeypatch.setenv("CUTEGEN_CACHE_DIR", str(root))
    monkeypatch.delenv("CUTEGEN_CACHE", raising=False)
    monkeypatch.delenv(cache_limit.LIMIT, raising=False)
    return root


_names: dict[str, str] = {}  # by key


def key_of(name: str) -> str:
    key = hashlib.sha256(name.encode()).hexdigest()
    _names[key] = name
    return key


def publish(root: Path, name: str, size: int = 1000, age: float = 0.0) -> Path:
    cache, key = KernelCache(root), key_of(name)
    with cache.stage() as staged:
        assert staged
        (staged / "kernel.o").write_bytes(b"x" * size)
        assert cache.publish(key, staged, {"seconds": 1.0})
    path = root / "kernels" / key
    os.utime(path, (time.time() - age,) * 2)
    return path


def fill(root: Path) -> None:
    for age, key in enumerate(("new", "old", "older")):
        publish(root, key, 1000, age * 20 * DAY)
    for name, size in ((TEMPLATE, 300), (f"{PACKAGE}/plan.py", 50), (STORE, 70)):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(b"x" * size)


def kernels(root: Path) -> set[str]:
    return {_names[path.name] for path in (root / "kernels").iterdir()}


def test_what_it_holds(root: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    assert main(["cache"]) == 0
    assert str(root) in capsys.readouterr().out
    assert not root.exists()
    fill(root)
    monkeypatch.setenv(cache_limit.LIMIT, "2 GiB")
    assert main(["cache", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert (said["folder"], said["limit"]) == (str(root), 2**31)
    assert {kind: found["entries"] for kind, found in said["kinds"].items()} == {
        "kernels": 3, "packages": 1, "templates": 1, "timings": 1, "other": 1,
    }  # fmt: skip
    assert 3000 < said["kinds"]["kernels"]["bytes"] < 6000
    assert said["kinds"]["templates"]["bytes"] == 300
    assert main(["cache"]) == 0
    assert "limit of kernels: 2.1 GB" in capsys.readouterr().out
    monkeypatch.setenv("CUTEGEN_CACHE", "0")
    assert main(["cache"]) == 0
    assert capsys.readouterr().out.startswith("off")


@pytest.mark.parametrize(
    ("arguments", "kept", "others"),
    [
        (["--older-than", "4w2d"], {"new", "old"}, {"templates", "packages", "timings"}),
        (["--older-than", "30d"], {"new", "old"}, {"templates", "packages", "timings"}),
        (["--older-than", "1h"], {"new"}, {"templates", "packages", "timings"}),
        (["--max-size", "2kB"], {"new"}, {"templates", "packages", "timings"}),
        (["--max-size", "1GB"], {"new", "old", "older"}, {"templates", "packages", "timings"}),
        (["--all"], set(), {"timings"}),
        (["--timings"], {"new", "old", "older"}, {"templates", "packages"}),
        (["--all", "--timings"], set(), set()),
        (["--all", "--dry-run"], {"new", "old", "older"}, {"templates", "packages", "timings"}),
    ],
)
def test_prune(
    arguments: list[str], kept: set[str], others: set[str], root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What can be made again goes; measurements only where they are named."""
    fill(root)
    assert main(["cache", "prune", *arguments, "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert kernels(root) == kept
    names = {"templates": TEMPLATE, "packages": PACKAGE, "timings": STORE}
    assert {kind for kind, name in names.items() if (root / name).exists()} == others
    assert list((root / "stage").iterdir()) == []
    assert said["ok"]
    if not said["dry_run"]:
        assert all(not Path(path).exists() for path in said["deleted"])


def test_prune_says_what_it_did(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fill(root)
    assert main(["cache", "prune", "--max-size", "5GB"]) == 0
    assert capsys.readouterr().out == "0 entries, 0 B deleted\n"
    assert main(["cache", "prune", "--timings"]) == 0
    assert capsys.readouterr().out == "1 entry, 70 B deleted\n"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "nothing says what to delete"),
        (["--older-than", "30"], "`30` is not a time"),
        (["--older-than", ""], "`` is not a time"),
        (["--older-than", "-3d"], "`-3d` is not a time"),
        (["--all", "--older-than", "30d"], "--older-than has no effect with --all"),
        (["--max-size", "5 apples"], "`5 apples` is not a size"),
    ],
)
def test_bad_options(arguments: list[str], said: str, root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fill(root)
    assert main(["cache", "prune", *arguments]) == 2
    assert said in capsys.readouterr().err
    assert kernels(root) == {"new", "old", "older"}


@pytest.mark.parametrize(
    ("text", "size"),
    [("1000", 1000), ("5GB", 5 * 10**9), ("1.5 kb", 1500), ("2GiB", 2**31), ("3m", 3 * 10**6), (" 0 ", 0)],
)
def test_sizes(text: str, size: int) -> None:
    assert read_size(text) == size


@pytest.mark.parametrize("text", ["", "GB", "-1", "1e9", "5XB", "1.GB", "nan"])
def test_what_is_not_a_size(text: str) -> None:
    with pytest.raises(ValueError, match="is not a size"):
        read_size(text)


def test_a_limit_takes_out_what_was_used_least_recently(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for key, age in (("a", 3 * DAY), ("b", 2 * DAY), ("c", DAY)):
        publish(root, key, 10_000, age)
    assert KernelCache(root).find(key_of("a"))  # and so `b` is the oldest now
    monkeypatch.setenv(cache_limit.LIMIT, "32kB")
    publish(root, "d", 10_000)
    assert kernels(root) == {"a", "c", "d"}
    monkeypatch.setenv(cache_limit.LIMIT, "")
    publish(root, "e", 10_000)
    assert kernels(root) == {"a", "c", "d", "e"}


def test_what_was_used_just_now_stays(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another process may be reading it, or have made it for a build that has not ended."""
    monkeypatch.setenv(cache_limit.LIMIT, "1")
    publish(root, "a", 1000, cache_limit.RECENT_S / 2)
    publish(root, "b", 1000)
    assert kernels(root) == {"a", "b"}
    os.utime(root / "kernels" / key_of("a"), (0, 0))
    publish(root, "c")
    assert kernels(root) == {"b", "c"}


def test_a_limit_that_is_no_size_is_a_warning(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(cache_limit.LIMIT, "much")
    with pytest.warns(CacheWarning, match="`much` is not a size"):
        publish(root, "a")
    assert kernels(root) == {"a"}


def test_entries_that_others_take_out_at_the_same_time(root: Path) -> None:
    """Each is deleted by one of them, and nothing is left half."""
    for number in range(40):
        publish(root, f"k{number}", 1000, DAY)
    code = (
        "import sys; from pathlib import Path; from cutegen.runtime.cache_limit import *\n"
        "root = Path(sys.argv[1]); print(len(take_out(list_held(root, KERNELS, form=ENTRY_NAMES[KERNELS]), root)))"
    )
    processes = [
        subprocess.Popen([sys.executable, "-c", code, str(root)], cwd=ROOT, stdout=subprocess.PIPE, text=True)
        for _ in range(4)
    ]
    counts = [int(process.communicate(timeout=60)[0]) for process in processes]
    assert sum(counts) == 40
    assert kernels(root) == set()
    assert list((root / "stage").iterdir()) == []


def test_what_goes_away_meanwhile_is_left_out(root: Path) -> None:
    publish(root, "a", 1000, DAY)
    held = list_held(root, KERNELS, form=ENTRY_NAMES[KERNELS])
    assert [entry.path.name for entry in over_limit(held, 0, time.time())] == [key_of("a")]
    assert take_out(held, root) == held
    assert take_out(held, root) == []
    assert list_held(root, "nothing", form=ENTRY_NAMES[KERNELS]) == []


def test_the_names_are_those_that_are_given(root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What the cache writes under other names would stay for ever."""
    (tmp_path / "plain.yaml").write_text(PLAIN)
    cutegen.load(tmp_path / "plain.yaml")
    TimingStore(store_path(root)).close()
    environment._environment.cache_clear()
    environment._environment().get_template("_shared/init.py.jinja")
    environment._environment.cache_clear()
    publish(root, "a")
    given = {kind: len(list((root / kind).iterdir())) for kind in ("kernels", "packages", "templates")}
    given["timings"] = len(list(root.glob("timings*")))
    assert main(["cache", "--json"]) == 0
    kinds = json.loads(capsys.readouterr().out)["kinds"]
    assert {kind: found["entries"] for kind, found in kinds.items() if kind != "other"} == given
    assert all(given.values())


@pytest.mark.parametrize("kind", ["kernels", "packages", "templates"])
def test_nothing_is_deleted_through_a_link(
    kind: str, root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fill(root)
    (root / kind).rename(tmp_path / "victim")
    (root / kind).symlink_to(tmp_path / "victim")
    before = sorted((tmp_path / "victim").rglob("*"))
    assert main(["cache", "prune", "--all"]) == 2
    assert f"{root / kind}: Not a directory" in capsys.readouterr().err
    assert sorted((tmp_path / "victim").rglob("*")) == before


@pytest.mark.parametrize("place", ["", "kernels"])
def test_a_cache_that_others_may_write_is_not_pruned(
    place: str, root: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(root)
    (root / place).chmod(0o777)
    assert main(["cache", "prune", "--all"]) == 2
    assert f"{root / place}: may be written by others (mode 777)" in capsys.readouterr().err
    assert kernels(root) == {"new", "old", "older"}
    monkeypatch.setenv(cache_limit.LIMIT, "1")
    with pytest.raises(UntrustedError):
        keep_limit(root)
    assert kernels(root) == {"new", "old", "older"}


def test_a_folder_that_is_called_a_cache_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("templates/page.html", "packages/app/main.py", "kernels/a.cu", "timings-old/x", "src/x"):
        (tmp_path / "project" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "project" / name).write_text("mine")
    monkeypatch.setenv("CUTEGEN_CACHE_DIR", str(tmp_path / "project"))
    before = sorted((tmp_path / "project").rglob("*"))
    assert main(["cache", "prune", "--all", "--timings"]) == 0
    assert capsys.readouterr().out == "0 entries, 0 B deleted\n"
    assert sorted((tmp_path / "project").rglob("*")) == before
