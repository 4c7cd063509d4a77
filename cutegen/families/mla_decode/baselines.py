"""MLA decode by other libraries. All are optional, and imported when a baseline is bound; what is missing or refused
becomes the reason for leaving it out.

Written against sglang-kernel 0.4.5 and sgl-flash-mla 1.0.0 (FlashMLA), FlashAttention-3 0251105a and fa3-fwd 0.0.3.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from cutegen.dtypes import DTYPES
from cutegen.families.mla_decode.sparse_baselines import list_sparse_baselines
from cutegen.families.proving import Baseline
from cutegen.runtime.baselines import Bind
from cutegen.runtime.mla_decode.inputs import LATENT_DIM, ROPE_DIM
from cutegen.runtime.mla_decode.plan import MlaPlan
from cutegen.runtime.mla_decode.reference import attend_dense, gather_keys

# FlashMLA comes inside SGLang's kernels, and as a package of its own, of which there are several.
FLASH_MLA, SGL_FLASH_MLA = ("sgl_kernel.flash_mla", "flash_mla"), ("flash_mla",)
FLASH_ATTN, FA3_FWD = ("flash_attn_interface", "sgl_kernel.flash_attn"), ("fa3_fwd_interface",)
FLASH_MLA_PAGE = 64
# Keys of all requests up to which a dense copy of the cache is worth the comparison.
DENSE_KEYS = 1 << 16
_CUTLASS = {d.torch: d.cutlass for d in DTYPES.values()}


def list_baselines(plan: MlaPlan) -> Iterator[Baseline]:
    """Every baseline that could apply, FlashMLA, which ratios refer to, first."""
    if plan.sparse:
        yield from list_sparse_baselines(plan)
        return
    if not plan.split_q and plan.cache_format is None and not plan.has_sink:
        comparable = plan.lse_base == "e" and plan.lse_layout == "bhs"
        yield Baseline(
            "flash_mla",
            "flash_mla_with_kvcache, its metadata made before",
            _bind_flash_mla(plan),
            complete=comparable,
            returns=comparable,
            step=_bind_flash_mla_metadata,
            rival="FlashMLA",
        )
        yield Baseline(
            "sgl_flash_mla",
            "the same of sgl-flash-mla, use_legacy=True",
            _bind_sgl_flash_mla(plan),
            complete=comparable,
            returns=comparable,
            step=_bind_sgl_flash_mla_metadata,
            rival="FlashMLA",
        )
        yield Baseline(
            "flash_attn",
            "FlashAttention-3, its MLA path",
            _bind_flash_attn(plan),
            complete=False,
            rival="FlashAttention-3",
        )
        yield Baseline(
            "fa3_fwd",
            "FlashAttention-3, its MLA path, on contiguous keys, its metadata made before",
            _bind_fa3_fwd(plan),
            complete=False,
            step=_bind_fa3_fwd_metadata(plan),
            rival="FlashAttention-3",
        )
    yield Baseline("paged_read", "reads the pages of the cache", _bind_paged_read(plan), complete=False, bound=True)
    if plan.has_sink:
        return
    yield Baseline(
        "torch",
        "dense copy of the cache, softmax, two products",
        _bind_dense(plan),
        complete=False,
        rival="dense torch",
    )


def _load(names: Sequence[str]) -> Any:
    """The first of these modules that can be imported."""
    reasons = []
    for name in names:
        try:
            return importlib.import_module(name)
        except ImportError as error:
            reasons.append(f"{name}: {error}")
    raise ImportError("; ".join(reasons))


def _is_legacy(module: Any) -> bool:
    """Whether this FlashMLA calls dense decode on Hopper legacy, as sgl-flash-mla does: its metadata are an object."""
    return "use_legacy" in inspect.signature(module.flash_mla_with_kvcache).parameters


def _bind_flash_mla(plan: MlaPlan) -> Bind:
    def bind(inputs: tuple[Any, ...], outputs: tuple[Any, ...]) -> Callable[[], Any]:
        module = _load(FLASH_MLA)
        if _is_legacy(module):
            raise ImportError(f"{module.__name__} is that of sgl-flash-mla, the baseline sgl_flash_mla")
        metadata, splits = _metadata(module, inputs)
        return _call_flash_mla(plan, module, inputs, metadata, splits)

    return bind


def _bind_flash_mla_metadata(inputs: tuple[Any, ...], outputs: tuple[Any, ...]) -> Callable[[], Any]:
    module = _load(FLASH_MLA)
    return lambda: _metadata(module, inputs)


def _metadata(module: Any, inputs: tuple[Any, ...]) -> Any:
    q, _, _, lengths, _ = inputs
    return module.get_mla_metadata(lengths, q.shape[1] * q.shape[2], 1)


def _bind_sgl_flash_mla(plan: MlaPlan) -> Bind:
    def bind(inputs: tuple[Any, ...], outputs: tuple[Any, ...]) -> Callable[[], Any]:
        module = _load(SGL_FLASH_MLA)
        if not _is_legacy(module):
            raise ImportError(f"{module.__name__} is not that of sgl-flash-mla: its calls take no use_legacy")
        held, _ = module.get_mla_metadata()
        held.tile_scheduler_metadata, held.num_splits = _legacy_metadata(module, inputs)
        return _call_flash_mla(plan, module, inputs, held, None, use_legacy=True)

    return bind


def _bind_sgl_flash_mla_metadata(inputs: tuple[Any, ...], outputs: tuple[Any, ...]) -> Callable[[], Any]:
    module = _load(SGL_FLASH_MLA)
    return lambda: _legacy_metadata(module, inputs)


def _legacy_metadata(module: Any, inputs: tuple[Any, ...]) -> Any:
    q, _, _, lengths, _ = inputs
    return module.get_mla_decoding_metadata(lengths, q.shape[1] * q.shape[2], 1, use_legacy=True)


def _call_flash_mla(
    plan: MlaPlan, module: Any, inputs: tuple[Any, ...], metadata: Any, splits: Any, **options: Any
) -> Callable[[], Any]:
    if plan.page_size != FLASH_MLA_PAGE:
        raise ValueError(f"takes pages of {FLASH_MLA_PAGE} tokens, these have {plan.page_size}")
    q, cache, table, lengths, scale = inputs
    options |= {"softmax_scale": scale, "causal": plan.causal}
    function, cache = module.flash_mla_with_kvcache, cache.unsqueeze(2)
    return lambda: function(q, cache, table, lengths, LATENT_DIM, metadata, splits, **options)


def _bind_flash_attn(plan: MlaPlan) -> Bind:
    """The latent part is V and the second half of Q and K, of which the first is the rotary part."""

    def bind(inputs: tuple[Any, ...], outputs: tuple[Any, ...]) -> Callable[[], Any]:
        function = _load(FLASH_ATTN).flash_attn_with_kvcache
        q, cache, table, lengths, scale = inputs
        options = {"page_table": table, "cache_seqlens": lengths, "softmax_scale": scale, "causal": plan.causal}
        return _call_flash_attn(function, q, cache, options)

    return bind


def _call_flash_attn(function: Callable[..., Any], q: Any, keys: Any, options: dict[str, Any]) -> Callable[[], Any]:
    """keys: [pages, page_size, 576], or [batch, keys, 576] where `options` have no page table."""
    keys = keys.unsqueeze(2)
    parts = {"q": q[..., LATENT_DIM:], "qv": q[..., :LATENT_DIM]}
    parts |= {"k_cache": keys[..., LATENT_DIM:], "v_cache": keys[..., :LATENT_DIM]}
    return lambda: function(**parts, **options)


def _bind_fa3_fwd(plan: MlaPlan) -> Bind:
    """fa3-fwd is built without paging, so its keys are copied out of the cache beforehand: it reads no table, and its
    keys lie one after the other."""

    def bind(inputs: tuple[Any, ...], outputs: tuple[Any, ...]) -> Callable[[], Any]:
        module = _load(FA3_FWD)
        q, cache, table, lengths, scale = inputs
        pages = -(-int(lengths.max()) // plan.page_size)
        metadata = _plan_fa3(plan, module, inputs, pages)()
        options = {"cache_seqlens": lengths, "softmax_scale": scale, "causal": plan.causal}
        keys = gather_keys(cache, table[:, :pages], lengths)
        return _call_flash_attn(module.flash_attn_with_kvcache, q, keys, options | {"scheduler_metadata": metadata})

    return bind


def _bind_fa3_fwd_metadata(plan: MlaPlan) -> Bind:
    def bind(inputs: tuple[Any, ...], outputs: tuple[Any, ...]) -> Callable[[], Any]:
        return _plan_fa3(plan, _load(FA3_FWD), inputs, -(-int(inputs[3].max()) // plan.page_size))

    return bind


def _plan_fa3(plan: MlaPlan, module: Any, inputs: tuple[Any, ...], pages: int) -> Callable[[], Any]:
    """Makes the metadata of FlashAttention-3. pages: of the longest request."""
    q, _, _, lengths, _ = inputs
    batch, query_len, heads, _ = q.shape
    dims = (batch, query_len, pages * plan.page_size, heads, 1, ROPE_DIM, lengths)
    options = {"qkv_dtype": q.dtype, "headdim_v": LATENT_DIM, "causal": plan.causal}
    return lambda: module.get_scheduler_metadata(*dims, **options)


def _bind_paged_read(plan: MlaPlan) -> Bind:
    def bind(inputs: tuple[Any, ...], outputs: tuple[Any, ...]) -> Callable[[], Any]:
        cache, table, lengths, *_ = inputs[len(plan.queries) :]
        if not cache.is_cuda:
            raise ValueError("reads the memory of a CUDA device")
        from cutegen.device.mla_decode.paged_read import compile_paged_read

        rows = plan.rows_of(cache)
        element = _CUTLASS[plan.dtype] if plan.cache_format is None else "Uint8"
        kernel = compile_paged_read(element, plan.page_size, plan.arch, rows.shape[2] * rows.element_size())
        ctas = plan.sm_count(cache.get_device())
        return lambda: kernel(rows, table, lengths, ctas)

    return bind


def _bind_dense(plan: MlaPlan) -> Bind:
    def bind(inputs: tuple[Any, ...], outputs: tuple[Any, ...]) -> Callable[[], Any]:
        queries, (cache, table, lengths, *kv_scale, scale) = inputs[: len(plan.queries)], inputs[len(plan.queries) :]
        if (keys := table.numel() * plan.page_size) > DENSE_KEYS:
            raise ValueError(f"its dense copy of {keys} keys would only be slow; measured up to {DENSE_KEYS}")
        return lambda: attend_dense(queries, plan.unpack(cache, *kv_scale), table, lengths, scale, causal=plan.causal)

    return bind
