"""Timing on a CUDA device: graphs of many launches, a busy stream for host times, and the device's own rates."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from cutegen.run.environment import Reading, open_monitor
from cutegen.runtime.cublas import bind_product, draw_matrix, product_dtype

Launch = Callable[[], Any]

# A graph holds enough launches that the gap between two replays, some microseconds, does not matter.
GRAPH_SECONDS, GRAPH_LAUNCHES = 5e-3, 2000
# Host times: launches queued behind a kernel that sleeps some 25 ms; the driver's queue holds about 1,000 of them.
HOST_LAUNCHES, HOST_BATCHES, SLEEP_CYCLES = 100, 3, 50_000_000
# Buffers for the measured memory rate; far above any L2.
RATE_BYTES, RATE_EXTENT, RATE_SECONDS = 1 << 30, 8192, 0.3


@dataclass(frozen=True, slots=True)
class Prepared:
    """A captured graph. seconds: about what one replay takes. held: what was captured. A graph keeps no tensors alive:
    those that only a launch holds would be freed, and replays would go on writing to them."""

    graph: Any
    launches: int
    seconds: float
    held: tuple[Launch, ...]


@dataclass(frozen=True, slots=True)
class Rates:
    """Measured: bytes per second of a copy (read and written) and of a reduction (read), FLOP/s of a large cuBLAS
    product in `dtype`."""

    copy: float
    read: float
    matmul: float
    dtype: str

    def floor(self, flops: int, moved: int, moving: float | None = None) -> float:
        """Seconds that a problem takes at these rates, when the slower of the two is all it waits for. moving: the
        seconds that moving its data took, where that was measured."""
        return max(flops / self.matmul, moved / max(self.copy, self.read) if moving is None else moving)


class CudaDevice:
    """The current CUDA device."""

    def __init__(self) -> None:
        import torch

        facts = torch.cuda.get_device_properties(torch.cuda.current_device())
        self.l2_bytes = int(facts.L2_cache_size)
        self.monitor = open_monitor(str(getattr(facts, "uuid", "")))
        torch.zeros(1, device="cuda")  # this process counts among the device's from now on

    def free_bytes(self) -> int:
        """What a new problem may take: memory that torch keeps for itself is given back."""
        import torch

        torch.cuda.empty_cache()
        return int(torch.cuda.mem_get_info()[0])

    def synchronize(self) -> None:
        import torch

        torch.cuda.synchronize()

    def other_processes(self) -> int:
        """Further compute processes on the device, as far as the driver tells."""
        return max(0, self.monitor.processes() - 1) if self.monitor else 0

    def prepare(self, launches: Sequence[Launch]) -> Prepared:
        """A graph that runs `launches` in turn, several times over."""
        once = self._capture(launches, 1)
        once.replay()
        seconds = self._elapsed(once.replay)
        repeats = max(1, min(round(GRAPH_SECONDS / max(seconds, 1e-6)), GRAPH_LAUNCHES // len(launches)))
        graph = self._capture(launches, repeats) if repeats > 1 else once
        return Prepared(graph, len(launches) * repeats, seconds * repeats, tuple(launches))

    def sample(self, prepared: Prepared, seconds: float) -> tuple[float, Reading | None]:
        """Seconds per launch over about `seconds` of replays after one that is not timed; clock and power midway."""
        count = max(1, round(seconds / max(prepared.seconds, 1e-6)))
        prepared.graph.replay()
        readings: list[Reading] = []

        def replays() -> None:
            for _ in range(count):
                prepared.graph.replay()

        def look() -> None:
            if self.monitor:
                time.sleep(count * prepared.seconds / 2)
                readings.append(self.monitor.read())

        elapsed = self._elapsed(replays, meanwhile=look)
        return elapsed / (count * prepared.launches), readings[0] if readings else None

    def host_seconds(self, launch: Launch) -> float:
        """Median host time of one asynchronous launch into a stream that is busy with something else."""
        import torch

        samples = []
        for _ in range(HOST_BATCHES):
            torch.cuda.synchronize()
            torch.cuda._sleep(SLEEP_CYCLES)
            for _ in range(HOST_LAUNCHES):
                start = time.perf_counter()
                launch()
                samples.append(time.perf_counter() - start)
        torch.cuda.synchronize()
        return median(samples)

    def measure_rates(self, dtype: str) -> Rates:
        import torch

        source = torch.empty(RATE_BYTES // 4, dtype=torch.float32, device="cuda").normal_()
        target = torch.empty_like(source)
        total = torch.empty((), dtype=torch.float32, device="cuda")
        element = getattr(torch, dtype)
        a, b = (draw_matrix(RATE_EXTENT, RATE_EXTENT, element, "cuda") for _ in range(2))
        c = torch.empty_like(a, dtype=product_dtype(element))

        def rate(launch: Launch, work: float) -> float:
            prepared = self.prepare([launch])
            self.sample(prepared, RATE_SECONDS)
            return work / self.sample(prepared, RATE_SECONDS)[0]

        return Rates(
            copy=rate(lambda: target.copy_(source), 2 * RATE_BYTES),
            read=rate(lambda: torch.sum(source, dim=0, out=total), RATE_BYTES),
            matmul=rate(bind_product(a, b.mT, c), 2 * RATE_EXTENT**3),
            dtype=dtype,
        )

    def _capture(self, launches: Sequence[Launch], repeats: int) -> Any:
        import torch

        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):  # compiles and fills caches, which a capture must not
            for launch in launches:
                launch()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for _ in range(repeats):
                for launch in launches:
                    launch()
        return graph

    def _elapsed(self, action: Callable[[], Any], meanwhile: Callable[[], Any] = lambda: None) -> float:
        import torch

        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        action()
        end.record()
        meanwhile()
        end.synchronize()
        return start.elapsed_time(end) / 1e3
