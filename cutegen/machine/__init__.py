"""A PTX machine: runs the Hopper kernels of a generated package on the CPU, barriers and asynchronous copies included.

    subject = load(Path("specs/NAME.yaml"), Simulation(sm_count=4, seed=0))
    assert_passes(subject, {"m": 100, "n": 264, "k": 72})
    d = subject.plan.kernel_fn(a, b)  # CPU tensors

`cutegen check --on cpu` runs it; docs/ptx-machine.md tells what it proves and what not. It needs numpy, torch (a CPU
build is enough) and a C compiler besides CuTe DSL: the extra `cpu`.
"""

from cutegen.machine.package import (
    Simulation,
    assert_equal_bits,
    assert_passes,
    load,
    load_resolution,
    promise,
    run,
    simulate,
)
from cutegen.machine.parser import PtxError

__all__ = [
    "PtxError",
    "Simulation",
    "assert_equal_bits",
    "assert_passes",
    "load",
    "load_resolution",
    "promise",
    "run",
    "simulate",
]
