"""`python -m` of a generated package with `--on cpu`: one problem, executed and compared with its reference.
cutegen/runtime/command.py asks for this module by name."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping

from cutegen.build.cpu import lacking_for_cpu
from cutegen.defaults import ORDERS
from cutegen.machine.case_list import SM_COUNTS
from cutegen.machine.forms import describe, uncalibrated
from cutegen.machine.package import Simulation, simulate
from cutegen.machine.parser import PtxError
from cutegen.runtime.base import BasePlan
from cutegen.runtime.command import compare_outputs


def execute_plan(plan: BasePlan, dims: Mapping[str, int], sms: int | None) -> int:
    """In several orders of events. sms: of the GPU that the launch sees; None: a few. Returns 0, 1 (wrong, a
    race, a hang) or 2 (it cannot be executed here)."""
    if lacking := lacking_for_cpu():
        print(f"not run: {'; '.join(lacking)}", file=sys.stderr)
        return 2
    least = max(SM_COUNTS[-1], *(plan.least_sms(key) for key in plan.tilings))
    simulation = Simulation(sms or least, apart=True, strict=True)
    machine, code = simulate(plan, simulation), 0
    for simulation.seed in range(ORDERS):
        start = time.perf_counter()
        kernel = machine.plan(*machine.prepare_inputs(**dims))
        if simulation.lacking:
            print(f"not run: not simulated: {'; '.join(simulation.lacking)}", file=sys.stderr)
            return 2
        before = tuple(
            v.clone() if a.name in machine.in_place else v for a, v in zip(machine.inputs, kernel.input_tensors)
        )
        print(f"order {simulation.seed}: ", end="", flush=True)
        try:
            kernel.launch_fn(*kernel.input_tensors, *kernel.output_tensors, *kernel.scratch_tensors)
        except PtxError as error:
            print(error)
            code = 1
            continue
        results = machine.order_results(kernel.input_tensors, kernel.output_tensors)
        print(f"executed on the CPU, no race, {time.perf_counter() - start:.1f} s")
        code |= compare_outputs(machine, before, results)
    for form in uncalibrated(simulation.forms()):
        print(describe(form))
    return code
