"""Rendered plans on the CPU: every kernel computes the reference, and all around it is the plan's own."""

from __future__ import annotations

import contextlib
import importlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from gemm_specs import resolve_text

from cutegen.render import render_package, write_package
from cutegen.run.shapes import Shape, complete_edge, product_space
from cutegen.run.subject import Subject
from cutegen.runtime import torch_op
from cutegen.runtime.base import BasePlan


def on_cpu(plan: BasePlan) -> Any:
    """A plan of the same spec that launches on the CPU. launched: the keys of its launches."""

    class OnCpu(type(plan)):  # type: ignore[misc]
        device = "cpu"

        def __init__(self, *args: Any, **options: Any) -> None:
            self.launched: list[str] = []
            super().__init__(*args, **options)

        def sm_count(self, index: int) -> int:
            return 132

        def compile(self, key: str) -> Callable[..., None]:
            shorter = getattr(self, "_shorter", {})  # of products: tilings without some operands
            gone = shorter[key][1] if key in shorter else frozenset()

            def kernel(*values: Any) -> None:
                given = iter(values)
                inputs = [None if i in gone else next(given) for i in range(len(self.inputs))]
                self._refuse(self.inputs, inputs)  # strides too, which a compiled call looks at
                outputs = self.order_results(inputs, [next(given) for _ in self.fresh_outputs])
                wide = [v.double() if hasattr(v, "double") else v for v in inputs]
                for output, result in zip(outputs, self._reference(*wide)):
                    output.copy_(result)
                self.launched.append(key)

            return kernel

    return OnCpu()


def import_package(text: str, name: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The package that a spec renders to, imported from `folder`."""
    write_package(render_package(resolve_text(text, name=name).resolved), folder)
    monkeypatch.syspath_prepend(str(folder))
    for module in [m for m in sys.modules if m == name or m.startswith(f"{name}.")]:
        monkeypatch.delitem(sys.modules, module)
    return importlib.import_module(name)


@contextlib.contextmanager
def own_operators() -> Iterator[None]:
    """Torch operators that are registered meanwhile go at the end: their libraries are destroyed."""
    before = set(torch_op._registered)
    try:
        yield
    finally:
        import torch

        for name in set(torch_op._registered) - before:
            torch_op._registered.pop(name)[1]._destroy()
            vars(torch.ops.cutegen).pop(name, None)


def edge_shapes(subject: Subject, tiling: Any) -> Iterator[tuple[str, Shape]]:
    """(name, shape) of the problems where kernels of this tiling go wrong, without repetitions."""
    for name, extents in product_space(subject).edges(tiling):
        yield name, complete_edge(subject, name, extents)
