"""Which names a spec may use: one namespace for dims, tensors, locals and ops."""

from __future__ import annotations

import keyword
import re
import unicodedata

from cutegen.dtypes import DTYPES
from cutegen.epilogue.ops import FUNCTIONS, OPS

IDENTIFIER = re.compile(r"[A-Za-z][A-Za-z0-9_]*")
MAX_NAME = 48

# Names with a meaning in expressions. Those that generated source has besides names of a spec are in a table of the
# family (families/generated_names.py).
RESERVED = frozenset({"acc", "stored", "auto"})
DTYPE_NAMES = frozenset(dtype.cutlass for dtype in DTYPES.values())


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


def reserved_problem(name: str) -> str | None:
    """Why a well-formed name cannot be given to a dim, tensor or local of any family, or None."""
    if name in OPS:
        return "is the name of an epilogue operation"
    if name in FUNCTIONS:
        return "is the name of a function in generated source"
    if name in RESERVED:
        return "is reserved: it has a meaning in expressions"
    if name in DTYPE_NAMES:
        return "is the name of an element type in generated source"
    return None
