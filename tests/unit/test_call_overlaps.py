"""Calls that are refused before anything is launched: outputs and scratch that overlap, surplus arguments, extents that
kernels do not count, and whatever is wrong with a call whose rows are copied first."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import pytest

pytest.importorskip("torch")

import torch
from gemm_specs import BLOCKS, PLAIN, gathered, gathered_scales
from mla_cpu import CpuMla
from test_mla_plan import SHAPE as MLA_SHAPE
from test_mla_plan import arguments as mla_arguments
from test_plan import SHAPE, CpuPlan, arguments, rows
from test_scaled_baselines import plan_of

from cutegen.runtime import slots
from cutegen.runtime.arguments import MAX_EXTENT, TensorArg
from cutegen.runtime.slots import make_storage_check


class TwoOutputs(CpuPlan):
    outputs = (*CpuPlan.outputs, TensorArg("e", "bfloat16", ("m", "n"), contiguous=1, multiple=8, axes=(0, 1)))

    def compile(self, key: str) -> Callable[..., None]:
        return lambda *values: self.launched.append(key)


def test_outputs_that_overlap_in_part_are_refused() -> None:
    plan = TwoOutputs()
    inputs = plan.prepare_inputs(**SHAPE)
    m, n = SHAPE["m"], SHAPE["n"]
    buffer = torch.empty(4 * m * n, dtype=torch.bfloat16)
    first, last = buffer[: m * n].view(m, n), buffer[m * n : 2 * m * n].view(m, n)
    plan.launch_fn(*inputs, first, last)
    plan.launch_fn(*inputs, last, first)
    bands = buffer.view(2 * m, 2 * n)[:m]
    plan.launch_fn(*inputs, bands[:, :n], bands[:, n:])  # next to each other in one buffer
    assert len(plan.launched) == 3
    shifted = buffer[n : n + m * n].view(m, n)
    spread = buffer.view(2 * m, 2 * n)[::2, :n]
    for d, e in ((first, shifted), (shifted, first), (first, first), (spread, last)):
        with pytest.raises(ValueError, match=r"gemm: (d|e): shares storage with (d|e)"):
            plan.launch_fn(*inputs, d, e)
    assert len(plan.launched) == 3


def test_places_that_passed_say_nothing_of_other_calls() -> None:
    """What is remembered of a call is where its tensors lay: other layouts, sizes and dtypes there are looked at."""
    plan = TwoOutputs()
    inputs = plan.prepare_inputs(**SHAPE)
    m, n = SHAPE["m"], SHAPE["n"]
    buffer = torch.empty(4 * m * n, dtype=torch.bfloat16)
    first, last = buffer[: m * n].view(m, n), buffer[m * n : 2 * m * n].view(m, n)
    for _ in range(2):
        plan.launch_fn(*inputs, first, last)
    spread = buffer.view(2 * m, 2 * n)[::2, :n]
    assert spread.data_ptr() == first.data_ptr()
    with pytest.raises(ValueError, match="d: shares storage with e"):
        plan.launch_fn(*inputs, spread, last)
    a, *others = inputs
    with pytest.raises(ValueError, match="d: shares storage with e"):  # more rows at the same addresses
        plan.launch_fn(
            torch.cat([a, a]), *others, buffer[: 2 * m * n].view(2 * m, n), buffer[m * n : 3 * m * n].view(-1, n)
        )
    assert len(plan.launched) == 2
    narrow = buffer.view(torch.int8)[: 4 * m * n]
    check, places = make_storage_check(plan.outputs, ["d", "e"], {}), set()
    check((narrow[: m * n].view(m, n), narrow[m * n : 2 * m * n].view(m, n)), places)
    with pytest.raises(ValueError, match="overlapping outputs"):
        check((first, narrow[m * n :].view(torch.bfloat16)[: m * n].view(m, n)), places)
    assert not places


def test_no_more_places_than_some_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slots, "MOST_PLACES", 3)
    check, places = make_storage_check(TwoOutputs.outputs, ["d", "e"], {}), set()
    kept = [torch.empty(2, 4, 8, dtype=torch.bfloat16) for _ in range(4)]
    for count, pair in zip((1, 2, 3, 1), kept):
        check((pair[0], pair[1]), places)
        assert len(places) == count
    full = torch.empty(4, 8, dtype=torch.bfloat16)
    with pytest.raises(ValueError, match="overlapping outputs"):
        check((full, full), places)


def test_empty_tensors_share_no_storage() -> None:
    """A reduction over no rows is launched all the same."""
    x, y, z = (TensorArg(name, "float32", ("m", "n"), 1) for name in "xyz")
    check = make_storage_check((x, y, z), ["y", "z"], {"z": "x"})
    check((torch.empty(0, 8), torch.empty(0, 8), torch.empty_strided((0, 8), (16, 1))))
    full = torch.zeros(2, 8)
    with pytest.raises(ValueError, match="arguments 1 and 0"):
        check((full, full.view(2, 8), torch.zeros(2, 8)))


@pytest.fixture
def copying(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A plan whose rows are gathered by a copy in front; what is launched is counted."""
    return counted(plan_of(gathered(PLAIN, "copy"), tmp_path), monkeypatch)


def counted(plan: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    plan.launched = []
    monkeypatch.setattr(plan, "compile", lambda key: lambda *values: plan.launched.append(key))
    monkeypatch.setattr(plan, "compile_copy", lambda: lambda *values: plan.launched.append("copy"))
    plan._sm_counts[-1] = 4
    return plan


WRONG: dict[str, Callable[[Any], Any]] = {
    "none": lambda value: None,
    "number": lambda value: 3,
    "dtype": lambda value: value.to(torch.float64),
    "rank": lambda value: value[..., None],
    "batch": lambda value: value[None],
    "shorter": lambda value: value[..., :-1].contiguous(),
    "longer": lambda value: torch.cat([value, value]),
    "shifted": lambda value: torch.empty(value.numel() + 1, dtype=value.dtype)[1:].view(value.shape),
    "spread": lambda value: value.repeat_interleave(2, -1)[..., ::2],
}
LEGAL = {("a", "longer"), ("rows", "shifted")}  # any number of rows to gather from; an index lies anywhere


@pytest.mark.parametrize("name", ["a", "rows", "b", "d"])
@pytest.mark.parametrize("how", WRONG)
def test_nothing_is_copied_for_a_call_that_is_refused(copying: Any, name: str, how: str) -> None:
    inputs = copying.prepare_inputs(t=5, m=40, n=16, k=8)
    values = [*inputs, *copying.allocate_outputs(*inputs)]
    copying.launch_fn(*values)
    assert len(copying.launched) == 2
    at = [a.name for a in (*copying.inputs, *copying.outputs)].index(name)
    values[at] = WRONG[how](values[at])
    if (name, how) in LEGAL:
        copying.launch_fn(*values)
        assert len(copying.launched) == 4
        return
    with pytest.raises((TypeError, ValueError), match=rf"^{copying.name}: "):
        copying.launch_fn(*values)
    assert len(copying.launched) == 2


def test_surplus_arguments_are_errors(copying: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    inputs = copying.prepare_inputs(t=5, m=40, n=16, k=8)
    (d,) = copying.allocate_outputs(*inputs)
    (scratch,) = copying.allocate_scratch(*inputs)
    copying.launch_fn(*inputs, d, scratch)
    copying.launched.clear()
    for surplus in (
        (d,),
        (torch.empty_like(d),),
        (5,),
        (None,),
        (scratch, scratch),
        (d, d),
        (d.view(-1),),
        (scratch[:7],),
    ):
        with pytest.raises((TypeError, ValueError), match=rf"^{copying.name}: "):
            copying.launch_fn(*inputs, d, *surplus)
    large = torch.empty(d.numel(), dtype=torch.bfloat16)
    with pytest.raises(ValueError, match="d: shares storage with copied_a"):
        copying.launch_fn(*inputs, large.view(d.shape), large)
    with pytest.raises(TypeError, match=r"takes 4 arguments|takes 5 arguments"):
        copying.launch_fn(*inputs, d, scratch, scratch)
    assert copying.launched == []
    scales = counted(plan_of(gathered_scales(BLOCKS, how="copy") + "portfolio: 1\n", tmp_path / "scales"), monkeypatch)
    inputs = scales.prepare_inputs(t=5, m=40, n=16, k=256)
    (d,) = scales.allocate_outputs(*inputs)
    a, sa = scales.allocate_scratch(*inputs)
    scales.launch_fn(*inputs, d, a, sa)
    assert len(scales.launched) == 2
    both = torch.empty(a.nbytes + sa.nbytes, dtype=torch.uint8)
    with pytest.raises(ValueError, match="copied_a: shares storage with copied_sa"):
        scales.launch_fn(*inputs, d, both[: a.numel()].view(a.dtype), both[: sa.nbytes].view(sa.dtype))
    assert len(scales.launched) == 2


def test_outputs_and_scratch_of_mla_decode() -> None:
    class Counting(CpuMla):
        launches: ClassVar[list[str]] = []

        def compile(self, key: str) -> Callable[..., None]:
            def kernel(*values: Any) -> None:
                self.launches.append(key)

            return kernel

    plan = Counting()
    *inputs, out, lse, workspace, semaphores = mla_arguments(plan)
    plan.launch_fn(*inputs, out, lse, workspace, semaphores)
    assert len(plan.launches) == 1
    shared = workspace[: lse.numel()].view(lse.shape)
    with pytest.raises(ValueError, match="lse: shares storage with workspace"):
        plan.launch_fn(*inputs, out, shared, workspace, semaphores)
    counters = workspace.view(torch.int32)[: semaphores.numel()]
    with pytest.raises(ValueError, match="workspace: shares storage with semaphores"):
        plan.launch_fn(*inputs, out, lse, workspace, counters)
    assert len(plan.launches) == 1


def test_a_call_like_one_that_passed_does_little() -> None:
    """Shapes and addresses were seen: no sizes, tilings or layouts are looked at, whosever scratch it is."""

    class Once(CpuMla):
        def size(self, *given: Any) -> tuple[int, int, int]:
            sized.append(given)
            return super().size(*given)

    sized: list[Any] = []
    plan = Once()
    values = mla_arguments(plan)
    find, found = plan._own_scratch.find, []
    plan._own_scratch.find = lambda *given: found.append(given) or find(*given)  # type: ignore[method-assign]
    for _ in range(3):
        plan.launch_fn(*values)
        plan.launch_into(values[:5], values[5:7])
    assert len(sized) == 2  # the plan's own scratch has other sizes
    assert len(found) == 1
    short = [*values[:-1], values[-1][:1]]
    with pytest.raises(ValueError, match="semaphores: has 1 elements"):
        plan.launch_fn(*short)
    wide = plan.prepare_inputs(**{**MLA_SHAPE, "heads": 2})
    plan.launch_fn(*wide, *plan.allocate_outputs(*wide), *values[7:])
    with pytest.raises(ValueError, match=r"softmax_scale: is -1\.0"):
        plan.launch_fn(*values[:4], -1.0, *values[5:])


def test_extents_that_kernels_do_not_count_are_refused_in_our_words() -> None:
    class Refusing(CpuPlan):
        def compile(self, key: str) -> Callable[..., None]:
            def kernel(*values: Any) -> None:
                raise OverflowError("value does not fit")

            return kernel

    plan = Refusing()
    _, b, bias, alpha, _ = (*plan.prepare_inputs(**SHAPE), None)
    many = torch.empty(1, SHAPE["k"], dtype=torch.bfloat16).expand(MAX_EXTENT + 1, -1)
    d = torch.empty(1, SHAPE["n"], dtype=torch.bfloat16).expand(MAX_EXTENT + 1, -1)
    with pytest.raises(ValueError, match=rf"a: shape\[0\] \(m\) is {2**31}, more than kernels count \({2**31 - 1}\)"):
        plan.launch_fn(many, b, bias, alpha, d)


@pytest.mark.parametrize("off", [2, 4, 8, 14])
def test_pointers_are_held_to_all_of_their_alignment(off: int) -> None:
    plan = CpuPlan()
    values = [*arguments(plan)]
    values[0] = rows((24, 32), 40, off // 2)
    with pytest.raises(ValueError, match=f"a: data pointer is {off} bytes past a multiple of 16"):
        plan.launch_fn(*values)
