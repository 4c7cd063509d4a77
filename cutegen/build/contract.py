"""The build contract: what a kernel is planned to compile to against what the compiler made, check by check."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from cutegen.arch import ARCHS
from cutegen.build.facts import Facts
from cutegen.families.code_plan import CodePlan

# What ptxas's messages mean for a kernel; a code that is not here is explained by its own text.
WARNINGS = {
    "C7508": "setmaxnreg is ignored, so consumers do not get the registers the producer gives up: launch with a static "
    "CTA size (constants in `block=`)",
    **dict.fromkeys(
        ("C7511", "C7512"),
        "every MMA waits for the one before, because the accumulators do not fit: use a smaller tile or more consumers",
    ),
    "C7517": "the accumulators are touched while an MMA is in flight, and the compiler waits for it: wait for the "
    "group first, and start a tile with ACCUMULATE off instead of filling with zeros",
    "C7519": "an MMA group starts without warpgroup.fence(): issue one before its first MMA",
}


@dataclass(frozen=True, slots=True)
class Check:
    """One comparison. ok: None where this toolchain does not tell. meaning: for a failed check, what it means and what
    to do about it."""

    id: str
    planned: str
    found: str
    ok: bool | None
    meaning: str = ""


def check_contract(plan: CodePlan, facts: Facts) -> tuple[Check, ...]:
    return tuple(_checks(plan, facts))


def holds(checks: tuple[Check, ...]) -> bool:
    return all(check.ok is not False for check in checks)


def _checks(plan: CodePlan, facts: Facts) -> Iterator[Check]:
    ops = ARCHS[plan.arch].opcodes
    yield _local_memory(plan, facts)
    yield _warnings(facts)
    yield Check(
        "cta-size",
        f"{plan.threads} threads",
        "dynamic" if facts.threads is None else " x ".join(str(t) for t in facts.threads),
        facts.threads == (plan.threads, 1, 1),
        "the kernel is compiled for another CTA size than its roles need: `block=` of the launch must be the tiling's "
        "threads, as a constant",
    )
    yield Check(
        "setmaxnreg",
        _listed(plan.registers),
        _listed(facts.set_registers),
        set(facts.set_registers) == set(plan.registers),
        "registers do not move from the producer to the consumers as planned: every role must set its own, and the CTA "
        "size must be static",
    )
    if plan.mma:
        yield _mma(plan, facts)
        if ops.mma_wait:
            yield _waits(plan, facts)
    if plan.scale_copies:
        found = facts.count(ops.scale_copy)
        meaning = "scales of a k tile do not reach tensor memory by the planned copies"
        yield Check("scale-copy", str(plan.scale_copies), str(found), found == plan.scale_copies, meaning)
    if plan.launch_queries:
        found = facts.count(ops.launch_query)
        yield _present("launch-query", found, plan.launch_queries, "tiles are not taken by cluster launch control")
    if plan.matrix_loads:
        found = facts.count(ops.matrix_load)
        yield _present("ldmatrix", found, plan.matrix_loads, "warps do not read their operands by ldmatrix")
    if plan.tma_loads:
        yield _present("tma-load", facts.count(ops.tma_load), plan.tma_loads, "operands are not loaded by TMA")
    if plan.multicast:
        multicast = sum(n for op, n in facts.opcodes.items() if op.startswith(ops.tma_load) and "MULTICAST" in op)
        yield _present("tma-multicast", multicast, 1, "CTAs of a cluster load the same tile each for itself")
    if plan.tma_adds:
        yield _present("tma-add", facts.count(ops.tma_add), plan.tma_adds, "outputs are not added to by TMA")
    if plan.tma_stores:
        yield _present("tma-store", facts.count(ops.tma_store), plan.tma_stores, "outputs are not stored by TMA")
    for check, opcode, planned, meaning in (
        ("pdl-wait", ops.pdl_wait, plan.pdl_wait, "the kernel may read what the kernel before it has not written yet"),
        ("pdl-trigger", ops.pdl_trigger, plan.pdl_trigger, "the next kernel starts only when this one has ended"),
    ):
        if planned or facts.count(opcode):
            found = facts.count(opcode)
            yield Check(check, "at least 1" if planned else "none", str(found), bool(found) is planned, meaning)
    if plan.pdl_wait and not plan.pdl_early:
        yield _order(plan, facts)
    if plan.atomics:
        meaning = "tiles are not claimed, or partial sums not handed over, by atomic operations on global memory"
        yield _present("atomics", facts.count(*ops.atomics), plan.atomics, meaning)
    if plan.row_prefetches:
        found = facts.count(ops.row_prefetch)
        yield _present("row-prefetch", found, plan.row_prefetches, "L2 does not load rows ahead of their use")
    for check, opcode, least in (
        ("wide-load", ops.wide_load, plan.wide_loads),
        ("wide-store", ops.wide_store, plan.wide_stores),
    ):
        if least:
            yield _present(check, facts.count(opcode), least, "rows are not moved 16 bytes at a time")
    if plan.absent:
        conversions = [f"{n} {op}" for op, n in facts.opcodes.items() if op.startswith(plan.absent)]
        meaning = "values are decoded by the conversion pipe, which is slower than the bits they are made of"
        yield Check(
            "decoding", "no conversion of 8-bit values", ", ".join(conversions) or "none", not conversions, meaning
        )
    if plan.cluster_stores:
        meaning = "partial sums are not handed over in the shared memory of the cluster, or not 16 bytes at a time"
        yield _present("cluster-sum", facts.count(ops.cluster_store), plan.cluster_stores, meaning)
    if plan.mma:
        yield _mbarriers(plan, facts)


def _mbarriers(plan: CodePlan, facts: Facts) -> Check:
    """Each mbarrier is made by one instruction: loops over stages are unrolled while a kernel is traced."""
    found = facts.count(ARCHS[plan.arch].opcodes.mbarrier_init)
    meaning = "the rings of buffers do not have the planned barriers: kernel and tiling disagree about stages or rings"
    return Check("mbarrier", f"{plan.mbarriers} made", f"{found} made", found == plan.mbarriers, meaning)


def _order(plan: CodePlan, facts: Facts) -> Check:
    """What comes before the wait for the kernel in front: nothing, or the loads that are planned there."""
    load = ARCHS[plan.arch].opcodes.tma_load
    loads, accesses = sum(n for op, n in facts.early.items() if op.startswith(load)), sum(facts.early.values())
    if accesses == loads < plan.pdl_loads:
        meaning = "an operand is not loaded before the wait"
    else:
        meaning = "memory is accessed that the kernel before it may still use: `griddepcontrol_wait` must come first"
    return Check(
        "pdl-order",
        f"{f'at least {plan.pdl_loads} {load}, nothing else' if plan.pdl_loads else 'no access'} before the wait",
        ", ".join(f"{n} {op}" for op, n in facts.early.items()) or "none",
        accesses == (loads if plan.pdl_loads else 0) and loads >= plan.pdl_loads,
        meaning,
    )


def _local_memory(plan: CodePlan, facts: Facts) -> Check:
    accesses = facts.count("LDL", "STL")
    found = f"{facts.stack_bytes} B stack, {accesses} LDL/STL"
    if facts.spill_store_bytes is not None:
        found += f", spills {facts.spill_store_bytes} B out, {facts.spill_load_bytes} B in"
    if plan.accumulator_registers:
        meaning = (
            f"registers spill to memory: the accumulators alone take {plan.accumulator_registers} of the "
            f"{max(plan.registers, default=facts.registers)} registers of a consumer thread; "
            f"try {plan.fewer_registers + ', or ' if plan.fewer_registers else ''}a simpler epilogue"
        )
    else:
        meaning = f"a thread needs more than {facts.registers} registers; try {plan.fewer_registers or 'more threads'}"
    clean = not (facts.stack_bytes or accesses or facts.spill_store_bytes or facts.spill_load_bytes)
    return Check("local-memory", "none", found, clean, meaning)


def _warnings(facts: Facts) -> Check:
    if facts.warnings is None:
        return Check("ptxas-warnings", "none", "not passed on by this DSL (4.8 and later do)", None)
    codes = sorted({code for code, _ in facts.warnings})
    meaning = "; ".join(f"{code}: {WARNINGS.get(code, text)}" for code, text in dict(facts.warnings).items())
    return Check("ptxas-warnings", "none", ", ".join(codes) or "none", not codes, meaning)


def _mma(plan: CodePlan, facts: Facts) -> Check:
    kinds = {mma.opcode.partition(".")[0] for mma in plan.mma}
    shapes = {op: n for op, n in facts.opcodes.items() if op.partition(".")[0] in kinds}
    counts = [sum(n for op, n in shapes.items() if f"{op}.".startswith(f"{mma.opcode}.")) for mma in plan.mma]
    return Check(
        "mma",
        ", ".join(f"a multiple of {mma.step} {mma.opcode}" for mma in plan.mma),
        ", ".join(f"{n} {op}" for op, n in shapes.items()) or "none",
        all(count > 0 and count % mma.step == 0 for count, mma in zip(counts, plan.mma))
        and sum(counts) == sum(shapes.values()),
        "the tile is not multiplied by the planned instructions: the kernel's tiled MMA and the tiling disagree",
    )


def _waits(plan: CodePlan, facts: Facts) -> Check:
    planned, found = facts.ptx_waits, facts.count(ARCHS[plan.arch].opcodes.mma_wait)
    meaning = (
        "the compiler waits for MMAs where the kernel does not: accumulators are touched while an MMA is in flight, or "
        "do not fit in the registers"
        if found > planned
        else "the compiler dropped a wait: two wait_group follow each other with no MMA between them"
    )
    return Check("mma-waits", f"{planned} in the PTX", f"{found} in the SASS", found == planned, meaning)


def _present(check: str, found: int, least: int, meaning: str) -> Check:
    return Check(check, f"at least {least}", str(found), found >= least, meaning)


def _listed(values: tuple[int, ...]) -> str:
    return ", ".join(map(str, values)) or "none"
