"""MLA decode behind a kernel that lets it start and then takes its time to write lengths, queries and the new token of
each request: the decode's guess of its work is wrong, and its bits are those of launches that wait for one another."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cutegen.run.subject import load_subject
from cutegen.runtime.mla_decode.plan import MlaPlan

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.gpu

ROOT = Path(__file__).parents[2]
STEPS, REPLAYS, LONGEST = 24, 20, 3000


@pytest.fixture(scope="module")
def plan() -> MlaPlan:
    found = load_subject(ROOT / "generated" / "mla_decode_bf16_sm90a").plan
    assert isinstance(found, MlaPlan)
    found.warm_up()
    return found


class Steps:
    """A decode step after the other over one cache: what each writes is drawn before."""

    def __init__(self, plan: MlaPlan, batch: int, heads: int) -> None:
        import cuda.bindings.driver as cuda
        import cutlass.cute as cute
        from cutlass.cute.runtime import from_dlpack
        from early_writer import write

        self.plan = plan
        self.inputs = plan.prepare_inputs(batch=batch, query_len=1, heads=heads, kv_len=LONGEST)
        q, cache, table, lengths, _ = self.inputs
        cache[:] = torch.randn_like(cache)  # NaN where no request had keys
        self.start = [value.clone() for value in (q, cache, lengths)]
        self.outputs = [plan.allocate_outputs(*self.inputs) for _ in range(STEPS)]
        self.scratch = plan.allocate_scratch(*self.inputs)
        new_q = torch.randn((STEPS, *q.shape), dtype=q.dtype, device=q.device)
        new_keys = torch.randn((STEPS, batch, 576), dtype=q.dtype, device=q.device)
        jumps = torch.randint(1, LONGEST + 1, (STEPS, batch), dtype=torch.int32, device=q.device)
        grown = torch.arange(STEPS, dtype=torch.int32, device=q.device)[:, None] + jumps[:1] % (LONGEST - STEPS) + 1
        new_lengths = torch.where(torch.arange(STEPS, device=q.device)[:, None] % 3 == 0, jumps, grown).int()
        last = new_lengths.long() - 1
        places = (table.long()[torch.arange(batch, device=q.device), last // 64] * 64 + last % 64).int()
        words = lambda value: from_dlpack(value.view(torch.int32).reshape(-1), assumed_align=16)  # noqa: E731
        rows = lambda value: from_dlpack(value.view(torch.int32).reshape(-1, 288), assumed_align=16)  # noqa: E731
        plain = lambda value: from_dlpack(value, assumed_align=4)  # noqa: E731
        self.held = (new_q, new_keys, places, new_lengths)
        self.writes = [
            (
                words(q),
                words(new_q[i]),
                rows(cache),
                rows(new_keys[i]),
                plain(places[i]),
                plain(lengths),
                plain(new_lengths[i]),
            )
            for i in range(STEPS)
        ]
        self.stream = lambda: cuda.CUstream(torch.cuda.current_stream().cuda_stream)
        self.write = cute.compile(write, *self.writes[0], self.stream())

    def run(self, between: Callable[[], None] = lambda: None) -> None:
        for values, outputs in zip(self.writes, self.outputs):
            self.write(*values, self.stream())
            between()
            self.plan.launch_fn(*self.inputs, *outputs, *self.scratch)
            between()

    def reset(self) -> None:
        for value, first in zip((self.inputs[0], self.inputs[1], self.inputs[3]), self.start):
            value.copy_(first)
        for outputs in self.outputs:
            for value in outputs:
                value.fill_(torch.nan)
        torch.cuda.synchronize()

    def results(self) -> list[Any]:
        torch.cuda.synchronize()
        return [value.clone() for outputs in self.outputs for value in outputs]


@pytest.mark.parametrize(("batch", "heads"), [(1, 16), (1, 128), (5, 16), (8, 64), (16, 128), (64, 16), (200, 16)])
def test_guesses_that_are_wrong(plan: MlaPlan, batch: int, heads: int) -> None:
    steps = Steps(plan, batch, heads)
    steps.reset()
    steps.run(torch.cuda.synchronize)
    expected = steps.results()
    assert all(value.isfinite().all() for value in expected)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        steps.run()
    for _ in range(REPLAYS):
        steps.reset()
        graph.replay()
        assert all(torch.equal(*pair) for pair in zip(steps.results(), expected))
        assert not steps.scratch[1].any()
