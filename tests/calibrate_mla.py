"""CUTLASS's MLA decode in f16 on the PTX machine, for tests/calibrate.py: two ragged requests over pages."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import cutlass
import torch
from cutlass import cute
from cutlass.cute.runtime import make_fake_stream, make_fake_tensor

from cutegen.machine import Simulation

FILE, CLASS = "blackwell/kernel/attention/mla/mla_decode_fp16.py", "BlackwellMultiHeadLatentAttentionForwardFP16"
ARGUMENTS: dict[str, Any] = {
    "acc_dtype": "f32", "lse_dtype": "f32", "mma_qk_tiler_mn": (128, 128), "mma_pv_tiler_mn": (128, 256),
    "max_active_clusters": 2, "page_size": 128, "skip_correction_threshold": 0.0, "is_persistent": True,
    "is_var_seq": True, "is_var_split_kv": False,
}  # fmt: skip
HEADS, LATENT, HEAD, PAGE = 128, 512, 576, 128
LENGTHS = (300, 77)
SCALE = HEAD**-0.5
# A warp may overwrite the row maxima that another still reads: the exchange is read between two barriers only where
# there is a second one (docs/ptx-machine.md). Named barrier 7 is free.
EXCHANGE = r"(bar\.sync\s+2, 128;(?:(?!bar\.sync)[^;]*;)*?\s+ld\.shared\.b32[^;]*;)"


def cure(ptx: str) -> str:
    """With the barrier that the exchange of row maxima lacks."""
    cured, found = re.subn(EXCHANGE, r"\1 bar.sync 7, 128;", ptx)
    assert found, "no exchange of row maxima is in the PTX"
    return cured


def _fake(tensor: Any, kind: Any) -> Any:
    """Of any extents and strides, with the contiguous dim that the tensor has."""
    step = 128 // kind.width if kind.width == 16 else 1
    shape = tuple(cute.sym_int(divisibility=step) if s == 1 else cute.sym_int() for s in tensor.stride())
    strides = tuple(1 if s == 1 else cute.sym_int64(divisibility=step) for s in tensor.stride())
    return make_fake_tensor(kind, shape, strides, assumed_align=16 if kind.width == 16 else 4)


def draw() -> list[Any]:
    """Queries and cache, each in a latent and a rotary part, table, lengths, output and LSE, as the kernel has them."""
    batch, pages = len(LENGTHS), -(-max(LENGTHS) // PAGE)
    q, cache = torch.randn(batch, 1, HEADS, HEAD).half(), torch.randn(batch * pages, PAGE, HEAD).half()
    queries = [part.contiguous().permute(2, 3, 1, 0) for part in (q[..., :LATENT], q[..., LATENT:])]
    keys = [part.contiguous().permute(1, 2, 0) for part in (cache[..., :LATENT], cache[..., LATENT:])]
    table = torch.randperm(batch * pages, dtype=torch.int32).view(batch, pages).permute(1, 0)
    lengths = torch.tensor(LENGTHS, dtype=torch.int32)
    out = torch.full((batch, 1, HEADS, LATENT), float("nan")).half().permute(2, 3, 1, 0)
    lse = torch.full((batch, 1, HEADS), float("nan")).permute(2, 1, 0)
    return [*queries, *keys, table, lengths, out, lse]


def wrap(kernel: Any) -> tuple[Any, list[Any]]:
    """A host function of what `draw` gives, and what it is compiled with."""

    @cute.jit
    def host(
        q_latent: cute.Tensor, q_rope: cute.Tensor, c_latent: cute.Tensor, c_rope: cute.Tensor, table: cute.Tensor,
        lengths: cute.Tensor, out: cute.Tensor, lse: cute.Tensor, stream,
    ):  # fmt: skip
        kernel(
            q_latent, q_rope, c_latent, c_rope, table, out, lse, None, cutlass.Int32(1), lengths, None,
            cutlass.Float32(SCALE), cutlass.Float32(1.0), stream,
        )  # fmt: skip

    half, word = cutlass.Float16, cutlass.Int32
    kinds = (half, half, half, half, word, word, half, cutlass.Float32)
    return host, [*map(_fake, draw(), kinds), make_fake_stream(use_tvm_ffi_env_stream=True)]


def errors(operands: list[Any]) -> Iterator[float]:
    """The largest of each request's output, against float64."""
    q_latent, q_rope, c_latent, c_rope, table, lengths, out, _ = operands
    keys, q = (torch.cat(parts, 1).double() for parts in ((c_latent, c_rope), (q_latent, q_rope)))
    for b, length in enumerate(lengths.tolist()):
        own = keys.permute(2, 0, 1)[table[:, b].long()].reshape(-1, HEAD)[:length]
        weights = (q[:, :, 0, b] @ own.T * SCALE).softmax(-1)
        yield float((weights @ own[:, :LATENT] - out[:, :, 0, b].double()).abs().max())


def execute(text: str, code: bytes, orders: int, tolerance: float) -> dict[str, Any]:
    """As that of calibrate.py. Races are not looked for, as two warps write each LSE, with the same value."""
    torch.manual_seed(0)
    operands, told = draw(), []
    simulation = Simulation(sm_count=4, mutate=cure, races=False)
    launch = simulation.bind(text, code)
    for simulation.seed in range(orders):
        operands[-2].fill_(float("nan"))
        launch(*operands)
        worst = max(errors(operands))
        told.append("" if worst <= tolerance else f"wrong: off by {worst:g}, of at most {tolerance:g}")
    return {"orders": told, "forms": sorted(simulation.forms()), "lacking": simulation.lacking[:4]}
