"""Damaged files of a cache: what is rendered, built and reported stays what it is."""

from __future__ import annotations

import os
import random
import shutil
import tempfile
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

from gemm_specs import PLAIN

from cutegen.build.facts import FACTS, Facts, noted_facts
from cutegen.render import environment, render_package
from cutegen.resolve import resolve_document
from cutegen.runtime.cache import MANIFEST, Entry, KernelCache
from cutegen.runtime.cache_limit import KERNELS
from cutegen.runtime.compile import CUBIN, OBJECT, PTX, find_compiled
from cutegen.spec import load_text

KEY = "0123456789abcdef" * 4
FOUND = Facts("k", 168, (384, 1, 1), 0, 0, 0, 900, 14400, {"HGMMA.F32": 4}, (40, 232), 2, (("C7510", "x"),), {})
HELD = {OBJECT: b"object " * 512, PTX: b"ptx " * 64, CUBIN: b"cubin " * 128}
Damage = Callable[[random.Random, bytes], bytes]


def _flip(draw: random.Random, data: bytes) -> bytes:
    at = draw.randrange(len(data))
    return data[:at] + bytes([data[at] ^ 1 << draw.randrange(8)]) + data[at + 1 :]


def _digit(draw: random.Random, data: bytes) -> bytes:
    places = [i for i, c in enumerate(data) if chr(c).isdigit()] or [0]
    at = draw.choice(places)
    return data[:at] + b"%d" % draw.randrange(10) + data[at + 1 :]


def _splice(draw: random.Random, data: bytes) -> bytes:
    first, last = sorted(draw.randrange(len(data) + 1) for _ in range(2))
    return data[:first] + draw.randbytes(draw.randrange(64)) + data[last:]


DAMAGES: tuple[Damage, ...] = (
    _flip,
    _digit,
    _splice,
    lambda draw, data: data[: draw.randrange(len(data))],
    lambda draw, data: data + draw.randbytes(1 + draw.randrange(16)),
    lambda draw, data: b"",
    lambda draw, data: draw.randbytes(len(data)),
)


class _Cache:
    """A cache in a folder of its own, with a kernel, its facts, and compiled templates."""

    def __init__(self, root: Path) -> None:
        self.root, self.kernels = root, KernelCache(root)
        self.right = self.render()
        self.publish()

    def publish(self) -> None:
        with self.kernels.stage() as staged:
            assert staged is not None
            for name, data in HELD.items():
                (staged / name).write_bytes(data)
            entry = self.kernels.publish(KEY, staged, {"seconds": 1.0, "arch": "sm_90a", "host": []})
        assert entry is not None
        self.kernels.note(entry, FACTS, FOUND.to_json())

    def render(self) -> dict[str, str]:
        environment._environment.cache_clear()
        return render_package(resolve_document(load_text(PLAIN, "plain"), None).resolved).files

    def complaint(self, entry: Entry | None) -> str:
        """What is wrong with an entry that was found; a miss is right."""
        if entry is None:
            return ""
        facts = noted_facts(entry)
        if dict(entry.files) != HELD or entry.facts["seconds"] != 1.0 or facts not in (None, FOUND):
            return "another kernel, or other facts, were found"
        return ""


def attack(count: int, seed: int) -> Iterator[str]:
    """A line for each damage that changed something, raised something, or was not mended."""
    before = os.environ.get("CUTEGEN_CACHE_DIR")
    folder = Path(tempfile.mkdtemp())
    os.environ["CUTEGEN_CACHE_DIR"] = str(folder / "cache")
    try:
        yield from _attack(_Cache(folder / "cache"), count, random.Random(seed))
    finally:
        environment._environment.cache_clear()
        shutil.rmtree(folder)
        if before is None:
            del os.environ["CUTEGEN_CACHE_DIR"]
        else:
            os.environ["CUTEGEN_CACHE_DIR"] = before


def _attack(cache: _Cache, count: int, draw: random.Random) -> Iterator[str]:
    entry = cache.root / KERNELS / KEY
    templates = sorted((cache.root / "templates").iterdir())
    for number in range(count):
        path = draw.choice([entry / MANIFEST, *(entry / name for name in HELD), *draw.sample(templates, 4)])
        damage = draw.choice(DAMAGES)
        whole = path.read_bytes()
        how = draw.randrange(12)
        if how == 0:
            path.unlink()
        elif how == 1:
            path.chmod(0o666)
        else:
            path.write_bytes(damage(draw, whole))
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                said = cache.complaint(find_compiled(cache.kernels, KEY)) if path.parent == entry else ""
                if path.parent != entry and cache.render() != cache.right:
                    said = "another text was rendered"
                if find_compiled(cache.kernels, KEY) is None:
                    cache.publish()
            if not said and not (path.exists() and find_compiled(cache.kernels, KEY)):
                said = "it was not mended"
        except Exception as error:
            said = f"{type(error).__name__}: {error}"
        if said:
            yield f"{number}: {path.name}: {said}"
            path.write_bytes(whole)
