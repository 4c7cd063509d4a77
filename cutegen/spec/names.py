"""Which names a spec may use: one namespace for dims, tensors, locals and ops."""

from __future__ import annotations

import keyword
import re

IDENTIFIER = re.compile(r"[A-Za-z][A-Za-z0-9_]*")
MAX_NAME = 48

# Names with a meaning in expressions or in generated source, and the builtins that generated source calls.
RESERVED = frozenset(
    {
        *("acc", "stored", "auto", "self", "cute", "cutlass", "pipeline", "stream", "tiling", "sm_count", "torch"),
        *("utils", "plan", "kernel", "abs", "bool", "dict", "enumerate", "float", "getattr", "int", "isinstance"),
        *("len", "list", "max", "min", "object", "print", "range", "str", "sum", "super", "tuple", "type", "zip"),
    }
)


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
    """Why a well-formed name cannot be given to a dim, tensor or local, or None."""
    if name in RESERVED:
        return "is reserved: it has a meaning in expressions or generated source"
    # Here, not above: the epilogue package may read declarations, which need this module.
    from cutegen.epilogue.ops import FUNCTIONS, OPS

    if name in OPS:
        return "is the name of an epilogue operation"
    if name in FUNCTIONS:
        return "is the name of a function in generated source"
    return None
