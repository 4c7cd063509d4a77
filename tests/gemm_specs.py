"""Specs as text, and the shortest way from one to what it resolves to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from cutegen.families.gemm.auto import Choice, choose
from cutegen.families.gemm.candidate import Candidate
from cutegen.families.gemm.problem import GemmProblem, bind
from cutegen.hardware import ARCHS, DEVICES
from cutegen.resolve import Lock, Resolution, resolve_document
from cutegen.spec import load_text, parse_spec

PLAIN = """\
cutegen: 1
kernel: gemm
arch: sm_90a
tensors:
  a: bf16[m, k]
  b: bf16[n, k]
  d: bf16[m, n]
"""
FUSED = """\
cutegen: 1
kernel: gemm
arch: sm_90a
tensors:
  a: bf16[m, k]
  b: bf16[n, k]
  bias: f32[n]
  scale: f32[m]
  alpha: f32
  residual: bf16[m, n]
  d: bf16[m, n]
epilogue:
  d: gelu_tanh(alpha * scale * acc + bias) + residual
"""
SM90, H200 = ARCHS["sm_90a"], DEVICES["h200"]


def resolve_text(text: str, lock: Lock | None = None, **flags: bool) -> Resolution:
    return resolve_document(load_text(text, "kernel", "kernel.yaml"), lock, **flags)


def bind_text(text: str) -> GemmProblem:
    document = load_text(text, "kernel", "kernel.yaml")
    return bind(parse_spec(document), document)  # type: ignore[arg-type]


def candidate(problem: GemmProblem, **knobs: Any) -> Candidate:
    """The default candidate of a problem with some knobs replaced, legal or not."""
    choice = choose(problem, {}, SM90, H200, ())
    assert isinstance(choice, Choice)
    return replace(choice.candidate, **knobs)


def values(resolution: Resolution) -> Mapping[str, object]:
    """Decided values by dotted knob path."""
    return {d.key: d.value for d in resolution.resolved.decisions}
