"""Shared memory: the fields of a kernel's SharedStorage, and where CuTe lays them out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from cutegen.dtypes import DType


class Element(NamedTuple):
    """name: of the type in the kernel, such as Float32. bytes: of one, or, where `packing` of them share a byte, of
    those."""

    name: str
    bytes: int
    packing: int = 1

    @classmethod
    def of(cls, dtype: DType) -> Element:
        return cls(dtype.cutlass, dtype.size(dtype.packing), dtype.packing)


MBARRIER, I32, F32 = Element("Int64", 8), Element("Int32", 4), Element("Float32", 4)


class SmemField(NamedTuple):
    """A field. elements: how many; source: the same as the kernel computes it. holds: in words. align: bytes, where it
    begins at a multiple of more than its element takes."""

    name: str
    element: Element
    elements: int
    source: str
    holds: str
    align: int = 0

    @property
    def bytes(self) -> int:
        return self.elements // self.element.packing * self.element.bytes

    @property
    def alignment(self) -> int:
        """What its first byte is at a multiple of."""
        return self.align or self.element.bytes

    @property
    def declared(self) -> str:
        """Its type in SharedStorage."""
        array = f"cute.struct.MemRange[{self.element.name}, {self.source}]"
        return f"cute.struct.Align[{array}, {self.align}]" if self.align else array


@dataclass(frozen=True, slots=True)
class SmemRegion:
    """A field and its offset in bytes."""

    field: SmemField
    offset: int

    @property
    def name(self) -> str:
        return self.field.name

    @property
    def bytes(self) -> int:
        return self.field.bytes

    @property
    def align(self) -> int:
        return self.field.alignment


def place_fields(fields: Iterable[SmemField]) -> tuple[list[int], int]:
    """Offsets of the fields in order, and the size of the whole, as CuTe lays out a struct."""
    offsets, offset, widest = [], 0, 1
    for field in fields:
        align = field.alignment
        offset = -(-offset // align) * align
        offsets.append(offset)
        offset += field.bytes
        widest = max(widest, align)
    return offsets, -(-offset // widest) * widest


def lay_out(fields: Sequence[SmemField]) -> tuple[tuple[SmemRegion, ...], int]:
    """Regions of the fields, and the size of the whole."""
    offsets, total = place_fields(fields)
    return tuple(map(SmemRegion, fields, offsets)), total
