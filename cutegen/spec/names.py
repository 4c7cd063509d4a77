"""Which names a spec may use: one namespace for dims, tensors, locals and ops."""

from __future__ import annotations

import keyword
import re
import unicodedata

from cutegen.dtypes import DTYPES
from cutegen.epilogue.ops import FUNCTIONS, OPS

IDENTIFIER = re.compile(r"[A-Za-z][A-Za-z0-9_]*")
MAX_NAME = 48

# A test compares the two sets with the scopes of generated source in which names of a spec stand.
# Names with a meaning in expressions, in plans and their command line, and the builtins that generated source calls.
RESERVED = frozenset(
    {
        *("acc", "stored", "auto", "self", "cute", "cutlass", "pipeline", "stream", "tiling", "sm_count", "torch"),
        *("plan", "kernel", "help", "check", "prof_type", "iterations", "sms", "make_fake_stream", "make_fake_tensor"),
        "PLAN",
        *(dtype.cutlass for dtype in DTYPES.values()),
        *("abs", "bool", "dict", "enumerate", "float", "getattr", "int", "isinstance", "len", "list", "max", "min"),
        *("object", "print", "range", "str", "sum", "super", "tuple", "type", "zip"),
    }
)
# Names of kernel source in the scopes that tensors and locals share with it; dims do not reach them.
KERNEL_NAMES = frozenset(
    {
        *("t", "mma", "raster", "storage", "warp", "warpgroup", "k_tiles", "clusters", "tile_m", "tile_n", "tile_k"),
        *("mA", "mB", "sA", "sB", "sA_layout", "sB_layout", "tmaA", "tmaB", "tma", "cpasync", "cuda", "smem_tensor"),
        *("tmaBoxIn", "tmaBoxOut", "mBoxIn", "mBoxOut", "sBox", "sBox_layout", "tmaPieceA", "tmaPieceB", "ragged"),
        *("tmaHalfA", "tmaHalfB"),
        *("ab_pipeline", "load_pipeline", "ab_barriers", "load_barriers", "const_expr", "dataclass", "Int64"),
        *("LoadOperands", "TileLoadOperands", "ConsumeOperands", "RasterOrder", "SharedStorage", "SmemAllocator"),
        *("OperandMajorMode", "ValueError", "pairs", "arrivals", "extent_n", "s_ticket"),
        *("cluster_sum", "sum_barriers", "sum_exchange", "sum_given"),
        *("reads_tiles", "Boolean", "k_split", "split", "tile_queue", "queue", "queue_barriers"),
        *("block_input", "row_copy", "spread_values", "queue_indices", "workspace", "sums", "semaphores"),
    }
)
# Names of kernel source at module level, which a function that is imported beside them cannot have.
MODULE_NAMES = frozenset(
    {
        *("accumulator", "annotations", "compile_kernel", "direct_store", "epilogue", "epilogue_layout", "reduction"),
        *("fake_arguments", "pipeline_state", "row_groups", "staged_layout", "vector", "warpgroup"),
        *("EPILOGUE", "TURN", "TILE_TURN", "GROUPS", "Gemm", "GemmTiling", "GroupedRaster"),
    }
)
# Names in the front module of a package, beside the function of the spec, and of its other modules.
PACKAGE_NAMES = frozenset(
    {
        *("PLAN", "Plan", "get_inputs", "kernel_fn", "launch_fn", "plan", "reference_fn", "main", "copy_rows"),
        *("annotations", "TYPE_CHECKING", "torch", "float", "int", "tuple", "kernel"),
    }
)
# What kernel source makes of the name of a tensor.
DERIVED = ("m_{}", "s_{}", "s_{}_layout", "tma_{}", "p_{}")


def kernel_name(stem: str) -> str:
    """The name of the kernel of a file: hyphens, which names of packages cannot have, become underscores."""
    return stem.replace("-", "_")


def propose_name(stem: str) -> str:
    """A kernel's name that is like `stem`."""
    name = re.sub(r"[^A-Za-z0-9]+", "_", unicodedata.normalize("NFKD", stem).encode("ascii", "ignore").decode())
    name = name.strip("_")[: MAX_NAME - len("kernel_")]
    return name if name and not name_problem(name) else f"kernel_{name}".rstrip("_")


def name_problem(name: str) -> str | None:
    """Why `name` cannot be a name in a spec, as the end of a sentence, or None."""
    if len(name) > MAX_NAME:
        return f"has {len(name)} characters; {MAX_NAME} is the most"
    if not IDENTIFIER.fullmatch(name):
        return "is not an identifier (ASCII letters, digits and _, a letter first)"
    if keyword.iskeyword(name) or keyword.issoftkeyword(name):
        return "is a Python keyword"
    return None


def function_problem(name: str) -> str | None:
    """Why a function of that name cannot be imported into generated source, or None."""
    return "is a name of generated source" if name in MODULE_NAMES else reserved_problem(name)


def call_problem(name: str) -> str | None:
    """Why the function of a package, which its front module defines, cannot have that name, or None."""
    if name in PACKAGE_NAMES or re.match("kernel_[A-Za-z]", name):
        return "is the name of something else in the generated package"
    return name_problem(name)


def reserved_problem(name: str, *, dim: bool = False) -> str | None:
    """Why a well-formed name cannot be given to a dim, or to a tensor or local, or None."""
    if name in OPS:
        return "is the name of an epilogue operation"
    if name in FUNCTIONS:
        return "is the name of a function in generated source"
    if name in RESERVED or (name in KERNEL_NAMES and not dim):
        return "is reserved: it has a meaning in expressions or generated source"
    return None
