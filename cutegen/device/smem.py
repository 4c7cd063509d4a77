"""Swizzled shared-memory layouts that TMA, WGMMA and stmatrix agree on."""

import math

import cutlass.cute as cute
from cutlass.cute.nvgpu import warpgroup

# Rows of 128, 64, 32 or 16 bytes along the contiguous mode (PTX ISA, wgmma matrix-descriptor swizzle modes).
_SWIZZLES = {128: "SW128", 64: "SW64", 32: "SW32", 16: "INTER"}

_BOX_ALIGN = 32  # f32 elements: 128 bytes


def staged_layout(dtype, rows, columns, stages, *, columns_contiguous, swizzle_bytes):
    """Layout of `stages` tiles of (rows, columns) elements, swizzled in rows of `swizzle_bytes`."""
    prefix = "K" if columns_contiguous else "MN"
    kind = getattr(warpgroup.SmemLayoutAtomKind, f"{prefix}_{_SWIZZLES[swizzle_bytes]}")
    atom = warpgroup.make_smem_layout_atom(kind, dtype)
    return cute.tile_to_shape(atom, (rows, columns, stages), order=(0, 1, 2) if columns_contiguous else (1, 0, 2))


def epilogue_layout(dtype, tile, slots, *, n_major):
    """Layout of `slots` epilogue tiles (m, n), with the widest swizzle that the contiguous extent fills."""
    swizzle = math.gcd(128, tile[1 if n_major else 0] * dtype.width // 8)
    return staged_layout(dtype, *tile, slots, columns_contiguous=n_major, swizzle_bytes=swizzle)


def scale_layout(rows, blocks, stages):
    """Layout of `stages` boxes of (rows, blocks) f32 factors, each 128-byte aligned as TMA wants it."""
    pitch = cute.ceil_div(rows * blocks, _BOX_ALIGN) * _BOX_ALIGN
    return cute.make_layout((rows, blocks, stages), stride=(1, rows, pitch))


def transposed(tile):
    """The tile (rows, columns) as (columns, rows), in the same place."""
    return cute.make_tensor(tile.iterator, cute.select(tile.layout, mode=[1, 0]))


def smem_tensor(field, layout, dtype=None):
    """The tensor over a SharedStorage field that was sized for `layout`. dtype: of elements, if not the field's."""
    return field.get_tensor(layout.outer, swizzle=layout.inner, dtype=dtype)
