"""`cutegen tune` with scripted kernels and times: a spec with its lock, and a device that is a function."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from gemm_specs import ALONE
from scripted_backend import ScriptedMeasuring

from cutegen.cli import main
from cutegen.families.gemm import tuning
from cutegen.families.gemm.search_space import Found, explore
from cutegen.resolve import lock_path, read_lock
from cutegen.tune import session

SHAPE = ["--shape", "m=64,n=4096,k=4096"]
GPU = "Scripted GPU"
tune_command = importlib.import_module("cutegen.cli.tune")


def by_columns(tiling: Any) -> float:
    """128 columns are fastest: 8 us; the default, with 256, takes 10."""
    return (8 + abs(tiling.tile[1] - 128) / 64 + tiling.tile[0] / 1000) * 1e-6


_explored: dict[object, tuple[Found, ...]] = {}


def explore_once(
    problem: Any, written: Mapping[str, Any], arch: Any, device: Any, shape: Any, unordered: bool, refuse: Any
) -> tuple[Found, ...]:
    """What `explore` finds, kept: tests ask for the same few problems, and finding takes most of their time."""
    assert not problem.batch_invariant  # else `refuse` goes by the default, which is not part of the key
    key = (problem, tuple(sorted(written.items())), arch, device, shape, unordered)
    if key not in _explored:
        _explored[key] = tuple(explore(problem, written, arch, device, shape, unordered, refuse))
    return _explored[key]


def lock_spec(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A spec with its lock, and a cache directory of its own."""
    monkeypatch.setenv("CUTEGEN_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(tuning, "explore", explore_once)
    path = tmp_path / "specs" / "product.yaml"
    path.parent.mkdir()
    path.write_text(ALONE)
    assert main(["lock", str(path)]) == 0
    return path


def script_measuring(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., ScriptedMeasuring]:
    """A function that puts another device in place; nothing is compiled for it."""

    def use(seconds: Callable[[Any], float] = by_columns, **options: Any) -> ScriptedMeasuring:
        (tmp_path / "log").write_text("")
        made = ScriptedMeasuring(tmp_path / "log", seconds, **options)
        monkeypatch.setattr(tune_command, "make_measuring", lambda: made)
        monkeypatch.setattr(session, "build_kernels", lambda *args, **more: tuple(made.build(*args, **more)))
        monkeypatch.setattr(session, "KernelStream", made.stream)
        return made

    return use


def tune(spec: Path, *options: str) -> int:
    return main(["tune", str(spec), *options])


def winners(spec: Path) -> Any:
    lock = read_lock(lock_path(spec))
    assert lock
    return lock.winners
