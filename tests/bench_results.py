"""Results of `bench` that nobody measured, for tests of what is made of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from cutegen.report.result import Result, parse_result
from cutegen.run.intervals import median_interval, speed_ratio

NOISE = (1.0, 1.004, 0.997, 1.002, 0.995, 1.003, 0.999, 1.001, 0.998)
GPU = {"name": "NVIDIA H200", "uuid": "GPU-1", "power_limit_watts": 700.0}


def candidate(name: str, times: Sequence[float], against: Sequence[float] = (), **more: Any) -> dict[str, Any]:
    """times: us by round."""
    samples, reference = [t * 1e-6 for t in times], [t * 1e-6 for t in against]

    def interval(values: Any) -> dict[str, float]:
        return {f: getattr(values, f) for f in ("median", "low", "high", "coverage")}

    speed = interval(speed_ratio(reference, samples)) if reference else None
    return {
        "name": name, "baseline": not reference, "library": "" if reference else "cuBLAS", "does": "", "tiling": "t",
        "numbers": None, "digest": "abc" if reference else None, "sets": 3, "flops": 10**9, "bytes": 10**6,
        "seconds": interval(median_interval(samples)), "tflops": 600.0, "terabytes_per_second": 1.0, "speed": speed,
        "speeds": {"cuBLAS": {"against": "torch.mm", **speed}} if speed else {}, "share_of_floor": 0.9,
        "host_seconds": 0.0, "step_seconds": None, "sm_mhz": [], "watts": [], "right": True, "samples": samples,
    } | more  # fmt: skip


def problem(us: float, m: int = 16, name: str = "", **kernel: Any) -> dict[str, Any]:
    """A kernel that takes `us`, beside a baseline that takes 10; both drift together."""
    baseline = [10 * n for n in NOISE]
    return {
        "shape": {"m": m, "n": 64, "k": 64}, "name": name, "source": "", "dtype": "", "output": "", "mainloop": "",
        "epilogue": "", "against": "torch.mm", "warm_up_seconds": 1.0, "skipped": {},
        "candidates": [
            candidate("gemm", [us * n * drift for n, drift in zip(NOISE[::-1], NOISE)], baseline, **kernel),
            candidate("torch.mm", baseline),
        ],
    }  # fmt: skip


def result(*problems: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {
        "format": "cutegen bench", "version": 2, "complete": True, "ok": True, "command": "cutegen bench gemm.yaml",
        "suite": "small", "environment": {"gpu": GPU, "torch": "2.11", "driver": "580"},
        "rates": {"copy": 4e12, "read": 4.3e12, "matmul": 7e14, "dtype": "bfloat16"}, "rounds": 9,
        "slice_seconds": 0.06, "notes": [], "summaries": {}, "problems": list(problems), "left_out": [],
    } | more  # fmt: skip


def parsed(*problems: dict[str, Any], **more: Any) -> Result:
    return parse_result(result(*problems, **more))
