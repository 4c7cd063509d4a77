"""A plugin of vLLM: `register` is its entry point of the group `vllm.general_plugins`."""

from __future__ import annotations

from cutegen_vllm.linear import make_kernel, register

__all__ = ["make_kernel", "register"]
