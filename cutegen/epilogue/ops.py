"""The ops of epilogue expressions: one class each, holding all that reference, docs and cost need.

The device functions of the built-in ops are in `cutegen.device.activation`. To add an op, here or in a package of your
own: docs/adding-an-epilogue-op.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

BUILT_IN_MODULE = "cutegen.device.activation"


class EpilogueOp:
    """One op on f32 values; the class docstring is its documentation.

    name: what specs write. device: its function, in `module`. arguments: how many; None: two or more, applied two at a
    time. numbers: which arguments have to be constants. torch: its reference on f32 tensors, `{0}`, `{1}` being the
    arguments, each written once; torch_constant: the same where `{1}` is a number. method: whether it is one of `{0}`.
    derivative: with respect to each argument, as an expression of specs in x, y and z, which are the arguments;
    derivative_constant: the same where the second is a number. (): there is none, and gradients through it are refused.
    flops: arithmetic instructions per element, the special-function unit counting as one.
    error: the largest absolute error of the device function over the root mean square of its results, for normally
    distributed arguments of any scale up to 6 standard deviations; 0: a few ulp of f32.
    """

    name: ClassVar[str]
    device: ClassVar[str]
    module: ClassVar[str] = BUILT_IN_MODULE
    arguments: ClassVar[int | None] = 1
    numbers: ClassVar[tuple[int, ...]] = ()
    torch: ClassVar[str]
    torch_constant: ClassVar[str]
    method: ClassVar[bool] = False
    derivative: ClassVar[tuple[str, ...]] = ()
    derivative_constant: ClassVar[tuple[str, ...]] = ()
    flops: ClassVar[int]
    error: ClassVar[float] = 0.0

    @property
    def doc(self) -> str:
        return " ".join((self.__doc__ or "").split())

    def accepts(self, count: int) -> bool:
        return count >= 2 if self.arguments is None else count == self.arguments

    def form(self) -> str:
        """A call of it, as an example."""
        return f"{self.name}({', '.join('xyzuvw'[: self.arguments or 2])})"

    def arity_text(self) -> str:
        if self.arguments is None:
            return "two or more arguments"
        return "one argument" if self.arguments == 1 else f"{self.arguments} arguments"

    def torch_text(self, args: Sequence[str], constant: Sequence[bool]) -> str:
        """The reference as source. constant: which of `args` are Python numbers, the others being tensors."""
        if self.arguments is not None:
            return self.torch.format(*args)
        # Functions of two tensors take no number; as a bound it comes second.
        first, *rest = sorted(zip(args, constant), key=lambda pair: pair[1])
        text = first[0]
        for arg, is_number in rest:
            text = (self.torch_constant if is_number else self.torch).format(text, arg)
        return text


class Minimum(EpilogueOp):
    """The smallest argument; NaN if any is NaN."""

    name = "min"
    device = "minimum"
    arguments = None
    torch = "torch.minimum({0}, {1})"
    torch_constant = "torch.clamp({0}, max={1})"
    derivative = ("where(x < y, 1, where(x == y, 0.5, 0))", "where(y < x, 1, where(x == y, 0.5, 0))")
    derivative_constant = ("where(x <= y, 1, 0)",)
    flops = 1


class Maximum(EpilogueOp):
    """The largest argument; NaN if any is NaN."""

    name = "max"
    device = "maximum"
    arguments = None
    torch = "torch.maximum({0}, {1})"
    torch_constant = "torch.clamp({0}, min={1})"
    derivative = ("where(x > y, 1, where(x == y, 0.5, 0))", "where(y > x, 1, where(x == y, 0.5, 0))")
    derivative_constant = ("where(x >= y, 1, 0)",)
    flops = 1


class Relu(EpilogueOp):
    """max(x, 0); NaN stays NaN."""

    name = "relu"
    device = "relu"
    torch = "torch.relu({0})"
    derivative = ("where(x > 0, 1, 0)",)
    flops = 1


class GeluTanh(EpilogueOp):
    """0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))), the usual approximation of gelu."""

    name = "gelu_tanh"
    device = "gelu_tanh"
    torch = 'torch.nn.functional.gelu({0}, approximate="tanh")'
    derivative = (
        "0.5 * (1 + tanh(0.7978845608028654 * x * (1 + 0.044715 * x * x))) + 0.3989422804014327 * x "
        "* (1 + 0.134145 * x * x) * (1 - square(tanh(0.7978845608028654 * x * (1 + 0.044715 * x * x))))",
    )
    flops = 6
    error = 6 * 2.0**-11


class GeluErf(EpilogueOp):
    """x Phi(x) = 0.5 x (1 + erf(x / sqrt(2))), the exact gelu."""

    name = "gelu_erf"
    device = "gelu_erf"
    torch = "torch.nn.functional.gelu({0})"
    derivative = ("normal_cdf(x) + 0.3989422804014327 * x * exp(-0.5 * x * x)",)
    flops = 12
    error = 2.0**-17


class NormalCdf(EpilogueOp):
    """Phi(x) = 0.5 (1 + erf(x / sqrt(2))), the distribution function of the normal distribution."""

    name = "normal_cdf"
    device = "normal_cdf"
    torch = "torch.special.ndtr({0})"
    derivative = ("0.3989422804014327 * exp(-0.5 * x * x)",)
    flops = 12
    error = 2.0**-19


class Silu(EpilogueOp):
    """x sigmoid(x)."""

    name = "silu"
    device = "silu"
    torch = "torch.nn.functional.silu({0})"
    derivative = ("sigmoid(x) * (1 + x * (1 - sigmoid(x)))",)
    flops = 3
    error = 6 * 2.0**-11


class Sigmoid(EpilogueOp):
    """1 / (1 + exp(-x))."""

    name = "sigmoid"
    device = "sigmoid"
    torch = "torch.sigmoid({0})"
    derivative = ("sigmoid(x) * (1 - sigmoid(x))",)
    flops = 3
    error = 2.0**-11


class Tanh(EpilogueOp):
    """The hyperbolic tangent."""

    name = "tanh"
    device = "tanh"
    torch = "torch.tanh({0})"
    derivative = ("1 - square(tanh(x))",)
    flops = 1
    error = 6 * 2.0**-11


class Exp(EpilogueOp):
    """e to the x."""

    name = "exp"
    device = "exp"
    torch = "torch.exp({0})"
    derivative = ("exp(x)",)
    flops = 2


class Abs(EpilogueOp):
    """The absolute value."""

    name = "abs"
    device = "absolute"
    torch = "torch.abs({0})"
    derivative = ("where(x > 0, 1, where(x < 0, -1, 0))",)
    flops = 1


class Square(EpilogueOp):
    """x * x."""

    name = "square"
    device = "square"
    torch = "torch.square({0})"
    derivative = ("2 * x",)
    flops = 1


class Clamp(EpilogueOp):
    """min(max(x, low), high); NaN if any is NaN."""

    name = "clamp"
    device = "clamp"
    arguments = 3
    derivative = (
        "where(x < y, 0, where(x > z, 0, 1))",
        "where(x < y, where(y > z, 0, 1), 0)",
        "where(max(x, y) > z, 1, 0)",
    )
    flops = 2

    def torch_text(self, args: Sequence[str], constant: Sequence[bool]) -> str:
        x, low, high = args
        number = constant[0] and constant[1]
        above = f"max({x}, {low})" if number else OPS["max"].torch_text((x, low), constant[:2])
        return OPS["min"].torch_text((above, high), (number, constant[2]))


class LeakyRelu(EpilogueOp):
    """leaky_relu(x, slope): x where it is positive, slope x elsewhere."""

    name = "leaky_relu"
    device = "leaky_relu"
    arguments = 2
    numbers = (1,)
    torch = "torch.nn.functional.leaky_relu({0}, {1})"
    derivative = ("where(x > 0, 1, y)",)
    flops = 3


class Elu(EpilogueOp):
    """x where it is positive, exp(x) - 1 elsewhere."""

    name = "elu"
    device = "elu"
    torch = "torch.nn.functional.elu({0})"
    derivative = ("where(x > 0, 1, exp(x))",)
    flops = 5


class Softplus(EpilogueOp):
    """log(1 + exp(x))."""

    name = "softplus"
    device = "softplus"
    torch = "torch.nn.functional.softplus({0})"
    derivative = ("sigmoid(x)",)
    flops = 8


class Mish(EpilogueOp):
    """x tanh(log(1 + exp(x)))."""

    name = "mish"
    device = "mish"
    torch = "torch.nn.functional.mish({0})"
    derivative = ("tanh(softplus(x)) + x * sigmoid(x) * (1 - square(tanh(softplus(x))))",)
    flops = 8


class HardSigmoid(EpilogueOp):
    """clamp(x + 3, 0, 6) / 6."""

    name = "hardsigmoid"
    device = "hardsigmoid"
    torch = "torch.nn.functional.hardsigmoid({0})"
    derivative = ("where(abs(x) < 3, 0.16666666666666666, 0)",)
    flops = 4


class HardSwish(EpilogueOp):
    """x clamp(x + 3, 0, 6) / 6."""

    name = "hardswish"
    device = "hardswish"
    torch = "torch.nn.functional.hardswish({0})"
    derivative = ("where(x < -3, 0, where(x <= 3, x * 0.3333333333333333 + 0.5, 1))",)
    flops = 5


class Log(EpilogueOp):
    """The natural logarithm; NaN of negative numbers, -inf of zero."""

    name = "log"
    device = "log"
    torch = "torch.log({0})"
    derivative = ("1 / x",)
    flops = 2


class Sqrt(EpilogueOp):
    """The square root; NaN of negative numbers."""

    name = "sqrt"
    device = "sqrt"
    torch = "torch.sqrt({0})"
    derivative = ("0.5 * rsqrt(x)",)
    flops = 1


class Rsqrt(EpilogueOp):
    """1 / sqrt(x); NaN of negative numbers, inf of zero."""

    name = "rsqrt"
    device = "rsqrt"
    torch = "torch.rsqrt({0})"
    derivative = ("-0.5 * rsqrt(x) / x",)
    flops = 1


class CeilPow2(EpilogueOp):
    """The smallest power of two, of 2**-126 and above, that is not below |x|: what UE8M0 can hold; 0 of 0."""

    name = "ceil_pow2"
    device = "ceil_pow2"
    torch = "ceil_pow2({0})"
    flops = 3


class RoundBf16(EpilogueOp):
    """x rounded to bf16, to the nearest even: what an unfused kernel would have stored."""

    name = "round_bf16"
    device = "round_bf16"
    torch = "{0}.to(torch.bfloat16).to(acc.dtype)"
    method = True
    derivative = ("1",)  # as that of a cast
    flops = 1
    error = 6 * 2.0**-7


class RoundF16(EpilogueOp):
    """x rounded to f16, to the nearest even: what an unfused kernel would have stored."""

    name = "round_f16"
    device = "round_f16"
    torch = "{0}.to(torch.float16).to(acc.dtype)"
    method = True
    derivative = ("1",)  # as that of a cast
    flops = 1
    error = 6 * 2.0**-10


OPS: dict[str, EpilogueOp] = {
    op.name: op
    for op in (
        Minimum(), Maximum(), Clamp(), Relu(), LeakyRelu(), Elu(), GeluTanh(), GeluErf(), NormalCdf(), Silu(), Mish(),
        Softplus(), HardSigmoid(), HardSwish(), Sigmoid(), Tanh(), Exp(), Log(), Sqrt(), Rsqrt(), Abs(), Square(),
        CeilPow2(), RoundBf16(), RoundF16(),
    )
}  # fmt: skip

# What generated source may call, and what will be an op: names that dims, tensors and locals cannot have.
FUNCTIONS = frozenset(
    {
        *(op.device for op in OPS.values()), "divide", "exact_divide", "exact_inverse", "exact_quotient", "max_abs",
        "reduce_blocks", "stored", "sum", "where",
    }
)  # fmt: skip
