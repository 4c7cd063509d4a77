"""How long a tile and cluster would take for a shape: integer arithmetic that ranks candidates, no promise of a time.

The model counts waves of CTAs and, for one CTA, the slowest of tensor core, shared memory and L2; then device memory.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from cutegen.epilogue import cost
from cutegen.families.gemm.candidate import Candidate
from cutegen.families.gemm.derived import MMA_ROWS, loaded_bytes, stored_bytes
from cutegen.families.gemm.orientation import kernel_shape
from cutegen.families.gemm.problem import GemmProblem
from cutegen.hardware import Device

SMEM_BYTES_PER_CLOCK = 128  # of one SM, read and written
L2_BYTES_PER_CLOCK_SM = 64  # what one SM can take
L2_BYTES_PER_CLOCK = 6150  # what L2 gives to all SMs together (8 MB in 1300 clocks)
TILE_OVERHEAD_CLOCKS = 1000  # to fill the ring and to start the epilogue, where nothing hides it


class Shape(NamedTuple):
    m: int
    n: int
    k: int
    batch: int = 1

    def __str__(self) -> str:
        batch = f", batch={self.batch}" if self.batch > 1 else ""
        return f"m={self.m}, n={self.n}, k={self.k}{batch}"


@dataclass(frozen=True, slots=True)
class Estimate:
    """tiles: CTA tiles, padded to whole clusters. waves: rounds of `slots` CTAs. busy: clocks that the SMs work.

    clocks: of all of it; bound: what they go to, "tensor core", "shared memory", "L2" or "device memory".
    """

    tiles: int
    slots: int
    waves: int
    busy: int
    clocks: int
    bound: str


def traffic(problem: GemmProblem, shape: Shape) -> tuple[int, int]:
    """(FLOPs, bytes of device memory when every tensor moves once)."""
    extra = cost(problem.epilogue)
    moved = (shape.batch if problem.a.batched else 1) * shape.m * shape.k * problem.a.dtype.bytes
    moved += (shape.batch if problem.b.batched else 1) * shape.n * shape.k * problem.b.dtype.bytes
    moved += sum(t.total(shape.m, shape.n, shape.batch) for t in (*extra.reads, *extra.writes))
    flops = 2 * shape.k * shape.m * shape.n * shape.batch + extra.total_flops(shape.m, shape.n, shape.batch)
    return flops, moved


def memory_clocks(problem: GemmProblem, shape: Shape, device: Device) -> int:
    """Clocks that device memory needs for the shape; no candidate is faster."""
    return traffic(problem, shape)[1] * device.clock_hz // device.hbm_bytes_per_s


def estimate(problem: GemmProblem, c: Candidate, shape: Shape, device: Device, memory: int) -> Estimate:
    """The model for one candidate. Uses schedule, tile and cluster; every other knob is taken to be well chosen.

    memory: `memory_clocks` of the shape.
    """
    (tile_m, tile_n, tile_k), (cluster_m, cluster_n) = c.tile, c.cluster
    shape = kernel_shape(shape, c)
    grid_m = -(-shape.m // (tile_m * cluster_m)) * cluster_m
    grid_n = -(-shape.n // (tile_n * cluster_n)) * cluster_n
    tiles = grid_m * grid_n * shape.batch
    size = cluster_m * cluster_n
    slots = device.sms // size * size or device.sms  # an illegal cluster is ranked before its rule refuses it
    waves = -(-tiles // slots)
    depth = -(-shape.k // tile_k) * tile_k
    width = problem.a.dtype.bytes
    flops_per_clock = device.flops_16bit // (device.sms * device.clock_hz)
    stored, loaded = stored_bytes(problem, c), loaded_bytes(problem, c)
    # WGMMA reads A once and B once for each 64 rows; TMA writes both once.
    read = (tile_m + tile_m // MMA_ROWS * tile_n) * depth * width
    filled = (tile_m + tile_n) * depth * width
    from_l2 = (tile_m // cluster_n + tile_n // cluster_m) * depth * width + stored + loaded
    l2_rate = min(L2_BYTES_PER_CLOCK_SM, L2_BYTES_PER_CLOCK // min(slots, max(tiles, 1)))
    clocks = {
        "tensor core": 2 * tile_m * tile_n * depth // flops_per_clock,
        "shared memory": (read + filled) // SMEM_BYTES_PER_CLOCK,
        "L2": from_l2 // l2_rate,
    }
    bound = max(clocks, key=lambda name: clocks[name])
    # Pingpong hides all epilogues but the last behind the other warpgroup's tile.
    exposed = TILE_OVERHEAD_CLOCKS + 2 * (stored + loaded) // SMEM_BYTES_PER_CLOCK
    busy = waves * clocks[bound] + exposed * (waves if c.schedule == "cooperative" else 1)
    if memory > busy:
        return Estimate(tiles, slots, waves, busy, memory, "device memory")
    return Estimate(tiles, slots, waves, busy, busy, bound)
