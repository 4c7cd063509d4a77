"""Every rule about an MLA decode's knobs, each one predicate. Validation, `auto`, `--why-not` and docs/rules.md use
these."""

from __future__ import annotations

from cutegen.arch.architecture import SETMAXNREG_STEP, Arch
from cutegen.diagnostics import Rule
from cutegen.families.mla_decode.candidate import (
    ANY,
    BOTH,
    JOIN_RATIO,
    KEYS_ON_M,
    MAX_UNIT,
    MOST_PIECES,
    PAIR,
    SINGLE_CALLS,
    SINGLE_ROWS,
    Candidate,
)
from cutegen.families.mla_decode.derived import (
    BLOCK_DECODER_REGISTERS,
    CONSUMERS,
    COPY_REGISTERS,
    DECODER_REGISTERS,
    EXTRA_DECODER_REGISTERS,
    FEW_ROWS,
    FEW_SCALES,
    count_threads,
    derive,
    loaders,
    row_registers,
)
from cutegen.families.mla_decode.problem import KEYS, MlaProblem
from cutegen.families.mla_decode.rule_book import BOOK
from cutegen.families.refusal import Objection, Refusal, kib
from cutegen.families.register_rules import (
    REGISTER_FILE,
    REGISTER_VALUES,
    check_file,
    check_value,
)
from cutegen.runtime.mla_decode.tiling import KEY_BLOCK, MAX_PARTS, ROW_BLOCK

# What a consumer thread needs beside O, S and P: descriptors, row statistics, loop state. With 8 fewer the compiler
# spills, in pairs of CTAs first.
OTHER_REGISTERS = 24

refusals = BOOK.refusals


@BOOK.declare_form(REGISTER_VALUES, "producer_registers", only="sm_90a")
def producer_registers(problem: MlaProblem, c: Candidate, arch: Arch) -> Objection | None:
    return check_value(arch, count_threads(problem, c), "producer", c.producer_registers)


@BOOK.declare_form(REGISTER_VALUES, "consumer_registers", only="sm_90a")
def consumer_registers(problem: MlaProblem, c: Candidate, arch: Arch) -> Objection | None:
    return check_value(arch, count_threads(problem, c), "consumer", c.consumer_registers)


@BOOK.declare_form(
    Rule(
        "row-block-pairs",
        f"for seesaw_2cta every promised heads and query_len makes an even number of {ROW_BLOCK}-row blocks",
        f"The rows of a request, query_len x heads, are cut into blocks of {ROW_BLOCK}, a CTA each. Two CTAs of a "
        "cluster work on two blocks of the same request; an odd block would need a partner that computes nothing.",
        "heads: [16, 128]\nvariant: seesaw_2cta",
    ),
    "variant",
    only="sm_90a",
)
def row_block_pairs(problem: MlaProblem, c: Candidate, arch: Arch) -> Objection | None:
    if c.variant == BOTH and problem.rows[1] <= ROW_BLOCK:
        return f"at most {problem.rows[1]} rows are promised: never two blocks of {ROW_BLOCK}", "use seesaw"
    if c.variant == BOTH and {-(-rows // ROW_BLOCK) for rows in problem.rows} == {3}:
        low, high = problem.rows
        return f"{low} to {high} rows are promised: always three blocks of {ROW_BLOCK}", "use seesaw"
    if c.cluster == 1:
        return None
    for heads in _promised(problem.heads):
        for query_len in _promised(problem.query_len):
            rows = heads * query_len
            blocks = -(-rows // ROW_BLOCK)
            if blocks % c.cluster:
                return (
                    f"heads {heads} x query_len {query_len} = {rows} rows = {blocks} block{'s' * (blocks > 1)} of "
                    f"{ROW_BLOCK}; {c.variant} needs a multiple of {c.cluster}",
                    "use seesaw, or promise other calls only, such as `heads: 128`",
                )
    return None


@BOOK.declare_form(
    Rule(
        "decoding-cta",
        "a quantised cache is decoded, and sparse keys are loaded, by each CTA for itself: variant seesaw",
        "seesaw_2cta shares loads by TMA multicast. Rows of a quantised cache pass through registers of the CTA that "
        "decodes them, and rows that indices name are copied by its threads.",
        "kv_cache: {latent: {dtype: e4m3, scale: {dtype: f32, block: 128}}, rope: {dtype: bf16}}\nvariant: both",
    ),
    "variant",
    only="sm_90a",
)
def decoding_cta(problem: MlaProblem, c: Candidate, arch: Arch) -> Objection | None:
    if not problem.by_rows or c.variant in ("seesaw", KEYS_ON_M):
        return None
    loaded = "keys of a quantised cache are decoded in registers" if problem.cache else "indices name rows"
    return f"{c.variant} shares loads by TMA; {loaded}", "use seesaw"


@BOOK.declare_form(
    Rule(
        "few-rows",
        f"keys_on_m promises at most {FEW_ROWS} rows to every call",
        "Keys are on M and rows on N of its products, which may be as few as 8; the sums of a warpgroup are "
        "then 256 columns of O^T for each row, in registers. Rows are query_len x heads, with sparse keys heads.",
        "heads: [16, 64]\nvariant: keys_on_m",
    ),
    "variant",
    only="sm_90a",
)
def few_rows_promised(problem: MlaProblem, c: Candidate, arch: Arch) -> Objection | None:
    if c.variant != KEYS_ON_M or problem.rows[1] <= FEW_ROWS:
        return None
    return f"up to {problem.rows[1]} rows are promised; it has at most {FEW_ROWS}", "use seesaw, or promise fewer heads"


def _promised(extent: tuple[int, int]) -> range:
    return range(extent[0], extent[1] + 1)


@BOOK.declare_form(
    Rule(
        "unit-any",
        f"scheduler.unit: {ANY} goes with seesaw or {BOTH} and promises at most {SINGLE_ROWS} rows to some call",
        "The package then has one kernel more, which cuts requests at single key blocks and runs calls with "
        f"{SINGLE_CALLS}; rows are query_len x heads. seesaw_2cta is one kernel, which has one unit.",
        "heads: 128\nquery_len: 4\nscheduler: {unit: any}",
    ),
    "unit",
    "variant",
    only="sm_90a",
)
def unit_any(problem: MlaProblem, c: Candidate, arch: Arch) -> Objection | None:
    if c.unit != ANY:
        return None
    if c.variant == "seesaw_2cta":
        return f"{c.variant} is one kernel, with one unit", "write unit 2 or 1, or `variant: both`"
    if problem.rows[0] > SINGLE_ROWS:
        return (
            f"every promised call has at least {problem.rows[0]} rows; single blocks are for at most {SINGLE_ROWS}",
            "use unit 2",
        )
    return None


@BOOK.declare_form(
    Rule(
        "split-columns",
        "scheduler.split_columns goes with one CTA for a row block, and with requests that may be cut",
        "Where requests are few and short, two CTAs then work on the same rows and keys, each with half of the columns "
        "of O. The two CTAs of seesaw_2cta work on two row blocks; and what it saves is the storing and joining of "
        "partial results, of which `split_kv: 1` has none.",
        "split_kv: 1\nscheduler: {split_columns: true}",
    ),
    "split_columns",
    "variant",
    "max_splits",
    only="sm_90a",
)
def split_columns(problem: MlaProblem, c: Candidate, arch: Arch) -> Objection | None:
    if not c.split_columns:
        return None
    if c.variant == "seesaw_2cta":
        return "the two CTAs of seesaw_2cta work on two row blocks", "use seesaw, or leave it `auto`"
    if c.max_splits == 1:
        return "split_kv is 1: no request is cut, and nothing is joined", "write false, or leave it `auto`"
    return None


INVARIANT_CUT = Rule(
    "invariant-cut",
    "with `invariance: batch` requests are cut at pairs of key blocks, into a number of parts that has a bound, and no "
    "two CTAs share columns",
    "A request is cut by its own length alone, so that its bits depend on no other request, and not on how many SMs "
    "there are. Single key blocks and shared columns are for calls of few requests, and would be another cut, or other "
    "partial results; and each part has a place in the workspace.",
    "invariance: batch\nscheduler: {unit: 1}",
)
OR_DROP = "or drop `invariance: batch`"


@BOOK.declare_form(INVARIANT_CUT, "unit")
def invariant_unit(problem: MlaProblem, c: Candidate, arch: Arch) -> Objection | None:
    if not problem.piece or c.unit == MAX_UNIT:
        return None
    return f"requests are cut at units of {MAX_UNIT} key blocks, whatever the batch", f"use unit {MAX_UNIT}, {OR_DROP}"


@BOOK.declare_form(INVARIANT_CUT, "split_columns")
def invariant_columns(problem: MlaProblem, c: Candidate, arch: Arch) -> Objection | None:
    if not problem.piece or not c.split_columns:
        return None
    return "whether two CTAs share columns would depend on the batch", f"write false, {OR_DROP}"


@BOOK.declare_form(INVARIANT_CUT, "max_splits")
def invariant_parts(problem: MlaProblem, c: Candidate, arch: Arch) -> Objection | None:
    if not problem.piece or (c.max_splits != ANY and int(c.max_splits) <= MAX_PARTS):
        return None
    most = f"at most {MAX_PARTS}" if c.max_splits != ANY else f"{MOST_PIECES}"
    return "each part of a request has a place in the workspace, and is counted", f"use {most}, {OR_DROP}"


@BOOK.declare_form(INVARIANT_CUT, "join_ratio")
def invariant_join_ratio(problem: MlaProblem, c: Candidate, arch: Arch) -> Objection | None:
    if not problem.piece or c.join_ratio == JOIN_RATIO:
        return None
    reason = "requests are cut by their own lengths alone, and join_ratio bounds nothing"
    return reason, f"write `split_kv: {{keys: {problem.piece}}}` for parts of so many keys, {OR_DROP}"


def other_cut(problem: MlaProblem, default: Candidate, c: Candidate) -> Refusal | None:
    """What refuses a kernel other than the default of its spec: it cuts requests into another number of parts."""
    if not problem.piece or c.max_splits == default.max_splits:
        return None
    reason = f"split_kv.max = {c.max_splits}, but the default's is {default.max_splits}, and one batch has one cut"
    return Refusal(INVARIANT_CUT.id, ("max_splits",), reason, f"use {default.max_splits}, {OR_DROP}", None, form=False)


@BOOK.declare_form(
    Rule(
        "schedule-ahead",
        "parts are found ahead of the wait only if there is a wait",
        "Without `pdl.wait` a kernel starts when the preceding one has ended, and there is nothing to be ahead of. No "
        "promise is needed: a part that is found ahead is a guess, and behind the wait lengths are looked at again.",
        "pdl: {wait: false, schedule_ahead: true}",
    ),
    "pdl_schedule_ahead",
    "pdl_wait",
)
def schedule_ahead(problem: MlaProblem, c: Candidate, arch: Arch) -> Objection | None:
    if not c.pdl_schedule_ahead or c.pdl_wait:
        return None
    return (
        "pdl.wait is false: there is no wait to find parts before",
        "write `pdl: {wait: true}`, or drop schedule_ahead",
    )


@BOOK.declare_form(
    Rule(
        "keys-ahead",
        "keys are loaded before the wait only if they were written before the preceding kernel could start",
        "`pdl: {ready: [block_table, kv_cache]}` promises that of the table and of all keys but the new tokens; no "
        "lock and no tuner assumes it. Which keys are loaded first, a CTA knows when it has found its part.",
        "pdl: {load_ahead: true}",
    ),
    "pdl_load_ahead",
    "pdl_schedule_ahead",
    "pdl_wait",
)
def load_ahead(problem: MlaProblem, c: Candidate, arch: Arch) -> Objection | None:
    if not c.pdl_load_ahead:
        return None
    if problem.by_rows:
        does = "keys of a quantised cache are decoded" if problem.cache else "rows that indices name are loaded"
        return f"{does} behind the wait", "drop load_ahead"
    missing = [name for name in KEYS if name not in problem.ready]
    if missing:
        names, written = " and ".join(f"`{name}`" for name in missing), ["wait: true"] * (not c.pdl_wait)
        written.append(f"ready: [{', '.join(KEYS)}]")
        return (
            f"pdl.ready does not name {names}, which may be written by preceding kernels",
            f"write `pdl: {{{', '.join(written)}}}` if it holds, or drop load_ahead",
        )
    if not c.pdl_wait:
        return (
            "pdl.wait is false: there is no wait to load keys before",
            "write `pdl: {wait: true}`, or drop load_ahead",
        )
    if not c.pdl_schedule_ahead:
        return "pdl.schedule_ahead is false: the first keys are known after the wait", "leave both `auto`"
    return None


@BOOK.declare_fit(REGISTER_FILE, "consumer_registers", "producer_registers", only="sm_90a")
def register_file(problem: MlaProblem, c: Candidate, arch: Arch) -> Objection | None:
    threads, producers = count_threads(problem, c), loaders(problem, c)
    return check_file(arch, threads, c.producer_registers, CONSUMERS, c.consumer_registers, producers)


@BOOK.declare_fit(
    Rule(
        "attention-registers",
        f"a consumer thread has {OTHER_REGISTERS} registers in addition to O, S and P",
        f"A consumer warpgroup holds {ROW_BLOCK} rows x 256 columns of O, the scores S of one {ROW_BLOCK} x "
        f"{KEY_BLOCK} block and its P in 16 bits. Descriptors, row statistics and loop state need the rest; with less, "
        "the compiler spills.",
        "warpgroups: {consumer: {registers: 192}}",
    ),
    "consumer_registers",
    only="sm_90a",
)
def attention_registers(problem: MlaProblem, c: Candidate, arch: Arch) -> Objection | None:
    d = derive(problem, c)
    held = d.output_registers + d.score_registers + d.probability_registers
    if held + OTHER_REGISTERS <= c.consumer_registers:
        return None
    least = -(-(held + OTHER_REGISTERS) // SETMAXNREG_STEP) * SETMAXNREG_STEP
    return (
        f"O {d.output_registers} + S {d.score_registers} + P {d.probability_registers} = {held} registers a thread, "
        f"{c.consumer_registers} leave {c.consumer_registers - held} of {OTHER_REGISTERS} for the rest",
        f"use at least {least}, or leave it `auto`",
    )


@BOOK.declare_fit(
    Rule(
        "decoder-registers",
        f"a warpgroup that decodes a quantised cache has {DECODER_REGISTERS} registers a thread, of two caches or of "
        f"rows with more than {FEW_SCALES} scales in f32 {EXTRA_DECODER_REGISTERS}, each of the two of keys_on_m "
        f"{BLOCK_DECODER_REGISTERS}, one that copies rows "
        f"which indices name {COPY_REGISTERS}",
        "A decoder holds the 16-byte chunks of its rows that are under way, their scales and the values of one chunk; "
        "copies pass by the registers, but for addresses. With less, the compiler spills.",
        "warpgroups: {producer: {registers: 40}}",
    ),
    "producer_registers",
    only="sm_90a",
)
def decoder_registers(problem: MlaProblem, c: Candidate, arch: Arch) -> Objection | None:
    if not problem.by_rows or c.producer_registers >= (needed := row_registers(problem, c)):
        return None
    does = "copies rows of" if problem.cache is None else "decodes"
    reason = f"the warpgroup that {does} the cache has {c.producer_registers} registers, it needs {needed}"
    return reason, f"use at least {needed}, or leave it `auto`"


@BOOK.declare_fit(
    Rule(
        "smem-tiles",
        "Q, two blocks of K and the barriers fit the shared memory of a CTA",
        f"Q is {ROW_BLOCK} rows x 576, each of the two K buffers {KEY_BLOCK} keys x 576; V is a part of K, and P takes "
        "the place of the rotary part, or 8 KiB of its own where rows have 512 values. `cutegen explain SPEC` draws "
        "the map.",
    ),
    "variant",
)
def smem_tiles(problem: MlaProblem, c: Candidate, arch: Arch) -> Objection | None:
    d = derive(problem, c)
    if c.variant == PAIR or d.smem_bytes <= arch.smem_bytes:  # the ring of a pair takes what there is
        return None
    buffers = ", ".join(f"{region.name} {kib(region.bytes)}" for region in d.smem[-2:])
    return f"{buffers} and the rest are {kib(d.smem_bytes)}, {arch.name} has {kib(arch.smem_bytes)}", "use sm_90a"
