"""Winners that are bound to a spec, as a tune writes them, with figures that nobody measured."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from gemm_specs import ALONE, resolve_text

from cutegen.resolve import bind_winner
from cutegen.resolve.binding import KERNELS
from cutegen.resolve.winners import DEFAULT, Winner

H200, H100 = "NVIDIA H200", "NVIDIA H100 80GB HBM3"
TILINGS: dict[str, dict[str, object]] = {
    "flat": {"warpgroups.schedule": "cooperative", "warpgroups.consumer.count": 1, "tiling.tile": [64, 256, 64],
             "tiling.cluster": [1, 1], "tma.b.multicast": 1},
    "turns": {"warpgroups.schedule": "pingpong", "tiling.tile": [128, 128, 64]},
}  # fmt: skip


TOOLS = f"dsl 4.8.1 cu13, kernels {KERNELS}"


def winner(low: int, high: int, tiling: str, device: str = H200, n: int = 4096, k: int = 4096) -> Winner:
    calls = {"m": (low, high), "n": n, "k": k}
    won = (1.1, 1.2, 1.3) if tiling != DEFAULT else None
    return Winner(device, calls, tiling, 8.25, won, "torch.mm", (0.98, 1.0, 1.02), "abc123", TOOLS)


def bound(winners: Iterable[Winner], tilings: Mapping[str, Any] = TILINGS, text: str = ALONE) -> tuple[Winner, ...]:
    """As a tune of this spec writes them."""
    before = resolve_text(text)
    return tuple(replace(w, measured=bind_winner(before, tilings.get(w.tiling))) for w in winners)


WINNERS = bound((
    winner(1, 16, "flat"),
    winner(17, 64, "flat"),
    winner(65, 128, DEFAULT),
    winner(129, 256, "turns"),
    winner(129, 256, "flat", H100),
    winner(33, 64, "turns", n=1280, k=8192),
))  # fmt: skip
