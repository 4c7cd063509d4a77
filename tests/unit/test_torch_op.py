"""Plans as torch operators, on the CPU: schemas, fakes, torch.compile, torch.export, opcheck, and what is refused."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cpu_plans import on_cpu, own_operators
from gemm_specs import PLAIN, resolve_text
from test_in_place import UpdatingPlan
from test_optional_operands import OptionalPlan
from test_plan import SHAPE, CpuPlan

import cutegen
from cutegen.render import make_standalone, render_package

torch = pytest.importorskip("torch")

from mla_cpu import CpuMla  # noqa: E402
from torch import library  # noqa: E402

SMALL = {"m": 24, "n": 16, "k": 32}
HEAD = "cutegen: 1\nkernel: gemm\narch: sm_90a\ntiling: {tile: [128, 128, 64]}\n"
# Outputs of two layouts, and one value a row.
LAYOUTS = """\
tensors: {a: "bf16[m, k]", b: "bf16[n, k]@n", bias: "f32[n]?", d: "bf16[m, n]@m", h: "f32[m, n]", r: "f32[m]"}
epilogue: {d: relu(acc + bias), h: acc, r: "sum(acc, n)"}
"""
ADDED = """\
tensors: {a: "bf16[m, k]", b: "bf16[n, k]", h: "f32[m, n]"}
epilogue: {h: h + acc}
"""


@pytest.fixture(autouse=True)
def operators() -> Iterator[None]:
    with own_operators():
        yield


def loaded(text: str, name: str) -> Any:
    return on_cpu(cutegen.Spec.from_text(HEAD + text, name).load())  # type: ignore[arg-type]


def schemas(op: Any) -> list[str]:
    return [str(getattr(op, overload)._schema) for overload in op.overloads()]


def test_schemas() -> None:
    assert schemas(OptionalPlan().register_torch_op("some")) == [
        "cutegen::some(Tensor? bias, Tensor a, Tensor b, float? scale, *, int? sms=None) -> Tensor",
        "cutegen::some.out(Tensor? bias, Tensor a, Tensor b, float? scale, Tensor(w0!) d, *, int? sms=None) -> ()",
    ]
    assert schemas(UpdatingPlan().register_torch_op()) == [
        "cutegen::updating(Tensor a, Tensor b, Tensor(w0!) d, Tensor c, *, int? sms=None) -> Tensor",
        "cutegen::updating.out(Tensor a, Tensor b, Tensor(w0!) d, Tensor c, Tensor(w1!) e, *, int? sms=None) -> ()",
    ]
    assert schemas(loaded(ADDED, "added").register_torch_op()) == [
        "cutegen::added(Tensor a, Tensor b, Tensor(w0!) h, *, int? sms=None) -> ()"
    ]
    assert schemas(CpuMla().register_torch_op()) == [
        "cutegen::mla(Tensor q, Tensor kv_cache, Tensor block_table, Tensor seq_lens, float softmax_scale, *, "
        "int? sms=None) -> (Tensor, Tensor)",
        "cutegen::mla.out(Tensor q, Tensor kv_cache, Tensor block_table, Tensor seq_lens, float softmax_scale, "
        "Tensor(w0!) out, Tensor(w1!) lse, *, int? sms=None) -> ()",
    ]


def cases() -> dict[str, Any]:
    optional, updating, mla = OptionalPlan(), UpdatingPlan(), CpuMla()
    bias, a, b, scale = optional.prepare_inputs(**SMALL)
    layouts = loaded(LAYOUTS, "layouts")
    dims = {"batch": 2, "query_len": 2, "heads": 3, "kv_len": 40}
    return {
        "optional": (optional, (bias, a, b, scale)),
        "omitted": (optional, (None, a, b, None)),
        "updating": (updating, updating.prepare_inputs(**SMALL)),
        "added": (plan := loaded(ADDED, "added"), plan.prepare_inputs(**SMALL)),
        "layouts": (layouts, layouts.prepare_inputs(**SMALL)),
        "mla": (mla, mla.prepare_inputs(**dims)),
    }


@pytest.mark.parametrize("case", ["optional", "omitted", "updating", "added", "layouts", "mla"])
def test_torch_checks_the_operators(case: str) -> None:
    """opcheck: the schema tells what is written and what is an alias; fakes have the shapes, dtypes and strides of
    what is computed; tracing by AOTDispatch gives the same results."""
    plan, inputs = cases()[case]
    op = plan.register_torch_op(f"checked_{case}")
    library.opcheck(op.default, inputs)
    if plan.fresh_outputs:
        library.opcheck(op.out, (*inputs, *plan.allocate_outputs(*inputs)))


@pytest.mark.parametrize("case", ["optional", "omitted", "layouts", "mla"])
def test_results_are_those_of_the_plan(case: str) -> None:
    plan, inputs = cases()[case]
    op = plan.register_torch_op(f"run_{case}")
    expected = plan.kernel_fn(*inputs)
    expected = expected if isinstance(expected, tuple) else (expected,)
    found = op(*inputs, sms=None)
    found = found if isinstance(found, (tuple, list)) else (found,)
    into = plan.allocate_outputs(*inputs)
    assert op.out(*inputs, *into) is None
    for one, other, third in zip(expected, found, into):
        assert torch.equal(one, other)
        assert torch.equal(one, third)
        assert one.stride() == other.stride()


@pytest.mark.parametrize("dynamic", [None, True])
def test_a_compiled_model_has_no_break(dynamic: bool | None) -> None:
    plan, graphs = CpuPlan(), []
    op = plan.register_torch_op(f"compiled_{dynamic}")

    def backend(graph: Any, inputs: Any) -> Any:
        graphs.append(graph)
        return graph.forward

    model = torch.compile(lambda *x: op(*x) * 2, fullgraph=True, backend=backend, dynamic=dynamic)
    aot = torch.compile(lambda *x: op(*x).relu(), fullgraph=True, backend="aot_eager", dynamic=dynamic)
    for m in (16, 24, 40, 56):
        inputs = (*plan.prepare_inputs(**{**SHAPE, "m": m})[:3], 0.5)  # torch compiles again for another number
        assert torch.equal(model(*inputs), plan.kernel_fn(*inputs) * 2)
        assert torch.equal(aot(*inputs), plan.kernel_fn(*inputs).relu())
    assert len(graphs) <= 2
    called = [node.target for node in graphs[-1].graph.nodes if "compiled" in str(node.target)]
    assert called == [op]


def test_a_compiled_model_updates_in_place() -> None:
    plan = UpdatingPlan()
    op = plan.register_torch_op("updated")

    def step(a: Any, b: Any, d: Any, c: Any) -> Any:
        e = op(a, b, d, c)
        return d * 2, e

    inputs = plan.prepare_inputs(**SMALL)
    expected = plan.reference_fn(*inputs, precision="float64")
    twice, e = torch.compile(step, fullgraph=True, backend="aot_eager", dynamic=True)(*inputs)
    assert torch.equal(inputs[2], expected[0])
    assert torch.equal(twice, expected[0] * 2)
    assert torch.equal(e, expected[1])


def test_export_with_a_dynamic_dim(tmp_path: Path) -> None:
    plan = CpuPlan()
    op = plan.register_torch_op("exported")

    class Model(torch.nn.Module):
        def forward(self, a: Any, b: Any, bias: Any) -> Any:
            return op(a, b, bias, 0.5)

    a, b, bias, _ = plan.prepare_inputs(**SHAPE)
    program = torch.export.export(Model(), (a, b, bias), dynamic_shapes=({0: torch.export.Dim("m")}, None, None))
    assert [n.target for n in program.graph.nodes if n.op == "call_function"] == [op.default]
    torch.export.save(program, tmp_path / "model.pt2")
    model = torch.export.load(tmp_path / "model.pt2").module()
    for m in (8, 33):
        a, *_ = plan.prepare_inputs(**{**SHAPE, "m": m})
        assert torch.equal(model(a, b, bias), plan.kernel_fn(a, b, bias, 0.5))


def test_once_is_enough() -> None:
    plan, other = CpuPlan(), CpuPlan()
    op = plan.register_torch_op()
    assert plan.register_torch_op() is op
    assert plan.register_torch_op("gemm") is op
    with pytest.raises(ValueError, match=r"gemm: is torch.ops.cutegen.gemm already; a plan has one operator"):
        plan.register_torch_op("product")
    with pytest.raises(ValueError, match=r"gemm: torch.ops.cutegen.gemm is the plan of test_plan, and an operator can"):
        other.register_torch_op()
    other.register_torch_op("other")
    for name in ("a.b", "1", "x(Tensor a) -> ()", "a::b"):
        with pytest.raises(ValueError, match="is not the name of an operator"):
            CpuPlan().register_torch_op(name)


def test_a_bad_call_names_its_operands() -> None:
    plan = CpuPlan()
    op = plan.register_torch_op("refusing")
    a, b, bias, alpha = plan.prepare_inputs(**SHAPE)
    with pytest.raises(TypeError, match=r"gemm: b: has dtype float32, needs bfloat16"):
        op(a, b.float(), bias, alpha)
    with pytest.raises(ValueError, match=r"gemm: d: shares storage with a"):
        op.out(a, torch.zeros(32, 32, dtype=a.dtype), torch.zeros(32), alpha, a)


def test_what_is_written_is_told_to_autograd() -> None:
    """A tensor that was saved for a gradient and is overwritten is found out, and nothing that is written has one."""
    plan = CpuPlan()
    op = plan.register_torch_op("written")
    a, b, bias, alpha = plan.prepare_inputs(**SHAPE)
    x = torch.ones(24, 16, dtype=a.dtype, requires_grad=True)
    d = torch.ones(24, 16, dtype=a.dtype)
    product = x * d
    op.out(a, b, bias, alpha, d)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        product.sum().backward()
    with pytest.raises(RuntimeError, match=r"gemm: has no gradient, because it writes tensors of the caller: call it"):
        op.out(a, b.requires_grad_(), bias, alpha, d)
    with torch.no_grad():
        op.out(a, b, bias, alpha, d)
    with torch.inference_mode():
        op.out(a, b, bias, alpha, d)
    updating = UpdatingPlan()
    inputs = updating.prepare_inputs(**SMALL)
    with pytest.raises(RuntimeError, match=r"updating: has no gradient, because it updates operands in place"):
        updating.register_torch_op("no_gradient")(inputs[0].requires_grad_(), *inputs[1:])


STANDALONE = """\
import sys
sys.modules["cutegen"] = None  # as if it were not installed
import torch
import alone
from torch._subclasses.fake_tensor import FakeTensorMode
op = alone.PLAN.register_torch_op()
with FakeTensorMode():
    d = op(*(torch.empty(16, 32, dtype=torch.bfloat16, device="cuda") for _ in range(2)))
assert (d.shape, d.dtype, d.device.type) == ((16, 16), torch.bfloat16, "cuda")
from alone._cutegen.runtime.autograd import NotDifferentiable, find_gradient
try:
    find_gradient(alone.PLAN, frozenset("a"), frozenset())
except NotDifferentiable as error:
    print(error)
"""


def test_a_standalone_package_registers_too(tmp_path: Path) -> None:
    package = make_standalone(render_package(resolve_text(PLAIN, name="alone").resolved))
    for name, text in package.files.items():
        path = tmp_path / "alone" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    run = subprocess.run([sys.executable, "-c", STANDALONE], cwd=tmp_path, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    assert run.stdout == (
        "alone: its gradients are computed by kernels that cutegen renders, and cutegen is not installed\n"
    )
