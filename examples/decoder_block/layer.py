"""A decoder layer as Llama has it, twice: from kernels of the specs in this folder, and in plain PyTorch.

    norm -> queries, keys and values -> attention -> projection + residual
    norm -> gate and up, SwiGLU -> projection (down) + residual

Both are modules for torch.compile(fullgraph=True) and CUDA graphs, and both call `Attention`. In fp8, the projections
take e4m3 with scales of 1 x 128 elements of activations and of 128 x 128 of weights.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import cutegen

FOLDER = Path(__file__).parent
Format: TypeAlias = Literal["bf16", "e4m3"]
EPSILON = 1e-5
BLOCK, LARGEST, LEAST = 128, 448.0, 1e-4  # elements that share a scale, the largest e4m3, the least maximum of a block

# What each step of a layer is.
KINDS: Mapping[str, str] = {
    **dict.fromkeys(("qkv", "out", "gate_up", "down"), "GEMM"),
    "attention": "attention",
    **dict.fromkeys(("norm_in", "quantise", "norm_out", "gate", "add"), "rows"),
}
# The spec of each kernel, by what it does in a layer.
SPECS: Mapping[Format, Mapping[str, str]] = {
    "bf16": {
        "norm": "decoder_norm",
        "qkv": "decoder_qkv",
        "project": "decoder_project",
        "gate_up": "decoder_gate_up",
    },
    "e4m3": {
        "norm": "decoder_norm_e4m3",
        "quantise": "decoder_quant_e4m3",
        "qkv": "decoder_qkv_e4m3",
        "project": "decoder_project_e4m3",
        "gate_up": "decoder_gate_up_e4m3",
    },
}


@dataclass(frozen=True)
class Sizes:
    """Extents of a layer; those of Llama-3-8B by default. theta: the base of rotary angles."""

    hidden: int = 4096
    heads: int = 32
    kv_heads: int = 8
    head_dim: int = 128
    feed_forward: int = 14336
    theta: float = 500_000.0

    @property
    def weights(self) -> dict[str, tuple[int, int]]:
        """Rows and columns of the projections."""
        inner = self.heads * self.head_dim
        return {
            "qkv": (inner + 2 * self.kv_heads * self.head_dim, self.hidden),
            "out": (self.hidden, inner),
            "gate_up": (2 * self.feed_forward, self.hidden),
            "down": (self.hidden, self.feed_forward),
        }


class Cache(NamedTuple):
    """keys, values: [sequences, kv_heads, capacity, head_dim]. start: tokens of each sequence that are there."""

    keys: Tensor
    values: Tensor
    start: int


def load_plans(form: Format) -> dict[str, Any]:
    """The plan of each spec, by what its kernel does."""
    return {role: cutegen.load(FOLDER / f"{name}.yaml") for role, name in SPECS[form].items()}


def make_weights(sizes: Sizes, form: Format, device: str) -> dict[str, Tensor]:
    """Random weights: rows of unit norm on average, so that projections keep the variance. In e4m3 each has a second
    tensor NAME_scale: f32[rows / 128, columns / 128]."""
    made = {}
    for name, (rows, columns) in sizes.weights.items():
        weight = torch.randn(rows, columns, device=device, dtype=torch.float32) / columns**0.5
        if form == "bf16":
            made[name] = weight.bfloat16()
        else:
            made[name], made[f"{name}_scale"] = quantise_blocks(weight)
    for name in ("norm_in", "norm_out"):
        made[name] = (1 + 0.1 * torch.randn(sizes.hidden, device=device)).bfloat16()
    return made


def quantise_blocks(weight: Tensor) -> tuple[Tensor, Tensor]:
    """e4m3 with a scale for each 128 x 128 elements."""
    rows, columns = weight.shape
    blocks = weight.view(rows // BLOCK, BLOCK, columns // BLOCK, BLOCK)
    scale = blocks.abs().amax((1, 3)).clamp(min=LEAST) / LARGEST
    return (blocks / scale[:, None, :, None]).view(rows, columns).to(torch.float8_e4m3fn), scale


def widen(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The same weights in float32, scales applied: those of the reference."""
    wide = {}
    for name, weight in weights.items():
        if f"{name}_scale" in weights:
            scale = weights[f"{name}_scale"].repeat_interleave(BLOCK, 0).repeat_interleave(BLOCK, 1)
            wide[name] = weight.float() * scale
        elif not name.endswith("_scale"):
            wide[name] = weight.float()
    return wide


class Attention(nn.Module):
    """Causal attention of new tokens to a cache, to which it adds them: rotary embedding of queries and keys, and
    torch's scaled_dot_product_attention.

    qkv: [sequences * new, (heads + 2 * kv_heads) * head_dim], tokens of a sequence one after another. Either a
    sequence has one new token, or its first ones are new: then the cache begins with them.
    """

    def __init__(self, sizes: Sizes, capacity: int, device: str) -> None:
        super().__init__()
        self.sizes = sizes
        half = torch.arange(0, sizes.head_dim, 2, device=device, dtype=torch.float32) / sizes.head_dim
        angles = torch.arange(capacity, device=device)[:, None] * sizes.theta**-half
        self.register_buffer("cosines", angles.cos().repeat(1, 2))
        self.register_buffer("sines", angles.sin().repeat(1, 2))

    def forward(self, qkv: Tensor, cache: Cache) -> Tensor:
        s = self.sizes
        sequences, new = cache.keys.shape[0], qkv.shape[0] // cache.keys.shape[0]
        if new > 1 and cache.start:
            raise ValueError(f"{new} new tokens of a sequence that has {cache.start}: pass one, or start with them")
        end = cache.start + new
        heads = qkv.view(sequences, new, s.heads + 2 * s.kv_heads, s.head_dim).transpose(1, 2)
        q, k, v = heads.split((s.heads, s.kv_heads, s.kv_heads), dim=1)
        q, k = (self.rotate(part, cache.start, end) for part in (q, k))
        cache.keys[:, :, cache.start : end] = k
        cache.values[:, :, cache.start : end] = v
        if new == 1:  # heads that share keys are the queries of one: keys are read once
            q = q.reshape(sequences, s.kv_heads, -1, s.head_dim)
            found = F.scaled_dot_product_attention(q, cache.keys[:, :, :end], cache.values[:, :, :end])
            return found.reshape(sequences, -1)
        found = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        return found.transpose(1, 2).reshape(sequences * new, -1)

    def rotate(self, heads: Tensor, start: int, end: int) -> Tensor:
        """Pairs of a head lie half of it apart."""
        first, second = heads.float().chunk(2, dim=-1)
        turned = torch.cat((-second, first), dim=-1)
        return (heads * self.cosines[start:end] + turned * self.sines[start:end]).type_as(heads)


class Layer(nn.Module):
    """x: [tokens, hidden] -> the same. What it computes is a list of steps, which `record_steps` looks at."""

    def __init__(self, weights: Mapping[str, Tensor], attention: Attention) -> None:
        super().__init__()
        for name, weight in weights.items():
            self.register_buffer(name, weight)
        self.attention = attention

    def weight(self, name: str) -> tuple[Tensor, ...]:
        """A projection's weight, and its scales where it has some."""
        names = (name, f"{name}_scale")
        return tuple(getattr(self, n) for n in names if hasattr(self, n))

    def step(self, name: str, function: Callable[..., Any], *values: Any) -> Any:
        """name: one of KINDS."""
        return function(*values)


class GeneratedLayer(Layer):
    """Of kernels from specs. kernels: by what they do, as in SPECS: operators of torch on a GPU, or whatever takes the
    same tensors, such as the plans' references."""

    def __init__(
        self, weights: Mapping[str, Tensor], attention: Attention, kernels: Mapping[str, Callable[..., Any]]
    ) -> None:
        super().__init__(weights, attention)
        self.kernels = dict(kernels)

    def forward(self, x: Tensor, cache: Cache) -> Tensor:
        run, step, weight = self.kernels, self.step, self.weight
        y = _operand(step("norm_in", run["norm"], x, self.norm_in))
        qkv = step("qkv", run["qkv"], *y, *weight("qkv"))
        heads = step("attention", self.attention, qkv, cache)
        a = _operand(step("quantise", run["quantise"], heads) if "quantise" in run else heads)
        h = step("out", run["project"], *a, *weight("out"), x)
        y = _operand(step("norm_out", run["norm"], h, self.norm_out))
        g = _operand(step("gate_up", run["gate_up"], *y, *weight("gate_up")))
        return step("down", run["project"], *g, *weight("down"), h)


def _operand(value: Tensor | tuple[Tensor, Tensor]) -> tuple[Tensor, ...]:
    """Rows of a product, and their scales where they have some."""
    return (value,) if isinstance(value, Tensor) else tuple(value)


class TorchLayer(Layer):
    """In PyTorch, in steps as Inductor makes kernels of them: products are calls of cuBLAS, and what lies between two
    of them is fused. With weights, x and cache in float32 it is the reference."""

    def forward(self, x: Tensor, cache: Cache) -> Tensor:
        step, weight = self.step, self.weight
        in_fp8 = len(weight("qkv")) == 2
        norm, add_norm, gate, product = (
            (_norm_quantised, _add_norm_quantised, _gate_quantised, _scaled_product)
            if in_fp8
            else (_norm, _add_norm, _gate, F.linear)
        )
        tokens = x.shape[0]  # fp8 products have up to 3 more
        y = _operand(step("norm_in", norm, x, self.norm_in))
        qkv = step("qkv", product, *y, *weight("qkv"))[:tokens]
        heads = step("attention", self.attention, qkv, cache)
        a = _operand(step("quantise", quantise_rows, heads) if in_fp8 else heads)
        o = step("out", product, *a, *weight("out"))[:tokens]
        h, *y = step("norm_out", add_norm, x, o, self.norm_out)
        g = _operand(step("gate", gate, step("gate_up", product, *y, *weight("gate_up"))))
        return step("add", torch.add, h, step("down", product, *g, *weight("down"))[:tokens])


def _norm(x: Tensor, weight: Tensor) -> Tensor:
    wide = x.float()
    return (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + EPSILON) * weight).type_as(x)


def _add_norm(x: Tensor, other: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    h = x + other
    return h, _norm(h, weight)


def _gate(gate_up: Tensor) -> Tensor:
    gate, up = gate_up.float().chunk(2, dim=-1)
    return (F.silu(gate) * up).type_as(gate_up)


def quantise_rows(x: Tensor) -> tuple[Tensor, Tensor]:
    """e4m3 with a scale for each row and 128 elements, rows of scales contiguous; cuBLAS scales by blocks in multiples
    of 4 rows, so zeros are added."""
    rows, columns = x.shape
    x = F.pad(x.float(), (0, 0, 0, -rows % 4)).view(-1, columns // BLOCK, BLOCK)
    scale = x.abs().amax(-1).clamp(min=LEAST) / LARGEST
    q = (x / scale[..., None]).to(torch.float8_e4m3fn).view(-1, columns)
    return q, scale.t().contiguous().t()


def _norm_quantised(x: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    return quantise_rows(_norm(x, weight))


def _add_norm_quantised(x: Tensor, other: Tensor, weight: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    h = x + other
    return h, *quantise_rows(_norm(h, weight))


def _gate_quantised(gate_up: Tensor) -> tuple[Tensor, Tensor]:
    return quantise_rows(_gate(gate_up))


@torch.library.custom_op("decoder_block::scaled_product", mutates_args=())
def _scaled_product(a: Tensor, sa: Tensor, b: Tensor, sb: Tensor) -> Tensor:
    """By cuBLAS, for torch.compile as one node that keeps the strides of scales."""
    return torch._scaled_mm(a, b.t(), scale_a=sa, scale_b=sb.t(), out_dtype=torch.bfloat16)


@_scaled_product.register_fake
def _(a: Tensor, sa: Tensor, b: Tensor, sb: Tensor) -> Tensor:
    return a.new_empty(a.shape[0], b.shape[0], dtype=torch.bfloat16)


@_scaled_product.register_kernel("cpu")
def _(a: Tensor, sa: Tensor, b: Tensor, sb: Tensor) -> Tensor:
    """torch has no such product there."""
    wide = widen({"b": b, "b_scale": sb})["b"]
    return (a.float() * sa.repeat_interleave(BLOCK, 1) @ wide.t()).bfloat16()


@dataclass(frozen=True)
class Step:
    """A function, and what the layer passed to it. name: one of KINDS."""

    name: str
    function: Callable[..., Any]
    values: tuple[Any, ...]


@contextmanager
def record_steps(layer: Layer) -> Iterator[list[Step]]:
    """The steps of calls of a layer meanwhile, in order."""
    steps: list[Step] = []

    def step(name: str, function: Callable[..., Any], *values: Any) -> Any:
        steps.append(Step(name, function, values))
        return function(*values)

    layer.step = step  # type: ignore[method-assign]
    try:
        yield steps
    finally:
        del layer.step


def error(found: Tensor, reference: Tensor, x: Tensor) -> float:
    """The root mean square of the error, relative to that of what the layer adds to x."""
    added = reference - x.float()
    return float((found.float() - reference).square().mean().sqrt() / added.square().mean().sqrt())
