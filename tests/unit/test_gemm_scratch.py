"""Scratch of GEMM plans on the CPU: what a call needs, brings, gets from the plan, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, ClassVar

import pytest

torch = pytest.importorskip("torch")

from gemm_specs import FUSED, PLAIN, resolve_text  # noqa: E402

from cutegen.runtime.arguments import TensorArg  # noqa: E402
from cutegen.runtime.gemm import product_scratch  # noqa: E402
from cutegen.runtime.gemm.plan import KernelPlan  # noqa: E402
from cutegen.runtime.gemm.tiling import GemmTiling  # noqa: E402

SPLIT = "tiling: {tile: [64, 64, 64], cluster: [2, 1], split_k: 4}\n"


def numbers(text: str) -> GemmTiling:
    found: GemmTiling = resolve_text(text).resolved.default.numbers
    return found


PARALLEL = numbers(PLAIN + SPLIT)
ATOMIC = numbers(PLAIN + SPLIT.replace("split_k: 4", "split_k: 4, split_k_sum: unordered_atomic"))
TURNSTILE = numbers(PLAIN + SPLIT.replace("split_k: 4", "split_k: 4, split_k_sum: ordered_turnstile"))
DYNAMIC = numbers(PLAIN + "scheduler: dynamic_persistent\ntiling: {tile: [64, 64, 64], cluster: [2, 1]}\n")
WHOLE = numbers(PLAIN)


class CpuPlan(KernelPlan):
    name, arch, device, reduced = "gemm", "sm_90a", "cpu", "k"
    dims: ClassVar = {"m": (1, None), "n": (8, None), "k": (8, None)}
    inputs = (
        TensorArg("a", "bfloat16", ("m", "k"), contiguous=1, multiple=8),
        TensorArg("b", "bfloat16", ("n", "k"), contiguous=1, multiple=8),
    )
    outputs = (TensorArg("d", "bfloat16", ("m", "n"), contiguous=1, multiple=8, axes=(0, 1)),)
    tilings: ClassVar = {"parallel": PARALLEL, "atomic": ATOMIC, "whole": WHOLE, "dynamic": DYNAMIC}

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[str, dict[str, int]]] = []

    def sm_count(self, index: int) -> int:
        return 8

    def dispatch(self, device: int | None = None, /, **dims: int) -> str:
        return {64: "parallel", 128: "atomic", 192: "dynamic"}.get(dims["m"], "whole")

    def compile(self, key: str) -> Callable[..., None]:
        names = [s.name for s in self.scratch if s.name in self.tilings[key].scratch]

        def kernel(a: Any, b: Any, d: Any, *rest: Any) -> None:
            *scratch, sms = rest
            assert sms == 8
            if any((t.dtype is torch.int32) != (name == "semaphores") for name, t in zip(names, scratch)):
                raise TypeError("Mismatched type")  # as TVM FFI does
            self.seen.append((key, dict(zip(names, (t.numel() for t in scratch), strict=True))))
            d.copy_((a.float() @ b.float().mT).to(d.dtype))

        return kernel


@pytest.mark.parametrize(
    ("tiling", "ctas"),
    [
        ("tile: [64, 64, 64], cluster: [2, 1]", 2),
        ("tile: [64, 64, 64], cluster: [2, 1], split_k: 4", 2),
        ("tile: [64, 64, 64], cluster: [2, 1], split_k: 4, split_k_sum: unordered_atomic", 2),
        ("tile: [64, 64, 64], cluster: [1, 1], split_k: 3, split_k_sum: ordered_cluster", 3),
    ],
)
def test_parts_without_scratch_are_a_cluster(tiling: str, ctas: int) -> None:
    assert numbers(f"{PLAIN}tiling: {{{tiling}}}\n").cluster_size == ctas


def test_sizes_are_per_cluster_tile_and_exact() -> None:
    assert PARALLEL.covers == (128, 64)
    assert PARALLEL.scratch == ("workspace", "semaphores")
    tile = 2 * 64 * 64
    # 200 x 100 outputs are 2 x 2 cluster tiles of 128 x 64, twice.
    assert PARALLEL.scratch_sizes(200, 100, 2) == {"workspace": 3 * 8 * tile, "sums": 0, "semaphores": 16}
    assert ATOMIC.scratch_sizes(200, 100, 2) == {"workspace": 0, "sums": 8 * tile, "semaphores": 16}
    assert TURNSTILE.scratch_sizes(200, 100, 2) == {"workspace": 8 * tile, "sums": 0, "semaphores": 16}
    assert DYNAMIC.scratch_sizes(10**6, 10**6, 1) == {"workspace": 0, "sums": 0, "semaphores": 2}
    assert WHOLE.scratch_sizes(200, 100, 2) == {"workspace": 0, "sums": 0, "semaphores": 0}
    assert (WHOLE.repeatable, PARALLEL.repeatable, ATOMIC.repeatable) == (True, True, False)


def test_a_transposed_tile_covers_the_spec_s_rows_and_columns() -> None:
    found = numbers(FUSED + "tiling: {swap_ab: true, tile: [128, 16, 64], cluster: [2, 1], split_k: 2}\n")
    assert found.covers == (16, 256)
    assert found.scratch_sizes(17, 256, 1)["workspace"] == 2 * 2 * 128 * 16


def test_a_call_without_scratch_uses_the_plan_s_own_and_allocates_once() -> None:
    plan = CpuPlan()
    assert [s.name for s in plan.scratch] == ["workspace", "sums", "semaphores"]
    for m in (64, 128, 192, 64, 8):
        inputs = plan.prepare_inputs(m=m, n=64, k=64)
        out = plan.allocate_outputs(*inputs)
        plan.launch_fn(*inputs, *out)
        assert torch.equal(out[0], plan.kernel_fn(*inputs))
    assert [key for key, _ in plan.seen[::2]] == ["parallel", "atomic", "dynamic", "parallel", "whole"]
    assert plan.seen[0][1] == {"workspace": 3 * 2 * 64 * 64, "semaphores": 2}
    assert plan.seen[-1][1] == {}
    (own,) = [tensors for (_, stream), tensors in plan.scratch_of.own._sets.items() if stream != "graphs"]
    assert [t.numel() for t in own] == [3 * 2 * 64 * 64, 2 * 64 * 64, 2]
    assert not own[1].count_nonzero()
    assert not own[2].count_nonzero()


def test_a_tiling_without_scratch_asks_for_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor looks for it, which would take a launch microseconds."""
    plan = CpuPlan()
    inputs = plan.prepare_inputs(m=8, n=64, k=64)
    outputs, scratch = plan.allocate_outputs(*inputs), plan.allocate_scratch(*inputs)
    monkeypatch.setattr(plan.scratch_of, "fit", None)
    plan.kernel_fn(*inputs)
    plan.launch_fn(*inputs, *outputs, *scratch)  # as callers do who bring some for whatever tiling runs
    assert plan.seen == [("whole", {})] * 2
    assert plan.scratch_of.own._sets == {}
    with pytest.raises(TypeError, match=r"takes 6 arguments \(a, b, d, workspace, sums, semaphores\), got 5"):
        plan.launch_fn(*inputs, *outputs, *scratch[:2])


def test_scratch_of_the_caller_is_used_and_measured() -> None:
    plan = CpuPlan()
    inputs = plan.prepare_inputs(m=64, n=200, k=64)
    out = plan.allocate_outputs(*inputs)
    scratch = plan.allocate_scratch(*inputs)
    shapes = plan.workspace_shapes(m=64, n=200, k=64)
    assert {s.name: tuple(t.shape) for s, t in zip(plan.scratch, scratch)} == shapes
    plan.launch_fn(*inputs, *out, *scratch)
    assert plan.scratch_of.own._sets == {}
    short = (scratch[0][:-1], *scratch[1:])
    with pytest.raises(ValueError, match="workspace has 98303 elements, tiling parallel needs 98304: size it by work"):
        plan.launch_fn(*inputs, *out, *short)
    with pytest.raises(TypeError, match=r"takes 6 arguments \(a, b, d, workspace, sums, semaphores\), got 5"):
        plan.launch_fn(*inputs, *out, *scratch[:2])
    with pytest.raises(TypeError, match="semaphores: has dtype float32, needs int32"):
        plan.launch_fn(*inputs, *out, scratch[0], scratch[1], scratch[1], sms=None)
    with pytest.raises(TypeError, match=r"takes 3 arguments \(a, b, d\), got 2"):
        plan.launch_fn(*inputs)


def test_more_partial_sums_than_a_kernel_can_count_are_refused() -> None:
    plan = CpuPlan()
    with pytest.raises(
        ValueError, match="parallel needs 3221225472 elements of workspace for 32768 x 32768 x 1 accumulators"
    ):
        plan.workspace_shapes(m=32768, n=32768, k=64)


def test_scratch_is_sized_for_the_tiling_that_runs() -> None:
    """A winner for few rows that splits k does not keep a problem with many from being run."""
    plan = CpuPlan()
    inputs = tuple(torch.empty(32768, 64, dtype=torch.bfloat16, device="meta") for _ in "ab")
    assert [t.numel() for t in plan.allocate_scratch(*inputs, key="whole")] == [0, 0, 0]
    with pytest.raises(ValueError, match="parallel needs 3221225472 elements"):
        plan.allocate_scratch(*inputs)


def test_needs_of_ever_new_problems_do_not_pile_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(product_scratch, "MAX_POINTS", 8)
    plan = CpuPlan()
    wanted = {m: plan.scratch_of.needs("parallel", (m, 64), 64) for m in range(64, 6400, 64)}
    assert len(plan.scratch_of._needs) <= 8
    assert wanted[6336] == (3 * 50 * 2 * 64 * 64, 0, 100)
    assert all(plan.scratch_of.needs("parallel", (m, 64), 64) == needs for m, needs in wanted.items())


def test_a_tiling_is_chosen_for_the_device_of_the_inputs() -> None:
    """As a launch does: on another device than the current one another winner may run."""
    asked: list[int | None] = []

    class Measured(CpuPlan):
        winners: ClassVar = {"NVIDIA H200": {}}

        def dispatch(self, device: int | None = None, /, **dims: int) -> str:
            asked.append(device)
            return "whole"

    plan = Measured()
    inputs = plan.prepare_inputs(m=8, n=64, k=64)
    assert plan.choose_instance(inputs, {"m": 8, "n": 64, "k": 64}) == "whole"
    assert asked == [inputs[0].get_device()]


def test_a_plan_without_such_tilings_has_no_scratch() -> None:
    plan = type("Plan", (CpuPlan,), {"tilings": {"whole": replace(WHOLE)}})()
    assert plan.scratch == ()
    inputs = plan.prepare_inputs(m=8, n=64, k=64)
    assert plan.allocate_scratch(*inputs) == ()
    assert plan.plan(*inputs).scratch_tensors == ()
    plan.kernel_fn(*inputs)
    assert plan.seen == [("whole", {})]
