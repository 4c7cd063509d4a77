"""The rates of known GPUs, and those of the GPU at hand.

Sources: NVIDIA H100 and H200 data sheets (SXM: memory bandwidth, dense tensor-core rate) and the Hopper architecture
white paper (132 SMs, 50 MB L2, 1.83 GHz boost for the dense rate). The others were fitted to the times of whole kernels
in short runs, mostly below the power limit (docs/performance/cost-model.md): what the tensor core would keep up if
nothing else took time, what L2 gives, what passes between its halves. They carry what the formula leaves out, so that
a sustained rate may exceed the data sheet's; a kernel takes the longer of both.

Importing this module imports neither torch nor cutlass.
"""

from __future__ import annotations

from typing import Any, NamedTuple


class Rates(NamedTuple):
    """What one GPU offers. sms: streaming multiprocessors. flops_16bit: dense, per second; sustained_flops_16bit: what
    the tensor core keeps up among other work. l2_bytes: size of L2. l2_bytes_per_clock: what L2 gives to all SMs
    together. halves_bytes_per_clock: what passes from one half of L2 to the other."""

    sms: int
    clock_hz: int
    flops_16bit: int
    sustained_flops_16bit: int
    hbm_bytes_per_s: int
    l2_bytes: int
    l2_bytes_per_clock: int
    halves_bytes_per_clock: int

    def of_part(self, sms: int) -> Rates:
        """What so many of its SMs offer: memory and L2 are the whole device's."""
        sms = min(sms, self.sms)
        flops, sustained = (rate * sms // self.sms for rate in (self.flops_16bit, self.sustained_flops_16bit))
        return self._replace(sms=sms, flops_16bit=flops, sustained_flops_16bit=sustained)


_H200 = Rates(
    sms=132,
    clock_hz=1_830 * 10**6,
    flops_16bit=989_500 * 10**9,
    sustained_flops_16bit=1_094 * 10**12,
    hbm_bytes_per_s=4_800 * 10**9,
    l2_bytes=50 * 2**20,
    l2_bytes_per_clock=6_200,
    halves_bytes_per_clock=3_200,
)
# By what specs call the device: architecture, rates. The first of an architecture is its default.
RATES: dict[str, tuple[str, Rates]] = {
    "h200": ("sm_90a", _H200),
    "h100": (
        "sm_90a",
        _H200._replace(
            sustained_flops_16bit=1_084 * 10**12,
            hbm_bytes_per_s=3_350 * 10**9,
            l2_bytes_per_clock=4_060,
            halves_bytes_per_clock=2_780,
        ),
    ),
}


VARIANTS = {"nvl", "pcie"}  # words of the names of boards that are not SXM ones


def is_named(driver_name: str, name: str) -> bool:
    """Whether the driver's name of a device, NVIDIA H100 80GB HBM3, is that of a known one, h100. Boards of another
    form factor have other memories and clocks."""
    words = driver_name.lower().split()
    return name in words and VARIANTS.isdisjoint(words)


def find_rates(facts: Any, arch: str) -> tuple[Rates, str]:
    """The rates of a CUDA device, given torch's properties of it, and what they are: the name of a known device, or
    "" where they are scaled.

    A known device has the name (`is_named`) and the number of SMs. For any other, the rates of the known device of the
    same architecture with the nearest memory bandwidth are scaled: those of SMs and L2 by SMs and clock, memory by
    clock and width of its bus, L2 as the driver says.
    """
    known = {name: rates for name, (built, rates) in RATES.items() if built == arch}
    for name, rates in known.items():
        if is_named(facts.name, name) and facts.multi_processor_count == rates.sms:
            return rates, name
    # What a release of torch does not report counts as unknown: 0.
    memory_clock, bus = (getattr(facts, field, 0) for field in ("memory_clock_rate", "memory_bus_width"))
    moved = 2 * memory_clock * 1000 * bus // 8
    base = min(known.values(), key=lambda rates: abs(rates.hbm_bytes_per_s - moved))
    sms, clock = facts.multi_processor_count, getattr(facts, "clock_rate", 0) * 1000 or base.clock_hz
    boost = min(clock, base.clock_hz)  # the highest clock of a driver is not kept up by tensor cores

    def scale(rate: int) -> int:
        return rate * sms // base.sms

    return (
        Rates(
            sms,
            boost,
            scale(base.flops_16bit) * boost // base.clock_hz,
            scale(base.sustained_flops_16bit) * boost // base.clock_hz,
            moved or base.hbm_bytes_per_s,
            getattr(facts, "L2_cache_size", 0) or base.l2_bytes,
            scale(base.l2_bytes_per_clock),
            scale(base.halves_bytes_per_clock),
        ),
        "",
    )
