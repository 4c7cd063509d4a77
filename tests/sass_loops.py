"""`python tests/sass_loops.py CUTLASS [--write]`: how many instructions the loops over k have in SASS, in shipped
kernels of sm_100a and in CUTLASS's examples with the same tile.

CUTLASS is a checkout of https://github.com/NVIDIA/cutlass, as for calibrate.py. A loop is the shortest that has an
instruction: what multiplies, in the MMA warp, or what loads by TMA, in the load warp. It may hold several k tiles.
"""

from __future__ import annotations

import argparse
import importlib
import json
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "docs" / "measurements" / "blackwell_loops.json"
# Shipped kernel -> the name in calibrate.py of CUTLASS's with the same tile; the opcode that multiplies, how often in a
# k tile, and how many loads a k tile has.
PAIRS = {
    "gemm_bf16_sm100a": ("128x256", "UTCHMMA", 4, 2),
    "gemm_bf16_2cta_sm100a": ("pair 256x256", "UTCHMMA", 4, 2),
    "gemm_mxfp8_sm100a": ("mxfp8 pair 256x256", "UTCQMMA", 4, 4),
    "gemm_nvfp4_sm100a": ("nvfp4 pair 256x256", "UTCOMMA", 4, 4),
}
_LABEL = re.compile(r"\s*\.?(L_x?_?\w+):")
_INSTRUCTION = re.compile(r"\s*/\*[0-9a-f]+\*/\s+(?:@!?U?P\w+\s+)?([A-Z][\w.]*)(.*);")


def find_loop(sass: str, opcode: str) -> tuple[int, int]:
    """(instructions, how many of them begin with `opcode`) of the shortest loop that has some. ValueError: none has."""
    labels: dict[str, int] = {}
    code: list[tuple[str, str]] = []
    for line in sass.splitlines():
        if label := _LABEL.match(line):
            labels[label[1]] = len(code)
        elif found := _INSTRUCTION.match(line):
            code.append((found[1], found[2]))
    loops = []
    for end, (name, rest) in enumerate(code):
        target = re.search(r"\.?(L_x?_?\w+)", rest) if name.startswith("BRA") else None
        if target and (start := labels.get(target[1], end + 1)) <= end:
            count = sum(other.startswith(opcode) for other, _ in code[start : end + 1])
            loops += [(end + 1 - start, count)] if count else []
    if not loops:
        raise ValueError(f"no loop has {opcode}")
    return min(loops)


def measure(sass: str, opcode: str, products: int, loads: int) -> dict[str, float]:
    """Instructions of a k tile in the loop that multiplies, and in the one that loads."""
    found = {}
    for role, wanted, each in (("mma", opcode, products), ("load", "UTMALDG", loads)):
        size, count = find_loop(sass, wanted)
        found[role] = round(size * each / count, 1)
    return found


def compile_shipped(name: str) -> bytes:
    sys.path.insert(0, str(ROOT / "generated"))
    plan, kernel = (importlib.import_module(f"{name}.{part}") for part in ("plan", "kernel"))
    with tempfile.TemporaryDirectory() as folder:
        options = f"--gpu-arch {plan.PLAN.arch} --enable-tvm-ffi --keep-cubin --dump-dir {folder}"
        made: Any = kernel.compile_kernel(next(iter(plan.TILINGS.values())), options)
        return bytes(made.__cubin__)


def compile_public(checkout: Path, name: str) -> bytes:
    import calibrate
    from cutlass import cute

    public = next(p for p in calibrate.KERNELS if p.name == name)
    made_of = {key: calibrate.numeric(v) if isinstance(v, str) else v for key, v in public.arguments.items()}
    host, arguments = calibrate.wrap(public, calibrate.load_class(checkout, public)(**made_of))
    with tempfile.TemporaryDirectory() as folder:
        options = f"--gpu-arch {public.arch} --enable-tvm-ffi --keep-cubin --dump-dir {folder}"
        made: Any = cute.compile(host, *arguments, options=options)
        return bytes(made.__cubin__)


def main(given: list[str]) -> int:
    from cutegen.build.facts import disassemble

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cutlass", type=Path)
    parser.add_argument("--write", action="store_true", help=f"write {RESULTS.relative_to(ROOT)}")
    args = parser.parse_args(given)
    kernels = {}
    for name, (public, *counts) in PAIRS.items():
        cubins = {"cutegen": compile_shipped(name), "cutlass": compile_public(args.cutlass, public)}
        kernels[name] = {"public": public, **{who: measure(disassemble(c), *counts) for who, c in cubins.items()}}
        print(name, json.dumps(kernels[name]), flush=True)
    if args.write:
        import calibrate

        held = {"cutlass": calibrate.origin_of(args.cutlass), "kernels": kernels}
        RESULTS.write_text(json.dumps(held, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
