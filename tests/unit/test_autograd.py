"""Gradients of torch operators, by rendered kernels whose launches compute the reference: the maths against torch's own
autograd, what needs no kernel, and what is refused, with the reason."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from cpu_plans import on_cpu, own_operators
from mla_specs import MLA

import cutegen
from cutegen import gradients
from cutegen.runtime.autograd import NotDifferentiable, find_gradient

torch = pytest.importorskip("torch")

HEAD = "cutegen: 1\nkernel: gemm\narch: sm_90a\n"
TILE = "tiling: {tile: [128, 128, 64]}\n"  # nothing is left to choose
PRODUCT = '{a: "bf16[m, k]", b: "bf16[n, k]", '
M, N, K = 40, 48, 32


@pytest.fixture(autouse=True)
def kernels(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Any]]:
    """The plans of gradient kernels that a test renders, by name, on the CPU; operators go with the test."""
    plans: dict[str, Any] = {}
    monkeypatch.setattr(gradients, "_found", {})
    monkeypatch.setattr(gradients, "_plans", plans)
    monkeypatch.setattr(gradients, "load_plan", load)
    with own_operators():
        yield plans


def load(text: str, name: str) -> Any:
    return on_cpu(cutegen.Spec.from_text(text + TILE, name).load())  # type: ignore[arg-type]


def loaded(text: str, name: str = "product") -> Any:
    return load(HEAD + text, name)


def compare(text: str, maths: Any, *, omit: tuple[str, ...] = (), count: int | None = None, **dims: int) -> Any:
    """Gradients of every tensor of a call are torch's of `maths` in float64, up to the rounding of the gradient of the
    product, of operands and of results. count: launches that they took."""
    plan = loaded(text)
    op = plan.register_torch_op()
    torch.manual_seed(11)
    inputs = plan.prepare_inputs(**{"m": M, "n": N, "k": K, **dims})
    inputs = [None if a.name in omit else v for a, v in zip(plan.inputs, inputs)]
    tracked = [v.clone().requires_grad_() if hasattr(v, "dim") else v for v in inputs]
    exact = [v.detach().double().requires_grad_() if hasattr(v, "dim") else v for v in tracked]
    outputs, expected = op(*tracked), maths(*exact)
    outputs = outputs if isinstance(outputs, (tuple, list)) else (outputs,)
    expected = expected if isinstance(expected, tuple) else (expected,)
    grads = [torch.randn_like(o) for o in outputs]
    of = [v for v in tracked if hasattr(v, "dim")]
    ours = torch.autograd.grad(outputs, of, grads)
    theirs = torch.autograd.grad(expected, [v for v in exact if hasattr(v, "dim")], [g.double() for g in grads])
    for value, found, wanted in zip(of, ours, theirs):
        assert (found.dtype, found.shape) == (value.dtype, value.shape)
        spread = wanted.abs().max() + 1e-6
        assert (found.double() - wanted).abs().max() <= spread * 2.0**-6
    return plan


def test_a_plain_product(kernels: dict[str, Any]) -> None:
    compare(f'tensors: {PRODUCT}d: "bf16[m, n]"}}\n', lambda a, b: a @ b.mT)
    assert sorted(list(p.epilogue.values()) for p in kernels.values()) == [["acc"], ["acc"]]
    assert sum(len(p.launched) for p in kernels.values()) == 2


@pytest.mark.parametrize(
    ("a", "b", "d"),
    [("bf16[k, m]", "bf16[n, k]@n", "f32[m, n]@m"), ("f16[m, k]@m", "f16[k, n]", "f16[n, m]")],
)
def test_layouts(a: str, b: str, d: str, kernels: dict[str, Any]) -> None:
    def maths(x: Any, y: Any) -> Any:
        x = x if a.startswith(("bf16[m", "f16[m")) else x.mT
        y = y.mT if "[n" in b else y
        return (x @ y).mT if "[n" in d else x @ y

    compare(f'tensors: {{a: "{a}", b: "{b}", d: "{d}"}}\n', maths)
    declared = [arg for p in kernels.values() for arg in p.outputs]
    assert {(arg.dims, arg.contiguous) for arg in declared} == {
        (("k", "m"), 1) if a == "bf16[k, m]" else (("m", "k"), 0),
        (("n", "k"), 0) if "[n" in b else (("k", "n"), 1),
    }


def test_what_is_linear_computes_no_product_again(kernels: dict[str, Any]) -> None:
    compare(
        f'tensors: {PRODUCT}u: "bf16[n]", v: "f32[m]", s: "f32[]", alpha: f32, c: "bf16[m, n]", d: "bf16[m, n]"}}\n'
        "epilogue: {d: 0.5 * (alpha * acc + u) - v * c + s * tanh(c)}\n",
        lambda a, b, u, v, s, alpha, c: 0.5 * (alpha * (a @ b.mT) + u) - v[:, None] * c + s * torch.tanh(c),
    )
    assert [len(p.launched) for p in kernels.values()] == [1, 1]
    assert [list(p.epilogue.values()) for p in kernels.values()] == [["acc"], ["acc"]]


def test_what_bends_computes_the_product_again(kernels: dict[str, Any]) -> None:
    gelu = torch.nn.functional.gelu
    compare(
        f'tensors: {PRODUCT}u: "f32[n]", v: "bf16[m]", s: "f32[]", c: "bf16[m, n]", d: "bf16[m, n]"}}\n'
        "epilogue: {x: gelu_erf(acc + u), d: s * x * v + c * silu(acc) + c}\n",
        lambda a, b, u, v, s, c: s * gelu(a @ b.mT + u) * v[:, None] + c * torch.nn.functional.silu(a @ b.mT) + c,
    )
    local = next(p for p in kernels.values() if len(p.outputs) > 1)
    assert len(kernels) == 3
    assert {o.dims for o in local.outputs} == {("m", "n"), ("n",), ("m",), ()}
    assert set(local.reductions.values()) == {"sum"}


@pytest.mark.parametrize(
    ("first", "second", "epilogue"),
    [
        (lambda x: x[..., :24], lambda x: x[..., 24:], "silu(acc[:, :n/2]) * acc[:, n/2:]"),
        (lambda x: x[..., ::2], lambda x: x[..., 1::2], "silu(acc[:, ::2]) * acc[:, 1::2]"),
    ],
)
def test_gates(first: Any, second: Any, epilogue: str, kernels: dict[str, Any]) -> None:
    silu = torch.nn.functional.silu
    compare(
        f'tensors: {PRODUCT}c: "bf16[m, n/2]", u: "f32[n/2]", v: "f32[m]", d: "bf16[m, n/2]"}}\n'
        f'epilogue: {{d: "{epilogue} * v * u + c"}}\n',
        lambda a, b, c, u, v: silu(first(a @ b.mT)) * second(a @ b.mT) * v[:, None] * u + c,
    )
    assert len(kernels) == 3


def test_batches_and_several_outputs() -> None:
    compare(
        'tensors: {a: "bf16[l, m, k]", b: "bf16[l, n, k]", u: "f32[l, n]", d: "bf16[l, m, n]", h: "f32[m, n, l]@n"}\n'
        "epilogue: {d: relu(acc + u), h: 2 * acc + stored(d)}\n",
        lambda a, b, u: (
            (d := torch.relu(a @ b.mT + u[:, None])),
            (2 * (a @ b.mT) + d).permute(1, 2, 0),
        ),
        l=3,
    )


@pytest.mark.parametrize("bends", [False, True])
def test_a_bias_that_a_batch_shares(bends: bool) -> None:
    text = "silu(acc + u)" if bends else "acc + u"
    compare(
        'tensors: {a: "bf16[l, m, k]", b: "bf16[l, n, k]", u: "f32[n]", d: "bf16[l, m, n]"}\n'
        f"epilogue: {{d: {text}}}\n",
        lambda a, b, u: torch.nn.functional.silu(a @ b.mT + u) if bends else a @ b.mT + u,
        l=3,
    )


def test_vectors_alone(kernels: dict[str, Any]) -> None:
    """A kernel needs an output with rows and columns besides what it sums."""
    plan = loaded(f'tensors: {PRODUCT}u: "f32[n]", v: "f32[m]", d: "bf16[m, n]"}}\nepilogue: {{d: acc * u * v}}\n')
    op = plan.register_torch_op()
    a, b, u, v = plan.prepare_inputs(m=M, n=N, k=K)
    found = torch.autograd.grad(op(a, b, u.requires_grad_(), v.requires_grad_()).float().sum(), [u, v])
    acc = a.double() @ b.double().mT
    for one, other in zip(found, ((acc * v[:, None]).sum(0), (acc * u).sum(1))):
        assert (one - other).abs().max() < 2.0**-6 * other.abs().max()
    (local,) = kernels.values()
    assert sorted(o.dims for o in local.outputs) == [("m",), ("m", "n")]


def test_optional_operands() -> None:
    text = f'tensors: {PRODUCT}u: "f32[n]?", c: "bf16[m, n]?", d: "bf16[m, n]"}}\nepilogue: {{d: relu(acc + u) + c}}\n'
    compare(text, lambda a, b, u, c: torch.relu(a @ b.mT) + c, omit=("u",))


def test_only_what_is_wanted_is_computed(kernels: dict[str, Any]) -> None:
    plan = loaded(f'tensors: {PRODUCT}u: "f32[n]", d: "bf16[m, n]"}}\nepilogue: {{d: acc + u}}\n')
    op = plan.register_torch_op()
    a, b, u = plan.prepare_inputs(m=M, n=N, k=K)
    op(a, b, u.requires_grad_()).sum().backward()
    assert kernels == {}
    torch.testing.assert_close(u.grad, torch.full((N,), float(M)))
    op(a.requires_grad_(), b, u).float().sum().backward()  # a gradient whose strides are 0
    assert len(kernels) == 1
    near = torch.ones(M, N).double() @ b.double()
    assert (a.grad.double() - near).abs().max() < 2.0**-7 * near.abs().max()
    assert b.grad is None


def test_no_rows_at_all(kernels: dict[str, Any]) -> None:
    plan = loaded(f'tensors: {PRODUCT}u: "f32[n]", d: "bf16[m, n]"}}\nepilogue: {{d: relu(acc + u)}}\n')
    op = plan.register_torch_op()
    a, b, u = (v.requires_grad_() for v in plan.prepare_inputs(m=M, n=N, k=K))
    op(a[:0], b, u).sum().backward()
    assert [(v.grad.shape, v.grad.dtype, bool(v.grad.any())) for v in (b, u)] == [
        ((N, K), torch.bfloat16, False),
        ((N,), torch.float32, False),
    ]
    assert kernels == {}


def test_gradients_of_gradients() -> None:
    """Gradient kernels are operators, which have gradients as far as their specs do."""
    plan = loaded(f'tensors: {PRODUCT}d: "bf16[m, n]"}}\n')
    op = plan.register_torch_op()
    a, b = (v.requires_grad_() for v in plan.prepare_inputs(m=M, n=N, k=K))
    grad = torch.randn(M, N).bfloat16()
    (first,) = torch.autograd.grad(op(a, b), a, grad, create_graph=True)
    (second,) = torch.autograd.grad(first, b, torch.ones_like(first))
    expected = grad.double().sum(0)[:, None].expand(N, K)
    assert (second.double() - expected).abs().max() < 2.0**-6 * expected.abs().max()


def test_a_training_step_through_torch_compile(kernels: dict[str, Any]) -> None:
    plan = loaded(f'tensors: {PRODUCT}u: "f32[n]", d: "bf16[m, n]"}}\nepilogue: {{d: gelu_tanh(acc + u)}}\n')
    op = plan.register_torch_op()
    step = torch.compile(lambda a, b, u: op(a, b, u).float().square().mean(), fullgraph=True, backend="aot_eager")
    for m in (M, M + 8):
        values = [v.requires_grad_() for v in plan.prepare_inputs(m=m, n=N, k=K)]
        expected = torch.autograd.grad(op(*values).float().square().mean(), values)
        found = torch.autograd.grad(step(*values), values)
        for one, other in zip(found, expected):
            torch.testing.assert_close(one, other)
    torch.library.opcheck(op.default, values, test_utils=("test_autograd_registration", "test_aot_dispatch_dynamic"))


REFUSED = {
    "reduction": (
        f'tensors: {PRODUCT}r: "f32[m]", d: "bf16[m, n]"}}\nepilogue: {{d: acc, r: "sum(acc, n)"}}\n',
        "a reduction over rows or columns has no gradient kernel",
    ),
    "blocks": (
        f'tensors: {PRODUCT}s: "f32[m, n/32]", q: "e4m3[m, n]"}}\n'
        'epilogue: {s: "max_abs(acc, n, 32) / 448", q: acc / s}\n',
        "values of blocks have no gradient kernel",
    ),
    "quantised": (f'tensors: {PRODUCT}d: "e4m3[m, n]"}}\n', "an output of 8 bits has no gradient"),
    "eight_bit": (
        'tensors: {a: "e4m3[m, k]", b: "e4m3[n, k]", u: "f32[n]", d: "bf16[m, n]"}\nepilogue: {d: acc + u}\n',
        "products of 8-bit operands have no gradient kernel",
    ),
    "flat": (
        f'tensors: {PRODUCT}d: "bf16[m, n]"}}\nepilogue: {{d: ceil_pow2(acc)}}\n',
        "`ceil_pow2` has no derivative",
    ),
    "shared": (
        'tensors: {a: "bf16[l, m, k]", b: "bf16[n, k]", d: "bf16[l, m, n]"}\n',
        "an operand that all members of a batch share has no gradient kernel",
    ),
    "groups": (
        'tensors: {a: "bf16[m, k]", b: "bf16[g, n, k]", group: "i32[m]", d: "bf16[m, n]"}\ngroups: {labels: group}\n',
        "products of groups of rows have no gradient kernel",
    ),
    "gathered": (
        'tensors: {a: "bf16[t, k]", b: "bf16[n, k]", rows: "i32[m]", d: "bf16[m, n]"}\nmainloop: a[rows] @ b\n',
        "gathered rows have no gradient kernel",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_reasons(case: str) -> None:
    text, reason = REFUSED[case]
    plan = loaded(text, f"refused_{case}")
    floats = frozenset(a.name for a in plan.inputs if getattr(a, "dtype", "") not in ("", "int32"))
    with pytest.raises(NotDifferentiable, match=f"refused_{case}: has no gradient: .*{reason}"):
        find_gradient(plan, floats, frozenset())


def test_a_reason_is_given_when_the_gradient_is_asked_for() -> None:
    """Parameters that have a gradient elsewhere may be passed to a product that has none."""
    plan = loaded(REFUSED["flat"][0])
    op = plan.register_torch_op()
    a, b = plan.prepare_inputs(m=M, n=N, k=K)
    d = op(a, b.requires_grad_())
    with pytest.raises(RuntimeError, match="product: has no gradient: the op `ceil_pow2` has no derivative"):
        d.sum().backward()
    decode = cutegen.Spec.from_text(MLA, "decode").load()
    with pytest.raises(NotDifferentiable, match="decode: has no gradient: `kernel: mla_decode` has no"):
        find_gradient(decode, frozenset(("q",)), frozenset())
