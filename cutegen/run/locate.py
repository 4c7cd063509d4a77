"""Where a wrong element lies, in the words of the kernel: CTA tile, warpgroup, epilogue subtile; of a file that is not
known to be a product, by its index."""

from __future__ import annotations

from typing import Any

from cutegen.arch import ARCHS
from cutegen.run.subject import Subject
from cutegen.runtime.accuracy import Comparison


def describe(subject: Subject, output: int, name: str, found: Comparison, shape: tuple[int, ...], tiling: Any) -> str:
    """The first wrong element of output number `output`, its place in the kernel, and the box around all of them."""
    assert found.first is not None
    if subject.plan and subject.proving:
        labels = subject.proving.name_axes(subject.plan, output)
        place = subject.proving.locate(subject.plan, output, shape, found.first, tiling)
    else:
        labels, place = _locate_product(subject, output, found.first, tiling)
    index = ", ".join(f"{label}={i}" if label else str(i) for label, i in zip(labels, found.first))
    text = f"{name}[{index}] is {found.actual:.6g}, reference {found.expected:.6g}" + f" ({place})" * bool(place)
    box = ", ".join(
        f"{label or f'axis {axis}'} {lo}..{hi} of {size}" if lo != hi else f"{label or f'axis {axis}'} {lo} of {size}"
        for axis, (label, lo, hi, size) in enumerate(zip(labels, found.low, found.high, shape))
    )
    return f"{found.mismatches} of {found.elements} wrong, all within {box}; first {text}"


def _locate_product(subject: Subject, output: int, index: tuple[int, ...], tiling: Any) -> tuple[list[str], str]:
    m_axis, n_axis, *batch = _axes(subject, output, len(index))
    labels = {m_axis: "m", n_axis: "n", **dict.fromkeys(batch, "batch")}
    band = ARCHS[subject.plan.arch].mma_m if subject.plan else 0
    place = _place(index[m_axis], index[n_axis], tiling, band) if m_axis is not None else ""
    return [labels.get(axis, "") for axis in range(len(index))], place


def _axes(subject: Subject, output: int, rank: int) -> tuple[Any, ...]:
    if subject.plan:
        axes = subject.plan.outputs[output].axes
        return axes if len(axes) >= 2 else (None, None)  # of a reduction: every tile of a row has a part in it
    product = rank >= 2 and subject.roles.m and subject.roles.n
    return (rank - 2, rank - 1, *range(rank - 2)) if product else (None, None)


def _place(m: int, n: int, tiling: Any, band: int) -> str:
    """CTA tile (row, column of tiles), and inside of it the warpgroup and the subtile. band: rows of an MMA."""
    tile_m, tile_n, _ = tiling.tile
    row, column = m % tile_m, n % tile_n
    text = f"CTA tile ({m // tile_m}, {n // tile_n}), row {row}, column {column} of it"
    subtile = getattr(tiling, "epilogue_tile", None)
    if subtile:
        # Warpgroups that share a tile split its rows in bands; with less rows than that per subtile group they
        # take turns at whole tiles instead.
        together = subtile[0] // band
        group = f"warpgroup {row % subtile[0] // band}" if together == tiling.consumers else "either warpgroup"
        text += f"; {group}, epilogue subtile ({row // subtile[0]}, {column // subtile[1]})"
    return text
