"""The process that launches a kernel with stamps on a GPU."""

from __future__ import annotations

import contextlib
import time
import warnings
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

from cutegen.build.messages import describe
from cutegen.diagnostics import CutegenError
from cutegen.run.role_trace import CTAS, RECORDS, Stamps, TraceRequest, find_module
from cutegen.run.subject import Subject, load_subject
from cutegen.runtime.base import BasePlan
from cutegen.runtime.stamps import RECORD

WARM_UP = 3  # launches before the one that is read


def launch_traced(
    request: TraceRequest, subject: Subject, buffer: Any, run: Callable[[Callable[[], None]], bool], device: str
) -> Stamps:
    """One launch of a package that `instrument` made, after others unless it may hang. buffer: of bytes. run: calls
    what launches, and says whether that has ended."""
    from cutegen.device.trace import stamping

    plan = subject.plan
    assert plan
    inputs = subject.inputs(request.shape, request.draw)
    key = request.tiling or plan.choose_instance(inputs, plan.problem_dims(*inputs))
    outputs, scratch = plan.allocate_outputs(*inputs), plan.allocate_scratch(*inputs, key=key)
    values = (*plan.omit(key, inputs), *outputs, *scratch)
    package = request.path if request.path.is_dir() else request.path.parent
    module = (package / f"{find_module(plan, key)}.py").resolve()
    with stamping(module, buffer.data_ptr(), CTAS, RECORDS) as places:
        plan.warm_up([key])
    launch = plan.make_launch(key)
    for _ in range(0 if request.patience else WARM_UP):
        run(lambda: launch(*values))
    buffer.zero_()
    ended = run(lambda: launch(*values))
    warps = -(-plan.tilings[key].threads // 32)
    return Stamps(device, key, module.name, tuple(places), warps, bytes(buffer.cpu().numpy()), ended)


def buffer_bytes(plan: BasePlan) -> int:
    return CTAS * max(-(-t.threads // 32) for t in plan.tilings.values()) * RECORDS * RECORD


def on_gpu(request: TraceRequest) -> Stamps:
    """On the current device. A launch that may hang writes to memory of the host, where it can be read meanwhile."""
    import torch

    subject = load_subject(request.path)
    assert subject.plan
    hangs = request.patience is not None
    size = buffer_bytes(subject.plan)
    buffer = torch.zeros(size, dtype=torch.uint8, **({"pin_memory": True} if hangs else {"device": "cuda"}))

    def run(action: Callable[[], None]) -> bool:
        torch.cuda.synchronize()
        action()
        if request.patience is None:
            torch.cuda.synchronize()
            return True
        done = torch.cuda.Event()
        done.record()
        deadline = time.monotonic() + request.patience
        while not done.query() and time.monotonic() < deadline:
            time.sleep(0.05)
        return done.query()

    return launch_traced(request, subject, buffer, run, torch.cuda.get_device_name())


def serve(handle: int, launch: Callable[[TraceRequest], Stamps]) -> None:
    """Answers one request: its stamps, or a CutegenError. Then waits to be ended: a kernel that hangs holds CUDA."""
    warnings.simplefilter("ignore")
    connection = Connection(handle)
    request: TraceRequest = connection.recv()
    try:
        answer: object = launch(request)
    except Exception as error:
        told = error if isinstance(error, CutegenError) else None
        answer = told or CutegenError(f"{request.path.name}: {describe(error)}", exit_code=2)
    connection.send(answer)
    with contextlib.suppress(EOFError):
        connection.recv()


def main(handle: int) -> None:
    serve(handle, on_gpu)
