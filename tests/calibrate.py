"""Calibrates the PTX machine: executes public Blackwell kernels on it, and writes the table of instruction forms that
they use and get right results with.

    python tests/calibrate.py CUTLASS [--write] [--orders N] [--only TEXT]

CUTLASS is a checkout of https://github.com/NVIDIA/cutlass, whose examples run on hardware; none of them is part of this
repository. Each kernel is compiled, executed in several orders of events, and compared with a product in float64. One
that is not right in all orders adds no form. --only with --write keeps the results of the other kernels.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import calibrate_mla
import cutlass
import torch
from calibrate_host import compile_host
from cutlass import cute
from cutlass.cute.runtime import make_fake_stream, make_fake_tensor

from cutegen.machine import Simulation
from cutegen.machine.forms import TABLE

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "docs" / "measurements" / "calibration.json"
EXAMPLES = "examples/python/CuTeDSL/cute"
DENSE = "blackwell/kernel/dense_gemm"
SCALED = "blackwell/kernel/blockscaled_gemm"
GEFORCE = "blackwell_geforce/kernel"
TIMEOUT_S = 400


@dataclass(frozen=True)
class Public:
    """A public kernel, and the problem that it is executed on. arguments: of its class."""

    name: str
    file: str
    cls: str
    arguments: dict[str, Any]
    inputs: tuple[str, str] = ("bf16", "bf16")
    output: str = "bf16"
    shape: tuple[int, int, int] = (384, 256, 200)  # m, n, k
    majors: str = "kkn"  # of A, B and D: which dim is contiguous
    scale: tuple[str, int] | None = None  # dtype of scale factors, and elements that share one
    arch: str = "sm_100a"
    counts: bool = True  # takes the number of clusters
    tolerance: float = 2.0**-7


def dense(name: str, tile: tuple[int, int], cluster: tuple[int, int] = (1, 1), **options: Any) -> Public:
    """A kernel of the persistent dense GEMM, or of another file of its kind."""
    pair, acc, store = options.pop("pair", False), options.pop("acc", "f32"), options.pop("store", True)
    file = options.pop("file", "dense_gemm_persistent")
    cls = options.pop("cls", "PersistentDenseGemmKernel")
    arguments = {"acc_dtype": acc, "use_2cta_instrs": pair, "mma_tiler_mn": tile, "cluster_shape_mn": cluster,
                 "use_tma_store": store}  # fmt: skip
    return Public(name, f"{DENSE}/{file}.py", cls, arguments, **options)


def scaled(name: str, tile: tuple[int, int], kind: str, vector: tuple[str, int], **options: Any) -> Public:
    arguments = {"sf_vec_size": vector[1], "mma_tiler_mn": tile, "cluster_shape_mn": options.pop("cluster", (1, 1))}
    return Public(
        name, f"{SCALED}/dense_blockscaled_gemm_persistent.py", "Sm100BlockScaledPersistentDenseGemmKernel", arguments,
        (kind, kind), scale=vector, **{"shape": (384, 512, 512), **options},
    )  # fmt: skip


def geforce(name: str, kind: str, file: str, vector: tuple[str, int]) -> Public:
    arguments = {"acc_dtype": "f32", "sf_vec_size": vector[1], "tile_shape_mnk": (128, 128, 128), "epi_tile": (64, 32)}
    return Public(
        name, f"{GEFORCE}/blockscaled_gemm/dense_blockscaled_gemm_persistent_{file}.py", "Sm120BlockScaledGemmKernel",
        arguments, (kind, kind), scale=vector, arch="sm_120a", shape=(256, 256, 512),
    )  # fmt: skip


NV, MX = ("e4m3", 16), ("e8m0", 32)
E4M3, E5M2, F16, TF32 = ({"inputs": (k, k)} for k in ("e4m3", "e5m2", "f16", "f32"))
SUMS = {"inputs": ("i8", "i8"), "acc": "i32", "output": "i32", "shape": (384, 256, 208), "tolerance": 0.0}
SIMPLE = {"file": "dense_gemm", "cls": "DenseGemmKernel", "counts": False}
PERSISTENT = [
    dense("128x128", (128, 128)),
    dense("64x64", (64, 64)),
    dense("64x192", (64, 192)),
    dense("128x256", (128, 256)),
    dense("128x32", (128, 32)),
    dense("128x64, cluster 2x1", (128, 64), (2, 1)),
    dense("128x64, cluster 1x2", (128, 64), (1, 2)),
    dense("128x128, A and B MN-major", (128, 128), majors="mnn", shape=(384, 256, 200)),
    dense("128x128, A M-major", (128, 128), majors="mkn"),
    dense("128x128, B N-major", (128, 128), majors="knn"),
    dense("128x128, D M-major", (128, 128), majors="kkm"),
    dense("pair 256x128", (256, 128), (2, 1), pair=True),
    dense("pair 256x256", (256, 256), (2, 1), pair=True),
    dense("pair 128x128", (128, 128), (2, 1), pair=True),
    dense("pair 128x128, B N-major", (128, 128), (2, 1), pair=True, majors="knn"),
    dense("pair f16 128x128, B N-major", (128, 128), (2, 1), pair=True, **F16, output="f16", majors="knn"),
    dense("pair f16 128x128", (128, 128), (2, 1), pair=True, **F16, output="f16"),
    dense("pair 256x64, cluster 2x2", (256, 64), (2, 2), pair=True),
    dense("pair 256x128, MN-major, D M-major", (256, 128), (2, 1), pair=True, majors="mnm"),
    dense("pair 256x128, A M-major", (256, 128), (2, 1), pair=True, majors="mkn"),
    dense("pair 256x128, B N-major", (256, 128), (2, 1), pair=True, majors="knn"),
    dense("no TMA store", (128, 128), store=False, shape=(384, 256, 200)),
    dense("f16", (128, 128), **F16, output="f16"),
    dense("f16, MN-major", (128, 128), **F16, output="f16", majors="mnn"),
    dense("pair f16", (256, 128), (2, 1), pair=True, **F16, output="f16"),
    dense("pair f16, MN-major", (256, 128), (2, 1), pair=True, **F16, output="f16", majors="mnn"),
    dense("f16, f16 sums", (128, 128), **F16, output="f16", acc="f16", tolerance=2.0**-5),
    dense("e4m3", (128, 128), **E4M3, shape=(384, 256, 208)),
    dense("e5m2", (128, 128), **E5M2, shape=(384, 256, 208)),
    dense("pair e4m3", (256, 128), (2, 1), pair=True, **E4M3, shape=(384, 256, 208)),
    dense("pair e5m2", (256, 128), (2, 1), pair=True, **E5M2, shape=(384, 256, 208)),
    dense("e4m3, MN-major", (128, 128), **E4M3, shape=(384, 256, 208), majors="mnn"),
    dense("pair e4m3, MN-major", (256, 128), (2, 1), pair=True, **E4M3, shape=(384, 256, 208), majors="mnn"),
    dense("pair e4m3 128x256", (128, 256), (2, 1), pair=True, **E4M3, shape=(384, 256, 208)),
    dense("pair e4m3 128x256, B N-major", (128, 256), (2, 1), pair=True, **E4M3, shape=(384, 256, 208), majors="knn"),
    dense("i8, MN-major", (128, 128), **SUMS, majors="mnn"),
    dense("pair i8, MN-major", (256, 128), (2, 1), pair=True, **SUMS, majors="mnn"),
    dense("i8", (128, 128), **SUMS),
    dense("pair i8", (256, 128), (2, 1), pair=True, **SUMS),
    dense("tf32", (128, 128), **TF32, output="f32", tolerance=2.0**-9),
    dense("f32 output", (128, 128), output="f32"),
    dense("not persistent", (128, 128), **SIMPLE),
    dense("not persistent, pair", (256, 128), (2, 1), pair=True, **SIMPLE),
]
KERNELS = [
    *PERSISTENT,
    scaled("nvfp4 128x128", (128, 128), "e2m1", NV),
    scaled("nvfp4 128x64", (128, 64), "e2m1", NV),
    scaled("nvfp4 128x192", (128, 192), "e2m1", NV),
    scaled("nvfp4 128x192, n 384", (128, 192), "e2m1", NV, shape=(384, 384, 512)),
    scaled("nvfp4 128x192, n 192", (128, 192), "e2m1", NV, shape=(384, 192, 512)),
    scaled("nvfp4 pair 256x256", (256, 256), "e2m1", NV, cluster=(2, 1)),
    scaled("nvfp4 pair 256x128", (256, 128), "e2m1", NV, cluster=(2, 1)),
    scaled("mxfp4 128x128", (128, 128), "e2m1", MX),
    scaled("mxfp4 pair 256x128", (256, 128), "e2m1", MX, cluster=(2, 1)),
    scaled("mxfp8 128x128", (128, 128), "e4m3", MX),
    scaled("mxfp8 pair 256x128", (256, 128), "e4m3", MX, cluster=(2, 1)),
    scaled("mxfp8 pair 256x256", (256, 256), "e4m3", MX, cluster=(2, 1)),
    scaled("mxfp8 e5m2 128x128", (128, 128), "e5m2", MX),
    scaled("mxfp8 e5m2 pair 256x128", (256, 128), "e5m2", MX, cluster=(2, 1)),
    Public("sm120 bf16", f"{GEFORCE}/dense_gemm/dense_gemm.py", "Sm120GemmKernel",
           {"acc_dtype": "f32", "tile_shape_mnk": (128, 128, 64)}, arch="sm_120a", shape=(256, 256, 200)),
    Public("sm120 f16", f"{GEFORCE}/dense_gemm/dense_gemm.py", "Sm120GemmKernel",
           {"acc_dtype": "f32", "tile_shape_mnk": (128, 64, 64)}, ("f16", "f16"), "f16", arch="sm_120a",
           shape=(256, 256, 200)),
    Public("mla f16", calibrate_mla.FILE, calibrate_mla.CLASS, calibrate_mla.ARGUMENTS, tolerance=2.0**-9),
    geforce("sm120 nvfp4 pingpong", "e2m1", "pingpong", NV),
    geforce("sm120 mxfp8 pingpong", "e4m3", "pingpong", MX),
]  # fmt: skip


def load_class(checkout: Path, public: Public) -> Any:
    path = checkout / EXAMPLES / public.file
    sys.path[:0] = [str(path.parent), str(checkout / EXAMPLES), str((checkout / EXAMPLES).parent)]
    spec = importlib.util.spec_from_file_location("public_kernel", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["public_kernel"] = module
    spec.loader.exec_module(module)
    return getattr(module, public.cls)


def numeric(name: str) -> Any:
    return {
        "bf16": cutlass.BFloat16, "f16": cutlass.Float16, "f32": cutlass.Float32, "i32": cutlass.Int32,
        "i8": cutlass.Int8, "e4m3": cutlass.Float8E4M3FN, "e5m2": cutlass.Float8E5M2, "e2m1": cutlass.Float4E2M1FN,
        "e8m0": cutlass.Float8E8M0FNU,
    }[name]  # fmt: skip


def torch_type(name: str) -> Any:
    return {
        "bf16": torch.bfloat16, "f16": torch.float16, "f32": torch.float32, "i32": torch.int32, "i8": torch.int8,
        "e4m3": torch.float8_e4m3fn, "e5m2": torch.float8_e5m2,
    }[name]  # fmt: skip


def draw(kind: str, rows: int, k: int) -> tuple[Any, Any]:
    """(values in float64, tensor as the kernel reads it), both (rows, k); two elements of 4 bits are a byte."""
    if kind == "e2m1":
        codes = torch.randint(0, 16, (rows, k))
        steps = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6], dtype=torch.float64)
        values = torch.cat([steps, -steps])[codes]
        return values, (codes[:, 0::2] | codes[:, 1::2] << 4).to(torch.uint8)
    if kind == "i8":
        stored = torch.randint(-128, 128, (rows, k)).to(torch.int8)
    elif kind == "f32":  # what tf32 holds
        stored = (torch.randint(-512, 512, (rows, k)) / 256.0).float()
    else:
        stored = torch.randn(rows, k).to(torch_type(kind))
    return stored.double(), stored


def draw_scales(kind: str, rows: int, count: int) -> tuple[Any, Any]:
    """(factors in float64 (rows, count), bytes in the order in which cuBLAS has them: blocks of 128 rows by 4)."""
    if kind == "e8m0":
        codes = torch.randint(124, 130, (rows, count))
        values, stored = torch.pow(2.0, codes.double() - 127), codes.to(torch.uint8)
    else:
        small = torch.randint(1, 24, (rows, count)).double().div(8).to(torch.float8_e4m3fn)
        values, stored = small.double(), small.view(torch.uint8)
    high, wide = -(-rows // 128) * 128, -(-count // 4) * 4
    padded = torch.zeros(high, wide, dtype=torch.uint8)
    padded[:rows, :count] = stored
    return values, padded.view(high // 128, 4, 32, wide // 4, 4).permute(0, 3, 2, 1, 4).contiguous().view(-1)


def placed(values: Any, contiguous_rows: bool) -> Any:
    """(rows, columns, 1), one of the first two contiguous."""
    stored = values.t().contiguous().t() if contiguous_rows else values.contiguous()
    return stored.unsqueeze(-1)


def fake(name: str, contiguous_rows: bool) -> Any:
    """As `placed`."""
    step = 128 // numeric(name).width
    free, even = cute.sym_int(), cute.sym_int(divisibility=step)
    far, batch = cute.sym_int64(divisibility=step), cute.sym_int64(divisibility=step)
    shape = (even, free, cute.sym_int()) if contiguous_rows else (free, even, cute.sym_int())
    strides = (1, far, batch) if contiguous_rows else (far, 1, batch)
    return make_fake_tensor(numeric(name), shape, strides, assumed_align=16)


def wrap(public: Public, kernel: Any) -> tuple[Any, list[Any]]:
    """A host function of tensors, and what it is compiled with."""
    stream = make_fake_stream(use_tvm_ffi_env_stream=True)
    clusters = 4
    m_a, m_b, m_d = ((major in "mn" and i < 2) or major == "m" for i, major in enumerate(public.majors))
    if public.scale is None:
        operands = [fake(public.inputs[0], m_a), fake(public.inputs[1], m_b), fake(public.output, m_d)]
        return kernel, [*operands, *([clusters] if public.counts else []), stream]
    return scaled_host(public, kernel, clusters), [
        *(make_fake_tensor(cutlass.Int8, (cute.sym_int(),), (1,), assumed_align=16) for _ in range(4)),
        fake(public.output, m_d), stream,
    ]  # fmt: skip


def scaled_host(public: Public, kernel: Any, clusters: int) -> Any:
    (m, n, k), (factor, per) = public.shape, public.scale or ("", 1)
    a_type, factor_type = numeric(public.inputs[0]), numeric(factor)
    newer = public.arch == "sm_100a"

    @cute.jit
    def host(a: cute.Tensor, b: cute.Tensor, sa: cute.Tensor, sb: cute.Tensor, d: cute.Tensor, stream):
        a_ptr, b_ptr = (cute.recast_ptr(t.iterator, dtype=a_type) for t in (a, b))
        sa_ptr, sb_ptr = (cute.recast_ptr(t.iterator, dtype=factor_type) for t in (sa, sb))
        if cutlass.const_expr(newer):
            layouts = (
                cute.nvgpu.OperandMajorMode.K,
                cute.nvgpu.OperandMajorMode.K,
                cutlass.tensor_utils.LayoutEnum.ROW_MAJOR,
            )
            kernel(a_ptr, b_ptr, sa_ptr, sb_ptr, d.iterator, layouts, (m, n, k, 1), clusters, stream)
        else:
            ta = cute.make_tensor(a_ptr, cute.make_layout((m, k, 1), stride=(k, 1, m * k)))
            tb = cute.make_tensor(b_ptr, cute.make_layout((n, k, 1), stride=(k, 1, n * k)))
            blocks = [cute.make_tensor(p, cutlass.utils.blockscaled_layout.tile_atom_to_shape_SF((r, k, 1), per))
                      for p, r in ((sa_ptr, m), (sb_ptr, n))]  # fmt: skip
            kernel(ta, tb, blocks[0], blocks[1], d, clusters, stream)

    return host


def execute(checkout: Path, public: Public, orders: int) -> dict[str, Any]:
    """What came of it: per order "" or what is wrong; the forms that were executed."""
    made_of = {name: numeric(v) if isinstance(v, str) else v for name, v in public.arguments.items()}
    made = load_class(checkout, public)(**made_of)
    if public.cls == calibrate_mla.CLASS:
        host, arguments = calibrate_mla.wrap(made)
        return calibrate_mla.execute(
            *compile_host(host, arguments, public.arch, "--opt-level 2"), orders, public.tolerance
        )
    text, code = compile_host(*wrap(public, made), public.arch)
    simulation = Simulation(sm_count=4)
    kernel = simulation.bind(text, code)
    torch.manual_seed(0)
    m, n, k = public.shape
    (a, a_stored), (b, b_stored) = draw(public.inputs[0], m, k), draw(public.inputs[1], n, k)
    if public.scale is None:
        operands = [placed(a_stored, public.majors[0] == "m"), placed(b_stored, public.majors[1] == "n")]
    else:
        kind, per = public.scale
        (sa, sa_stored), (sb, sb_stored) = draw_scales(kind, m, k // per), draw_scales(kind, n, k // per)
        a, b = a * sa.repeat_interleave(per, 1), b * sb.repeat_interleave(per, 1)
        operands = [t.reshape(-1).view(torch.int8) for t in (a_stored, b_stored, sa_stored, sb_stored)]
    expected, told = a @ b.T, []
    for simulation.seed in range(orders):
        held = torch.full((m, n), 0 if public.output == "i32" else float("nan"), dtype=torch_type(public.output))
        d = placed(held, public.majors[2] == "m")
        try:
            kernel(*operands, d)
        except Exception as error:
            told.append(str(error)[:600] or type(error).__name__)
            continue
        error = float((d[..., 0].double() - expected).abs().max())
        bound = public.tolerance * float(expected.abs().max())
        told.append("" if error <= bound else f"wrong: off by {error:g}, of at most {bound:g}")
    return {"orders": told, "forms": sorted(simulation.forms()), "lacking": simulation.lacking[:4]}


def results(checkout: Path, chosen: list[Public], orders: int) -> Iterator[tuple[Public, dict[str, Any]]]:
    """Each in a process of its own, since kernels of one name cannot be imported twice."""
    for public in chosen:
        start = time.perf_counter()
        command = [sys.executable, __file__, str(checkout), "--one", public.name, "--orders", str(orders)]
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=TIMEOUT_S, cwd=ROOT,
                env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
            )  # fmt: skip
            lines = done.stdout.strip().splitlines()
            found = json.loads(lines[-1]) if done.returncode == 0 and lines else {"failed": done.stderr.strip()[-600:]}
        except subprocess.TimeoutExpired:
            found = {"failed": f"not done within {TIMEOUT_S} s"}
        yield public, {**found, "seconds": round(time.perf_counter() - start, 1)}


def right(found: dict[str, Any]) -> bool:
    return bool(found.get("orders")) and not any(found["orders"])


def table_of(held: dict[str, Any]) -> str:
    """The text of the table, of results as they are held."""
    good = [found for found in held["kernels"].values() if right(found)]
    head = [
        f"# Forms of instructions in {len(good)} kernels of CUTLASS ({held['cutlass']}) that the PTX machine executed",
        f"# right in {held['orders']} orders of events. Written by tests/calibrate.py; not to be edited.",
    ]
    return "\n".join([*head, *sorted({form for found in good for form in found["forms"]}), ""])


def origin_of(checkout: Path) -> str:
    commit = subprocess.run(["git", "-C", str(checkout), "rev-parse", "HEAD"], capture_output=True, text=True)
    return commit.stdout.strip() or "of no known commit"


def read_held(checkout: Path, orders: int) -> dict[str, Any]:
    """Results of other kernels, by name, that new ones may be written with: of the same checkout and as many orders."""
    held = json.loads(RESULTS.read_text(encoding="utf-8"))
    if (held["cutlass"], held["orders"]) != (origin_of(checkout), orders):
        raise SystemExit(f"{RESULTS.name} is of CUTLASS {held['cutlass']} in {held['orders']} orders: leave out --only")
    return held["kernels"]


def write(checkout: Path, orders: int, all_found: dict[str, dict[str, Any]], before: dict[str, Any]) -> None:
    """The table, and the results that it is made from. before: results that are held, of which those found take the
    place."""
    archs = {public.name: public.arch for public in KERNELS}
    found = {
        name: {"arch": archs[name], **{key: value for key, value in found.items() if key != "seconds"}}
        for name, found in all_found.items()
    }
    kernels = {name: known for name in archs if (known := found.get(name) or before.get(name))}
    held = {"cutlass": origin_of(checkout), "orders": orders, "kernels": kernels}
    RESULTS.write_text(json.dumps(held, indent=1) + "\n", encoding="utf-8")
    TABLE.write_text(table_of(held), encoding="utf-8")


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cutlass", type=Path)
    parser.add_argument("--orders", type=int, default=5)
    parser.add_argument("--only", default="", help="kernels with this in their names")
    parser.add_argument("--write", action="store_true", help="write the table and the results")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    if not (given.cutlass / EXAMPLES).is_dir():
        parser.error(f"{given.cutlass} is not a checkout of CUTLASS: it has no {EXAMPLES}")
    if given.one:
        public = next(p for p in KERNELS if p.name == given.one)
        print(json.dumps(execute(given.cutlass, public, given.orders)))
        return 0
    before = read_held(given.cutlass, given.orders) if given.write and given.only else {}
    all_found = {}
    for public, found in results(given.cutlass, [p for p in KERNELS if given.only in p.name], given.orders):
        all_found[public.name] = found
        said = found.get("failed") or next((f"order {i}: {t}" for i, t in enumerate(found["orders"]) if t), "")
        print(f"{public.name}: {'right' if right(found) else said} ({found['seconds']} s)", flush=True)
    print(f"{sum(map(right, all_found.values()))} of {len(all_found)} are right")
    if given.write:
        write(given.cutlass, given.orders, all_found, before)
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
