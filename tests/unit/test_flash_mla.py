"""The module with FlashMLA's interface, over a plan of the CPU."""

from __future__ import annotations

import atexit
import inspect
import math
import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from mla_cpu import CpuMla, tiling  # noqa: E402

from cutegen.compat import flash_mla  # noqa: E402
from cutegen.compat.flash_mla import FlashMLASchedMeta, flash_mla_with_kvcache, get_mla_metadata  # noqa: E402
from cutegen.runtime.mla_decode.cache_format import CacheFormat  # noqa: E402
from cutegen.runtime.mla_decode.inputs import Draw  # noqa: E402

DIMS = {"batch": 3, "query_len": 2, "heads": 4, "kv_len": 130}


class Causal(CpuMla):
    page_size, query_len, heads = 64, (1, 3), (1, 8)
    tilings = {"seesaw": tiling(64)}  # noqa: RUF012


class Unmasked(Causal):
    causal = False


@pytest.fixture(autouse=True)
def plans(monkeypatch: pytest.MonkeyPatch) -> list[Causal]:
    monkeypatch.setattr(flash_mla, "_given", [])
    monkeypatch.setattr(flash_mla, "_rendered", {})
    given = [Causal(), Unmasked()]
    for plan in given:
        flash_mla.use(plan)
    return given


def call(inputs: tuple[Any, ...], *metadata: Any, **options: Any) -> Any:
    q, cache, table, lengths, _ = inputs
    return flash_mla_with_kvcache(q, cache.unsqueeze(2), table, lengths, 512, *metadata, **options)


def test_import_loads_no_torch_and_no_generator() -> None:
    code = "import sys, cutegen.compat.flash_mla; print({'torch', 'cutlass', 'jinja2', 'pydantic'} & set(sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "set()\n"


@pytest.mark.parametrize("causal", [True, False])
def test_pair_of_metadata(plans: list[Causal], causal: bool) -> None:
    plan = plans[0 if causal else 1]
    inputs = plan.draw_inputs(Draw("edges"), **DIMS)
    metadata, splits = get_mla_metadata(inputs[3], 2 * 4 // 1, 1)
    assert (metadata.dtype, metadata.shape[1], splits.shape) == (torch.int32, 8, (4,))
    out, lse = call(inputs, metadata, splits, causal=causal)
    expected = plan.reference_fn(*inputs)
    assert (out.shape, lse.shape) == ((3, 2, 4, 512), (3, 4, 2))
    torch.testing.assert_close(out, expected[0], atol=2**-6, rtol=2**-6)
    torch.testing.assert_close(lse, expected[1])
    assert plan.launched
    scales = {"descale_q": torch.ones(1), "descale_k": torch.ones(1)}  # of 8-bit inputs, which these are not
    torch.testing.assert_close(call(inputs, metadata, splits, causal=causal, **scales)[0], out)
    scaled = call(inputs, metadata, splits, 0.1, causal)
    torch.testing.assert_close(scaled[1], plan.reference_fn(*inputs[:4], 0.1)[1])


@pytest.mark.parametrize(("rows", "parts"), [(1, 132), (64, 132), (65, 66), (128, 66), (256, 33), (2048, 4)])
def test_metadata_have_as_many_parts_as_there(rows: int, parts: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Callers copy them into buffers of that shape."""
    found = SimpleNamespace(multi_processor_count=132)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: found)
    assert flash_mla._count_parts(rows, torch.device("cuda")) == parts


def test_lazily_filled_metadata(plans: list[Causal]) -> None:
    inputs = plans[0].prepare_inputs(**DIMS)
    metadata, nothing = get_mla_metadata()
    assert isinstance(metadata, FlashMLASchedMeta)
    assert (nothing, metadata.have_initialized) == (None, False)
    first = call(inputs, metadata, causal=True)
    assert metadata.have_initialized
    assert metadata.config
    assert (metadata.config.b, metadata.config.s_q, metadata.config.h_q) == (3, 2, 4)
    assert metadata.num_splits.shape == (4,)
    assert torch.equal(call(inputs, metadata, None, causal=True)[0], first[0])
    with pytest.raises(ValueError, match="num_splits must be None"):
        call(inputs, metadata, torch.zeros(4), causal=True)
    with pytest.raises(ValueError, match=r"the metadata was made for .*s_q=2.*this call is .*s_q=1"):
        call(plans[0].prepare_inputs(**{**DIMS, "query_len": 1}), metadata, causal=True)


def test_a_refused_first_call_leaves_its_metadata_empty(plans: list[Causal]) -> None:
    inputs = plans[0].prepare_inputs(**DIMS)
    metadata, _ = get_mla_metadata()
    with pytest.raises(ValueError, match="softmax_scale"):
        call(inputs, metadata, softmax_scale=-1.0, causal=True)
    assert not metadata.have_initialized
    call(plans[0].prepare_inputs(**{**DIMS, "batch": 2}), metadata, causal=True)
    assert metadata.config.b == 2


def test_one_token_needs_no_plan_of_its_mask(plans: list[Causal], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flash_mla, "_given", plans[:1])
    inputs = plans[0].prepare_inputs(**{**DIMS, "query_len": 1})
    call(inputs, *get_mla_metadata(inputs[3], 4, 1), causal=False)
    assert plans[0].launched


def test_rows_that_do_not_merge_are_copied(plans: list[Causal]) -> None:
    inputs = plans[0].prepare_inputs(**DIMS)
    q = inputs[0].transpose(1, 2).contiguous().transpose(1, 2)
    assert torch.equal(call((q, *inputs[1:]), None, causal=True)[0], call(inputs, None, causal=True)[0])


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"is_fp8_kvcache": 1}, ValueError, "flash_mla: is_fp8_kvcache is True; k_cache has dtype torch.bfloat16"),
        ({"indices": 1}, TypeError, "indices is int, needs a torch tensor"),
        ({"extra_k_cache": 1}, NotImplementedError, "extra_k_cache is not supported"),
        ({"attn_sink": 1}, NotImplementedError, "attn_sink is not supported: dense decode over"),
        ({"softmax_scale": "x"}, TypeError, "flash_mla: softmax_scale is 'x', needs a float"),
        ({"softmax_scale": -1.0}, ValueError, "softmax_scale: is -1.0, needs a positive finite number"),
    ],
)
def test_refusals(plans: list[Causal], options: dict[str, Any], error: type, message: str) -> None:
    inputs = plans[0].prepare_inputs(**DIMS)
    with pytest.raises(error, match=message):
        call(inputs, None, causal=True, **options)


def test_refusals_name_what_the_caller_passed(plans: list[Causal]) -> None:
    q, cache, table, lengths, scale = plans[0].prepare_inputs(**DIMS)
    with pytest.raises((TypeError, ValueError)) as refused:
        call((q, cache.float(), table, lengths.long(), scale), None, causal=True)
    said = str(refused.value)
    assert "k_cache.squeeze(2): " in said
    assert "cache_seqlens: " in said
    assert "kv_cache" not in said
    assert "seq_lens" not in said


def test_refused_shapes(plans: list[Causal]) -> None:
    q, cache, table, lengths, _ = plans[0].prepare_inputs(**DIMS)
    wide = cache.new_zeros((1, 64, 1, 656), dtype=torch.uint8)
    with pytest.raises(NotImplementedError, match="k_cache has 656 bytes a token: dense decode over"):
        flash_mla_with_kvcache(q, wide, table, lengths, 512, None)
    with pytest.raises(TypeError, match=r"k_cache has dtype torch.int8, needs float8_e4m3fn"):
        flash_mla_with_kvcache(q, cache.to(torch.int8).unsqueeze(2), table, lengths, 512, None)
    flash_mla_with_kvcache(q, cache.unsqueeze(2), table, lengths, 512, None, is_fp8_kvcache=0)
    with pytest.raises(ValueError, match=r"k_cache \(\d+, 64, 576\); they need to be"):
        flash_mla_with_kvcache(q, cache, table, lengths, 512, None)
    with pytest.raises(TypeError, match="q is NoneType, needs a torch tensor"):
        flash_mla_with_kvcache(None, cache.unsqueeze(2), table, lengths, 512, None)
    with pytest.raises(ValueError, match="head_dim_v is 576, needs 512"):
        flash_mla_with_kvcache(q, cache.unsqueeze(2), table, lengths, 576, None)
    with pytest.raises(TypeError, match="cache_seqlens is list, needs a torch tensor"):
        get_mla_metadata([3, 4], 8, 1)
    with pytest.raises(ValueError, match="num_heads_k is 2"):
        get_mla_metadata(lengths, 8, 2)
    with pytest.raises(TypeError, match="is not a plan of MLA decode"):
        flash_mla.use(math)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="needs q: joined"):
        flash_mla.use(type("Split", (Causal,), {"split_q": True})())
    with pytest.raises(ValueError, match="another quantised cache than dense calls have"):
        flash_mla.use(type("Quantised", (Causal,), {"cache_format": CacheFormat(0, 512, 128, 528, 656)})())


class OneFactor(Causal):
    cache_format = CacheFormat(0, 0, 0, 512, 576)


def test_a_dense_cache_in_e4m3(plans: list[Causal]) -> None:
    plan = OneFactor()
    flash_mla.use(plan)
    q, cache, table, lengths, factor, scale = plan.prepare_inputs(**DIMS)
    expected = plan.reference_fn(q, cache, table, lengths, factor, scale)
    stored = cache.view(torch.float8_e4m3fn)
    metadata, _ = get_mla_metadata(is_fp8_kvcache=True)
    for held, descale in ((stored, factor), (cache, factor[0])):
        out, lse = call((q, held, table, lengths, scale), metadata, causal=True, is_fp8_kvcache=True, descale_k=descale)
        torch.testing.assert_close(out, expected[0], atol=2**-6, rtol=2**-6)
        torch.testing.assert_close(lse, expected[1])
    assert metadata.config
    assert metadata.config.is_fp8_kvcache
    assert plan.launched
    assert not plans[0].launched
    assert flash_mla.find_plan("bfloat16", 64, True) is plans[0]


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"descale_k": None}, ValueError, r"descale_k is missing; an fp8 cache has one factor, float32 \[1\]"),
        ({"descale_k": 1.0}, TypeError, "descale_k is float, needs a torch tensor"),
        ({"descale_k": torch.ones(2)}, ValueError, r"descale_k: shape\[0\] is 2"),
        ({"q": torch.float8_e4m3fn}, NotImplementedError, r"q has dtype torch.float8_e4m3fn; .* \* descale_q"),
        ({"q": torch.float16}, TypeError, "q: .*float16"),
    ],
)
def test_refusals_of_a_dense_cache_in_e4m3(change: dict[str, Any], error: type, message: str) -> None:
    plan = OneFactor()
    flash_mla.use(plan)
    q, cache, table, lengths, factor, scale = plan.prepare_inputs(**DIMS)
    q = q.to(change.get("q", q.dtype))
    with pytest.raises(error, match=message):
        call((q, cache, table, lengths, scale), None, causal=True, descale_k=change.get("descale_k", factor))


def test_plans_given_last_come_first_within_their_promises(plans: list[Causal]) -> None:
    special = type("Special", (Causal,), {"heads": (4, 4)})()
    flash_mla.use(special)
    assert flash_mla.find_plan("bfloat16", 64, True, 2, 4) is special
    assert flash_mla.find_plan("bfloat16", 64, True, 2, 5) is plans[0]


def test_prepare_compiles_all_plans_that_calls_may_go_to(plans: list[Causal], monkeypatch: pytest.MonkeyPatch) -> None:
    compiled: list[Any] = []
    monkeypatch.setattr(CpuMla, "warm_up", lambda self: compiled.append(self), raising=False)
    rendered = Causal()
    monkeypatch.setattr(flash_mla, "_render", lambda *kind: rendered)
    causal, unmasked = plans
    assert flash_mla.prepare("bfloat16", 64, True) is causal
    assert compiled == [unmasked, causal, rendered]  # one token needs no mask
    compiled.clear()
    whole = type("Whole", (Causal,), {"heads": (1, 128), "query_len": (1, 16)})()
    flash_mla.use(whole)
    assert flash_mla.prepare("bfloat16", 64, True) is whole
    assert compiled == [whole, unmasked, causal]


def test_arguments_are_named_as_there() -> None:
    names = list(inspect.signature(flash_mla_with_kvcache).parameters)
    assert names[:11] == ["q", "k_cache", "block_table", "cache_seqlens", "head_dim_v", "tile_scheduler_metadata",
                          "num_splits", "softmax_scale", "causal", "is_fp8_kvcache", "indices"]  # fmt: skip
    names = list(inspect.signature(get_mla_metadata).parameters)
    assert names[:3] == ["cache_seqlens", "num_q_tokens_per_head_k", "num_heads_k"]


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_plans_are_rendered_when_none_is_given(
    dtype: str, causal: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    monkeypatch.setattr(flash_mla, "_given", [])
    monkeypatch.setenv("CUTEGEN_CACHE_DIR", str(tmp_path))
    plan = flash_mla.find_plan(dtype, 64, causal)
    assert (plan.dtype, plan.page_size, plan.causal, plan.lse_base) == (dtype, 64, causal, "e")
    assert (plan.dims["heads"], plan.dims["query_len"]) == ((1, 128), (1, 16))
    assert flash_mla.find_plan(dtype, 64, causal, 3, 128) is plan
    with pytest.raises(TypeError, match="q has dtype float32, needs bfloat16 or float16"):
        flash_mla.prepare(torch.float32)
    with pytest.raises(ValueError, match=r"flash_mla: a page has 48 tokens; .*; use 32 or 64"):
        flash_mla.prepare(torch.bfloat16, 48)
    with pytest.raises(ValueError, match=r"^flash_mla: `kv_cache.page_size` must be a positive integer, not 0$"):
        flash_mla.prepare(torch.bfloat16, 0)


@pytest.mark.parametrize(
    ("capability", "arch"), [((9, 0), "sm_90a"), ((10, 0), "sm_100a"), ((10, 3), "sm_103a"), ((8, 0), "sm_90a")]
)
def test_plans_are_rendered_for_the_device(
    capability: tuple[int, int], arch: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    facts = SimpleNamespace(major=capability[0], minor=capability[1], name="a GPU")
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda index: facts)
    monkeypatch.setattr(flash_mla, "current_device", lambda: 0)
    monkeypatch.setattr(flash_mla, "_given", [])
    monkeypatch.setattr(flash_mla, "_rendered", {})
    monkeypatch.setenv("CUTEGEN_CACHE_DIR", str(tmp_path))
    flash_mla._arch_of.cache_clear()
    try:
        assert flash_mla.find_plan("bfloat16", 64, True).arch == arch
        assert flash_mla.find_plan("float8_e4m3fn", 64, True).cache_format == CacheFormat(0, 0, 0, 512, 576)
        if arch == "sm_100a":
            with pytest.raises(ValueError, match=r"flash_mla: .* on sm_100a is not supported yet; call it on an sm_90"):
                flash_mla.find_sparse_plan()
    finally:
        flash_mla._arch_of.cache_clear()


def test_a_rendered_package_is_not_kept_where_others_may_write(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    monkeypatch.setattr(flash_mla, "_given", [])
    monkeypatch.setattr(flash_mla, "_rendered", {})
    monkeypatch.setenv("CUTEGEN_CACHE_DIR", str(tmp_path / "cache"))
    deleted: list[Any] = []
    monkeypatch.setattr(atexit, "register", lambda *call: deleted.append(call))
    assert flash_mla.find_plan("bfloat16", 64, True).name == "flash_mla_bf16_causal_page64"
    assert not list(tmp_path.rglob("*.py"))
    ((delete, folder, owner),) = deleted
    assert list(folder.path.glob("*/kernel*.py"))
    delete(folder, owner + 1)  # a process that was forked
    assert folder.path.exists()
    delete(folder, owner)
    assert not folder.path.exists()
