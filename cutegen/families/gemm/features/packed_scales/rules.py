"""The rule about tiles and scales that lie together."""

from __future__ import annotations

from cutegen.arch.architecture import Arch
from cutegen.diagnostics import Rule
from cutegen.families.gemm.candidate import Candidate
from cutegen.families.gemm.derived import output_tile
from cutegen.families.gemm.placement import HALF
from cutegen.families.gemm.problem import GemmProblem
from cutegen.families.gemm.rule_book import BOOK
from cutegen.families.refusal import Objection, nearest
from cutegen.runtime.gemm.scale_packing import BLOCKS, ROWS

PACKED = Rule(
    "packed-scales",
    "a tile has chunks of scales, and halves along n: of operands, columns in steps of 64 and k in steps of 4 blocks; "
    "of outputs, columns in steps of 4 blocks",
    "Scales of 128 rows and 4 blocks of k lie together, a chunk, in memory as in tensor memory, and one tcgen05.cp "
    "copies them. Tiles of 64 and 192 columns begin in the middle of a chunk every second time. A gated product has "
    "chunks of first columns and chunks of second ones in a tile. On sm_120a, where threads hold scales, a tile has "
    "one chunk of rows and one of columns.",
    "arch: sm_100a\n"
    "tensors: {a: 'e4m3[m, k]', b: 'e4m3[n, k]', sa: 'e8m0[m, k/32]', sb: 'e8m0[n, k/32]', d: 'bf16[m, n]'}\n"
    "mainloop: (a * sa) @ (b * sb)\ntiling: {tile: [128, 160, 128]}",
)


@BOOK.declare_form(PACKED, "tile", element=1, only="sm_100a")
def packed_columns(problem: GemmProblem, c: Candidate, arch: Arch) -> Objection | None:
    n, most, half = c.tile[1], arch.mma_n[1], ROWS // 2
    if problem.packed_scales and problem.paired and n % (HALF * ROWS):
        return f"half of tile n = {n} is not a multiple of the {ROWS} rows of a chunk of scales", f"use {most}"
    if not problem.packed_scales or n % half == 0:
        return None
    said = f"tile n = {n} is not a multiple of {half}, half of the rows of a chunk of scales"
    return said, f"use {nearest(n, range(half, most + 1, half))}"


@BOOK.declare_form(PACKED, "tile", element=2)
def packed_depth(problem: GemmProblem, c: Candidate, arch: Arch) -> Objection | None:
    k = c.tile[2]
    step = BLOCKS * problem.packed_scales[0].block if problem.packed_scales else 1
    if k % step == 0:
        return None
    blocks = f"{BLOCKS} blocks of {step // BLOCKS} elements"
    return f"tile k = {k} is not a multiple of {blocks}", f"use {-(-k // step) * step}"


@BOOK.declare_form(PACKED, "tile", element=1, only="sm_100a")
def stored_chunks(problem: GemmProblem, c: Candidate, arch: Arch) -> Objection | None:
    program, (_, columns) = problem.kernel_epilogue, output_tile(problem, c)
    step = BLOCKS * program.block
    if not program.chunks or columns % step == 0:
        return None
    pairs, size = (HALF, "half of ") if problem.paired else (1, "")
    said = f"{size}tile n = {c.tile[1]} is not a multiple of the {step} columns of a chunk of {program.chunks[0].name}"
    return said, f"use {nearest(c.tile[1], range(step * pairs, arch.mma_n[1] + 1, step * pairs))}"
