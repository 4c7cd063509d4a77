"""Rules about the warps that copy gathered rows."""

from __future__ import annotations

from cutegen.arch.architecture import Arch
from cutegen.diagnostics import Rule
from cutegen.families.gemm.candidate import Candidate
from cutegen.families.gemm.features.gather.gather_warps import (
    BESIDE_ROWS,
    SCALED_ROW_REGISTERS,
    gather_step,
    gather_warps,
    gathered_rows,
    needed_registers,
    registers_beside_rows,
    scaled_rows,
)
from cutegen.families.gemm.problem import GemmProblem
from cutegen.families.gemm.rule_book import BOOK
from cutegen.families.refusal import Objection

_EXAMPLE = "mainloop: a[rows] @ b\n"


@BOOK.declare_form(
    Rule(
        "gather-step",
        "the rows of a tile are a multiple of what the gather warps copy at once",
        "A thread copies 16 bytes, so 8 threads copy a row of 128 bytes, and two warps 8 such rows. There is one warp "
        "where another hands out tiles and a third one loads tiles of the epilogue. A narrower tile k has shorter "
        "rows, of which more are copied at once; 4 or 2 threads copy a row that is not a multiple of 128 bytes.",
        _EXAMPLE + "tiling: {swap_ab: true, tile: [128, 16, 16]}",
    ),
    "tile",
    "swap_ab",
    "scheduler",
)
def rows_at_once(problem: GemmProblem, c: Candidate, arch: Arch) -> Objection | None:
    if problem.gather is None:
        return None
    rows, step, warps = gathered_rows(problem, c), gather_step(problem, c), gather_warps(problem, c)
    if rows % step == 0:
        return None
    copied = f"{warps} warp{'s' * (warps > 1)} copy {step} rows of tile k = {c.tile[2]} at once"
    reason = f"{copied}, tile {problem.gather.along} = {rows} is not a multiple of that"
    return reason, f"use a multiple of {step}, or a wider tile k"


@BOOK.declare_form(
    Rule(
        "gather-way",
        "how gathered rows come to shared memory is said where rows are gathered, and nowhere else",
        "`cp_async`: threads copy them into the ring of A and B. `copy`: a preceding launch copies them to scratch, "
        "and the kernel is that of rows in order.",
        _EXAMPLE + "tma: {a: {gather: copy}}",
    ),
    "gather",
)
def gather_way(problem: GemmProblem, c: Candidate, arch: Arch) -> Objection | None:
    gathers = bool(problem.gather or problem.copied)
    if gathers == (c.gather != "none"):
        return None
    if gathers:
        return "rows are gathered, and nothing says how", "use copy, or cp_async"
    return f"gather is {c.gather}, but no index names rows", "use none"


@BOOK.declare_fit(
    Rule(
        "gather-registers",
        "a gather thread has a register for each row that it copies",
        "Which rows a thread copies is looked up once a tile and kept in registers, in addition to the "
        f"{BESIDE_ROWS} that addresses and loop state take, more where a row has many times what its threads copy "
        f"at once, and {SCALED_ROW_REGISTERS} for each row whose scales along k it copies; with less, the compiler "
        "spills.",
        _EXAMPLE + "tiling: {tile: [256, 128, 64]}\nwarpgroups: {producer: {registers: 40}}",
    ),
    "producer_registers",
    "tile",
    "scheduler",
)
def gather_registers(problem: GemmProblem, c: Candidate, arch: Arch) -> Objection | None:
    needed = needed_registers(problem, c)
    if c.producer_registers >= needed:
        return None
    rows = gathered_rows(problem, c) // gather_step(problem, c)
    others = registers_beside_rows(problem, c)
    scales = f", the scales of {scaled_rows(problem, c)}," if problem.gathers_row_scale else ""
    reason = f"a gather thread copies {rows} rows of a tile{scales} and needs {rows} + {others} registers"
    return f"{reason}, not {c.producer_registers}", f"use {needed}, or fewer rows in a tile"
