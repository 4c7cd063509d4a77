"""What one GPU offers: the numbers the cost model and the roofline divide by.

Sources: NVIDIA H100 and H200 data sheets (SXM: memory bandwidth, dense tensor-core rate) and the Hopper
architecture white paper (132 SMs, 50 MB L2, 1.83 GHz boost for the dense rate). They are ceilings of the data sheet;
`bench` measures what a machine sustains.

The sustained rate is what ranks candidates. Of the H200 it is fitted to the times of whole kernels in short runs,
mostly below the power limit (docs/performance/cost-model.md): what the tensor core would keep up if nothing else took
time. In long runs, at the power limit, whole kernels reach 690 TFLOP/s. Of the H100 it is the same share of the data
sheet.
"""

from __future__ import annotations

from dataclasses import dataclass

from cutegen.dtypes import DType


@dataclass(frozen=True, slots=True)
class Device:
    """sms: streaming multiprocessors. l2_bytes, hbm_bytes_per_s, flops_16bit (dense, per s), clock_hz.
    sustained_flops_16bit: of flops_16bit, what the tensor core keeps up."""

    name: str
    arch: str
    sms: int
    l2_bytes: int
    hbm_bytes_per_s: int
    flops_16bit: int
    clock_hz: int
    sustained_flops_16bit: int

    def flops(self, dtype: DType) -> int:
        """Dense tensor-core operations per second on operands of that dtype: twice as many for half the width."""
        return self.flops_16bit * 2 // dtype.bytes


DEVICES: dict[str, Device] = {
    d.name: d
    for d in (
        Device(
            name="h200",
            arch="sm_90a",
            sms=132,
            l2_bytes=50 * 2**20,
            hbm_bytes_per_s=4_800 * 10**9,
            flops_16bit=989_500 * 10**9,
            clock_hz=1_830 * 10**6,
            sustained_flops_16bit=860 * 10**12,
        ),
        Device(
            name="h100",
            arch="sm_90a",
            sms=132,
            l2_bytes=50 * 2**20,
            hbm_bytes_per_s=3_350 * 10**9,
            flops_16bit=989_500 * 10**9,
            clock_hz=1_830 * 10**6,
            sustained_flops_16bit=860 * 10**12,
        ),
    )
}


MOST_SMS = max(d.sms for d in DEVICES.values())


def default_device(arch: str) -> Device | None:
    """The device the cost model assumes when a spec names none: the first listed for the arch."""
    return next((d for d in DEVICES.values() if d.arch == arch), None)
