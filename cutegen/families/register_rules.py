"""Rules about setmaxnreg that every warp-specialised family shares."""

from __future__ import annotations

from cutegen.arch.architecture import SETMAXNREG_MAX, SETMAXNREG_MIN, SETMAXNREG_STEP, WARPGROUP_THREADS, Arch
from cutegen.diagnostics import Rule
from cutegen.families.refusal import Objection, nearest

REGISTER_VALUES = Rule(
    "register-values",
    f"setmaxnreg takes a multiple of {SETMAXNREG_STEP} from {SETMAXNREG_MIN} to {SETMAXNREG_MAX}",
    "The producer gives registers up and the consumers take them, so the producer has at most what a thread is "
    "launched with: the register file divided by the CTA's threads.",
    "warpgroups: {producer: {registers: 42}}",
)
REGISTER_FILE = Rule(
    "register-file",
    "producer and consumer registers of all warpgroups fit what the CTA is launched with",
    "setmaxnreg moves registers between the warpgroups of a CTA. A consumer that asks for more than the pool holds "
    "waits for ever.",
    "warpgroups: {producer: {registers: 40}, consumer: {count: 2, registers: 240}}",
)


def check_value(arch: Arch, threads: int, role: str, value: int) -> Objection | None:
    """role: producer or consumer, of a CTA with that many threads."""
    if not (SETMAXNREG_MIN <= value <= SETMAXNREG_MAX and value % SETMAXNREG_STEP == 0):
        return (
            f"{value} {role} registers; setmaxnreg takes a multiple of {SETMAXNREG_STEP} "
            f"in {SETMAXNREG_MIN}..{SETMAXNREG_MAX}",
            f"use {nearest(value, range(SETMAXNREG_MIN, SETMAXNREG_MAX + 1, SETMAXNREG_STEP))}",
        )
    if role == "producer" and threads <= arch.max_threads and value > (launch := arch.launch_registers(threads)):
        return f"the producer keeps {value} registers, {threads} threads are launched with {launch} each", "use 40"
    return None


def check_file(
    arch: Arch, threads: int, producer: int, consumers: int, consumer: int, producers: int = 1
) -> Objection | None:
    """consumers, producers: warpgroups with `consumer` and `producer` registers a thread."""
    pool = arch.launch_registers(threads) * threads
    used = WARPGROUP_THREADS * (producers * producer + consumers * consumer)
    if used <= pool:
        return None
    most = most_consumer_registers(arch, threads, producer, consumers, producers)
    each = f"{producers} x " * (producers > 1)
    split = f"128 x ({each}{producer} + {consumers} x {consumer})"
    return (
        f"{split} = {used} registers, {threads} threads are launched with {pool}",
        f"beside {'producers' if each else 'a producer'} with {producer}, consumers have at most {most}",
    )


def most_consumer_registers(arch: Arch, threads: int, producer: int, consumers: int, producers: int = 1) -> int:
    """What setmaxnreg can give each of the consumer warpgroups of a CTA, beside producers with that many."""
    left = arch.launch_registers(threads) * threads // WARPGROUP_THREADS - producers * producer
    return min(left // consumers // SETMAXNREG_STEP * SETMAXNREG_STEP, SETMAXNREG_MAX)
