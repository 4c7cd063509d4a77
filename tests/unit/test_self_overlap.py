"""Outputs with several elements at one address are refused before anything is launched."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mla_cpu import CpuMla
from test_in_place import SHAPE, UpdatingPlan

from cutegen.runtime.overlap import lies_apart, may_share

torch = pytest.importorskip("torch")


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 12)), max_size=4))
def test_layouts_lie_apart_exactly_when_no_two_elements_meet(axes: list[tuple[int, int]]) -> None:
    shape, strides = [n for n, _ in axes], [s for _, s in axes]
    offsets = [sum(i * s for i, s in zip(index, strides)) for index in product(*(range(n) for n in shape))]
    assert lies_apart(shape, strides) == (len(set(offsets)) == len(offsets))


@pytest.mark.parametrize(
    ("shape", "strides", "apart"),
    [
        ((8192, 4096), (4096, 1), True),
        ((8192, 4096), (4088, 1), False),
        ((8192, 4096), (0, 1), False),
        ((1, 4096), (0, 1), True),
        ((64, 8192, 512), (512, 64 * 512, 1), True),  # batches as bands of one row
        ((3, 8192, 512), (3 * 512, 2 * 512, 1), False),
        ((2, 3, 512), (3 * 512, 2 * 512, 1), True),  # rows 0, 2, 4 and 3, 5, 7
    ],
)
def test_large_layouts_are_judged_without_counting(
    shape: tuple[int, ...], strides: tuple[int, ...], apart: bool
) -> None:
    assert lies_apart(shape, strides) is apart


def test_bands_share_nothing_only_where_every_batch_begins_a_row() -> None:
    """Rows of 128 elements in batches 1000 apart: columns 64 on of one batch are among columns 0 on of the next."""
    buffer = torch.zeros(4000)
    for batch, shared in ((1000, True), (1024, False)):
        first, second = (buffer.as_strided((2, 8, 64), (batch, 128, 1), offset) for offset in (0, 64))
        first.fill_(1)
        assert bool(second.sum()) is shared
        assert may_share(first, second) is shared
        buffer.zero_()


@pytest.mark.parametrize("name", ["d", "e"])
@pytest.mark.parametrize("stride", [0, 8])
def test_an_output_of_a_product_that_overlaps_itself(name: str, stride: int) -> None:
    plan = UpdatingPlan()
    inputs = plan.prepare_inputs(**SHAPE)
    values = dict(zip("abdce", (*inputs, *plan.allocate_outputs(*inputs))))
    before = values["d"].clone()
    values[name] = torch.zeros(24 * 16, dtype=torch.bfloat16).as_strided((24, 16), (stride, 1))
    said = rf"updating: {name}: has several elements at one address \(shape \(24, 16\), strides \({stride}, 1\)\)"
    with pytest.raises(ValueError, match=f"{said}, and each would be written: allocate it so"):
        plan.launch_fn(*values.values())
    assert torch.equal(values["d"], before) or name == "d"
    assert not values[name].any()  # nothing ran
    values[name] = torch.zeros(24, 64, dtype=torch.bfloat16)[:, :16]  # rows that lie apart
    plan.launch_fn(*values.values())


@pytest.mark.parametrize(("position", "name"), [(-4, "out"), (-3, "lse")])
def test_an_output_of_mla_decode_that_overlaps_itself(position: int, name: str) -> None:
    plan = CpuMla()
    inputs = plan.prepare_inputs(batch=2, query_len=1, heads=4, kv_len=100)
    values: list[Any] = [*inputs, *plan.allocate_outputs(*inputs), *plan.allocate_scratch(*inputs)]
    values[position] = values[position][:1].expand_as(values[position])
    with pytest.raises(ValueError, match=f"{name}: has several elements at one address"):
        plan.launch_fn(*values)
