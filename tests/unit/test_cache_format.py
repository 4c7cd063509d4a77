"""Rows of a quantised cache in torch: written, read, and refused."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

import torch

from cutegen.runtime.mla_decode.cache_format import CacheFormat
from cutegen.runtime.mla_decode.inputs import crest_factor, draw_rows

V32 = CacheFormat(latent_offset=0, scale_offset=512, scale_block=128, rope_offset=528, row_bytes=656)
WHOLE = CacheFormat(latent_offset=0, scale_offset=0, scale_block=0, rope_offset=512, row_bytes=576)
TURNED = CacheFormat(latent_offset=128, scale_offset=640, scale_block=64, rope_offset=0, row_bytes=672)
V4 = CacheFormat(
    latent_offset=0, scale_offset=0, scale_block=64, rope_offset=448, row_bytes=576, latent_dim=448,
    scale_dtype="e8m0", plane=True,
)  # fmt: skip
NO_ROPE = CacheFormat(
    latent_offset=0, scale_offset=512, scale_block=128, rope_offset=528, row_bytes=528, rope_dim=0
)  # fmt: skip


def test_scales_in_a_plane_lie_behind_the_rows_of_a_page() -> None:
    """As DeepSeek V4 writes a page: rows of 576 bytes, then 8 of each row's scales."""
    rows = torch.zeros(3, 16, 512)
    rows[1, 2, 0], rows[1, 2, 447], rows[1, 2, 511] = 448.0, -56.0, 1.0
    scales = torch.ones(3, 16, 7)
    scales[1, 2, 6] = 0.25
    pages = V4.pack(rows, scales)
    assert (V4.token_bytes, pages.shape) == (584, (3, 16 * 584))
    row, plane = pages[1][2 * 576 : 3 * 576], pages[1][16 * 576 :].view(16, 8)
    assert (int(row[0]), int(row[447])) == (0x7E, 0xF6)
    assert row[448:].view(torch.bfloat16).tolist() == [0.0] * 63 + [1.0]
    assert plane[2].tolist() == [127] * 6 + [125, 0]
    assert torch.equal(V4.unpack(pages), rows.to(torch.bfloat16))
    assert torch.equal(V4.unpack(pages[1]), rows[1].to(torch.bfloat16))


def test_every_code_of_a_scale_is_read() -> None:
    """Those of 2^8 and more, NaN among them, count as 2^7."""
    rows = V4.pack(torch.zeros(40, 7, 512)).view(40, -1)
    codes = torch.arange(40 * 7 * 7).remainder(256).to(torch.uint8).view(40, 7, 7)
    rows[:, 7 * 576 :].view(40, 7, 8)[..., :7] = codes
    rows[:, : 7 * 576].view(40, 7, 576)[..., :448] = 0x39  # 1.125
    expected = torch.exp2(codes.clamp(max=134).double() - 127) * 1.125
    found = V4.unpack(rows)[..., :448].unflatten(-1, (7, 64))
    assert torch.equal(found, expected.float().to(torch.bfloat16)[..., None].expand_as(found))


def test_scales_in_e8m0_are_powers_of_two() -> None:
    rows = torch.randn(2, 64, 512, generator=torch.Generator().manual_seed(2)) * 1000
    found = V4.unpack(V4.pack(rows)).float()
    assert bool(((found - rows).abs() <= rows.abs() * 2.0**-4 + 4.0).all())
    with pytest.raises(ValueError, match="powers of two"):
        V4.pack(rows, torch.full((2, 64, 7), 3.0))
    with pytest.raises(ValueError, match=r"needs uint8 \[..., rows of a page \* 584\]"):
        V4.unpack(torch.zeros(2, 585, dtype=torch.uint8))


def test_rows_without_a_rotary_part() -> None:
    rows = torch.randn(2, 3, 512, generator=torch.Generator().manual_seed(4))
    packed = NO_ROPE.pack(rows)
    assert packed.shape == (2, 3, 528)
    assert bool(((NO_ROPE.unpack(packed).float() - rows).abs() <= rows.abs() * 2.0**-4 + 0.01).all())
    with pytest.raises(ValueError, match="512"):
        NO_ROPE.pack(torch.zeros(2, 576))


@pytest.mark.parametrize("form", [V32, TURNED])
def test_what_is_packed_comes_back(form: CacheFormat) -> None:
    rows = torch.randn(3, 5, 576, generator=torch.Generator().manual_seed(0)) * torch.logspace(-3, 3, 5)[:, None]
    packed = form.pack(rows)
    assert packed.shape == (3, 5, form.row_bytes)
    found = form.unpack(packed).float()
    assert torch.equal(found[..., 512:], rows[..., 512:].to(torch.bfloat16).float())
    most = rows[..., :512].reshape(3, 5, -1, form.scale_block).abs().amax(-1, keepdim=True)
    error = (found - rows)[..., :512].reshape(3, 5, -1, form.scale_block).abs()
    near = rows[..., :512].reshape(error.shape).abs() * (2.0**-4 + 2.0**-8) + most * 2.0**-10 / 448
    assert bool((error <= near).all())
    assert bool((found[..., :512] != 0).any(-1).all())


def test_where_parts_lie() -> None:
    """As DeepSeek V3.2 writes a row: values, scales, rotary part."""
    rows = torch.zeros(1, 576)
    rows[0, 0], rows[0, 130], rows[0, 512] = 448.0, -224.0, 1.0
    packed = V32.pack(rows, torch.tensor([[1.0, 0.5, 1.0, 1.0]]))[0]
    assert packed[:512].nonzero().flatten().tolist() == [0, 130]
    assert (int(packed[0]), int(packed[130])) == (0x7E, 0xFE)
    assert packed[512:528].view(torch.float32).tolist() == [1.0, 0.5, 1.0, 1.0]
    assert packed[528:].view(torch.bfloat16).tolist() == [1.0] + [0.0] * 63


def test_every_byte_is_read() -> None:
    latent = torch.arange(512).remainder(256).to(torch.uint8).view(1, 512)
    scales = torch.tensor([[1.0, 2.0**-100, 1.00390625, 255.0]])
    packed = V32.assemble(latent.view(torch.float8_e4m3fn), scales, torch.zeros(1, 64))
    magnitudes = [(b & 7) * 2.0**-9 if b & 0x78 == 0 else (8 + (b & 7)) * 2.0 ** ((b >> 3) - 10) for b in range(128)]
    values = torch.tensor([*magnitudes, *(-m for m in magnitudes)] * 2, dtype=torch.float64)
    factors = scales.to(torch.bfloat16).double().repeat_interleave(128, -1)[0]
    expected = (values * factors).float().to(torch.bfloat16)
    assert torch.equal(V32.unpack(packed)[0, :512], expected)


@pytest.mark.parametrize(("scale", "ok"), [(255.4, True), (255.5, False), (256.0, False), (float("inf"), False)])
def test_scales_are_refused_as_bf16_rounds_them(scale: float, ok: bool) -> None:
    rows, scales = torch.zeros(1, 576), torch.full((1, 4), scale)
    if ok:
        assert V32.unpack(V32.pack(rows, scales)).isfinite().all()
        return
    with pytest.raises(ValueError, match="less than 256"):
        V32.pack(rows, scales)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda rows: rows[:, :575], "576"),
        (lambda rows: rows.int(), "floating"),
        (lambda rows: rows.index_fill(1, torch.tensor([3]), float("nan")), "NaN"),
        (lambda rows: rows + 2.0e5, "values over 114688"),
    ],
)
def test_rows_are_refused(change: object, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        V32.pack(change(torch.ones(2, 576)))  # type: ignore[operator]


@pytest.mark.parametrize("scales", [torch.ones(2, 3), torch.zeros(2, 4), -torch.ones(2, 4), torch.full((2, 4), 1e-45)])
def test_scales_are_refused(scales: object) -> None:
    with pytest.raises(ValueError, match="scales"):
        V32.pack(torch.ones(2, 576), scales)


def test_packed_rows_are_bytes_of_the_format() -> None:
    for packed in (torch.zeros(2, 655, dtype=torch.uint8), torch.zeros(2, 656, dtype=torch.int8)):
        with pytest.raises(ValueError, match="uint8"):
            V32.unpack(packed)


def test_one_scale_of_a_cache() -> None:
    rows = torch.randn(4, 576, generator=torch.Generator().manual_seed(1))
    rows[0, 3], rows[1, 575] = 1e4, -1e4  # saturate
    scale = torch.tensor([0.0078])
    packed = WHOLE.pack(rows, scale)
    assert packed.shape == (4, 576)
    expected = (rows / 0.0078).clamp(-448, 448).to(torch.float8_e4m3fn)
    assert torch.equal(packed, expected.view(torch.uint8))
    assert torch.equal(WHOLE.unpack(packed), expected.to(torch.bfloat16))
    assert torch.equal(WHOLE.unpack(packed, scale), (expected.float() * scale).to(torch.bfloat16))


def test_every_byte_is_read_without_a_scale() -> None:
    packed = torch.arange(576).remainder(256).to(torch.uint8)
    magnitudes = [(b & 7) * 2.0**-9 if b & 0x78 == 0 else (8 + (b & 7)) * 2.0 ** ((b >> 3) - 10) for b in range(128)]
    values = torch.tensor([*magnitudes, *(-m for m in magnitudes)])
    assert torch.equal(WHOLE.unpack(packed).float(), values.repeat(3)[:576])


@pytest.mark.parametrize("scale", [None, 0.0, -1.0, float("nan"), float("inf")])
def test_one_scale_is_refused(scale: float | None) -> None:
    with pytest.raises(ValueError, match="one scale; pass a positive finite number"):
        WHOLE.pack(torch.ones(2, 576), scale)


def test_the_crest_factor_is_that_of_what_is_drawn() -> None:
    """A row's root mean square is drawn as well, so a single row may have a higher one."""
    torch.manual_seed(3)
    assert crest_factor(None) == 0.0
    for form in (V32, WHOLE):
        latent = form.unpack(draw_rows(form, (4000,), "cpu"))[..., :512].double()
        rms = latent.square().mean(-1, keepdim=True).sqrt()
        found = float((latent.abs() / rms).max())
        assert 0.7 * crest_factor(form) < found < 1.5 * crest_factor(form)
