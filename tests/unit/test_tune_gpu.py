"""The backend that measures kernels, with kernels that run on the CPU and a device whose times are scripted."""

from __future__ import annotations

from pathlib import Path

import pytest

from cutegen.runtime.gpu import GpuStatus, Torch
from cutegen.tune import gpu
from cutegen.tune.gpu import GpuBackend, GpuMeasuring

torch = pytest.importorskip("torch")

from test_bench import SHAPE, FakeDevice  # noqa: E402 (needs torch)

PLAN = """
from test_bench import CpuPlan, Tiling

class Plan(CpuPlan):
    tilings = {"default": Tiling(), "other": Tiling(), "zeros": Tiling(), "raises": Tiling(), "late": Tiling()}
    launches = 0

    def compile(self, key):
        right = super().compile(key)
        def late(*values):
            self.launches += 1
            right(*values) if self.launches <= LATE else values[-2].zero_()
        def raises(*values):
            raise RuntimeError("too many resources requested for launch")
        return {"zeros": lambda *values: values[-2].zero_(), "raises": raises, "late": late}.get(key, right)

    def dispatch(self, **dims):
        return "default"

PLAN = Plan()
"""


@pytest.fixture
def backend(tmp_path: Path) -> GpuBackend:
    package = tmp_path / "plain"
    package.mkdir()
    (package / "__init__.py").write_text("")
    sets = 2 * FakeDevice.l2_bytes // 3968 + 1
    (package / "plan.py").write_text(PLAN + f"LATE = {2 * sets}\n")
    made = GpuBackend(package, FakeDevice())
    opened = made.open(SHAPE, "default", keep=False)
    assert (opened.baseline, opened.reason) == ("torch.mm", "")
    assert opened.flops == 2 * 40 * 24 * 16
    return made


def test_candidates_are_checked_and_timed_on_the_same_inputs(backend: GpuBackend) -> None:
    assert backend.admit("default") == backend.admit("other") == ""
    default, other = (backend.current.candidates[name] for name in ("default", "other"))
    assert default.inputs is other.inputs
    assert default.results is other.results
    assert len(default.launches) == len(default.inputs) == 2 * FakeDevice.l2_bytes // 3968 + 1
    # What is prepared first takes 1 us, the next 2, ...
    first, second, third = (backend.sample(name, 0.01) for name in ("torch.mm", "default", "other"))
    assert (first, second, third) == pytest.approx((1e-6, 2e-6, 3e-6), rel=0.01)
    assert backend.recheck("other") == backend.recheck("default") == ""


def test_wrong_results_are_told_in_numbers(backend: GpuBackend) -> None:
    text = backend.admit("zeros")
    assert text.startswith("d: ")
    assert " of 960 elements, error up to " in text
    assert "zeros" not in backend.current.prepared


def test_results_that_only_timed_launches_get_wrong(backend: GpuBackend) -> None:
    assert backend.admit("late") == ""
    backend.sample("late", 0.01)
    assert backend.recheck("late").startswith("d: ")
    assert backend.admit("default") == ""


def test_a_refused_launch_is_the_candidates_alone(backend: GpuBackend) -> None:
    with pytest.raises(RuntimeError, match="too many resources"):
        backend.admit("raises")
    assert backend.usable()
    assert backend.admit("other") == ""


def test_another_problem_lets_go_of_the_one_before(backend: GpuBackend) -> None:
    assert backend.admit("default") == ""
    before = backend.current.kernel
    backend.open({"m": 8, "n": 8, "k": 8}, "default", keep=False)
    assert before.inputs == []
    assert set(backend.current.prepared) == {"torch.mm"}
    assert len(backend.problems) == 1
    setup = backend.setup()
    assert setup.device == "CPU"
    assert setup.others == 0


def test_problems_stay_open_where_others_are_to_come_back(backend: GpuBackend) -> None:
    assert backend.admit("default") == backend.admit("other") == ""
    first = backend.current
    assert backend.open({"m": 8, "n": 8, "k": 8}, "default", keep=True).admitted == ()
    assert backend.admit("default") == ""
    again = backend.open(SHAPE, "default", keep=True)
    assert backend.current is first
    assert again.admitted == ("torch.mm", "default", "other")
    assert again.baseline == "torch.mm"
    assert backend.sample("other", 0.01) > 0
    # Against another default it is another problem.
    assert backend.open(SHAPE, "other", keep=True).admitted == ()


def test_where_memory_is_short_the_oldest_problem_is_let_go(
    backend: GpuBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = backend.current.kernel
    small = [{"m": 8 * i, "n": 8, "k": 8} for i in (1, 2, 3)]
    backend.open(small[0], "default", keep=True)
    free = iter([100, 900, 900])
    monkeypatch.setattr(backend, "free_bytes", 1000)
    monkeypatch.setattr(FakeDevice, "free_bytes", lambda self: next(free, 900))
    backend.open(small[1], "default", keep=True)
    assert first.inputs == []
    assert len(backend.problems) == 2
    monkeypatch.setattr(gpu, "MOST_OPEN", 2)
    backend.open(small[2], "default", keep=True)
    assert [key for key, _ in backend.problems] == ["m=16 n=8 k=8", "m=24 n=8 k=8"]


def test_figures_of_another_torch_are_those_of_another_cublas(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu, "probe_gpu", lambda arch: GpuStatus((), "NVIDIA H200"))
    monkeypatch.setattr(gpu, "driver_version", lambda: "580.65.06")
    monkeypatch.setattr(gpu, "probe_torch", lambda: Torch("2.11.0+cu130", "13.0"))
    assert GpuMeasuring().identify("sm_90a") == ("NVIDIA H200", "driver 580.65.06, torch 2.11.0+cu130")
