"""A library of C entries whose kernels write down what they are called with, without a GPU."""

from __future__ import annotations

import ctypes
import random
from pathlib import Path
from typing import Any, NamedTuple

from c_structs import Device, compiled, read_structs

import cutegen
from cutegen.build.c_translation import Translation
from cutegen.build.entries import DTYPES, Entry, write_entries
from cutegen.families.registry import load_family
from cutegen.runtime.arguments import legal_extent, step_of

ROOT = Path(__file__).parents[1]
SPECS = (
    "gemm_bf16_bias_gelu_sm90a", "gemm_bf16_batched_sm90a", "gemm_bf16_swiglu_sm90a", "gemm_bf16_rms_sm90a",
    "grouped_gemm_e4m3_block128_sm90a", "grouped_gemm_e4m3_block128_gather_sm90a", "gemm_nvfp4_sm100a",
    "add_rmsnorm_quant_e4m3_sm90a", "silu_mul_quant_block128_sm90a", "layernorm_backward_bf16_sm90a",
    "mla_decode_bf16_mtp_sm90a", "mla_decode_e4m3_sm90a", "mla_sparse_v32_sm90a",
)  # fmt: skip
# Of its kernels only those that do without something are in the library.
CHOICES = """\
cutegen: 1
kernel: gemm
arch: sm_90a
tensors: {a: "bf16[m, k]", b: "bf16[n, k]", bias: "f32[n]?", alpha: "f32?", h: "bf16[m, n]"}
epilogue: {h: acc * alpha + bias + h}
"""
# Of each value: its kind, then a number; or of a tensor where it lies, its rank, dtype, shape and strides.
STUB = """
EXPORT int64_t told[32][16], copied[32][16];
EXPORT double numbers[32];
EXPORT int32_t values, copied_values;
static int write_down(int64_t (*told)[16], const TVMFFIAny *given, int32_t count) {
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
int __tvm_ffi_stub(void *self, const TVMFFIAny *given, int32_t count, TVMFFIAny *result) {
  values = count;
  return write_down(told, given, count);
}
int __tvm_ffi_copy(void *self, const TVMFFIAny *given, int32_t count, TVMFFIAny *result) {
  copied_values = count;
  return write_down(copied, given, count);
}
"""


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

    def scratch(self, name: str, where: Device, sms: int, values: ctypes.Structure) -> list[int]:
        found = [ctypes.c_int64(), ctypes.c_int64()]
        call = getattr(self.functions, f"all_scratch_{name}")
        assert call(ctypes.byref(where), sms, ctypes.byref(values), *map(ctypes.byref, found)) == 0, self.error()
        return [value.value for value in found]


Row = list[int]


def read_call(library: Library, which: str = "") -> tuple[list[Row], list[float]]:
    """(rows, numbers) of what the last kernel was called with; which: "copied_" for the last copy."""
    count = ctypes.c_int32.in_dll(library.functions, f"{which}values").value
    rows = (ctypes.c_int64 * 16 * 32).in_dll(library.functions, which.rstrip("_") or "told")
    return [list(rows[i]) for i in range(count)], list((ctypes.c_double * 32).in_dll(library.functions, "numbers"))


def is_tensor(row: Row, value: Any) -> bool:
    """Whether a kernel was passed this tensor: where it lies, its dtype, shape and strides."""
    rank = value.dim()
    found = (row[1], DTYPES[str(value.dtype).removeprefix("torch.")], row[5 : 5 + rank], row[9 : 9 + rank])
    return row[0] == 7 and found == (value.data_ptr(), tuple(row[3:5]), list(value.shape), list(value.stride()))


def make_library(folder: Path) -> Library:
    """Entries of shipped specs, whose kernels write down what they are called with; those of the first have none."""
    translation, entries, plans = Translation(), [], {}
    specs = [cutegen.Spec.from_file(ROOT / "specs" / f"{name}.yaml") for name in SPECS]
    for spec in (*specs, cutegen.Spec.from_text(CHOICES, "choices")):
        plan = plans[spec.name] = spec.load()
        shorter = getattr(plan, "_shorter", {})
        keys = () if spec.name == SPECS[0] else shorter if spec.name == "choices" else (*plan.tilings, "copy_rows")
        stubs = {key: "copy" if key == "copy_rows" else "stub" for key in keys}
        entries.append(Entry(spec.name, plan.arch, "", load_family(plan.family).c_entry(plan, translation), stubs))
    return compile_entries(folder, entries, translation, plans)


def compile_entries(folder: Path, entries: list[Entry], translation: Translation, plans: dict[str, Any]) -> Library:
    """plans: by name of the entry."""
    from tvm_ffi import libinfo

    ctypes.CDLL(libinfo.find_libtvm_ffi(), mode=ctypes.RTLD_GLOBAL)
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
