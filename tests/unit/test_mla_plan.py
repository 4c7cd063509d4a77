"""MlaPlan on the CPU: what a call does, what it refuses and in which words, and its random problems."""

from __future__ import annotations

import math
import re
import subprocess
import sys
from typing import Any, ClassVar

import pytest

torch = pytest.importorskip("torch")

import mla_cpu  # noqa: E402
from mla_cpu import CpuMla, tiling  # noqa: E402

from cutegen.runtime.accuracy import compare  # noqa: E402
from cutegen.runtime.call_faults import ALLOCATE  # noqa: E402
from cutegen.runtime.command import benchmark_kernel_argparse  # noqa: E402
from cutegen.runtime.mla_decode.inputs import Draw  # noqa: E402
from cutegen.runtime.mla_decode.tiling import parts_of, semaphore_count, workspace_elements  # noqa: E402

SHAPE = {"batch": 3, "query_len": 2, "heads": 4, "kv_len": 70}


class TwoTilings(CpuMla):
    page_size = 64
    tilings: ClassVar = {"seesaw": tiling(64), "seesaw_2cta": tiling(64, cluster=2)}

    def choose_tiling(self, rows: int, batch: int, query_len: int) -> str:
        return "seesaw_2cta" if rows > 8 and batch > 1 else "seesaw"


class Split(CpuMla):
    split_q = True


@pytest.fixture
def plan() -> CpuMla:
    return CpuMla()


def arguments(plan: CpuMla, draw: Draw | None = None, **dims: int) -> list[Any]:
    inputs = plan.draw_inputs(draw or Draw("random"), **{**SHAPE, **dims})
    return [*inputs, *plan.allocate_outputs(*inputs), *plan.allocate_scratch(*inputs)]


def test_import_needs_neither_torch_nor_the_dsl() -> None:
    code = "import sys, cutegen.runtime.mla_decode.plan; print({'torch', 'cutlass'} & set(sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "set()\n"


def test_kernel_reference_and_launch_agree(plan: CpuMla) -> None:
    values = arguments(plan)
    inputs = values[:5]
    expected = plan.reference_fn(*inputs, precision="float64")
    for i, found in enumerate(plan.kernel_fn(*inputs)):
        assert not compare(found, expected[i], plan.output_tolerance(i, inputs, "float32")).mismatches
    for scratch in values[7:]:
        scratch.zero_()
    assert plan.launch_fn(*values) is None
    assert torch.equal(values[6], plan.kernel_fn(*inputs)[1])
    assert not values[8].any()


def test_split_queries_are_the_same(plan: CpuMla) -> None:
    split = Split()
    nope, pe, *rest = split.prepare_inputs(**SHAPE)
    assert (nope.shape[-1], pe.shape[-1]) == (512, 64)
    joined = plan.kernel_fn(torch.cat((nope, pe), -1), *rest)
    for a, b in zip(split.kernel_fn(nope, pe, *rest), joined):
        assert torch.equal(a, b)
    with pytest.raises(ValueError, match=r"q_pe: shape\[1\] is 1, but query_len is 2 \(from q_nope\)"):
        split.kernel_fn(nope, pe[:, :1], *rest)


def test_dispatch_by_rows_batch_and_tokens() -> None:
    plan = TwoTilings()
    assert plan.dispatch(**SHAPE) == "seesaw"
    assert plan.dispatch(batch=3, query_len=3, heads=5, kv_len=1) == "seesaw_2cta"
    plan.kernel_fn(*plan.prepare_inputs(batch=3, query_len=3, heads=5, kv_len=65))
    plan.make_launch("seesaw")(*arguments(plan, query_len=3, heads=5))
    assert plan.launched == ["seesaw_2cta", "seesaw"]


def test_the_stride_of_a_single_head_is_that_of_its_tokens() -> None:
    """torch calls such a tensor contiguous, whatever the stride says: no copy would change it."""
    plan = type("Plan", (CpuMla,), {"heads": (1, 4)})()
    values = arguments(plan, heads=1)
    plan.launch_fn(*values)
    expected = values[5].clone()
    for i in (0, 5):
        batch, token, _, value = values[i].stride()
        values[i] = values[i].as_strided(values[i].shape, (batch, token, 7, value))
        assert values[i].is_contiguous()
    values[5].zero_()
    plan.launch_fn(*values)
    assert len(plan.launched) == 2
    torch.testing.assert_close(values[5], expected)


def test_an_error_of_a_single_head_is_told_once() -> None:
    """One way to put strides right pads that of the heads, the other takes it from the tokens."""

    class Failing(CpuMla):
        heads = (1, 4)

        def compile(self, key: str) -> Any:
            raise ImportError("no compiler")

    plan = Failing()
    with pytest.raises(ImportError, match="no compiler"):
        plan.launch_fn(*arguments(plan, heads=1))


def test_workspace_without_a_gpu_needs_the_number_of_sms(plan: CpuMla, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(ValueError, match=r"no GPU to count the SMs of; pass sm_count, 132 for"):
        plan.workspace_shapes(7, 16)


def test_workspace_of_no_rows_or_sms_is_refused(plan: CpuMla) -> None:
    with pytest.raises(ValueError, match="mla: rows is 0, needs to be at least 1"):
        plan.workspace_shapes(7, 0, sm_count=132)
    with pytest.raises(ValueError, match="mla: sm_count is -1, needs to be at least 1"):
        plan.workspace_shapes(7, 16, sm_count=-1)


@pytest.mark.parametrize("rows", [1, 16, 64, 65, 128, 200, 2048])
def test_scratch_fits_every_tiling_and_the_shared_one_every_problem(rows: int) -> None:
    plan = TwoTilings()
    shapes = plan.workspace_shapes(7, rows, sm_count=132)
    for cluster in (1, 2):
        parts = parts_of(rows, cluster, 132)
        assert shapes["workspace"][0] >= workspace_elements(rows, parts)
        assert shapes["semaphores"][0] >= semaphore_count(rows, cluster, parts)
    wide = type("Plan", (TwoTilings,), {"heads": (1, 128), "query_len": (1, 16), "sm_count": lambda self, i: 132})()
    workspace, semaphores = wide.own_sizes(-1, (1, 1))
    assert workspace >= shapes["workspace"][0]
    assert semaphores >= shapes["semaphores"][0]


def test_parts_are_as_many_as_a_counter_counts() -> None:
    assert [parts_of(64, 1, sms) for sms in (1, 132, 255, 256, 1000)] == [1, 132, 255, 255, 255]


def test_a_budget_of_sms_makes_fewer_parts(plan: CpuMla, monkeypatch: pytest.MonkeyPatch) -> None:
    parts: list[int] = []
    monkeypatch.setattr(mla_cpu, "run", lambda plan, *values: parts.append(values[-1]))
    values = arguments(plan)
    plan.launch_fn(*values)
    plan.launch_fn(*values, sms=3)
    plan.sms = 2
    plan.launch_fn(*values)
    plan.kernel_fn(*values[:5], sms=100)
    assert parts == [4, 3, 2, 4]
    for sms, error in ((0, "sms is 0; a CTA runs on 1 at once: pass at least 1"), (-3, "sms is -3")):
        with pytest.raises(ValueError, match=error):
            plan.launch_fn(*values, sms=sms)
    with pytest.raises(TypeError, match="sms is True, needs a number of SMs, or None for all"):
        plan.launch_fn(*values, sms=True)


def test_scratch_of_a_call_with_a_budget_is_judged_by_it(plan: CpuMla) -> None:
    values = arguments(plan)
    rows = SHAPE["query_len"] * SHAPE["heads"]
    shapes = plan.workspace_shapes(SHAPE["batch"], rows, sm_count=2)
    values[-2], values[-1] = values[-2][: shapes["workspace"][0]], values[-1][: shapes["semaphores"][0]]
    assert values[-2].numel() < plan.allocate_scratch(*values[:5])[0].numel()
    values[4] = 1  # converted after the first attempt, if nothing else is wrong
    plan.launch_fn(*values, sms=2)
    assert len(plan.launched) == 1
    values[-2] = values[-2][:-1]
    with pytest.raises(ValueError, match=r"rows in 2 parts need \d+: size it by workspace_shapes\(3, 8, sm_count=2\)"):
        plan.launch_fn(*values, sms=2)


def test_rows_that_need_more_sms_than_allowed(plan: CpuMla) -> None:
    wide = type("Plan", (CpuMla,), {"heads": (1, 128), "query_len": (1, 16)})()
    values = arguments(wide, heads=128, query_len=2)
    wide.launch_fn(*values, sms=4)
    text = "are 4 blocks of 64, each on an SM of its own; 3 are to be used"
    with pytest.raises(ValueError, match=text):
        wide.launch_fn(*values, sms=3)


@pytest.mark.filterwarnings("ignore:Accessing the data pointer of FakeTensor")
def test_fake_tensors_reach_neither_a_kernel_nor_the_scratch(plan: CpuMla) -> None:
    from torch._subclasses.fake_tensor import FakeTensorMode

    inputs = plan.prepare_inputs(**SHAPE)
    mode = FakeTensorMode()
    fakes = [mode.from_tensor(v) if isinstance(v, torch.Tensor) else v for v in inputs]
    with mode, pytest.raises(TypeError, match=r"q: is a FakeTensor without memory(.|\n)*kv_cache: is a Fake"):
        plan.kernel_fn(*fakes)
    assert not plan.launched
    with pytest.raises(TypeError, match="kv_cache: is a FakeTensor without memory"):
        plan.kernel_fn(inputs[0], fakes[1], *inputs[2:])
    assert torch.isfinite(plan.kernel_fn(*inputs)[0]).all()
    assert len(plan.launched) == 1


def test_no_requests_launch_nothing(plan: CpuMla) -> None:
    values = arguments(plan, batch=0)
    plan.launch_fn(*values)
    values[1], values[2] = values[1][:0], values[2][:, :0]  # nor is there anything to read
    plan.launch_fn(*values)
    assert plan.kernel_fn(*values[:5])[0].shape[0] == 0
    assert plan.launched == []


@pytest.mark.parametrize(("axis", "dim"), [(1, "query_len"), (2, "heads")])
def test_no_rows_are_refused_in_words(plan: CpuMla, axis: int, dim: str) -> None:
    q, *others = plan.prepare_inputs(batch=3, query_len=2, heads=4, kv_len=40)
    with pytest.raises(ValueError, match=rf"q: shape\[{axis}\] \({dim}\) is 0; a call has at least one row"):
        plan.kernel_fn(q.narrow(axis, 0, 0), *others)
    assert plan.launched == []


@pytest.mark.parametrize(
    ("position", "make", "error", "message"),
    [
        (0, lambda q: q.float(), TypeError, "q: has dtype float32, needs bfloat16: pass q.to(torch.bfloat16)"),
        (0, lambda q: q[..., :512], ValueError, "q: shape[3] is 512, but query_dim is 576 (from the spec)"),
        (0, lambda q: q.repeat(1, 2, 1, 1), ValueError, "query_len is 4; this kernel is promised 1 <= query_len <= 3"),
        (0, lambda q: q.repeat(1, 1, 2, 1), ValueError, "heads is 8; this kernel is promised 2 <= heads <= 5"),
        (0, lambda q: q.transpose(1, 2).contiguous().transpose(1, 2), ValueError,
         "q: stride(1) is 576 elements, needs heads * stride(2) = 4 * 1152 = 4608, as tokens and heads are one "
         "dimension of rows: pass q.contiguous()"),
        (0, lambda q: q[0], ValueError, "q: has shape (2, 4, 576) of rank 3, needs bfloat16[batch, query_len"),
        (0, lambda q: None, TypeError, "q: is None, needs a torch tensor"),
        (1, lambda c: c.repeat(1, 2, 1), ValueError, "kv_cache: shape[1] is 32, but page_size is 16 (from the spec)"),
        (1, lambda c: torch.zeros(4, 16, 580).bfloat16()[..., :576], ValueError, "kv_cache: stride(1) is 580 elements"),
        (1, lambda c: c.half(), TypeError, "kv_cache: has dtype float16, needs bfloat16: pass kv_cache.to("),
        (1, lambda c: c.to(torch.float8_e4m3fn), TypeError, "needs bfloat16: dequantise it first"),
        (1, lambda c: c[:0], ValueError, "kv_cache: shape[0] (pages) is 0; keep one page for requests of length 0"),
        (2, lambda t: t.long(), TypeError, "block_table: has dtype int64, needs int32"),
        (2, lambda t: t[:2], ValueError, "block_table: shape[0] is 2, but batch is 3 (from q)"),
        (2, lambda t: t.mT.contiguous().mT, ValueError, "block_table: stride(1) is 3, needs 1 (max_pages contiguous)"),
        (2, lambda t: t[:, :0], ValueError, "block_table: shape[1] (max_pages) is 0"),
        (3, lambda n: n[:1], ValueError, "seq_lens: shape[0] is 1, but batch is 3 (from q)"),
        (4, lambda s: torch.tensor(s), TypeError, "softmax_scale: is a Tensor, needs a Python float"),
        (4, lambda s: -s, ValueError, "softmax_scale: is -0.04"),
        (4, lambda s: 0.0, ValueError, "softmax_scale: is 0.0, needs a positive finite number"),
        (4, lambda s: 1e-300, ValueError, "is 1e-300, needs 1.18e-38 to 1.7e+38: the kernel reads it as f32"),
        (4, lambda s: 3e38, ValueError, "softmax_scale: is 3e+38, needs 1.18e-38 to 1.7e+38"),
        (4, lambda s: 10**400, ValueError, "needs 1.18e-38 to 1.7e+38"),
        (4, lambda s: math.nan, ValueError, "softmax_scale: is nan, needs a positive finite number"),
        (5, lambda o: o[:, :1], ValueError, "out: shape[1] is 1, but query_len is 2 (from q)"),
        (5, lambda o: o.transpose(1, 2).contiguous().transpose(1, 2), ValueError,
         "out: stride(1) is 512 elements, needs heads * stride(2) = 4 * 1024 = 4096, as tokens and heads are one "
         f"dimension of rows: {ALLOCATE}"),
        (5, lambda o: o.float(), TypeError, f"out: has dtype float32, needs bfloat16: {ALLOCATE}"),
        (5, lambda o: o.new_zeros(o.numel() + 1)[1:].view(o.shape), ValueError,
         "16-byte alignment: start the slice at a multiple of 8 elements"),
        (6, lambda s: s.mT.contiguous().mT, ValueError, f"needs 1 (query_len contiguous): {ALLOCATE}"),
        (6, lambda s: s.mT.contiguous(), ValueError, "lse: shape[1] is 2, but heads is 4 (from q)"),
        (7, lambda w: w[:100], ValueError, "workspace: has 100 elements; 8 rows in 4 parts need 16512: size it"),
        (8, lambda s: s[:3], ValueError, "semaphores: has 3 elements; 8 rows in 4 parts need 4: size it by"),
        (8, lambda s: s.float(), TypeError, f"semaphores: has dtype float32, needs int32: {ALLOCATE}"),
    ],
)  # fmt: skip
def test_wrong_calls_are_refused_in_words(plan: CpuMla, position: int, make: Any, error: type, message: str) -> None:
    values = arguments(plan)
    values[position] = make(values[position])
    with pytest.raises(error) as caught:
        plan.launch_fn(*values)
    assert message in str(caught.value)
    if position < 5:
        with pytest.raises(error):
            plan.kernel_fn(*values[:5])
    else:  # what makes a copy would lose the result
        assert not re.search(r"pass \S+\.(to|contiguous|clone)\(", str(caught.value))
    assert plan.launched == []


def test_an_output_that_is_read_is_refused() -> None:
    plan = Split()
    values = arguments(plan)
    values[6] = values[0]
    with pytest.raises(ValueError, match="out: shares storage with q_nope, which may be read after that is written"):
        plan.launch_fn(*values)
    assert plan.launched == []


def test_all_faults_are_named_at_once(plan: CpuMla) -> None:
    values = arguments(plan)
    values[2], values[6] = values[2].long(), values[6].half()
    with pytest.raises(TypeError, match=r"(?s)block_table: has dtype.*lse: has dtype float16"):
        plan.launch_fn(*values)
    with pytest.raises(TypeError, match=r"takes 9 arguments \(q, kv_cache, block_table, seq_lens, softmax_scale, out"):
        plan.launch_fn(*values[:7])


def test_a_device_with_fewer_sms_than_row_blocks_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CpuMla, "heads", (2, 128))
    plan = CpuMla()
    plan.launch_fn(*arguments(plan, heads=128, query_len=2))  # 4 row blocks, 4 SMs
    assert len(plan.launched) == 1
    with pytest.raises(ValueError, match=r"q: 384 rows \(query_len \* heads\) are 6 blocks of 64.*; the device has 4$"):
        plan.launch_fn(*arguments(plan, heads=128, query_len=3))
    assert len(plan.launched) == 1


def test_what_is_taken_without_complaint(plan: CpuMla) -> None:
    q, cache, table, lengths, _ = plan.prepare_inputs(**{**SHAPE, "query_len": 1})
    expected = plan.kernel_fn(q, cache, table, lengths, 1.0)
    one = q.as_strided(q.shape, (q.stride(0), 7, 576, 1))  # the stride of an extent of 1
    wide = torch.zeros(3, table.shape[1] + 3, dtype=torch.int32)
    wide[:, : table.shape[1]] = table
    pool = torch.zeros(len(cache), 2, 16, 576, dtype=cache.dtype)
    pool[:, 1] = cache
    for found in (
        plan.kernel_fn(one, cache, table, lengths, 1.0),
        plan.kernel_fn(q, cache, wide[:, : table.shape[1]], lengths, 1),
        plan.kernel_fn(q, pool[:, 1], wide, lengths, 1.0),
    ):
        assert torch.equal(found[1], expected[1])


@pytest.mark.parametrize("draw", [Draw(), Draw("random"), Draw("edges"), Draw("long", peaked=True), Draw(pitch=True)])
def test_random_problems_are_hostile(plan: CpuMla, draw: Draw) -> None:
    dims = {"batch": 9, "query_len": 2, "heads": 3, "kv_len": 100}
    first, second = (plan.draw_inputs(draw, **dims) for _ in range(2))
    assert [v.shape for v in first[:4]] == [v.shape for v in second[:4]]
    _, cache, table, lengths, _ = first
    assert int(lengths.max()) == 100
    used = torch.zeros(cache.shape[:2], dtype=torch.bool)
    for b, n in enumerate(lengths.tolist()):
        pages = -(-n // 16)
        for i in range(n):
            used[table[b, i // 16], i % 16] = True
        assert ((table[b, pages:] < 0) | (table[b, pages:] > 1 << 30)).all()
    assert torch.equal(cache.isnan().all(-1), ~used)
    assert torch.equal(cache.isnan().any(-1), ~used)
    assert int(used.sum()) == int(lengths.sum())
    if draw.pitch:
        assert cache.stride(0) == 3 * 16 * 576


def test_flops_and_bytes(plan: CpuMla) -> None:
    flops, moved = plan._algorithmic_flops_bytes(batch=2, query_len=2, heads=4, kv_len=100)
    assert flops == 2 * 2 * 4 * (99 + 100) * (576 + 512)
    assert moved == 2 * (100 * 1152 + 8 * 1088 * 2 + 8 * 4)
    kernel = plan.plan(*plan.prepare_inputs(batch=2, query_len=2, heads=4, kv_len=100))
    assert kernel.algorithmic_flops_bytes_fn() == (flops, moved)
    kernel.launch_fn(*kernel.input_tensors, *kernel.output_tensors, *kernel.scratch_tensors)


def test_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--batch", "3", "--query_len", "2", "--heads", "4", "--kv_len", "70", "--check"]
    assert benchmark_kernel_argparse(CpuMla(), arguments) == 0
    printed = capsys.readouterr().out
    assert "out: right, 0 of 12288 elements beyond" in printed
    assert "lse: right, 0 of 24" in printed
    assert (
        CpuMla("column").benchmark_kernel_argparse(["--b", "3", "--s=2", "--heads", "4", "--t", "70", "--check"]) == 1
    )
    assert benchmark_kernel_argparse(CpuMla(), ["--batch", "3", "--query_len", "9", *arguments[4:]]) == 2
    assert "query_len is 9; this kernel is promised 1 <= query_len <= 3" in capsys.readouterr().err
    assert benchmark_kernel_argparse(CpuMla(), ["--batch", str(2**62), *arguments[2:]]) == 2
    assert capsys.readouterr().err.startswith("error: ")
    with pytest.raises(SystemExit, match="2"):
        benchmark_kernel_argparse(CpuMla(), ["--b=32", "--s=1", "--t=4096"])
    said = "--heads missing; the dims are --batch BATCH --query_len QUERY_LEN --heads HEADS --kv_len KV_LEN"
    assert said in capsys.readouterr().err
