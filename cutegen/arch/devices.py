"""What one GPU offers: the numbers the cost model and the roofline divide by.

The rates are those of `runtime/device_rates.py`, which generated plans read as well.

B200: 148 SMs, 126 MB of L2 and 8 TB/s, as Chips and Cheese measured and lists them ("Nvidia's B200: Keeping the CUDA
Juggernaut Rolling", 2025). B300 is taken to have the same. It and the devices of sm_120a and sm_121a were written down
without the vendor's documents at hand: check them before you rely on them. Where they are published: NVIDIA DGX B300
data sheet (memory of eight GPUs), and what CUDA's deviceQuery says (SMs, L2); NVIDIA RTX Blackwell GPU Architecture
white paper, table of GeForce RTX 5090; NVIDIA RTX PRO Blackwell GPU Architecture white paper, RTX PRO 6000 Workstation
Edition; NVIDIA DGX Spark user guide, "Hardware Overview" (6,144 CUDA cores, 128 an SM; 273 GB/s), and for its L2
NVIDIA's session about GB10 at Hot Chips 2025.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from cutegen.diagnostics import CutegenError
from cutegen.dtypes import DType
from cutegen.runtime.device_rates import RATES, Rates

UNRATED = f"the cost model, `tune` and `bench` serve {', '.join(RATES)}"


class DataSheet(NamedTuple):
    """What a vendor is said to give for a device."""

    sms: int
    l2_bytes: int
    memory_bytes_per_s: int


@dataclass(frozen=True, slots=True)
class Device:
    """name: what a spec calls it. rates: its own, see `Rates`; None where nobody measured them. facts: of such a one,
    where they are known."""

    name: str
    arch: str
    rates: Rates | None
    facts: DataSheet | None = None

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
DEVICES["b200"] = Device("b200", "sm_100a", None, DataSheet(148, 126 * 2**20, 8_000 * 10**9))
DEVICES["b300"] = Device("b300", "sm_103a", None, DataSheet(148, 126 * 2**20, 8_000 * 10**9))
DEVICES["rtx5090"] = Device("rtx5090", "sm_120a", None, DataSheet(170, 96 * 2**20, 1_792 * 10**9))
DEVICES["rtx_pro_6000"] = Device("rtx_pro_6000", "sm_120a", None, DataSheet(188, 128 * 2**20, 1_792 * 10**9))
DEVICES["dgx_spark"] = Device("dgx_spark", "sm_121a", None, DataSheet(48, 24 * 2**20, 273 * 10**9))


MOST_SMS = max(rates.sms for _, rates in RATES.values())


def default_device(arch: str) -> Device | None:
    """The device the cost model assumes when a spec names none: the first listed for the arch."""
    return next((d for d in DEVICES.values() if d.arch == arch), None)
