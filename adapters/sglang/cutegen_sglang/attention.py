"""MLA attention of SGLang whose decode is a plan of cutegen; all else is that of the backend it is made of."""

from __future__ import annotations

import importlib
from typing import Any

from cutegen.compat.attention import AttentionPlan, LatentAttention

BASE = "sglang.srt.layers.attention.flashinfer_mla_backend"
REGISTRY = "sglang.srt.layers.attention.attention_registry"
NAME = "cutegen_mla"
# What SGLang calls of a backend before a batch, and for batches of a CUDA graph; older releases have others.
HOOKS = ("init_forward_metadata", "init_cuda_graph_state", "init_forward_metadata_out_graph", "forward_decode")


def make_backend(plan: Any, base: type[Any]) -> type[Any]:
    """A class of SGLang's attention backends. base: the one that prefills, and what it cannot run."""
    import torch

    attention = AttentionPlan(plan)

    class CutegenMLABackend(base):  # type: ignore[misc]
        """The page table and lengths of decode lie in buffers that CUDA graphs keep."""

        contract = attention

        def __init__(self, model_runner: Any, *arguments: Any, **named: Any) -> None:
            super().__init__(model_runner, *arguments, **named)
            config = model_runner.model_config
            heads = config.num_attention_heads // model_runner.tp_size
            cache_dtype = str(model_runner.kv_cache_dtype).removeprefix("torch.")
            layer = LatentAttention(
                heads, config.kv_lora_rank, config.qk_rope_head_dim, str(model_runner.dtype).removeprefix("torch."),
                cache_dtype, model_runner.page_size,
            )  # fmt: skip
            if reason := attention.refuse(layer):
                raise ValueError(f"--attention-backend {NAME}: {reason}")
            self.req_to_token = model_runner.req_to_token_pool.req_to_token
            self.token_to_kv_pool = model_runner.token_to_kv_pool
            self.width = config.kv_lora_rank + config.qk_rope_head_dim
            self.decode_table: Any = None
            self.decode_lengths: Any = None
            attention.warm_up()

        def _is_ours(self, forward_batch: Any) -> bool:
            return bool(forward_batch.forward_mode.is_decode_or_idle() and forward_batch.spec_info is None)

        def _fill(self, requests: int, req_pool_indices: Any, seq_lens: Any, pages: int | None = None) -> None:
            """Page tables and lengths of a batch, in the buffers where there are any. pages: columns of the table;
            None: those of the buffer."""
            size = plan.page_size
            pages = self.decode_table.shape[1] if pages is None else pages
            slots = self.req_to_token[req_pool_indices[:requests], : pages * size : size]
            if self.decode_table is None:
                self.decode_table = torch.empty(requests, slots.shape[1], dtype=torch.int32, device=slots.device)
                self.decode_lengths = torch.empty(requests, dtype=torch.int32, device=slots.device)
            self.decode_table[:requests, : slots.shape[1]] = slots // size
            self.decode_lengths[:requests] = seq_lens[:requests]

        def init_forward_metadata(self, forward_batch: Any) -> None:
            if not self._is_ours(forward_batch):
                super().init_forward_metadata(forward_batch)
                return
            most = int(forward_batch.seq_lens_cpu.max()) if len(forward_batch.seq_lens_cpu) else 1
            self.decode_table = None
            self._fill(
                forward_batch.batch_size, forward_batch.req_pool_indices, forward_batch.seq_lens,
                -(-most // plan.page_size),
            )  # fmt: skip

        def init_cuda_graph_state(self, max_bs: int, max_num_tokens: int, *arguments: Any, **named: Any) -> None:
            super().init_cuda_graph_state(max_bs, max_num_tokens, *arguments, **named)
            pages = -(-self.req_to_token.shape[1] // plan.page_size)
            device = self.req_to_token.device
            self.graph_buffers = (
                torch.zeros(max_bs, pages, dtype=torch.int32, device=device),
                torch.zeros(max_bs, dtype=torch.int32, device=device),
            )

        def init_forward_metadata_out_graph(self, forward_batch: Any, in_capture: bool = False) -> None:
            if not self._is_ours(forward_batch):
                super().init_forward_metadata_out_graph(forward_batch, in_capture=in_capture)
                return
            self.decode_table, self.decode_lengths = self.graph_buffers
            self._fill(forward_batch.batch_size, forward_batch.req_pool_indices, forward_batch.seq_lens)

        def forward_decode(
            self,
            q: Any,
            k: Any,
            v: Any,
            layer: Any,
            forward_batch: Any,
            save_kv_cache: bool = True,
            q_rope: Any = None,
            k_rope: Any = None,
            **named: Any,
        ) -> Any:
            if not self._is_ours(forward_batch):
                return super().forward_decode(
                    q, k, v, layer, forward_batch, save_kv_cache, q_rope=q_rope, k_rope=k_rope, **named
                )
            pool, place = self.token_to_kv_pool, forward_batch.out_cache_loc
            if k is not None and save_kv_cache:
                if k_rope is not None:
                    pool.set_mla_kv_buffer(layer, place, k, k_rope)
                else:
                    pool.set_kv_buffer(layer, place, k, v)
            heads = layer.tp_q_head_num
            if q_rope is not None:
                latent, rope = (
                    q.view(-1, heads, layer.v_head_dim),
                    q_rope.view(-1, heads, self.width - layer.v_head_dim),
                )
                queries = torch.cat([latent, rope], dim=-1)
            else:
                queries = q.view(-1, heads, self.width)
            cache = pool.get_key_buffer(layer.layer_id).view(-1, plan.page_size, self.width)
            requests = queries.shape[0]
            table, lengths = self.decode_table[:requests], self.decode_lengths[:requests]
            factor = getattr(layer, "k_scale", None)
            out, _ = attention.run(queries, cache, table, lengths, layer.scaling, requests, factor)
            return out.view(-1, heads * layer.v_head_dim)

    return CutegenMLABackend


def register_attention(plan: Any) -> None:
    """Makes `--attention-backend cutegen_mla` a choice of SGLang, in each worker before the model is loaded.
    ImportError: this SGLang has not what is used of it."""
    registry, backends = importlib.import_module(REGISTRY), importlib.import_module(BASE)
    for module, name in ((registry, "register_attention_backend"), (backends, "FlashInferMLAAttnBackend")):
        if not hasattr(module, name):
            raise ImportError(f"{module.__name__} has no {name}")
    base = backends.FlashInferMLAAttnBackend
    if missing := [name for name in HOOKS if not hasattr(base, name)]:
        raise ImportError(f"{BASE}.{base.__name__} has no {' and no '.join(missing)}")
    made = make_backend(plan, base)
    registry.register_attention_backend(NAME)(lambda runner: made(runner))
