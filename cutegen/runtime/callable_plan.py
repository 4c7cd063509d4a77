"""What calls.py and torch_op.py need of a plan. Importing this module imports neither torch nor cutlass."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from cutegen.runtime.arguments import Argument, TensorArg


class CallablePlan:
    """inputs, outputs: what a launch passes, in this order; but what is updated in place, named in in_place, is among
    both and passed once, as an input."""

    name: ClassVar[str]
    inputs: tuple[Argument, ...]
    outputs: tuple[TensorArg, ...]
    in_place: tuple[str, ...] = ()
    launch_fn: Callable[..., None]

    @property
    def fresh_outputs(self) -> tuple[TensorArg, ...]:
        """The outputs that a launch passes after its inputs: all but those that are updated in place."""
        return tuple(o for o in self.outputs if o.name not in self.in_place)

    def order_results(self, inputs: Sequence[Any], outputs: Sequence[Any]) -> tuple[Any, ...]:
        """Every result of a launch in declared order, from the tensors that it passed."""
        held = {a.name: v for a, v in zip((*self.inputs, *self.fresh_outputs), (*inputs, *outputs))}
        return tuple(held[o.name] for o in self.outputs)

    def place_results(self, inputs: Sequence[Any], results: Sequence[Any]) -> tuple[Any, ...]:
        """What a launch passes, scratch aside, so that its results come to lie in given tensors; those that it updates
        in place have to hold the inputs' values."""
        held = {o.name: v for o, v in zip(self.outputs, results)}
        fresh = (held[o.name] for o in self.fresh_outputs)
        updated = (held[a.name] if a.name in self.in_place else v for a, v in zip(self.inputs, inputs))
        return (*updated, *fresh)

    def allocate_outputs(self, *inputs: Any) -> tuple[Any, ...]:
        """Uninitialised fresh_outputs in the declared layouts. TypeError, ValueError: the inputs do not fit."""
        raise NotImplementedError

    def kernel_fn(self, *inputs: Any, sms: int | None = None) -> Any:
        """The output (a tuple when there are several), computed on the current stream: newly allocated, or the input
        that is updated in place."""
        raise NotImplementedError

    def launch_into(self, inputs: Sequence[Any], outputs: Sequence[Any], sms: int | None = None) -> None:
        """A launch into given fresh_outputs, with the plan's own scratch."""
        self.launch_fn(*inputs, *outputs, sms=sms)
