"""`python -m` of a generated package: one problem, run, checked and timed from the command line."""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Sequence
from statistics import median
from typing import Any

from cutegen.runtime.accuracy import compare

Plan = Any  # a BasePlan, which imports this module
MACHINE = "cutegen.machine.command"  # by name: generated packages need no cutegen to run


def benchmark_kernel_argparse(plan: Plan, arguments: Sequence[str] | None = None) -> int:
    """Runs the command line of a plan. Returns 0, 1 (wrong result) or 2 (usage, no device it can run on)."""
    free = [d for d, extent in plan.dims.items() if not isinstance(extent, int)]
    flags = " ".join(f"--{dim} {dim.upper()}" for dim in free)
    parser = argparse.ArgumentParser(
        prog=f"python -m {_package(plan)}",
        usage=f"%(prog)s {flags} [options]",
        description=f"{plan.name}, {plan.arch}",
        allow_abbrev=False,  # --s is not --sms
    )
    for dim in free:
        short = [f"--{plan.short_options[dim]}"] if dim in plan.short_options else []
        parser.add_argument(f"--{dim}", *short, type=int, help=f"extent of {dim}, required")
    parser.add_argument("--check", action="store_true", help="compare with the reference, computed in float64")
    parser.add_argument("--on", choices=("gpu", "cpu"), default="gpu", help="cpu: with --check, executed without a GPU")
    parser.add_argument("--prof_type", choices=("disabled", "annotation", "ncu"), default="disabled")
    parser.add_argument("--sms", type=int, metavar="N", help="run on at most N SMs (default: all)")
    parser.add_argument("--iterations", type=int, default=100, help="timed launches (default 100)")
    options, unknown = parser.parse_known_args(arguments)
    if unknown:
        named = [word.partition("=")[0] for word in unknown if word.startswith("-")] or unknown
        parser.error(f"unknown option {', '.join(named)}; the dims are {flags}")
    if missing := [f"--{dim}" for dim in free if getattr(options, dim) is None]:
        parser.error(f"{', '.join(missing)} missing; the dims are {flags}")
    if options.iterations < 1:
        parser.error("--iterations is at least 1")
    if options.on == "cpu" and not options.check:
        parser.error("--on cpu proves results and measures nothing: add --check")
    try:
        if options.on == "cpu":
            return _execute(plan, {d: getattr(options, d) for d in free}, options.sms)
        return _run(plan, {d: getattr(options, d) for d in free}, options)
    except (ImportError, TypeError, ValueError, RuntimeError, OverflowError) as error:
        print(f"error: {error}", file=sys.stderr)
    except MemoryError:
        print("error: the problem does not fit in memory: give smaller extents", file=sys.stderr)
    return 2


def _execute(plan: Plan, dims: dict[str, int], sms: int | None) -> int:
    try:
        machine = importlib.import_module(MACHINE)
    except ModuleNotFoundError as error:
        if (error.name and MACHINE.startswith(error.name)) or error.name == "numpy":
            print(f"not run: --on cpu needs {error.name}: pip install 'cutegen[cpu]'", file=sys.stderr)
            return 2
        raise
    code: int = machine.execute_plan(plan, dims, sms)
    return code


def _package(plan: Plan) -> str:
    """The package that the plan was imported from, wherever it lies: what stands behind `python -m`."""
    return type(plan).__module__.rpartition(".")[0] or plan.name


def _run(plan: Plan, dims: dict[str, int], options: argparse.Namespace) -> int:
    import torch

    if plan.device == "cuda" and not torch.cuda.is_available():
        print(f"not run: no CUDA device; {plan.name} needs {plan.arch}", file=sys.stderr)
        return 2
    kernel = plan.plan(*plan.prepare_inputs(**dims), sms=options.sms)
    values = (*kernel.input_tensors, *kernel.output_tensors, *kernel.scratch_tensors)
    shape = " ".join(f"{d}={extent}" for d, extent in {**plan.dims, **dims}.items())
    print(f"{plan.name} {shape}\n{kernel.tiling}")
    results = plan.order_results(kernel.input_tensors, kernel.output_tensors)
    before = tuple(v.clone() if a.name in plan.in_place else v for a, v in zip(plan.inputs, kernel.input_tensors))
    kernel.launch_fn(*values)
    code = compare_outputs(plan, before, results) if options.check else 0
    if plan.device != "cuda":
        return code
    torch.cuda.synchronize()
    if options.prof_type == "ncu":
        torch.cuda.profiler.start()
        kernel.launch_fn(*values)
        torch.cuda.synchronize()
        torch.cuda.profiler.stop()
        given = {**dims, **({} if options.sms is None else {"sms": options.sms})}
        flags = " ".join(f"--{option} {value}" for option, value in given.items())
        python = f"{sys.executable} -m {_package(plan)}"
        print(f"ncu --profile-from-start off --set full {python} {flags} --prof_type=ncu")
        return code
    seconds = time_launches(
        kernel.launch_fn, values, options.iterations, plan.name if options.prof_type == "annotation" else ""
    )
    flops, moved = kernel.algorithmic_flops_bytes_fn()
    print(f"{seconds * 1e6:.2f} us  {flops / seconds / 1e12:.1f} TFLOP/s  {moved / seconds / 1e12:.2f} TB/s", end="  ")
    print("(same inputs every time, L2 warm; `cutegen bench` compares)")
    return code


def compare_outputs(plan: Plan, inputs: tuple[Any, ...], outputs: tuple[Any, ...]) -> int:
    """Prints how far the outputs are from the reference in float64, inputs being as they were before the launch.
    Returns 0, or 1 where one is too far."""
    expected = plan.reference_fn(*inputs, precision="float64")
    code = 0
    references = (expected,) if len(outputs) == 1 else expected
    for i, (arg, out, ref) in enumerate(zip(plan.outputs, outputs, references)):
        allowed = plan.output_tolerance(i, inputs, arg.dtype)
        found = compare(out, ref, allowed, plan.free_elements(i, inputs))
        word = "wrong" if found.mismatches else "right"
        print(
            f"{arg.name}: {word}, {found.mismatches} of {found.elements} elements beyond {allowed}; "
            f"max error {found.max_error:.3g} (allowed there {found.allowed:.3g}), mean {found.mean_error:.3g}"
        )
        code |= bool(found.mismatches)
    return code


def time_launches(launch: Any, values: tuple[Any, ...], iterations: int, label: str) -> float:
    """Seconds per launch: the median of five groups, after a warm-up of one group."""
    import torch

    samples = []
    for _ in range(6):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        for _ in range(iterations):
            if label:
                torch.cuda.nvtx.range_push(label)
            launch(*values)
            if label:
                torch.cuda.nvtx.range_pop()
        end.record()
        end.synchronize()
        samples.append(start.elapsed_time(end) / 1e3 / iterations)
    return median(samples[1:])
