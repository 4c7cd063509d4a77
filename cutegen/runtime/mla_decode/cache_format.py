"""Rows of a quantised cache: where their parts lie, and torch functions that write and read them.

Importing this module imports neither torch nor cutlass.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from cutegen.runtime.mla_decode.inputs import LATENT_DIM, ROPE_DIM

BYTES = "uint8"  # what torch calls the elements of such a cache
MOST_SCALE = 256.0  # bf16(scale) of a row is less, as it is multiplied by 2^120 in bf16
LARGEST = 448.0  # of e4m3
NAN_VALUE = 480.0  # what the bytes 0x7f and 0xff count as, by their exponent and mantissa
SCALE_BYTES = 4


@dataclass(frozen=True, slots=True)
class CacheFormat:
    """A row of the cache, in bytes. *_offset: where a part begins.

    With scale_block: the latent part in e4m3, an f32 scale for every scale_block of its values, and the rotary part in
    bf16. A value is bf16(e4m3) * bf16(scale), rounded to bf16. Where scale_block is 0, both parts are e4m3, and one f32
    scale of the whole cache is an argument of a call.
    """

    latent_offset: int
    scale_offset: int
    scale_block: int
    rope_offset: int
    row_bytes: int

    @property
    def per_tensor(self) -> bool:
        """Whether the cache has one scale."""
        return self.scale_block == 0

    @property
    def scales(self) -> int:
        """Scales of a row."""
        return 0 if self.per_tensor else LATENT_DIM // self.scale_block

    @property
    def parts(self) -> dict[str, tuple[int, int]]:
        """(first byte, bytes) of each part, by the key of a spec."""
        if self.per_tensor:
            return {"latent": (self.latent_offset, LATENT_DIM), "rope": (self.rope_offset, ROPE_DIM)}
        return {
            "latent": (self.latent_offset, LATENT_DIM),
            "scale": (self.scale_offset, self.scales * SCALE_BYTES),
            "rope": (self.rope_offset, 2 * ROPE_DIM),
        }

    def pack(self, rows: Any, scales: Any = None) -> Any:
        """u8[..., row_bytes] of rows [..., 576] of any floating dtype, the latent part first.

        scales: f32[..., scales], by default the largest magnitude of each block over 448, and 1 for a block of zeros.
        Where the cache has one scale, that one has to be given, a positive number or a tensor of it. A value is divided
        by bf16(scale), or the one scale, which is what readers multiply by, and saturates at 448. ValueError: a shape
        that does not fit, a value that is no number or infinite, a scale that is not positive, or one that is 256 or
        more in bf16.
        """
        import torch

        if rows.shape[-1] != LATENT_DIM + ROPE_DIM or not rows.is_floating_point():
            raise ValueError(f"rows: need floating-point values [..., {LATENT_DIM + ROPE_DIM}]")
        if not bool(torch.isfinite(rows).all()):
            raise ValueError("rows: have a value that is NaN or infinite; pack finite values only")
        if self.per_tensor:
            return self._pack_by_one(rows, scales)
        lead = rows.shape[:-1]
        blocks = rows[..., :LATENT_DIM].float().reshape(*lead, self.scales, self.scale_block)
        if scales is None:
            most = blocks.abs().amax(-1)
            scales = torch.where(most > 0, (most / LARGEST).clamp(min=torch.finfo(torch.float32).tiny), 1.0)
        self._check_scales(scales, (*lead, self.scales))
        divided = (blocks / scales.to(torch.bfloat16).float()[..., None]).clamp(-LARGEST, LARGEST)
        latent = divided.to(torch.float8_e4m3fn).reshape(*lead, LATENT_DIM)
        return self.assemble(latent, scales, rows[..., LATENT_DIM:])

    def _pack_by_one(self, rows: Any, scale: Any) -> Any:
        import torch

        value = math.nan if scale is None else float(scale)
        if not 0.0 < value < math.inf:
            raise ValueError("scales: this cache has one scale; pass a positive finite number")
        stored = (rows.float() / value).clamp(-LARGEST, LARGEST).to(torch.float8_e4m3fn)
        return self.assemble(stored[..., :LATENT_DIM], None, stored[..., LATENT_DIM:])

    def assemble(self, latent: Any, scales: Any, rope: Any) -> Any:
        """u8[..., row_bytes] of parts as they are stored: e4m3 [..., 512], f32 [..., scales], and the rotary part
        [..., 64], which is rounded to bf16; scales None and a rotary part in e4m3, where the cache has one scale.
        ValueError as of `pack`."""
        import torch

        packed = torch.empty(*latent.shape[:-1], self.row_bytes, dtype=torch.uint8, device=latent.device)
        if self.per_tensor:
            stored: tuple[Any, ...] = latent, rope
        else:
            self._check_scales(scales, (*latent.shape[:-1], self.scales))
            stored = latent, scales.float(), rope.to(torch.bfloat16)
        for (begin, size), part in zip(self.parts.values(), stored):
            packed[..., begin : begin + size] = part.contiguous().view(torch.uint8)
        return packed

    def unpack(self, packed: Any, scale: Any = None) -> Any:
        """bf16[..., 576] of u8[..., row_bytes]: bit for bit the keys that a kernel computes with. Of a cache with one
        scale these are without it, or with `scale`, a number or a tensor of it, times that and rounded."""
        import torch

        if packed.dtype != torch.uint8 or packed.shape[-1] != self.row_bytes:
            raise ValueError(f"packed: needs uint8 [..., {self.row_bytes}]")
        latent, *scaled, rope = (packed[..., begin : begin + size].contiguous() for begin, size in self.parts.values())
        values = _decode(latent)
        if self.per_tensor:
            keys = torch.cat((values, _decode(rope)), -1)
            return keys if scale is None else (keys.float() * scale).to(torch.bfloat16)
        (scales,) = scaled
        factors = scales.view(torch.float32).to(torch.bfloat16).repeat_interleave(self.scale_block, -1)
        return torch.cat((values * factors, rope.view(torch.bfloat16)), -1)

    def _check_scales(self, scales: Any, shape: tuple[int, ...]) -> None:
        import torch

        if tuple(scales.shape) != shape:
            raise ValueError(f"scales: shape {tuple(scales.shape)}, needs {shape}")
        rounded = scales.to(torch.bfloat16).float()
        if not bool(((scales > 0) & (rounded > 0)).all()):
            raise ValueError("scales: need positive numbers that bf16 holds")
        if not bool((rounded < MOST_SCALE).all()):
            raise ValueError(
                f"scales: the largest is {float(scales.max()):g}, in bf16 it has to be less than {MOST_SCALE:g}: "
                f"values over {LARGEST * MOST_SCALE:g} do not fit the format"
            )


def _decode(latent: Any) -> Any:
    """bf16 of the bytes of e4m3."""
    import torch

    values = latent.view(torch.float8_e4m3fn).to(torch.bfloat16)
    return torch.where(latent == 0x7F, NAN_VALUE, torch.where(latent == 0xFF, -NAN_VALUE, values))
