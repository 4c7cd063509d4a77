"""Reductions in a call: the scratch they need, and what a call without it is told."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

from cutegen.runtime.arguments import TensorArg
from cutegen.runtime.gemm.plan import KernelPlan

torch = pytest.importorskip("torch")


class ReducingPlan(KernelPlan):
    name, arch, device, reduced = "reducing", "sm_90a", "cpu", "k"
    dims: ClassVar = {"m": (1, None), "n": (1, None), "k": (1, None)}
    inputs = (TensorArg("a", "float32", ("m", "k"), 1), TensorArg("b", "float32", ("n", "k"), 1))
    outputs = (TensorArg("r", "float32", ("m",), 0, 4), TensorArg("d", "float32", ("m", "n"), 1, axes=(0, 1)))
    reductions: ClassVar = {"r": "max"}
    tilings: ClassVar = {"only": SimpleNamespace(tile=(128, 64, 64), cluster=(2, 1))}

    def sm_count(self, index: int) -> int:
        return 1

    def compile(self, key: str) -> Callable[..., None]:
        def kernel(a: Any, b: Any, r: Any, d: Any, partials: Any, arrivals: Any, sms: int) -> None:
            for out, value in zip((r, d), self._reference(a, b)):
                out.copy_(value)

        return kernel

    def _reference(self, a: Any, b: Any) -> tuple[Any, ...]:
        acc = a @ b.mT
        return acc.amax(dim=-1), acc


def test_scratch_has_a_value_per_row_and_tile_and_a_counter_per_row_of_tiles() -> None:
    plan = ReducingPlan()
    a, b = torch.rand(300, 16), torch.rand(200, 16)
    partials, arrivals = plan.allocate_scratch(a, b)
    # Tiles of 128 x 64, rounded up to clusters of two.
    assert (partials.shape, partials.dtype) == ((300 * (4 + 1),), torch.float32)
    assert (arrivals.tolist(), arrivals.dtype) == ([0] * (3 + 1), torch.int32)
    r, d = plan.kernel_fn(a, b)
    assert torch.equal(r, d.amax(dim=-1))


def test_a_call_without_scratch_uses_the_plan_s_own_and_short_scratch_is_refused() -> None:
    plan = ReducingPlan()
    a, b = torch.rand(300, 16), torch.rand(200, 16)
    r, d = plan.allocate_outputs(a, b)
    plan.launch_fn(a, b, r, d)
    assert torch.equal(r, d.amax(dim=-1))
    with pytest.raises(ValueError, match="r_partials has 100 elements, tiling only needs 1500: size it by work"):
        plan.launch_fn(a, b, r, d, torch.empty(100), torch.zeros(4, dtype=torch.int32))
    with pytest.raises(TypeError, match=r"takes 6 arguments \(a, b, r, d, r_partials, arrivals\), got 5"):
        plan.launch_fn(a, b, r, d, torch.empty(1500))


def test_a_call_like_one_that_passed_finds_no_scratch_again(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = ReducingPlan()
    a, b = torch.rand(300, 16), torch.rand(200, 16)
    r, d = plan.allocate_outputs(a, b)
    needs, looks = plan.scratch_of._find_needs, []
    monkeypatch.setattr(plan.scratch_of, "_find_needs", lambda *point: looks.append(point) or needs(*point))
    find = plan.scratch_of.own.find
    monkeypatch.setattr(plan.scratch_of.own, "find", lambda *given: looks.append(given) or find(*given))
    for _ in range(3):
        plan.launch_fn(a, b, r.zero_(), d)
        assert torch.equal(r, d.amax(dim=-1))
    assert len(looks) == 2
    with pytest.raises(ValueError, match="r: shares storage with d"):
        plan.launch_fn(a, b, d.view(-1)[:300], d)
    partials, arrivals = plan.allocate_scratch(a, b)
    for _ in range(2):
        plan.launch_fn(a, b, r, d, partials, arrivals)
    with pytest.raises(ValueError, match="r: shares storage with r_partials"):
        plan.launch_fn(a, b, partials[:300], d, partials, arrivals)


def test_a_reduction_of_no_columns_is_its_neutral_element() -> None:
    plan = ReducingPlan()
    a, b = torch.rand(3, 16), torch.rand(0, 16)
    r, d = plan.kernel_fn(a, b)
    assert d.shape == (3, 0)
    assert r.tolist() == [-torch.inf] * 3


class AllKinds(ReducingPlan):
    outputs = (
        TensorArg("r", "float32", ("m",), 0, 4),
        TensorArg("c", "float32", ("n/2",), 0, 4),
        TensorArg("e", "float32", (), None, 4),
        TensorArg("d", "float32", ("m", "n/2"), 1, axes=(0, 1)),
    )
    reductions: ClassVar = {"r": "max", "c": "sum", "e": "max_abs"}


def test_scratch_of_each_kind_of_reduction() -> None:
    # 3 and 4 tiles, rounded up to clusters of two; a counter for each row and column of tiles, and two for all of them.
    shapes = AllKinds().workspace_shapes(m=300, n=200, k=16)
    sizes = {name: size for name, (size,) in shapes.items()}
    assert sizes == {"r_partials": 300 * 5, "c_partials": 200 * 4, "e_partials": 4 * 5, "arrivals": 4 + 5 + 2}


def test_scratch_of_transposed_tiles_is_counted_in_the_frame_of_the_product() -> None:
    class Transposed(AllKinds):
        # A tile of 128 along n and 16 along m, in the product's frame.
        tilings: ClassVar = {"swap": SimpleNamespace(tile=(128, 16, 64), cluster=(1, 1), covers=(16, 128))}

    shapes = Transposed().workspace_shapes(m=300, n=200, k=16)
    assert shapes["r_partials"] == (300 * 2,)
    assert shapes["c_partials"] == (200 * 19,)
    assert shapes["arrivals"] == (19 + 2 + 2,)
