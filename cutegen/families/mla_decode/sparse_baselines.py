"""MLA decode with sparse keys by other libraries: FlashMLA's decoding over the cache of 656 bytes a token.

Written against sgl-flash-mla 1.0.0.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from typing import Any

from cutegen.families.proving import Baseline
from cutegen.runtime.arguments import torch_dtype
from cutegen.runtime.baselines import Bind
from cutegen.runtime.mla_decode.inputs import LATENT_DIM, SPARSE_ROW
from cutegen.runtime.mla_decode.plan import MlaPlan
from cutegen.runtime.mla_decode.reference import attend_copied

PAGE, HEADS, KEYS = 64, (64, 128), 64  # what FlashMLA takes; topk is a multiple of KEYS
COPIED_KEYS = 1 << 17  # of all tokens, up to which a copy of them is worth the comparison


def list_sparse_baselines(plan: MlaPlan) -> Iterator[Baseline]:
    """Every baseline that could apply to a plan whose calls take indices; none reads two caches."""
    if plan.extra is not None:
        return
    if not plan.split_q and plan.row_bytes == SPARSE_ROW:
        comparable = plan.lse_base == "e" and plan.lse_layout == "bhs"
        yield Baseline(
            "sgl_flash_mla",
            "sparse decode of sgl-flash-mla, use_legacy=True, heads padded before, its metadata made before",
            _bind_sgl_flash_mla(plan),
            complete=comparable,
            returns=comparable,
            rival="FlashMLA",
        )
    yield Baseline("row_read", "reads the rows that are named", _bind_row_read(plan), complete=False, bound=True)
    if plan.has_sink:
        return
    yield Baseline(
        "torch", "copy of the rows, softmax, two products", _bind_copied(plan), complete=False, rival="dense torch"
    )


def _bind_sgl_flash_mla(plan: MlaPlan) -> Bind:
    def bind(inputs: tuple[Any, ...], outputs: tuple[Any, ...]) -> Callable[[], Any]:
        module = importlib.import_module("flash_mla")
        q, cache, indices, topk_length, *sink, scale = inputs
        batch, query_len, heads, dim = q.shape
        topk = indices.shape[2]
        if plan.page_size != PAGE or topk % KEYS:
            raise ValueError(f"takes pages of {PAGE} rows and multiples of {KEYS} indices")
        padded = next(n for n in HEADS if n >= heads)
        rows = q.new_zeros(batch, query_len, padded, dim)
        rows[:, :, :heads] = q
        lengths = None if bool((topk_length == topk).all()) else topk_length[:, 0].contiguous()
        if lengths is not None and query_len > 1:
            raise ValueError("takes one topk_length a request")
        held, _ = module.get_mla_metadata()
        options = {"indices": indices, "topk_length": lengths, "is_fp8_kvcache": True, "use_legacy": True}
        if sink:
            options["attn_sink"] = q.new_zeros(padded, dtype=sink[0].dtype)
            options["attn_sink"][:heads] = sink[0]
        function, pages = module.flash_mla_with_kvcache, cache.unsqueeze(2).view(torch_dtype("float8_e4m3fn"))

        def launch() -> Any:
            out, lse = function(rows, pages, None, None, LATENT_DIM, held, None, scale, False, **options)
            return out[:, :, :heads], lse[:, :heads]

        launch()  # makes the metadata
        return launch

    return bind


def _bind_row_read(plan: MlaPlan) -> Bind:
    def bind(inputs: tuple[Any, ...], outputs: tuple[Any, ...]) -> Callable[[], Any]:
        cache, indices, topk_length, *_ = inputs[len(plan.queries) :]
        if not cache.is_cuda:
            raise ValueError("reads the memory of a CUDA device")
        if not bool((topk_length == indices.shape[2]).all()):
            raise ValueError("reads the rows of all indices; some of these do not count")
        from cutegen.device.mla_decode.row_read import compile_row_read

        rows = plan.rows_of(cache).view(torch_dtype("uint8"))
        kernel = compile_row_read(plan.page_size, plan.arch, rows.shape[2])
        sms, named, sink = plan.sm_count(cache.get_device()), indices.flatten(), indices.new_zeros(1)
        return lambda: kernel(rows, named, sink, sms)

    return bind


def _bind_copied(plan: MlaPlan) -> Bind:
    def bind(inputs: tuple[Any, ...], outputs: tuple[Any, ...]) -> Callable[[], Any]:
        queries, (cache, indices, lengths, *kv_scale, scale) = inputs[: len(plan.queries)], inputs[len(plan.queries) :]
        if (keys := indices.numel()) > COPIED_KEYS:
            raise ValueError(f"its copy of {keys} rows would only be slow; measured up to {COPIED_KEYS}")
        if plan.cache_format is not None and plan.cache_format.plane:
            raise ValueError("copies rows, and the scales of these lie elsewhere in a page")
        return lambda: attend_copied(queries, plan.unpack, cache, indices, lengths, scale, *kv_scale)

    return bind
