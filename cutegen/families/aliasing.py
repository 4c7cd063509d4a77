"""Which input may share its storage with an output: `alias: {d: c}`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from cutegen.diagnostics import declare, suggest
from cutegen.epilogue import EpilogueProgram

if TYPE_CHECKING:
    from cutegen.spec import TensorDecl

IN_PLACE = declare(
    "in-place", "what a launch overwrites is read by the threads that overwrite it, and by no others",
    "`grad: grad + acc` reads and writes one tensor, and `alias: {d: c}` lets a call pass one storage for both: each "
    "element is read, as part of a tile, by the threads that store it. Operands of the mainloop and inputs that are "
    "broadcast are read by many tiles, some of which may run later.",
    "epilogue: {a: acc}   # with mainloop: a @ b",
)  # fmt: skip
_PAIR = "an alias is an output and an input of the epilogue with the same dtype, dims and layout: alias: {d: c}"


def refuse_alias(
    name: str, other: str, tensors: Mapping[str, TensorDecl], program: EpilogueProgram, aliases: Mapping[str, str]
) -> tuple[str, str] | None:
    """Why output `name` cannot lie where input `other` does, and what to do; None when it can: then each element is
    read by the threads that write it, and by no others."""
    for tensor in (name, other):
        if tensor not in tensors:
            return f"no tensor is named `{tensor}`", f"{suggest(tensor, tensors)} {_PAIR}".strip()
    outputs = {o.name for o in program.outputs}
    inputs = {o.name: o for o in program.operands if not o.updates}
    if name in program.updated or other in program.updated:
        both = name if name in program.updated else other
        return f"`{both}` is updated in place: it is input and output already", "drop the alias"
    if name not in outputs:
        return f"`{name}` is not an output with rows and columns", _PAIR
    if other not in inputs:
        what = "an output" if other in outputs else "an operand of the mainloop, which other tiles read later"
        return f"`{other}` is {what}", _PAIR
    if sum(value == other for value in aliases.values()) > 1:
        return f"two outputs would be written to `{other}`", "give each output an input of its own"
    if inputs[other].kind != "tile":
        said = f"`{other}` is broadcast: tiles that run later read what this one would overwrite"
        return said, f"declare `{other}` with the dims of `{name}`"
    if (text := str(tensors[name])) != str(tensors[other]):
        return f"`{name}` is {text}, `{other}` is {tensors[other]}", f"declare both {text}"
    return None
