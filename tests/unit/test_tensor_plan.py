"""Plans that follow from declared tensors, with a function in place of a kernel: what a call does, what it refuses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import pytest

from cutegen.runtime.arguments import TensorArg, tensor_bytes
from cutegen.runtime.slots import find_bounds
from cutegen.runtime.tensor_plan import TensorPlan

torch = pytest.importorskip("torch")


class Scaled(TensorPlan):
    """y = factor x w."""

    name, arch, family, device = "scaled", "sm_90a", "scaled", "cpu"
    dims: ClassVar = {"m": (1, 64), "n": 16}
    inputs = (
        TensorArg("x", "bfloat16", ("m", "n"), 1, multiple=8),
        TensorArg("w", "bfloat16", ("n",), 0, multiple=8),
    )
    outputs = (TensorArg("y", "bfloat16", ("m", "n"), 1, multiple=8),)
    roles: ClassVar = {"x": "x", "rows": "m", "columns": "n", "w": "w", "y": "y"}
    numbers: ClassVar = {"factor": 2.0}
    tilings: ClassVar = {"default": None}
    launched: list[int]

    def compile(self, key: str) -> Callable[..., None]:
        self.launched = []

        def kernel(x: Any, w: Any, y: Any, sms: int) -> None:
            y.copy_(x * w * self.numbers["factor"])
            self.launched.append(sms)

        return kernel

    def _reference(self, x: Any, w: Any) -> tuple[Any, ...]:
        return (x * w * self.numbers["factor"],)

    def count_flops(self, rows: int, columns: int) -> int:  # type: ignore[override]
        return 2 * rows * columns


@pytest.fixture
def plan() -> Scaled:
    plan = Scaled()
    plan._sm_counts[-1] = 4  # a CPU tensor's device index is -1
    return plan


def test_a_call_computes_on_the_sms_that_it_may(plan: Scaled) -> None:
    x, w = plan.prepare_inputs(m=5)
    y = plan(x, w=w)
    assert torch.equal(y, plan.reference_fn(x, w))
    assert torch.equal(plan(x, w, out=torch.empty_like(x), sms=2), y)
    assert plan.launched == [4, 2]
    assert plan.plan(x, w).algorithmic_flops_bytes_fn() == (2 * 5 * 16, 2 * (2 * 5 * 16 + 16))
    assert plan.output_tolerance(0, (x, w), "float32").relative == 2.0**-8 + 2.0**-24
    assert plan.signature()[-1] == ("factor", 2.0)


def test_an_empty_call_launches_nothing(plan: Scaled) -> None:
    x, w = torch.empty(0, 16, dtype=torch.bfloat16), torch.ones(16, dtype=torch.bfloat16)
    assert plan.kernel_fn(x, w).shape == (0, 16)
    assert not plan._kernels


def test_a_row_of_any_stride_is_taken(plan: Scaled) -> None:
    x = torch.ones(1, 16, dtype=torch.bfloat16).as_strided((1, 16), (1, 1))
    assert plan.kernel_fn(x, x[0]).shape == (1, 16)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda x, w, y: (x[:, :8], w, y), r"x: shape\[1\] is 8, but n is 16 \(from the spec\)"),
        (lambda x, w, y: (x, w), r"takes 3 arguments \(x, w, y\), got 2"),
        (lambda x, w, y: (x, w, x), "y: shares storage with x"),
        (lambda x, w, y: (x.repeat(20, 1), w, y.repeat(20, 1)), r"x: shape\[0\]: m is 100; this kernel is promised"),
    ],
)
def test_what_does_not_fit_is_refused(plan: Scaled, change: Callable[..., Any], said: str) -> None:
    x, w = plan.prepare_inputs(m=5)
    with pytest.raises((TypeError, ValueError), match=said):
        plan.launch_fn(*change(x, w, torch.empty_like(x)))
    with pytest.raises(ValueError, match="sms is 0"):
        plan.kernel_fn(x, w, sms=0)


def test_bounds_and_bytes_of_arguments() -> None:
    args = (*Scaled.inputs, *Scaled.outputs)
    assert find_bounds(Scaled.dims, args) == ((0, 0, 1, 64), (0, 1, 16, 16))
    assert tensor_bytes(args, {"m": 3, "n": 16}) == 2 * (48 + 16 + 48)
