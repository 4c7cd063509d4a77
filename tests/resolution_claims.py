"""What holds for resolved specs of every family."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields
from typing import Any

from gemm_specs import SM90, resolve_text
from hypothesis import assume

from cutegen.diagnostics import SpecError
from cutegen.families.refusal import Refusal
from cutegen.families.resolved import ResolvedTiling
from cutegen.resolve import Resolution, meaning
from cutegen.spec import load_text


def accepted(text: str) -> Resolution:
    """Hypothesis looks for another example where the spec is refused."""
    try:
        return resolve_text(text)
    except SpecError:
        assume(False)
        raise


def assert_tiling_fits(tiling: ResolvedTiling[Any], consumers: int) -> None:
    """Budgets of a CTA, the map of its shared memory, and a source for every number."""
    t = tiling.numbers
    assert t.smem_bytes <= SM90.smem_bytes
    assert t.threads <= SM90.max_threads
    assert 128 * (t.producer_registers + consumers * t.consumer_registers) <= SM90.registers
    end = 0
    for region in tiling.model.smem:
        assert region.offset >= end
        assert region.offset % region.align == 0
        end = region.offset + region.bytes
    assert end <= t.smem_bytes
    assert set(tiling.sources) == {f.name for f in fields(t) if getattr(t, f.name) != f.default}


def assert_lock_changes_nothing(text: str) -> None:
    first = accepted(text)
    again = resolve_text(text, first.lock, locked=True)
    assert again.resolved.digest == first.resolved.digest
    assert again.lock == first.lock
    assert again.notes == ()
    for decision in first.resolved.decisions:
        assert decision.reason
        assert (decision.key in first.lock.decisions) == (decision.origin != "spec")


def assert_same_kernel(text: str, other: str) -> None:
    first, second = accepted(text), resolve_text(other)
    assert second.resolved.digest == first.resolved.digest
    assert second.lock == first.lock
    assert list(second.lock.decisions) == list(first.lock.decisions)
    assert meaning(load_text(text, "kernel")) == meaning(load_text(other, "kernel"))


def assert_refusals_tell(refusals: Iterable[Refusal]) -> None:
    for refusal in refusals:
        assert refusal.reason
        assert refusal.remedy
        assert refusal.knobs
