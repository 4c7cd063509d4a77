"""The fastest tiling for one problem, measured where it is to run. Importing this module imports neither torch nor
cutlass.

What it finds holds for this process and problem: `cutegen tune` measures with care, and keeps what it finds.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from statistics import median
from typing import Any

ROUNDS = 7  # in each of which every tiling is timed once
LAUNCHES = 20  # in one timing: a CUDA graph of so many hides the gap between two replays


@dataclass(frozen=True, slots=True)
class Autotuned:
    """kernel: the problem, launched by the fastest tiling. times: seconds of a launch by tiling, ascending, of inputs
    that are the same each time. failures: of the tilings that were not timed, why."""

    kernel: Any
    times: Mapping[str, float]
    failures: Mapping[str, str]

    def __str__(self) -> str:
        lines = [f"{1e6 * seconds:10.2f} us  {key}" for key, seconds in self.times.items()]
        if self.failures:
            lines.append(f"{len(self.failures)} of {len(self.failures) + len(self.times)} tilings were not timed:")
            lines += [f"  {key}: {why}" for key, why in self.failures.items()]
        return "\n".join(lines)


def autotune(kernel: Any, rounds: int = ROUNDS, launches: int = LAUNCHES) -> Autotuned:
    """Times all tilings of a CuteKernel's plan on its inputs, in turns. What is updated in place has its values back at
    the end. ValueError: an extent is 0. RuntimeError: no tiling was timed."""
    plan, inputs = kernel.plan, kernel.input_tensors
    dims = plan.problem_dims(*inputs)
    if not (all(dims.values()) and all(o.numel() for o in kernel.output_tensors)):
        raise ValueError(f"{plan.name}: an extent is 0, and nothing is computed")
    chosen = plan.choose_instance(inputs, dims, kernel.sms)
    ending = chosen.removeprefix(plan.full_key(chosen))  # of the kernels without optional operands that are left out
    failures: dict[str, str] = {}
    configs = [key for key in kernel.autotune_configs if plan.full_key(key) == key]
    for key in configs:
        if why := plan.validate(key, kernel.sms, **_given(plan, dims)):
            failures[key] = why
    keys = [key for key in configs if key not in failures]
    _compile(plan, keys, ending, failures)
    updated = [(i, v.clone()) for i, (arg, v) in enumerate(zip(plan.inputs, inputs)) if arg.name in plan.in_place]
    timers: dict[str, Callable[[], float]] = {}
    found: dict[str, tuple[Callable[..., None], tuple[Any, ...]]] = {}
    make = _graph_timer if plan.device == "cuda" else _clock_timer
    for key in keys:
        if key not in failures:
            with _noted(failures, key):
                launch = plan.make_launch(key)
                if kernel.sms is not None:
                    launch = partial(launch, sms=kernel.sms)
                scratch = plan.allocate_scratch(*inputs, key=key + ending)
                timers[key] = make(partial(launch, *inputs, *kernel.output_tensors, *scratch), launches)
                found[key] = launch, scratch
    samples = _time(timers, rounds, failures)
    for i, value in updated:
        inputs[i].copy_(value)
    failures = {key: failures[key] for key in configs if key in failures}
    if not samples:
        listed = "".join(f"\n  {key}: {why}" for key, why in failures.items())
        raise RuntimeError(f"{plan.name}: no tiling was timed:{listed}")
    times = dict(sorted(((key, median(s)) for key, s in samples.items()), key=lambda item: item[1]))
    best = next(iter(times))
    launch, scratch = found[best]
    tuned = replace(kernel, launch_fn=launch, tiling=plan.tilings[best], scratch_tensors=scratch, key=best)
    return Autotuned(tuned, times, failures)


def _given(plan: Any, dims: Mapping[str, int]) -> dict[str, int]:
    return {dim: dims[dim] for dim, extent in plan.dims.items() if not isinstance(extent, int)}


def _compile(plan: Any, keys: Sequence[str], ending: str, failures: dict[str, str]) -> None:
    """All at once; one by one where a kernel does not compile, to see which."""
    try:
        plan.warm_up([key + ending for key in keys])
    except Exception:
        for key in keys:
            with _noted(failures, key):
                plan.warm_up([key + ending])


class _noted:  # reads as a word in `with`
    """Takes down what is raised inside, of what concerns one tiling."""

    def __init__(self, failures: dict[str, str], key: str) -> None:
        self.failures, self.key = failures, key

    def __enter__(self) -> None: ...

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> bool:
        if not isinstance(error, Exception):
            return False
        self.failures[self.key] = f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}"
        return True


def _time(timers: Mapping[str, Callable[[], float]], rounds: int, failures: dict[str, str]) -> dict[str, list[float]]:
    """Samples by tiling. Each round begins with another one, so that none is always behind the same; the first round
    warms up."""
    samples: dict[str, list[float]] = {key: [] for key in timers}
    for number in range(rounds + 1):
        order = [key for key in timers if key not in failures]
        begin = number % max(1, len(order))
        for key in (*order[begin:], *order[:begin]):
            with _noted(failures, key):
                seconds = timers[key]()
                if number:
                    samples[key].append(seconds)
    return {key: found for key, found in samples.items() if key not in failures}


def _graph_timer(launch: Callable[[], None], launches: int) -> Callable[[], float]:
    import torch

    launch()  # what a first launch loads cannot be captured
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(launches):
            launch()
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)

    def run() -> float:
        start.record()
        graph.replay()
        end.record()
        end.synchronize()
        return float(start.elapsed_time(end)) / 1e3 / launches

    return run


def _clock_timer(launch: Callable[[], None], launches: int) -> Callable[[], float]:
    def run() -> float:
        start = time.perf_counter()
        for _ in range(launches):
            launch()
        return (time.perf_counter() - start) / launches

    return run
