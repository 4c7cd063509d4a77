"""What docs/serving.md says of plans: copied and sent, through torch.compile, with tensors of all kinds."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from test_plan import SHAPE, CpuPlan, arguments  # noqa: E402
from torch import library  # noqa: E402


@pytest.fixture
def plan() -> CpuPlan:
    return CpuPlan()


def test_plans_and_their_functions_can_be_copied_and_sent() -> None:
    """Modules of a model hold them; models are copied, and workers are spawned with what they need."""
    plan = CpuPlan(on_miss="error", sms=5)
    model = {"product": plan.kernel_fn, "launch": plan.launch_fn, "plan": plan}
    assert copy.deepcopy(model) == copy.copy(model) == model
    sent = pickle.loads(pickle.dumps({"product": plan.kernel_fn, "plan": plan}))
    other = sent["plan"]
    assert (type(other), other.on_miss, other.sms) == (CpuPlan, "error", 5)
    assert sent["product"].__self__ is other
    other.sms = None
    with pytest.raises(RuntimeError, match=r"call warm_up\("):
        other.kernel_fn(*plan.prepare_inputs(**SHAPE))
    other.warm_up()
    inputs = plan.prepare_inputs(**SHAPE)
    assert torch.equal(sent["product"](*inputs), plan.reference_fn(*inputs, precision="float64"))


@pytest.mark.parametrize("dynamic", [False, True])
def test_a_custom_op_takes_a_plan_through_torch_compile(plan: CpuPlan, dynamic: bool) -> None:
    """As docs/serving.md has it: outputs for fake tensors are those that the plan allocates."""
    op = library.custom_op(f"cutegen_test::product_{dynamic}", product_of(plan), mutates_args=())
    op.register_fake(lambda a, b, bias, alpha: plan.allocate_outputs(a, b, bias, alpha)[0])
    model = torch.compile(lambda *x: op(*x) * 2, fullgraph=True, backend="aot_eager", dynamic=dynamic)
    for m in (16, 24, 40):
        inputs = plan.prepare_inputs(**{**SHAPE, "m": m})
        assert torch.equal(model(*inputs), plan.kernel_fn(*inputs) * 2)
    library.opcheck(op, inputs)


def product_of(plan: CpuPlan) -> Callable[..., Any]:
    def product(a: torch.Tensor, b: torch.Tensor, bias: torch.Tensor, alpha: float) -> torch.Tensor:
        result: torch.Tensor = plan.kernel_fn(a, b, bias, alpha)
        return result

    product.__annotations__ = {
        "a": torch.Tensor, "b": torch.Tensor, "bias": torch.Tensor, "alpha": float, "return": torch.Tensor
    }  # fmt: skip
    return product


class Wrapper(torch.Tensor):
    """A tensor subclass over another tensor, as those of quantised weights and of distributed tensors are."""

    @staticmethod
    def __new__(cls, inner: Any) -> Any:
        return torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype)  # type: ignore[attr-defined]

    @classmethod
    def __torch_dispatch__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise NotImplementedError(function)


@pytest.mark.parametrize("position", [1, 2, 4])
def test_a_tensor_without_memory_is_refused(plan: CpuPlan, position: int) -> None:
    """Its shape, dtype and device are right, and its address is 0."""
    values = list(arguments(plan))
    values[position] = Wrapper(values[position])
    name = (*plan.inputs, *plan.outputs)[position].name
    for _ in range(2):
        with pytest.raises(TypeError, match=f"gemm: {name}: is a Wrapper without memory of its own: pass the tensor"):
            plan.launch_fn(*values)
    assert plan.compiled == []


@pytest.mark.filterwarnings("ignore:Accessing the data pointer of FakeTensor")
def test_fake_tensors_are_given_outputs_and_not_to_kernels(plan: CpuPlan) -> None:
    from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

    inputs = plan.prepare_inputs(**SHAPE)
    mode = FakeTensorMode()
    fakes = [mode.from_tensor(v) if isinstance(v, torch.Tensor) else v for v in inputs]
    with mode:
        (d,) = plan.allocate_outputs(*fakes)
    assert isinstance(d, FakeTensor)
    assert d.shape == (24, 16)
    with mode, pytest.raises(TypeError, match="a: is a FakeTensor without memory"):
        plan.kernel_fn(*fakes)
    assert plan.compiled == []
    assert torch.equal(plan.kernel_fn(*inputs), plan.reference_fn(*inputs, precision="float64"))


class Sub(torch.Tensor):
    pass


@pytest.mark.parametrize("make", [torch.nn.Parameter, lambda t: t.requires_grad_(), lambda t: t.as_subclass(Sub)])
def test_parameters_and_subclasses_with_memory_are_taken(plan: CpuPlan, make: Any) -> None:
    a, b, bias, alpha, d = arguments(plan)
    plan.launch_fn(a, make(b), bias, alpha, d)
    assert torch.equal(d, plan.reference_fn(a, b, bias, alpha, precision="float64"))
