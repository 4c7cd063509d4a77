"""Shipped MLA decode packages on the PTX machine, with what their specs promise."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from cutegen.machine import Simulation, load
from cutegen.run.subject import Subject
from cutegen.runtime.accuracy import compare

ROOT = Path(__file__).parents[1]
BF16, F16 = (f"mla_decode_{kind}_sm90a" for kind in ("bf16", "f16"))
UNIT_1 = "seesaw_unit_1_split_columns"


def dims(batch: int, query_len: int, heads: int, kv_len: int) -> dict[str, int]:
    return {"batch": batch, "query_len": query_len, "heads": heads, "kv_len": kv_len}


CACHE, TABLE, LENGTHS = 1, 2, 3  # arguments, where q is one


def new_tokens(q: Any, cache: Any, table: Any, lengths: Any, *others: Any) -> dict[int, Any]:
    """What nobody promises to be there when a kernel may start: all of the cache but the keys before the new tokens."""
    import torch

    late, page_size = torch.ones(cache.shape[:2], dtype=torch.bool), cache.shape[1]
    for row, length in zip(table.tolist(), lengths.tolist()):
        for first in range(0, length - q.shape[1], page_size):
            late[row[first // page_size], : length - q.shape[1] - first] = False
    return {CACHE: late}


def unchanged(q: Any, cache: Any, table: Any, lengths: Any, *others: Any) -> dict[int, Any]:
    """What guesses are made by, where the kernel in front writes none of it."""
    return {LENGTHS: lengths}


PROMISED: dict[str, Any] = {"ready": (CACHE, TABLE), "late": new_tokens, "before": unchanged}


def loaded(name: str, **options: Any) -> Subject:
    return loaded_in(Simulation(**{**PROMISED, **options}), name)


def loaded_in(simulation: Simulation, name: str) -> Subject:
    return load(ROOT / "generated" / name, simulation)


def reached(simulation: Simulation, pattern: re.Pattern[str]) -> list[bool]:
    """Of each such instruction, whether any launch executed it."""
    return [
        bool(was)
        for assembler in simulation.assemblers
        for instruction, was in zip(assembler.program.instructions, assembler.reached)
        if pattern.match(instruction.text)
    ]


def assert_right(plan: Any, inputs: Any, outputs: Any) -> None:
    expected = plan.reference_fn(*inputs, precision="float64")
    for i, (found, reference) in enumerate(zip(outputs, expected)):
        result = compare(found, reference, plan.output_tolerance(i, inputs, str(reference.dtype)[6:]))
        assert not result.mismatches, result
