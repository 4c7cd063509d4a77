"""MLA attention of vLLM whose decode is a plan of cutegen; prefill is vLLM's own."""

from __future__ import annotations

import os
import warnings
from typing import Any, ClassVar

from cutegen.compat.attention import AttentionPlan, LatentAttention
from cutegen.compat.serving import find_plan
from cutegen_vllm.vllm_names import import_names

VARIABLE = "CUTEGEN_VLLM_MLA"  # MODULE:NAME of the plan
COMMON = "vllm.model_executor.layers.attention.mla_attention"
BACKEND = "vllm.v1.attention.backend"
REGISTRY = "vllm.v1.attention.backends.registry"
# What is used of vLLM, by module: it moves these between releases, and `register` says which one is gone.
USED = {
    COMMON: ("MLACommonBackend", "MLACommonImpl", "MLACommonMetadata", "MLACommonMetadataBuilder", "QueryLenSupport"),
    BACKEND: ("AttentionCGSupport", "AttentionType"),
    REGISTRY: ("AttentionBackendEnum", "register_backend"),
}
NAME = "CUSTOM"  # the member of vLLM's enum for backends of others


def make_backend(plan: Any) -> type[Any]:
    """The class of a plan for vLLM's registry. ImportError: this vLLM has not what is used of it."""
    import torch

    used = import_names(USED)
    attention = AttentionPlan(plan)
    major = int("".join(c for c in plan.arch if c.isdigit())) // 10

    class CutegenMLAMetadataBuilder(used["MLACommonMetadataBuilder"]):  # type: ignore[misc]
        # Nothing is computed on the host: one capture of a uniform batch serves any lengths and tables.
        _cudagraph_support: ClassVar[Any] = used["AttentionCGSupport"].UNIFORM_BATCH
        query_len_support: ClassVar[Any] = used["QueryLenSupport"].UNIFORM
        reorder_batch_threshold: int = attention.most_tokens

    class CutegenMLAImpl(used["MLACommonImpl"]):  # type: ignore[misc]
        can_return_lse_for_decode: bool = True
        supports_quant_query_input: bool = False  # queries stay as they are, whatever the cache is in

        def __init__(
            self,
            num_heads: int,
            head_size: int,
            scale: float,
            num_kv_heads: int,
            alibi_slopes: Any,
            sliding_window: int | None,
            kv_cache_dtype: str,
            logits_soft_cap: float | None,
            attn_type: str,
            kv_sharing_target_layer_name: str | None,
            **mla_args: Any,
        ) -> None:
            super().__init__(
                num_heads, head_size, scale, num_kv_heads, alibi_slopes, sliding_window, kv_cache_dtype,
                logits_soft_cap, attn_type, kv_sharing_target_layer_name, **mla_args,
            )  # fmt: skip
            asked = {"alibi_slopes": alibi_slopes, "sliding_window": sliding_window, "logits_soft_cap": logits_soft_cap}
            if extras := [name for name, value in asked.items() if value]:
                raise NotImplementedError(f"{plan.name} has no {', '.join(extras)}")
            if attn_type != used["AttentionType"].DECODER:
                raise NotImplementedError(f"{plan.name} is for decoders, not {attn_type}")
            cache_dtype = plan.dtype if kv_cache_dtype == "auto" else kv_cache_dtype
            rope_dim = head_size - self.kv_lora_rank
            layer = LatentAttention(num_heads, self.kv_lora_rank, rope_dim, plan.dtype, cache_dtype, plan.page_size)
            if reason := attention.refuse(layer):
                raise NotImplementedError(reason)
            attention.warm_up()

        def forward_mqa(self, q: Any, kv_c_and_k_pe_cache: Any, attn_metadata: Any, layer: Any) -> tuple[Any, Any]:
            decode = attn_metadata.decode
            queries = torch.cat(q, dim=-1) if isinstance(q, tuple) else q
            return attention.run(
                queries, kv_c_and_k_pe_cache, decode.block_table, decode.seq_lens, self.scale,
                attn_metadata.num_decodes, getattr(layer, "_k_scale", None),
            )  # fmt: skip

        _forward_decode = forward_mqa  # its name until the end of 2025

    class CutegenMLABackend(used["MLACommonBackend"]):  # type: ignore[misc]
        contract = attention
        supported_dtypes: ClassVar[list[Any]] = [getattr(torch, plan.dtype)]
        supported_kv_cache_dtypes: ClassVar[list[str]] = [*attention.caches, *([] if plan.has_scale else ["auto"])]

        @staticmethod
        def get_supported_kernel_block_sizes() -> list[int]:
            return [plan.page_size]

        @staticmethod
        def get_name() -> str:
            return NAME

        @staticmethod
        def get_builder_cls() -> type[Any]:
            return CutegenMLAMetadataBuilder

        @staticmethod
        def get_impl_cls() -> type[Any]:
            return CutegenMLAImpl

        @classmethod
        def supports_compute_capability(cls, capability: Any) -> bool:
            return bool(capability.major == major)

    return CutegenMLABackend


def register() -> None:
    """Makes the backend vLLM's CUSTOM one: `--attention-backend CUSTOM` chooses it. Without the variable, or where this
    vLLM has not what is used of it, nothing is registered; the second is a warning."""
    global CutegenMLABackend
    named = os.environ.get(VARIABLE)
    if not named:
        return
    try:
        CutegenMLABackend = make_backend(find_plan(named))
        used = import_names(USED)
    except (ImportError, ValueError) as error:
        warnings.warn(f"cutegen-vllm registers no attention: {error}", RuntimeWarning, stacklevel=2)
        return
    used["register_backend"](used["AttentionBackendEnum"].CUSTOM, f"{__name__}.CutegenMLABackend")


CutegenMLABackend: Any = None  # what `register` made; vLLM imports it by this name
