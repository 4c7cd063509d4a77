"""The knobs of a row kernel, and what a thread holds with them."""

from __future__ import annotations

from dataclasses import dataclass

from cutegen.arch.architecture import Arch
from cutegen.families.rowwise.problem import RowProblem

WARP = 32
HELD_BYTES = 32  # of a tensor's row that a thread has, where a CTA can be as wide: two loads on their way
STREAMED_VECTORS = 2
OWN_REGISTERS = 32  # of a thread, for addresses and totals
MOST_REGISTERS, REGISTER_FILE = 255, 65536


@dataclass(frozen=True, slots=True)
class Candidate:
    """Every knob with a value."""

    threads: int


def count_vectors(problem: RowProblem, threads: int) -> int:
    """Vectors of each tensor that a thread has at once."""
    if not problem.held or problem.most_columns is None:
        return STREAMED_VECTORS
    return -(-problem.most_columns // (threads * problem.vector))


def size_thread(problem: RowProblem) -> float:
    """Registers for an element: as it is loaded, of each tensor, and one f32."""
    return 1 + sum(o.dtype.bytes for o in problem.operands("tile", "row_vector")) / 4


def count_registers(problem: RowProblem, c: Candidate) -> int:
    return int(size_thread(problem) * count_vectors(problem, c.threads) * problem.vector)


def most_registers(c: Candidate, arch: Arch) -> int:
    """Of a thread, for what it holds of a row."""
    return min(MOST_REGISTERS, REGISTER_FILE // c.threads) - OWN_REGISTERS
