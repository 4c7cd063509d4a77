"""Templates and the objects that they read belong together: what is missing is an error of the template engine, and
what nobody reads is found here."""

from __future__ import annotations

import ast
import dataclasses
import importlib
import pkgutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from gemm_specs import EDGES, resolve_text

from cutegen.families.gemm import text as package
from cutegen.families.gemm.rendering import render
from cutegen.families.gemm.text import plan
from cutegen.resolve import resolve_file

SPECS = sorted(
    path for path in (Path(__file__).parents[2] / "specs").glob("*gemm_*.yaml") if not path.name.endswith(".lock.yaml")
)
# What neither the shipped specs nor those at the edges of the rules have: inputs with blocks, values of blocks of
# transposed products, reductions over rows, and optional operands.
BLOCK_INPUTS = """\
cutegen: 1
kernel: gemm
arch: sm_90a
tensors:
  a: bf16[l, m, k]
  b: bf16[n, k]
  s: f32[l, m, ceil(n/128)]
  d: bf16[l, m, n]
epilogue: {d: acc * s}
"""
TRANSPOSED = """\
cutegen: 1
kernel: gemm
arch: sm_90a
tensors:
  a: bf16[m, k]
  b: bf16[n, k]
  alpha: f32[]
  s: f32[m, n/128]
  d: e4m3[m, n]
epilogue:
  s: max_abs(alpha * acc, n, 128)
  d: acc / s
tiling: {swap_ab: true}
"""
REDUCED = """\
cutegen: 1
kernel: gemm
arch: sm_90a
tensors:
  a: bf16[m, k]
  b: bf16[n, k]
  c: bf16[m, n]
  beta: f32
  bias: f32[n]?
  r: f32[n]
  amax: f32[]
  d: bf16[m, n]
epilogue: {d: acc + beta * c + bias, r: "max(d, m)", amax: "max_abs(d, m, n)"}
"""
OTHERS = (BLOCK_INPUTS, TRANSPOSED, REDUCED)


def texts() -> Iterator[type]:
    """Every dataclass of the package but those of the plan itself, of which some need a lock with winners."""
    for module in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
        for value in vars(importlib.import_module(module.name)).values():
            if (
                dataclasses.is_dataclass(value)
                and isinstance(value, type)
                and value.__module__ == module.name != plan.__name__
            ):
                yield value


def test_kernels_of_a_module_have_names_of_their_own() -> None:
    for path in SPECS:
        for kernel in resolve_file(path).resolved.kernels:
            found = [
                (n.tile, n.cluster, n.consumers, n.stages, n.store_stages, n.load_stages, n.split_k)
                for n in (t.numbers for t in kernel.tilings)
            ]
            assert len(set(found)) == len(found), f"{path.name}: {kernel.module}"


def test_all_that_is_decided_for_templates_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    read: set[tuple[type, str]] = set()

    def getattribute(self: Any, name: str) -> Any:
        read.add((type(self), name))
        return object.__getattribute__(self, name)

    classes = list(texts())
    for cls in classes:
        monkeypatch.setattr(cls, "__getattribute__", getattribute, raising=False)
    for spec in (*(path.read_text(encoding="utf-8") for path in SPECS), *EDGES.values(), *OTHERS):
        render(resolve_text(spec).resolved)
    render(resolve_file(next(path for path in SPECS if path.stem == "gemm_bf16_sm90a")).resolved)  # with its portfolio
    offered = {(cls, field.name) for cls in classes for field in dataclasses.fields(cls)}
    offered |= {(cls, name) for cls in classes for name, value in vars(cls).items() if isinstance(value, property)}
    assert {f"{cls.__name__}.{name}" for cls, name in offered - read} == set()


def docstring(text: str) -> str:
    return ast.get_docstring(ast.parse(render(resolve_text(text).resolved)["kernel.py"])) or ""


NAMED = """\
cutegen: 1
kernel: gemm
arch: sm_90a
tensors: {x: "bf16[tokens, hidden]", w: "bf16[inter, hidden]", y: "bf16[tokens, inter]", s: "f32[tokens]"}
mainloop: x @ w
epilogue: {s: "sum(acc, inter)", y: acc}
"""


def test_the_docstring_has_every_output() -> None:
    assert "-> y: bf16[tokens, inter], s: f32[tokens]." in docstring(NAMED).replace("\n", " ")
    blocks = docstring(TRANSPOSED)
    assert blocks.splitlines()[0].endswith("-> s: f32[m, n/128], d: e4m3[m, n].")


def test_the_docstring_says_what_dims_are_called() -> None:
    assert "Below, m is the spec's `tokens`, n its `inter` and k its `hidden`." in docstring(NAMED)
    assert "Below, m is the spec's `n` and n its `m`." in docstring(TRANSPOSED)
    swapped = docstring(NAMED.replace("hidden", "k") + "tiling: {swap_ab: true}\n").replace("\n", " ")
    assert "its B is `x`. Below, m is the spec's `inter` and n its `tokens`." in swapped
    assert "Below" not in docstring(BLOCK_INPUTS)
