"""`autotune` of one problem on a GPU: by CUDA graphs, and what it chooses has the values of the plan's own choice."""

from __future__ import annotations

from pathlib import Path

import pytest

import cutegen

torch = pytest.importorskip("torch")

pytestmark = pytest.mark.gpu
ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("sms", [None, 64])
def test_the_fastest_of_a_portfolio(sms: int | None) -> None:
    plan = cutegen.load(ROOT / "specs" / "gemm_bf16_sm90a.yaml")
    inputs = plan.prepare_inputs(m=512, n=4096, k=4096)
    kernel = plan.plan(*inputs, sms=sms)
    found = kernel.autotune()
    print(found)
    assert not found.failures
    assert found.times.keys() == plan.tilings.keys()
    best, chosen = next(iter(found.times)), plan.choose_instance(inputs, plan.problem_dims(*inputs), sms)
    assert found.times[best] <= found.times[chosen] < 2 * found.times[best]
    assert 10e-6 < found.times[best] < 500e-6
    tuned = found.kernel
    tuned.launch_fn(*tuned.input_tensors, *tuned.output_tensors, *tuned.scratch_tensors)
    torch.testing.assert_close(tuned.output_tensors[0], plan.kernel_fn(*inputs), rtol=2e-2, atol=2e-2)
    assert all(plan.validate(key, sms, m=512, n=4096, k=4096) == "" for key in plan.tilings)
    assert "specialised" not in plan.validate(best, 1, m=512, n=4096, k=4096)
