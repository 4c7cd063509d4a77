"""What `check` and `bench` have to know about a family: the problems that break its kernels, where in a kernel an
element is computed, and whom to measure against. Imports neither torch nor cutlass."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeAlias

from cutegen.runtime.arguments import TensorArg
from cutegen.runtime.baselines import Bind, Ways

# Tiles for each SM of a large problem: with more than two a persistent kernel wraps around, and its rings carry over
# from tile to tile.
WAVES = 2.2
# The ways of being adversarial about a problem; cutegen/run/cases.py tells what each does.
Mode: TypeAlias = Literal[
    "numerics", "strides", "alias", "zeroed", "stream", "graph", "repeat", "alone", "rows", "empty"
]
# Those that any kernel passes on its hardest problems.
ALL_MODES: tuple[Mode, ...] = ("numerics", "strides", "stream", "graph", "repeat")


def thorough_modes(plan: Any) -> tuple[Mode, ...]:
    """ALL_MODES, and those for what the plan of a product promises besides. plan: None for functions of a file."""
    aliases, scaled = getattr(plan, "aliases", {}), getattr(plan, "scaled_tiles", {})
    modes: list[Mode] = [*ALL_MODES]
    if aliases:
        modes.append("alias")
    if scaled:
        modes.append("zeroed")
    return tuple(modes)


@dataclass(frozen=True, slots=True)
class Roles:
    """Names of the dims that a product's rows and columns, its contraction and its batch have, and of those of the
    operand that rows are gathered from; "" where there is none, or it is unknown."""

    m: str = ""
    n: str = ""
    k: str = ""
    batch: str = ""
    gathered: str = ""


@dataclass(frozen=True, slots=True)
class Problem:
    """A problem to run. tiling: the key to force, None for the dispatch's choice. draw: what else decides its random
    inputs, for the plan's draw_inputs."""

    name: str
    dims: Mapping[str, int]
    tiling: str | None
    modes: tuple[Mode, ...] = ("numerics",)
    draw: Any = None


def operand_dtype(plan: Any) -> Mapping[str, Sequence[str]]:
    """`describe_work` of a plan that says no more."""
    return {"dtype": [next((a.dtype for a in plan.inputs if isinstance(a, TensorArg)), "")]}


@dataclass(frozen=True, slots=True)
class Baseline:
    """bind raises when the library is missing or refuses; its message becomes the reason for skipping.

    complete: it computes all of the plan's outputs, so that they can be compared. returns: its launch returns them,
    instead of writing to those it was given. step: a launch that is needed once per step of a model, for all its
    layers, and so is timed apart. bound: it only moves the data that any kernel has to move, so that its time is a
    floor. does: what it computes, in words. rival: whose it is; a kernel is compared with the fastest of each, and
    not with those of "". ways: in which its library can do it, of which the fastest is measured; bind then gives what
    they take of one set of tensors.
    """

    name: str
    does: str
    bind: Bind
    complete: bool = True
    returns: bool = False
    step: Bind | None = None
    bound: bool = False
    rival: str = ""
    ways: Ways | None = None


class Proving(Protocol):
    """What a family gives, for its plans."""

    given_draw: Any  # the draw of problems that a user gives to `check`
    guessed_inputs: Sequence[str]  # that a kernel may read ahead of the kernel in front which writes them, and verify
    cpu_extents: Mapping[str, int]  # by dim, the most that a suite's problem has of it where a CPU executes it

    baselines_for: Mapping[str, str]  # by the name of each baseline that plans of the family may have, what it is for

    def name_roles(self, plan: Any) -> Roles:
        """The roles of a product's dims; of anything else, none."""
        ...

    def describe_work(self, plan: Any) -> Mapping[str, Sequence[str]]:
        """What the plan computes, in the words by which problems of a suite say whom they are for (`Row` in
        run/row.py): `dtype`, torch's of operands, `output`, the same of the output, `mainloop`, `epilogue`."""
        ...

    def list_problems(self, plan: Any) -> Iterator[Problem]:
        """The problems to check, for each tiling."""
        ...

    def list_small_problems(self, plan: Any, sms: int) -> Iterator[Problem]:
        """Problems of each tiling that are executed on a CPU in seconds, on a GPU of so few SMs."""
        ...

    def draw_as(self, plan: Any, lengths: str, keys: str) -> Any:
        """The draw of a suite's problem with these words (`Problem` in run/suite.py), "" for what is left out; None:
        the plan has none of that."""
        ...

    def late_rows(self, plan: Any, inputs: Sequence[Any]) -> Mapping[str, Any]:
        """Of inputs that a spec may call ready, rows that the kernel in front may write all the same, as masks by name:
        of all axes but the last."""
        ...

    def name_axes(self, plan: Any, output: int) -> Sequence[str]:
        """Names of the axes of an output."""
        ...

    def locate(self, plan: Any, output: int, shape: Sequence[int], index: Sequence[int], tiling: Any) -> str:
        """The place of an element of an output of `shape` in the kernel, in words."""
        ...

    def list_baselines(self, plan: Any) -> Iterator[Baseline]:
        """Every baseline that could apply, the one that ratios refer to first."""
        ...

    def bench_dims(self, plan: Any) -> Iterator[Mapping[str, int]]:
        """What to measure when nobody says."""
        ...
