"""The element types of the spec language, and what torch and CuTe DSL call them."""

from __future__ import annotations

from dataclasses import dataclass

_LARGEST = {"e4m3": 448.0, "e5m2": 57344.0, "e2m1": 6.0}


@dataclass(frozen=True, slots=True)
class DType:
    """One element type.

    bits: storage width. torch, cutlass: attribute names in those modules; torch's elements have whole bytes, `packing`
    of ours each.
    """

    name: str
    bits: int
    torch: str
    cutlass: str

    @property
    def bytes(self) -> int:
        """Of an element. ValueError: it has a part of one."""
        return self.size(1)

    @property
    def width(self) -> str:
        """Of an element, in words."""
        return f"{self.bits // 8} B" if self.bits % 8 == 0 else f"{self.bits} bits"

    @property
    def packing(self) -> int:
        """Elements in one of torch's."""
        return max(8 // self.bits, 1)

    def size(self, elements: int) -> int:
        """Bytes of so many elements. ValueError: they end within one."""
        if elements * self.bits % 8:
            raise ValueError(f"{elements} elements of {self.name} end within a byte")
        return elements * self.bits // 8

    def fit(self, size: int) -> int:
        """Elements in so many bytes."""
        return size * 8 // self.bits

    @property
    def largest(self) -> float | None:
        """What larger values become when they are stored, of types that saturate."""
        return _LARGEST.get(self.name)

    def __str__(self) -> str:
        return self.name


DTYPES: dict[str, DType] = {
    d.name: d
    for d in (
        DType("bf16", 16, "bfloat16", "BFloat16"),
        DType("f16", 16, "float16", "Float16"),
        DType("f32", 32, "float32", "Float32"),
        DType("e4m3", 8, "float8_e4m3fn", "Float8E4M3FN"),
        DType("e5m2", 8, "float8_e5m2", "Float8E5M2"),
        DType("e2m1", 4, "float4_e2m1fn_x2", "Float4E2M1FN"),
        DType("e8m0", 8, "float8_e8m0fnu", "Float8E8M0FNU"),
        DType("i8", 8, "int8", "Int8"),
        DType("i32", 32, "int32", "Int32"),
        DType("i64", 64, "int64", "Int64"),
    )
}
