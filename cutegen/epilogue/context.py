"""Where statements stand, and what they may say there: after a product, or of the values of a row."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cutegen.epilogue.rules import BLOCKS, OUTPUT_WITHOUT_ACC, OUTPUT_WITHOUT_ROW
from cutegen.epilogue.tree import ReduceOp

REDUCTIONS: dict[str, ReduceOp] = {"sum": "sum", "max": "max", "max_abs": "max_abs"}
ROW_REDUCTIONS: dict[str, ReduceOp] = REDUCTIONS | {"mean": "mean"}


@dataclass(frozen=True, slots=True)
class Context:
    """section: the key of the spec. sources: values that are neither declared nor assigned. reductions: those that may
    be called. readable: whether the result of one over a whole dim is a value; if not, it is an output, and nothing
    reads it. alone: the rule about an output that depends on none of what a kernel is for, and its words. columns: the
    dim of a row's elements, whose `index` may be read, and of which `pick` takes one; "": there are none. blocks:
    columns that one may have."""

    section: str
    sources: tuple[str, ...]
    reductions: Mapping[str, ReduceOp]
    readable: bool
    alone: tuple[str, str, str]
    words: tuple[tuple[str, str], ...] = ()
    columns: str = ""
    blocks: Sequence[int] = BLOCKS

    def say(self, text: str) -> str:
        """A message or remedy, which is written for epilogues, in the words of the section."""
        for pattern, word in self.words:
            text = re.sub(pattern, word, text)
        return text


EPILOGUE = Context("epilogue", ("acc",), REDUCTIONS, False, (OUTPUT_WITHOUT_ACC, "acc", "use acc in it"))
ROWS = Context(
    "rows",
    (),
    ROW_REDUCTIONS,
    True,
    (OUTPUT_WITHOUT_ROW, "a tensor with rows", "use one in it: what is the same for all rows needs no kernel of rows"),
    (
        (r"`@` belongs in `mainloop`", "a product of matrices is no value of a row"),
        (r"the product is called acc here", "write it as a kernel of its own, `kernel: gemm`"),
        (r"no tile has a whole row: .*", "write it out, as the shipped specs of `kernel: rowwise` do"),
        (r"write it out, into an output.*", "write it out, of two tensors: silu(x) * g"),
        (r"in `mainloop` or `epilogue`", "under `rows`"),
        (r"under `epilogue`", "under `rows`"),
        (r"tiles that run later", "rows that are computed later"),
        (r"(this|the) epilogue", "`rows`"),
        (r"in a gated product", "next to slices"),
        (r"\bacc\b", "x"),
    ),
)
