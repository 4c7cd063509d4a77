"""What a family gives a tuner: which dims its calls have, and candidates for one problem, best first."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from cutegen.families.refusal import Refusal


@dataclass(frozen=True, slots=True)
class Proposal:
    """A candidate. knobs: what to write into a lock for it, by dotted key. why: the cost model's words.

    refusals: the rules that refuse it; then it is pruned. clocks: by the cost model, on this problem; None: it does
    not say.
    """

    candidate: Any
    knobs: Mapping[str, object]
    why: str
    refusals: tuple[Refusal, ...]
    clocks: float | None = None


class TuningSpace(Protocol):
    """Of one spec. dims: those that decide which kernel runs a call, in the order of the plan. along: the one that
    winners are ranges of."""

    @property
    def dims(self) -> tuple[str, ...]: ...

    @property
    def along(self) -> str: ...

    @property
    def listed(self) -> Mapping[str, Sequence[object]]:
        """What the spec's `tune` section lists, by dotted key."""
        ...

    def settle(self, device: str) -> None:
        """Proposals and defaults are from now on those of a GPU that the driver calls so, if it is known."""
        ...

    def find_default(self, problem: Mapping[str, int]) -> Any:
        """The candidate that runs the problem where nothing was tuned."""
        ...

    def propose(self, problem: Mapping[str, int], unordered: bool = False) -> Iterator[Proposal]:
        """Those of the spec's `tune` section, else all that the cost model ranks and variations of its first ones, in
        the order to try them; each once. unordered: also such whose bits may differ from run to run."""
        ...

    def renew(self, candidate: Any, default: Any) -> Any:
        """The candidate with those knobs of a default that no search varies: what a winner from before the default had
        them would be today. The same where there is nothing to renew; rules may refuse it."""
        ...

    def describe(self, candidate: Any) -> Mapping[str, object]:
        """All knobs of a candidate by dotted key, those that the spec writes as well: they may be open one day."""
        ...
