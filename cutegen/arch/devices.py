"""What one GPU offers: the numbers the cost model and the roofline divide by.

The rates are those of `runtime/device_rates.py`, which generated plans read as well.
"""

from __future__ import annotations

from dataclasses import dataclass

from cutegen.dtypes import DType
from cutegen.runtime.device_rates import RATES, Rates


@dataclass(frozen=True, slots=True)
class Device:
    """name: what a spec calls it. rates: its own, see `Rates`."""

    name: str
    arch: str
    rates: Rates

    @property
    def sms(self) -> int:
        return self.rates.sms

    @property
    def clock_hz(self) -> int:
        return self.rates.clock_hz

    @property
    def hbm_bytes_per_s(self) -> int:
        return self.rates.hbm_bytes_per_s

    @property
    def flops_16bit(self) -> int:
        """Dense, per second."""
        return self.rates.flops_16bit

    def flops(self, dtype: DType) -> int:
        """Dense tensor-core operations per second on operands of that dtype: twice as many for half the width."""
        return self.flops_16bit * 2 // dtype.bytes


DEVICES: dict[str, Device] = {name: Device(name, arch, rates) for name, (arch, rates) in RATES.items()}


MOST_SMS = max(d.sms for d in DEVICES.values())


def default_device(arch: str) -> Device | None:
    """The device the cost model assumes when a spec names none: the first listed for the arch."""
    return next((d for d in DEVICES.values() if d.arch == arch), None)
