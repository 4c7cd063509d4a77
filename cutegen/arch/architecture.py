"""What describes an architecture, and the numbers that all of them have in common from sm_90 on.

Sources: PTX ISA, "wgmma", "tcgen05", "setmaxnreg", "cp.async.bulk.tensor"; CUDA C++ Programming Guide, "Compute
Capabilities" and "Thread Block Clusters".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from cutegen.dtypes import DType

WARP_THREADS = 32
WARPGROUP_THREADS = 128
WARPS_PER_WARPGROUP = WARPGROUP_THREADS // WARP_THREADS
TENSOR_ALIGN = 1024  # bytes: the period of the 128-byte swizzle, which TMA and MMA count from an aligned base
SWIZZLES = (128, 64, 32)  # bytes of a swizzled row that TMA, MMA and stmatrix agree on
TMA_ALIGN = 16  # bytes: of global addresses and strides, and of a row of a box
BOX_ALIGN = 128  # bytes: where in shared memory TMA may put a box
ACCESS_BYTES = 16  # of the widest access of a thread
PORTABLE_CLUSTER = 8  # CTAs
SM_THREADS = 2048  # that an SM of compute capability 9.0 or 10.0 has room for
# PTX ISA, setmaxnreg: the immediate is a multiple of 8 in [24, 256].
SETMAXNREG_STEP, SETMAXNREG_MIN, SETMAXNREG_MAX = 8, 24, 256


@dataclass(frozen=True, slots=True)
class Mma:
    """One kind of tensor-core instruction.

    op: its class in cute.nvgpu. dtypes: those that this class takes, in order: of "a" (and of "b", where it has the
    same), "b", "scale" and "sum"; takes_majors: and which dims of A and B are contiguous. sass: its opcode.
    accumulator: dtype of the sum. k_major_only: there is no transposed read of A and B. rounds: the tensor core keeps
    fewer bits of the sum than the accumulator has, so that promotion to f32 registers gains precision. wide: (columns,
    step): more columns than that are a multiple of the step; None: of the arch's step, however many.
    """

    op: str
    dtypes: tuple[str, ...]
    sass: str
    accumulator: DType
    k_major_only: bool
    rounds: bool
    wide: tuple[int, int] | None = None
    takes_majors: bool = True


@dataclass(frozen=True, slots=True)
class Opcodes:
    """SASS opcodes, as they begin, by which the build contract knows an instruction; those with a value here are the
    same from sm_90 on.

    mma_wait: for groups of MMAs. tma_load, tma_store, tma_add: of tensors. pdl_wait, pdl_trigger: of programmatic
    dependent launch. cluster_store: of 16 bytes to the shared memory of another CTA. scale_copy: from shared to tensor
    memory. launch_query: of cluster launch control. matrix_load: ldmatrix. atomics: on global memory. row_prefetch: of
    a stretch of it, to L2. wide_load, wide_store: of 16 bytes of it. memory: up to the first dot, what accesses global
    memory (LD and ST any memory).
    """

    mma_wait: str = ""
    tma_load: str = "UTMALDG"
    tma_store: str = "UTMASTG"
    tma_add: str = "UTMAREDG"
    pdl_wait: str = "ACQBULK"
    pdl_trigger: str = "PREEXIT"
    mbarrier_init: str = "SYNCS.EXCH.64"
    cluster_store: str = "STAS.128"
    scale_copy: str = "UTCCP"
    launch_query: str = "UGETNEXTWORKID"
    matrix_load: str = "LDSM"
    atomics: tuple[str, ...] = ("ATOMG", "REDG")
    row_prefetch: str = "UBLKPF"
    wide_load: str = "LDG.E.128"
    wide_store: str = "STG.E.128"
    memory: tuple[str, ...] = (
        "LD", "LDG", "LDGSTS", "ST", "STG", "ATOM", "ATOMG", "RED", "REDG",
        "UTMALDG", "UTMASTG", "UTMAREDG", "UBLKCP", "UBLKRED",
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Arch:
    """One target.

    smem_bytes: dynamic shared memory one CTA may allocate. registers: 32-bit registers per CTA. max_threads: per
    CTA. mma: the tensor-core instruction; mma_m, mma_n, mma_k_bytes: rows of one instruction, or, where it is a
    warp's, of the four warps of a warpgroup, (smallest, largest, step) of columns that such rows have, bytes of its
    K extent. mmas: its kinds by the dtypes of A and B. scaled_mmas: kinds that multiply by scales of blocks along
    k, by those dtypes and (dtype of scales, elements of k that share one). tensor_memory: columns that a CTA has,
    of 128 lanes of 32 bits, for sums of products; 0: sums are in registers. like: another one, whose kernels and
    rules it has; "": those are its own. rules_of: another one, whose rules about knobs hold for it as well as its own.
    """

    name: str
    smem_bytes: int
    registers: int
    max_threads: int
    mma: str
    mma_m: int
    mma_n: tuple[int, int, int]
    mma_k_bytes: int
    mmas: Mapping[tuple[str, str], Mma] = field(default_factory=dict, compare=False, repr=False)
    scaled_mmas: Mapping[tuple[str, str, tuple[str, int]], Mma] = field(default_factory=dict, compare=False, repr=False)
    tensor_memory: int = 0
    like: str = ""
    rules_of: str = ""
    opcodes: Opcodes = field(default=Opcodes(), compare=False, repr=False)

    @property
    def folder(self) -> str:
        """What folders of templates for it are called, such as sm90."""
        return (self.like or self.name).replace("_", "").rstrip("af")

    def find_mma(self, a: DType, b: DType, scale: tuple[str, int] | None = None) -> Mma | None:
        """The kind that multiplies these dtypes, by scales where there are some; None: there is none."""
        return self.scaled_mmas.get((a.name, b.name, scale)) if scale else self.mmas.get((a.name, b.name))

    def list_scales(self, a: DType, b: DType) -> list[tuple[str, int]]:
        """(dtype, elements of k that share one) of scales by which these dtypes are multiplied."""
        return [scale for (left, right, scale) in self.scaled_mmas if (left, right) == (a.name, b.name)]

    def list_stored_scales(self) -> dict[str, int]:
        """Of scales that an epilogue stores for the next product, the columns that share one, by dtype."""
        return dict(scale for _, _, scale in self.scaled_mmas) if self.tensor_memory else {}

    def mma_k(self, dtype: DType) -> int:
        """Elements that one MMA contracts."""
        return dtype.fit(self.mma_k_bytes)

    def launch_registers(self, threads: int) -> int:
        """Registers per thread a CTA of that many threads is launched with (a multiple of 8, at most 255 usable)."""
        return min(self.registers // threads // SETMAXNREG_STEP * SETMAXNREG_STEP, SETMAXNREG_MAX)
