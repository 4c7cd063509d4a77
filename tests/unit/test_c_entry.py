"""The C entry of bundles: what it picks is what the plan picks, which needs a C compiler and no GPU."""

from __future__ import annotations

import ctypes
import json
import random
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from c_library import SPECS, Library, draw_problem, is_tensor, make_library, read_call
from c_structs import H100, H200, PCIE, SILENT, Call, Device, compiled, device, fill_values
from golden_picks import FILE, UNKNOWN, read_sets

from cutegen.build.c_translation import Translation
from cutegen.build.cpu import find_c_compiler
from cutegen.build.entries import DTYPES
from cutegen.build.entry_code import DECLARATIONS
from cutegen.families.c_entry import WINNERS
from cutegen.families.gemm.gemm_entry import dispatch_code, product_tables
from cutegen.runtime.arguments import ScalarArg, TensorArg, allocate, complete_dims
from cutegen.runtime.device_rates import find_rates

pytestmark = pytest.mark.skipif(find_c_compiler() is None, reason="there is no C compiler")
ROOT = Path(__file__).parents[2]
DEVICES = (H200, H100, PCIE, UNKNOWN, SILENT)


def test_c_reproduces_the_golden_picks(tmp_path: Path) -> None:
    data = json.loads(FILE.read_text(encoding="utf-8"))
    translation, tables = Translation(), []
    for number, (portfolio, tilings) in enumerate(read_sets(data)):
        plan = SimpleNamespace(portfolio=portfolio, tilings=tilings, winners={}, arch="sm_90a", least_sms=lambda key: 1)
        tables.append(product_tables(plan, tuple(tilings), translation).replace("ENTRY", str(number)))
    ranking = dispatch_code(translation)
    code = f"""
#include <stdint.h>
#include <string.h>
#include <strings.h>
{DECLARATIONS}
static int fail(const char *format, ...) {{ return -1; }}
{translation.source()}
{WINNERS}
{ranking}
{"".join(tables)}
static const product *const sets[] = {{{", ".join(f"&product_{i}" for i in range(len(tables)))}}};
__attribute__((visibility("default")))
int32_t pick(
    int32_t set, const BUNDLE_device *device, int64_t m, int64_t n, int64_t k, int64_t batch, int64_t *clocks) {{
  const num point[4] = {{0}};
  const product *p = sets[set];
  int key = pick_product(p, device, 0, point, m, n, k, batch);
  Rates rates;
  find_rates(device, p->arch, &rates);
  Work work = do_describe_work(p->form, &rates, m, n, k, batch);
  Spent spent = do_spend(&p->instances[key], p->form, &work, &rates, p->constants);
  *clocks = spent.clocks;
  return key;
}}
"""
    pick = compiled(tmp_path, code, []).pick
    pick.argtypes = [ctypes.c_int32, ctypes.POINTER(Device), *[ctypes.c_int64] * 4, ctypes.POINTER(ctypes.c_int64)]
    devices = [device({"h200": H200, "h100": H100, "scaled": UNKNOWN}[name]) for name in data["rates"]]
    clocks, wrong = ctypes.c_int64(), []
    for number, which, *extents, best, expected in data["picks"]:
        found = pick(number, ctypes.byref(devices[which]), *extents, ctypes.byref(clocks))
        if (found, clocks.value) != (best, expected):
            wrong.append((number, which, extents, found, clocks.value))
    assert len(data["picks"]) == 10_000
    assert wrong[:3] == []


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Library:
    pytest.importorskip("tvm_ffi")
    return make_library(tmp_path_factory.mktemp("entries"))


BUDGETS = (0, 1, 2, 3, 8, 60, 131, 132)


def whole(size: int) -> int:
    return -(-size // 256) * 256


GEMMS = [name for name in SPECS if "gemm" in name and "sm90" in name]


@pytest.mark.parametrize("name", GEMMS)
def test_a_product_runs_what_the_plan_would_run(name: str, library: Library, monkeypatch: pytest.MonkeyPatch) -> None:
    """On devices with and without winners, and within any number of SMs; scratch included."""
    plan, rng = library.plans[name], random.Random(name)
    monkeypatch.setattr("cutegen.runtime.measured._device_name", lambda index: DEVICES[index].name)
    plan._winners.clear()
    for index, facts in enumerate(DEVICES):
        monkeypatch.setitem(plan._rates, index, find_rates(facts, plan.arch)[0])
    m, n, k, batch = plan.roles
    points = [(p, last) for table in plan.winners.values() for p, rows in table.items() for last, _ in rows]
    seen = set()
    for number in range(300):
        dims = draw_problem(rng, plan)
        if points and number % 2:
            point, last = rng.choice(points)
            dims |= dict(zip((*batch, n, k), point)) | {m: max(1, last + rng.choice((-1, 0, 1)))}
        index, sms = rng.randrange(len(DEVICES)), rng.choice(BUDGETS)
        count = min(sms, DEVICES[index].multi_processor_count) or DEVICES[index].multi_processor_count
        values, where = library.fill(name, dims), device(DEVICES[index])
        expected = plan._pick((index, sms or None, *plan._extents_of(complete_dims(plan.dims, dims))))
        found = library.pick(name, where, sms, values)
        if plan.least_sms(expected) > count:
            assert "sms is" in found
            continue
        assert found == expected, (dims, index, sms)
        seen.add(expected)
        sizes = plan._size_scratch(complete_dims(plan.dims, dims), expected)
        needed = [0, 0]
        for arg, size in zip(plan.scratch, sizes):
            needed[arg.zeroed] += whole(size * DTYPES[arg.dtype][1] // 8)
        assert library.scratch(name, where, sms, values) == needed
    assert len(seen) > 4
    plan._winners.clear()


MLA = "mla_decode_bf16_mtp_sm90a"


@pytest.mark.parametrize(("name", "width"), [(MLA, "max_pages"), ("mla_sparse_v32_sm90a", "topk")])
def test_mla_decode_runs_what_the_plan_would_run(
    name: str, width: str, library: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan, rng, where = library.plans[name], random.Random(5), device(H200)
    monkeypatch.setattr("cutegen.runtime.measured._device_name", lambda index: H200.name)
    plan._winners.clear()
    seen = set()
    for _ in range(200):
        batch, heads, entries = (
            rng.choice((1, 2, 4, 8, 16, 64, 200)),
            rng.choice((16, 32, 64, 128)),
            rng.randint(1, 600),
        )
        query_len, entries, sms = 2, rng.randint(1, 600), rng.choice((0, 4, 60, 132))
        extents = {"batch": batch, "query_len": query_len, "heads": heads, "pages": 9000, width: entries}
        values = library.fill(name, extents)
        key = plan.choose(0, batch, query_len, heads, entries)
        assert library.pick(name, where, sms, values) == key
        _, workspace, counters = plan.size(sms or 132, key, *reversed(plan.work(batch, query_len, heads)))
        assert library.scratch(name, where, sms, values) == [whole(workspace * 4), whole(counters * 4)]
        seen.add(key)
    assert seen == set(plan.tilings)
    plan._winners.clear()


def test_a_measured_winner_comes_first(library: Library) -> None:
    """On the device that it was measured on, up to its last extent."""
    name = GEMMS[0]
    plan = library.plans[name]
    m, n, k, _ = plan.roles
    table = plan.winners[H200.name]
    rows = [(point, last, key) for point, rows in table.items() for last, key in rows if key]
    elsewhere = 0
    for point, last, key in rows:
        values = library.fill(name, {m: last, n: point[0], k: point[1]})
        assert library.pick(name, device(H200), 0, values) == key
        elsewhere += library.pick(name, device(H100), 0, values) != key
    assert rows
    assert elsewhere


@pytest.mark.parametrize(
    ("name", "dims", "where", "sms", "said"),
    [
        (GEMMS[0], {"m": 8, "n": 8, "k": 0}, H200, 0, "k is 0, and such a call is not computed"),
        (GEMMS[0], {"m": 8, "n": 2**31, "k": 8}, H200, 0, "n is 2147483648, and it is from 1 to 2147483647"),
        (GEMMS[0], {"m": -1, "n": 8, "k": 8}, H200, 0, "m is -1, and it is from 1"),
        (GEMMS[0], {"m": 0, "n": 8, "k": 8}, H200, 0, "an extent is 0, and no tiling runs the call"),
        (GEMMS[0], {"m": 8, "n": 8, "k": 8}, H200, -3, "sms is -3; pass at least"),
        ("gemm_bf16_swiglu_sm90a", {"m": 8, "n": 9, "k": 8}, H200, 0, "n is 9, and it is a multiple of 2"),
        (MLA, {"batch": 1, "heads": 8, "pages": 1, "max_pages": 1}, H200, 0, "heads is 8, and it is from 16 to 128"),
    ],
)
def test_what_is_wrong_with_a_call(
    name: str, dims: dict[str, int], where: Any, sms: int, said: str, library: Library
) -> None:
    assert said in library.pick(name, device(where), sms, library.fill(name, dims))


def test_another_architecture_is_refused(library: Library) -> None:
    values = library.fill(GEMMS[0], {"m": 8, "n": 8, "k": 8})
    said = "(NVIDIA H200) is of compute capability 10.0, and the kernel was built for 9.0"
    assert said in library.pick(GEMMS[0], device(H200, major=10), 0, values)


def test_a_launch_looks_at_its_arguments_first(library: Library) -> None:
    """That a kernel is not in the bundle is found last but for pointers."""
    where = device(H200)
    call = Call(ctypes.pointer(where))

    def refused(name: str, **fields: Any) -> str:
        values = library.fill(name, dict.fromkeys(library.plans[name].dims, 64))
        for field, value in fields.items():
            setattr(values, field, value)
        code = getattr(library.functions, f"all_run_{name}")(ctypes.byref(call), ctypes.byref(values))
        return "" if code == 0 else library.error()

    key = library.pick(GEMMS[0], where, 0, library.fill(GEMMS[0], {"m": 64, "n": 64, "k": 64}))
    assert refused(GEMMS[0]) == (
        f"{GEMMS[0]}: the kernel of tiling {key} is not in the bundle; `cutegen bundle` adds it"
    )
    assert refused(GEMMS[0], m=0) == ""
    # A reduction over no rows is a value that somebody has to write.
    assert "an extent is 0: fill the outputs" in refused("gemm_bf16_rms_sm90a", m=0)
    pages = {"pages": 4, "max_pages": 4}
    assert "softmax_scale is 0" in refused(MLA, **pages)
    said = "q_strides[1] is not heads * q_strides[2]"
    assert said in refused(MLA, softmax_scale=0.1, q_strides=(ctypes.c_int64 * 4)(1, 1, 1, 1), **pages)


EXTENTS = {
    "gemm_bf16_swiglu_sm90a": {"m": 40, "n": 512, "k": 8192},
    "gemm_bf16_batched_sm90a": {"m": 40, "n": 512, "k": 8192, "batch": 3},
    "gemm_bf16_rms_sm90a": {"m": 300, "n": 512, "k": 1024},
    "grouped_gemm_e4m3_block128_sm90a": {"m": 256, "n": 512, "k": 1024, "g": 4},
    "add_rmsnorm_quant_e4m3_sm90a": {"m": 33, "n": 1024},
    "layernorm_backward_bf16_sm90a": {"m": 5000, "n": 256},
    MLA: {"batch": 3, "query_len": 2, "heads": 64, "pages": 40, "max_pages": 20},
    "mla_decode_e4m3_sm90a": {"batch": 3, "query_len": 1, "heads": 64, "pages": 40, "max_pages": 20},
    "gemm_nvfp4_sm100a": {"m": 200, "n": 512, "k": 1024},
    "mla_sparse_v32_sm90a": {"batch": 3, "query_len": 2, "heads": 64, "pages": 40, "topk": 256},
}


@pytest.mark.parametrize("name", EXTENTS)
def test_kernels_get_what_the_plan_would_pass(name: str, library: Library) -> None:
    """Tensors as they lie, scratch of the sizes that the plan asks for, then SMs, or for MLA its scale and parts."""
    torch = pytest.importorskip("torch")
    plan = library.plans[name]
    where = device(H200, major=10 if "sm100" in name else 9)
    dims = {d: e for d, e in getattr(plan, "extents", plan.dims).items() if isinstance(e, int)} | EXTENTS[name]
    args = (*plan.inputs, *plan.fresh_outputs)
    values = [0.25 if isinstance(a, ScalarArg) else allocate(a, dims, "cpu") for a in args]
    passed = fill_values(library.types[name], args, values)
    key = library.pick(name, where, 100, passed)
    held = library.scratch(name, where, 100, passed)
    room = [torch.empty(size + 256, dtype=torch.uint8) for size in held]
    workspace, zeroed = (-(-tensor.data_ptr() // 256) * 256 for tensor in room)
    call = Call(ctypes.pointer(where), None, 100, 0, workspace, held[0], zeroed, held[1])
    assert getattr(library.functions, f"all_run_{name}")(ctypes.byref(call), ctypes.byref(passed)) == 0, library.error()
    told, floats = read_call(library)
    scaled_last = name.startswith("mla")
    given = [(a, v) for a, v in zip(args, values) if hasattr(v, "data_ptr") or not scaled_last]
    for i, ((arg, value), row) in enumerate(zip(given, told)):
        if isinstance(arg, ScalarArg):
            assert (row[0], floats[i]) == (3, value)
        else:
            assert is_tensor(row, value), arg.name
    rest = told[len(given) :]
    if scaled_last:
        parts, *sizes = plan.size(100, key, *reversed(plan.work(dims["batch"], dims["query_len"], dims["heads"])))
        assert [row[5] for row in rest[:2]] == sizes
        assert [row[1] for row in rest[:2]] == [workspace, zeroed]
        assert (rest[2][0], floats[len(given) + 2]) == (3, 0.25)
        assert rest[3][:2] == [1, parts]
        assert len(rest) == 4
        return
    sizes = ()
    if plan.scratch:
        rowwise = plan.family == "rowwise"
        sizes = plan.scratch_sizes(key, dims["m"], dims["n"], 100) if rowwise else plan._size_scratch(dims, key)
    assert [row[5] for row in rest[:-1]] == [size for size in sizes if size]
    assert rest[-1][:2] == [1, 100]
    begins = [workspace, zeroed]
    for (arg, size), row in zip([(a, s) for a, s in zip(plan.scratch, sizes) if s], rest):
        assert row[1] == begins[arg.zeroed]
        begins[arg.zeroed] += -(-size * 4 // 256) * 256
    if any(held):
        call.workspace_bytes = call.zeroed_bytes = 128
        assert getattr(library.functions, f"all_run_{name}")(ctypes.byref(call), ctypes.byref(passed)) == -1
        assert "has 128 bytes, and the call needs more" in library.error()


@pytest.mark.parametrize(("bias", "alpha"), [(True, True), (True, False), (False, True), (False, False)])
def test_operands_that_are_left_out(bias: bool, alpha: bool, library: Library) -> None:
    """A NULL takes the kernel that does without; what is updated in place is passed once."""
    torch = pytest.importorskip("torch")
    plan, where, factor = library.plans["choices"], device(H200), ctypes.c_double(0.75)
    a, b, v, _, h = (allocate(arg, {"m": 32, "n": 64, "k": 64}, "cpu") if isinstance(arg, TensorArg) else None
                     for arg in plan.inputs)  # fmt: skip
    given = (a, b, v if bias else None, ctypes.addressof(factor) if alpha else None, h)
    passed = fill_values(library.types["choices"], plan.inputs, given)
    held = library.scratch("choices", where, 0, passed)
    room = [torch.zeros(size + 256, dtype=torch.uint8) for size in held]
    begins = [-(-tensor.data_ptr() // 256) * 256 for tensor in room]
    call = Call(ctypes.pointer(where), None, 0, 0, begins[0], held[0], begins[1], held[1])
    code = library.functions.all_run_choices(ctypes.byref(call), ctypes.byref(passed))
    if bias and alpha:
        assert (code, "is not in the bundle" in library.error()) == (-1, True)
        return
    assert code == 0, library.error()
    told, floats = read_call(library)
    for i, value in enumerate([x for x in given if x is not None]):
        assert is_tensor(told[i], value) if hasattr(value, "data_ptr") else (told[i][0], floats[i]) == (3, 0.75)
    assert told[-1][:2] == [1, 132]


def test_gathered_rows_are_copied_first(library: Library) -> None:
    """By a launch that gets, and leaves to the kernel behind it, what the plan's would."""
    torch = pytest.importorskip("torch")
    name, where = "grouped_gemm_e4m3_block128_gather_sm90a", device(H200)
    plan, dims = library.plans[name], {"m": 8190, "t": 900, "n": 4096, "k": 1024, "g": 4}
    args = (*plan.inputs, *plan.fresh_outputs)
    values = [allocate(a, dims, "cpu") for a in args]
    passed = fill_values(library.types[name], args, values)
    key = library.pick(name, where, 0, passed)
    assert key in plan.copied_tilings
    assert library.pick(name, where, 0, library.fill(name, dims | {"m": 8})) not in plan.copied_tilings
    workspace, zeroed = library.scratch(name, where, 0, passed)
    room = torch.empty(workspace + 256, dtype=torch.uint8)
    room = room[-room.data_ptr() % 256 :][:workspace]
    call = Call(ctypes.pointer(where), None, 0, 0, room.data_ptr(), workspace, 0, zeroed)
    sizes = dict(zip((s.name for s in plan.scratch), plan._size_scratch(dims, key)))
    copies, begin = [], 0
    for arg in plan.row_copy.args:
        size = sizes.pop(arg.name)
        dtype = getattr(torch, arg.dtype)
        copies.append(room[begin : begin + size * dtype.itemsize].view(dtype))
        begin += whole(size * dtype.itemsize)
    for sms in (0, 100):
        call.sms = sms
        run = getattr(library.functions, f"all_run_{name}")
        assert run(ctypes.byref(call), ctypes.byref(passed)) == 0, library.error()
        seen: list[Any] = []
        kept = plan.row_copy.run(
            lambda *v, seen=seen: seen.append(v), values, copies, dims["m"], dims["k"], sms or None
        )
        (expected,) = seen
        copied, _ = read_call(library, "copied_")
        assert all(is_tensor(row, value) for row, value in zip(copied, expected[:-1]))
        assert (len(copied), copied[-1][:2]) == (len(expected), [1, expected[-1]])
        told, _ = read_call(library)
        assert all(is_tensor(row, value) for row, value in zip(told, kept))
        assert len(told) == len(kept) + sum(map(bool, sizes.values())) + 1
    call.workspace_bytes = begin - 1
    assert run(ctypes.byref(call), ctypes.byref(passed)) == -1
    assert f"workspace has {begin - 1} bytes, and the call needs more" in library.error()


@pytest.mark.parametrize("name", ["add_rmsnorm_quant_e4m3_sm90a", "silu_mul_quant_block128_sm90a"])
def test_row_kernels_run_what_the_plan_would_run(name: str, library: Library) -> None:
    """Without scratch; a launch without a budget has a CTA for each row or part of one."""
    plan, rng, where, seen = library.plans[name], random.Random(name), device(H200), set()
    for _ in range(400):
        dims = draw_problem(rng, plan)
        values = library.fill(name, dims)
        seen.add(expected := plan.dispatch(**dims))
        assert library.pick(name, where, 0, values) == expected
        assert library.scratch(name, where, 0, values) == [0, 0]
    assert seen == set(plan.tilings)
    call = Call(ctypes.pointer(where))
    for arg in (*plan.inputs, *plan.fresh_outputs):
        setattr(values, arg.name, 4096)
    for sms, passed in ((0, plan.count_sms(expected, 0)), (7, 7)):
        call.sms = sms
        assert getattr(library.functions, f"all_run_{name}")(ctypes.byref(call), ctypes.byref(values)) == 0
        count = ctypes.c_int32.in_dll(library.functions, "values").value
        told = (ctypes.c_int64 * 16 * 32).in_dll(library.functions, "told")
        assert told[count - 1][1] == passed


def test_the_header_is_the_interface(library: Library) -> None:
    """A change of what it declares raises its ABI."""
    declared = DECLARATIONS.replace("BUNDLE", "all")
    assert declared.replace("all_ABI", "ALL_ABI") in library.header
    assert library.functions.all_abi() == 1
