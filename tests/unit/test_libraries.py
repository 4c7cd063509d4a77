"""Other libraries' products through their own interfaces, imitated on the CPU, and the choice of a candidate."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, ClassVar

import pytest

torch = pytest.importorskip("torch")

from test_bench import CpuPlan, ResidualPlan  # noqa: E402

from cutegen.families.gemm.dense_baselines import list_dense_baselines  # noqa: E402
from cutegen.run.best_variant import Contest, bind_launches  # noqa: E402
from cutegen.run.subject import load_subject  # noqa: E402
from cutegen.runtime import cublas  # noqa: E402
from cutegen.runtime.arguments import TensorArg  # noqa: E402
from cutegen.runtime.gemm import libraries  # noqa: E402
from cutegen.runtime.gemm.product import Product  # noqa: E402

SHAPE = {"m": 24, "n": 16, "k": 8}


@pytest.fixture(autouse=True)
def cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """No CUDA: streams are nothing, and a way takes as long as it says."""
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: "stream")
    Clock.taken = []

    monkeypatch.setattr("cutegen.run.best_variant.time_launches", Clock.time)


class Clock:
    """Time passes when a way says so."""

    taken: ClassVar[list[float]] = []

    @classmethod
    def spend(cls, seconds: float) -> None:
        cls.taken.append(seconds)

    @classmethod
    def time(cls, launches: Sequence[Callable[[], Any]]) -> float:
        before = sum(cls.taken)
        for launch in launches:
            launch()
        return (sum(cls.taken) - before) / len(launches)


def bound(plan: Any, name: str, sets: int = 2) -> tuple[list[Callable[[], Any]], list[Any], list[Any]]:
    baseline = next(b for b in list_dense_baselines(plan) if b.name == name)
    inputs = [plan.prepare_inputs(**SHAPE) for _ in range(sets)]
    outputs = [plan.allocate_outputs(*values) for values in inputs]
    for (output,) in outputs:
        output.fill_(float("nan"))
    return bind_launches(baseline, inputs, outputs), inputs, outputs


def check(plan: Any, inputs: Any, outputs: Any) -> None:
    for values, (output,) in zip(inputs, outputs):
        torch.testing.assert_close(output, plan.reference_fn(*values), rtol=0.02, atol=0.02)


def test_the_fastest_way_wins_over_all_sets_and_failures_are_out() -> None:
    calls: list[tuple[str, str]] = []

    def way(name: str, seconds: float) -> Callable[[str], None]:
        def run(values: str) -> None:
            calls.append((name, values))
            Clock.spend(seconds)
            if seconds < 0:
                raise RuntimeError("not supported")

        return run

    contest = Contest[str](lambda first: [way("slow", 2e-3), way("broken", -1.0), way("fast", 1e-3)], Clock.time)
    launches = [contest.enter("one"), contest.enter("two")]
    assert not calls
    launches[1]()
    assert calls[-1] == ("fast", "two")
    assert {("slow", "one"), ("slow", "two"), ("fast", "one")} <= set(calls)
    before = len(calls)
    launches[0]()
    assert calls[before:] == [("fast", "one")]


def test_a_contest_that_all_lose_raises_the_last_reason() -> None:
    def refuse(text: str) -> Callable[[int], None]:
        def run(values: int) -> None:
            raise ValueError(text)

        return run

    with pytest.raises(ValueError, match="second"):
        Contest[int](lambda first: [refuse("first"), refuse("second")], Clock.time).enter(1)()
    with pytest.raises(Exception, match="no way"):
        Contest[int](lambda first: [], Clock.time).enter(1)()


class Matmul:
    """nvmath.linalg.advanced.Matmul as far as it is used; candidate 2 is the fastest, 1 is refused."""

    made: ClassVar[list[Matmul]] = []

    def __init__(self, a: Any, b: Any, c: Any, *, alpha: float, beta: float, options: dict[str, Any]) -> None:
        assert (alpha, beta, options) == (1.0, 0.0, {"inplace": True})
        assert c.stride(0) == 1  # column-major, as cuBLASLt has it
        self.operands, self.chosen = (a, b, c), list[int]()
        self.made.append(self)

    def plan(self, *, preferences: dict[str, int], epilog: Any = None, epilog_inputs: Any = None) -> list[int]:
        assert preferences == {"limit": libraries.CUBLASLT_CANDIDATES}
        self.epilog, self.bias = epilog, epilog_inputs
        return [0, 1, 2]

    def reset_operands(self, *, a: Any, b: Any, c: Any, stream: str, epilog_inputs: Any = None) -> None:
        self.operands, self.bias = (a, b, c), epilog_inputs

    def execute(self, *, algorithm: int, stream: str) -> Any:
        if algorithm == 1:
            raise RuntimeError("CUBLAS_STATUS_NOT_SUPPORTED")
        Clock.spend((3e-3, 0, 1e-3)[algorithm])
        self.chosen.append(algorithm)
        a, b, c = self.operands
        torch.mm(a, b, out=c)
        if self.epilog == "relu and bias":
            assert self.bias["bias"].dtype == c.dtype
            c.copy_(torch.relu(c + self.bias["bias"][:, None]))


@pytest.mark.parametrize("plan", ["plain", "bias"])
def test_cublaslt_is_its_best_candidate(plan: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = {"plain": CpuPlan, "bias": BiasPlan}[plan]()
    Matmul.made = []
    module: Any = ModuleType("nvmath.linalg.advanced")
    module.Matmul, module.MatmulEpilog = Matmul, SimpleNamespace(RELU_BIAS="relu and bias")
    for name in ("nvmath", "nvmath.linalg"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    monkeypatch.setitem(sys.modules, "nvmath.linalg.advanced", module)
    launches, inputs, outputs = bound(plan, "nvmath")
    for launch in launches:
        launch()
    check(plan, inputs, outputs)
    (matmul,) = Matmul.made
    assert matmul.chosen[-2:] == [2, 2]


class Operator:
    """One of CUTLASS's operators; compiles once a name."""

    compiled: ClassVar[list[str]] = []

    def __init__(self, name: str, seconds: float) -> None:
        self.metadata, self.seconds = SimpleNamespace(operator_name=name), seconds

    def compile(self, arguments: Any, target_sm: str) -> str:
        self.compiled.append(self.metadata.operator_name)
        if self.metadata.operator_name == "broken":
            raise RuntimeError("ICE")
        return f"artifact of {self.metadata.operator_name}"

    def run(self, arguments: Any, artifact: str, stream: str, assume_supported_args: bool) -> None:
        assert artifact == f"artifact of {self.metadata.operator_name}"
        Clock.spend(self.seconds)
        torch.mm(arguments[0], arguments[1], out=arguments[2])


def test_cutlass_operators_are_compiled_once_for_all_problems(monkeypatch: pytest.MonkeyPatch) -> None:
    Operator.compiled = []
    monkeypatch.setattr(libraries, "_OPERATORS", {})
    module: Any = ModuleType("cutlass.operators")
    module.GemmArguments = lambda a, b, d, accumulator_type: (a, b, d)
    module.get_operators = lambda arguments, target_sm: [
        Operator("wide", 2e-3), Operator("broken", 0), Operator("narrow", 1e-3)]  # fmt: skip
    monkeypatch.setitem(sys.modules, "cutlass.operators", module)
    for _ in range(2):
        launches, inputs, outputs = bound(CpuPlan(), "cutlass_operators")
        for launch in launches:
            launch()
        check(CpuPlan(), inputs, outputs)
    assert Operator.compiled == ["wide", "broken", "narrow", "broken"]


class BiasPlan(CpuPlan):
    name = "bias"
    inputs = (*CpuPlan.inputs, TensorArg("bias", "bfloat16", ("n",), contiguous=0))
    epilogue: ClassVar[dict[str, str]] = {"d": "relu(acc + bias)"}

    def _reference(self, a: Any, b: Any, bias: Any) -> tuple[Any, ...]:
        return (torch.relu(a @ b + bias),)


@pytest.mark.parametrize("plan", [CpuPlan(), ResidualPlan(), BiasPlan()], ids=["plain", "residual", "bias"])
def test_quack_fuses_what_it_can(plan: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[dict[str, Any]] = []

    def gemm(A: Any, B: Any, out: Any, bias: Any = None, tuned: bool = False, split_k: int | None = 1) -> None:
        asked.append({"tuned": tuned, "split_k": split_k})
        out.copy_(A @ B if bias is None else A @ B + bias)

    def gemm_add(A: Any, B: Any, C: Any, out: Any, tuned: bool = False) -> None:
        asked.append({"tuned": tuned})
        out.copy_(A @ B + C)

    def gemm_act(A: Any, B: Any, bias: Any, activation: str, postact_out: Any, store_preact: bool, tuned: bool) -> None:
        asked.append({"activation": activation, "store_preact": store_preact, "tuned": tuned})
        postact_out.copy_(torch.relu(A @ B + bias))

    module: Any = ModuleType("quack.gemm_interface")
    module.gemm, module.gemm_add, module.gemm_act = gemm, gemm_add, gemm_act
    monkeypatch.setitem(sys.modules, "quack", ModuleType("quack"))
    monkeypatch.setitem(sys.modules, "quack.gemm_interface", module)
    launches, inputs, outputs = bound(plan, "quack")
    for launch in launches:
        launch()
    check(plan, inputs, outputs)
    assert (
        asked[0]
        == {
            "plain": {"tuned": True, "split_k": None},
            "residual": {"tuned": True},
            "bias": {"activation": "relu", "store_preact": False, "tuned": True},
        }[plan.name]
    )


def test_quack_is_left_out_where_it_would_compute_something_else() -> None:
    class Scaled(ResidualPlan):
        epilogue: ClassVar[dict[str, str]] = {"d": "acc * c"}

    assert libraries.quack_epilogue(Product(Scaled())) is None
    assert "quack" not in [b.name for b in list_dense_baselines(Scaled())]
    assert "quack" in [b.name for b in list_dense_baselines(ResidualPlan())]


@pytest.mark.parametrize(
    ("operand", "out"),
    [("bfloat16", "bfloat16"), ("float8_e4m3fn", "bfloat16"), ("int8", "int32")],
)
def test_cublas_takes_operands_of_any_dtype(operand: str, out: str) -> None:
    dtype = getattr(torch, operand)
    assert cublas.product_dtype(dtype) is getattr(torch, out)
    a, b = cublas.draw_matrix(32, 64, dtype, "cpu"), cublas.draw_matrix(48, 64, dtype, "cpu")
    result = torch.full((32, 48), 7).to(cublas.product_dtype(dtype))
    for promoted in (False, True):
        cublas.bind_product(a, b.mT, result, promoted=promoted)()
        torch.testing.assert_close(result.double(), a.double() @ b.double().mT, rtol=0.02, atol=0.1)


class Fp8Plan(CpuPlan):
    name, promoted_k = "fp8", 64
    inputs = (
        TensorArg("a", "float8_e4m3fn", ("m", "k"), contiguous=1, multiple=16, axes=(0, 1)),
        TensorArg("b", "float8_e4m3fn", ("n", "k"), contiguous=1, multiple=16, axes=(0, 1)),
    )

    def _reference(self, a: Any, b: Any) -> tuple[Any, ...]:
        return (a @ b.mT,)


def test_eight_bit_products_have_cublas_beside_them(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[bool] = []
    original = torch._scaled_mm

    def scaled_mm(*values: Any, use_fast_accum: bool, **options: Any) -> Any:
        asked.append(use_fast_accum)
        return original(*values, use_fast_accum=use_fast_accum, **options)

    monkeypatch.setattr(torch, "_scaled_mm", scaled_mm)
    plan = Fp8Plan()
    inputs = tuple(cublas.draw_matrix(rows, 64, torch.float8_e4m3fn, "cpu") for rows in (32, 48))
    outputs = plan.allocate_outputs(*inputs)
    next(b for b in list_dense_baselines(plan) if b.name == "torch.mm").bind(inputs, outputs)()
    torch.testing.assert_close(outputs[0].double(), inputs[0].double() @ inputs[1].double().mT, rtol=0.02, atol=0.1)
    assert asked == [False]  # like with like: this plan promotes


def test_the_product_alone_has_all_columns_of_a_gated_kernel() -> None:
    plan: Any = load_subject(Path(__file__).parents[2] / "generated" / "gemm_bf16_swiglu_sm90a").plan
    inputs = tuple(torch.randn(rows, 16).bfloat16() for rows in (8, 32))
    outputs = (torch.randn(8, 16).bfloat16(),)
    before = outputs[0].clone()
    product = next(b for b in list_dense_baselines(plan) if b.name == "torch.mm").bind(inputs, outputs)()
    assert torch.equal(outputs[0], before)
    torch.testing.assert_close(product, inputs[0] @ inputs[1].mT)
