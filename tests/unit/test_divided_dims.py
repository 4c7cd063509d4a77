"""Extents such as n/2 in a call: what is allocated, what is refused and in which words."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import pytest
from cpu_plans import edge_shapes

from cutegen.run.subject import plan_subject
from cutegen.runtime.arguments import TensorArg
from cutegen.runtime.gemm.plan import KernelPlan
from cutegen.runtime.gemm.tiling import GemmTiling

torch = pytest.importorskip("torch")


class GatedPlan(KernelPlan):
    name, arch, device, reduced = "gated", "sm_90a", "cpu", "k"
    dims: ClassVar = {"m": (1, None), "n": (1, None), "k": (1, None)}
    inputs = (
        TensorArg("a", "bfloat16", ("m", "k"), contiguous=1, multiple=8),
        TensorArg("b", "bfloat16", ("n", "k"), contiguous=1, multiple=8),
    )
    outputs = (TensorArg("d", "bfloat16", ("m", "n/2"), contiguous=1, multiple=8, axes=(0, 1)),)
    tilings: ClassVar = {"only": "256"}

    def sm_count(self, index: int) -> int:
        return 1

    def compile(self, key: str) -> Callable[..., None]:
        def kernel(a: Any, b: Any, d: Any, sms: int) -> None:
            # The compiled kernel takes n and n/2 for two extents that have nothing to do with each other.
            if d.shape[1] % 8:
                raise ValueError("Mismatched Tensor on argument")
            d.copy_(self._reference(a, b)[0])

        return kernel

    def _reference(self, a: Any, b: Any) -> tuple[Any, ...]:
        acc = a @ b.mT
        return (torch.relu(acc[..., : acc.shape[-1] // 2]) * acc[..., acc.shape[-1] // 2 :],)


def call(m: int, n: int, columns: int) -> tuple[Any, ...]:
    a, b, d = ((m, 16), (n, 16), (m, columns))
    return tuple(torch.ones(shape, dtype=torch.bfloat16) for shape in (a, b, d))


def test_a_call() -> None:
    plan = GatedPlan()
    inputs = plan.prepare_inputs(m=3, n=32, k=16)
    assert plan.kernel_fn(*inputs).shape == (3, 16)
    assert plan.problem_dims(*inputs) == {"m": 3, "n": 32, "k": 16}
    assert plan.roles == ("m", "n", "k", ())


@pytest.mark.parametrize(
    ("n", "columns", "said"),
    [
        (32, 32, "d: shape[1] is 32, but n/2 is 16 (n = 32 from b); needs bfloat16[m, n/2]"),
        (33, 16, "d: shape[1] is 16, but n/2 is 16.5 (n = 33 from b)"),
        (24, 12, "d: shape[1] (n/2) is 12, needs a multiple of 8 elements"),
    ],
)
def test_a_wrong_half_is_refused(n: int, columns: int, said: str) -> None:
    with pytest.raises(ValueError, match="gated: ") as caught:
        GatedPlan().launch_fn(*call(3, n, columns))
    assert said in str(caught.value)


def test_an_odd_extent_has_no_output() -> None:
    with pytest.raises(ValueError, match="n is 33; n/2 needs a multiple of 2"):
        GatedPlan().kernel_fn(*call(3, 33, 16)[:2])


def test_shapes_of_a_check_are_whole() -> None:
    subject = plan_subject(GatedPlan(), Path("gated"))
    assert subject.steps == {"m": 1, "n": 16, "k": 8}
    fields = dict.fromkeys(GemmTiling.__dataclass_fields__, 1)
    tiling = GemmTiling(**{**fields, "tile": (128, 96, 64)})  # type: ignore[arg-type]
    shapes = list(edge_shapes(subject, tiling))
    assert shapes
    assert all(shape["n"] % 16 == 0 for _, shape in shapes)
