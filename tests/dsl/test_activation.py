"""Epilogue functions on the device: what they compile to for sm_90a, and what the same source computes in Python."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

cutlass = pytest.importorskip("cutlass")

import cutlass.cute as cute  # noqa: E402
from cutlass.cute.runtime import make_fake_compact_tensor  # noqa: E402

from cutegen.device import activation  # noqa: E402
from cutegen.epilogue import OPS  # noqa: E402

pytestmark = pytest.mark.dsl

# PTX of the body, loads, stores and addresses aside: what an epilogue pays per element.
EXPECTED = {
    "absolute": "abs.f32",
    "minimum": "min.NaN.f32",
    "maximum": "max.NaN.f32",
    "relu": "max.NaN.f32",
    "square": "mul.f32",
    "clamp": "max.NaN.f32 min.NaN.f32",
    "where": "setp.gt.f32 selp.f32",
    "exp": "mul.f32 ex2.approx.ftz.f32",
    "log": "lg2.approx.ftz.f32 mul.f32",
    "sqrt": "sqrt.approx.ftz.f32",
    "rsqrt": "rsqrt.approx.ftz.f32",
    "divide": "rcp.approx.ftz.f32 mul.f32",
    "tanh": "tanh.approx.f32",
    "sigmoid": "mul.f32 tanh.approx.f32 fma.rn.f32",
    "silu": "mul.f32 tanh.approx.f32 fma.rn.f32",
    "gelu_tanh": "mul.f32 mul.f32 fma.rn.f32 mul.f32 tanh.approx.f32 fma.rn.f32",
    "gelu_erf": f"abs.f32 min.NaN.f32 {'fma.rn.f32 ' * 6} ex2.approx.ftz.f32 max.NaN.f32 mul.f32 sub.f32",
    "normal_cdf": f"abs.f32 min.NaN.f32 {'fma.rn.f32 ' * 6} ex2.approx.ftz.f32 setp.gt.f32 sub.f32 selp.f32",
    "leaky_relu": "max.NaN.f32 min.NaN.f32 fma.rn.f32",
    "elu": "max.NaN.f32 min.NaN.f32 mul.f32 ex2.approx.ftz.f32 add.f32 add.f32",
    "softplus": "max.NaN.f32 abs.f32 mul.f32 ex2.approx.ftz.f32 add.f32 lg2.approx.ftz.f32 fma.rn.f32",
    "mish": "min.NaN.f32 mul.f32 ex2.approx.ftz.f32 add.f32 mul.f32 add.f32 rcp.approx.ftz.f32 mul.f32 mul.f32",
    "hardsigmoid": "fma.rn.f32 max.NaN.f32 min.NaN.f32",
    "hardswish": "fma.rn.f32 max.NaN.f32 min.NaN.f32 mul.f32",
    "ceil_pow2": "setp.num.f32 selp.f32",
    "round_bf16": "",  # inline PTX, which test_stored_rounds looks at
    "round_f16": "",
    "exact_inverse": f"rcp.approx.ftz.f32 neg.f32 {'fma.rn.f32 ' * 4} setp.num.f32 selp.f32",
    "exact_quotient": f"mul.f32 neg.f32 {'fma.rn.f32 ' * 4} setp.num.f32 selp.f32",
}
EXACT_ARITHMETIC = {"ceil_pow2", "round_bf16", "round_f16", "exact_inverse", "exact_quotient"}
TWO_MUFU = ("softplus", "mish")


@cute.kernel
def apply(x: cute.Tensor, y: cute.Tensor, function: cutlass.Constexpr):
    i = cute.arch.thread_idx()[0]
    y[i] = function(x[i], x[i + 128])


def compile_to_ptx(function: Callable[..., Any], folder: Path) -> str:
    """The PTX of a kernel that applies function(Float32, Float32) once a thread."""

    @cute.jit
    def launch(x: cute.Tensor, y: cute.Tensor):
        apply(x, y, function).launch(grid=[1, 1, 1], block=[128, 1, 1])

    operands = [make_fake_compact_tensor(cutlass.Float32, (256,)) for _ in range(2)]
    cute.compile(launch, *operands, options=f"--gpu-arch sm_90a --keep-ptx --dump-dir {folder}")
    (ptx,) = folder.glob("*.ptx")
    return ptx.read_text()


def arithmetic(ptx: str) -> list[str]:
    lines = [line.split() for line in ptx.splitlines() if line.startswith("\t")]
    return [
        words[0] for words in lines if words and words[0].endswith(".f32") and words[0][:2] not in ("ld", "st", "mo")
    ]


def on_two(name: str) -> Callable[..., Any]:
    function = getattr(activation, name)
    special: dict[str, Callable[..., Any]] = {
        "clamp": lambda x, y: function(x, 0.0, y),
        "where": lambda x, y: function(x > 0.0, x, y),
        "leaky_relu": lambda x, y: function(x, 0.125),
        "exact_quotient": lambda x, y: function(x, y, x),
    }
    return special.get(name) or (function if name in ("minimum", "maximum", "divide") else lambda x, _: function(x))


@pytest.mark.parametrize("name", EXPECTED)
def test_compiles_to_few_instructions(name: str, tmp_path: Path) -> None:
    ptx = compile_to_ptx(on_two(name), tmp_path)
    assert ".local" not in ptx
    assert "call" not in ptx
    # The compiler may order independent instructions as it likes.
    assert sorted(arithmetic(ptx)) == sorted(EXPECTED[name].split())
    mufu = [word for word in arithmetic(ptx) if word.split(".")[0] in ("tanh", "ex2", "rcp", "lg2", "sqrt", "rsqrt")]
    assert len(mufu) <= (2 if name in TWO_MUFU else 1)


def test_every_op_has_a_device_function() -> None:
    assert {op.device for op in OPS.values()} | {"divide", "where", "exact_inverse", "exact_quotient"} == set(EXPECTED)
    others = {
        "minimum",
        "maximum",
        "clamp",
        "where",
        "leaky_relu",
        "gelu_erf",
        "normal_cdf",
        "divide",
        *EXACT_ARITHMETIC,
    }
    assert {*EXACT, *POSITIVE} | others == set(EXPECTED)


def test_division_by_a_number_is_a_product(tmp_path: Path) -> None:
    assert arithmetic(compile_to_ptx(lambda x, _: activation.divide(x, 3.0), tmp_path)) == ["mul.f32"]


@pytest.mark.parametrize(("dtype", "cvt"), [("BFloat16", "cvt.rn.bf16x2.f32"), ("Float16", "cvt.rn.f16x2.f32")])
def test_stored_rounds(dtype: str, cvt: str, tmp_path: Path) -> None:
    ptx = compile_to_ptx(lambda x, _: activation.stored(x, getattr(cutlass, dtype)), tmp_path)
    assert cvt in ptx


@pytest.fixture
def in_python(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The module computing with Python floats and exact functions: its formulas, checked without a GPU."""

    def pick(choose: Callable[..., float]) -> Callable[..., float]:
        return lambda x, y, nan: math.nan if math.isnan(x) or math.isnan(y) else choose(x, y)

    arch = SimpleNamespace(fmin=pick(min), fmax=pick(max), rcp_approx=lambda x: 1.0 / x)
    functions = SimpleNamespace(
        absf=abs,
        exp2=lambda x, fastmath: 2.0**x,
        tanh=lambda x, fastmath: math.tanh(x),
        log2=lambda x, fastmath: math.log2(x),
        sqrt=lambda x, fastmath: math.sqrt(x),
        rsqrt=lambda x, fastmath: 1.0 / math.sqrt(x),
    )
    monkeypatch.setattr(activation, "cute", SimpleNamespace(arch=arch, math=functions))
    monkeypatch.setattr(activation, "Float32", float)
    monkeypatch.setattr(activation, "where", lambda condition, x, y: x if condition else y)
    return activation


def phi(x: float) -> float:
    return 0.5 * math.erfc(-x / math.sqrt(2.0))


def logistic(x: float) -> float:
    return 1.0 / (1.0 + math.exp(-x))


EXACT: dict[str, Callable[[float], float]] = {
    "absolute": abs,
    "relu": lambda x: max(x, 0.0),
    "square": lambda x: x * x,
    "exp": math.exp,
    "tanh": math.tanh,
    "sigmoid": logistic,
    "silu": lambda x: x * logistic(x),
    "gelu_tanh": lambda x: 0.5 * x * (1.0 + math.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * x**3))),
    "elu": lambda x: x if x > 0.0 else math.exp(x) - 1.0,
    "softplus": lambda x: max(x, 0.0) + math.log(1.0 + math.exp(-abs(x))),
    "mish": lambda x: x * math.tanh(max(x, 0.0) + math.log1p(math.exp(-abs(x)))),
    "hardsigmoid": lambda x: min(max(x + 3.0, 0.0), 6.0) / 6.0,
    "hardswish": lambda x: x * min(max(x + 3.0, 0.0), 6.0) / 6.0,
}
POSITIVE: dict[str, Callable[[float], float]] = {
    "log": math.log,
    "sqrt": math.sqrt,
    "rsqrt": lambda x: 1.0 / math.sqrt(x),
}


@pytest.mark.parametrize("name", EXACT)
def test_formula(name: str, in_python: Any) -> None:
    for i in range(-2000, 2001):
        x = i / 200.0
        assert getattr(in_python, name)(x) == pytest.approx(EXACT[name](x), rel=1e-9, abs=1e-14)


@pytest.mark.parametrize("name", POSITIVE)
def test_formula_of_positive_numbers(name: str, in_python: Any) -> None:
    for i in range(1, 4001):
        assert getattr(in_python, name)(i / 200.0) == pytest.approx(POSITIVE[name](i / 200.0), rel=1e-9, abs=1e-14)


def test_formulas_with_bounds(in_python: Any) -> None:
    for x in (-3.0, -0.25, 0.0, 0.5, 2.0):
        assert in_python.clamp(x, -1.0, 1.0) == min(max(x, -1.0), 1.0)
        assert in_python.leaky_relu(x, 0.125) == (x if x > 0.0 else 0.125 * x)
    assert in_python.clamp(0.0, 1.0, -1.0) == -1.0  # the upper bound is applied last


def test_mish_keeps_its_bound_in_f32(in_python: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each step rounded to f32, exp2 and the reciprocal as well."""
    numpy = pytest.importorskip("numpy")
    f32 = numpy.float32
    monkeypatch.setattr(in_python.cute.arch, "fmin", lambda x, y, nan: numpy.minimum(x, f32(y)))
    monkeypatch.setattr(in_python.cute.math, "exp2", lambda x, fastmath: numpy.exp2(x.astype(float)).astype(f32))
    monkeypatch.setattr(in_python, "Float32", f32)
    x = numpy.linspace(-64.0, 12.0, 2**20, dtype=f32)
    y = in_python.mish(x)
    assert y.dtype == f32
    wide = x.astype(float)
    t = numpy.exp(wide) * (numpy.exp(wide) + 2.0)
    error = abs(y / (wide * t / (t + 2.0)) - 1.0)
    bound = 2.0**-20 + 2.0**-23 * abs(wide)
    assert (error <= bound).all()
    assert (error > 0.4 * bound).any()  # the growth with |x| is there
    assert error.max() > 2.0**-19


def test_gelu_erf_keeps_its_bounds(in_python: Any) -> None:
    for i in range(-20000, 20001):
        x = i / 2000.0
        error = abs(in_python.gelu_erf(x) - x * phi(x))
        assert error <= min(2.0**-22, abs(x) * 2.0**-20.9)
        if -4.0 < x < 0.0:
            assert error <= 2.0**-13 * abs(x * phi(x))


def test_normal_cdf_keeps_its_bounds(in_python: Any) -> None:
    for i in range(-20000, 20001):
        x = i / 2000.0
        error = abs(in_python.normal_cdf(x) - phi(x))
        assert error <= 2.0**-20
        if -4.0 < x < 0.0:
            assert error <= 2.0**-13 * phi(x)
    assert in_python.normal_cdf(math.inf) >= 1.0 - 2.0**-49
    assert in_python.normal_cdf(-math.inf) <= 2.0**-49
    assert math.isnan(in_python.normal_cdf(math.nan))


def test_special_values(in_python: Any) -> None:
    inf = math.inf
    for name in (*EXACT, "gelu_erf"):
        assert math.isnan(getattr(in_python, name)(math.nan)), name
    assert in_python.gelu_erf(inf) == inf
    assert abs(in_python.gelu_erf(-inf)) < 2.0**-46
    assert (in_python.relu(inf), in_python.silu(inf), in_python.gelu_tanh(inf)) == (inf, inf, inf)
    assert (in_python.sigmoid(-inf), in_python.sigmoid(inf), in_python.tanh(-inf)) == (0.0, 1.0, -1.0)
    for f in (in_python.minimum, in_python.maximum):
        assert math.isnan(f(math.nan, 1.0))
        assert math.isnan(f(1.0, math.nan))
    assert in_python.divide(1.0, -4.0) == -0.25


@pytest.mark.parametrize("ulp", [-1, 0, 1])
def test_exact_quotients_are_those_of_ieee_754(ulp: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the approximate reciprocal is, within its 1 ulp; FMAs have their products exact in f64."""
    np = pytest.importorskip("numpy")

    def fma(x: Any, y: Any, z: Any) -> Any:
        return (x.astype(np.float64) * y + z).astype(np.float32)

    def rcp(x: Any) -> Any:
        nearest = np.float32(1.0) / x
        return np.where(np.isfinite(x) & (x != 0), (nearest.view(np.int32) + np.int32(ulp)).view(np.float32), nearest)

    math_ = SimpleNamespace(fma=fma)
    monkeypatch.setattr(activation, "cute", SimpleNamespace(arch=SimpleNamespace(rcp_approx=rcp), math=math_))
    monkeypatch.setattr(activation, "cutlass", SimpleNamespace(select_=np.where))
    monkeypatch.setattr(activation, "Float32", lambda x: np.asarray(x, np.float32))
    random = np.random.default_rng(7)
    x, y = ((random.uniform(1, 2, 300_000) * 2.0 ** random.integers(-60, 60, 300_000)).astype(np.float32) for _ in "xy")
    y[:1000] = np.nextafter(np.float32(2.0), np.float32(0.0))  # all bits of the mantissa
    special = np.array([0.0, -0.0, 1.0, -3.0, np.inf, -np.inf, np.nan], np.float32)
    x = np.concatenate((x, np.repeat(special, len(special))))
    y = np.concatenate((y, np.tile(special, len(special))))
    with np.errstate(all="ignore"):
        inverse = activation.exact_inverse(y)
        ones = (y.view(np.int32) & 0x7FFFFF) == 0x7FFFFF
        np.testing.assert_array_equal(inverse[~ones], (np.float32(1.0) / y)[~ones])
        np.testing.assert_allclose(inverse, np.float32(1.0) / y, rtol=2.0**-23)
        np.testing.assert_array_equal(activation.exact_quotient(x, y, inverse), x / y)
        np.testing.assert_array_equal(activation.exact_divide(x, 448.0), x / np.float32(448.0))
