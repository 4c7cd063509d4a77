"""The decoder layer of examples/decoder_block on a GPU: compiled in one graph, captured, and next to float32."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("torch")

import decoder_block  # noqa: F401
import torch
from layer import SPECS, Attention, GeneratedLayer, Sizes, TorchLayer, error, load_plans, make_weights, widen
from measure import MOST_ERROR, Problem

pytestmark = pytest.mark.gpu

SMALL = Sizes(hidden=512, heads=8, kv_heads=2, head_dim=64, feed_forward=1024)


@pytest.mark.parametrize("form", SPECS)
@pytest.mark.parametrize(("tokens", "context"), [(1, 100), (64, 100), (200, 0)])
@torch.no_grad()
def test_compiled_and_captured(form: Any, tokens: int, context: int) -> None:
    torch.compiler.reset()
    torch.manual_seed(0)
    kernels = {role: plan.register_torch_op() for role, plan in load_plans(form).items()}
    weights, held = make_weights(SMALL, form, "cuda"), Problem(form, tokens, context).make_cache(SMALL, "cuda")
    attention = Attention(SMALL, held.keys.shape[2], "cuda")
    x = torch.randn(tokens, SMALL.hidden, device="cuda").bfloat16()
    layer = GeneratedLayer(weights, attention, kernels)
    compiled = torch.compile(layer, fullgraph=True, dynamic=False)
    wide = held._replace(keys=held.keys.float(), values=held.values.float())
    reference = TorchLayer(widen(weights), attention)(x.float(), wide)
    for call in (layer, compiled, torch.compile(TorchLayer(weights, attention), fullgraph=True, dynamic=False)):
        assert error(call(x, held), reference, x) <= MOST_ERROR[form]
    expected, given = compiled(x, held).clone(), torch.zeros_like(x)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = compiled(given, held)
    given.copy_(x)
    graph.replay()
    assert torch.equal(result, expected)
