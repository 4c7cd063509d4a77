"""The functions of the epilogue in the kernel module, and where in a thread the values are that they read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from cutegen.epilogue import EpilogueProgram
from cutegen.families.gemm.problem import GemmProblem
from cutegen.families.gemm.text.tensors import VectorText

MAX_TARGETS = 80  # columns


class Parameter(NamedTuple):
    """Of a method of the kernel, which is called with a variable of the same name."""

    name: str
    kind: str


@dataclass(frozen=True, slots=True)
class FunctionText:
    """A function and its call. arguments, targets: of the call, one of each for every parameter and result."""

    name: str
    summary: str
    parameters: tuple[str, ...]
    lines: tuple[str, ...]
    results: tuple[str, ...]
    arguments: tuple[str, ...]
    targets: tuple[str, ...]

    @property
    def wide(self) -> bool:
        """Whether the targets of the call take a line each."""
        return len(", ".join(self.targets)) > MAX_TARGETS


@dataclass(frozen=True, slots=True)
class ElementSources:
    """Where the values are that belong to element i of a subtile. accumulators: by name, as they are; operands: by
    name, in f32. to_f32: what makes an accumulator f32."""

    accumulators: Mapping[str, str]
    operands: Mapping[str, str]
    to_f32: str

    @property
    def in_f32(self) -> dict[str, str]:
        """All of them."""
        return {**{name: f"{text}{self.to_f32}" for name, text in self.accumulators.items()}, **self.operands}


def element_sources(problem: GemmProblem, vectors: Iterable[VectorText], to_f32: str) -> ElementSources:
    """In the kernel's frame."""
    program = problem.kernel_epilogue
    accumulators = {"acc": "acc[first + i]"}
    if problem.paired:
        accumulators = {"acc_0": "acc[first + i]", "acc_1": "acc[first + pair + i]"}
    found = {
        **{v.name: v.smem_element for v in vectors},
        **{name: f"r_{name}" for name in _names(program, "device_scalar")},
        **{name: f"o.{name}" for name in _names(program, "host_scalar")},
        **{name: f"r_{name}[i].to(Float32)" for name in _names(program, "tile")},
        **{name: f"block_input.element(r_{name}, i, t.epilogue_tile[1])" for name in _names(program, "block_input")},
    }
    return ElementSources(accumulators, found, to_f32)


def _names(program: EpilogueProgram, kind: str) -> list[str]:
    return [o.name for o in program.operands if o.kind == kind]


def element_words(problem: GemmProblem) -> str:
    """What the functions of elements are computed for."""
    pair = f"pair of {'rows' if problem.paired_dim == 'm' else 'columns'}"
    return pair if problem.paired else "output element from its accumulator"
