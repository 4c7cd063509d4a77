"""The features of a GEMM. candidate.py has their knobs; all else asks each of them at the seams of feature.py."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from math import prod
from typing import Any

from cutegen.families.gemm.candidate import Candidate, Core
from cutegen.families.gemm.cost_model import Shape
from cutegen.families.gemm.features.block_scales import rules as block_scale_rules
from cutegen.families.gemm.features.block_scales.feature import BlockScalesFeature
from cutegen.families.gemm.features.feature import Feature
from cutegen.families.gemm.features.gather import rules as gather_rules
from cutegen.families.gemm.features.gather.feature import GatherFeature
from cutegen.families.gemm.features.groups import rules as group_rules
from cutegen.families.gemm.features.groups.feature import GroupsFeature
from cutegen.families.gemm.features.last_tile.feature import LastTileFeature
from cutegen.families.gemm.features.load_ahead.feature import LoadAheadFeature
from cutegen.families.gemm.features.packed_scales import rules as packed_scale_rules
from cutegen.families.gemm.features.packed_scales.feature import PackedScalesFeature
from cutegen.families.gemm.features.reductions.feature import ReductionsFeature
from cutegen.families.gemm.features.split_k.feature import SplitKFeature
from cutegen.families.gemm.problem import GemmProblem

# Rules that no feature asks by name declare themselves when they are imported.
__all__ = [
    "FEATURES",
    "adapt_baselines",
    "as_multiplied",
    "block_scale_rules",
    "ctas_per_tile",
    "describe_features",
    "features_with",
    "gather_rules",
    "group_rules",
    "list_forms",
    "packed_scale_rules",
]

FEATURES: tuple[Feature, ...] = (
    SplitKFeature(),
    LoadAheadFeature(),
    LastTileFeature(),
    GatherFeature(),
    ReductionsFeature(),
    BlockScalesFeature(),
    PackedScalesFeature(),
    GroupsFeature(),
)


def features_with(seam: str) -> tuple[Feature, ...]:
    """Those that say something at a method of Feature, for those that a search asks often."""
    return tuple(f for f in FEATURES if getattr(type(f), seam) is not getattr(Feature, seam))


_COUNTING = features_with("ctas_per_tile")


def list_forms(problem: GemmProblem, shapes: Sequence[Shape]) -> list[Mapping[str, Any]]:
    """See Feature; what is likely better first."""
    every = [feature.list_forms(problem, shapes) for feature in FEATURES]
    return [dict(item for form in forms for item in form.items()) for forms in product(*every)]


def as_multiplied(problem: GemmProblem, form: Mapping[str, Any]) -> GemmProblem:
    """See Feature."""
    for feature in FEATURES:
        problem = feature.as_multiplied(problem, form)
    return problem


def adapt_baselines(plan: Any, baselines: Iterator[Any]) -> Iterator[Any]:
    """See Feature."""
    for feature in FEATURES:
        baselines = feature.adapt_baselines(plan, baselines)
    return baselines


def ctas_per_tile(c: Candidate | Core) -> int:
    """CTAs that compute one tile of the output."""
    return prod(feature.ctas_per_tile(c) for feature in _COUNTING)


def describe_features(c: Candidate) -> str:
    """ ", k in 4 parts": what candidates have that others do without."""
    return "".join(f", {said}" for feature in FEATURES if (said := feature.describe(c)))
