"""MLA attention by vLLM's and SGLang's interfaces, against stand-ins of what the adapters use of both: names and
signatures as in their sources of November 2026. The kernel runs as its reference does."""

from __future__ import annotations

import importlib
import importlib.util
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from stand_ins import CpuPlan, module  # noqa: E402

from cutegen.compat.attention import AttentionPlan, LatentAttention  # noqa: E402

ROOT = Path(__file__).parents[2]
PLAN, PAGE, HEADS = "mla_decode_bf16_sm90a", 64, 16
LAYER = LatentAttention(HEADS, 512, 64, "bfloat16", "bfloat16", PAGE)
SCALE = 576**-0.5
MLA_ARGS = {"kv_lora_rank": 512, "qk_rope_head_dim": 64}


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({}, ""),
        ({"query_len": 16}, ""),
        ({"query_len": 17}, "has 1 to 16 new tokens, and the layer 17"),
        ({"heads": 129}, "has 1 to 128 heads, and the layer 129"),
        ({"latent_dim": 256}, "is for rows of 512 + 64, and the layer has 256 + 64"),
        ({"dtype": "float16"}, "takes queries in bfloat16, and the layer has float16"),
        ({"cache_dtype": "fp8_e4m3"}, "takes a cache in bfloat16, and the layer has fp8_e4m3"),
        ({"page_size": 1}, "has pages of 64 tokens, and the cache of 1"),
    ],
)
def test_layers_are_refused_with_a_reason(changes: dict[str, Any], reason: str) -> None:
    said = AttentionPlan(CpuPlan(PLAN)).refuse(replace(LAYER, **changes))
    assert bool(said) == bool(reason)
    assert reason in said


def test_other_plans_are_refused() -> None:
    assert "is not a plan of MLA decode" in AttentionPlan(CpuPlan("gemm_bf16_sm90a")).refuse(LAYER)
    for name in ("mla_sparse_v32_sm90a", "mla_sparse_bf16_sm90a", "mla_decode_v32_sm90a"):
        assert f"{name} takes more than" in AttentionPlan(CpuPlan(name)).refuse(LAYER)


def problem(lengths: tuple[int, ...], tokens: int = 1) -> SimpleNamespace:
    """Pages in any order; the tail of a table is any number; the cache has a gap between pages."""
    torch.manual_seed(0)
    p = SimpleNamespace(lengths=torch.tensor(lengths, dtype=torch.int32), tokens=tokens)
    pages, columns = 2 * sum(-(-n // PAGE) for n in lengths) + 1, max(-(-n // PAGE) for n in lengths) + 1
    p.cache = torch.randn(pages, PAGE + 2, 576, dtype=torch.bfloat16)[:, :PAGE]
    order = torch.randperm(pages).int()
    p.table = torch.full((len(lengths), columns), 10**6, dtype=torch.int32)
    for i, n in enumerate(lengths):
        used = -(-n // PAGE)
        p.table[i, :used], order = order[:used], order[used:]
    p.q = torch.randn(len(lengths) * tokens, HEADS, 576, dtype=torch.bfloat16)
    return p


def expected(p: Any) -> tuple[Any, Any]:
    outs, lses = [], []
    for i, n in enumerate(p.lengths.tolist()):
        keys = torch.cat([p.cache[page] for page in p.table[i, : -(-n // PAGE)].tolist()])[:n].float()
        for t in range(p.tokens):
            seen = keys[: n - (p.tokens - 1) + t]
            scores = p.q[i * p.tokens + t].float() @ seen.T * SCALE
            outs.append(scores.softmax(-1) @ seen[:, :512])
            lses.append(scores.logsumexp(-1))
    return torch.stack(outs), torch.stack(lses)


@pytest.mark.parametrize("tokens", [1, 2])
def test_calls_in_a_server_s_shapes(tokens: int) -> None:
    p, attention = problem((100, 64, 3), tokens), AttentionPlan(CpuPlan(PLAN))
    attention.warm_up()
    assert (attention.plan.on_miss, attention.most_tokens) == ("error", 16)
    out, lse = attention.run(p.q, p.cache, p.table, p.lengths, SCALE, 3)
    wanted, sums = expected(p)
    assert (out.shape, lse.shape) == ((3 * tokens, HEADS, 512), (3 * tokens, HEADS))
    torch.testing.assert_close(out.float(), wanted, atol=2e-2, rtol=2e-2)
    torch.testing.assert_close(lse, sums, atol=2e-2, rtol=2e-2)
    with pytest.raises(ValueError, match="all need equally many"):
        attention.run(p.q, p.cache, p.table, p.lengths, SCALE, 4)


def test_a_cache_in_e4m3_has_one_scale(vllm: Any) -> None:
    quantised = CpuPlan("mla_decode_e4m3_sm90a")
    attention = AttentionPlan(quantised)
    assert "takes a cache in float8_e4m3fn, and the layer has bfloat16" in attention.refuse(LAYER)
    assert {attention.refuse(replace(LAYER, cache_dtype=name)) for name in ("float8_e4m3fn", "fp8", "fp8_e4m3")} == {""}
    p = problem((100, 64, 3))
    stored = p.cache.contiguous().to(torch.float8_e4m3fn)
    p.cache = stored.to(torch.bfloat16)
    wanted, sums = expected(p)
    out, lse = attention.run(p.q, stored, p.table, p.lengths, SCALE, 3)
    torch.testing.assert_close(out.float(), wanted, atol=2e-2, rtol=2e-2)
    torch.testing.assert_close(lse, sums, atol=2e-2, rtol=2e-2)
    backend = vllm.adapter.make_backend(quantised)
    assert backend.supported_kv_cache_dtypes == ["float8_e4m3fn", "fp8", "fp8_e4m3"]
    impl = make_impl(backend, kv_cache_dtype="fp8")
    assert impl.supports_quant_query_input is False
    decode = SimpleNamespace(block_table=p.table, seq_lens=p.lengths)
    layer = SimpleNamespace(_k_scale=torch.tensor(0.5))
    halved, _ = impl.forward_mqa(p.q, stored, SimpleNamespace(decode=decode, num_decodes=3), layer)
    p.cache = p.cache / 2
    torch.testing.assert_close(halved.float(), expected(p)[0], atol=2e-2, rtol=2e-2)
    with pytest.raises(NotImplementedError, match="takes a cache in float8_e4m3fn, and the layer has bfloat16"):
        make_impl(backend)


class Common:
    """vLLM's MLACommonImpl, as far as it is used."""

    def __init__(self, num_heads: int, head_size: int, scale: float, *others: Any, kv_lora_rank: int, **mla_args: Any):
        self.num_heads, self.scale, self.kv_lora_rank = num_heads, scale, kv_lora_rank


@pytest.fixture
def vllm(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(ROOT / "adapters" / "vllm"))
    module(monkeypatch, "vllm", __path__=[])
    common = module(
        monkeypatch,
        "vllm.model_executor.layers.attention.mla_attention",
        MLACommonBackend=type("MLACommonBackend", (), {}),
        MLACommonImpl=Common,
        MLACommonMetadata=object,
        MLACommonMetadataBuilder=type("MLACommonMetadataBuilder", (), {}),
        QueryLenSupport=SimpleNamespace(UNIFORM="uniform"),
    )
    module(
        monkeypatch,
        "vllm.v1.attention.backend",
        AttentionCGSupport=SimpleNamespace(UNIFORM_BATCH="uniform batch"),
        AttentionType=SimpleNamespace(DECODER="decoder"),
    )
    registered: dict[Any, str] = {}
    module(
        monkeypatch,
        "vllm.v1.attention.backends.registry",
        AttentionBackendEnum=SimpleNamespace(CUSTOM="custom"),
        register_backend=registered.__setitem__,
    )
    from cutegen_vllm import attention as adapter

    return SimpleNamespace(adapter=adapter, common=common, registered=registered)


def make_impl(backend: Any, **changes: Any) -> Any:
    values = {
        "num_heads": HEADS, "head_size": 576, "scale": SCALE, "num_kv_heads": 1, "alibi_slopes": None,
        "sliding_window": None, "kv_cache_dtype": "auto", "logits_soft_cap": None, "attn_type": "decoder",
        "kv_sharing_target_layer_name": None,
    }  # fmt: skip
    positional = {**values, **changes}
    return backend.get_impl_cls()(*positional.values(), **MLA_ARGS)


def test_an_attention_backend_of_vllm(vllm: Any) -> None:
    plan = CpuPlan(PLAN)
    backend = vllm.adapter.make_backend(plan)
    assert (backend.get_name(), backend.get_supported_kernel_block_sizes()) == ("CUSTOM", [PAGE])
    assert backend.supported_dtypes == [torch.bfloat16]
    assert backend.supports_compute_capability(SimpleNamespace(major=9))
    assert not backend.supports_compute_capability(SimpleNamespace(major=10))
    builder = backend.get_builder_cls()
    assert (builder._cudagraph_support, builder.query_len_support) == ("uniform batch", "uniform")
    assert builder.reorder_batch_threshold == 16
    impl = make_impl(backend)
    assert set(plan.warm) == set(plan.get_warmup_keys())
    p = problem((70, 1, 128), tokens=1)
    decode = SimpleNamespace(block_table=p.table, seq_lens=p.lengths)
    metadata = SimpleNamespace(decode=decode, num_decodes=3)
    wanted, sums = expected(p)
    for q in (p.q, (p.q[..., :512], p.q[..., 512:])):
        out, lse = impl.forward_mqa(q, p.cache, metadata, None)
        torch.testing.assert_close(out.float(), wanted, atol=2e-2, rtol=2e-2)
        torch.testing.assert_close(lse, sums, atol=2e-2, rtol=2e-2)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"num_heads": 200}, "has 1 to 128 heads, and the layer 200"),
        ({"kv_cache_dtype": "fp8"}, "takes a cache in bfloat16, and the layer has fp8"),
        ({"sliding_window": 128, "logits_soft_cap": 30.0}, "has no sliding_window, logits_soft_cap"),
        ({"attn_type": "encoder"}, "is for decoders, not encoder"),
        ({"head_size": 640}, "rows of 512 . 64, and the layer has 512 . 128"),
    ],
)
def test_vllm_is_given_the_reason(vllm: Any, changes: dict[str, Any], reason: str) -> None:
    plan = CpuPlan(PLAN)
    with pytest.raises(NotImplementedError, match=reason):
        make_impl(vllm.adapter.make_backend(plan), **changes)
    assert plan.warm == []


def test_the_backend_is_vllm_s_custom_one(vllm: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    vllm.adapter.register()
    assert vllm.registered == {}  # the variable is not set
    monkeypatch.setenv("CUTEGEN_VLLM_MLA", PLAN)
    monkeypatch.setattr(vllm.adapter, "find_plan", CpuPlan)
    vllm.adapter.register()
    path, _, name = vllm.registered["custom"].rpartition(".")
    assert getattr(importlib.import_module(path), name).contract.plan.name == PLAN
    monkeypatch.delattr(vllm.common, "MLACommonImpl")
    with pytest.warns(RuntimeWarning, match="mla_attention has no MLACommonImpl"):
        vllm.adapter.register()


class Pool:
    """SGLang's pool of a latent cache: a row a token."""

    def __init__(self, cache: Any) -> None:
        self.rows = cache.reshape(-1, 1, 576)

    def set_mla_kv_buffer(self, layer: Any, place: Any, latent: Any, rope: Any) -> None:
        self.rows[place, 0] = torch.cat([latent, rope], -1)

    def set_kv_buffer(self, layer: Any, place: Any, k: Any, v: Any) -> None:
        self.rows[place, 0] = k

    def get_key_buffer(self, layer: int) -> Any:
        return self.rows


class FlashInferMLAAttnBackend:
    """SGLang's, as far as it is used."""

    def __init__(self, model_runner: Any, skip_prefill: bool = False) -> None:
        self.others: list[str] = []

    def init_forward_metadata(self, forward_batch: Any) -> None:
        self.others.append("metadata")

    def init_cuda_graph_state(self, max_bs: int, max_num_tokens: int) -> None:
        self.others.append("graph")

    def init_forward_metadata_out_graph(self, forward_batch: Any, in_capture: bool = False) -> None:
        self.others.append(f"capture {in_capture}")

    def forward_decode(self, *arguments: Any, **named: Any) -> Any:
        self.others.append("decode")


@pytest.fixture
def sglang(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(ROOT / "adapters" / "sglang"))
    module(monkeypatch, "sglang", __path__=[])
    made: dict[str, Any] = {}
    attention = "sglang.srt.layers.attention"
    backends = module(
        monkeypatch, f"{attention}.flashinfer_mla_backend", FlashInferMLAAttnBackend=FlashInferMLAAttnBackend
    )
    module(
        monkeypatch,
        f"{attention}.attention_registry",
        register_attention_backend=lambda name: lambda create: made.setdefault(name, create),
    )
    from cutegen_sglang import attention as adapter

    return SimpleNamespace(adapter=adapter, made=made, backends=backends)


def runner(p: Any, **changes: Any) -> Any:
    """A model whose tokens lie as the page table of the problem says."""
    slots = (p.table[:, :, None].clamp(max=p.cache.shape[0] - 1) * PAGE + torch.arange(PAGE)).flatten(1).int()
    config = SimpleNamespace(num_attention_heads=2 * HEADS, kv_lora_rank=512, qk_rope_head_dim=64)
    values = {
        "model_config": config, "tp_size": 2, "dtype": torch.bfloat16, "kv_cache_dtype": torch.bfloat16,
        "page_size": PAGE, "req_to_token_pool": SimpleNamespace(req_to_token=slots),
        "token_to_kv_pool": Pool(p.cache),
    }  # fmt: skip
    return SimpleNamespace(**values | changes)


def batch(p: Any, decodes: bool = True) -> Any:
    mode = SimpleNamespace(is_decode_or_idle=lambda: decodes)
    return SimpleNamespace(
        forward_mode=mode, spec_info=None, batch_size=len(p.lengths), seq_lens=p.lengths.long(),
        seq_lens_cpu=p.lengths.long(), req_pool_indices=torch.arange(len(p.lengths)), out_cache_loc=None,
    )  # fmt: skip


def test_an_attention_backend_of_sglang(sglang: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    plan, p = CpuPlan(PLAN), problem((100, 64, 3))
    p.cache = p.cache.contiguous()
    sglang.adapter.register_attention(plan)
    backend = sglang.made["cutegen_mla"](runner(p))
    assert set(plan.warm) == set(plan.get_warmup_keys())
    layer = SimpleNamespace(tp_q_head_num=HEADS, v_head_dim=512, layer_id=0, scaling=SCALE)
    wanted, _ = expected(p)

    def decode(forward_batch: Any, q: Any, k: Any = None, **named: Any) -> Any:
        return backend.forward_decode(q, k, k, layer, forward_batch, **named).float()

    asked = batch(p)
    backend.init_forward_metadata(asked)
    torch.testing.assert_close(decode(asked, p.q.flatten(1)), wanted.flatten(1), atol=2e-2, rtol=2e-2)
    # In a graph: buffers of all requests and pages, filled again for each replay.
    backend.init_cuda_graph_state(8, 8)
    backend.init_forward_metadata_out_graph(asked, in_capture=True)
    table = backend.decode_table
    assert table.shape == (8, p.table.shape[1])
    backend.init_forward_metadata_out_graph(asked)
    assert backend.decode_table is table
    parts = p.q[..., :512].reshape(3, -1), p.q[..., 512:].reshape(3, -1)
    found = decode(asked, parts[0], q_rope=parts[1])
    torch.testing.assert_close(found, wanted.flatten(1), atol=2e-2, rtol=2e-2)
    # The new token's row is written first, in one piece or in two.
    last = p.lengths.long() - 1
    asked.out_cache_loc = p.table[torch.arange(3), last // PAGE].long() * PAGE + last % PAGE
    new = torch.randn(3, 576, dtype=torch.bfloat16)
    first = decode(asked, p.q.flatten(1), new)
    p.cache.view(-1, 576)[asked.out_cache_loc] = new
    torch.testing.assert_close(first, expected(p)[0].flatten(1), atol=2e-2, rtol=2e-2)
    again = backend.forward_decode(
        p.q.flatten(1), new[:, :512], new[:, :512], layer, asked, q_rope=None, k_rope=new[:, 512:]
    )
    torch.testing.assert_close(again.float(), first)
    # Prefill and speculation are those of SGLang's backend.
    assert backend.others == ["graph"]
    other = batch(p, decodes=False)
    backend.init_forward_metadata(other)
    backend.init_forward_metadata_out_graph(other, in_capture=True)
    backend.forward_decode(p.q, None, None, layer, other)
    assert backend.others[1:] == ["metadata", "capture True", "decode"]
    with pytest.raises(ValueError, match=r"cutegen_mla: .* has pages of 64 tokens, and the cache of 1"):
        sglang.made["cutegen_mla"](runner(p, page_size=1))
    known = ("init_forward_metadata", "init_cuda_graph_state", "forward_decode")
    older = type("FlashInferMLAAttnBackend", (), dict.fromkeys(known))
    monkeypatch.setattr(sglang.backends, "FlashInferMLAAttnBackend", older)
    with pytest.raises(ImportError, match=r"has no init_forward_metadata_out_graph$"):
        sglang.adapter.register_attention(plan)
    monkeypatch.delattr(sglang.backends, "FlashInferMLAAttnBackend")
    with pytest.raises(ImportError, match="has no FlashInferMLAAttnBackend"):
        sglang.adapter.register_attention(plan)


@pytest.mark.skipif(importlib.util.find_spec("vllm") is None, reason="vllm is not installed")
def test_vllm_itself_has_what_attention_uses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "adapters" / "vllm"))
    from cutegen_vllm.attention import USED
    from cutegen_vllm.vllm_names import import_names

    base = import_names(USED)["MLACommonImpl"]
    assert hasattr(base, "forward_mqa") or hasattr(base, "_forward_decode")


@pytest.mark.skipif(importlib.util.find_spec("sglang") is None, reason="sglang is not installed")
def test_sglang_itself_has_what_attention_uses() -> None:
    from cutegen_sglang.attention import BASE, REGISTRY  # type: ignore[import-not-found]

    base = importlib.import_module(BASE).FlashInferMLAAttnBackend
    assert hasattr(base, "init_cuda_graph_state")
    assert hasattr(importlib.import_module(REGISTRY), "register_attention_backend")
