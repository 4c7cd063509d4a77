"""The Python front door with real kernels: functions of packages, torch operators compiled, exported and captured, and
gradients by rendered kernels against torch's autograd."""

from __future__ import annotations

import inspect
import sys
from pathlib import Path
from typing import Any

import pytest
from mla_specs import MLA

import cutegen

torch = pytest.importorskip("torch")

from torch import library  # noqa: E402

pytestmark = pytest.mark.gpu

HEAD = "cutegen: 1\nkernel: gemm\narch: sm_90a\n"
PRODUCT = '{a: "bf16[m, k]", b: "bf16[n, k]", '
FUSED = f"""\
tensors: {PRODUCT}bias: "f32[n]?", c: "bf16[m, n]", d: "bf16[m, n]"}}
epilogue: {{d: gelu_tanh(acc + bias) + c}}
"""
SPECS = {
    "fused": FUSED,
    "several": f'tensors: {PRODUCT}d: "bf16[m, n]@m", r: "f32[m]"}}\nepilogue: {{d: relu(acc), r: "sum(acc, n)"}}\n',
    "split": f'tensors: {PRODUCT}d: "bf16[m, n]"}}\n'
    "tiling: {split_k: 4, tile: [64, 64, 64], cluster: [1, 1]}\nwarpgroups: {consumer: {count: 1}}\n",
    "updating": f'tensors: {PRODUCT}h: "f32[m, n]", d: "bf16[m, n]"}}\nepilogue: {{h: h + acc, d: acc}}\n',
}
DIMS = {"m": 200, "n": 256, "k": 320}


def loaded(text: str, name: str) -> Any:
    return cutegen.Spec.from_text(HEAD + text, name).load()


def near(found: Any, expected: Any) -> None:
    for one, other in zip(as_tuple(found), as_tuple(expected)):
        assert (one.double() - other.double()).abs().max() <= 2.0**-6 * other.double().abs().max() + 1e-6


def as_tuple(value: Any) -> tuple[Any, ...]:
    return tuple(value) if isinstance(value, (tuple, list)) else (value,)


@pytest.mark.parametrize("name", SPECS)
def test_functions_and_operators(name: str) -> None:
    plan = loaded(SPECS[name], f"front_{name}")
    function = getattr(sys.modules[type(plan).__module__.rpartition(".")[0]], f"front_{name}")
    assert list(inspect.signature(function).parameters)[:2] == ["a", "b"]
    inputs = plan.prepare_inputs(**DIMS)
    expected = plan.reference_fn(*inputs, precision="float64")
    held = [v.clone() for v in inputs]
    given = {a.name: v for a, v in zip(plan.inputs, held) if a.optional}  # by name alone
    near(function(*(v for a, v in zip(plan.inputs, held) if not a.optional), **given), expected)
    out = plan.allocate_outputs(*inputs)
    held = [v.clone() for v in inputs]
    named = dict(zip((a.name for a in plan.inputs), held))
    near(function(**named, out=out if len(out) > 1 else out[0]), expected)
    op = plan.register_torch_op()
    library.opcheck(op.default, tuple(v.clone() for v in inputs))
    library.opcheck(op.out, (*(v.clone() for v in inputs), *plan.allocate_outputs(*inputs)))


def test_mla_decode_is_an_operator() -> None:
    plan = cutegen.Spec.from_text(MLA, "front_decode").load()
    inputs = plan.prepare_inputs(batch=3, query_len=1, heads=16, kv_len=200)
    op = plan.register_torch_op()
    near(op(*inputs), plan.reference_fn(*inputs))
    library.opcheck(op.default, inputs, test_utils=("test_schema", "test_faketensor"))


@pytest.mark.parametrize("mode", ["default", "reduce-overhead"])
def test_compiled_models(mode: str) -> None:
    plan = loaded(FUSED, f"compiled_{mode.replace('-', '_')}")
    op = plan.register_torch_op()
    plan.warm_up()
    model = torch.compile(lambda *x: op(*x).relu(), fullgraph=True, dynamic=True, mode=mode)
    for m in (64, 200, 640):
        inputs = plan.prepare_inputs(**{**DIMS, "m": m})
        for _ in range(3):
            near(model(*inputs), plan.reference_fn(*inputs).relu())


@pytest.mark.parametrize("name", ["fused", "split"])
def test_a_graph_captures_operators(name: str) -> None:
    plan = loaded(SPECS[name], f"captured_{name}")
    op = plan.register_torch_op()
    inputs = [v.clone() for v in plan.prepare_inputs(**DIMS)]
    op(*inputs)
    d = plan.allocate_outputs(*inputs)[0]
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        fresh = op(*inputs)
        op.out(*inputs, d)
    for _ in range(3):
        for value, new in zip(inputs, plan.prepare_inputs(**DIMS)):
            value.copy_(new)
        graph.replay()
        torch.cuda.synchronize()
        near(fresh, plan.reference_fn(*inputs))
        assert torch.equal(fresh, d)


def test_exported_models(tmp_path: Path) -> None:
    plan = loaded(FUSED, "exported")
    op = plan.register_torch_op()

    class Model(torch.nn.Module):
        def forward(self, a: Any, b: Any, bias: Any, c: Any) -> Any:
            return op(a, b, bias, c)

    inputs = plan.prepare_inputs(**DIMS)
    m = torch.export.Dim("m")
    program = torch.export.export(Model(), inputs, dynamic_shapes=({0: m}, None, None, {0: m}))
    torch.export.save(program, tmp_path / "model.pt2")
    model = torch.export.load(tmp_path / "model.pt2").module()
    for m in (8, 513):
        inputs = plan.prepare_inputs(**{**DIMS, "m": m})
        near(model(*inputs), plan.reference_fn(*inputs))


GRADIENTS = {
    "linear": (
        f'tensors: {PRODUCT}u: "bf16[n]", alpha: f32, c: "bf16[m, n]", d: "bf16[m, n]"}}\n'
        "epilogue: {d: alpha * acc + u + c}\n",
        lambda a, b, u, alpha, c: alpha * (a @ b.mT) + u + c,
    ),
    "layouts": ('tensors: {a: "bf16[k, m]", b: "bf16[n, k]@n", d: "bf16[m, n]@m"}\n', lambda a, b: a.mT @ b.mT),
    "bends": (
        f'tensors: {PRODUCT}u: "f32[n]", v: "f32[m]", c: "bf16[m, n]", d: "bf16[m, n]"}}\n'
        "epilogue: {d: gelu_erf(acc + u) * v + c * silu(acc)}\n",
        lambda a, b, u, v, c: (
            torch.nn.functional.gelu(a @ b.mT + u) * v[:, None] + c * torch.nn.functional.silu(a @ b.mT)
        ),
    ),
    "gated": (
        f'tensors: {PRODUCT}d: "bf16[m, n/2]"}}\nepilogue: {{d: "silu(acc[:, :n/2]) * acc[:, n/2:]"}}\n',
        lambda a, b: torch.nn.functional.silu((a @ b.mT)[:, :128]) * (a @ b.mT)[:, 128:],
    ),
    "batched": (
        'tensors: {a: "f16[l, m, k]", b: "f16[l, n, k]", d: "f16[l, m, n]"}\nepilogue: {d: tanh(acc)}\n',
        lambda a, b: torch.tanh(a @ b.mT),
    ),
}


@pytest.mark.parametrize("case", GRADIENTS)
@pytest.mark.parametrize("compiled", [False, True])
def test_gradients(case: str, compiled: bool) -> None:
    text, maths = GRADIENTS[case]
    plan = loaded(text, f"gradient_{case}")
    op = plan.register_torch_op()
    call = torch.compile(op, fullgraph=True) if compiled else op
    inputs = plan.prepare_inputs(**{d: DIMS.get(d, 3) for d in plan.dims})
    tracked = [v.requires_grad_() if hasattr(v, "dim") else v for v in inputs]
    exact = [v.detach().double().requires_grad_() if hasattr(v, "dim") else v for v in tracked]
    d, expected = call(*tracked), maths(*exact)
    grad = torch.randn_like(d)
    found = torch.autograd.grad(d, [v for v in tracked if hasattr(v, "dim")], grad)
    near(found, torch.autograd.grad(expected, [v for v in exact if hasattr(v, "dim")], grad.double()))
