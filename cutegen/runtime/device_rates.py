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
        """What so many of its SMs offer."""
        return part_of(self, sms)


def part_of(rates: Rates, sms: int) -> Rates:
    """What so many SMs of a device offer: memory and L2 are the whole device's."""
    sms = min(sms, rates.sms)
    return Rates(
        sms,
        rates.clock_hz,
        rates.flops_16bit * sms // rates.sms,
        rates.sustained_flops_16bit * sms // rates.sms,
        rates.hbm_bytes_per_s,
        rates.l2_bytes,
        rates.l2_bytes_per_clock,
        rates.halves_bytes_per_clock,
    )


def scale_rates(base: Rates, sms: int, clock_khz: int, moved: int, l2_bytes: int) -> Rates:
    """The rates of a device that nobody measured: those of SMs and L2 by SMs and clock, memory and L2 as the driver
    says, and where it does not, which is 0, as `base` has them."""
    boost = min(
        clock_khz * 1000 or base.clock_hz, base.clock_hz
    )  # tensor cores do not keep up a driver's highest clock
    return Rates(
        sms,
        boost,
        base.flops_16bit * sms // base.sms * boost // base.clock_hz,
        base.sustained_flops_16bit * sms // base.sms * boost // base.clock_hz,
        moved or base.hbm_bytes_per_s,
        l2_bytes or base.l2_bytes,
        base.l2_bytes_per_clock * sms // base.sms,
        base.halves_bytes_per_clock * sms // base.sms,
    )


def memory_rate(clock_khz: int, bus_bits: int) -> int:
    """Bytes a second of a memory that moves bits twice a clock; 0 where either is not known."""
    return 2 * clock_khz * 1000 * bus_bits // 8


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
    clock, memory_clock, bus, l2 = (
        int(getattr(facts, field, 0))
        for field in ("clock_rate", "memory_clock_rate", "memory_bus_width", "L2_cache_size")
    )
    moved = memory_rate(memory_clock, bus)
    base = min(known.values(), key=lambda rates: abs(rates.hbm_bytes_per_s - moved))
    return scale_rates(base, facts.multi_processor_count, clock, moved, l2), ""
