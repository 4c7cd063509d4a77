"""The process that `cutegen profile` looks at: `python -m cutegen.run.profiled PACKAGE DIMS TILING MODE`.

It prints one line of JSON: what was launched, or `{"error": ...}`. MODE is ncu, which leaves one launch between the
start and the stop of CUDA's profiler, or annotation, which has all of its steps in NVTX ranges and times launches.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from cutegen.diagnostics import describe_error
from cutegen.run.subject import load_subject
from cutegen.runtime.command import time_launches

WARM_UP = 20  # launches before the one that is profiled
ITERATIONS = 100  # launches in each timed group


def launch_profiled(path: Path, dims: dict[str, int], tiling: str, mode: str) -> dict[str, Any]:
    """device; tiling: the key that ran, `tiling` or the one that the plan chooses; flops, bytes: of the problem;
    seconds: of a launch, None under ncu."""
    import torch

    subject = load_subject(path)
    plan = subject.plan
    assert plan
    with torch.cuda.nvtx.range("inputs"):
        inputs = subject.inputs(dims)
        problem = plan.problem_dims(*inputs)
        key = tiling or plan.choose_instance(inputs, problem)
        outputs, scratch = plan.allocate_outputs(*inputs), plan.allocate_scratch(*inputs, key=key)
        values = (*plan.omit(key, inputs), *outputs, *scratch)
    with torch.cuda.nvtx.range("compile"):
        plan.warm_up([key])
    launch = plan.make_launch(key)
    with torch.cuda.nvtx.range("warm-up"):
        for _ in range(WARM_UP):
            launch(*values)
        torch.cuda.synchronize()
    seconds = None
    if mode == "annotation":
        seconds = time_launches(launch, values, ITERATIONS, f"{plan.name} {key}")
    else:
        torch.cuda.profiler.start()
        launch(*values)
        torch.cuda.synchronize()
        torch.cuda.profiler.stop()
    flops, moved = plan.count_work(problem, inputs)
    name = torch.cuda.get_device_name()
    return {"device": name, "tiling": key, "flops": flops, "bytes": moved, "seconds": seconds}


def main(path: str, dims: str, tiling: str, mode: str) -> int:
    try:
        found = launch_profiled(Path(path), json.loads(dims), tiling, mode)
    except Exception as error:
        found = {"error": describe_error(error)}
    print(json.dumps(found), flush=True)
    return int("error" in found)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
