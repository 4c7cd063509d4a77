"""Where a wrong element lies, in the words of the kernel: CTA tile, warpgroup, epilogue subtile; of a file that is not
known to be a product, by its index."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from cutegen.families.product_space import locate_in_tile
from cutegen.run.subject import Subject
from cutegen.runtime.accuracy import Comparison


def describe(subject: Subject, output: int, name: str, found: Comparison, shape: tuple[int, ...], tiling: Any) -> str:
    """The first wrong element of output number `output`, its place in the kernel, and the box around all of them."""
    assert found.first is not None
    if subject.plan and subject.proving:
        labels: Sequence[str] = subject.proving.name_axes(subject.plan, output)
        place = subject.proving.locate(subject.plan, output, shape, found.first, tiling)
    else:
        labels, place = _locate_in_file(subject, found.first, tiling)
    index = ", ".join(f"{label}={i}" if label else str(i) for label, i in zip(labels, found.first))
    text = f"{name}[{index}] is {found.actual:.6g}, reference {found.expected:.6g}" + f" ({place})" * bool(place)
    box = ", ".join(
        f"{label or f'axis {axis}'} {lo}..{hi} of {size}" if lo != hi else f"{label or f'axis {axis}'} {lo} of {size}"
        for axis, (label, lo, hi, size) in enumerate(zip(labels, found.low, found.high, shape))
    )
    return f"{found.mismatches} of {found.elements} wrong, all within {box}; first {text}"


def _locate_in_file(subject: Subject, index: tuple[int, ...], tiling: Any) -> tuple[list[str], str]:
    """Of functions whose output is taken for a product's: names of its axes, and the place."""
    rank = len(index)
    if rank < 2 or not (subject.roles.m and subject.roles.n):
        return [""] * rank, ""
    return ["batch"] * (rank - 2) + ["m", "n"], locate_in_tile(index[-2], index[-1], tiling, 0)
