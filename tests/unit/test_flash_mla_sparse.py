"""Sparse calls of the module with FlashMLA's interface, over plans of the CPU."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from mla_cpu import CpuMla, tiling  # noqa: E402

from cutegen.compat import flash_mla  # noqa: E402
from cutegen.compat.flash_mla import FlashMLASchedMeta, flash_mla_with_kvcache, get_mla_metadata  # noqa: E402
from cutegen.runtime.call_faults import find_faults  # noqa: E402
from cutegen.runtime.mla_decode.cache_format import CacheFormat, ExtraKeys  # noqa: E402
from cutegen.runtime.mla_decode.inputs import Draw  # noqa: E402

DIMS = {"batch": 3, "query_len": 2, "heads": 4, "topk": 70}


class Sparse(CpuMla):
    page_size, query_len, heads, causal, topk = 64, (1, 3), (1, 8), False, (1, 100)
    tilings = {"seesaw": tiling(64)}  # noqa: RUF012
    cache_format = CacheFormat(latent_offset=0, scale_offset=512, scale_block=128, rope_offset=528, row_bytes=656)


class WithSink(Sparse):
    has_sink = True


@pytest.fixture(autouse=True)
def plans(monkeypatch: pytest.MonkeyPatch) -> list[Sparse]:
    monkeypatch.setattr(flash_mla, "_given", [])
    monkeypatch.setattr(flash_mla, "_rendered", {})
    given = [Sparse(), WithSink()]
    for plan in given:
        flash_mla.use(plan)
    return given


def call(inputs: tuple[Any, ...], metadata: Any = None, **options: Any) -> Any:
    q, cache, indices, *_ = inputs
    options = {"indices": indices, "is_fp8_kvcache": True, **options}
    return flash_mla_with_kvcache(q, cache.unsqueeze(2), None, None, 512, metadata, **options)


def assert_close(found: Any, expected: Any) -> None:
    torch.testing.assert_close(found[0], expected[0], atol=2**-6, rtol=2**-6)
    torch.testing.assert_close(found[1], expected[1], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("query_len", [1, 2])
def test_lengths_are_those_of_requests(plans: list[Sparse], query_len: int) -> None:
    q, cache, indices, _, scale = plans[0].draw_inputs(Draw(keys="holes"), **{**DIMS, "query_len": query_len})
    of_requests = torch.tensor([70, 0, 33], dtype=torch.int32)
    of_tokens = of_requests[:, None].repeat(1, query_len)
    expected = plans[0].reference_fn(q, cache, indices, of_tokens, scale)
    assert_close(call((q, cache, indices), topk_length=of_requests), expected)
    e4m3 = cache.view(torch.float8_e4m3fn)
    assert_close(call((q, e4m3, indices), topk_length=of_requests), expected)
    assert plans[0].launched == ["seesaw"] * 2


def test_without_lengths_all_indices_count(plans: list[Sparse]) -> None:
    inputs = plans[0].prepare_inputs(**DIMS)
    metadata, none = get_mla_metadata()
    assert none is None
    expected = plans[0].reference_fn(*inputs)
    assert_close(call(inputs, metadata), expected)
    assert (metadata.config.topk, metadata.config.is_fp8_kvcache) == (70, True)
    held = metadata.lengths
    assert_close(call(inputs, metadata), expected)
    assert metadata.lengths is held
    with pytest.raises(ValueError, match="the metadata was made for"):
        call((inputs[0], inputs[1], inputs[2][..., :64]), metadata)
    assert_close(call(inputs, get_mla_metadata(torch.ones(3), 8, 1, 4, True, 70)[0]), expected)


def test_a_sink_goes_to_a_plan_that_has_one(plans: list[Sparse]) -> None:
    *inputs, sink, scale = plans[1].draw_inputs(Draw(), **DIMS)
    out, lse = call(tuple(inputs), attn_sink=sink)
    assert_close((out, lse), plans[1].reference_fn(*inputs, sink, scale))
    assert (plans[0].launched, plans[1].launched) == ([], ["seesaw"])
    plain, same = call(tuple(inputs))
    torch.testing.assert_close(lse, same)
    factor = torch.exp(lse) / (torch.exp(lse) + torch.exp(sink[:, None]))
    torch.testing.assert_close(out.float(), plain.float() * factor.mT[..., None], atol=2**-6, rtol=2**-6)
    assert not out[:, :, 2].any()  # +inf
    torch.testing.assert_close(out[:, :, 1], plain[:, :, 1])  # -inf


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"causal": True}, ValueError, "causal is True; with indices it has to be False"),
        ({"is_fp8_kvcache": False}, ValueError, "is_fp8_kvcache is False; k_cache has dtype torch.uint8"),
        ({"extra_topk_length": 1}, NotImplementedError, "extra_topk_length is not supported"),
        ({"extra_k_cache": torch.zeros(1, 64, 1, 584).byte()}, ValueError, "extra_indices_in_kvcache is missing"),
        ({"topk_length": torch.zeros(3, 2)}, ValueError, "topk_length has shape (3, 2), needs [batch]"),
        ({"topk_length": torch.zeros(3)}, TypeError, "topk_length: has dtype float32, needs int32"),
        ({"attn_sink": torch.zeros(3)}, ValueError, "attn_sink: shape[0] is 3"),
        ({"indices": torch.zeros(3, 70)}, ValueError, "indices has shape (3, 70), needs [batch, seq_len_q, topk]"),
        ({"indices": torch.zeros(3, 2, 70)}, TypeError, "indices: has dtype float32, needs int32"),
    ],
)
def test_refusals(plans: list[Sparse], options: dict[str, Any], error: type, message: str) -> None:
    metadata = FlashMLASchedMeta()
    with pytest.raises(error) as refused:
        call(plans[0].prepare_inputs(**DIMS), metadata, **options)
    assert message in str(refused.value)
    assert (metadata.have_initialized, metadata.lengths) == (False, None)


class TwoCaches(Sparse):
    """Of DeepSeek V4, pages of 64 and of 16 rows."""

    cache_format = CacheFormat(
        latent_offset=0, scale_offset=0, scale_block=64, rope_offset=448, row_bytes=576, latent_dim=448,
        scale_dtype="e8m0", plane=True,
    )  # fmt: skip
    extra = ExtraKeys(topk=(1, 100), page_size=16)

    def compile(self, key: str) -> Any:
        args = (*self.inputs[:-1], *self.outputs, *self.scratch)

        def kernel(*values: Any) -> None:
            if find_faults(self.extents, args, values[:-2], self.device, ""):
                raise ValueError("Mismatched Tensor on argument")  # as TVM FFI does
            self.launched.append(key)
            for result, found in zip(values[7:9], self.reference_fn(*values[:7], values[-2])):
                result.copy_(found)

        return kernel


def call_two(inputs: tuple[Any, ...], **options: Any) -> Any:
    q, cache, indices, lengths, second, others, more, _ = inputs
    given = {
        "topk_length": lengths[:, 0],
        "extra_k_cache": second.view(len(second), -1, 1, 584),
        "extra_indices_in_kvcache": others,
        "extra_topk_length": more[:, 0],
        **options,
    }
    pages = cache.view(len(cache), 64, 584)
    return call((q, pages, indices), **{name: value for name, value in given.items() if value is not None})


def test_a_call_over_two_caches() -> None:
    plan = TwoCaches()
    flash_mla.use(plan)
    inputs = plan.draw_inputs(Draw("random", keys="holes"), **{**DIMS, "query_len": 1})
    assert_close(call_two(inputs), plan.reference_fn(*inputs))
    inputs = plan.prepare_inputs(**{**DIMS, "query_len": 1})
    expected, metadata = plan.reference_fn(*inputs), get_mla_metadata()[0]
    for _ in range(2):
        assert_close(call_two(inputs, metadata=metadata, topk_length=None, extra_topk_length=None), expected)
    assert (metadata.config.extra_topk, metadata.extra_lengths.tolist()) == (70, [[70]] * 3)
    assert plan.launched == ["seesaw"] * 3


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"extra_indices_in_kvcache": None}, ValueError, "extra_indices_in_kvcache is missing"),
        ({"extra_k_cache": torch.zeros(2, 16, 584)}, ValueError, "needs 8-bit [pages, page_size, 1, 584]"),
        ({"extra_topk_length": torch.zeros(3, 2)}, ValueError, "extra_topk_length has shape (3, 2)"),
        ({"extra_indices_in_kvcache": torch.zeros(3, 70)}, ValueError, "extra_indices_in_kvcache has shape (3, 70)"),
        ({"extra_indices_in_kvcache": torch.zeros(3, 1, 70)}, TypeError, "extra_indices_in_kvcache: has dtype float32"),
    ],
)
def test_refusals_of_a_second_cache(change: dict[str, Any], error: type, message: str) -> None:
    plan = TwoCaches()
    flash_mla.use(plan)
    inputs = plan.prepare_inputs(**{**DIMS, "query_len": 1})
    with pytest.raises(error) as refused:
        call_two(inputs, **change)
    assert message in str(refused.value)


def test_caches_of_other_formats_are_refused(plans: list[Sparse]) -> None:
    q, cache, indices, *_ = plans[0].prepare_inputs(**DIMS)
    with pytest.raises(NotImplementedError, match="576 bytes a token"):
        call((q, cache[..., :576], indices))
    with pytest.raises(ValueError, match=r"is_fp8_kvcache is True; k_cache has dtype torch\.bfloat16"):
        call((q, cache.bfloat16(), indices))
    with pytest.raises(NotImplementedError, match=r"dtype torch.float16 with indices: .* one or two caches in bf16"):
        call((q, cache.half(), indices), is_fp8_kvcache=False)
    with pytest.raises(ValueError, match="reads 576 bytes a token"):
        flash_mla.use(type("OneScale", (Sparse,), {"cache_format": CacheFormat(0, 0, 0, 512, 576)})())
    with pytest.raises(ValueError, match="takes a sink"):
        flash_mla.use(type("DenseSink", (CpuMla,), {"has_sink": True})())


class TwoPlain(TwoCaches):
    """In bf16, pages of 61 and of 16 rows."""

    page_size, cache_format, tilings = 61, None, {"seesaw": tiling(61)}


def test_a_call_over_two_caches_in_bf16(plans: list[Sparse]) -> None:
    plan = TwoPlain()
    flash_mla.use(plan)
    inputs = plan.draw_inputs(Draw("random", keys="holes"), **{**DIMS, "query_len": 1})
    q, cache, indices, lengths, second, others, more, _ = inputs
    given = {
        "is_fp8_kvcache": False,
        "topk_length": lengths[:, 0],
        "extra_k_cache": second.unsqueeze(2),
        "extra_indices_in_kvcache": others,
        "extra_topk_length": more[:, 0],
    }
    assert_close(call((q, cache, indices), **given), plan.reference_fn(*inputs))
    assert (plans[0].launched, plan.launched) == ([], ["seesaw"])
    with pytest.raises(ValueError, match=r"extra_k_cache has .*, needs 16-bit \[pages, page_size, 1, 576\]"):
        call((q, cache, indices), **{**given, "extra_k_cache": second.unsqueeze(2).byte()})
    with pytest.raises(ValueError, match="of float16; sparse calls are in bfloat16"):
        flash_mla.use(type("Half", (TwoPlain,), {"dtype": "float16"})())


def test_prepare_compiles_plans_for_sparse_calls(plans: list[Sparse], monkeypatch: pytest.MonkeyPatch) -> None:
    compiled: list[Any] = []
    monkeypatch.setattr(CpuMla, "warm_up", lambda self: compiled.append(self), raising=False)
    rendered = Sparse()
    monkeypatch.setattr(flash_mla, "_render", lambda *kind: rendered)
    assert flash_mla.prepare(sparse=True) is plans[0]
    assert compiled == [plans[0], rendered]


def test_plans_for_sparse_calls_are_rendered(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    monkeypatch.setattr(flash_mla, "_given", [])
    monkeypatch.setenv("CUTEGEN_CACHE_DIR", str(tmp_path))
    plan = flash_mla.find_sparse_plan(64, True, 16, 128, 2048)
    assert (plan.name, plan.sparse, plan.has_sink, plan.row_bytes) == ("flash_mla_sparse_sink_page64", True, True, 656)
    assert flash_mla.find_sparse_plan(64, True) is plan
    assert flash_mla.find_sparse_plan(64, False).name == "flash_mla_sparse_page64"
    two = flash_mla.find_sparse_plan(256, True, token_bytes=584, extra_page=2)
    assert (two.name, two.query_dim) == ("flash_mla_sparse_584_sink_page256_extra2", 512)
    assert (two.page_size, two.extra and two.extra.page_size, two.row_bytes) == (256, 2, 584)
    plain = flash_mla.find_sparse_plan(61, token_bytes=1152, extra_page=3)
    assert (plain.name, plain.cache_format, plain.query_dim) == ("flash_mla_sparse_bf16_page61_extra3", None, 576)
