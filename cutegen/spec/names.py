"""Which names a spec may use: one namespace for dims, tensors, locals and ops."""

from __future__ import annotations

import keyword
import re

from cutegen.dtypes import DTYPES
from cutegen.epilogue.ops import FUNCTIONS, OPS

IDENTIFIER = re.compile(r"[A-Za-z][A-Za-z0-9_]*")
MAX_NAME = 48

# Names with a meaning in expressions. Those that generated source has beside names of a spec are in a table of the
# family (families/generated_names.py).
RESERVED = frozenset({"acc", "stored", "auto"})
DTYPE_NAMES = frozenset(dtype.cutlass for dtype in DTYPES.values())


def name_problem(name: str) -> str | None:
    """Why `name` cannot be a name in a spec, as the end of a sentence, or None."""
    if len(name) > MAX_NAME:
        return f"has {len(name)} characters; {MAX_NAME} is the most"
    if not IDENTIFIER.fullmatch(name):
        return "is no identifier (ASCII letters, digits and _, a letter first)"
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
