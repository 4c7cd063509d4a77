"""`bench` of MLA decode with a fake device and a fake FlashMLA."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from mla_cpu import CpuMla  # noqa: E402
from test_bench import FakeDevice  # noqa: E402

from cutegen.diagnostics import CutegenError  # noqa: E402
from cutegen.families.mla_decode.proving import MlaProving  # noqa: E402
from cutegen.families.proving import Baseline  # noqa: E402
from cutegen.report import table  # noqa: E402
from cutegen.report.comparison import compare  # noqa: E402
from cutegen.report.result import Result, parse_result  # noqa: E402
from cutegen.run.bench import BenchReport, Settings, measure  # noqa: E402
from cutegen.run.row import Row  # noqa: E402
from cutegen.run.subject import plan_subject  # noqa: E402
from cutegen.run.suite import load_suite  # noqa: E402
from cutegen.runtime.mla_decode.cache_format import CacheFormat  # noqa: E402
from cutegen.runtime.mla_decode.inputs import Draw  # noqa: E402

SETTINGS = Settings(rounds=5, slice_seconds=0.01)
SHAPES = [
    Row({"batch": 2, "query_len": 1, "heads": 2, "kv_len": 64}),
    Row({"batch": 1, "query_len": 2, "heads": 4, "kv_len": 200}),
    Row({"batch": 1, "query_len": 4, "heads": 4, "kv_len": 64}),
]


class Paged(CpuMla):
    page_size = 64


@pytest.fixture(autouse=True)
def flash_mla(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    module: Any = ModuleType("flash_mla")
    module.calls = []

    def get_mla_metadata(lengths: Any, rows: int, kv_heads: int) -> tuple[Any, Any]:
        return torch.tensor([rows, kv_heads]), lengths.cumsum(0)

    def flash_mla_with_kvcache(
        q: Any,
        cache: Any,
        table: Any,
        lengths: Any,
        width: int,
        metadata: Any,
        splits: Any,
        softmax_scale: float,
        causal: bool,
    ) -> Any:
        module.calls.append((tuple(metadata.tolist()), cache.shape[2], width, causal))
        return Paged().reference_fn(q, cache.squeeze(2), table, lengths, softmax_scale)

    module.get_mla_metadata, module.flash_mla_with_kvcache = get_mla_metadata, flash_mla_with_kvcache
    monkeypatch.setitem(sys.modules, "flash_mla", module)
    monkeypatch.setitem(sys.modules, "sgl_kernel", None)
    return module


def measured(plan: CpuMla, settings: Settings = SETTINGS, shapes: Any = SHAPES[:1]) -> BenchReport:
    return measure([(plan_subject(plan, Path("mla")), shapes)], (), FakeDevice(), {"gpu": None}, settings)


def test_beside_flash_mla(flash_mla: ModuleType) -> None:
    report = measured(Paged())
    (problem,) = report.problems
    by_name = {m.candidate.name: m for m in problem.measured}
    assert list(by_name)[:2] == ["mla", "flash_mla"]
    assert problem.against == "flash_mla"
    assert (by_name["mla"].right, by_name["flash_mla"].right, report.ok) == (True, True, True)
    assert by_name["mla"].step_seconds is None
    assert by_name["flash_mla"].step_seconds
    assert set(flash_mla.calls) == {((2, 1), 1, 512, True)}
    assert problem.skipped["flash_attn"].startswith("ImportError: flash_attn_interface: ")
    assert by_name["torch"].right is None
    assert all(not m.candidate.inputs and m.candidate.sets > 1 for m in problem.measured)
    result = report.to_json("again")["problems"][0]["candidates"]
    assert (result[0]["step_seconds"], result[1]["right"]) == (None, True)


def test_pages_of_nobody_do_not_count_among_what_exceeds_l2(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FakeDevice, "l2_bytes", 10**6)
    result = measured(Paged()).to_json("again")["problems"][0]["candidates"]
    assert result[0]["sets"] * result[0]["bytes"] > 2 * FakeDevice.l2_bytes
    assert {c["sets"] for c in result} == {result[0]["sets"]}


def test_wrong_results_of_either_are_told(flash_mla: Any) -> None:
    assert not measured(Paged("column")).ok
    function = flash_mla.flash_mla_with_kvcache
    flash_mla.flash_mla_with_kvcache = lambda *a, **k: [x + 1 for x in function(*a, **k)]
    report = measured(Paged())
    assert [m.right for m in report.problems[0].measured[:2]] == [True, False]
    assert report.ok


def test_reading_the_pages_is_the_floor(monkeypatch: pytest.MonkeyPatch) -> None:
    assert measured(Paged()).problems[0].skipped["paged_read"] == "ValueError: reads the memory of a CUDA device"
    read = Baseline("paged_read", "", lambda inputs, outputs: lambda: None, complete=False, bound=True)
    monkeypatch.setattr(MlaProving, "list_baselines", lambda self, plan: iter([read]))
    kernel, bound = measured(Paged()).problems[0].measured
    assert kernel.time
    assert kernel.share == pytest.approx(bound.time.median / kernel.time.median)  # type: ignore[union-attr]
    assert (bound.share, bound.candidate.flops, bound.right) == (None, None, None)


def test_specs_can_name_every_baseline() -> None:
    from typing import get_args, get_type_hints

    from cutegen.families.mla_decode.spec import MlaBench

    (names,) = get_args(get_type_hints(MlaBench)["baselines"])
    found = [b.name for plan in (Paged(), Sparse()) for b in MlaProving().list_baselines(plan)]
    assert set(get_args(names)) == set(found) == set(MlaProving.baselines_for) | {"torch"}


class Sparse(Paged):
    causal, topk = False, (1, 300)
    cache_format = CacheFormat(latent_offset=0, scale_offset=512, scale_block=128, rope_offset=528, row_bytes=656)


def test_sparse_decode_against_flash_mla_with_padded_heads(flash_mla: Any) -> None:
    def flash_mla_with_kvcache(
        q: Any, cache: Any, table: Any, lengths: Any, width: int, held: Any, splits: Any, scale: float, causal: bool,
        *, indices: Any, topk_length: Any, is_fp8_kvcache: bool, use_legacy: bool,
    ) -> Any:  # fmt: skip
        flash_mla.calls.append((q.shape[2], str(cache.dtype), cache.shape[2], table, lengths, topk_length, causal))
        every = torch.full(indices.shape[:2], indices.shape[2])
        return Sparse().reference_fn(q, cache.squeeze(2).view(torch.uint8), indices, every, scale)

    flash_mla.get_mla_metadata, flash_mla.flash_mla_with_kvcache = lambda: (object(), None), flash_mla_with_kvcache
    row = Row({"batch": 2, "query_len": 2, "heads": 3, "topk": 128})
    (problem,) = measured(Sparse(), shapes=[row]).problems
    by_name = {m.candidate.name: m for m in problem.measured}
    assert problem.against == "sgl_flash_mla"
    assert (by_name["mla"].right, by_name["sgl_flash_mla"].right, by_name["torch"].right) == (True, True, None)
    assert set(flash_mla.calls) == {(64, "torch.float8_e4m3fn", 1, None, None, None, False)}
    assert problem.skipped == {"row_read": "ValueError: reads the memory of a CUDA device"}
    (problem,) = measured(Sparse(), shapes=[Row({**row.shape, "topk": 100})]).problems
    assert "multiples of 64 indices" in problem.skipped["sgl_flash_mla"]


class TwoTokens(Paged):
    name, query_len = "two", 2


class Tired(Paged):
    """Refuses one problem of the suite, as one that does not fit the memory would."""

    def allocate_scratch(self, *inputs: Any, key: str | None = None) -> Any:
        if inputs[0].shape[0] == 2:
            raise RuntimeError("out of memory")
        return super().allocate_scratch(*inputs, key=key)


def shown(report: BenchReport) -> Result:
    return parse_result(report.to_json("again"))


def test_suite_goes_to_whoever_promises_a_problem() -> None:
    plans = [TwoTokens(), Paged()]
    subjects = [(plan_subject(plan, Path(plan.name)), SHAPES) for plan in plans]
    settings = replace(SETTINGS, suite="small", baselines=("flash_mla",))
    report = measure(subjects, (), FakeDevice(), {"gpu": None}, settings)
    names = [[m.candidate.name for m in p.measured] for p in report.problems]
    assert names == [["mla", "flash_mla"], ["two", "mla", "flash_mla"]]
    counts = {name: {library: s.problems for library, s in by.items()} for name, by in report.summaries().items()}
    assert counts == {"mla": {"FlashMLA": 2}, "two": {"FlashMLA": 1}}


def test_problem_that_fails_does_not_end_the_suite() -> None:
    report = measured(Tired(), replace(SETTINGS, suite="small", baselines=("flash_mla",)), SHAPES)
    assert [p.shape["kv_len"] for p in report.problems] == [200]
    assert (report.left_out[0].row, report.left_out[0].reasons) == (SHAPES[0], {"mla": "RuntimeError: out of memory"})
    assert "not measured, 1 of 3 problems: mla: RuntimeError: out of memory" in table.describe_skipped(shown(report))


def test_pages_that_flash_mla_does_not_take() -> None:
    (problem,) = measured(CpuMla()).problems
    assert problem.skipped["flash_mla"] == "ValueError: takes pages of 64 tokens, these have 16"
    assert problem.against == "torch"


def test_suite_has_a_line_each_and_a_geomean() -> None:
    report = measured(Paged(), replace(SETTINGS, suite="small", baselines=("flash_mla",)), SHAPES)
    result = shown(report)
    lines = [dict(zip(table.suite_header(result), cells)) for cells in table.suite_rows(result)]
    assert [(x["kv_len"], x["candidate"], x["result"]) for x in lines] == [
        ("64", "mla", "right"), ("64", "flash_mla", "right"), ("200", "mla", "right"), ("200", "flash_mla", "right"),
    ]  # fmt: skip
    assert [x["x FlashMLA"][:4] for x in lines] == ["2.00", "", "1.25", ""]
    ((summary,),) = (by.values() for by in result.summaries.values())
    # The fake device's candidate i takes i + 1 us: 2 / 1, then, after the metadata of the first problem, 5 / 4.
    assert summary.problems == 2
    assert summary.geomean.median == pytest.approx((2 * 5 / 4) ** 0.5, rel=0.01)
    assert (summary.below_one, summary.most) == (0, pytest.approx(2.0, rel=0.01))
    text = "\n".join(table.describe_run(result))
    assert "mla: geomean 1.5" in text
    assert "of FlashMLA over 2 problems, from 1.2" in text
    assert "scheduling is in the kernel" in text
    promised = "mla: query_len is 4; this kernel is promised 1 <= query_len <= 3"
    assert list(table.describe_skipped(result)) == [
        "skipped sgl_flash_mla on 2 of 3 problems: not asked for",
        "skipped flash_attn on 2 of 3 problems: not asked for",
        "skipped fa3_fwd on 2 of 3 problems: not asked for",
        "skipped paged_read on 2 of 3 problems: not asked for",
        "skipped torch on 2 of 3 problems: not asked for",
        f"not measured, 1 of 3 problems: {promised}",
    ]
    with pytest.raises(CutegenError, match=promised):
        measured(Paged(), replace(SETTINGS, suite="small"), SHAPES[2:])


def legacy_flash_mla(module: Any) -> None:
    """As sgl-flash-mla 1.0.0 has it: metadata in an object, dense decode on Hopper by use_legacy."""

    class Meta:
        tile_scheduler_metadata = num_splits = None

    def get_mla_decoding_metadata(lengths: Any, rows: int, kv_heads: int, *, use_legacy: bool) -> tuple[Any, Any]:
        assert use_legacy
        return torch.tensor([rows, kv_heads]), lengths.cumsum(0)

    def flash_mla_with_kvcache(
        q: Any,
        cache: Any,
        table: Any,
        lengths: Any,
        width: int,
        meta: Meta,
        splits: None,
        softmax_scale: float,
        causal: bool,
        use_legacy: bool,
    ) -> Any:
        assert isinstance(meta, Meta)
        assert splits is None
        assert use_legacy
        module.calls.append((tuple(meta.tile_scheduler_metadata.tolist()), len(meta.num_splits), width, causal))
        return Paged().reference_fn(q, cache.squeeze(2), table, lengths, softmax_scale)

    module.get_mla_metadata = lambda *args: (Meta(), None)
    module.get_mla_decoding_metadata, module.flash_mla_with_kvcache = get_mla_decoding_metadata, flash_mla_with_kvcache


def test_beside_the_flash_mla_of_sgl(flash_mla: Any) -> None:
    legacy_flash_mla(flash_mla)
    (problem,) = measured(Paged()).problems
    by_name = {m.candidate.name: m for m in problem.measured}
    assert (by_name["sgl_flash_mla"].right, problem.against) == (True, "sgl_flash_mla")
    assert by_name["sgl_flash_mla"].step_seconds
    assert set(flash_mla.calls) == {((2, 1), 2, 512, True)}
    assert problem.skipped["flash_mla"] == (
        "ImportError: flash_mla is that of sgl-flash-mla, the baseline sgl_flash_mla"
    )
    assert by_name["mla"].speeds["FlashMLA"][0] == "sgl_flash_mla"


def test_another_flash_mla_is_not_taken_for_that_of_sgl() -> None:
    (problem,) = measured(Paged()).problems
    assert "calls take no use_legacy" in problem.skipped["sgl_flash_mla"]


def test_fa3_fwd_gets_the_keys_of_each_request_one_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    module: Any = ModuleType("fa3_fwd_interface")
    planned: list[Any] = []
    outs: list[Any] = []

    def get_scheduler_metadata(*dims: Any, **options: Any) -> Any:
        planned.append((*dims[:6], options["headdim_v"], options["causal"]))
        return "metadata"

    def flash_attn_with_kvcache(q: Any, k_cache: Any, v_cache: Any, qv: Any, **options: Any) -> Any:
        assert options["scheduler_metadata"] == "metadata"
        assert "page_table" not in options
        whole, keys = torch.cat([qv, q], -1), torch.cat([v_cache, k_cache], -1).squeeze(2)
        lengths = options["cache_seqlens"]
        table = torch.arange(len(keys), dtype=torch.int32)[:, None]
        outs.append(Paged().reference_fn(whole, keys, table, lengths, options["softmax_scale"])[0])
        return outs[-1]

    module.get_scheduler_metadata, module.flash_attn_with_kvcache = get_scheduler_metadata, flash_attn_with_kvcache
    monkeypatch.setitem(sys.modules, "fa3_fwd_interface", module)
    plan = Paged()
    inputs = plan.draw_inputs(Draw("spread"), batch=3, query_len=2, heads=4, kv_len=200)
    fa3 = next(b for b in MlaProving().list_baselines(plan) if b.name == "fa3_fwd")
    out = fa3.bind(inputs, ())()
    torch.testing.assert_close(out, plan.reference_fn(*inputs)[0])
    assert planned == [(3, 2, 256, 4, 1, 64, 512, True)]
    (problem,) = measured(Paged()).problems
    assert {m.candidate.name: m for m in problem.measured}["mla"].speeds["FlashAttention-3"][0] == "fa3_fwd"


def test_ragged_lengths_of_a_suite_are_the_same_every_time() -> None:
    rows = load_suite("mla_decode_ragged", Path("specs/suites")).rows()
    assert len(rows) == 36
    assert sum(row.lengths == "ragged" for row in rows) == 25
    assert sum(row.shape["batch"] == 256 and row.shape["kv_len"] == 777 for row in rows) == 5
    plan = Paged()
    subject = plan_subject(plan, Path("mla"))
    shape = {"batch": 5, "query_len": 1, "heads": 2, "kv_len": 1000}
    draw = Row(shape, lengths="ragged").draw(subject)
    first, again = (subject.inputs(shape, draw)[3].tolist() for _ in range(2))
    assert first == again == [1000, 382, 764, 146, 528]
    flops, moved = plan.count_work(shape, subject.inputs(shape, draw))
    alike = plan.count_work(shape, subject.inputs(shape))
    assert alike == plan.count_work(shape, subject.inputs(shape, Draw("equal")))
    assert flops * 5000 == alike[0] * sum(first)
    assert alike[1] - moved == (5000 - sum(first)) * 576 * 2


def test_behind_a_plain_kernel_both_are_timed_together(monkeypatch: pytest.MonkeyPatch) -> None:
    prepared: list[int] = []
    copies: list[Any] = []
    prepare, bitwise_or = FakeDevice.prepare, torch.bitwise_or

    def counted(self: FakeDevice, launches: Any) -> Any:
        prepared.append(len(launches))
        return prepare(self, launches)

    def copied(source: Any, zero: int, out: Any) -> Any:
        copies.append((source.shape, source.dtype))
        return bitwise_or(source, zero, out=out)

    monkeypatch.setattr(FakeDevice, "prepare", counted)
    monkeypatch.setattr(torch, "bitwise_or", copied)
    report = measured(Paged(), replace(SETTINGS, behind="plain", baselines=("flash_mla",)))
    kernel, baseline = report.problems[0].measured
    assert report.ok
    assert prepared[:2] == [kernel.candidate.sets] * 2
    assert set(copies) == {((2, 1, 2, 576), torch.int16)}
    assert (kernel.share, baseline.share) == (None, None)
    data = report.to_json("again")
    assert data["behind"] == "plain"
    assert data["problems"][0]["candidates"][0]["tflops"] is None
    assert any("behind an ordinary kernel" in text for text in table.describe_run(shown(report)))
    assert shown(measured(Paged())).behind == "nothing"
    prepared.clear()
    chain = measured(Paged(), replace(SETTINGS, behind="itself", baselines=("flash_mla",)))
    assert prepared[:2] == [1, 1]
    assert chain.problems[0].measured[0].candidate.sets == kernel.candidate.sets
    assert any("on the same tensors, in L2" in text for text in table.describe_run(shown(chain)))
    with pytest.raises(CutegenError, match="launches behind plain"):
        compare(shown(report), shown(measured(Paged())), 0.01)
