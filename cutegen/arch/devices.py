"""What one GPU offers: the numbers the cost model and the roofline divide by.

The rates are those of `runtime/device_rates.py`, which generated plans read as well.
"""

from __future__ import annotations

from dataclasses import dataclass

from cutegen.diagnostics import CutegenError
from cutegen.dtypes import DType
from cutegen.runtime.device_rates import RATES, Rates

UNRATED = f"the cost model, `tune` and `bench` serve {', '.join(RATES)}"


@dataclass(frozen=True, slots=True)
class Device:
    """name: what a spec calls it. rates: its own, see `Rates`; None where nobody measured them."""

    name: str
    arch: str
    rates: Rates | None

    @property
    def known_rates(self) -> Rates:
        """CutegenError (exit 2): nobody measured them."""
        if self.rates is None:
            raise CutegenError(f"the rates of {self.name} were not measured", UNRATED, exit_code=2)
        return self.rates

    @property
    def sms(self) -> int:
        return self.known_rates.sms

    @property
    def clock_hz(self) -> int:
        return self.known_rates.clock_hz

    @property
    def hbm_bytes_per_s(self) -> int:
        return self.known_rates.hbm_bytes_per_s

    @property
    def flops_16bit(self) -> int:
        """Dense, per second."""
        return self.known_rates.flops_16bit

    def flops(self, dtype: DType) -> int:
        """Dense tensor-core operations per second on operands of that dtype: twice as many for half the width."""
        return dtype.fit(2 * self.flops_16bit)


DEVICES: dict[str, Device] = {name: Device(name, arch, rates) for name, (arch, rates) in RATES.items()}
DEVICES["b200"] = Device("b200", "sm_100a", None)
DEVICES["b300"] = Device("b300", "sm_103a", None)


MOST_SMS = max(rates.sms for _, rates in RATES.values())


def default_device(arch: str) -> Device | None:
    """The device the cost model assumes when a spec names none: the first listed for the arch."""
    return next((d for d in DEVICES.values() if d.arch == arch), None)
