"""MLA decode on the GPU beyond what `check` runs: real refusals, scratch over streams and graphs, host time, the module
with FlashMLA's interface, and the suite."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from cutegen.cli import main
from cutegen.report.result import load_data
from cutegen.run.subject import load_subject
from cutegen.runtime.accuracy import compare
from cutegen.runtime.mla_decode.inputs import Draw
from cutegen.runtime.mla_decode.plan import MlaPlan

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.gpu

ROOT = Path(__file__).parents[2]
NAME = "mla_decode_bf16_sm90a"
SPEC = str(ROOT / "specs" / f"{NAME}.yaml")
DIMS = {"batch": 5, "query_len": 1, "heads": 16, "kv_len": 700}


@pytest.fixture(scope="module")
def plan() -> MlaPlan:
    found = load_subject(ROOT / "generated" / NAME).plan
    assert isinstance(found, MlaPlan)
    found.warm_up()
    return found


@pytest.fixture
def values(plan: MlaPlan) -> list[Any]:
    inputs = plan.draw_inputs(Draw("random"), **DIMS)
    return [*inputs, *plan.allocate_outputs(*inputs), *plan.allocate_scratch(*inputs)]


def assert_right(plan: MlaPlan, inputs: Any, outputs: Any) -> None:
    expected = plan.reference_fn(*inputs, precision="float64")
    for i, (found, reference) in enumerate(zip(outputs, expected)):
        result = compare(found, reference, plan.output_tolerance(i, inputs, str(reference.dtype)[6:]))
        assert not result.mismatches, result


@pytest.mark.parametrize(
    ("position", "make", "error", "message"),
    [
        (0, lambda q: q.float(), TypeError, "q: has dtype float32, needs bfloat16"),
        (0, lambda q: q.cpu(), ValueError, "q: is on cpu, needs cuda"),
        (0, lambda q: q.repeat(1, 1, 9, 1), ValueError, "q: shape[2]: heads is 144; this kernel is promised"),
        (1, lambda c: c[:, :32], ValueError, "kv_cache: shape[1] is 32, but page_size is 64 (from the spec)"),
        (1, lambda c: c[:0], ValueError, "kv_cache: shape[0] (pages) is 0"),
        (2, lambda t: t.long(), TypeError, "block_table: has dtype int64, needs int32"),
        (3, lambda n: n[:2], ValueError, "seq_lens: shape[0] is 2, but batch is 5 (from q)"),
        (4, lambda s: -s, ValueError, "needs a positive finite number"),
        (6, lambda x: x.half(), TypeError, "lse: has dtype float16, needs float32"),
        (7, lambda w: w[:1000], ValueError, "workspace: has 1000 elements; 16 rows in 132 parts need"),
        (8, lambda s: s[:3], ValueError, "semaphores: has 3 elements"),
    ],
)
def test_wrong_calls_are_refused_in_words(
    plan: MlaPlan, values: list[Any], position: int, make: Any, error: type, message: str
) -> None:
    values[position] = make(values[position])
    with pytest.raises(error) as caught:
        plan.launch_fn(*values)
    assert message in str(caught.value)
    torch.cuda.synchronize()


@pytest.mark.parametrize("scale", [1e-4, 1e-30])
def test_tokens_without_keys_at_any_scale(plan: MlaPlan, scale: float) -> None:
    inputs = (*plan.prepare_inputs(batch=3, query_len=4, heads=16, kv_len=2)[:-1], scale)  # tokens 0 and 1 see nothing
    assert_right(plan, inputs, plan.kernel_fn(*inputs))


def test_launch_costs_little_host_time(plan: MlaPlan, values: list[Any]) -> None:
    from cutegen.run.device import CudaDevice

    seconds = CudaDevice().host_seconds(lambda: plan.launch_fn(*values))
    print(f"host time per launch: {seconds * 1e6:.2f} us")
    assert seconds < 15e-6


def test_streams_do_not_share_scratch(plan: MlaPlan) -> None:
    streams = [torch.cuda.Stream() for _ in range(4)]
    inputs = [plan.prepare_inputs(**{**DIMS, "batch": 1, "kv_len": 4000}) for _ in streams]
    torch.cuda.synchronize()
    outputs = []
    for _ in range(3):
        outputs = []
        for stream, own in zip(streams, inputs):
            with torch.cuda.stream(stream):
                outputs.append(plan.kernel_fn(*own))
    torch.cuda.synchronize()
    for own, found in zip(inputs, outputs):
        assert_right(plan, own, found)


def test_launches_at_the_same_time_give_the_bits_of_single_ones(plan: MlaPlan) -> None:
    """A long launch holds 40 SMs, and several others have what is left: parts find that others have not started, and
    leave."""
    streams = [torch.cuda.Stream() for _ in range(4)]
    long = plan.prepare_inputs(**{**DIMS, "batch": 1, "kv_len": 400_000})
    holder = torch.cuda.Stream()
    held = (*long, *plan.allocate_outputs(*long), *plan.allocate_scratch(*long))
    inputs = [plan.prepare_inputs(**{**DIMS, "batch": 3, "kv_len": 20_000}) for _ in streams]
    alone = [plan.kernel_fn(*own) for own in inputs]
    outputs = [plan.allocate_outputs(*own) for own in inputs]
    scratch = [plan.allocate_scratch(*own) for own in inputs]
    torch.cuda.synchronize()
    for _ in range(20):
        with torch.cuda.stream(holder):
            plan.launch_fn(*held, sms=40)
        for stream, *call in zip(streams, inputs, outputs, scratch):
            with torch.cuda.stream(stream):
                plan.launch_fn(*(value for values in call for value in values))
    torch.cuda.synchronize()
    for expected, found, (_, semaphores) in zip(alone, outputs, scratch):
        assert all(torch.equal(a, b) for a, b in zip(expected, found))
        assert not semaphores.any()


def test_graph_of_plain_calls_follows_lengths_and_tables(plan: MlaPlan) -> None:
    static = plan.draw_inputs(Draw("random"), **DIMS)
    plan.kernel_fn(*static)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        outputs = plan.kernel_fn(*static)
    for draw in (Draw("long", peaked=True), Draw("empty"), Draw("edges"), Draw()):
        for old, new in zip(static[:4], plan.draw_inputs(draw, **DIMS)):
            old.copy_(new)
        graph.replay()
        torch.cuda.synchronize()
        assert_right(plan, static, outputs)


def test_graph_that_is_captured_before_any_call(plan: MlaPlan) -> None:
    fresh = type(plan)()
    fresh.warm_up()
    static = fresh.draw_inputs(Draw("random"), **DIMS)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        outputs = fresh.kernel_fn(*static)
    for _ in range(2):
        graph.replay()
        torch.cuda.synchronize()
        assert_right(fresh, static, outputs)


@pytest.mark.parametrize(("query_len", "causal"), [(1, False), (1, True), (3, True), (2, False)])
def test_module_with_flash_mlas_interface(query_len: int, causal: bool) -> None:
    from cutegen.compat import flash_mla

    plan = flash_mla.prepare("bfloat16", 64, causal)
    q, cache, table, lengths, scale = plan.draw_inputs(
        Draw("edges"), batch=6, query_len=query_len, heads=24, kv_len=300
    )
    for metadata in (flash_mla.get_mla_metadata(lengths, query_len * 24, 1), flash_mla.get_mla_metadata()):
        found = flash_mla.flash_mla_with_kvcache(q, cache.unsqueeze(2), table, lengths, 512, *metadata, causal=causal)
        assert_right(plan, (q, cache, table, lengths, scale), found)


def test_drop_in_agrees_with_flash_mla() -> None:
    theirs = pytest.importorskip("sgl_kernel.flash_mla")
    from cutegen.compat import flash_mla as ours

    plan = ours.prepare()
    q, cache, table, lengths, _ = plan.prepare_inputs(batch=4, query_len=2, heads=64, kv_len=1024)
    results = []
    for module in (theirs, ours):
        metadata = module.get_mla_metadata(lengths, 2 * 64, 1)
        results.append(
            module.flash_mla_with_kvcache(q, cache.unsqueeze(2), table, lengths, 512, *metadata, causal=True)
        )
    for a, b in zip(*results):
        assert a.shape == b.shape
        torch.testing.assert_close(a.float(), b.float(), atol=2e-3, rtol=2e-2)


def test_suite_from_the_command_line(tmp_path: Path) -> None:
    spec = tmp_path / f"{NAME}.yaml"
    spec.write_text(Path(SPEC).read_text().partition("bench:")[0])  # the suite below is the only one
    (tmp_path / "suites").mkdir()
    (tmp_path / "suites" / "small.yaml").write_text(
        "grid: {batch: [1, 8], query_len: [1], heads: [16, 128], kv_len: [1024]}\n"
    )
    output = tmp_path / "bench.json"
    quick = ["--rounds", "5", "--slice", "5", "--baseline", "paged_read", "-o", str(output)]
    assert main(["bench", str(spec), "--suite", "small", *quick]) == 0
    result = load_data(output)
    assert len(result["problems"]) == 4
    for problem in result["problems"]:
        kernel = problem["candidates"][0]
        assert kernel["right"] is True
        assert kernel["sets"] * kernel["bytes"] > 2 * result["environment"]["gpu"]["l2_bytes"]
        assert "paged_read" in {c["name"] for c in problem["candidates"]}
        assert 0 < kernel["share_of_floor"] < 1.1


def test_generated_command_line() -> None:
    command = [
        sys.executable,
        "-m",
        f"generated.{NAME}",
        "--batch",
        "4",
        "--heads",
        "32",
        "--kv_len",
        "1000",
        "--check",
    ]
    if not isinstance(load_subject(ROOT / "generated" / NAME).dims["query_len"], int):
        command += ["--query_len", "1"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert "out: right, 0 of 65536 elements beyond" in done.stdout
    assert "lse: right" in done.stdout
