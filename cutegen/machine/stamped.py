"""The process that launches a kernel with stamps on the PTX machine, whose clock counts its steps."""

from __future__ import annotations

from collections.abc import Callable

from cutegen.machine.package import Simulation, simulate
from cutegen.machine.parser import PtxError
from cutegen.run.role_trace import Stamps, TraceRequest
from cutegen.run.subject import load_subject, plan_subject
from cutegen.run.traced import buffer_bytes, launch_traced, serve


def on_machine(request: TraceRequest) -> Stamps:
    import torch

    subject = load_subject(request.path)
    assert subject.plan
    buffer = torch.zeros(buffer_bytes(subject.plan), dtype=torch.uint8)
    # Stamps are written before the wait for the kernel in front, which a launch apart from it may do.
    simulation = Simulation(apart=True, besides=(buffer,))
    simulated = plan_subject(simulate(subject.plan, simulation), request.path)

    def run(action: Callable[[], None]) -> bool:
        try:
            action()
        except PtxError:
            if request.patience is None:
                raise
            return False  # the machine has seen that nothing can go on
        return True

    return launch_traced(request, simulated, buffer, run, "the PTX machine")


def main(handle: int) -> None:
    serve(handle, on_machine)
