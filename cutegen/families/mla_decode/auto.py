"""`auto`: ordered lists with reasons; written knobs are constraints, and the first legal candidate wins."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from cutegen.arch.architecture import SETMAXNREG_MIN, Arch
from cutegen.families.decide import Choice, first_legal
from cutegen.families.mla_decode.candidate import (
    ANY,
    BOTH,
    JOIN_RATIO,
    KEYS_ON_M,
    MAX_UNIT,
    MOST_PIECES,
    PAIR,
    REGISTERS,
    SINGLE_CALLS,
    SINGLE_ROWS,
    Candidate,
)
from cutegen.families.mla_decode.derived import CONSUMERS, count_threads, derive, loaders, row_registers
from cutegen.families.mla_decode.lowering import lowering_of
from cutegen.families.mla_decode.lowering.sm100.rules import VARIANT
from cutegen.families.mla_decode.problem import KEYS, MlaProblem
from cutegen.families.mla_decode.rules import refusals
from cutegen.families.pdl import PDL_TRIGGER, PDL_WAIT, why_trigger
from cutegen.families.refusal import Refusal
from cutegen.families.register_rules import most_consumer_registers
from cutegen.spec.parse import BAD_VALUE

# (variant, its reason, pairs of blocks fetched ahead, the reason of that). Measured on an H200.
BEST_FIRST = (
    ("both", "two CTAs share the loads of 128 rows where requests fill the GPU; one CTA is quicker where they do not",
     1, "fastest of 0 and 1 for seesaw_2cta; seesaw as one of both fetches nothing ahead"),
    ("seesaw", "one CTA for each 64 rows", 0, "fetching ahead made it up to 12% slower"),
    ("seesaw_2cta", "two CTAs share each load of the cache", 1, "up to 6% faster than 0"),
)  # fmt: skip
# Knob -> value and reason; docs/lab/2026-11-ideas.md has what the other values gave.
MEASURED: dict[str, tuple[object, str]] = {
    "max_splits": (ANY, "balances the SMs; 1 makes each request's result independent of the others"),
    "overhead": (2, "loading Q, storing O and filling the pipeline take about as long as two pairs of blocks"),
    "join_ratio": (JOIN_RATIO, "a pair of key blocks takes about as long as joining 100 parts; 25 was up to 5% slower"),
    "pdl_wait": (
        PDL_WAIT,
        "overlaps its setup and a guess of its work with the tail of the preceding kernel, if that one triggers",
    ),
    "pdl_trigger": (PDL_TRIGGER, why_trigger("2%")),
}
# Where bits may not depend on the batch.
INVARIANT: dict[str, tuple[object, str]] = {
    "max_splits": (MOST_PIECES, "parts of a request, by its own length alone; each has a place in the workspace"),
    "unit": (MAX_UNIT, "every call cuts requests at the same places"),
    "split_columns": (False, "would depend on the batch"),
    "join_ratio": (JOIN_RATIO, "bounds nothing: requests are cut by their own lengths alone"),
}
# Of a quantised cache: no other order has been measured.
DECODING_FIRST = (
    ("seesaw", "keys of a quantised cache are decoded in registers, so no CTAs share loads",
     1, "the decoder has few loads under way itself; rows that wait in L2 take less of them"),
    *(row for row in BEST_FIRST if row[0] != "seesaw"),
)  # fmt: skip
# Of rows that indices name, in 16 bits: none has been measured yet.
COPYING_FIRST = (
    ("seesaw", "rows that indices name are copied by each CTA for itself, so no CTAs share loads",
     1, "rows that wait in L2 take less of the copies under way; not measured"),
    *DECODING_FIRST[1:],
)  # fmt: skip
# Of up to FEW_MEASURED rows and sparse keys of a quantised cache: measured on an H200. Else only where it is written:
# dense keys in 16 bits gained nothing.
FEW_MEASURED = 16
FEW = (
    KEYS_ON_M,
    "up to 16 rows leave registers for two warpgroups that decode: 1.09 to 1.17 times as fast from batch 8 on",
    "as for seesaw",
)
PRODUCER_REGISTERS = 24  # the load warps need no more


def choose(problem: MlaProblem, fixed: Mapping[str, Any], arch: Arch) -> Choice | tuple[Refusal, ...]:
    """The first legal candidate with the `fixed` knobs (by Candidate field); else what refuses the nearest."""
    variant = fixed.get("variant")
    if variant is not None and (variant == PAIR) is not bool(arch.tensor_memory):
        reason = f"variant {variant} is not one of {arch.name}"
        remedy = "leave it `auto`" if arch.tensor_memory else "use seesaw, seesaw_2cta, keys_on_m or both"
        return (Refusal(VARIANT.id, ("variant",), reason, remedy, None, form=True),)
    return first_legal(
        lowering_of(arch.name).candidates(problem, fixed, arch), lambda candidate: refusals(problem, candidate, arch)
    )


def choose_instance(problem: MlaProblem, fixed: Mapping[str, Any], arch: Arch) -> Choice | tuple[Refusal, ...]:
    """As `choose`, for one kernel that single calls run: seesaw_2cta may be one of both, which runs calls with any
    rows."""
    variant = fixed.get("variant", "seesaw")
    for field, several, one in (("variant", BOTH, "seesaw or seesaw_2cta"), ("unit", ANY, "2 or 1")):
        if fixed.get(field) == several:
            reason = f"a winner is one kernel, and `{field}: {several}` are several"
            return (Refusal(BAD_VALUE.id, (field,), reason, f"use {one}", None, form=True),)
    fixed = {"unit": MAX_UNIT, "split_columns": False, **fixed}
    found = choose(problem, fixed, arch)
    if not isinstance(found, Choice) and not fixed["split_columns"]:
        found = choose(problem, {**fixed, "variant": BOTH}, arch) if variant == "seesaw_2cta" else found
    return replace(found, candidate=replace(found.candidate, variant=variant)) if isinstance(found, Choice) else found


def candidates(problem: MlaProblem, fixed: Mapping[str, Any], arch: Arch) -> Iterator[Choice]:
    """Candidates with the fixed knobs, best first."""
    for variant, why, prefetch, why_prefetch in _order(problem, fixed.get("variant")):
        if fixed.get("variant", variant) != variant:
            continue
        proposals = {"variant": (variant, why), **MEASURED, "prefetch": (prefetch, why_prefetch)}
        proposals["unit"] = _unit(problem, variant)
        proposals["split_columns"] = _split_columns(variant, fixed.get("max_splits", MEASURED["max_splits"][0]))
        if problem.piece:
            proposals |= INVARIANT
        proposals |= _ahead(problem, fixed)
        values = {field: value for field, (value, _) in proposals.items()}
        values = dict.fromkeys(REGISTERS, 0) | values | dict(fixed)
        candidate = _with_registers(problem, Candidate(**values), fixed, arch)  # type: ignore[arg-type]
        d = derive(problem, candidate)
        held = f"O {d.output_registers} + S {d.score_registers} + P {d.probability_registers} registers a thread"
        reasons = {field: reason for field, (_, reason) in proposals.items()}
        groups = f"{loaders(problem, candidate)} + {CONSUMERS} warpgroups"
        reasons["consumer_registers"] = f"{held}; {groups} use up the register file"
        issues = "what one warp needs that issues bulk copies; the consumers get the rest"
        decodes = "what a thread needs that decodes the cache; the consumers get the rest"
        copies = "what a thread needs that copies rows; the consumers get the rest"
        by_rows = copies if problem.cache is None else decodes
        reasons["producer_registers"] = by_rows if problem.by_rows else issues
        yield Choice(candidate, reasons)


def _order(problem: MlaProblem, written: object) -> tuple[tuple[Any, str, int, str], ...]:
    variant, why, why_prefetch = FEW
    few = ((variant, why, int(problem.by_rows), why_prefetch),)
    if written == KEYS_ON_M:
        return few
    if not problem.by_rows:
        return BEST_FIRST
    if problem.cache is None:
        return COPYING_FIRST
    return (*few * (problem.sparse and problem.rows[1] <= FEW_MEASURED), *DECODING_FIRST)


def _unit(problem: MlaProblem, variant: str) -> tuple[int | str, str]:
    """Value and reason."""
    if variant == "seesaw_2cta":
        return MAX_UNIT, f"no half-used pairs of key blocks; single ones are quicker for {SINGLE_CALLS} alone"
    if problem.rows[0] > SINGLE_ROWS:
        return MAX_UNIT, f"single key blocks are quicker for {SINGLE_CALLS} alone, and every call has more rows"
    return ANY, f"single key blocks for {SINGLE_CALLS}, up to 11% quicker; pairs, none half used, for others"


def _split_columns(variant: str, max_splits: object) -> tuple[bool, str]:
    """Value and reason."""
    if variant == "seesaw_2cta":
        return False, "its two CTAs share the keys of two row blocks"
    if max_splits == 1:
        return False, "no request is cut, so there are no partial results to store and join in half the time"
    return True, "up to 30% quicker where requests are few and short; the device decides, as it knows their lengths"


def _ahead(problem: MlaProblem, fixed: Mapping[str, Any]) -> dict[str, tuple[bool, str]]:
    """What comes before the wait for the kernel in front, with reasons."""
    if not fixed.get("pdl_wait", PDL_WAIT):
        return dict.fromkeys(("pdl_schedule_ahead", "pdl_load_ahead"), (False, "pdl.wait is false"))
    gains = "0.99 to 1.07 in launches back to back, most where requests are few; "
    found = {
        "pdl_schedule_ahead": (True, gains + "checking lengths behind the wait costs up to 4%"),
        "pdl_load_ahead": (True, gains + "keys and table were there before, says pdl.ready"),
    }
    missing = [name for name in KEYS if name not in problem.ready]
    if missing:
        found["pdl_load_ahead"] = (
            False,
            f"pdl.ready does not name {', '.join(missing)}, which may be written by preceding kernels",
        )
    if problem.by_rows:
        does = "rows that indices name are loaded" if problem.cache is None else "keys of a quantised cache are decoded"
        found["pdl_load_ahead"] = False, f"{does} behind the wait"
    if not fixed.get("pdl_schedule_ahead", True):
        found["pdl_load_ahead"] = False, "pdl.schedule_ahead is false"
    return found


def _with_registers(problem: MlaProblem, c: Candidate, fixed: Mapping[str, Any], arch: Arch) -> Candidate:
    """Consumers get what producers leave, one of them being possibly written."""
    producer = fixed.get("producer_registers", row_registers(problem, c) if problem.by_rows else PRODUCER_REGISTERS)
    most = most_consumer_registers(arch, count_threads(problem, c), producer, CONSUMERS, loaders(problem, c))
    consumer = fixed.get("consumer_registers", max(most, SETMAXNREG_MIN))
    return replace(c, producer_registers=producer, consumer_registers=consumer)
