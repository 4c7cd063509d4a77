"""Rows of a quantised cache: where their parts lie, and torch functions that write and read them.

Importing this module imports neither torch nor cutlass.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Any, Literal

from cutegen.runtime.mla_decode.inputs import LATENT_DIM, ROPE_DIM

BYTES = "uint8"  # what torch calls the elements of such a cache
MOST_SCALE = 256.0  # bf16(scale) of a row is less, as it is multiplied by 2^120 in bf16
LARGEST = 448.0  # of e4m3
NAN_VALUE = 480.0  # what the bytes 0x7f and 0xff count as, by their exponent and mantissa
ScaleDtype = Literal["f32", "e8m0"]
SCALE_BYTES: dict[ScaleDtype, int] = {"f32": 4, "e8m0": 1}
PLANE_STEP = 8  # bytes of a row in a plane of scales are a multiple of: what one load takes
# A code n of e8m0 is 2^(n - 127). Those from 135 on, 255 among them, which is NaN, count as this one.
MOST_CODE = 134


@dataclass(frozen=True, slots=True)
class ExtraKeys:
    """Keys of a second cache in one call, of the same format. topk: promised (low, high) of a token's indices into it.
    page_size: rows of a page of it."""

    topk: tuple[int, int]
    page_size: int


@dataclass(frozen=True, slots=True)
class CacheFormat:
    """A row of the cache, in bytes. *_offset: where a part begins.

    With scale_block: the latent part in e4m3, a scale for every scale_block of its values, and the rotary part in bf16,
    if there is one. A value is bf16(e4m3) * bf16(scale), rounded to bf16. Where scale_block is 0, both parts are e4m3,
    and one f32 scale of the whole cache is an argument of a call.

    plane: scales do not lie in the rows, but behind all rows of a page: `plane_bytes` of each row, one row after the
    other. A page is page_size * row_bytes bytes of rows then, and that plane.
    """

    latent_offset: int
    scale_offset: int
    scale_block: int
    rope_offset: int
    row_bytes: int
    latent_dim: int = LATENT_DIM
    rope_dim: int = ROPE_DIM
    scale_dtype: ScaleDtype = "f32"
    plane: bool = False

    @property
    def said(self) -> dict[str, object]:
        """Its fields, but for those that are what most formats have."""
        found = ((f.name, f.default, getattr(self, f.name)) for f in fields(self))
        return {name: value for name, default, value in found if value != default}

    @property
    def per_tensor(self) -> bool:
        """Whether the cache has one scale."""
        return self.scale_block == 0

    @property
    def dim(self) -> int:
        """Values of a row."""
        return self.latent_dim + self.rope_dim

    @property
    def scales(self) -> int:
        """Scales of a row."""
        return 0 if self.per_tensor else self.latent_dim // self.scale_block

    @property
    def scale_bytes(self) -> int:
        """Bytes of a row's scales."""
        return self.scales * SCALE_BYTES[self.scale_dtype]

    @property
    def plane_bytes(self) -> int:
        """Bytes of a row in the plane, unused ones included; 0 where there is none."""
        return -(-self.scale_bytes // PLANE_STEP) * PLANE_STEP if self.plane else 0

    @property
    def token_bytes(self) -> int:
        """All bytes of a row."""
        return self.row_bytes + self.plane_bytes

    @property
    def parts(self) -> dict[str, tuple[int, int]]:
        """(first byte, bytes) of each part of a row, by the key of a spec."""
        rope = self.rope_dim * (1 if self.per_tensor else 2)
        found = {"latent": (self.latent_offset, self.latent_dim)}
        if not self.per_tensor and not self.plane:
            found["scale"] = (self.scale_offset, self.scale_bytes)
        return {**found, "rope": (self.rope_offset, rope)} if rope else found

    def pack(self, rows: Any, scales: Any = None) -> Any:
        """u8[..., token_bytes] of rows [..., dim] of any floating dtype, the latent part first; where scales have a
        plane, pages u8[..., page_size * token_bytes] of rows [..., page_size, dim].

        scales: f32[..., scales], by default the largest magnitude of each block over 448, and 1 for a block of zeros;
        in e8m0 the least power of two that is not less.
        Where the cache has one scale, that one has to be given, a positive number or a tensor of it. A value is divided
        by bf16(scale), or the one scale, which is what readers multiply by, and saturates at 448. ValueError: a shape
        that does not fit, a value that is NaN or infinite, a scale that is not positive, one that is 256 or
        more in bf16, or one that the dtype of scales does not hold.
        """
        import torch

        if rows.shape[-1] != self.dim or not rows.is_floating_point():
            raise ValueError(f"rows: need floating-point values [..., {self.dim}]")
        if not bool(torch.isfinite(rows).all()):
            raise ValueError("rows: have a value that is NaN or infinite; pack finite values only")
        if self.per_tensor:
            return self._pack_by_one(rows, scales)
        lead = rows.shape[:-1]
        blocks = rows[..., : self.latent_dim].float().reshape(*lead, self.scales, self.scale_block)
        if scales is None:
            most = blocks.abs().amax(-1)
            scales = torch.where(most > 0, (most / LARGEST).clamp(min=torch.finfo(torch.float32).tiny), 1.0)
            if self.scale_dtype == "e8m0":
                scales = torch.exp2(torch.log2(scales.double()).ceil()).float()
        self._check_scales(scales, (*lead, self.scales))
        divided = (blocks / scales.to(torch.bfloat16).float()[..., None]).clamp(-LARGEST, LARGEST)
        latent = divided.to(torch.float8_e4m3fn).reshape(*lead, self.latent_dim)
        return self.lay_out(self.assemble(latent, scales, rows[..., self.latent_dim :]))

    def _pack_by_one(self, rows: Any, scale: Any) -> Any:
        import torch

        value = math.nan if scale is None else float(scale)
        if not 0.0 < value < math.inf:
            raise ValueError("scales: this cache has one scale; pass a positive finite number")
        stored = (rows.float() / value).clamp(-LARGEST, LARGEST).to(torch.float8_e4m3fn)
        return self.assemble(stored[..., : self.latent_dim], None, stored[..., self.latent_dim :])

    def assemble(self, latent: Any, scales: Any, rope: Any) -> Any:
        """Rows u8[..., token_bytes] of parts as they are stored: e4m3 [..., latent_dim], f32 [..., scales], and the
        rotary part [..., rope_dim], which is rounded to bf16; scales None and a rotary part in e4m3, where the cache
        has one scale. What belongs to a plane is behind each row still: see `lay_out`. ValueError as of `pack`."""
        import torch

        packed = torch.zeros(*latent.shape[:-1], self.token_bytes, dtype=torch.uint8, device=latent.device)
        stored = {"latent": latent, "rope": rope if self.per_tensor else rope.to(torch.bfloat16)}
        places = dict(self.parts)
        if not self.per_tensor:
            self._check_scales(scales, (*latent.shape[:-1], self.scales))
            stored["scale"] = self._store_scales(scales.float())
            places.setdefault("scale", (self.row_bytes, self.scale_bytes))
        for name, (begin, size) in places.items():
            packed[..., begin : begin + size] = stored[name].contiguous().view(torch.uint8)
        return packed

    def lay_out(self, rows: Any) -> Any:
        """A cache of rows as `assemble` has them, [..., page_size, token_bytes]: pages [..., page_size * token_bytes],
        the plane of each behind its rows. Without a plane, the rows themselves."""
        import torch

        if not self.plane:
            return rows
        pages = (rows[..., : self.row_bytes].flatten(-2), rows[..., self.row_bytes :].flatten(-2))
        return torch.cat(pages, -1)

    def list_rows(self, cache: Any) -> Any:
        """The rows of a cache; what `lay_out` undoes."""
        import torch

        if not self.plane:
            return cache
        size = cache.shape[-1] // self.token_bytes
        rows, plane = cache[..., : size * self.row_bytes], cache[..., size * self.row_bytes :]
        return torch.cat((rows.unflatten(-1, (size, -1)), plane.unflatten(-1, (size, -1))), -1)

    def unpack(self, packed: Any, scale: Any = None) -> Any:
        """What `pack` has packed, in bf16: bit for bit the keys that a kernel computes with. Of a cache with one scale
        these are without it, or with `scale`, a number or a tensor of it, times that and rounded."""
        import torch

        whole = packed.shape[-1] % self.token_bytes == 0 if self.plane else packed.shape[-1] == self.token_bytes
        if packed.dtype != torch.uint8 or not whole:
            raise ValueError(f"packed: needs uint8 [..., {'rows of a page * ' * self.plane}{self.token_bytes}]")
        rows = self.list_rows(packed)
        places = {"scale": (self.row_bytes, self.scale_bytes), **self.parts}
        part = {name: rows[..., begin : begin + size].contiguous() for name, (begin, size) in places.items()}
        values = _decode(part["latent"])
        if self.per_tensor:
            keys = torch.cat((values, _decode(part["rope"])), -1)
            return keys if scale is None else (keys.float() * scale).to(torch.bfloat16)
        factors = self._read_scales(part["scale"]).repeat_interleave(self.scale_block, -1)
        rope = [part["rope"].view(torch.bfloat16)] if self.rope_dim else []
        return torch.cat((values * factors, *rope), -1)

    def _store_scales(self, scales: Any) -> Any:
        """As the cache has them; of e8m0 the codes."""
        import torch

        if self.scale_dtype == "f32":
            return scales
        return (torch.log2(scales.double()) + 127).to(torch.uint8)

    def _read_scales(self, stored: Any) -> Any:
        """bf16 [..., scales] of their bytes."""
        import torch

        if self.scale_dtype == "f32":
            return stored.view(torch.float32).to(torch.bfloat16)
        return torch.exp2(stored.clamp(max=MOST_CODE).double() - 127).to(torch.bfloat16)

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
        if self.scale_dtype == "e8m0" and not bool((torch.frexp(scales.double())[0] == 0.5).all()):
            raise ValueError("scales: need powers of two, which are what e8m0 holds")


def _decode(latent: Any) -> Any:
    """bf16 of the bytes of e4m3."""
    import torch

    values = latent.view(torch.float8_e4m3fn).to(torch.bfloat16)
    return torch.where(latent == 0x7F, NAN_VALUE, torch.where(latent == 0xFF, -NAN_VALUE, values))
