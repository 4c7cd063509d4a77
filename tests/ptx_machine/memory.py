"""Global and shared memory: typed gathers and scatters with bounds and alignment checked."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from .parser import PtxError

WORDS = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}
CHUNK = 16  # bytes: what stmatrix writes at once, the unit of swizzles and of proxy bookkeeping


class Region:
    """One tensor's bytes. Kernels address it by the host address that the tensor has."""

    def __init__(self, name: str, low: int, size: int) -> None:
        self.name, self.low, self.high = name, low, low + size
        self.base = low & -CHUNK
        span = -(-(self.high - self.base) // CHUNK) * CHUNK
        self.bytes = np.frombuffer((ctypes.c_uint8 * span).from_address(self.base), np.uint8)
        self.words = {size: self.bytes.view(dtype) for size, dtype in WORDS.items()}


class GlobalMemory:
    """The regions that a launch may touch."""

    def __init__(self, regions: list[Region]) -> None:
        self.regions = regions
        self.writes = 0

    def region(self, low: int, high: int, write: bool = False) -> Region:
        """The region of the bytes low .. high - 1. PtxError: they are not in one region."""
        for region in self.regions:
            if region.low <= low and high <= region.high:
                return region
        verb = "store to" if write else "load from"
        known = "; ".join(f"{r.name} is {r.low:#x} .. {r.high:#x}" for r in self.regions)
        raise PtxError(f"a {verb} {high - low} bytes at {low:#x}, outside every tensor ({known})")

    def gather(self, addresses: Any, size: int, count: int) -> Any:
        """(lanes, count) words of `size` bytes."""
        words, index = self._index(addresses, size, count, write=False)
        if words is None:
            return np.concatenate([self.gather(addresses[i : i + 1], size, count) for i in range(len(addresses))])
        return words[index[:, None] + np.arange(count)]

    def scatter(self, addresses: Any, size: int, values: Any) -> None:
        words, index = self._index(addresses, size, values.shape[1], write=True)
        self.writes += 1
        if words is None:
            for i in range(len(addresses)):
                self.scatter(addresses[i : i + 1], size, values[i : i + 1])
            return
        words[index[:, None] + np.arange(values.shape[1])] = values

    def _index(self, addresses: Any, size: int, count: int, write: bool) -> tuple[Any, Any]:
        """The words of the region that holds all addresses and where in it; (None, None): they are in several."""
        low, high = int(addresses.min()), int(addresses.max()) + size * count
        check_aligned(addresses, size * count)
        try:
            region = self.region(low, high, write)
        except PtxError:
            if len(addresses) == 1:
                raise
            return None, None
        return region.words[size], ((addresses - np.uint64(region.base)) // np.uint64(size)).astype(np.int64)


def check_aligned(addresses: Any, size: int) -> None:
    if (addresses & (size - 1)).any():
        wrong = int(addresses[(addresses & (size - 1)) != 0][0])
        raise PtxError(f"address {wrong:#x} is not a multiple of {size} bytes")


class SharedMemory:
    """The shared memory of one CTA. Everything starts as NaN patterns.

    unfenced: per 16 bytes, a bit for each warp that wrote there by ordinary stores and has not made that visible to the
    async proxy since (fence.proxy.async). TMA and WGMMA may not read such bytes.
    """

    def __init__(self, size: int, first: int) -> None:
        span = -(-size // 1024) * 1024
        self.size, self.first = size, first
        self.bytes = np.full(span, 0xFF, np.uint8)
        self.words = {n: self.bytes.view(dtype) for n, dtype in WORDS.items()}
        self.chunks = self.bytes.reshape(-1, CHUNK)
        self.unfenced = np.zeros(span // CHUNK, np.uint64)
        self.written: dict[int, list[Any]] = {}

    def check(self, low: int, high: int) -> None:
        if low < self.first or high > self.size:
            raise PtxError(f"shared memory at {low} .. {high} is outside {self.first} .. {self.size}")

    def gather(self, addresses: Any, size: int, count: int) -> Any:
        check_aligned(addresses, size * count)
        self.check(int(addresses.min()), int(addresses.max()) + size * count)
        return self.words[size][(addresses // size)[:, None] + np.arange(count)]

    def scatter(self, addresses: Any, size: int, values: Any, warp: int | None) -> None:
        count = values.shape[1]
        check_aligned(addresses, size * count)
        self.check(int(addresses.min()), int(addresses.max()) + size * count)
        self.words[size][(addresses // size)[:, None] + np.arange(count)] = values
        if warp is not None:  # stores of a peer CTA are not followed
            self.note(addresses // CHUNK, warp)

    def note(self, chunks: Any, warp: int) -> None:
        """Remembers ordinary stores of a warp, until it fences."""
        self.unfenced[chunks] |= np.uint64(1 << warp)
        self.written.setdefault(warp, []).append(chunks)

    def fence(self, warp: int) -> None:
        for chunks in self.written.pop(warp, ()):
            self.unfenced[chunks] &= ~np.uint64(1 << warp)

    def read_async(self, chunks: Any, what: str) -> Any:
        """(..., 16) bytes of 16-byte chunks, through the async proxy."""
        self.check(int(chunks.min()) * CHUNK, (int(chunks.max()) + 1) * CHUNK)
        if self.unfenced[chunks].any():
            owners = int(np.bitwise_or.reduce(self.unfenced[chunks], axis=None))
            warps = [i for i in range(64) if owners >> i & 1]
            raise PtxError(f"{what} reads shared memory that warps {warps} wrote without fence.proxy.async since")
        return self.chunks[chunks]

    def write_async(self, chunks: Any, data: Any) -> None:
        self.check(int(chunks.min()) * CHUNK, (int(chunks.max()) + 1) * CHUNK)
        self.chunks[chunks] = data
        self.unfenced[chunks] = 0
