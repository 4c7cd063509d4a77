"""What a cache holds is used only if it is as it was written, and only the user or root can have written it."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from test_kernel_cache import Kernels, Tiling, make_kernels

from cutegen.build import facts as facts_module
from cutegen.build.facts import Facts, noted_facts
from cutegen.render import environment
from cutegen.runtime import compile as compile_module
from cutegen.runtime.cache import MANIFEST, CacheWarning, Entry
from cutegen.runtime.compile import OBJECT, find_compiled
from cutegen.runtime.trust import UntrustedError, check_file, make_folder, open_folder, read_file, seal, unseal

KEY = "k" * 64
FACTS = Facts("k", 168, (384, 1, 1), 0, 0, 0, 900, 14400, {"HGMMA.F32": 4}, (40, 232), 2, (("C7510", "x"),), {})


@pytest.fixture
def kernels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Kernels:
    return make_kernels(tmp_path, monkeypatch)


def give_away(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets a file belong to a user who is neither root nor the one who runs."""
    if os.geteuid() == 0:
        os.chown(path, 65534, -1)
    else:
        monkeypatch.setattr(os, "geteuid", lambda: 65534)


def places(kernels: Kernels) -> dict[str, Path]:
    root = kernels.cache.root
    entry = root / "kernels" / KEY
    return {
        "cache": root,
        "kernels": root / "kernels",
        "entry": entry,
        "object": entry / OBJECT,
        "facts": entry / MANIFEST,
    }


@pytest.mark.parametrize("place", ["cache", "kernels", "entry", "object", "facts"])
@pytest.mark.parametrize("how", ["group", "all", "owner"])
def test_what_others_may_have_written_is_a_miss_with_a_warning(
    kernels: Kernels, place: str, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernels.compile()
    path = places(kernels)[place]
    if how == "owner":
        give_away(path, monkeypatch)
        said = "belongs to user"
    else:
        path.chmod(path.stat().st_mode | {"group": 0o020, "all": 0o002}[how])
        said = "may be written by others"
    with pytest.warns(CacheWarning, match=f"{said}.*: it is not used; if you know who wrote it"):
        assert kernels.cache.find(KEY) is None
    with pytest.warns(CacheWarning, match=said):
        assert kernels.compile() == (False, b"object " * 4096)
    assert kernels.runs == 2


@pytest.mark.parametrize("name", ["stage", "locks"])
def test_nothing_is_made_in_a_folder_that_others_may_write(kernels: Kernels, name: str) -> None:
    folder = kernels.cache.root / name
    folder.mkdir(parents=True)
    folder.chmod(0o777)
    if name == "stage":
        with pytest.warns(CacheWarning, match="may be written by others"):
            kernels.compile()
    else:
        kernels.compile()
    assert not list(folder.iterdir())


def test_a_folder_such_as_tmp_may_hold_a_cache(kernels: Kernels) -> None:
    kernels.cache.root.mkdir()
    kernels.cache.root.chmod(0o1777)
    assert [kernels.compile()[0] for _ in range(2)] == [False, True]


@pytest.mark.parametrize("place", ["kernels", "entry", "object", "facts"])
def test_links_are_not_followed(kernels: Kernels, place: str, tmp_path: Path) -> None:
    kernels.compile()
    path = places(kernels)[place]
    path.rename(tmp_path / "elsewhere")
    path.symlink_to(tmp_path / "elsewhere")
    assert kernels.cache.find(KEY) is None


def test_what_is_no_plain_file_is_no_hang(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe", 0o600)
    tmp_path.chmod(0o700)
    (tmp_path / "folder").mkdir(0o700)
    before = os.listdir("/proc/self/fd")
    with open_folder(tmp_path) as folder:
        for look in (read_file, check_file):
            for name in ("pipe", "folder"):
                with pytest.raises(OSError, match="not a plain file"):
                    look(folder, tmp_path / name)
    assert os.listdir("/proc/self/fd") == before  # nothing stays open


def test_nothing_is_made_below_a_root_that_others_may_write(tmp_path: Path) -> None:
    """They could put a link in the place of what is made there."""
    root, elsewhere = tmp_path / "cache", tmp_path / "elsewhere"
    root.mkdir()
    elsewhere.mkdir(0o700)
    root.chmod(0o777)
    with pytest.raises(UntrustedError):
        make_folder(root, "kernels", "entry")
    assert not list(root.iterdir())
    root.chmod(0o755)
    (root / "kernels").symlink_to(elsewhere)
    with pytest.raises(NotADirectoryError):
        make_folder(root, "kernels", "entry")
    assert not list(elsewhere.iterdir())
    assert elsewhere.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("mode", [0o700, 0o755, 0o750])
def test_what_is_made_may_be_read_as_the_root(mode: int, tmp_path: Path) -> None:
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache").chmod(mode)
    before = os.umask(0o077)
    try:
        made = make_folder(tmp_path / "cache", "kernels", "entry")
    finally:
        os.umask(before)
    assert {path.stat().st_mode & 0o777 for path in (made, made.parent)} == {mode}


@pytest.mark.parametrize("text", [b"[" * 100_000, b" " * (2 << 20) + b"{}"])
def test_a_manifest_of_any_size_is_a_miss(kernels: Kernels, text: bytes) -> None:
    kernels.compile()
    (kernels.cache.root / "kernels" / KEY / MANIFEST).write_bytes(seal(text))
    assert kernels.cache.find(KEY) is None
    assert [kernels.compile()[0] for _ in range(2)] == [False, True]


def test_the_bytes_that_were_checked_are_those_that_are_loaded(
    kernels: Kernels, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUTEGEN_CACHE_DIR", str(kernels.cache.root))
    monkeypatch.setattr(compile_module, "dsl_version", lambda: (4, 8, 1))
    key = kernels.key(Tiling((7, 7)))
    kernels.compile(key)
    find, loaded = compile_module.KernelCache.find, []

    def find_and_replace(cache: Any, key: str) -> Entry | None:
        entry = find(cache, key)
        (cache.root / "kernels" / key / OBJECT).write_bytes(b"another")
        return entry

    monkeypatch.setattr(compile_module.KernelCache, "find", find_and_replace)
    monkeypatch.setattr(compile_module, "_load", lambda data, key: loaded.append(data))
    compile_module.load_kernel("fake_kernel", Tiling((7, 7)), "sm_90a")
    assert loaded == [b"object " * 4096]


def rewrite(kernels: Kernels, change: Callable[[dict[str, Any]], None]) -> None:
    """Changes a manifest, and its hash with it: what is left are the types."""
    path = kernels.cache.root / "kernels" / KEY / MANIFEST
    held = json.loads(unseal(path.read_bytes()))
    change(held)
    path.write_bytes(seal(json.dumps(held).encode()))


@pytest.mark.parametrize(
    "change",
    [
        lambda d: d["facts"].pop("seconds"),
        lambda d: d["facts"].update(seconds="x"),
        lambda d: d["facts"].update(seconds=float("nan")),
        lambda d: d["facts"].update(host="avx"),
        lambda d: d["facts"].pop("host"),
        lambda d: d["facts"].update(host=[1]),
        lambda d: d["facts"].update(arch=None),
        lambda d: d.update(facts=None),
        lambda d: d.update(files={}),
        lambda d: d["files"].pop("kernel.ptx"),
        lambda d: d.update(files=[]),
        lambda d: d.update(notes=[]),
        lambda d: d.pop("notes"),
        lambda d: d.update(key=None),
    ],
)
def test_a_manifest_of_other_types_is_a_miss(kernels: Kernels, change: Callable[[dict[str, Any]], None]) -> None:
    kernels.compile()
    assert find_compiled(kernels.cache, KEY)
    rewrite(kernels, change)
    assert find_compiled(kernels.cache, KEY) is None
    assert [kernels.compile()[0] for _ in range(2)] == [False, True]


def test_a_digit_of_the_facts_is_covered_by_the_hash(kernels: Kernels) -> None:
    kernels.compile()
    entry = find_compiled(kernels.cache, KEY)
    assert entry
    kernels.cache.note(entry, facts_module.FACTS, FACTS.to_json())
    entry = find_compiled(kernels.cache, KEY)
    assert entry
    assert noted_facts(entry) == FACTS
    path = kernels.cache.root / "kernels" / KEY / MANIFEST
    path.write_bytes(path.read_bytes().replace(b'"stack_bytes": 0', b'"stack_bytes": 8'))
    assert find_compiled(kernels.cache, KEY) is None
    assert [kernels.compile()[0] for _ in range(2)] == [False, True]


@pytest.mark.parametrize("field", sorted(FACTS.to_json()))
@pytest.mark.parametrize("value", [None, [], {}, "x", -1, True, [["a"]], {"a": "b"}, 1e400])
def test_facts_of_other_types_are_read_anew(field: str, value: object) -> None:
    held = json.loads(json.dumps(FACTS.to_json()))
    held[field] = value
    found = noted_facts(Entry(KEY, {}, {}, {facts_module.FACTS: held}))
    # What is none may be none, and an empty list or text is of the right type.
    assert found is None or json.loads(json.dumps(found.to_json())) == held
    assert noted_facts(Entry(KEY, {}, {}, {facts_module.FACTS: {**held, "more": 1}})) is None
    assert noted_facts(Entry(KEY, {}, {}, {})) is None


@pytest.fixture
def templates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache with the compiled template `NAME`."""
    monkeypatch.setenv("CUTEGEN_CACHE_DIR", str(tmp_path / "cache"))
    render()
    return tmp_path / "cache" / "templates"


NAME = "_shared/init.py.jinja"


def render() -> str:
    environment._environment.cache_clear()
    try:
        constants = str(environment._environment().get_template(NAME).root_render_func.__code__.co_consts)
        return re.sub(r"0x[0-9a-f]+", "", constants)  # addresses of code within
    finally:
        environment._environment.cache_clear()


def test_no_changed_byte_of_a_compiled_template_reaches_marshal(
    templates: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(data: object) -> None:
        raise AssertionError("unmarshalled")

    (path,) = templates.iterdir()
    right, data = render(), path.read_bytes()
    with monkeypatch.context() as patch:
        patch.setattr("jinja2.bccache.marshal.load", refuse)
        with pytest.raises(AssertionError, match="unmarshalled"):
            render()  # the whole entry does
        for at in range(0, len(data), max(1, len(data) // 40)):
            path.write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
            assert render() == right
    assert path.read_bytes() == data


def test_a_compiled_template_in_the_place_of_another_is_a_miss(
    templates: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (path,) = templates.iterdir()
    other = path.with_name(path.name.replace("jinja-", "jinja-0"))
    other.write_bytes(path.read_bytes())
    other.chmod(0o600)
    bucket = environment.Bucket(environment._environment(), "", "")
    cache = environment._environment().bytecode_cache
    assert isinstance(cache, environment._Bytecode)
    monkeypatch.setattr(cache, "_name", lambda bucket: other.name)
    cache.load_bytecode(bucket)
    assert bucket.code is None


def test_others_compiled_templates_are_not_run(templates: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (path,) = templates.iterdir()
    give_away(path, monkeypatch)
    with pytest.warns(CacheWarning, match="belongs to user"):
        render()
