"""MLA decode in all its forms compiles as planned, with as few registers as the rules allow; with fewer it spills."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator

import pytest
from mla_specs import EDGES, WIDE

from cutegen.build.facts import find_nvdisasm
from cutegen.build.kernels import KernelReport, build_kernels
from cutegen.families.mla_decode import rules
from cutegen.resolve import resolve_document
from cutegen.spec import load_text

pytestmark = [
    pytest.mark.dsl,
    pytest.mark.thorough,
    pytest.mark.skipif(importlib.util.find_spec("cutlass") is None, reason="nvidia-cutlass-dsl is not installed"),
    pytest.mark.skipif(find_nvdisasm() is None, reason="nvidia-cuda-nvdisasm is not installed"),
]
BEYOND = WIDE + "warpgroups: {consumer: {registers: 192}}\n"


@pytest.fixture(scope="module")
def reports() -> Iterator[dict[str, KernelReport]]:
    """With the cache that tests share: the PTX machine runs the single ones."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rules, "OTHER_REGISTERS", 16)
        texts = {**EDGES, "beyond": BEYOND}
        resolved = [resolve_document(load_text(text, name), None).resolved for name, text in texts.items()]
        yield dict(zip(texts, build_kernels(resolved, workers=2)))


@pytest.mark.parametrize("name", EDGES)
def test_an_edge_keeps_the_contract(name: str, reports: dict[str, KernelReport]) -> None:
    report = reports[name]
    assert report.ok, (report.outcome.error, [check for check in report.checks if check.ok is False])


def test_one_step_beyond_spills(reports: dict[str, KernelReport]) -> None:
    assert "local-memory" in [check.id for check in reports["beyond"].checks if check.ok is False]
