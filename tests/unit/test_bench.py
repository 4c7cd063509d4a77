"""`bench` with a fake device: kernels run on the CPU, times come from a script."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import pytest
from cpu_plans import edge_shapes

from cutegen.diagnostics import CutegenError
from cutegen.families.gemm.dense_baselines import list_dense_baselines
from cutegen.report import table
from cutegen.report.result import Result, parse_result
from cutegen.run.bench import BenchReport, Settings, measure, warm_up
from cutegen.run.candidates import bind_kernel, count_sets
from cutegen.run.device import Rates
from cutegen.run.environment import Reading
from cutegen.run.row import Row
from cutegen.run.shapes import bench_shapes, parse_shape
from cutegen.run.subject import Subject, load_subject, plan_subject
from cutegen.runtime.arguments import TensorArg
from cutegen.runtime.gemm.plan import KernelPlan

torch = pytest.importorskip("torch")

SETTINGS = Settings(rounds=6, slice_seconds=0.01, baselines=("torch.mm", "torch.addmm", "torch eager", "quack"))
SHAPE = {"m": 40, "n": 24, "k": 16}


class Tiling:
    tile = (16, 16, 16)
    stages = 4


class CpuPlan(KernelPlan):
    name, arch, device, reduced = "plain", "sm_90a", "cpu", "k"
    dims: ClassVar = {"m": (1, None), "n": (1, None), "k": (1, None)}
    inputs = (
        TensorArg("a", "bfloat16", ("m", "k"), contiguous=1, multiple=8, axes=(0, 1)),
        TensorArg("b", "bfloat16", ("k", "n"), contiguous=1, multiple=8, axes=(1, 0)),
    )
    outputs = (TensorArg("d", "bfloat16", ("m", "n"), contiguous=1, multiple=8, axes=(0, 1)),)
    epilogue: ClassVar = {"d": "acc"}
    tilings: ClassVar = {"t16": Tiling()}

    def sm_count(self, index: int) -> int:
        return 1

    def compile(self, key: str) -> Callable[..., None]:
        return lambda *values: values[-2].copy_(self._reference(*(v.double() for v in values[:-2]))[0])

    def _reference(self, a: Any, b: Any) -> tuple[Any, ...]:
        return (a @ b,)

    def _algorithmic_flops_bytes(self, m: int, n: int, k: int) -> tuple[int, int]:
        return 2 * m * n * k, 2 * (m * k + n * k + m * n)


class ResidualPlan(CpuPlan):
    name = "residual"
    inputs = (*CpuPlan.inputs, TensorArg("c", "bfloat16", ("m", "n"), contiguous=1, multiple=8, axes=(0, 1)))
    epilogue: ClassVar = {"d": "acc + c"}

    def _reference(self, a: Any, b: Any, c: Any) -> tuple[Any, ...]:
        return (a @ b + c,)


class AccumulatingPlan(CpuPlan):
    name = "accumulating"
    inputs = ResidualPlan.inputs
    outputs = (ResidualPlan.inputs[2],)
    in_place = ("c",)
    epilogue: ClassVar = {"c": "acc + c"}

    def compile(self, key: str) -> Callable[..., None]:
        return lambda a, b, c, sms: c.copy_(self._reference(a.double(), b.double(), c.double())[0])

    _reference = ResidualPlan._reference


class BrokenPlan(CpuPlan):
    name = "broken"

    def compile(self, key: str) -> Callable[..., None]:
        return lambda *values: values[-2].zero_()


class FakeDevice:
    """Candidate i takes (i + 1) us, everything drifting together; what is prepared is run once."""

    l2_bytes = 10_000
    others = 0

    def __init__(self) -> None:
        self.prepared: list[int] = []
        self.order: list[int] = []

    def free_bytes(self) -> int:
        return 1 << 30

    def synchronize(self) -> None: ...

    def other_processes(self) -> int:
        return self.others

    def prepare(self, launches: Sequence[Callable[[], Any]]) -> int:
        self.launches = [*getattr(self, "launches", []), launches]
        self.prepared.append(len(launches))
        return len(self.prepared) - 1

    def sample(self, prepared: int, seconds: float) -> tuple[float, Reading | None]:
        self.order.append(prepared)
        for launch in self.launches[prepared]:
            launch()
        return (prepared + 1) * 1e-6 * (1 + 0.001 * len(self.order)), Reading(1500 + prepared, 600.0, 50)

    def host_seconds(self, launch: Callable[[], Any]) -> float:
        return 5e-6

    def measure_rates(self, dtype: str) -> Rates:
        return Rates(4e12, 4.2e12, 7e14, dtype)


def measured(*plans: KernelPlan, device: FakeDevice | None = None, settings: Settings = SETTINGS) -> BenchReport:
    subjects = [(plan_subject(plan, Path(plan.name)), [Row(SHAPE)]) for plan in plans]
    return measure(subjects, (), device or FakeDevice(), {"gpu": None}, settings)


def shown(report: BenchReport) -> Result:
    return parse_result(report.to_json("cutegen bench plain.yaml"))


def test_kernel_and_baselines_are_interleaved_and_compared() -> None:
    device = FakeDevice()
    report = measured(CpuPlan(), device=device)
    (problem,) = report.problems
    kernel, mm = problem.measured
    assert (kernel.candidate.name, mm.candidate.name, problem.against) == ("plain", "torch.mm", "torch.mm")
    assert device.order[-12:] == [0, 1, 1, 0, 1, 0, 0, 1, 0, 1, 1, 0]
    assert kernel.speed
    assert kernel.speed.median == pytest.approx(2.0, rel=0.01)
    assert kernel.speed.low < kernel.speed.median < kernel.speed.high
    assert mm.speed is None
    assert kernel.time
    assert kernel.time.coverage == 0.96875
    assert kernel.share == pytest.approx(
        max(2 * 40 * 24 * 16 / 7e14, 2 * (640 + 384 + 960) / 4.2e12) / kernel.time.median
    )
    assert (kernel.right, mm.right, report.ok) == (True, True, True)
    assert problem.skipped["quack"].startswith("ModuleNotFoundError: No module named 'quack'")
    assert problem.skipped["nvmath"] == "not asked for"


def test_json_has_samples_and_what_is_needed_to_repeat() -> None:
    result = measured(CpuPlan()).to_json("cutegen bench x.yaml")
    assert result["command"] == "cutegen bench x.yaml"
    assert result["sms"] is None
    assert shown(measured(CpuPlan(), settings=replace(SETTINGS, sms=100))).sms == 100
    (problem,) = result["problems"]
    kernel = problem["candidates"][0]
    assert len(kernel["samples"]) == len(kernel["sm_mhz"]) == 6
    assert kernel["sets"] == 2 * 10_000 // 3968 + 1
    assert {"median", "low", "high", "coverage"} == set(kernel["speed"])
    assert kernel["max_error"] <= kernel["allowed"]


def test_fused_kernels_have_unfused_and_fused_baselines() -> None:
    (problem,) = measured(ResidualPlan()).problems
    by_name = {m.candidate.name: m for m in problem.measured}
    assert list(by_name) == ["residual", "torch.mm", "torch.addmm", "torch eager"]
    assert by_name["torch.addmm"].right is True
    assert by_name["torch.mm"].right is by_name["torch eager"].right is None
    assert by_name["torch.mm"].candidate.does == "cuBLAS, the product only"


def test_a_product_alone_leaves_the_outputs_of_the_fused_kernel() -> None:
    plan = ResidualPlan()
    inputs = plan.prepare_inputs(**SHAPE)
    outputs = plan.allocate_outputs(*inputs)
    outputs[0].zero_()
    baseline = next(b for b in list_dense_baselines(plan) if b.name == "torch.mm")
    baseline.bind(inputs, outputs)()
    assert not outputs[0].any()


def test_kernels_with_the_same_dims_share_a_problem() -> None:
    plain, residual = CpuPlan(), ResidualPlan()
    (problem,) = measured(plain, residual, settings=replace(SETTINGS, against="plain")).problems
    by_name = {m.candidate.name: m for m in problem.measured}
    assert list(by_name) == ["plain", "residual", "torch.mm", "residual: torch.mm", "residual: torch.addmm",
                             "residual: torch eager"]  # fmt: skip
    assert by_name["residual"].speed
    assert by_name["residual"].speed.median == pytest.approx(0.5, rel=0.02)
    with pytest.raises(CutegenError, match="nothing named 'cublas' was measured"):
        measured(plain, settings=replace(SETTINGS, against="cublas"))


def test_without_baselines_the_targets_are_alone() -> None:
    """At the power limit a candidate that draws less lends clock to the one that follows it."""
    settings = replace(SETTINGS, baselines=("none",))
    report = measured(CpuPlan(), ResidualPlan(), settings=settings)
    (problem,) = report.problems
    assert [m.candidate.name for m in problem.measured] == ["plain", "residual"]
    assert (problem.against, problem.skipped) == ("plain", {})
    assert problem.measured[1].speed
    by_suite = measured(CpuPlan(), ResidualPlan(), settings=replace(settings, suite="small"))
    for result in (shown(report), shown(by_suite)):
        assert any(line.startswith("speed: relative to plain, median of") for line in table.describe_run(result))


def test_kernels_that_take_the_same_get_the_same_inputs() -> None:
    """Where work depends on values, as with labelled rows, kernels with inputs of their own would not be comparable."""
    memory, bound = FakeDevice(), []
    for plan in (CpuPlan(), ResidualPlan(), CpuPlan()):
        bound.append(bind_kernel(plan_subject(plan, Path(plan.name)), SHAPE, memory, 7, 3, alike=bound))
    first, other, twin = bound
    assert twin.inputs is first.inputs
    assert other.inputs is not first.inputs
    mine, theirs = (candidate.results[0][0] for candidate in (first, twin))
    assert mine.data_ptr() != theirs.data_ptr()
    for c in (first, twin):
        c.launch_all()
        c.judge()
    assert first.right
    assert twin.right
    assert twin.references is first.references
    assert len(first.references) == 2


def test_wrong_results_are_told() -> None:
    report = measured(BrokenPlan())
    assert not report.ok
    assert report.problems[0].measured[0].right is False
    assert "WRONG" in table.row(shown(report).problems[0].candidates[0])


def test_results_that_go_wrong_while_timing_are_told() -> None:
    class Tired(CpuPlan):
        calls = 0

        def compile(self, key: str) -> Callable[..., None]:
            def kernel(*values: Any) -> None:
                self.calls += 1
                values[-2].copy_(self._reference(*(v.double() for v in values[:-2]))[0] + (self.calls > 50))

            return kernel

    assert measured(Tired()).problems[0].measured[0].right is False


def test_what_every_launch_adds_to_is_judged_after_one() -> None:
    (problem,) = measured(AccumulatingPlan()).problems
    right = {m.candidate.name: m.right for m in problem.measured}
    assert right == {"accumulating": True, "torch.mm": None, "torch.addmm": True, "torch eager": None}
    wrong = AccumulatingPlan()
    wrong._kernels["t16"] = lambda a, b, c, sms: c.copy_(wrong._reference(a.double(), b.double(), 0.5 * c.double())[0])
    assert measured(wrong).problems[0].measured[0].right is False


def test_another_process_is_noted() -> None:
    device = FakeDevice()
    device.others = 1
    report = measured(CpuPlan(), device=device)
    assert report.notes == ("1 other processes use the GPU: do not trust these figures",)
    assert "note: 1 other processes use the GPU: do not trust these figures" in list(table.describe_run(shown(report)))


def test_table_reads() -> None:
    report = shown(measured(CpuPlan()))
    cells = dict(zip(table.HEADER, table.row(report.problems[0].candidates[0])))
    assert cells["what"] == "t16"
    assert cells["result"] == "right"
    assert cells["speed"].startswith(("2.00", "1.99"))
    assert (cells["MHz"], cells["W"], cells["host us"]) == ("1500", "600", "5.0")
    assert table.describe_problem(report.problems[0]).startswith("m=40 n=24 k=16: 3.072e-05 GFLOP, 0.003968 MB, 6 sets")
    assert "96.9%" in "\n".join(table.describe_run(report))


def test_warm_up_ends_when_times_are_steady() -> None:
    class Settling(FakeDevice):
        times = iter([3.0, 2.0, 1.5, 1.0, 1.001, 1.002] + [9.0] * 9)

        def sample(self, prepared: int, seconds: float) -> tuple[float, None]:
            return next(self.times), None

    assert warm_up(Settling(), [0], 0.1) == pytest.approx(0.6)

    class Restless(FakeDevice):
        def sample(self, prepared: int, seconds: float) -> tuple[float, None]:
            self.order.append(0)
            return float(len(self.order) % 3), None

    assert warm_up(Restless(), [0], 0.05) == pytest.approx(64 * 0.05, abs=0.06)


def test_sets_exceed_l2_as_far_as_memory_goes() -> None:
    device = FakeDevice()
    assert count_sets(1000, 1000, device, 1) == 21
    assert count_sets(10**6, 10**6, device, 1) == 2
    assert count_sets(1000, 250, device, 1) == 81  # what no launch reads does not count
    assert count_sets(1000, 2000, device, 1) == 21  # what is read and written lies in L2 once
    device.free_bytes = lambda: 10_000  # type: ignore[method-assign]
    assert count_sets(1000, 250, device, 1) == 5


def test_no_kernel_that_runs_is_an_error() -> None:
    class Narrow(CpuPlan):
        dims: ClassVar = {**CpuPlan.dims, "n": 64}

    with pytest.raises(CutegenError, match="specialised for n=64"):
        measured(Narrow())


@pytest.fixture
def subject() -> Subject:
    return plan_subject(CpuPlan(), Path("plain"))


def test_shapes_of_the_command_line_and_the_spec(subject: Subject) -> None:
    assert parse_shape("m=8, n=16,k=24", subject) == {"m": 8, "n": 16, "k": 24}
    assert bench_shapes(subject, ["m=8,n=16,k=24"], [SHAPE]) == [{"m": 8, "n": 16, "k": 24}]
    assert bench_shapes(subject, [], [SHAPE, SHAPE]) == [SHAPE]
    assert {"m": 4096, "n": 28672, "k": 8192} in bench_shapes(subject, [], [])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("m=8", "n, k missing"),
        ("m=8,n=16,k=24,l=2", "plain has no dim l"),
        ("m=8,n=x,k=8", "`n=x` is not a dim and extent"),
        ("m=8,n=9,k=8", "n must be a multiple of 8"),
        ("8x8x8", "`8x8x8` is not a dim and extent"),
        ("m=0,n=8,k=8", "`m=0` is not a dim and extent"),
        ("m=2147483648,n=8,k=8", "`m=2147483648` is too large"),
        ("m=" + "9" * 5000, "is too large"),
        ("m=9" * 2000, "is not a dim and extent"),
        ("m=8,m=9,n=8,k=8", "`m` is given twice"),
    ],
)
def test_bad_shapes(subject: Subject, text: str, message: str) -> None:
    with pytest.raises(CutegenError, match=message) as caught:
        parse_shape(text, subject)
    assert caught.value.exit_code == 2


def test_shapes_keep_the_promises_of_a_plan() -> None:
    class Narrow(CpuPlan):
        dims: ClassVar = {**CpuPlan.dims, "m": (8, 128), "n": (64, None)}

    subject = plan_subject(Narrow(), Path())
    for text, message in (("m=129,n=64,k=8", "m is from 8 to 128"), ("m=8,n=56,k=8", "n is from 64 in plain, not 56")):
        with pytest.raises(CutegenError, match=message):
            parse_shape(text, subject)


def test_edge_shapes_are_legal_distinct_and_respect_constants() -> None:
    class Fixed(CpuPlan):
        dims: ClassVar = {"m": (8, 128), "n": 40, "k": (1, None)}

    for plan in (CpuPlan(), Fixed()):
        shapes = dict(edge_shapes(plan_subject(plan, Path()), Tiling()))
        assert len({tuple(s.values()) for s in shapes.values()}) == len(shapes)
        assert all(s["k"] % 8 == s["n"] % 8 == 0 for s in shapes.values())
    assert {s["n"] for s in shapes.values()} == {40}
    assert all(8 <= s["m"] <= 128 for s in shapes.values())
    free = dict(edge_shapes(plan_subject(CpuPlan(), Path()), Tiling()))
    assert free["one row"]["m"] == 1
    assert free["ragged k"]["k"] % 16 == 8
    assert free["around the ring"]["k"] > 2 * 4 * 16
    waves = free["several waves"]
    assert -(-waves["m"] // 16) * -(-waves["n"] // 16) > 2 * 132


def test_files_are_candidates_too() -> None:
    subject = load_subject(Path(__file__).parent / "kernels" / "right.py")
    report = measure([(subject, ())], ["m=40,n=24,k=16"], FakeDevice(), {"gpu": None}, SETTINGS)
    (kernel,) = report.problems[0].measured
    assert (kernel.right, kernel.candidate.flops, report.problems[0].against) == (True, 2 * 40 * 24 * 16, "right")


def test_addmm_only_where_it_computes_the_same() -> None:
    assert "torch.addmm" in [b.name for b in list_dense_baselines(ResidualPlan())]

    class Scaled(ResidualPlan):
        epilogue: ClassVar = {"d": "acc * c"}

    class Wide(ResidualPlan):
        inputs = (*CpuPlan.inputs, TensorArg("c", "float32", ("m", "n"), contiguous=1, axes=(0, 1)))

    class Column(ResidualPlan):
        inputs = (*CpuPlan.inputs, TensorArg("c", "bfloat16", ("m",), contiguous=0))

    for plan in (Scaled(), Wide(), Column()):
        assert "torch.addmm" not in [b.name for b in list_dense_baselines(plan)]
