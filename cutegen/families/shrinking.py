"""What `check --shrink` has to know about a family: the steps that a sum is made in, and plainer kernels of a spec.
Imports neither torch nor cutlass."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from cutegen.families.knobs import plain


@dataclass(frozen=True, slots=True)
class Plainer:
    """One step towards the plainest kernel of a spec. name: what it does without. changes: values of a spec by dotted
    key; None takes the key out, so that it is decided."""

    name: str
    changes: Mapping[str, object]


# In a stream each launch waits for the one in front, in every family.
NO_OVERLAP = Plainer("no programmatic dependent launch", {"pdl": {"wait": False, "trigger": "none"}})


class Shrinking(Protocol):
    """SHRINKING of a family's module `shrinking`."""

    keeps: bool  # whether `keep_steps` can; else the least extent that fails tells the step

    def count_steps(self, plan: Any, dims: Mapping[str, int], key: str) -> int:
        """Steps in which the kernel of a tiling goes through what it sums; 0: they cannot be told apart."""
        ...

    def keep_steps(self, plan: Any, inputs: Sequence[Any], key: str, count: int) -> tuple[Any, ...]:
        """The inputs with zeros, or nothing, where later steps than the first `count` read; those given stay."""
        ...

    def describe_step(self, plan: Any, dims: Mapping[str, int], key: str, step: int) -> str:
        """A step in the words of the kernel: block, extents, slot of the ring."""
        ...

    def pin(self, spec: Any, resolved: Any, key: str, dims: Mapping[str, int]) -> Mapping[str, object]:
        """Values by dotted key with which a spec has this tiling and no other. dims: of the problem to run."""
        ...

    def list_plainer(self, spec: Any, resolved: Any) -> Iterator[Plainer]:
        """Plainer kernels, in the order to try them."""
        ...


def pin_decisions(resolved: Any) -> dict[str, object]:
    """`pin` of a family whose decisions are all of its one kernel."""
    return {d.key: plain(d.value) for d in resolved.decisions}


def apply_changes(data: Mapping[str, Any], changes: Mapping[str, object]) -> dict[str, Any]:
    """A copy of a spec's data with the changes of a Plainer. What is `auto` on the way becomes a map."""
    changed = copy.deepcopy(dict(data))
    for key, value in changes.items():
        *steps, last = key.split(".")
        at = changed
        for step in steps:
            if not isinstance(at.get(step), dict):
                if value is None:
                    break
                at[step] = {}
            at = at[step]
        else:
            if value is None:
                at.pop(last, None)
            else:
                at[last] = value
    return changed


def keep_first(value: Any, axis: int, count: int) -> Any:
    """A copy of a tensor with zeros from index `count` of an axis on."""
    kept = value.clone()
    if count < kept.shape[axis]:
        kept.narrow(axis, count, kept.shape[axis] - count).zero_()
    return kept
