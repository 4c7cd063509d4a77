"""A plan whose dispatch asks first what was measured fastest. Imports neither torch nor cutlass."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from typing import ClassVar, Literal

from cutegen.runtime.base import BasePlan, Table, current_device


class MeasuredPlan(BasePlan):
    """winners: by device, as the driver names it, and by the dims of a call that decide, but one: (last extent of that
    one, key), ascending, "" being whatever runs calls that nobody measured. anywhere: the keys that may run those."""

    winners: ClassVar[Mapping[str, Mapping[tuple[int, ...], tuple[tuple[int, str], ...]]]] = {}
    anywhere: ClassVar[tuple[str, ...]] = ()

    def __init__(self, on_miss: Literal["compile", "warn", "error"] = "compile", sms: int | None = None) -> None:
        self._winners = Table(self._device_winners)
        super().__init__(on_miss, sms)

    def find_winner(self, device: int | None, point: tuple[int, ...], extent: int) -> str:
        """The key measured fastest for such calls on a CUDA device (None: the current one); "" where none was."""
        found = self._winners[current_device() if device is None else device].get(point)
        return found[1][bisect_left(found[0], extent)] if found else ""

    def _device_winners(self, index: int) -> dict[tuple[int, ...], tuple[list[int], list[str]]]:
        """(bounds, keys) by point; a key more than bounds: beyond the last bound, nobody measured."""
        table = self.winners.get(_device_name(index), {})
        return {p: ([last for last, _ in rows], [*(key for _, key in rows), ""]) for p, rows in table.items()}

    def get_warmup_keys(self) -> tuple[str, ...]:
        """What `dispatch` can return on the current device; without one, on any."""
        here = _device_name(current_device())
        if not here or not self.anywhere:
            return tuple(self.tilings)
        measured = {key for rows in self.winners.get(here, {}).values() for _, key in rows}
        return tuple(key for key in self.tilings if self.full_key(key) in {*measured, *self.anywhere})


def _device_name(index: int) -> str:
    """As the driver names it; "" for -1."""
    if index < 0:
        return ""
    import torch

    return str(torch.cuda.get_device_name(index))
