"""Measures the layer of generated kernels against the same in PyTorch: both compiled by torch.compile, in CUDA graphs,
in turns, in one process. README.md says how, and what the result has.

    python examples/decoder_block/measure.py -o decoder_block.json --picture decoder_block.svg
"""

from __future__ import annotations

import argparse
import json
import math
import multiprocessing
import os
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, field
from functools import partial
from itertools import starmap
from pathlib import Path
from statistics import median
from typing import Any

import torch
from layer import (
    KINDS,
    SPECS,
    Attention,
    Cache,
    Format,
    GeneratedLayer,
    Layer,
    Sizes,
    TorchLayer,
    error,
    load_plans,
    make_weights,
    record_steps,
    widen,
)
from picture import draw

from cutegen.run.bench import Device, warm_up
from cutegen.run.device import CudaDevice, Launch
from cutegen.run.environment import describe_environment
from cutegen.run.intervals import Interval, median_interval, ratio_text, round_orders, speed_ratio
from cutegen.runtime.gpu import probe_gpu

# The most that a result may be from float32, relative to what the layer adds to its input (`layer.error`): 1.5 times
# what PyTorch's own operations of the same formats give.
MOST_ERROR: Mapping[Format, float] = {"bf16": 0.01, "e4m3": 0.07}
CUTEGEN, TORCH = SIDES = ("cutegen", "torch.compile")
L2_FACTOR = 2  # the smallest weight of all layers together exceeds L2 so many times
STEP_ROUNDS = 5

Compile = Callable[[Any], Any]
Say = Callable[[str], None]


@dataclass(frozen=True)
class Problem:
    """tokens: new ones. Decode: each of a sequence of its own, with `context` tokens in the cache. Prefill, where
    context is 0: all of one sequence."""

    form: Format
    tokens: int
    context: int

    @property
    def title(self) -> str:
        how = f"decode with {self.context} tokens in the cache" if self.context else "prefill"
        return f"{self.form}, {self.tokens} token{'s' * (self.tokens > 1)}, {how}"

    def make_cache(self, sizes: Sizes, device: str) -> Cache:
        sequences, capacity = (self.tokens, self.context + 1) if self.context else (1, self.tokens)
        shape = sequences, sizes.kv_heads, capacity, sizes.head_dim
        keys, values = (torch.randn(shape, device=device).bfloat16() for _ in range(2))
        return Cache(keys, values, self.context)

    def list_kernels(self, sizes: Sizes) -> list[tuple[str, dict[str, int]]]:
        """What the layer's kernels do, by SPECS, and on which extents."""
        weights, inner = sizes.weights, sizes.heads * sizes.head_dim
        extents = [("qkv", weights["qkv"]), ("project", weights["out"]), ("project", weights["down"])]
        extents.append(("gate_up", weights["gate_up"]))
        found = [(role, {"m": self.tokens, "n": n, "k": k}) for role, (n, k) in extents]
        rows = [("norm", sizes.hidden), ("quantise", inner)]
        return found + [(role, {"m": self.tokens, "n": n}) for role, n in rows if role in SPECS[self.form]]


@dataclass
class Side:
    """Layers with a cache each. samples: seconds of one layer, by round. steps: seconds of each, by name and round."""

    name: str
    layers: Sequence[Layer]
    error: float = 0.0
    samples: list[float] = field(default_factory=list)
    steps: dict[str, list[float]] = field(default_factory=dict)

    def launches(self, x: torch.Tensor, caches: Sequence[Cache], compiled: Compile) -> list[Launch]:
        return [partial(compiled(layer), x, cache) for layer, cache in zip(self.layers, caches)]

    def shares(self) -> dict[str, float]:
        """Of the time of all steps, by kind."""
        spent = {name: median(samples) for name, samples in self.steps.items()}
        total = sum(spent.values())
        return {k: sum(t for n, t in spent.items() if KINDS[n] == k) / total for k in dict.fromkeys(KINDS.values())}


def measure(
    problem: Problem,
    sizes: Sizes,
    kernels: Mapping[str, Callable[..., Any]],
    device: Device,
    where: str,
    rounds: int,
    slice_seconds: float,
    compiled: Compile,
    say: Say,
) -> dict[str, Any]:
    """A problem as the result has it. where: torch's name of the device. compiled: torch.compile with its options.

    Each launch is another layer with weights and a cache of its own, so that none finds its own in L2.
    """
    say(f"{problem.title}: inputs")
    torch.manual_seed(1)
    smallest = min(starmap(int.__mul__, sizes.weights.values())) * (2 if problem.form == "bf16" else 1)
    count = max(2, math.ceil(L2_FACTOR * device.l2_bytes / smallest))
    weights = [make_weights(sizes, problem.form, where) for _ in range(count)]
    caches = [problem.make_cache(sizes, where) for _ in range(count)]
    attention = Attention(sizes, caches[0].keys.shape[2], where)
    x = torch.randn(problem.tokens, sizes.hidden, device=where).bfloat16()
    sides = (
        Side(CUTEGEN, [GeneratedLayer(w, attention, kernels) for w in weights]),
        Side(TORCH, [TorchLayer(w, attention) for w in weights]),
    )
    say(f"{problem.title}: compiling")
    launches = [side.launches(x, caches, compiled) for side in sides]
    wide = Cache(caches[0].keys.float(), caches[0].values.float(), problem.context)
    reference = TorchLayer(widen(weights[0]), attention)(x.float(), wide)
    for side, own in zip(sides, launches):
        side.error = error(own[0](), reference, x)
    del reference, wide
    ready = [device.prepare(own) for own in launches]
    say(f"{problem.title}: warming up")
    warm_up(device, ready, slice_seconds)
    for number, order in enumerate(round_orders(len(sides), rounds)):
        say(f"{problem.title}: round {number + 1} of {rounds}")
        for i in order:
            sides[i].samples.append(device.sample(ready[i], slice_seconds)[0])
    del ready, launches
    for side in sides:
        say(f"{problem.title}: steps of {side.name}")
        side.steps = measure_steps(side, x, caches, device, slice_seconds, compiled)
    return describe(problem, count, sides)


def measure_steps(
    side: Side, x: torch.Tensor, caches: Sequence[Cache], device: Device, slice_seconds: float, compiled: Compile
) -> dict[str, list[float]]:
    """Seconds of each step alone: launches of it follow each other, each in another layer. What is not a kernel yet, as
    attention and PyTorch's rows are, is compiled as in the whole layer, where nothing is fused across products."""
    recorded = []
    for layer, cache in zip(side.layers, caches):
        with record_steps(layer) as steps:
            layer(x, cache)
        recorded.append(steps)
    found: dict[str, list[float]] = {}
    for alike in zip(*recorded):
        function, name = alike[0].function, alike[0].name
        own = name == "attention" or (KINDS[name] == "rows" and side.name == TORCH)
        run = compiled(function) if own else function
        ready = device.prepare([partial(run, *step.values) for step in alike])
        found[name] = [device.sample(ready, slice_seconds)[0] for _ in range(STEP_ROUNDS)]
    return found


def describe(problem: Problem, count: int, sides: Sequence[Side]) -> dict[str, Any]:
    cutegen, torch_side = sides
    return {
        **asdict(problem),
        "title": problem.title,
        "layers": count,
        "most_error": MOST_ERROR[problem.form],
        "speed": asdict(speed_ratio(torch_side.samples, cutegen.samples)),
        "sides": {
            s.name: {
                "error": s.error,
                "time": asdict(median_interval(s.samples)),
                "shares": s.shares(),
                "steps": s.steps,
                "samples": s.samples,
            }
            for s in sides
        },
    }


def is_right(result: Mapping[str, Any]) -> bool:
    """Both sides are as near to float32 as is promised. A comparison with NaN is false."""
    return all(side["error"] <= result["most_error"] for side in result["sides"].values())


def table(results: Sequence[Mapping[str, Any]]) -> str:
    """A line for each problem, and one for each of its sides."""
    lines = []
    for r in results:
        lines.append(f"{r['title']}: {ratio_text(Interval(**r['speed']))} times as fast as {TORCH}")
        for name, side in r["sides"].items():
            shares = ", ".join(f"{kind} {share:.0%}" for kind, share in side["shares"].items())
            steps = f"{sum(map(median, side['steps'].values())) * 1e6:.1f} us in steps"
            wrong = "" if side["error"] <= r["most_error"] else ", WRONG"
            lines.append(
                f"  {name:<14}{side['time']['median'] * 1e6:9.1f} us a layer; {shares} of {steps}; "
                f"error {side['error']:.4f}, at most {r['most_error']}{wrong}"
            )
    return "\n".join(lines)


def compile_kernel(form: Format, role: str, dims: Mapping[str, int]) -> None:
    """Puts the kernel that a problem runs into the cache."""
    plan = load_plans(form)[role]
    plan.warm_up([plan.dispatch(**dims)])


def main() -> int:
    given = parse_arguments()
    if not (status := probe_gpu("sm_90a")).ok:
        print(f"not measured: {status.reason}", file=sys.stderr)
        return 2
    sizes = Sizes()
    problems = [Problem(f, n, given.context) for f in given.formats for n in given.decode]
    problems = sorted(problems + [Problem(f, n, 0) for f in given.formats for n in given.prefill], key=lambda p: p.form)
    wanted = {repr(k): k for p in problems for k in ((p.form, *kernel) for kernel in p.list_kernels(sizes))}
    say = partial(print, file=sys.stderr, flush=True)
    say(f"compiling {len(wanted)} kernels")
    with ProcessPoolExecutor(given.jobs, multiprocessing.get_context("spawn")) as pool:
        for done in [pool.submit(compile_kernel, *kernel) for kernel in wanted.values()]:
            done.result()
    kernels = {f: {role: p.register_torch_op() for role, p in load_plans(f).items()} for f in given.formats}
    options: dict[str, Any] = {"fullgraph": True, "dynamic": False, "mode": given.mode}
    result: dict[str, Any] = {
        "command": shlex.join(["python", *sys.argv]),
        "environment": describe_environment(),
        "sizes": asdict(sizes),
        "compile": options,
        "rounds": given.rounds,
        "slice_seconds": given.slice_ms / 1e3,
        "problems": [],
    }
    device = CudaDevice()
    with torch.no_grad():
        for problem in problems:
            torch.compiler.reset()  # one problem's graphs at a time
            measured = measure(
                problem,
                sizes,
                kernels[problem.form],
                device,
                "cuda",
                given.rounds,
                given.slice_ms / 1e3,
                partial(torch.compile, **options),
                say,
            )
            result["problems"].append(measured)
            given.output.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")  # of what there is by now
            device.free_bytes()
    print(table(result["problems"]))
    if given.picture:
        given.picture.write_text(draw(result), encoding="utf-8")
    return 0 if all(map(is_right, result["problems"])) else 1


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--formats", nargs="+", choices=tuple(SPECS), default=list(SPECS), help="of products")
    parser.add_argument(
        "--decode", type=int, nargs="*", default=[1, 64], metavar="TOKENS", help="sequences of one token"
    )
    parser.add_argument("--prefill", type=int, nargs="*", default=[4096], metavar="TOKENS", help="of one sequence")
    parser.add_argument("--context", type=int, default=1024, help="tokens in the cache of each sequence that decodes")
    parser.add_argument("--mode", default="default", help="torch.compile's, for both sides")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--slice-ms", type=float, default=50, help="milliseconds of a side in a round")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="processes that compile kernels")
    parser.add_argument("-o", "--output", type=Path, default=Path("decoder_block.json"))
    parser.add_argument("--picture", type=Path, help="an SVG of where time goes")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
