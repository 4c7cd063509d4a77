"""Dispatch at run time: winners, memory, model; what a first sight and a hit cost; calls that must not compile."""

from __future__ import annotations

import threading
import timeit
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from cpu_plans import import_package, on_cpu
from gemm_specs import PLAIN
from hypothesis import given, settings
from hypothesis import strategies as st

from cutegen.arch import DEVICES
from cutegen.families.gemm.cost_model import describe_work, form_of, instance_of
from cutegen.families.resolved import DeviceRow, product_name
from cutegen.resolve import resolve_file
from cutegen.runtime import measured
from cutegen.runtime.device_rates import RATES, find_rates
from cutegen.runtime.gemm import dispatched
from cutegen.runtime.gemm.cost_model import spend

torch = pytest.importorskip("torch")

ROOT = Path(__file__).parents[2]
LISTED = PLAIN + "portfolio:\n  - {tile: [64, 64, 64]}\n  - {tile: [128, 128, 64], schedule: pingpong}\n"
SMALL, MIDDLE, LARGE = "t64x64x64_pingpong", "t128x128x64_pingpong", "t128x256x64"
FEW, MANY = {"m": 64, "n": 512, "k": 512}, {"m": 8192, "n": 8192, "k": 512}
H100, H200 = (
    SimpleNamespace(
        name=name, multi_processor_count=132, clock_rate=1_980_000, memory_clock_rate=clock, memory_bus_width=width,
        L2_cache_size=50 * 2**20, major=9, minor=0,
    )
    for name, clock, width in (("NVIDIA H100 80GB HBM3", 2_619_000, 5120), ("NVIDIA H200", 3_201_000, 6144))
)  # fmt: skip


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with pytest.MonkeyPatch.context() as patch:
        yield import_package(LISTED, "listed", tmp_path_factory.mktemp("packages"), patch)


@pytest.fixture
def plan(package: Any) -> Any:
    return on_cpu(package.PLAN)


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> Callable[[Any], None]:
    """Device 0 is such a GPU."""

    def have(facts: Any) -> None:
        monkeypatch.setattr(torch.cuda, "get_device_properties", lambda index: facts)
        monkeypatch.setattr(torch.cuda, "get_device_name", lambda index: facts.name)
        monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)

    return have


def call(plan: Any, dims: Mapping[str, int]) -> None:
    inputs = plan.prepare_inputs(**dims)
    plan.launch_fn(*inputs, *plan.allocate_outputs(*inputs))


def test_the_model_picks_by_the_extents(plan: Any) -> None:
    assert plan.portfolio.keys == (LARGE, SMALL, MIDDLE)
    assert plan.dispatch(**FEW) == SMALL
    assert plan.dispatch(**MANY) in (MIDDLE, LARGE)
    call(plan, FEW)
    assert plan.launched == [SMALL]


def test_winners_come_before_memory_and_memory_before_the_model(plan: Any, device: Any) -> None:
    device(H200)
    type(plan).winners = {"NVIDIA H200": {(512, 512): ((32, LARGE), (100, ""))}}
    assert plan.dispatch(0, m=32, n=512, k=512) == LARGE
    assert plan.dispatch(0, m=33, n=512, k=512) == SMALL  # nobody's winner
    asked = []
    plan._picks.compute = asked.append
    assert plan.dispatch(0, m=32, n=512, k=512) == LARGE
    assert plan.dispatch(0, m=33, n=512, k=512) == SMALL
    assert asked == []
    assert plan.dispatch(0, m=34, n=512, k=512) is None
    assert asked == [(0, None, 34, 512, 512)]


def test_memory_begins_anew_before_it_grows_without_bound(plan: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    plan._picks.most = 3
    for m in range(1, 6):
        plan.dispatch(m=m, n=512, k=512)
    assert len(plan._picks) == 2
    assert dispatched.MOST_PICKS >= 1024


def test_a_first_sight_takes_under_a_millisecond_and_a_hit_five_microseconds() -> None:
    """Among the 12 tilings that a spec with open dims has; 200 us and 1 us on a machine with nothing else to do."""
    import importlib

    plan = type(importlib.import_module("generated.gemm_bf16_sm90a.plan").PLAN)()
    assert len(plan.portfolio.keys) > 8
    extents = iter(range(1, 10**6))
    plan.dispatch(m=8192, n=512, k=512)
    first = min(timeit.repeat(lambda: plan.dispatch(m=next(extents), n=4096, k=4096), number=10, repeat=30)) / 10
    hit = min(timeit.repeat(lambda: plan.dispatch(m=1, n=4096, k=4096), number=1000, repeat=20)) / 1000
    assert first < 1e-3
    assert hit < 5e-6


def test_picks_are_those_of_the_model_over_complete_candidates(device: Any) -> None:
    """What the package holds is all that the formula reads of the candidates."""
    import importlib

    for name in ("gemm_bf16_sm90a", "gemm_bf16_swiglu_sm90a", "gemm_e4m3_block128_sm90a"):
        resolved: Any = resolve_file(ROOT / "specs" / f"{name}.yaml").resolved
        plan = type(importlib.import_module(f"generated.{name}.plan").PLAN)()
        assert plan.portfolio.form == form_of(resolved.problem)
        candidates = {t.name: t.candidate for t in resolved.tilings}
        for facts, known in ((H100, DEVICES["h100"]), (H200, DEVICES["h200"])):
            device(facts)
            plan._picks.clear()
            plan._rates.clear()
            for m, n, k in ((1, 4096, 4096), (200, 2560, 6912), (3000, 8192, 1024)):
                work = describe_work(resolved.problem, (m, n, k, 1), known)  # type: ignore[arg-type]
                best = min(
                    plan.portfolio.keys,
                    key=lambda key: spend(instance_of(candidates[key]), work.form, work.counted, known.rates)[:3],
                )
                assert plan.dispatch(0, m=m, n=n, k=k) == best


def test_without_compiling_the_best_that_is_loaded_runs_and_is_told_once(plan: Any) -> None:
    plan.warm_up([LARGE])
    plan.on_miss = "error"
    with pytest.warns(RuntimeWarning, match=r"'t64x64x64_pingpong'.*m=64, n=512, k=512.*'t128x256x64' runs") as told:
        call(plan, FEW)
    assert len(told) == 1
    assert "call warm_up(m=64, n=512, k=512), or with ranges such as m=(1, 64), before serving" in str(told[0].message)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        call(plan, FEW)
    assert plan.launched == [LARGE, LARGE]
    plan.warm_up([SMALL])
    call(plan, FEW)  # the substitute was not remembered
    assert plan.launched == [LARGE, LARGE, SMALL]


def test_the_substitute_is_the_fastest_of_what_is_loaded(plan: Any) -> None:
    plan.warm_up([LARGE, MIDDLE])
    plan.on_miss = "error"
    with pytest.warns(RuntimeWarning, match="runs instead"):
        call(plan, FEW)
    assert plan.launched == [plan.rank_tilings(-1, 64, 512, 512, keys=[LARGE, MIDDLE])[0]]


def test_with_nothing_loaded_the_error_names_the_call_that_helps(plan: Any) -> None:
    plan.on_miss = "error"
    with pytest.raises(RuntimeError, match=r"not compiled; call warm_up\(m=64, n=512, k=512\)"):
        call(plan, FEW)
    assert plan.launched == []


def test_during_the_capture_of_a_graph_nothing_compiles(
    plan: Any, device: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    device(H200)
    compiled: list[str] = []
    plan._kernels.compute = lambda key: compiled.append(key) or (lambda *_: None)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    with pytest.raises(RuntimeError, match=r"call warm_up\(.*before the capture of a graph"):
        plan.choose_ready(0, FEW)
    plan.warm_up([LARGE])
    with pytest.warns(RuntimeWarning, match="before the capture of a graph"):
        assert plan.choose_ready(0, FEW) == (LARGE, False)
    assert compiled == []
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    assert plan.choose_ready(0, FEW) == (SMALL, True)


def test_two_threads_at_first_sight_compile_once(plan: Any) -> None:
    started, compiled = threading.Barrier(4), []
    compute = plan._kernels.compute

    def compile_slowly(key: str) -> Any:
        compiled.append(key)
        threading.Event().wait(0.05)
        return compute(key)

    plan._kernels.compute = compile_slowly
    inputs = plan.prepare_inputs(**FEW)

    def run() -> None:
        started.wait()
        plan.launch_fn(*inputs, *plan.allocate_outputs(*inputs))

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert compiled == [SMALL]
    assert plan.launched == [SMALL] * 4


def test_known_devices_have_their_own_rates() -> None:
    assert find_rates(H100, "sm_90a") == (RATES["h100"][1], "h100")
    assert find_rates(H200, "sm_90a") == (RATES["h200"][1], "h200")


def test_rates_of_unknown_devices_are_scaled() -> None:
    h20 = SimpleNamespace(
        name="NVIDIA H20", multi_processor_count=78, clock_rate=1_980_000, memory_clock_rate=2_619_000,
        memory_bus_width=6144, L2_cache_size=60 * 2**20,
    )  # fmt: skip
    found, name = find_rates(h20, "sm_90a")
    base = RATES["h100"][1]  # 4.02 TB/s are nearer to 3.35 than to 4.8
    assert name == ""
    assert (found.sms, found.l2_bytes) == (78, 60 * 2**20)
    assert found.hbm_bytes_per_s == 2 * 2_619_000_000 * 6144 // 8
    assert found.flops_16bit == base.flops_16bit * 78 // 132
    assert found.l2_bytes_per_clock == base.l2_bytes_per_clock * 78 // 132
    assert found.clock_hz == base.clock_hz  # the driver's highest clock is not kept up
    pcie = SimpleNamespace(
        name="NVIDIA H100 PCIe", multi_processor_count=114, clock_rate=1_755_000, memory_clock_rate=1_593_000,
        memory_bus_width=5120, L2_cache_size=50 * 2**20,
    )  # fmt: skip
    slow, name = find_rates(pcie, "sm_90a")
    assert name == ""  # its name has the word, but not its number of SMs
    assert (slow.sms, slow.clock_hz) == (114, 1_755_000_000)
    assert slow.hbm_bytes_per_s == 2 * 1_593_000_000 * 5120 // 8
    assert slow.flops_16bit == base.flops_16bit * 114 // 132 * slow.clock_hz // base.clock_hz


def test_boards_of_another_form_factor_are_scaled_too() -> None:
    """An H100 NVL has the SMs of an SXM one, and other memory."""
    nvl = SimpleNamespace(**{**vars(H100), "name": "NVIDIA H100 NVL", "memory_bus_width": 6016})
    found, name = find_rates(nvl, "sm_90a")
    assert name == ""
    assert found.hbm_bytes_per_s == 2 * 2_619_000_000 * 6016 // 8
    won = DeviceRow((), "t64x64x64", "NVIDIA H100 NVL")
    assert product_name([won], "h100") == ""  # nor are its winners those of an SXM one
    assert product_name([won, replace(won, device="NVIDIA H100 80GB HBM3")], "h100") == "NVIDIA H100 80GB HBM3"


def test_what_torch_does_not_report_is_unknown() -> None:
    bare = SimpleNamespace(name="NVIDIA X", multi_processor_count=66)
    found, _ = find_rates(bare, "sm_90a")
    assert found.sms == 66
    assert found.hbm_bytes_per_s in {rates.hbm_bytes_per_s for _, rates in RATES.values()}


def test_a_budget_leaves_out_tilings_whose_clusters_it_cannot_run() -> None:
    """The shape takes clusters of six CTAs on a whole GPU; on few SMs another tiling runs it, and none is refused."""
    import importlib

    plan = on_cpu(importlib.import_module("generated.gemm_bf16_sm90a.plan").PLAN)
    dims = {"m": 64, "n": 1024, "k": 4096}
    assert plan.least_sms(plan.dispatch(**dims)) == 6
    inputs = plan.prepare_inputs(**dims)
    for sms in (1, 2, 5, 6, 132):
        plan.launch_fn(*inputs, *plan.allocate_outputs(*inputs), sms=sms)
        assert plan.least_sms(plan.launched[-1]) <= sms
    plan.launch_fn(*inputs, *plan.allocate_outputs(*inputs))
    assert plan.launched[-1] == plan.dispatch(**dims)  # what a budget chose is not remembered for calls without
    assert plan.plan(*inputs, sms=1).tiling in [t for key, t in plan.tilings.items() if plan.least_sms(key) == 1]


def test_a_winner_whose_cluster_a_budget_cannot_run_is_passed_over(plan: Any, device: Any) -> None:
    device(H200)
    type(plan).winners = {"NVIDIA H200": {(512, 512): ((100, LARGE), (200, ""))}}
    assert plan.dispatch_within(2, 0, FEW) == LARGE
    assert plan.dispatch_within(1, 0, FEW) == SMALL


def test_without_a_device_the_current_one_counts(plan: Any, monkeypatch: Any) -> None:
    current = [0]
    monkeypatch.setattr(dispatched, "current_device", lambda: current[0])
    monkeypatch.setattr(plan, "find_winner", lambda device, *_: (LARGE, SMALL)[device])
    type(plan).winners = {"any": {}}
    assert plan.dispatch(**FEW) == LARGE
    current[0] = 1
    assert plan.dispatch(**FEW) == SMALL


def test_constants_need_no_extent_and_have_no_other() -> None:
    import importlib

    plan = on_cpu(importlib.import_module("generated.grouped_gemm_bf16_counts_sm90a.plan").PLAN)
    constants = {d: e for d, e in plan.dims.items() if isinstance(e, int)}
    dim, extent = next(iter(constants.items()))
    opened = {d: 8 for d in plan.dims if d not in constants}
    assert plan.dispatch(**opened) == plan.dispatch(**opened, **constants)
    assert plan.pick_keys(**opened) == plan.pick_keys(**opened, **constants)
    with pytest.raises(ValueError, match=rf"{dim}=1, and it is specialised for {dim}={extent}"):
        plan.pick_keys(**opened, **{dim: 1})
    with pytest.raises(TypeError, match="missing extent of"):
        plan.dispatch(**constants)


def test_several_open_ranges_are_sampled_in_bounded_time(plan: Any) -> None:
    keys = plan.pick_keys(m=(1, 8192), n=(8, 8192), k=(8, 8192))
    assert set(keys) <= set(plan.portfolio.keys)
    assert len(plan._picks) == 0  # whose memory is for calls
    assert list(plan._listed("k", (1024, 8192), 1))[1] == 1032  # as alignment lets it be


def test_a_model_of_another_version_is_named(plan: Any) -> None:
    with pytest.raises(ValueError, match="by version 99 of the cost model, and this cutegen has 1: install the one"):
        replace(plan.portfolio, model=99)


def test_drivers_that_tell_nothing_leave_the_rates_of_a_known_device() -> None:
    silent = SimpleNamespace(
        name="NVIDIA X",
        multi_processor_count=132,
        clock_rate=0,
        memory_clock_rate=0,
        memory_bus_width=0,
        L2_cache_size=0,
    )
    found, _ = find_rates(silent, "sm_90a")
    assert found in [known for _, known in RATES.values()]


def test_an_unknown_device_is_dispatched_by_its_scaled_rates(plan: Any, device: Any) -> None:
    small = SimpleNamespace(**{**vars(H100), "name": "NVIDIA H20", "multi_processor_count": 16})
    device(small)
    assert plan.dispatch(0, **FEW) in plan.portfolio.keys
    assert plan._rates[0].sms == 16


@given(low=st.integers(1, 400), length=st.integers(0, 60))
@settings(max_examples=25)
def test_warm_up_of_a_range_picks_what_dispatch_picks_on_each_extent(package: Any, low: int, length: int) -> None:
    plan = on_cpu(package.PLAN)
    keys = plan.pick_keys(m=(low, low + length), n=[512, 4096], k=512)
    wanted = {plan.dispatch(m=m, n=n, k=512) for m in range(low, low + length + 1) for n in (512, 4096)}
    assert set(keys) == wanted


@pytest.mark.parametrize(("low", "high"), [(1, 3000), (130, 400), (500, 5000)])
def test_warm_up_of_a_long_range_leaves_out_no_pick(plan: Any, low: int, high: int) -> None:
    keys = plan.pick_keys(m=(low, high), n=4096, k=1024)
    assert {plan.dispatch(m=m, n=4096, k=1024) for m in range(low, high + 1)} == set(keys)


def test_warm_up_of_a_range_looks_at_the_ends_of_winners(plan: Any, device: Any, monkeypatch: Any) -> None:
    device(H200)
    monkeypatch.setattr(dispatched, "current_device", lambda: 0)
    monkeypatch.setattr(measured, "current_device", lambda: 0)
    type(plan).winners = {"NVIDIA H200": {(512, 512): ((700, ""), (701, LARGE), (9000, ""))}}
    assert LARGE in plan.pick_keys(m=(600, 8000), n=512, k=512)


def test_warm_up_compiles_what_the_range_picks_and_no_more(plan: Any) -> None:
    plan.warm_up(m=(1, 64), n=512, k=512, processes=1)
    assert set(plan._kernels) == {SMALL}


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ({"keys": [SMALL], "m": 1}, TypeError, "keys, or extents of dims, not both"),
        ({"m": 1}, TypeError, "takes extents of m, n, k"),
        ({"m": 1, "n": 8, "k": 8, "x": 1}, TypeError, "takes extents of"),
        ({"m": (4, 1), "n": 8, "k": 8}, ValueError, r"m=\(4, 1\) is not a range"),
        ({"m": (0, 1), "n": 8, "k": 8}, ValueError, "m=0, and m is from 1 here"),
        ({"m": 2**31, "n": 8, "k": 8}, ValueError, "m=2147483648, and m is from 1 to 2147483647 here"),
        ({"m": "16", "n": 8, "k": 8}, TypeError, "m='16': an extent is a number"),
        ({"m": 1, "n": 8, "k": (1.0, 8)}, TypeError, "an extent is a number"),
        ({"m": (1, 2, 3), "n": 8, "k": 8}, ValueError, "is not a range"),
    ],
)
def test_warm_up_refuses_what_is_no_range(plan: Any, arguments: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        plan.warm_up(**arguments)
    assert not plan._kernels
