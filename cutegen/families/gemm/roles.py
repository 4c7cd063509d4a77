"""Which dim of a product plays which role: pure reasoning over the names of dims."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Roles:
    """The dim (its text in the declarations) of each role. flat: batch is that of groups, whose rows are all in m."""

    m: str
    n: str
    k: str
    batch: str | None
    flat: bool = False

    def role_of(self, dim: str) -> str | None:
        return {self.m: "m", self.n: "n", self.k: "k", self.batch or "": "batch"}.get(dim)


def find_roles(a: Sequence[str], b: Sequence[str], output: Sequence[str], names: Sequence[str]) -> Roles | str:
    """Roles from the dims of the two operands and of one output, or why there are none.

    The dim that both operands share and the output lacks is k. A dim that both share and the output has is the batch
    dim; when only one operand has it, it is the first of that operand's two own dims. names: of the three tensors.
    """
    name_a, name_b, name_d = (f"`{name}`" for name in names)
    shared = [dim for dim in a if dim in b]
    summed = [dim for dim in shared if dim not in output]
    batch = [dim for dim in shared if dim in output]
    if not shared:
        return f"{name_a} [{', '.join(a)}] and {name_b} [{', '.join(b)}] share no dim to contract"
    if not summed:
        return f"{name_a} and {name_b} share {' and '.join(shared)}, but {name_d} has it, too: nothing is contracted"
    if len(summed) > 1:
        return f"{name_a} and {name_b} share {' and '.join(summed)} without {name_d}: one dim can be contracted"
    own = {}
    for name, dims in ((name_a, a), (name_b, b)):
        free = [dim for dim in dims if dim not in shared]
        if len(free) == 2:
            batch.append(free.pop(0))
        if len(free) != 1:
            count = f"{len(free)} dims" if free else "no dim"
            return f"{name} [{', '.join(dims)}] has {count} of its own; it needs one, and at most a batch dim"
        own[name] = free[0]
    if len(batch) > 1:
        return f"{' and '.join(batch)} would both be batch dims; one is supported"
    return Roles(own[name_a], own[name_b], summed[0], batch[0] if batch else None)
