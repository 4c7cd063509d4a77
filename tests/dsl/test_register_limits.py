"""At the edge of every register and SMEM rule a kernel compiles as planned; one step beyond it does not."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from types import ModuleType

import pytest
from gemm_specs import BLOCKS_OF_PAIRS, EDGES, PLAIN, TWICE, resolve_text

from cutegen.build.facts import find_nvdisasm
from cutegen.build.kernels import KernelReport, build_kernels
from cutegen.families.gemm import budget_rules
from cutegen.families.gemm.features.block_scales import feature as block_scales
from cutegen.families.gemm.features.gather import gather_warps

pytestmark = [
    pytest.mark.dsl,
    pytest.mark.thorough,
    pytest.mark.skipif(importlib.util.find_spec("cutlass") is None, reason="nvidia-cutlass-dsl is not installed"),
    pytest.mark.skipif(find_nvdisasm() is None, reason="nvidia-cuda-nvdisasm is not installed"),
]
# Constant that states the limit: (its module, what breaks without it).
BEYOND: dict[str, tuple[ModuleType, str]] = {
    "OTHER_REGISTERS": (
        budget_rules,
        PLAIN + "tiling: {tile: [256, 224, 64]}\n"
        "warpgroups: {consumer: {count: 2, registers: 240}, producer: {registers: 24}}\n",
    ),
    "MMA_REGISTERS": (budget_rules, PLAIN + "warpgroups: {consumer: {count: 3}}\ntiling: {tile: [192, 256, 64]}\n"),
    "REPEATED_REGISTERS": (budget_rules, TWICE.replace("64)", "128)").replace("n/64", "n/128")),
    "PAIRED_BLOCK_REGISTERS": (block_scales, BLOCKS_OF_PAIRS.replace("104", "112")),
    "SCALED_ROW_REGISTERS": (gather_warps, EDGES["gathered_scales_by_one_warp"]),
}


@pytest.fixture(scope="module")
def reports() -> Iterator[dict[str, KernelReport]]:
    """With the cache that tests share: the PTX machine runs those of 8 bits."""
    with pytest.MonkeyPatch.context() as patch:
        resolved = [resolve_text(text, name=name).resolved for name, text in EDGES.items()]
        for constant, (module, text) in BEYOND.items():
            patch.setattr(module, constant, 0)
            resolved.append(resolve_text(text, name=constant).resolved)
        yield dict(zip((*EDGES, *BEYOND), build_kernels(resolved, workers=2)))


@pytest.mark.parametrize("name", EDGES)
def test_an_edge_keeps_the_contract(name: str, reports: dict[str, KernelReport]) -> None:
    report = reports[name]
    assert report.ok, (report.outcome.error, [check for check in report.checks if check.ok is False])


@pytest.mark.parametrize("constant", BEYOND)
def test_one_step_beyond_breaks_it(constant: str, reports: dict[str, KernelReport]) -> None:
    assert not reports[constant].ok
