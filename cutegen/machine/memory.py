"""Global and shared memory: typed gathers and scatters with bounds and alignment checked."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import numpy as np

from cutegen.machine.parser import PtxError
from cutegen.machine.races import Agent, Shadow

WORDS = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}
CHUNK = 16  # bytes: what stmatrix writes at once, the unit of swizzles and of proxy bookkeeping
UNIT = 2  # bytes that are told apart where races are looked for; 1 in tensors of bytes


class Region:
    """One tensor's bytes. Kernels address it by the host address that the tensor has. element: bytes of one. ready:
    written before the kernel in front could start. late: for each unit, whether that one may write it all the same;
    loads of boxes by TMA alone are held to it. before: words by size, as `words`, of what was there before that one
    wrote; a load ahead of the wait for it finds either.

    shadow: of what was written in this launch, None before anything was."""

    def __init__(self, name: str, low: int, size: int, element: int = 2, ready: bool = False) -> None:
        self.ready = ready
        self.late: Any = None
        self.before: dict[int, Any] | None = None
        self.name, self.low, self.high, self.unit = name, low, low + size, min(element, UNIT)
        self.shadow: Shadow | None = None
        self.base = low & -CHUNK
        span = -(-(self.high - self.base) // CHUNK) * CHUNK
        self.bytes: Any = np.frombuffer(memoryview((ctypes.c_uint8 * span).from_address(self.base)), np.uint8)
        self.words = {size: self.bytes.view(dtype) for size, dtype in WORDS.items()}
        self._places: dict[int, Any] = {}

    def places(self, size: int) -> Any:
        """The number of each run of `size` bytes."""
        if size not in self._places:
            self._places[size] = np.arange(len(self.bytes) // size)
        return self._places[size]

    def chunks(self, low: int, size: int) -> tuple[Any, int]:
        """The runs of units, and their width, that the 16-byte chunks from the address `low` on are."""
        first = (low - self.base) // CHUNK
        return np.arange(first, first + size // CHUNK), CHUNK // self.unit


class GlobalMemory:
    """The regions that a launch may touch. An access without an agent is no part of a race: atomics, and polling."""

    def __init__(self, regions: list[Region]) -> None:
        self.regions = regions
        self.describe: Any = None  # of actors; None: races are not looked for

    def region(self, low: int, high: int, write: bool = False) -> Region:
        """The region of the bytes low .. high - 1. PtxError: they are not in one region."""
        for region in self.regions:
            if region.low <= low and high <= region.high:
                return region
        verb = "store to" if write else "load from"
        known = "; ".join(f"{r.name} is {r.low:#x} .. {r.high:#x}" for r in self.regions)
        raise PtxError(f"a {verb} {high - low} bytes at {low:#x}, outside every tensor ({known})")

    def gather(self, addresses: Any, size: int, count: int, agent: Agent | None) -> Any:
        """(lanes, count) words of `size` bytes."""
        region, inside = self._find(addresses, size, count, write=False)
        if region is None:
            singles = (addresses[i : i + 1] for i in range(len(addresses)))
            return np.concatenate([self.gather(a, size, count, agent) for a in singles])
        if agent and region.shadow:
            region.shadow.read(*runs_of(inside, size * count, region.unit), agent)
        return region.words[size][words_of(inside, size, count)]

    def guess(self, addresses: Any, size: int, count: int, agent: Agent | None, draw: Any) -> Any:
        """As `gather`, while the kernel in front may be writing. draw: of random.Random; from 0 to below 1."""
        found = self.gather(addresses, size, count, agent)
        region, inside = self._find(addresses, size, count, write=False)
        if region and region.before:
            share = draw()  # of the lanes that come too early: none, some or all
            early = [share > 0.7 or (share > 0.3 and draw() < 0.5) for _ in addresses]
            found[early] = region.before[size][words_of(inside, size, count)][early]
        return found

    @property
    def guessed(self) -> bool:
        """Whether the kernel in front writes what loads ahead of the wait for it depend on."""
        return any(region.before for region in self.regions)

    def scatter(self, addresses: Any, size: int, values: Any, agent: Agent | None) -> None:
        region, inside = self._find(addresses, size, values.shape[1], write=True)
        if region is None:
            for i in range(len(addresses)):
                self.scatter(addresses[i : i + 1], size, values[i : i + 1], agent)
            return
        if agent:
            self.note_write(region, *runs_of(inside, size * values.shape[1], region.unit), agent)
        region.words[size][words_of(inside, size, values.shape[1])] = values

    def note_write(self, region: Region, runs: Any, width: int, agent: Agent) -> None:
        if self.describe is None:
            return
        if region.shadow is None:
            name = lambda unit: f"{region.name} byte {region.base + unit * region.unit - region.low}"  # noqa: E731
            region.shadow = Shadow(len(region.bytes) // region.unit, name, self.describe)
        region.shadow.write(runs, width, agent)

    def _find(self, addresses: Any, size: int, count: int, write: bool) -> tuple[Region | None, Any]:
        """The region that holds all addresses, and the bytes' places in it; None: they are in several."""
        low, high = extent(addresses, size * count)
        check_aligned(addresses, size * count)
        try:
            region = self.region(low, high, write)
        except PtxError:
            if len(addresses) == 1:
                raise
            return None, None
        return region, (addresses - np.uint64(region.base)).astype(np.int64)


def runs_of(places: Any, size: int, unit: int) -> tuple[Any, int]:
    """The runs of units, and their width, that `size` bytes at each place are; the places are multiples of `size`."""
    return (places // size, size // unit) if size > unit else (places // unit, 1)


def words_of(places: Any, size: int, count: int) -> Any:
    """(accesses, count): the numbers of the words of `size` bytes from each place on."""
    first = places // size
    return first[:, None] + _UP_TO[count] if count > 1 else first[:, None]


_UP_TO = {count: np.arange(count) for count in (2, 4, 8)}


def extent(addresses: Any, size: int) -> tuple[int, int]:
    """The lowest address, and the end of the highest access."""
    listed = addresses.ravel().tolist()  # 32 of them: less time than two reductions by numpy
    return min(listed), max(listed) + size


def check_aligned(addresses: Any, size: int) -> None:
    if size > 1 and np.count_nonzero(addresses & (size - 1)):
        wrong = int(addresses[(addresses & (size - 1)) != 0][0])
        raise PtxError(f"address {wrong:#x} is not a multiple of {size} bytes")


class Operation:
    """A part of a copy. cta: whose shared memory it uses; run: does it; text: what it is; time: the step, in the sense
    of timeline.py, in which it was issued."""

    time = 0

    def __init__(self, cta: Any, run: Any, text: str) -> None:
        self.cta, self.run, self.text = cta, run, text


class SharedMemory:
    """The shared memory of one CTA. Everything starts as NaN patterns.

    unfenced: per 16 bytes, a bit for each warp that wrote there by ordinary stores and has not made that visible to the
    async proxy since (fence.proxy.async). TMA and WGMMA may not read such bytes. copied: a bit for each warp that has
    not fenced since a cp.async wrote there; what such a warp issues may not read them.
    """

    def __init__(self, size: int, first: int, name: str = "", describe: Any = None) -> None:
        """first: the lowest address that may be used. describe: of actors; None: races are not looked for."""
        span = -(-size // 1024) * 1024
        self.size, self.first = size, first
        self.shadow: Shadow | None = None
        if describe:
            place = lambda unit: f"shared+{unit * UNIT - first} of {name}"  # noqa: E731
            self.shadow = Shadow(span // UNIT, place, describe, CHUNK // UNIT)
        self.bytes = np.full(span, 0xFF, np.uint8)
        self.words = {n: self.bytes.view(dtype) for n, dtype in WORDS.items()}
        self.chunks = self.bytes.reshape(-1, CHUNK)
        self.unfenced = np.zeros(span // CHUNK, np.uint64)
        self.copied = np.zeros(span // CHUNK, np.uint64)
        self.any_copied = False  # some bit of `copied` may be set
        self.written: dict[int, list[Any]] = {}

    def check(self, low: int, high: int) -> None:
        if low < self.first or high > self.size:
            raise PtxError(f"shared memory at {low} .. {high} is outside {self.first} .. {self.size}")

    def check_chunks(self, chunks: Any) -> None:
        few = chunks.size <= 32
        first, end = extent(chunks, 1) if few else (int(chunks.min()), int(chunks.max()) + 1)
        self.check(first * CHUNK, end * CHUNK)

    def gather(self, addresses: Any, size: int, count: int, agent: Agent) -> Any:
        check_aligned(addresses, size * count)
        self.check(*extent(addresses, size * count))
        if self.shadow:
            self.shadow.read(*runs_of(addresses, size * count, UNIT), agent)
        return self.words[size][words_of(addresses, size, count)]

    def scatter(self, addresses: Any, size: int, values: Any, agent: Agent, warp: int | None) -> None:
        count = values.shape[1]
        check_aligned(addresses, size * count)
        self.check(*extent(addresses, size * count))
        if self.shadow:
            self.shadow.write(*runs_of(addresses, size * count, UNIT), agent)
        self.words[size][words_of(addresses, size, count)] = values
        if warp is not None:  # stores of a peer CTA are not followed
            self.note(addresses // CHUNK, warp)

    def note(self, chunks: Any, warp: int) -> None:
        """Remembers ordinary stores of a warp, until it fences."""
        self.unfenced[chunks] |= np.uint64(1 << warp)
        self.written.setdefault(warp, []).append(chunks)

    def fence(self, warp: int) -> None:
        if self.any_copied:
            self.copied &= ~np.uint64(1 << warp)
            self.any_copied = bool(self.copied.any())
        for chunks in self.written.pop(warp, ()):
            self.unfenced[chunks] &= ~np.uint64(1 << warp)

    def read_rows(self, chunks: Any, agent: Agent) -> Any:
        """(rows, 16) bytes of 16-byte chunks, by ordinary loads."""
        self.check_chunks(chunks)
        if self.shadow:
            self.shadow.read(chunks, CHUNK // UNIT, agent)
        return self.chunks[chunks]

    def write_rows(self, chunks: Any, data: Any, agent: Agent, warp: int) -> None:
        self.check_chunks(chunks)
        if self.shadow:
            self.shadow.write(chunks, CHUNK // UNIT, agent)
        self.chunks[chunks] = data
        self.note(chunks, warp)

    def check_fenced(self, chunks: Any, what: str, warps: Sequence[int]) -> None:
        """PtxError: ordinary stores or copies to these chunks are not visible to what `warps` issue to the async proxy
        yet."""
        self.check_chunks(chunks)
        if self.written and (owners := int(np.bitwise_or.reduce(self.unfenced[chunks], axis=None))):
            writers = [i for i in range(64) if owners >> i & 1]
            raise PtxError(f"{what} reads shared memory that warps {writers} wrote without fence.proxy.async since")
        owners = int(np.bitwise_or.reduce(self.copied[chunks], axis=None)) if self.any_copied else 0
        missing = [i for i in warps if owners >> i & 1]
        if missing:
            raise PtxError(f"{what} of warps {missing} reads what cp.async wrote, without fence.proxy.async since")

    def read_async(self, chunks: Any, what: str, agents: Sequence[Agent], warps: Sequence[int]) -> Any:
        """(chunks, 16) bytes, through the async proxy, in the name of all the agents, which `warps` issued."""
        self.check_fenced(chunks, what, warps)
        if self.shadow:
            self.shadow.read(chunks, CHUNK // UNIT, *agents)
        return self.chunks[chunks]

    def write_async(self, chunks: Any, data: Any, agent: Agent) -> None:
        self.check_chunks(chunks)
        if self.shadow:
            self.shadow.write(chunks, CHUNK // UNIT, agent)
        self.chunks[chunks] = data
        if self.written:
            self.unfenced[chunks] = 0
        if self.any_copied:
            self.copied[chunks] = 0

    def write_copied(self, places: Any, data: Any, agent: Agent) -> None:
        """By cp.async, which is no part of the async proxy. data: (copies, bytes), of which each goes to a place."""
        width = data.shape[1]
        self.check(*extent(places, width))
        if self.shadow:
            self.shadow.write(*runs_of(places, width, UNIT), agent)
        self.bytes[places[:, None] + np.arange(width)] = data
        chunks = places // CHUNK
        if width == CHUNK:
            self.unfenced[chunks] = 0
        self.copied[chunks] = ~np.uint64(0)
        self.any_copied = True
