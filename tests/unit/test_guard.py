"""Copies and bits of tensors whose rows are padded, as TMA needs them."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from cutegen.run.guard import bits, guarded, guarded_like, invalid_copy  # noqa: E402
from cutegen.runtime.arguments import TensorArg, allocate  # noqa: E402

# The scales of blocks of an 8-bit product: m contiguous, columns of a multiple of 16 bytes.
SCALES = TensorArg("sa", "float32", ("m", "ceil(k/128)"), contiguous=0, align=16, padded=True)


@pytest.mark.parametrize(("m", "k", "strides"), [(641, 656, (1, 644)), (1, 128, (1, 4)), (1, 300, (1, 4))])
def test_copies_keep_padded_rows(m: int, k: int, strides: tuple[int, int]) -> None:
    scales = allocate(SCALES, {"m": m, "k": k}, "cpu").fill_(1.0)
    late = invalid_copy(scales)
    assert scales.stride() == late.stride() == guarded_like(scales, padded=False).tensor.stride() == strides
    assert late.isnan().all()
    assert torch.equal(late.copy_(scales), scales)
    counts = torch.tensor([3, 4], dtype=torch.int32)
    assert invalid_copy(counts).tolist() == [0, 0]
    assert invalid_copy(0.5) == 0.5


@pytest.mark.parametrize(("m", "k"), [(1, 128), (1, 300), (5, 300)])
def test_bits_of_padded_rows(m: int, k: int) -> None:
    scales = allocate(SCALES, {"m": m, "k": k}, "cpu").fill_(1.0)
    before = bits(scales).clone()
    assert before.tolist() == [0, 0x3F80] * scales.numel()
    scales[-1, -1] = -1.0
    assert (bits(scales) != before).sum() == 1


@pytest.mark.parametrize("name", ["bfloat16", "float16", "float32", "float8_e4m3fn", "float8_e5m2"])
def test_a_nan_that_was_written_is_no_poison(name: str) -> None:
    buffer = guarded((3, 16), 1, getattr(torch, name), "cpu", padded=True)
    assert buffer.tensor.float().isnan().all()
    assert buffer.unwritten() == 48
    buffer.tensor[0] = torch.nan
    assert buffer.unwritten() == 32
    buffer.tensor[1:] = 1.0
    assert buffer.unwritten() == 0
    assert buffer.damage() == ""
    buffer.tensor.as_strided((1,), (1,), buffer.offset + 16).fill_(torch.nan)
    assert buffer.damage() == "wrote outside of the tensor: 1 elements between rows"
