"""What `check` and `bench` have to know about a family: the problems that break its kernels, where in a kernel an
element is computed, and whom to measure against. Imports neither torch nor cutlass."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeAlias

# Tiles for each SM of a large problem: with more than two a persistent kernel wraps around, and its rings carry over
# from tile to tile.
WAVES = 2.2
# (inputs, outputs) -> a launch that computes the same, or part of it, into the outputs or tensors of its own
Bind = Callable[[tuple[Any, ...], tuple[Any, ...]], Callable[[], Any]]
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
class Problem:
    """A problem to run. tiling: the key to force, None for the dispatch's choice. draw: what else decides its random
    inputs, for the plan's draw_inputs."""

    name: str
    dims: Mapping[str, int]
    tiling: str | None
    modes: tuple[Mode, ...] = ("numerics",)
    draw: Any = None


@dataclass(frozen=True, slots=True)
class Baseline:
    """bind raises when the library is missing or refuses; its message becomes the reason for skipping.

    complete: it computes all of the plan's outputs, so that they can be compared. returns: its launch returns them,
    instead of writing to those it was given. step: a launch that is needed once per step of a model, for all its
    layers, and so is timed apart. bound: it only moves the data that any kernel has to move, so that its time is a
    floor. does: what it computes, in words. rival: whose it is; a kernel is compared with the fastest of each, and
    not with those of "".
    """

    name: str
    does: str
    bind: Bind
    complete: bool = True
    returns: bool = False
    step: Bind | None = None
    bound: bool = False
    rival: str = ""


class Proving(Protocol):
    """What a family gives, for its plans."""

    given_draw: Any  # the draw of problems that a user gives to `check`
    ragged_draw: Any  # the draw of a suite's problems with ragged lengths; None: there are no lengths

    def list_problems(self, plan: Any) -> Iterator[Problem]:
        """The problems to check, for each tiling."""
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
