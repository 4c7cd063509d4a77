"""FlashMLA's interface to MLA decode, so that switching to a kernel of cutegen is one import:

    from cutegen.compat.flash_mla import flash_mla_with_kvcache, get_mla_metadata

Arguments mean what they mean there. What differs: work is scheduled inside the kernel, so metadata are placeholders
that nothing reads; pages of 16, 32 and 128 tokens are taken as well; the stride from page to page may be any multiple
of 16 bytes; sparse attention takes any number of heads and indices, pages of 1 to 1024 tokens and caches in bf16, and
an index outside of the cache counts as none. Dense attention takes a cache in e4m3 with one factor as well, with
queries in bf16. On sm_100 and sm_103 sparse attention is refused, and every other device.

A kernel is rendered when it is first needed, for the dtype, the page size and the mask, or for sparse attention over
one or two caches of 656 bytes a token, of 584, or in bf16, with or without a sink. It promises 1 to 128 heads and 1 to
16 new tokens, and lies in a folder that the process deletes when it ends; it is compiled at its first call, or found
compiled in the cache. `prepare` does both ahead of time, before a CUDA graph is captured for example. `use(plan)` puts
a generated plan of one's own in its place (`from generated.my_spec import PLAN`).
"""

from __future__ import annotations

import atexit
import dataclasses
import functools
import importlib
import importlib.util
import os
import sys
import threading
from itertools import product
from pathlib import Path
from typing import Any

from cutegen.compat.flash_mla_arguments import (
    E4M3,
    PLAIN_ROW,
    PLANE_ROW,
    SPARSE_ROW,
    as_bytes,
    check_extra,
    check_shapes,
    check_sparse,
    check_tensor,
    find_lengths,
    read_factor,
    read_scale,
    refuse,
    rename,
)
from cutegen.compat.flash_mla_specs import MOST_HEADS, MOST_INDICES, MOST_TOKENS, spec_of
from cutegen.runtime.arguments import range_fault
from cutegen.runtime.base import current_device, find_arch
from cutegen.runtime.mla_decode.plan import MlaPlan
from cutegen.runtime.mla_decode.tiling import row_blocks
from cutegen.runtime.temporary import TemporaryFolder

# FlashMLA's buffers, which callers copy: eight int32 for each part of the work, and a prefix sum over the batch.
METADATA_WIDTH = 8
ARCHS = ("sm_90a", "sm_100a", "sm_103a")  # that plans are rendered for
_lock = threading.Lock()
_given: list[MlaPlan] = []
_rendered: dict[tuple[Any, ...], MlaPlan] = {}


@dataclasses.dataclass
class FlashMLASchedMeta:
    """Filled by the first call that gets it; later calls must be alike. tile_scheduler_metadata, num_splits: of
    FlashMLA's shapes, without meaning."""

    @dataclasses.dataclass
    class Config:
        b: int
        s_q: int
        h_q: int
        page_block_size: int
        h_k: int
        causal: bool
        is_fp8_kvcache: bool = False
        topk: int | None = None
        extra_topk: int | None = None

    have_initialized: bool = False
    config: Config | None = None
    tile_scheduler_metadata: Any = None
    num_splits: Any = None
    lengths: Any = None  # of sparse calls without topk_length: all indices
    extra_lengths: Any = None  # and without extra_topk_length


def get_mla_metadata(
    cache_seqlens: Any = None,
    num_q_tokens_per_head_k: int | None = None,
    num_heads_k: int = 1,
    num_heads_q: int | None = None,
    is_fp8_kvcache: bool = False,
    topk: int | None = None,
) -> tuple[Any, Any]:
    """With lengths, (tile_scheduler_metadata, num_splits), two int32 tensors; without, (FlashMLASchedMeta(), None).

    Nothing in them depends on the lengths: they need not be made again when lengths change.
    """
    if cache_seqlens is None:
        return FlashMLASchedMeta(), None
    if num_heads_k != 1:
        raise ValueError(f"flash_mla: num_heads_k is {num_heads_k}; MLA decode has one KV head")
    check_tensor("cache_seqlens", cache_seqlens)
    return _placeholders(cache_seqlens.shape[0], num_q_tokens_per_head_k or 1, cache_seqlens.device)


def flash_mla_with_kvcache(
    q: Any,
    k_cache: Any,
    block_table: Any,
    cache_seqlens: Any,
    head_dim_v: int,
    tile_scheduler_metadata: Any,
    num_splits: Any = None,
    softmax_scale: float | None = None,
    causal: bool = False,
    is_fp8_kvcache: bool = False,
    indices: Any = None,
    attn_sink: Any = None,
    extra_k_cache: Any = None,
    extra_indices_in_kvcache: Any = None,
    topk_length: Any = None,
    extra_topk_length: Any = None,
    *,
    descale_q: Any = None,
    descale_k: Any = None,
) -> tuple[Any, Any]:
    """(out [batch, seq_len_q, heads, 512] in q's dtype, lse [batch, heads, seq_len_q], f32, natural logarithm).

    With `indices` int32 [batch, seq_len_q, topk] attention is sparse: k_cache [pages, page_size, 1, 656] of any 8-bit
    type, is_fp8_kvcache True, causal False, q bf16; block_table and cache_seqlens are not read. An index is page *
    page_size + slot. k_cache may have 584 bytes a token as well, 448 e4m3 and 64 bf16 with scales in e8m0 behind the
    rows of a page, q having 512 values then, or be bf16 [pages, page_size, 1, 576], with is_fp8_kvcache False. A token
    sees keys of extra_k_cache, of the same format with pages of its own size, by extra_indices_in_kvcache and
    extra_topk_length, as well. topk_length int32 [batch]: of each request's tokens only so many indices count.
    attn_sink f32 [heads]: out is times e^lse / (e^lse + e^attn_sink), lse is not. Else attention is dense:

    q [batch, seq_len_q, heads, 576] bf16 or f16, k_cache [pages, page_size, 1, 576], block_table [batch, max_pages] and
    cache_seqlens [batch] int32. softmax_scale: by default q.shape[-1] ** -0.5. causal: aligned to the last key. A row
    without keys has output 0 and LSE +inf. A dense cache may be e4m3, with q in bf16: keys and values are times
    descale_k, f32 [1] on the device. descale_q, and descale_k of other caches, are not read. TypeError, ValueError,
    NotImplementedError: arguments that do not fit, in words.
    """
    check_tensor("k_cache", k_cache)
    check_extra(k_cache, indices, extra_k_cache, extra_indices_in_kvcache, extra_topk_length)
    if indices is None:
        refuse(attn_sink=attn_sink, topk_length=topk_length)
    else:
        check_sparse(indices, k_cache, bool(is_fp8_kvcache), causal)
    check_shapes(q, k_cache, head_dim_v, sparse=indices is not None)
    batch, query_len, heads, _ = q.shape
    page_size, topk = k_cache.shape[1], None if indices is None else indices.shape[-1]
    metadata = tile_scheduler_metadata if isinstance(tile_scheduler_metadata, FlashMLASchedMeta) else None
    extra_topk = None if extra_k_cache is None else extra_indices_in_kvcache.shape[-1]
    config = FlashMLASchedMeta.Config(
        batch, query_len, heads, page_size, 1, causal, k_cache.element_size() == 1, topk, extra_topk=extra_topk
    )
    if metadata:
        _compare(metadata, num_splits, config)
    scale = q.shape[-1] ** -0.5 if softmax_scale is None else read_scale(softmax_scale)
    if indices is None:
        factor = read_factor(q, k_cache, bool(is_fp8_kvcache), descale_k)
        dtype = E4M3 if factor else str(q.dtype).removeprefix("torch.")
        plan = find_plan(dtype, page_size, causal or query_len == 1, query_len, heads)
        if query_len > 1 and q.stride(1) != heads * q.stride(2):
            q = q.contiguous()
        values: tuple[Any, ...] = (q, as_bytes(k_cache), block_table, cache_seqlens, *factor, scale)
    else:
        second: tuple[Any, ...] = ()
        extra_page = 0
        if extra_k_cache is not None:
            held = metadata and metadata.extra_lengths
            more = find_lengths(held, extra_topk_length, extra_indices_in_kvcache, "extra_topk_length")
            second = (as_bytes(extra_k_cache, "extra_k_cache"), extra_indices_in_kvcache, more)
            extra_page = extra_k_cache.shape[1]
        caches = {"token_bytes": k_cache.shape[-1] * k_cache.element_size(), "extra_page": extra_page}
        asked = (page_size, attn_sink is not None, query_len, heads, topk)
        plan = find_sparse_plan(*asked, extra_topk=extra_topk, **caches)
        lengths = find_lengths(metadata and metadata.lengths, topk_length, indices)
        values = (q, as_bytes(k_cache), indices, lengths, *second, *(attn_sink,) * (attn_sink is not None), scale)
    try:
        result: tuple[Any, Any] = plan.kernel_fn(*values)
    except (TypeError, ValueError) as refused:
        refused.args = tuple(rename(text) for text in refused.args)
        raise
    if metadata and not metadata.have_initialized:  # not before: a refused call leaves them as they were
        metadata.tile_scheduler_metadata, metadata.num_splits = _placeholders(batch, query_len * heads, q.device)
        metadata.have_initialized, metadata.config = True, config
        metadata.lengths = values[3] if indices is not None and topk_length is None else None
        metadata.extra_lengths = values[6] if extra_topk is not None and extra_topk_length is None else None
    return result


def use(plan: MlaPlan) -> None:
    """Calls that `plan` promises to take go to it from now on; the plan that was given last comes first. TypeError,
    ValueError: it is not a plan with this interface."""
    if not isinstance(plan, MlaPlan):
        raise TypeError(f"flash_mla: {plan!r} is not a plan of MLA decode; pass PLAN of a generated package")
    if plan.split_q or plan.lse_base != "e" or plan.lse_layout != "bhs":
        raise ValueError(f"flash_mla: {plan.name} needs q: joined, lse: {{base: e, layout: bhs}} in its spec")
    if plan.sparse and plan.row_bytes not in (rows := (SPARSE_ROW, PLANE_ROW, PLAIN_ROW)):
        raise ValueError(f"flash_mla: {plan.name} reads {plan.row_bytes} bytes a token; sparse calls have {rows}")
    cache = plan.cache_format
    if not plan.sparse and cache is not None and (cache.latent_offset or not cache.per_tensor):
        raise ValueError(
            f"flash_mla: {plan.name} reads another quantised cache than dense calls have: e4m3, the latent part first, "
            "with one factor; call its plan"
        )
    if plan.sparse and plan.dtype != "bfloat16":
        raise ValueError(f"flash_mla: {plan.name} is of {plan.dtype}; sparse calls are in bfloat16")
    if not plan.sparse and plan.has_sink:
        raise ValueError(f"flash_mla: {plan.name} takes a sink, which dense calls do not have; call its plan")
    _given.insert(0, plan)


def prepare(
    dtype: Any = "bfloat16",
    page_size: int = 64,
    causal: bool = True,
    *,
    sparse: bool = False,
    sink: bool = False,
    token_bytes: int = SPARSE_ROW,
    extra_page_size: int = 0,
) -> MlaPlan:
    """Compiles every plan that such calls may go to: those that were given to `use`, and the rendered one unless one of
    them takes all calls. Without it the first calls do. Returns the one that is asked first. dtype: torch's of the
    cache, or its name there. sparse: calls with indices, and with attn_sink or not; then dtype and causal say nothing.
    token_bytes, extra_page_size: of their caches; 0: there is no second one."""
    if sparse:
        caches = {"token_bytes": token_bytes, "extra_page": extra_page_size}
        corners = product((1, MOST_TOKENS), (1, MOST_HEADS), (1, MOST_INDICES))
        given = [plan for plan in _given if _takes_sparse(plan, page_size, sink, token_bytes, extra_page_size)]
        found = (find_sparse_plan(page_size, sink, *corner, **caches) for corner in corners)
        plans = list(dict.fromkeys([*given, *found]))
    else:
        kind = (str(dtype).removeprefix("torch."), page_size, causal)
        plans = [plan for plan in _given if _takes(plan, *kind) or _takes(plan, *kind, query_len=1)]
        corners_of_rows = list(product((1, MOST_TOKENS), (1, MOST_HEADS)))
        if not any(all(_takes(plan, *kind, *corner) for corner in corners_of_rows) for plan in plans):
            plans.append(_find_rendered(*kind))
    for plan in plans:
        plan.warm_up()
    return find_sparse_plan(page_size, sink, **caches) if sparse else find_plan(*kind)


def find_plan(
    dtype: str, page_size: int, causal: bool, query_len: int | None = None, heads: int | None = None
) -> MlaPlan:
    """The plan that runs a call: one that was given to `use`, else rendered. dtype: of the cache, by its name in torch.
    query_len, heads: of the call, if known."""
    kind = (dtype, page_size, causal)
    return next((plan for plan in _given if _takes(plan, *kind, query_len, heads)), None) or _find_rendered(*kind)


def find_sparse_plan(
    page_size: int = 64,
    sink: bool = False,
    query_len: int | None = None,
    heads: int | None = None,
    topk: int | None = None,
    *,
    token_bytes: int = SPARSE_ROW,
    extra_page: int = 0,
    extra_topk: int | None = None,
) -> MlaPlan:
    """The plan that runs a sparse call, as `find_plan` finds that of a dense one. extra_page: rows of a page of the
    second cache, 0 without one."""
    asked = (page_size, sink, token_bytes, extra_page, query_len, heads, topk, extra_topk)
    return next((plan for plan in _given if _takes_sparse(plan, *asked)), None) or _find_rendered(
        token_bytes, page_size, sink, extra_page
    )


def _takes_sparse(
    plan: MlaPlan,
    page_size: int,
    sink: bool,
    token_bytes: int = SPARSE_ROW,
    extra_page: int = 0,
    query_len: int | None = None,
    heads: int | None = None,
    topk: int | None = None,
    extra_topk: int | None = None,
) -> bool:
    """Whether a plan promises to run a sparse call."""
    extents = (("query_len", query_len), ("heads", heads), ("topk", topk))
    second = plan.extra.page_size if plan.extra else 0
    if plan.extra and extra_topk is not None and range_fault("extra_topk", extra_topk, plan.extra.topk):
        return False
    return (
        plan.sparse
        and (plan.page_size, plan.has_sink) == (page_size, sink)
        and (plan.row_bytes, second) == (token_bytes, extra_page)
        and not any(n is not None and range_fault(d, n, plan.dims[d]) for d, n in extents)
    )


def _takes(
    plan: MlaPlan, dtype: str, page_size: int, causal: bool, query_len: int | None = None, heads: int | None = None
) -> bool:
    """Whether a plan promises to run a call; with one token a mask makes no difference."""
    extents = (("query_len", query_len), ("heads", heads))
    return (
        not plan.sparse
        and (E4M3 if plan.cache_format else plan.dtype, plan.page_size) == (dtype, page_size)
        and (plan.causal == causal or query_len == 1)
        and not any(n is not None and range_fault(d, n, plan.dims[d]) for d, n in extents)
    )


def _find_rendered(*kind: Any) -> MlaPlan:
    kind = (_arch_of(current_device()), *kind)
    if kind not in _rendered:
        with _lock:
            if kind not in _rendered:
                _rendered[kind] = _render(*kind)
    return _rendered[kind]


@functools.cache
def _arch_of(device: int) -> str:
    """That of a CUDA device, -1 for none; the first where no kernel is for it, as a launch says then."""
    try:
        return ARCHS[0] if device < 0 else find_arch("flash_mla", device, ARCHS)
    except ValueError:
        return ARCHS[0]


def _render(arch: str, dtype: Any, page_size: int, flag: bool, extra_page: int = 0) -> MlaPlan:
    """The plan of `spec_of`."""
    from cutegen.diagnostics import SpecError
    from cutegen.families.mla_decode.lowering.sm100.spec_rules import SM100_SPEC
    from cutegen.render import render_package
    from cutegen.resolve import resolve_document
    from cutegen.spec import load_text

    name, text = spec_of(arch, dtype, page_size, flag, extra_page)
    try:
        package = render_package(resolve_document(load_text(text, name), None).resolved)
    except SpecError as error:
        found = error.diagnostics[0]
        # The device decides the architecture here, so the remedy is another one of these.
        remedy = "call it on an sm_90 device" if found.rule == SM100_SPEC.id else found.remedy
        raise ValueError(f"flash_mla: {'; '.join(filter(None, (found.message, remedy)))}") from None
    return _import_plan(_write(package) / package.name, f"_cutegen_{name}_{arch}")


def _write(package: Any) -> Path:
    """The folder that the package lies in: one of this process, which deletes it when it ends. What lies in a cache
    others may have written, and to import a package runs it."""
    from cutegen.render import write_package

    temporary = TemporaryFolder()
    atexit.register(_delete, temporary, os.getpid())
    write_package(package, temporary.path)
    return temporary.path


def _delete(temporary: TemporaryFolder, owner: int) -> None:
    """Not in a process that was forked from the owner: that still needs it."""
    if os.getpid() == owner:
        temporary.delete()


def _import_plan(folder: Path, module: str) -> MlaPlan:
    spec = importlib.util.spec_from_file_location(
        module, folder / "__init__.py", submodule_search_locations=[str(folder)]
    )
    assert spec is not None
    assert spec.loader is not None
    sys.modules[module] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(sys.modules[module])
    plan: MlaPlan = sys.modules[module].PLAN
    return plan


def _compare(metadata: FlashMLASchedMeta, num_splits: Any, config: FlashMLASchedMeta.Config) -> None:
    if num_splits is not None:
        raise ValueError("flash_mla: num_splits must be None when the metadata is a FlashMLASchedMeta")
    if metadata.have_initialized and metadata.config != config:
        raise ValueError(f"flash_mla: the metadata was made for {metadata.config}, this call is {config}")


def _placeholders(batch: int, rows: int, device: Any) -> tuple[Any, Any]:
    import torch

    return (
        torch.zeros(_count_parts(rows, device), METADATA_WIDTH, dtype=torch.int32, device=device),
        torch.zeros(batch + 1, dtype=torch.int32, device=device),
    )


def _count_parts(rows: int, device: Any) -> int:
    """FlashMLA's: blocks of 64 rows share the SMs."""
    import torch

    sms = torch.cuda.get_device_properties(device).multi_processor_count if device.type == "cuda" else 1
    return max(1, int(sms) // row_blocks(rows, 1))
