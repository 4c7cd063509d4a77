"""`explain --why-not` for a GEMM: the derived numbers that tell candidates apart."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from cutegen.arch import DEVICES
from cutegen.families.asked_knobs import answer_wish
from cutegen.families.decide import written_knobs
from cutegen.families.gemm.candidate import Candidate, knobs_of
from cutegen.families.gemm.cost_model import describe_work, estimate
from cutegen.families.gemm.explain import read_shape
from cutegen.families.gemm.orientation import kernel_frame
from cutegen.families.gemm.resolve import chooser
from cutegen.families.gemm.resolved import ResolvedGemm
from cutegen.families.gemm.tiling_numbers import derive
from cutegen.families.section import Section

if TYPE_CHECKING:
    from cutegen.families.gemm.spec import GemmSpec


def why_not(spec: GemmSpec, resolved: ResolvedGemm, wish: str, shape: Mapping[str, int] | None) -> Section:
    """What the wished knobs give beside the kernel's core; see `answer_wish`."""
    problem, now, device = resolved.problem, resolved.default.candidate, DEVICES[resolved.device]

    def compare(now: Candidate, then: Candidate) -> list[tuple[str, str, str]]:
        before, after = (derive(*kernel_frame(problem, c)) for c in (now, then))
        rows = [
            ("accumulators a thread", str(before.accumulator_registers), str(after.accumulator_registers)),
            ("SMEM bytes", str(before.smem_bytes), str(after.smem_bytes)),
            ("bytes loaded per output element and k", _loaded(now), _loaded(then)),
        ]
        if shape is not None:
            extents = read_shape(problem, shape)
            work = describe_work(problem, extents, device)
            times = [estimate(c, work, device).clocks * 1e6 / device.clock_hz for c in (now, then)]
            rows.append((f"cost model for {extents.name(problem)}, us", f"{times[0]:.4g}", f"{times[1]:.4g}"))
        return rows

    def complete(field: str, numbers: list[int]) -> list[int]:
        return [*numbers, now.tile[2]] if field == "tile" and len(numbers) == 2 else numbers

    knobs = knobs_of(problem)
    written = written_knobs(spec, knobs)
    return answer_wish(wish, now, knobs, device, chooser(spec, problem), written, compare, complete)


def _loaded(c: Candidate) -> str:
    """L2 bytes per output element and step of k, 16-bit operands: what tile and cluster are chosen for."""
    per_tile = c.tile[0] / c.multicast_a + c.tile[1] / c.multicast_b
    return f"{2 * per_tile / (c.tile[0] * c.tile[1]):.4f}"
