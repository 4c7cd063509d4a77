"""A plugin of vLLM: `register` here, in `experts` and in `attention`, its entry points of `vllm.general_plugins`."""

from __future__ import annotations

from cutegen_vllm.attention import make_backend
from cutegen_vllm.experts import make_experts
from cutegen_vllm.linear import make_kernel, register

__all__ = ["make_backend", "make_experts", "make_kernel", "register"]
