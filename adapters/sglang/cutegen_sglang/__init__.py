"""Linear layers, experts and MLA attention of SGLang on plans of cutegen."""

from __future__ import annotations

from cutegen_sglang.attention import register_attention
from cutegen_sglang.experts import CutegenExperts, install_experts
from cutegen_sglang.linear import CutegenBlockLinear, install

__all__ = ["CutegenBlockLinear", "CutegenExperts", "install", "install_experts", "register_attention"]
