"""What `autotune` finds, with kernels that take as long as a test says; and which tilings fit a problem."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

import cutegen

torch = pytest.importorskip("torch")
from cpu_plans import import_package, on_cpu  # noqa: E402

ROOT = Path(__file__).parents[2]
SHAPE = {"m": 16, "n": 32, "k": 64}


class Slow:
    """Kernels of a plan on the CPU with a delay each, by key; a text is what they fail with."""

    def __init__(self, plan: Any, delays: dict[str, float | str]) -> None:
        self.delays, self.compile = delays, plan.compile
        plan.compile = self.make

    def make(self, key: str) -> Any:
        delay, kernel = self.delays.get(key, 0.02), self.compile(key)
        if delay == "does not compile":
            raise RuntimeError(delay)

        def run(*values: Any) -> None:
            if isinstance(delay, str):
                raise ValueError(f"{delay}\nand more")
            time.sleep(delay)
            kernel(*values)

        return run


@pytest.fixture
def plan() -> Any:
    return on_cpu(cutegen.load(ROOT / "specs" / "gemm_bf16_sm90a.yaml"))


def make_inputs(plan: Any, **dims: int) -> tuple[Any, ...]:
    return tuple(torch.randn(dims[r], dims["k"], dtype=torch.bfloat16) for r in "mn")


def test_the_fastest_runs_and_failures_are_said(plan: Any) -> None:
    first, second, third, *_ = plan.tilings
    Slow(plan, {first: "broken", second: 1e-5, third: "does not compile"})
    kernel = plan.plan(*make_inputs(plan, **SHAPE))
    found = kernel.autotune(rounds=3, launches=2)
    assert next(iter(found.times)) == second
    assert list(found.times.values()) == sorted(found.times.values())
    # A launch that fails is looked into by the plan, which finds the arguments to be right.
    assert found.failures == {first: "ValueError: broken", third: "RuntimeError: does not compile"}
    assert found.times.keys() | found.failures.keys() == plan.tilings.keys()
    assert f"2 of {len(plan.tilings)} tilings were not timed:\n  {first}: ValueError: broken" in str(found)
    tuned, plan.launched[:] = found.kernel, []
    tuned.launch_fn(*tuned.input_tensors, *tuned.output_tensors, *tuned.scratch_tensors)
    assert plan.launched == [second]
    assert tuned.tiling == plan.tilings[second]
    want = plan.reference_fn(*tuned.input_tensors)
    assert torch.allclose(tuned.output_tensors[0].float(), want.float(), rtol=0.02, atol=0.1)


def test_tilings_whose_cluster_is_larger_than_the_budget_are_not_timed(plan: Any) -> None:
    kernel = plan.plan(*make_inputs(plan, **SHAPE), sms=1)
    found = kernel.autotune(rounds=1, launches=1)
    alone = {key for key in plan.tilings if plan.least_sms(key) == 1}
    assert found.times.keys() == alone
    assert alone
    assert all("takes" in why and "and there are 1" in why for why in found.failures.values())


UPDATED = """\
cutegen: 1
kernel: gemm
arch: sm_90a
tensors: {a: "bf16[m, k]", b: "bf16[n, k]", bias: "f32[n]?", h: "bf16[m, n]"}
epilogue: {h: acc + bias + h}
"""


def test_what_is_updated_in_place_is_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And kernels without an operand that is left out are those that are timed."""
    plan = on_cpu(import_package(UPDATED, "updated_in_place", tmp_path, monkeypatch).PLAN)
    a, b = make_inputs(plan, **SHAPE)
    before = torch.randn(SHAPE["m"], SHAPE["n"], dtype=torch.bfloat16)
    h = before.clone()
    found = plan.plan(a, b, None, h).autotune(rounds=1, launches=3)
    assert torch.equal(h, before)
    assert not found.failures
    assert set(plan.launched) == {f"{key}_without_bias" for key in found.times}
    plan.plan(a, b, torch.zeros(SHAPE["n"]), h).autotune(rounds=1, launches=1)
    assert torch.equal(h, before)


def test_nothing_to_time(plan: Any) -> None:
    with pytest.raises(ValueError, match="an extent is 0"):
        plan.plan(*make_inputs(plan, m=0, n=32, k=64)).autotune()
    Slow(plan, dict.fromkeys(plan.tilings, "broken"))
    with pytest.raises(RuntimeError, match=r"no tiling was timed:\n  \w+: ValueError: broken"):
        plan.plan(*make_inputs(plan, **SHAPE)).autotune(rounds=1, launches=1)


@pytest.mark.parametrize(
    ("spec", "dims", "sms", "wrong"),
    [
        ("gemm_bf16_sm90a", {"m": 8, "n": 8, "k": 8}, None, {}),
        ("gemm_bf16_sm90a", {"m": 8, "n": 8}, None, {None: "missing extent of k"}),
        ("gemm_bf16_sm90a", {"m": 8, "n": 8, "k": 8}, 1, {"t128x256x64": "takes 2 SMs at once, and there are 1"}),
        ("gemm_bf16_rms_sm90a", {"m": 2**24, "n": 2**20, "k": 8}, None, {None: "elements of squares_partials"}),
        ("add_rmsnorm_quant_e4m3_sm90a", {"m": 4, "n": 600}, None, {"n512": "has rows of at most 512 n"}),
        ("mla_decode_bf16_mtp_sm90a", {"batch": 1, "query_len": 2, "heads": 128, "kv_len": 5}, 3,
         {None: "256 rows (query_len * heads) are 4 blocks of 64"}),
        ("mla_decode_bf16_mtp_sm90a", {"batch": 1, "query_len": 3, "heads": 64, "kv_len": 5}, None,
         {None: "specialised for query_len = 2"}),
    ],
)  # fmt: skip
def test_which_tilings_fit_a_problem(
    spec: str, dims: dict[str, int], sms: int | None, wrong: dict[str | None, str]
) -> None:
    """wrong: what is said of a tiling, None of all."""
    plan = cutegen.load(ROOT / "specs" / f"{spec}.yaml")
    found = {key: plan.validate(key, sms, **dims) for key in plan.tilings}
    for key, said in wrong.items():
        assert all(said in why for k, why in found.items() if key in (k, None)), found
    if None not in wrong:
        assert "" in found.values()
        assert all(found[key] for key in wrong)
    assert "has no tiling t1x1: it has" in plan.validate("t1x1", **dims)
