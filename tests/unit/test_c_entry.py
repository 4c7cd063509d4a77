"""The C entry of bundles: what it picks is what the plan picks, which needs a C compiler and no GPU."""

from __future__ import annotations

import ctypes
import json
import random
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
from c_structs import H100, H200, PCIE, SILENT, Call, Device, compiled, device, fill_values, read_structs
from golden_picks import FILE, UNKNOWN, read_sets

import cutegen
from cutegen.build.c_translation import Translation
from cutegen.build.cpu import find_c_compiler
from cutegen.build.entries import DTYPES, Entry, write_entries
from cutegen.build.entry_code import DECLARATIONS
from cutegen.families.c_entry import WINNERS
from cutegen.families.gemm.gemm_entry import dispatch_code, product_tables
from cutegen.families.registry import load_family
from cutegen.resolve import resolve_file
from cutegen.runtime.arguments import ScalarArg, allocate, complete_dims, legal_extent, step_of
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


SPECS = (
    "gemm_bf16_bias_gelu_sm90a", "gemm_bf16_batched_sm90a", "gemm_bf16_swiglu_sm90a", "gemm_bf16_rms_sm90a",
    "grouped_gemm_e4m3_block128_sm90a", "add_rmsnorm_quant_e4m3_sm90a", "silu_mul_quant_block128_sm90a",
    "mla_decode_bf16_mtp_sm90a",    "mla_decode_e4m3_sm90a", "mla_sparse_v32_sm90a", "grouped_gemm_bf16_gather_sm90a",
    "gemm_nvfp4_sm100a",
)  # fmt: skip
BUDGETS = (0, 1, 2, 3, 8, 60, 131, 132)


class Library(NamedTuple):
    plans: dict[str, Any]
    header: str
    functions: Any
    types: dict[str, type[ctypes.Structure]]

    def fill(self, name: str, dims: dict[str, int]) -> ctypes.Structure:
        values = self.types[name]()
        for dim, extent in dims.items():
            if hasattr(values, dim):
                setattr(values, dim, extent)
        return values

    def pick(self, name: str, where: Device, sms: int, values: ctypes.Structure) -> str:
        number = getattr(self.functions, f"all_pick_{name}")(ctypes.byref(where), sms, ctypes.byref(values))
        told: bytes = getattr(self.functions, f"all_tiling_{name}")(number)
        return told.decode() if number >= 0 else self.error()

    def error(self) -> str:
        text: bytes = self.functions.all_error()
        return text.decode()


# Of each value: its kind, then a number; or of a tensor where it lies, its rank, dtype, shape and strides.
STUB = """
EXPORT int64_t told[32][16];
EXPORT double numbers[32];
EXPORT int32_t values;
int __tvm_ffi_stub(void *self, const TVMFFIAny *given, int32_t count, TVMFFIAny *result) {
  values = count;
  for (int i = 0; i < count; i++) {
    told[i][0] = given[i].type_index;
    told[i][1] = given[i].v_int64;
    numbers[i] = given[i].v_float64;
    if (given[i].type_index != kTVMFFIDLTensorPtr) continue;
    const DLTensor *tensor = given[i].v_ptr;
    told[i][1] = (int64_t)tensor->data;
    told[i][2] = tensor->ndim, told[i][3] = tensor->dtype.code, told[i][4] = tensor->dtype.bits;
    for (int j = 0; j < tensor->ndim; j++) told[i][5 + j] = tensor->shape[j], told[i][9 + j] = tensor->strides[j];
  }
  return 0;
}
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Library:
    """Entries of shipped specs, whose kernels write down what they are called with; those of the first have none."""
    libinfo = pytest.importorskip("tvm_ffi.libinfo")
    ctypes.CDLL(libinfo.find_libtvm_ffi(), mode=ctypes.RTLD_GLOBAL)
    folder, translation, entries, plans = tmp_path_factory.mktemp("entries"), Translation(), [], {}
    for name in SPECS:
        path = ROOT / "specs" / f"{name}.yaml"
        plan = plans[name] = cutegen.load(path)
        stubs = dict.fromkeys([*plan.tilings, *getattr(plan, "_shorter", ())], "stub") if name != SPECS[0] else {}
        family = load_family(resolve_file(path).spec.kernel)
        entries.append(Entry(name, plan.arch, "", family.c_entry(plan, translation), stubs))
    header, code = write_entries("all", entries, translation, "cutegen bundle")
    (folder / "all.h").write_text(header)
    functions = compiled(folder, code + STUB, [folder, Path(libinfo.find_include_path())])
    functions.all_error.restype = ctypes.c_char_p
    for name in plans:
        if hasattr(functions, f"all_tiling_{name}"):
            getattr(functions, f"all_tiling_{name}").restype = ctypes.c_char_p
    return Library(plans, header, functions, read_structs(header, "all"))


def draw_problem(rng: random.Random, plan: Any) -> dict[str, int]:
    """Extents of any magnitude that are legal."""
    tensors = (*plan.inputs, *plan.outputs)
    free = {dim: extent for dim, extent in plan.dims.items() if not isinstance(extent, int)}
    return {d: legal_extent(e, step_of(d, tensors), int(2 ** (15 * rng.random()))) for d, e in free.items()}


GEMMS = [name for name in SPECS if "gemm" in name and "gather" not in name and "sm90" in name]


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
            needed[arg.zeroed] += -(-size * 4 // 256) * 256
        assert scratch(library, name, where, sms, values) == needed
    assert len(seen) > 4
    plan._winners.clear()


def scratch(library: Library, name: str, where: Device, sms: int, values: ctypes.Structure) -> list[int]:
    found = [ctypes.c_int64(), ctypes.c_int64()]
    call = getattr(library.functions, f"all_scratch_{name}")
    assert call(ctypes.byref(where), sms, ctypes.byref(values), *map(ctypes.byref, found)) == 0, library.error()
    return [value.value for value in found]


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
        _, workspace, counters = plan.size(sms or 132, key, plan.work(batch, query_len, heads)[1])
        assert scratch(library, name, where, sms, values) == [_whole(workspace * 4), _whole(counters * 4)]
        seen.add(key)
    assert seen == set(plan.tilings)
    plan._winners.clear()


def _whole(size: int) -> int:
    return -(-size // 256) * 256


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
    held = scratch(library, name, where, 100, passed)
    room = [torch.empty(size + 256, dtype=torch.uint8) for size in held]
    workspace, zeroed = (-(-tensor.data_ptr() // 256) * 256 for tensor in room)
    call = Call(ctypes.pointer(where), None, 100, 0, workspace, held[0], zeroed, held[1])
    assert getattr(library.functions, f"all_run_{name}")(ctypes.byref(call), ctypes.byref(passed)) == 0, library.error()
    rows = (ctypes.c_int64 * 16 * 32).in_dll(library.functions, "told")
    told = [list(rows[i]) for i in range(ctypes.c_int32.in_dll(library.functions, "values").value)]
    floats = (ctypes.c_double * 32).in_dll(library.functions, "numbers")
    scaled_last = name.startswith("mla")
    given = [(a, v) for a, v in zip(args, values) if hasattr(v, "data_ptr") or not scaled_last]
    for i, ((arg, value), row) in enumerate(zip(given, told)):
        if isinstance(arg, ScalarArg):
            assert (row[0], floats[i]) == (3, value)
            continue
        assert row[0:2] == [7, value.data_ptr()], arg.name
        assert tuple(row[3:5]) == DTYPES[arg.dtype]
        assert row[5 : 5 + value.dim()] == list(value.shape), arg.name
        assert row[9 : 9 + value.dim()] == list(value.stride()), arg.name
    rest = told[len(given) :]
    if scaled_last:
        parts, *sizes = plan.size(100, key, plan.work(dims["batch"], dims["query_len"], dims["heads"])[1])
        assert [row[5] for row in rest[:2]] == sizes
        assert [row[1] for row in rest[:2]] == [workspace, zeroed]
        assert (rest[2][0], floats[len(given) + 2]) == (3, 0.25)
        assert rest[3][:2] == [1, parts]
        assert len(rest) == 4
        return
    sizes = plan._size_scratch(dims, key) if plan.scratch else ()
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


@pytest.mark.parametrize("name", ["add_rmsnorm_quant_e4m3_sm90a", "silu_mul_quant_block128_sm90a"])
def test_row_kernels_run_what_the_plan_would_run(name: str, library: Library) -> None:
    """Without scratch; a launch without a budget has a CTA for each row or part of one."""
    plan, rng, where, seen = library.plans[name], random.Random(name), device(H200), set()
    for _ in range(100):
        dims = draw_problem(rng, plan)
        values = library.fill(name, dims)
        seen.add(expected := plan.dispatch(**dims))
        assert library.pick(name, where, 0, values) == expected
        assert scratch(library, name, where, 0, values) == [0, 0]
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


def test_what_has_no_entry_says_why(library: Library) -> None:
    name = "grouped_gemm_bf16_gather_sm90a"
    assert not hasattr(library.functions, f"all_run_{name}")
    assert f"/* {name} has no entry: some tilings copy gathered rows" in library.header


def test_the_header_is_the_interface(library: Library) -> None:
    """A change of what it declares raises its ABI."""
    declared = DECLARATIONS.replace("BUNDLE", "all")
    assert declared.replace("all_ABI", "ALL_ABI") in library.header
    assert library.functions.all_abi() == 1
