"""What precedes timed launches."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from cutegen.run.preceding import stand_behind  # noqa: E402


def test_launches_back_to_back_are_left_as_they_are() -> None:
    launches = [lambda: 1, lambda: 2]
    assert stand_behind("nothing", launches, [(), ()]) == launches


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float8_e4m3fn, torch.int8, torch.float32, torch.float64])
def test_the_first_tensor_is_copied_bit_by_bit_before_each_launch(dtype: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[Any] = []
    bitwise_or = torch.bitwise_or

    def copied(bits: Any, zero: int, out: Any) -> Any:
        done.append(bitwise_or(bits, zero, out=out))
        return out

    monkeypatch.setattr(torch, "bitwise_or", copied)
    sets = [(2.0, torch.randn(6, 4).to(dtype).mT[1:], torch.zeros(3)) for _ in range(2)]
    launches = [lambda i=i: done.append(i) for i in range(2)]  # type: ignore[misc]
    for launch in stand_behind("plain", launches, sets):
        launch()
    assert done[1::2] == [0, 1]
    for copy, (_, source, _) in zip(done[::2], sets, strict=True):
        assert copy.data_ptr() != source.data_ptr()
        assert torch.equal(copy, source.view(copy.dtype))


def test_a_chain_repeats_the_first_launch() -> None:
    launches = [lambda: 1, lambda: 2]
    assert stand_behind("itself", launches, [(), ()]) == launches[:1]
