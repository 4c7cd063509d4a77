"""The faults that tests have to find: mutants.py has what is done with them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

RULES = ("tests/unit/test_gemm_rules.py", "tests/golden/test_rule_findings.py")
COSTS = ("tests/unit/test_cost_model.py", "tests/golden/test_picks.py")
CONTRACT = ("tests/unit/test_build_contract.py",)
CALLS = ("tests/unit/test_calls.py", "tests/unit/test_plan.py", "tests/unit/test_columns.py")
MACHINE = "tests/dsl/test_ptx_machine_"
WORK, GATHER, MLA = f"{MACHINE}work.py", f"{MACHINE}gather.py", f"{MACHINE}mla.py"
SPARSE = f"{MACHINE}sparse.py"
DECODED, DEQUANT = f"{MACHINE}decoder.py", f"{MACHINE}dequant.py"
DYNAMIC = f"{WORK}::test_tiles_are_handed_out_dynamically"
PARTS = f"{WORK}::test_parts_of_k_become_one_sum"
ROWS = f"{GATHER}::test_rows_are_those_that_the_index_names"
CLUSTER_SUM = f"{MACHINE}cluster_sum.py"
FORM = "cutegen/families/gemm/form_rules.py"
BUDGET = "cutegen/families/gemm/budget_rules.py"
LOADS = "cutegen/families/gemm/load_rules.py"
COST = "cutegen/runtime/gemm/cost_model.py"
CHECKS = "cutegen/build/contract.py"
ARGUMENTS, FAULTS = "cutegen/runtime/arguments.py", "cutegen/runtime/call_faults.py"
GEMM, DECODE, DEVICE = "templates/gemm/sm90", "templates/mla_decode/sm90", "cutegen/device"
FENCE = 'cute.arch.fence_proxy("async.shared", space="cta")'
IN_CODE, IN_KERNELS = "rules, cost model, contract, arguments", "generated kernels"


class Mutant(NamedTuple):
    """One fault: `old`, which `file` has once, becomes `new`. tests: that should fail then, as pytest names them.
    unseen: why no test fails, where none does."""

    name: str
    part: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]
    unseen: str = ""


def in_code(tests: Sequence[str], *faults: tuple[str, str, str, str]) -> list[Mutant]:
    return [Mutant(name, IN_CODE, file, old, new, tuple(tests)) for name, file, old, new in faults]


def in_kernel(name: str, file: str, old: str, new: str, *tests: str, unseen: str = "") -> Mutant:
    return Mutant(name, IN_KERNELS, file, old, new, tests, unseen)


MUTANTS = (
    *in_code(
        RULES,
        ("the tallest tile is refused", FORM, "m <= MAX_TILE_M):", "m < MAX_TILE_M):"),
        ("17 stages are accepted", FORM, "c.stages <= MAX_STAGES:", "c.stages <= MAX_STAGES + 1:"),
        ("pairs in steps of 8", FORM, '!= "n" or n % step == 0', '!= "n" or n % (step // 2) == 0'),
        ("8 registers less for the rest", BUDGET, "OTHER_REGISTERS = 32\n", "OTHER_REGISTERS = 24\n"),
        ("an MMA that does not fit", BUDGET, "MMA_REGISTERS = 26", "MMA_REGISTERS = 22"),
        ("1 KiB more than the CTA has", BUDGET, "if size <= arch.smem_bytes:", "if size <= arch.smem_bytes + 1024:"),
        (
            "the whole register file is refused",
            "cutegen/families/register_rules.py",
            "if used <= pool:",
            "if used < pool:",
        ),
        ("clusters of 8", LOADS, "m * n <= MAX_CLUSTER", "m * n <= 2 * MAX_CLUSTER"),
        ("slices of half an atom", LOADS, "extent % (peers * step) == 0", "extent % step == 0"),
        (
            "a part without a k tile",
            "cutegen/families/gemm/features/split_k/rules.py",
            "c.split_k * tile_k < k + tile_k",
            "c.split_k * tile_k <= k + tile_k",
        ),
    ),
    *in_code(
        COSTS,
        (
            "multicast counts for the other operand",
            COST,
            "inside_m // cluster_n + inside_n // cluster_m",
            "inside_m // cluster_m + inside_n // cluster_n",
        ),
        ("a faster ring", COST, "ring_clocks: int = 1800", "ring_clocks: int = 1700"),
        ("part of a cluster runs", COST, "percent // 100 // size * size", "percent // 100"),
        ("a wave too many", COST, "waves = full + (last > 0)", "waves = full + 1"),
        (
            "the first part waits as well",
            COST,
            "return (i.split_k - 1) * (c.split_clocks",
            "return i.split_k * (c.split_clocks",
        ),
    ),
    *in_code(
        CONTRACT,
        ("any CTA size", CHECKS, "facts.threads == (plan.threads, 1, 1),", "facts.threads is not None,"),
        ("any number of MMAs", CHECKS, "count > 0 and count % mma.step == 0", "count > 0"),
        (
            "waits may be missing",
            CHECKS,
            "found == planned, meaning)\n\n\ndef _present",
            "found <= planned, meaning)\n\n\ndef _present",
        ),
        (
            "spilled loads are fine",
            CHECKS,
            "or facts.spill_store_bytes or facts.spill_load_bytes)",
            "or facts.spill_store_bytes)",
        ),
        (
            "mbarriers may be too many",
            CHECKS,
            "found == plan.mbarriers, meaning)",
            "found >= plan.mbarriers, meaning)",
        ),
    ),
    *in_code(
        CALLS,
        (
            "the stride of two rows is not looked at",
            FAULTS,
            "elif extent > 1 and (stride",
            "elif extent > 2 and (stride",
        ),
        ("half the alignment", FAULTS, "value.data_ptr() % arg.align:", "value.data_ptr() % (arg.align // 2):"),
        ("the greatest extent is refused", ARGUMENTS, "(hi is None or value <= hi):", "(hi is None or value < hi):"),
        ("a part one too long", FAULTS, "- known <= slack(dim):", "- known <= slack(dim) + divisor:"),
        ("half the multiple", FAULTS, "if extent % arg.multiple:", "if extent % max(arg.multiple // 2, 1):"),
    ),
    in_kernel(
        "a stage is released while MMAs read it",
        f"{GEMM}/accumulate.py.jinja",
        "            warpgroup.wait_group(1)\n",
        "            warpgroup.wait_group(2)\n",
        f"{MACHINE}gemm.py::test_shipped_gemm_over_several_tiles_per_cta[gemm_bf16_sm90a]",
    ),
    in_kernel(
        "the last stage of a tile is never released",
        f"{GEMM}/accumulate.py.jinja",
        "        warpgroup.wait_group(0)\n        p.ab_pipeline.consumer_release(release)\n",
        "        warpgroup.wait_group(0)\n",
        DYNAMIC,
    ),
    in_kernel(
        "a tile adds to the one before",
        f"{GEMM}/accumulate.py.jinja",
        "ACCUMULATE, False)  # the first",
        "ACCUMULATE, True)  # the first",
        DYNAMIC,
    ),
    in_kernel(
        "no fence between gathered rows and their MMAs",
        f"{GEMM}/accumulate.py.jinja",
        f"\n        {FENCE}  # rows came",
        "\n        # rows came",
        f"{ROWS}[plain-0]",
    ),
    in_kernel(
        "a warpgroup gives the turn to itself",
        f"{GEMM}/accumulate.py.jinja",
        "barrier_id=TURN + 1 - group",
        "barrier_id=TURN + group",
        DYNAMIC,
    ),
    in_kernel(
        "no fence before a store by TMA",
        f"{GEMM}/stage.py.jinja",
        f"{{% if k.outputs.by_tma %}}\n            {FENCE}\n",
        "{% if k.outputs.by_tma %}\n",
        DYNAMIC,
    ),
    in_kernel(
        "a store more in flight than slots allow",
        f"{GEMM}/stage.py.jinja",
        "t.store_stages - 2, read=True",
        "t.store_stages - 1, read=True",
        DYNAMIC,
    ),
    in_kernel(
        "the ring of stores turns a slot early",
        f"{GEMM}/stage.py.jinja",
        "if slot == t.store_stages:",
        "if slot == t.store_stages - 1:",
        DYNAMIC,
    ),
    in_kernel(
        "subtiles of a column go to one box",
        f"{GEMM}/stage.py.jinja",
        "n * subtiles_n + subtile_n{{",
        "n * subtiles_n{{",
        DYNAMIC,
    ),
    in_kernel(
        "no fence before a slot of loaded tiles is given back",
        f"{GEMM}/read_tiles.py.jinja",
        f"\n            # The slot is next written through the async proxy.\n            {FENCE}\n",
        "\n",
        DYNAMIC,
        f"{ROWS}[scales_by_one_warp_and_offsets-0]",
        unseen="the machine asks for a fence after writes, and this one stands between reads and the next write by TMA",
    ),
    in_kernel(
        "copies of gathered rows do not arrive",
        f"{GEMM}/gather.py.jinja",
        "cute.arch.cp_async_mbarrier_arrive_noinc(p.ab_pipeline.producer_get_barrier(state))",
        "pass",
        f"{ROWS}[plain-0]",
    ),
    in_kernel(
        "a row behind the last is gathered",
        f"{DEVICE}/gemm/row_gather.py",
        "or row >= extent:",
        "or row > extent:",
        f"{GATHER}::test_the_first_row_that_is_not_there_is_zero",
    ),
    in_kernel(
        "the last part waits for one part less",
        f"{DEVICE}/gemm/k_split.py",
        "_wait(counter, split.parts - 1)",
        "_wait(counter, split.parts - 2)",
        PARTS,
    ),
    in_kernel(
        "a part is signalled before all threads have written it",
        f"{DEVICE}/gemm/k_split.py",
        '    """Tells the parts that wait that all of this group\'s values are written."""\n'
        "    cute.arch.barrier(barrier_id=barrier, number_of_threads=threads)\n",
        "",
        PARTS,
    ),
    in_kernel(
        "two parts have the same k tile",
        f"{DEVICE}/gemm/k_split.py",
        "Int32(1) if part < longer else Int32(0)",
        "Int32(1) if part <= longer else Int32(0)",
        PARTS,
        "tests/property/test_k_split.py",
    ),
    in_kernel(
        "the scheduler does not wait for the second tile's beginning",
        f"{DEVICE}/gemm/tile_queue.py",
        "                begun = begun ^ 1\n",
        "",
        DYNAMIC,
        unseen="tiles are claimed ahead of their turn, as far as the ring holds them: results are the same",
    ),
    in_kernel(
        "the wrong parity of sums in a cluster",
        f"{DEVICE}/cluster_sum.py",
        "    there = _has_completed(barrier.toint(), turn % 2)\n    while",
        "    there = _has_completed(barrier.toint(), (turn + 1) % 2)\n    while",
        CLUSTER_SUM,
    ),
    in_kernel(
        "the second buffer's parity after single blocks",
        f"{DECODE}/load.py.jinja",
        "phase ^ (skew * buffer) ^ 1",
        "phase ^ 1",
        MLA,
    ),
    in_kernel(
        "no fence before the other warpgroup multiplies P",
        f"{DECODE}/softmax.py.jinja",
        f"        {FENCE}\n        cute.arch.barrier_arrive(",
        "        cute.arch.barrier_arrive(",
        MLA,
    ),
    in_kernel(
        "a token does not see itself",
        f"{DECODE}/softmax.py.jinja",
        "length - (args.query_len - 1) + token",
        "length - args.query_len + token",
        MLA,
    ),
    in_kernel(
        "a key behind the last is not cleared",
        f"{DECODE}/softmax.py.jinja",
        "cutlass.range(valid + thread // abreast",
        "cutlass.range(valid + 1 + thread // abreast",
        MLA,
    ),
    in_kernel(
        "no fence behind decoded keys",
        f"{DECODE}/decode.py.jinja",
        f"                        {FENCE}\n",
        "",
        DECODED,
    ),
    in_kernel(
        "the cache's bytes behind the last key are decoded",
        f"{DECODE}/fetch.py.jinja",
        "page < args.page_count and entry >= 0 and key < stop\n",
        "page < args.page_count and entry >= 0 and key < stop + 1\n",
        DECODED,
    ),
    in_kernel(
        "decoded single blocks keep the parity",
        f"{DECODE}/decode.py.jinja",
        "phase, skew = phase ^ 1, skew ^ 1",
        "phase = phase ^ 1",
        DECODED,
    ),
    in_kernel(
        "keys of a cache with one scale are scaled, and values are not",
        f"{DECODE}/store.py.jinja",
        "            scale[r] = scale[r] * args.kv_scale\n",
        "",
        DECODED,
    ),
    in_kernel(
        "the sign of a decoded byte is lost",
        f"{DEVICE}/dequant.py",
        "(pair << 4) & Int32(PLACES)",
        "(pair << 4) & Int32(0x07F007F0)",
        DEQUANT,
    ),
    in_kernel(
        "skipped slots keep the parity",
        f"{DEVICE}/pipeline_state.py",
        "state.phase ^ (turns & 1)",
        "state.phase",
        DYNAMIC,
    ),
    in_kernel(
        "an index behind the cache's rows names one",
        f"{DECODE}/find.py.jinja",
        'return row if row >= 0 and {{ k.page_of("row") }} < args.page_count',
        "return row if row >= 0",
        SPARSE,
    ),
    in_kernel(
        "the index behind a token's length counts",
        f"{DECODE}/find.py.jinja",
        "{% else %}\n        if key < stop:\n",
        "{% else %}\n        if key < stop + 1:\n",
        SPARSE,
    ),
    in_kernel(
        "no fence behind copies of rows",
        f"{DECODE}/products.py.jinja",
        f"        {FENCE}  # threads have written the tile\n",
        "",
        SPARSE,
    ),
    in_kernel(
        "a sink weighs in each part of a cut request",
        f"{DECODE}/store.py.jinja",
        "if not shared and at < rows:",
        "if at < rows:",
        SPARSE,
    ),
)
