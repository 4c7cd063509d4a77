"""KernelPlan on the CPU: what a call does, what it refuses and in which words, and that the hot path stays bare."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import MISSING, fields
from typing import Any, ClassVar

import pytest

from cutegen.runtime.arguments import ScalarArg, TensorArg, step_of
from cutegen.runtime.gemm.plan import KernelPlan
from cutegen.runtime.gemm.tiling import GemmTiling, spread_blocks

torch = pytest.importorskip("torch")


class CpuPlan(KernelPlan):
    name, arch, device, reduced = "gemm", "sm_90a", "cpu", "k"
    dims: ClassVar = {"m": (1, None), "n": (8, 4096), "k": (8, None)}
    inputs = (
        TensorArg("a", "bfloat16", ("m", "k"), contiguous=1, multiple=8),
        TensorArg("b", "bfloat16", ("n", "k"), contiguous=1, multiple=8),
        TensorArg("bias", "float32", ("n",), contiguous=0, align=4),
        ScalarArg("alpha"),
    )
    outputs = (TensorArg("d", "bfloat16", ("m", "n"), contiguous=1, multiple=8, axes=(0, 1)),)
    tilings: ClassVar = {"wide": "256", "narrow": "64"}

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.compiled: list[str] = []
        self.expected_sms = 7
        self.launched: list[str] = []

    def sm_count(self, index: int) -> int:
        return 7

    def dispatch(self, device: int | None = None, /, **dims: int) -> str:
        return "narrow" if dims["m"] <= 16 else "wide"

    def compile(self, key: str) -> Callable[..., None]:
        self.compiled.append(key)

        def kernel(a: Any, b: Any, bias: Any, alpha: float, d: Any, sms: int) -> None:
            # What TVM FFI checks of a real kernel: anything but the values.
            for t in (a, b, d):
                if t.dim() != 2 or t.stride(1) != 1 or t.stride(0) % 8 or t.data_ptr() % 16 or t.shape[1] % 8:
                    raise ValueError("Mismatched Tensor on argument")
            if (a.shape[1], b.shape[0], a.shape[0]) != (b.shape[1], d.shape[1], d.shape[0]) or sms != self.expected_sms:
                raise ValueError("Mismatched shape")
            if not isinstance(alpha, float) or bias.dtype is not torch.float32 or {a.dtype, d.dtype} != {b.dtype}:
                raise TypeError("Mismatched type")
            d.copy_(self._reference(a.double(), b.double(), bias.double(), alpha)[0])
            self.launched.append(key)

        return kernel

    def _reference(self, a: Any, b: Any, bias: Any, alpha: float) -> tuple[Any, ...]:
        return (alpha * (a @ b.mT) + bias,)

    def _algorithmic_flops_bytes(self, m: int, n: int, k: int) -> tuple[int, int]:
        return 2 * m * n * k, 2 * (m * k + n * k + m * n) + 4 * n


SHAPE = {"m": 24, "n": 16, "k": 32}


@pytest.fixture
def plan() -> CpuPlan:
    return CpuPlan()


def arguments(plan: CpuPlan, **dims: int) -> tuple[Any, ...]:
    inputs = plan.prepare_inputs(**{**SHAPE, **dims})
    return (*inputs, *plan.allocate_outputs(*inputs))


def test_import_needs_neither_torch_nor_the_dsl() -> None:
    code = "import sys, cutegen.runtime.gemm.plan, cutegen.runtime.command\n"
    code += "print({'torch', 'cutlass'} & set(sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "set()\n"


def test_kernel_reference_and_launch_agree(plan: CpuPlan) -> None:
    inputs = plan.prepare_inputs(**SHAPE)
    expected = plan.reference_fn(*inputs, precision="float64")
    assert torch.equal(plan.kernel_fn(*inputs), expected)
    out = torch.full_like(expected, float("nan"))
    assert plan.launch_fn(*inputs, out) is None
    assert torch.equal(out, expected)
    assert (expected.float() - plan.reference_fn(*inputs).float()).abs().max() < 0.05


def test_dispatch_compiles_each_tiling_once(plan: CpuPlan) -> None:
    for m in (8, 16, 24, 8, 24):
        plan.kernel_fn(*plan.prepare_inputs(**{**SHAPE, "m": m}))
    assert plan.launched == ["narrow", "narrow", "wide", "narrow", "wide"]
    assert plan.compiled == ["narrow", "wide"]
    plan.make_launch("wide")(*arguments(plan, m=8))
    assert plan.launched[-1] == "wide"


def test_plan_allocates_and_compiles_ahead(plan: CpuPlan) -> None:
    inputs = plan.prepare_inputs(**SHAPE)
    kernel = plan.plan(*inputs)
    assert (plan.compiled, plan.launched) == (["wide"], [])
    assert kernel.tiling == "256"
    assert kernel.autotune_configs == plan.tilings
    assert kernel.algorithmic_flops_bytes_fn() == plan._algorithmic_flops_bytes(**SHAPE)
    kernel.launch_fn(*kernel.input_tensors, *kernel.output_tensors)
    assert torch.equal(kernel.output_tensors[0], plan.reference_fn(*inputs, precision="float64"))


def test_compile_keys() -> None:
    plan = CpuPlan(on_miss="error")
    with pytest.raises(RuntimeError, match=r"kernel 'wide', which .* runs, is not compiled; call warm_up\("):
        plan.launch_fn(*arguments(plan))
    assert plan.get_warmup_keys() == ("wide", "narrow")
    plan.warm_up(["wide"])
    plan.warm_up()
    assert plan.compiled == ["wide", "narrow"]
    plan.launch_fn(*arguments(plan))
    warning = CpuPlan(on_miss="warn")
    with pytest.warns(RuntimeWarning, match="compiling now"):
        warning.launch_fn(*arguments(warning))


@pytest.mark.parametrize("dim", ["m", "n"])
def test_empty_outputs_launch_nothing(plan: CpuPlan, dim: str) -> None:
    plan.launch_fn(*arguments(plan, **{dim: 0}))
    assert plan.launched == plan.compiled == []


def test_empty_contraction_is_refused(plan: CpuPlan) -> None:
    with pytest.raises(ValueError, match="k is 0; a product over no elements is not computed"):
        plan.launch_fn(*arguments(plan, k=0))


def test_strides_of_extent_one_do_not_matter(plan: CpuPlan) -> None:
    a, b, bias, alpha, d = arguments(plan, m=1)
    column = a.as_strided((1, 32), (1, 1))
    plan.launch_fn(column, b, bias, alpha, d)
    assert torch.equal(d, plan.reference_fn(a, b, bias, alpha, precision="float64"))


def rows(shape: tuple[int, int], pitch: int, start: int = 0) -> Any:
    return torch.zeros(shape[0] * pitch + 16, dtype=torch.bfloat16).as_strided(shape, (pitch, 1), start)


@pytest.mark.parametrize(
    ("position", "value", "error", "message"),
    [
        (0, None, TypeError, "a: is None, needs a torch tensor bfloat16[m, k]"),
        (0, [1.0], TypeError, "a: is a list, needs a torch tensor"),
        (0, torch.zeros(24, 32), TypeError, "a: has dtype float32, needs bfloat16: pass a.to(torch.bfloat16)"),
        (0, torch.zeros(32).bfloat16(), ValueError, "a: has shape (32,) of rank 1, needs bfloat16[m, k] of rank 2"),
        (0, torch.zeros(32, 1, 64).bfloat16(), ValueError, "needs bfloat16[m, k] of rank 2: pass a.squeeze(1)"),
        (0, rows((24, 32), 33), ValueError,
         "a: stride(0) is 33 elements = 66 bytes; the kernel needs multiples of 16 bytes: pass a.contiguous()"),
        (0, rows((24, 32), 40, 1), ValueError, "a: data pointer is 2 bytes past a multiple of 16; the kernel needs "
         "16-byte alignment: start the slice at a multiple of 8 elements, or pass a.clone()"),
        (0, rows((24, 32), 40, 4), ValueError, "a: data pointer is 8 bytes past a multiple of 16; "),
        (0, rows((32, 24), 24).mT, ValueError, "a: stride(1) is 24, needs 1 (k contiguous): pass a.contiguous()"),
        (0, torch.zeros(24, 32, dtype=torch.bfloat16, device="meta"), ValueError, "a: is a meta tensor"),
        (1, rows((16, 40), 40), ValueError, "b: shape[1] is 40, but k is 32 (from a); needs bfloat16[n, k]"),
        (2, torch.zeros(24), ValueError, "bias: shape[0] is 24, but n is 16 (from b)"),
        (3, torch.ones(()), TypeError, "alpha: is a Tensor, needs a Python float; pass value.item()"),
        (4, rows((24, 8), 8), ValueError, "d: shape[1] is 8, but n is 16 (from b)"),
        (4, torch.zeros(24, 16), TypeError, "d: has dtype float32, needs bfloat16: allocate it so; the kernel"),
    ],
)  # fmt: skip
def test_wrong_argument_is_named(plan: CpuPlan, position: int, value: Any, error: type, message: str) -> None:
    values = list(arguments(plan))
    values[position] = value
    with pytest.raises(error) as caught:
        plan.launch_fn(*values)
    assert message in str(caught.value)
    assert str(caught.value).startswith("gemm: ")
    if position < 4:
        with pytest.raises(error):
            plan.kernel_fn(*values[:4])
        with pytest.raises(error):
            plan.plan(*values[:4])


def test_extents_that_cannot_be_aligned_say_how_to_pad(plan: CpuPlan) -> None:
    a, b, bias, alpha, d = arguments(plan)
    with pytest.raises(ValueError, match=r"a: shape\[1\] \(k\) is 28, needs a multiple of 8 elements: pad k to 32"):
        plan.launch_fn(a[:, :28], b[:, :28], bias, alpha, d)
    with pytest.raises(
        ValueError, match=r"\b60 bytes; the kernel needs multiples of 16 bytes: pad k to 32, or pass a slice"
    ):
        plan.launch_fn(rows((24, 30), 30), rows((16, 30), 32), bias, alpha, d)


class ConstantPlan(CpuPlan):
    dims: ClassVar = {"m": (1, None), "n": 64, "k": (8, None)}


class HalvedPlan(ConstantPlan):
    outputs = (TensorArg("d", "bfloat16", ("m", "n/2"), contiguous=1, multiple=8, axes=(0, 1)),)


def test_constants_hold_whatever_the_compiled_kernel_is_told() -> None:
    """Those that fit in a tile are dynamic extents to the compiler, which sees only that a call agrees with itself."""
    plan = ConstantPlan()
    a, b, bias, alpha = plan.prepare_inputs(m=24, k=16)
    plan.launch_fn(a, b, bias, alpha, torch.empty(24, 64, dtype=torch.bfloat16))
    assert plan.launched == ["wide"]
    wide = torch.zeros(128, 16, dtype=torch.bfloat16), torch.zeros(128)
    with pytest.raises(ValueError, match=r"b: shape\[0\] is 128, but n is 64"):
        plan.launch_fn(a, wide[0], wide[1], alpha, torch.empty(24, 128, dtype=torch.bfloat16))
    halved = HalvedPlan()
    with pytest.raises(ValueError, match=r"d: shape\[1\] is 64"):
        halved.launch_fn(a, b, bias, alpha, torch.empty(24, 64, dtype=torch.bfloat16))
    assert plan.launched + halved.launched == ["wide"]


def test_promised_ranges_hold(plan: CpuPlan) -> None:
    with pytest.raises(ValueError, match="n is 8192; this kernel is promised 8 <= n <= 4096"):
        plan.launch_fn(*arguments(plan)[:1], rows((8192, 32), 32), torch.zeros(8192), 1.0, rows((24, 8192), 8192))
    with pytest.raises(ValueError, match="promised 8 <= n <= 4096"):
        plan.prepare_inputs(m=8, n=8192, k=8)
    assert plan.prepare_inputs(m=8, n=4096, k=8)[1].shape == (4096, 8)
    with pytest.raises(TypeError, match=r"missing extent of n; pass n=\.\.\."):
        plan.prepare_inputs(m=8, k=8)
    with pytest.raises(TypeError, match="no dim is named q; the dims are m, n, k"):
        plan.prepare_inputs(m=8, n=8, k=8, q=1)


def test_all_faults_are_told_at_once(plan: CpuPlan) -> None:
    a, b, bias, alpha, d = arguments(plan)
    with pytest.raises(TypeError) as caught:
        plan.launch_fn(a.float(), b, bias[:8], None, d)
    assert [line.split(":")[0] for line in str(caught.value).removeprefix("gemm: ").split("\n  ")] == [
        "a",
        "bias",
        "alpha",
    ]
    with pytest.raises(TypeError, match=r"takes 5 arguments \(a, b, bias, alpha, d\), got 4"):
        plan.launch_fn(a, b, bias, alpha)
    for given in ((a, b, bias), (a, b, bias, alpha, d)):
        with pytest.raises(TypeError, match=rf"takes 4 arguments \(a, b, bias, alpha\), got {len(given)}"):
            plan.kernel_fn(*given)


def test_a_machine_without_a_device_is_told(plan: CpuPlan, monkeypatch: pytest.MonkeyPatch) -> None:
    a, b, bias, alpha, _ = arguments(plan)
    plan.device = "cuda"  # type: ignore[misc]
    with pytest.raises(ValueError, match=r"a: is on cpu, needs cuda: pass a\.to\('cuda'\)") as caught:
        plan.kernel_fn(a, b, bias, alpha)
    assert "d:" not in str(caught.value)  # the caller did not pass it
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(RuntimeError, match="gemm: inputs are made on a CUDA device, and torch finds none"):
        plan.prepare_inputs(m=8, n=8, k=8)


def test_budget_of_sms(plan: CpuPlan) -> None:
    wide = GemmTiling(*((2, 1) if f.name == "cluster" else 0 for f in fields(GemmTiling) if f.default is MISSING))
    plan.tilings = {"wide": wide, "narrow": wide}  # type: ignore[misc]
    values = arguments(plan)
    for own, given, expected in ((None, 5, 5), (3, None, 3), (3, 4, 4), (None, 100, 7)):
        plan.sms, plan.expected_sms = own, expected
        plan.launch_fn(*values, sms=given)
        assert plan.plan(*values[:4], sms=given).launch_fn(*values) is None
        plan.kernel_fn(*values[:4], sms=given)
    assert len(plan.launched) == 12
    plan.sms = None
    with pytest.raises(ValueError, match="gemm: sms is 1; a cluster of 2 CTAs runs on 2 at once: pass at least 2"):
        plan.launch_fn(*values, sms=1)
    with pytest.raises(TypeError, match=r"sms is 2\.5, needs a number of SMs, or None for all"):
        plan.kernel_fn(*values[:4], sms=2.5)  # type: ignore[arg-type]


def test_failure_of_a_legal_call_is_passed_on(plan: CpuPlan) -> None:
    plan.expected_sms = 8
    with pytest.raises(ValueError, match="Mismatched shape"):
        plan.launch_fn(*arguments(plan))


def test_m_major_outputs_and_steps() -> None:
    class Transposed(CpuPlan):
        outputs = (TensorArg("d", "bfloat16", ("m", "n"), contiguous=0, multiple=8, axes=(0, 1)),)

    plan = Transposed()
    (d,) = plan.allocate_outputs(*plan.prepare_inputs(**SHAPE))
    assert (tuple(d.shape), d.stride()) == ((24, 16), (1, 24))
    args = (*plan.inputs, *plan.outputs)
    assert [step_of(dim, args) for dim in "mnk"] == [8, 1, 8]


class ZeroPlan(CpuPlan):
    def compile(self, key: str) -> Callable[..., None]:
        return lambda *values: values[-2].zero_()


class CpuEightBits(CpuPlan):
    inputs = (
        TensorArg("a", "float8_e5m2", ("m", "k"), contiguous=1, align=16, multiple=16, axes=(0, 1)),
        TensorArg("b", "float8_e4m3fn", ("n", "k"), contiguous=1, align=16, multiple=16, axes=(0, 1)),
        TensorArg("c", "int8", ("m", "n"), contiguous=1, align=16, multiple=16, axes=(0, 1)),
    )


def test_inputs_of_eight_bits() -> None:
    a, b, c = CpuEightBits().prepare_inputs(m=64, n=64, k=256)
    assert [str(x.dtype) for x in (a, b, c)] == ["torch.float8_e5m2", "torch.float8_e4m3fn", "torch.int8"]
    assert 0.9 < a.float().std() < 1.1
    assert 0.9 < b.float().std() * 16 < 1.1
    assert (int(c.min()), int(c.max())) == (-128, 127)


def test_the_tolerance_knows_what_was_multiplied() -> None:
    plan = CpuEightBits()
    inputs = plan.prepare_inputs(m=16, n=16, k=4096)
    fast = plan.output_tolerance(0, inputs, "float64").scaled
    plan.promoted_k = 128  # type: ignore[misc]
    assert fast > 5 * plan.output_tolerance(0, inputs, "float64").scaled


def test_the_last_scale_gives_the_product_unit_variance() -> None:
    plan = CpuEightBits()
    plan.scales = ("a_scale", "b_scale")  # type: ignore[misc]
    plan.inputs = (  # type: ignore[misc]
        *(TensorArg(x, "int8", (d, "k"), contiguous=1, multiple=16, axes=(0, 1)) for x, d in (("a", "m"), ("b", "n"))),
        TensorArg("a_scale", "float32", ("m",), contiguous=0, align=4),
        ScalarArg("b_scale"),
    )
    a, b, a_scale, b_scale = plan.prepare_inputs(m=64, n=64, k=512)
    assert 0.5 <= a_scale.min() <= a_scale.max() <= 1.5
    assert 0.3 < ((a.float() * a_scale[:, None]) @ b.float().mT * b_scale).std() < 2


class CpuBlocks(CpuPlan):
    inputs = (
        TensorArg("s", "float32", ("m", "ceil(k/128)"), contiguous=0, align=16, padded=True),
        *CpuPlan.inputs[:2],
        TensorArg("t", "float32", ("ceil(n/128)", "k/128"), contiguous=1, align=4),
    )
    scales = ("s", "t")

    def _reference(self, s: Any, a: Any, b: Any, t: Any) -> tuple[Any, ...]:  # type: ignore[override]
        a, b = a * spread_blocks(s, a.shape, 1, 128), b * spread_blocks(t, b.shape, 128, 128)
        return (a @ b.mT,)


BLOCK_SHAPE = {"m": 30, "n": 136, "k": 256}


def test_parts_that_are_rounded_up_and_padded_rows() -> None:
    plan = CpuBlocks()
    s, a, b, t = plan.prepare_inputs(**BLOCK_SHAPE)
    assert (s.shape, s.stride()) == ((30, 2), (1, 32))
    assert (t.shape, t.stride()) == ((2, 2), (2, 1))
    assert [step_of(dim, (*plan.inputs, *plan.outputs)) for dim in ("m", "n", "k")] == [1, 8, 128]
    assert not plan._find_faults(plan.inputs, (s, a, b, t))
    spread = s[:, [0] * 128 + [1] * 128] * a.float() @ (b.float() * t[[0] * 128 + [1] * 8][:, [0] * 128 + [1] * 128]).mT
    assert torch.allclose(plan.reference_fn(s, a, b, t).float(), spread, atol=0.02, rtol=0.01)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda s, a, b, t: (s[:, :1], a, b, t), r"s: shape\[1\] is 1, but ceil\(k/128\) is 2 \(k = 256 from a\)"),
        (lambda s, a, b, t: (s, a, b, t[:1]), r"t: shape\[0\] is 1, but ceil\(n/128\) is 2 \(n = 136 from b\)"),
        (lambda s, a, b, t: (s.contiguous(), a, b, t), r"s: stride\(0\) is 2, needs 1 \(m contiguous\)"),
        (
            lambda s, a, b, t: (s.T.contiguous().T, a, b, t),
            r"s: stride\(1\) is 30 elements = 120 bytes; the kernel",
        ),
        (lambda s, a, b, t: (s, a[:, :192], b[:, :192], t), r"t: shape\[1\] is 2, but k/128 is 1.5 \(k = 192 from a\)"),
    ],
)
def test_scales_that_do_not_fit(change: Any, said: str) -> None:
    plan = CpuBlocks()
    inputs = change(*plan.prepare_inputs(**BLOCK_SHAPE))
    with pytest.raises(ValueError, match=said):
        plan.launch_fn(*inputs, torch.empty(30, 136, dtype=torch.bfloat16))


def test_what_suites_call_the_product() -> None:
    assert (CpuPlan().mainloop, CpuBlocks().mainloop) == ("a @ b", "(a * sa) @ (b * sb)")


def test_spread_blocks() -> None:
    spread = spread_blocks(torch.tensor([[1.0, 2.0], [3.0, 4.0]]), (3, 5), 2, 3)
    assert spread.tolist() == [[1, 1, 1, 2, 2], [1, 1, 1, 2, 2], [3, 3, 3, 4, 4]]
