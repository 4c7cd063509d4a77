"""Into how many parts k is split, and how they become one sum."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

from cutegen.families.declared_knobs import DeclaredKnob
from cutegen.families.knobs import Knob, integer, word
from cutegen.spec.base import Positive

# All but the last give the same bits every time.
SplitKSum: TypeAlias = Literal["ordered_turnstile", "ordered_parallel", "ordered_cluster", "unordered_atomic"]
SPLIT_K_SUMS: tuple[SplitKSum, ...] = get_args(SplitKSum)
IN_PLACES: SplitKSum = "ordered_parallel"
IN_CLUSTER: SplitKSum = "ordered_cluster"
UNORDERED: SplitKSum = "unordered_atomic"
NO_SUM = "none"


@dataclass(frozen=True, kw_only=True)
class SplitK:
    """split_k: parts of k; split_k_sum: NO_SUM without a split."""

    split_k: int = 1
    split_k_sum: str = NO_SUM

    @property
    def in_cluster(self) -> bool:
        """Whether the CTAs of a cluster have the parts of one tile's k."""
        return self.split_k_sum == IN_CLUSTER

    @property
    def through_scratch(self) -> bool:
        """Whether the parts become one sum in global memory."""
        return self.split_k > 1 and not self.in_cluster

    @property
    def exchanging(self) -> int:
        """CTAs that exchange sums through shared memory."""
        return self.split_k if self.in_cluster else 0


KNOBS = (
    DeclaredKnob(
        Knob("split_k", "tiling.split_k", integer(), part="core"),
        Positive,
        "CTAs that share the K dimension of one tile, for problems of few tiles.",
        follows="raster",
        after="scheduler",
        without=("no split of k", 1),
    ),
    DeclaredKnob(
        Knob("split_k_sum", "tiling.split_k_sum", word(*SPLIT_K_SUMS), part="around"),
        SplitKSum,
        "How the parts become one sum. ordered_turnstile: each adds to those before it; ordered_parallel: each has a "
        "place of its own, and the last adds all; ordered_cluster: the parts are a cluster, and meet in shared memory; "
        "unordered_atomic: as they come, so that bits differ from run to run.",
        follows="split_k",
        after="split_k",
        text_after="scheduler",
        is_idle=lambda problem, c: c.split_k == 1,
    ),
)
