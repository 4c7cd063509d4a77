"""What precedes each timed launch: another one on other tensors, back to back; an ordinary kernel, as in a model, where
the kernel in front is another library's and lets nothing start early; or one on the same tensors, which L2 has."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from cutegen.defaults import Behind
from cutegen.run.device import Launch


def stand_behind(behind: Behind, launches: Sequence[Launch], inputs: Sequence[tuple[Any, ...]]) -> list[Launch]:
    """The launches; with "plain", each behind a copy of the first tensor among its inputs, as one launch of both; with
    "itself", the first one alone: each repetition writes the outputs of the one in front, and so waits for it."""
    if behind == "itself":
        return list(launches[:1])
    if behind == "nothing":
        return list(launches)
    return [_follow(_copy_first(values), launch) for values, launch in zip(inputs, launches, strict=True)]


def _follow(first: Launch, second: Launch) -> Launch:
    def launch() -> None:
        first()
        second()

    return launch


def _copy_first(inputs: tuple[Any, ...]) -> Launch:
    """By an elementwise kernel of torch: what `copy_` captures is a copy node, which need not be a kernel. Bits are
    copied as integers, which torch computes with whatever the dtype is."""
    import torch

    source = next(v for v in inputs if hasattr(v, "element_size") and v.dim())
    bits = source.view({1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[source.element_size()])
    target = torch.empty_like(bits)
    return lambda: torch.bitwise_or(bits, 0, out=target)
