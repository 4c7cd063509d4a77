"""How MLA decode kernels are proved and measured."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from cutegen.dtypes import DTYPES
from cutegen.families.proving import ALL_MODES, Baseline, Mode, Problem, Proving
from cutegen.hardware import MOST_SMS
from cutegen.runtime.mla import KEY_BLOCK, ROW_BLOCK
from cutegen.runtime.mla_inputs import EDGES, LATENT_DIM, Draw
from cutegen.runtime.mla_plan import MlaPlan
from cutegen.runtime.mla_reference import attend_dense

# FlashMLA comes as a package of its own, and inside SGLang's.
FLASH_MLA = ("sgl_kernel.flash_mla", "flash_mla")
FLASH_ATTN = ("flash_attn_interface", "sgl_kernel.flash_attn")
FLASH_MLA_PAGE = 64
# Keys of all requests up to which a dense copy of the cache is worth the comparison.
DENSE_KEYS = 1 << 16


class MlaProving:
    given_draw = Draw("random")

    def list_problems(self, plan: MlaPlan) -> Iterator[Problem]:
        """One key up to thousands, lengths around every edge of blocks and pages, both ends of the promised ranges."""
        low, high = _ends(plan.heads)
        few, many = _ends(plan.query_len)
        odd = min(high, low + 1 | 1)
        short, edges = max(EDGES), len(EDGES) + 1
        for key in plan.tilings:

            def problem(
                name: str, draw: Draw, *extents: int, modes: Sequence[Mode] = ("numerics",), key: str = key
            ) -> Problem:
                return Problem(name, dict(zip(plan.dims, extents)), key, tuple(modes), draw)

            yield problem("one key", Draw(), 1, few, low, 1)
            yield problem("one block", Draw(), 1, many, high, KEY_BLOCK)
            yield problem("edges of blocks", Draw("edges"), edges, few, odd, short, modes=ALL_MODES)
            yield problem("edges, last keys decide", Draw("edges", peaked=True), edges, many, odd, short)
            for tokens in range(few, many + 1):
                yield problem("fewer keys than tokens", Draw("edges"), 4, tokens, low, many + 1)
            yield problem("fewest rows", Draw("random"), 5, few, low, 700)
            yield problem("most rows", Draw("random", peaked=True), 5, many, high, 700)
            yield problem("edges, most heads", Draw("edges"), edges, few, high, short)
            yield problem("requests in parts, most heads", Draw("random"), 6, few, high, 5000)
            yield problem("one request, many parts", Draw(), 1, few, low, 16 * MOST_SMS * KEY_BLOCK // 10 + 5)
            yield problem("one request, last keys decide", Draw(peaked=True), 1, many, high, 4099)
            yield problem("long tail", Draw("long", peaked=True), 40, many, low, 9001, modes=ALL_MODES)
            yield problem("more requests than SMs", Draw("random"), 2 * MOST_SMS + 5, few, low, 200)
            yield problem("a few full blocks each", Draw(), 64, few, odd, 4 * KEY_BLOCK)
            yield problem("no keys at all", Draw("empty"), 4, many, low, KEY_BLOCK)
            yield problem("pages of a pool of layers", Draw("random", pitch=True), 7, many, odd, 500)
        if all(t.max_splits == 1 for t in plan.tilings.values()):  # whichever tiling one and many requests run on
            dims = dict(zip(plan.dims, (40, few, high, 3000)))
            yield Problem("never cut", dims, None, ("alone",), Draw("long", peaked=True))
        dims = dict(zip(plan.dims, (0, few, low, KEY_BLOCK)))
        yield Problem("no requests", dims, None, ("empty",))

    def name_axes(self, plan: MlaPlan, output: int) -> Sequence[str]:
        return [_AXES[dim] for dim in plan.outputs[output].dims]

    def locate(self, plan: MlaPlan, output: int, shape: Sequence[int], index: Sequence[int], tiling: Any) -> str:
        """Row block and row; for the output also the warpgroup, each of which owns half of the columns."""
        names = self.name_axes(plan, output)
        at, heads = dict(zip(names, index)), dict(zip(names, shape))["head"]
        row = at["token"] * heads + at["head"]
        text = f"request {at['batch']}, row block {row // ROW_BLOCK}, row {row % ROW_BLOCK} of it"
        if "column" in at:
            half = LATENT_DIM // 2
            text += f"; warpgroup {at['column'] // half}, column {at['column'] % half} of it"
        return text

    def list_baselines(self, plan: MlaPlan) -> Iterator[Baseline]:
        if not plan.split_q:
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
                "flash_attn",
                "FlashAttention-3, its MLA path",
                _bind_flash_attn(plan),
                complete=False,
                rival="FlashAttention-3",
            )
        yield Baseline("paged_read", "reads the pages of the cache", _bind_paged_read(plan), complete=False, bound=True)
        yield Baseline(
            "torch",
            "dense copy of the cache, softmax, two products",
            _bind_dense(plan),
            complete=False,
            rival="dense torch",
        )

    def bench_dims(self, plan: MlaPlan) -> Iterator[Mapping[str, int]]:
        """The bandwidth-bound, the compute-bound and the latency-bound ends of serving."""
        (low, high), (few, _) = _ends(plan.heads), _ends(plan.query_len)
        for batch, heads, kv_len in ((128, low, 8192), (128, high, 8192), (8, high, 4096), (1, low, 4096)):
            yield dict(zip(plan.dims, (batch, few, heads, kv_len)))


_AXES = {"batch": "batch", "query_len": "token", "heads": "head", "latent_dim": "column"}
_CUTLASS = {d.torch: d.cutlass for d in DTYPES.values()}
PROVING: Proving = MlaProving()


def _ends(extent: Any) -> tuple[int, int]:
    return (extent, extent) if isinstance(extent, int) else extent


def _load(names: Sequence[str]) -> Any:
    """The first of these modules that can be imported."""
    reasons = []
    for name in names:
        try:
            return importlib.import_module(name)
        except ImportError as error:
            reasons.append(f"{name}: {error}")
    raise ImportError("; ".join(reasons))


def _metadata(inputs: tuple[Any, ...]) -> Any:
    q, _, _, lengths, _ = inputs
    return _load(FLASH_MLA).get_mla_metadata(lengths, q.shape[1] * q.shape[2], 1)


def _bind_flash_mla(plan: MlaPlan) -> Callable[..., Callable[[], Any]]:
    def bind(inputs: tuple[Any, ...], outputs: tuple[Any, ...]) -> Callable[[], Any]:
        if plan.page_size != FLASH_MLA_PAGE:
            raise ValueError(f"takes pages of {FLASH_MLA_PAGE} tokens, these have {plan.page_size}")
        function = _load(FLASH_MLA).flash_mla_with_kvcache
        q, cache, table, lengths, scale = inputs
        metadata, splits = _metadata(inputs)
        cache = cache.unsqueeze(2)
        return lambda: function(
            q, cache, table, lengths, LATENT_DIM, metadata, splits, softmax_scale=scale, causal=plan.causal
        )

    return bind


def _bind_flash_mla_metadata(inputs: tuple[Any, ...], outputs: tuple[Any, ...]) -> Callable[[], Any]:
    return lambda: _metadata(inputs)


def _bind_flash_attn(plan: MlaPlan) -> Callable[..., Callable[[], Any]]:
    """The latent part is V and the second half of Q and K, of which the first is the rotary part."""

    def bind(inputs: tuple[Any, ...], outputs: tuple[Any, ...]) -> Callable[[], Any]:
        function = _load(FLASH_ATTN).flash_attn_with_kvcache
        q, cache, table, lengths, scale = inputs
        cache = cache.unsqueeze(2)
        return lambda: function(
            q=q[..., LATENT_DIM:],
            k_cache=cache[..., LATENT_DIM:],
            v_cache=cache[..., :LATENT_DIM],
            qv=q[..., :LATENT_DIM],
            page_table=table,
            cache_seqlens=lengths,
            softmax_scale=scale,
            causal=plan.causal,
        )

    return bind


def _bind_paged_read(plan: MlaPlan) -> Callable[..., Callable[[], Any]]:
    def bind(inputs: tuple[Any, ...], outputs: tuple[Any, ...]) -> Callable[[], Any]:
        cache, table, lengths, _ = inputs[len(plan.queries) :]
        if not cache.is_cuda:
            raise ValueError("reads the memory of a CUDA device")
        from cutegen.device.paged_read import compile_paged_read

        kernel = compile_paged_read(_CUTLASS[plan.dtype], plan.page_size, plan.arch)
        ctas = plan.sm_count(cache.get_device())
        return lambda: kernel(cache, table, lengths, ctas)

    return bind


def _bind_dense(plan: MlaPlan) -> Callable[..., Callable[[], Any]]:
    def bind(inputs: tuple[Any, ...], outputs: tuple[Any, ...]) -> Callable[[], Any]:
        queries, (cache, table, lengths, scale) = inputs[: len(plan.queries)], inputs[len(plan.queries) :]
        if (keys := table.numel() * plan.page_size) > DENSE_KEYS:
            raise ValueError(f"its dense copy of {keys} keys would only be slow; measured up to {DENSE_KEYS}")
        return lambda: attend_dense(queries, cache, table, lengths, scale, causal=plan.causal)

    return bind
