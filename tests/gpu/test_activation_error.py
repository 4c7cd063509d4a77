"""The accuracy of the epilogue functions on the GPU, against float64."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")
cutlass = pytest.importorskip("cutlass")

import cutlass.cute as cute  # noqa: E402
from cutlass.cute.runtime import from_dlpack  # noqa: E402

from cutegen.device import activation  # noqa: E402
from cutegen.epilogue import OPS  # noqa: E402
from cutegen.runtime.epilogue import ceil_pow2  # noqa: E402

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
]

THREADS = 256
ROOT2 = math.sqrt(2.0)


@cute.kernel
def apply(x: cute.Tensor, y: cute.Tensor, z: cute.Tensor, function: cutlass.Constexpr):
    i = cute.arch.block_idx()[0] * THREADS + cute.arch.thread_idx()[0]
    z[i] = function(x[i], y[i])


def on_gpu(function: Callable[..., Any], x: Any, y: Any) -> Any:
    @cute.jit
    def launch(x: cute.Tensor, y: cute.Tensor, z: cute.Tensor):
        apply(x, y, z, function).launch(grid=[x.shape[0] // THREADS, 1, 1], block=[THREADS, 1, 1])

    z = torch.full_like(x, math.nan)
    tensors = [from_dlpack(t) for t in (x, y, z)]
    cute.compile(launch, *tensors)(*tensors)
    torch.cuda.synchronize()
    return z.double()


@pytest.fixture(scope="module")
def arguments() -> Any:
    """2**20 values: dense in [-12, 12], and of every magnitude from 2**-20 to 2**6."""
    half = 2**18
    magnitudes = torch.logspace(-20, 6, half, base=2.0, dtype=torch.float64)
    dense = torch.linspace(-12.0, 12.0, 2 * half, dtype=torch.float64)
    return torch.cat((dense, magnitudes, -magnitudes)).float().cuda()


def phi(x: Any) -> Any:
    return 0.5 * torch.special.erfc(-x / ROOT2)


def gelu_tanh(x: Any) -> Any:
    return 0.5 * x * (1.0 + torch.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * x**3)))


# name: exact function, and the bound that its docstring states as a function of argument and result.
BOUNDS: dict[str, tuple[Callable[[Any], Any], Callable[[Any, Any], Any]]] = {
    "absolute": (torch.abs, lambda x, f: 0.0 * f),
    "relu": (torch.relu, lambda x, f: 0.0 * f),
    "square": (torch.square, lambda x, f: 2.0**-24 * f),
    "exp": (torch.exp, lambda x, f: f * (2.0**-21 + 2.0**-23 * x.abs())),
    "tanh": (torch.tanh, lambda x, f: 2.0**-10.9 * f.abs()),
    "sigmoid": (torch.sigmoid, lambda x, f: 2.0**-11.9 + 0.0 * f),
    "silu": (lambda x: x * torch.sigmoid(x), lambda x, f: 2.0**-11.9 * x.abs()),
    "gelu_tanh": (gelu_tanh, lambda x, f: 2.0**-11.9 * x.abs()),
    "gelu_erf": (lambda x: x * phi(x), lambda x, f: torch.minimum(x.abs() * 2.0**-20, 2.0**-21 + 2.0**-23 * x.abs())),
    "normal_cdf": (phi, lambda x, f: 2.0**-20 + 0.0 * f),
    "elu": (lambda x: torch.where(x > 0.0, x, torch.expm1(x)), lambda x, f: 2.0**-22 + 2.0**-23 * f.abs()),
    "softplus": (torch.nn.functional.softplus, lambda x, f: 2.0**-21 + 2.0**-22 * f),
    "mish": (torch.nn.functional.mish, lambda x, f: (2.0**-20 + 2.0**-23 * x.abs()) * f.abs()),
    "hardsigmoid": (lambda x: torch.clamp(x / 6.0 + 0.5, 0.0, 1.0), lambda x, f: 2.0**-23 + 0.0 * f),
    "ceil_pow2": (ceil_pow2, lambda x, f: 0.0 * f),
    "round_bf16": (lambda x: x.bfloat16().double(), lambda x, f: 0.0 * f),
    "round_f16": (lambda x: x.half().double(), lambda x, f: 0.0 * f),
    "hardswish": (lambda x: x * torch.clamp(x / 6.0 + 0.5, 0.0, 1.0), lambda x, f: 2.0**-22 * x.abs()),
}
POSITIVE: dict[str, tuple[Callable[[Any], Any], Callable[[Any, Any], Any]]] = {
    "log": (torch.log, lambda x, f: torch.where((x > 0.5) & (x < 2.0), 2.0**-22 + 0.0 * f, 2.0**-21 * f.abs())),
    "sqrt": (torch.sqrt, lambda x, f: 2.0**-22 * f),
    "rsqrt": (torch.rsqrt, lambda x, f: 2.0**-22 * f),
}


def test_every_op_has_a_bound() -> None:
    assert {op.device for op in OPS.values()} == {*BOUNDS, *POSITIVE, "minimum", "maximum", "clamp", "leaky_relu"}


@pytest.mark.parametrize("name", POSITIVE)
def test_error_of_positive_arguments_is_within_the_bound(name: str, arguments: Any) -> None:
    function = getattr(activation, name)
    exact, bound = POSITIVE[name]
    given = arguments.abs().clamp(min=2.0**-20)
    x = given.double()
    error = (on_gpu(lambda x, y: function(x), given, given) - exact(x)).abs()
    assert (error <= bound(x, exact(x))).all(), f"{name} is off by {error.max():.3g}"


@pytest.mark.parametrize("name", BOUNDS)
def test_error_is_within_the_bound(name: str, arguments: Any) -> None:
    function = getattr(activation, name)
    exact, bound = BOUNDS[name]
    x = arguments.double()
    error = (on_gpu(lambda x, y: function(x), arguments, arguments) - exact(x)).abs()
    excess = error - bound(x, exact(x))
    worst = int(excess.argmax())
    assert not error.isnan().any()
    assert excess[worst] <= 0.0, f"{name}({x[worst]:.9g}) is off by {error[worst]:.3g}"


@pytest.mark.parametrize("op", [op for op in OPS.values() if op.error], ids=lambda op: op.name)
@pytest.mark.parametrize("scale", [0.01, 0.1, 1.0, 3.0, 30.0])
def test_declared_error_holds_for_normal_arguments(op: Any, scale: float) -> None:
    x = torch.empty(2**22).normal_(0.0, scale, generator=torch.Generator().manual_seed(7)).clamp(-6 * scale, 6 * scale)
    x = x.cuda()
    exact = BOUNDS[op.device][0](x.double())
    error = (on_gpu(lambda x, y: getattr(activation, op.device)(x), x, x) - exact).abs().max()
    assert error <= op.error * exact.square().mean().sqrt(), f"2**{math.log2(error / exact.square().mean().sqrt()):.2f}"


def test_quotients(arguments: Any) -> None:
    y = arguments.flip(0).contiguous()
    y = torch.where(y == 0.0, 1.0, y)
    exact = arguments.double() / y.double()
    error = (on_gpu(activation.divide, arguments, y) - exact).abs()
    assert (error <= 2.0**-22 * exact.abs()).all()


def test_special_values() -> None:
    inf, nan = math.inf, math.nan
    x = torch.tensor([inf, -inf, nan, 0.0] * (THREADS // 4), device="cuda")
    expected = {
        "relu": [inf, 0.0, nan, 0.0],
        "exp": [inf, 0.0, nan, 1.0],
        "tanh": [1.0, -1.0, nan, 0.0],
        "sigmoid": [1.0, 0.0, nan, 0.5],
        "gelu_erf": [inf, -0.0, nan, 0.0],
    }
    for name, values in expected.items():
        function = getattr(activation, name)
        result = on_gpu(lambda x, y, f=function: f(x), x, x)[:4].cpu()
        torch.testing.assert_close(
            result, torch.tensor(values, dtype=torch.float64), rtol=0, atol=1e-14, equal_nan=True
        )
    for name in ("minimum", "maximum"):
        y = torch.ones_like(x)
        result = on_gpu(getattr(activation, name), x, y)[:4].cpu()
        assert result[2].isnan()
        assert result[1] == (-inf if name == "minimum" else 1.0)
