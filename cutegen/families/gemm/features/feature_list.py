"""The features of a GEMM. candidate.py has their knobs; all else asks each of them at the seams of feature.py."""

from __future__ import annotations

from math import prod

from cutegen.families.gemm.candidate import Candidate, Core
from cutegen.families.gemm.features.block_scales.feature import BlockScalesFeature
from cutegen.families.gemm.features.feature import Feature
from cutegen.families.gemm.features.gather.feature import GatherFeature
from cutegen.families.gemm.features.groups.feature import GroupsFeature
from cutegen.families.gemm.features.last_tile.feature import LastTileFeature
from cutegen.families.gemm.features.load_ahead.feature import LoadAheadFeature
from cutegen.families.gemm.features.reductions.feature import ReductionsFeature
from cutegen.families.gemm.features.split_k.feature import SplitKFeature

FEATURES: tuple[Feature, ...] = (
    SplitKFeature(),
    LoadAheadFeature(),
    LastTileFeature(),
    GatherFeature(),
    ReductionsFeature(),
    BlockScalesFeature(),
    GroupsFeature(),
)


def ctas_per_tile(c: Candidate | Core) -> int:
    """CTAs that compute one tile of the output."""
    return prod(feature.ctas_per_tile(c) for feature in FEATURES)


def describe_features(c: Candidate) -> str:
    """ ", k in 4 parts": what candidates have that others do without."""
    return "".join(f", {said}" for feature in FEATURES if (said := feature.describe(c)))
