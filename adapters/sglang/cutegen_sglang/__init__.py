"""Linear layers of SGLang on plans of cutegen."""

from __future__ import annotations

from cutegen_sglang.linear import CutegenBlockLinear, install

__all__ = ["CutegenBlockLinear", "install"]
