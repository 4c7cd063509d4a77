"""A plan's own reference as what its kernel is measured against. Importing this module imports neither torch nor
cutlass."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

Launch = Callable[[], Any]
# (inputs, outputs) -> a launch that computes the same, or part of it, into the outputs or tensors of its own; where
# there are Ways, what these take of one set of tensors
Bind = Callable[[tuple[Any, ...], tuple[Any, ...]], Any]
# The ways in which a library can do it: for what one set has, launches of any set's.
Ways = Callable[[Any], Iterator[Callable[[Any], Any]]]


def bind_eager(plan: Any) -> Bind:
    """(inputs, outputs) -> a launch of the reference on the inputs as they are, op by op."""
    return lambda inputs, outputs: lambda: plan._reference(*inputs)


def bind_compiled(plan: Any) -> Bind:
    """The same, compiled by Inductor for the shapes at hand."""

    @functools.cache
    def compiled() -> Callable[..., Any]:
        import torch

        torch._dynamo.reset()  # one shape at a time, and no limit on how many
        return torch.compile(plan._reference, dynamic=False)

    return lambda inputs, outputs: lambda: compiled()(*inputs)
