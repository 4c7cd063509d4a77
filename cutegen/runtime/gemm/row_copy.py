"""Gathered rows copied to scratch in front of a kernel that multiplies the copy.

Importing this module imports neither torch nor cutlass.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

from cutegen.runtime.arguments import Argument, TensorArg, divided, normalise_strides, slack
from cutegen.runtime.call_faults import Fault
from cutegen.runtime.gemm.gathered_rows import SCALE_STEP, GatheredRows, copied_name

ROWS = 8  # of a CTA, a warp each; eight f32 of neighbouring rows are the 32 bytes that L2 writes at once
THREADS = 32 * ROWS
MOST_FORMS = 1024  # of calls that are remembered to have no fault: a server sees any number of rows


class RowCopy:
    """args: scratch for the rows of the matrix, (m, k), and of its scales: along k (m, k blocks) with strides
    (1, align4(m)), as TMA reads them; of one value a row, (m,).

    turn: held from the launch of a copy to that of the kernel behind it. Threads whose calls go to one stream have
    the same scratch, and what comes between the two would overwrite it."""

    def __init__(self, gathered: GatheredRows, inputs: Sequence[Argument]) -> None:
        self.turn = threading.Lock()
        held = {a.name: (i, a) for i, a in enumerate(inputs) if isinstance(a, TensorArg)}
        self._index, _ = held[gathered.index]
        self._sources = tuple(held[name] for name in gathered.tensors)
        self._blocks = tuple(next((d for d in a.dims if d != gathered.of), "") for _, a in self._sources)
        self.args = tuple(
            TensorArg(copied_name(a.name), a.dtype, (copied_name(a.name),), contiguous=0, align=16)
            for _, a in self._sources
        )

    def sizes(self, m: int, k: int) -> tuple[int, ...]:
        """Elements of each of args. m: rows of the product."""
        return tuple(rows * columns for rows, columns in self._extents(m, k))

    def make_check(
        self,
        args: Sequence[Argument],
        scratch: Sequence[Argument],
        find_faults: Callable[[Sequence[Argument], Sequence[Any]], list[Fault]],
    ) -> Callable[[Sequence[Any]], None]:
        """A check of a whole call before its copy is launched, which raises a ValueError: the kernel behind the copy
        would refuse it too late. args: inputs and outputs; scratch: what may follow them. Faults are looked for once
        for each form of a call, which takes a microsecond to tell."""
        checked: set[Any] = set()

        def check(values: Sequence[Any]) -> None:
            form = tuple(_form(value) for value in values)
            if form in checked:
                return
            own = args if len(values) <= len(args) else (*args, *scratch)
            if find_faults(own, values) or normalise_strides(args, values[: len(args)]) is not None:
                raise ValueError("arguments")  # named, or put right, by who looks for faults
            if len(checked) >= MOST_FORMS:
                checked.clear()
            checked.add(form)

        return check

    def run(
        self,
        kernel: Callable[..., None],
        given: Sequence[Any],
        scratch: Sequence[Any],
        m: int,
        k: int,
        sms: int | None = None,
    ) -> tuple[Any, ...]:
        """Launches `kernel`, the package's copy; what the kernel behind it is given in place of `given`, the tensors of
        the call: copies instead of what is copied, and no index. scratch: those of args. sms: the most to run on; that
        many CTAs then take the rows in turns."""
        extents = self._extents(m, k)
        copies = [scratch[0].as_strided((m, k), (k, 1))]
        for tensor, dim, (pitch, columns) in zip(scratch[1:], self._blocks[1:], extents[1:]):
            copies.append(tensor.as_strided((m, columns), (1, pitch)) if dim else tensor[:m])
        ctas = -(-m // ROWS)
        kernel(
            *(given[i] for i, _ in self._sources), given[self._index], *copies, ctas if sms is None else min(ctas, sms)
        )
        replaced = dict(zip((i for i, _ in self._sources), copies))
        return tuple(replaced.get(i, value) for i, value in enumerate(given) if i != self._index)

    def _extents(self, m: int, k: int) -> tuple[tuple[int, int], ...]:
        """(rows, columns) that there is room for: of the matrix, then of each scale."""
        scales = (copied_extents(m, k, *block) for block in self.scale_blocks)
        return (m, k), *scales

    @property
    def scale_blocks(self) -> tuple[tuple[int, int], ...]:
        """(elements of k, slack) of the blocks of each scale, (0, 0) where it has one value a row."""
        return tuple((divided(dim)[1], slack(dim)) if dim else (0, 0) for dim in self._blocks[1:])


def copied_extents(m: int, k: int, block: int, spare: int) -> tuple[int, int]:
    """(rows, columns) that there is room for in the copy of a scale."""
    return (-(-m // SCALE_STEP) * SCALE_STEP, (k + spare) // block) if block else (m, 1)


def _form(value: Any) -> Any:
    """All of an argument that a call can be refused for, but the places of tensors relative to each other."""
    if hasattr(value, "data_ptr"):
        return value.dtype, value.shape, value.stride(), value.data_ptr() & 127, value.device
    return type(value)
