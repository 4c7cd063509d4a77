"""Stand-ins for what adapters use of serving stacks: plans that run as their references do, and modules by name."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import pytest
import torch

from cutegen.run.subject import load_subject

ROOT = Path(__file__).parents[1]
E4M3 = torch.float8_e4m3fn
BLOCK = "gemm_e4m3_block128_sm90a"


class GroupShape(NamedTuple):
    row: int
    col: int


class CpuPlan:
    """The plan of the shipped kernel, which runs as its reference does. warm: keys that were compiled."""

    def __init__(self, name: str = BLOCK) -> None:
        self.real: Any = load_subject(ROOT / "generated" / name).plan
        self.real.device = "cpu"
        self.warm: list[str] = []
        self.on_miss = "compile"

    def __getattr__(self, name: str) -> Any:
        return getattr(self.real, name)

    def warm_up(self, keys: Any = None) -> None:
        self.warm += keys

    def kernel_fn(self, *inputs: Any) -> Any:
        outputs = self.real.allocate_outputs(*inputs)
        for output, values in zip(outputs, self.real.reference_fn(*inputs), strict=True):
            output.copy_(values)
        return outputs

    def register_torch_op(self) -> Any:
        def run(*inputs: Any) -> Any:
            made = self.real.reference_fn(*inputs)
            made = made if isinstance(made, tuple) else (made,)
            outputs = self.real.allocate_outputs(*inputs)  # in their strides; it refuses what a launch does
            for output, values in zip(outputs, made, strict=True):
                output.copy_(values)
                if hasattr(self.real, "row_groups"):  # rows of no expert may hold anything, NaN for example
                    row = inputs[4].view(-1, *(1 for _ in output.shape[1:]))
                    output.copy_(torch.where(row < 0, float("nan"), output.float()))
            return outputs if len(outputs) > 1 else outputs[0]

        return run


def quantise(x: Any, group: int = 128, **layout: bool) -> tuple[Any, Any]:
    """e4m3 of rows, a scale for so many values; m contiguous, padded to 16 bytes."""
    assert layout["column_major_scales"]
    rows, blocks = x.shape[0], -(-x.shape[1] // group)
    padded = torch.nn.functional.pad(x.float(), (0, blocks * group - x.shape[1])).view(rows, blocks, group)
    scales = torch.empty(blocks, -(-rows // 4) * 4).T[:rows]
    scales[:] = padded.abs().amax(-1).clamp(min=1e-4) / 448
    return (padded / scales[..., None]).view(rows, -1)[:, : x.shape[1]].to(E4M3), scales


def module(monkeypatch: pytest.MonkeyPatch, name: str, **members: Any) -> ModuleType:
    made = ModuleType(name)
    vars(made).update(members)
    monkeypatch.setitem(sys.modules, name, made)
    if "." in name:
        parent = name.rpartition(".")[0]
        if parent not in sys.modules:
            module(monkeypatch, parent)
    return made
