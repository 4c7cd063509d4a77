"""Suites whose problems have names: what they demand of a kernel, and the shipped suites of products."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any, ClassVar

import pytest
from test_bench import CpuPlan, FakeDevice, ResidualPlan

from cutegen.diagnostics import CutegenError
from cutegen.report import table
from cutegen.report.result import parse_result
from cutegen.run.bench import Settings, measure
from cutegen.run.measured import relate
from cutegen.run.row import Row, refuse
from cutegen.run.subject import load_subject, plan_subject
from cutegen.run.suite import Suite, load_suite
from cutegen.runtime.arguments import ScalarArg, TensorArg
from cutegen.runtime.epilogue_form import form_of_statements
from cutegen.runtime.gemm.operand_kinds import epilogue_form

ROOT = Path(__file__).parents[2]
SUITES = ROOT / "specs" / "suites"


def write(tmp_path: Path, text: str) -> Suite:
    (tmp_path / "small.yaml").write_text(text)
    return load_suite("small", tmp_path)


def test_problems_are_combined_with_the_grid(tmp_path: Path) -> None:
    suite = write(
        tmp_path,
        "sources: {llama: the card}\ngrid: {m: [1, 16]}\nproblems:\n"
        "  - {name: qkv, shape: {n: 64, k: 8}, source: llama, dtype: bf16, epilogue: tile + acc}\n"
        "  - {name: o, shape: {n: 32, k: 8}, dtype: e4m3}\nshapes: [{m: 2, n: 64, k: 8}]\n",
    )
    rows = suite.rows()
    assert [(r.name, *r.shape.values()) for r in rows] == [
        ("qkv", 1, 64, 8), ("qkv", 16, 64, 8), ("o", 1, 32, 8), ("o", 16, 32, 8), ("", 2, 64, 8),
    ]  # fmt: skip
    assert rows[0] == Row({"m": 1, "n": 64, "k": 8}, "qkv", "the card", "bf16", "bf16", "a @ b", "acc + tile")
    assert (rows[2].output, rows[2].epilogue, rows[4].dtype) == ("bf16", "", "")
    suite.check_dims({"m": (1, None), "n": (1, None), "k": 8}, "gemm")


@pytest.mark.parametrize(
    ("text", "where", "rule", "message"),
    [
        ("sources: {llama: x}\nproblems: [{name: a, shape: {n: 1}, source: lama}]\n", "2:45", "unknown-source",
         "did you mean `llama`?"),
        ("problems: [{name: a, shape: {n: 1}, source: card}]\n", "1:45", "unknown-source", "add it to `sources`"),
        ("grid: {m: [1, 2]}\nproblems: [{name: a, shape: {m: 3}}]\n", "2:30", "given-twice", "`m` has an extent here"),
        ("problems: [{name: a, shape: {m: 3}, epilogue: acc +}]\n", "1:51", "suite-epilogue", "ends too early"),
        ("problems: [{name: a, shape: {m: 3}, epilogue: {x: acc, d: '(x'}}]\n", "1:60", "suite-epilogue", "a `(`"),
        ("problems: [{name: a, shape: {m: 3}, epilogue: silou(acc)}]\n", "1:47", "suite-epilogue", "no op `silou`"),
        ("problems: [{name: a, shape: {m: 3}, epilogue: acc + row2 + til}]\n", "1:60", "suite-epilogue", "`til` is no"),
        ("problems: [{name: a, shape: {m: 3}, epilogue: {d: x, x: acc}}]\n", "1:51", "suite-epilogue", "`x` is no"),
        ("problems: [{name: a, shape: {m: 3}, epilogue: acc ** 2}]\n", "1:47", "suite-epilogue", "write square(x)"),
        ("problems: [{name: a, shape: {m: 3}, epilogue: 'acc[(1, 2), ::2]'}]\n", "1:48", "suite-epilogue", "a slice"),
        ("problems: [{name: a, shape: {m: 3}, epilogue: '1 + relu(acc, 2)'}]\n", "1:52", "suite-epilogue", "not 2"),
        ("problems: [{name: a, shape: {m: 3}, epilogue: 'acc + x.y(acc)'}]\n", "1:54", "suite-epilogue", "plain name"),
        ("problems: [{name: a, shape: {m: 3}, epilogue: '" + "-" * 80 + "acc'}]\n", "1:112", "suite-epilogue", "deep"),
        ("problems: [{name: a, shape: {m: 3}, dtype: bf61}]\n", "1:44", "bad-value", "did you mean `bf16`?"),
        ("problems: [{shape: {m: 3}}]\n", "1:13", "missing-key", "`name` is missing"),
        ("problems: [{name: a, shape: {m: 3}, mainloop: a + b}]\n", "1:47", "bad-value", "mainloop"),
        ("problems: [{name: a, dims: {m: 3}}]\n", "1:22", "unknown-key", "unknown key `dims`"),
        ("grid: {m: [1, 2, 3], n: [" + "8, " * 4000 + "8]}\n", "1:1", "suite-size", "12003 problems"),
    ],
)  # fmt: skip
def test_mistakes_are_located(tmp_path: Path, text: str, where: str, rule: str, message: str) -> None:
    with pytest.raises(CutegenError) as caught:
        write(tmp_path, text)
    report = caught.value.report()
    assert f"small.yaml:{where}: error[{rule}]" in report
    assert message in report


def test_a_dim_of_the_grid_that_a_kernel_does_not_have_is_told_once(tmp_path: Path) -> None:
    text = "grid: {mm: [1]}\nproblems:\n  - {name: a, shape: {n: 8}}\n  - {name: b, shape: {n: 16}}\n"
    with pytest.raises(CutegenError) as caught:
        write(tmp_path, text).check_dims({"m": (1, None), "n": 8}, "gemm")
    assert caught.value.report().count("no dim `mm`") == 1


def test_a_grid_too_large_to_list_is_refused_at_once(tmp_path: Path) -> None:
    text = "grid: {" + ", ".join(f"d{i}: [{', '.join(map(str, range(1, 500)))}]" for i in range(9)) + "}\n"
    with pytest.raises(CutegenError, match="suite-size"):
        write(tmp_path, text)


@pytest.mark.parametrize("name", ["llm_gemm", "llm_gemm_sweep"])
def test_shipped_suites_name_their_sources(name: str) -> None:
    suite = load_suite(name, SUITES)
    rows = suite.rows()
    assert len({r.title for r in rows}) == len(rows) == {"llm_gemm": 36, "llm_gemm_sweep": 84}[name]
    assert all(r.source for r in rows)
    suite.check_dims({"m": (1, None), "n": (1, None), "k": (1, None)}, "gemm")
    assert {p.source for p in suite.content.problems} == set(suite.content.sources)


@pytest.mark.parametrize(
    ("package", "fitting"),
    [
        ("gemm_bf16_sm90a", 8),
        ("gemm_bf16_residual_sm90a", 7),
        ("gemm_bf16_swiglu_sm90a", 6),
        ("gemm_bf16_bias_residual_sm90a", 1),
        ("gemm_bf16_f32out_sm90a", 1),
        ("gemm_f16_sm90a", 0),
    ],
)
def test_shipped_kernels_take_the_rows_that_they_compute(package: str, fitting: int) -> None:
    subject = load_subject(ROOT / "generated" / package)
    reasons = Counter(refuse(subject, row) for row in load_suite("llm_gemm", SUITES).rows())
    assert reasons[""] == fitting
    dtype = "f16" if "f16_sm" in package and "bf16" not in package else "bf16"
    assert reasons[f"operands are {dtype}, not e4m3"] == 11
    sweep = load_suite("llm_gemm_sweep", SUITES).rows()
    assert not any(refuse(subject, row) for row in sweep)


def form(text: str) -> str:
    kinds = {"c": "tile", "res": "tile", "bias": "row"}
    return form_of_statements({"d": text}, lambda name: kinds.get(name, name))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("acc + c", "res + acc"),
        ("2 * (acc + bias)", "(bias + acc) * 2.0"),
        ("acc + (bias + c)", "c + acc + bias"),
        ("silu(acc[:, :n/2]) * acc[:, n/2:]", "acc[:, 1::2] * silu(acc[:, 0::2])"),
    ],
)
def test_equal_forms(one: str, other: str) -> None:
    assert form(one) == form(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [("acc - c", "c - acc"), ("acc + c", "acc + bias"), ("acc * 2", "acc * 3"), ("silu(acc)", "gelu(acc)")],
)
def test_different_forms(one: str, other: str) -> None:
    assert form(one) != form(other)


def test_line_breaks_are_blanks(tmp_path: Path) -> None:
    text = "problems:\n  - name: a\n    shape: {m: 3}\n    epilogue: |\n      acc\n        + tile\n"
    assert [r.epilogue for r in write(tmp_path, text).rows()] == ["acc + tile"]


def test_locals_of_locals_do_not_double() -> None:
    """Each of 60 steps reads the one before it three times, under other names in the two."""

    def steps(name: str, first: str) -> str:
        texts = {f"{name}0": first}
        texts |= {f"{name}{i}": f"{name}{i - 1} * {name}{i - 1} - {name}{i - 1}" for i in range(1, 60)}
        return form_of_statements({**texts, "d": f"{name}59"}, lambda name: name)

    assert steps("x", "acc + 1") == steps("y", "1 + acc") != steps("x", "acc + 2")
    assert len(steps("x", "acc + 1")) < 200
    signs = {"x0": "acc"} | {f"x{i}": f"-x{i - 1}" for i in range(1, 900)}
    assert form_of_statements(signs, lambda name: name).startswith("-")


def test_forms_of_plans_name_operands_by_shape() -> None:
    class Fused(CpuPlan):
        inputs = (
            *CpuPlan.inputs,
            ScalarArg("alpha"),
            TensorArg("skip", "bfloat16", ("m", "n"), contiguous=1, axes=(0, 1)),
            TensorArg("rows", "float32", ("m",), contiguous=0),
            TensorArg("one", "float32", ("n",), contiguous=0),
            TensorArg("two", "float32", ("n",), contiguous=0),
        )
        epilogue: ClassVar[dict[str, str]] = {"x": "alpha * acc + skip", "d": "relu(x * rows + one) - two"}

    assert epilogue_form(Fused()) == "relu((acc * scalar + tile) * column + row) - row2"
    assert epilogue_form(CpuPlan()) == "acc"
    aux: Any = load_subject(ROOT / "generated" / "gemm_bf16_gelu_aux_sm90a").plan
    assert epilogue_form(aux) == "acc + row; gelu_tanh(acc + row)"


def measured(*plans: Any, rows: list[Row]) -> Any:
    subjects = [(plan_subject(plan, Path(plan.name)), rows) for plan in plans]
    settings = Settings(rounds=6, slice_seconds=0.01, baselines=("torch.mm", "torch.addmm"), suite="small")
    return measure(subjects, (), FakeDevice(), {"gpu": None}, settings)


def test_rows_go_to_the_kernels_that_compute_them() -> None:
    shape = {"m": 40, "n": 24, "k": 16}
    rows = [
        Row(shape, "plain", dtype="bf16", output="bf16", mainloop="a @ b", epilogue="acc"),
        Row(shape, "down", dtype="bf16", epilogue="acc + tile"),
        Row(shape, "router", dtype="bf16", output="f32", epilogue="acc"),
        Row(shape, "fp8", dtype="e4m3"),
        Row({**shape, "n": 12}, "ragged"),
        Row(shape, "scaled", mainloop="(a * sa) @ (b * sb)"),
    ]
    report = measured(CpuPlan(), ResidualPlan(), rows=rows)
    names = {p.row.name: [m.candidate.name for m in p.measured] for p in report.problems}
    assert names == {"plain": ["plain", "torch.mm"], "down": ["residual", "torch.mm", "torch.addmm"]}
    assert {x.row.name: x.reasons["plain"] for x in report.left_out} == {
        "router": "the output is bf16, not f32",
        "fp8": "operands are bf16, not e4m3",
        "ragged": "n must be a multiple of 8, not 12",
        "scaled": "the product is `a @ b`, not `(a * sa) @ (b * sb)`",
    }
    result = parse_result(report.to_json("again"))
    assert result.libraries() == ["cuBLAS", "cuBLAS product"]
    lines = [dict(zip(table.suite_header(result), cells)) for cells in table.suite_rows(result)]
    assert [(x["problem"], x["candidate"], bool(x["x cuBLAS"]), bool(x["x cuBLAS product"])) for x in lines] == [
        ("plain", "plain", True, False), ("plain", "torch.mm", False, False), ("down", "residual", True, True),
        ("down", "torch.mm", False, False), ("down", "torch.addmm", False, False),
    ]  # fmt: skip
    assert float(lines[0]["x cuBLAS"].split()[0]) == pytest.approx(2, rel=0.01)
    assert "skipped residual on 1 of 6 problems: it computes `acc + tile`, not `acc`" in table.describe_skipped(result)


def test_the_fastest_of_a_library_counts() -> None:
    rows = [Row({"m": 40, "n": 24, "k": 16}, "down", epilogue="acc + tile")]
    (problem,) = measured(ResidualPlan(), rows=rows).problems
    kernel, product, addmm = problem.measured
    assert {library: name for library, (name, _) in kernel.speeds.items()} == {
        "cuBLAS product": "torch.mm", "cuBLAS": "torch.addmm",
    }  # fmt: skip
    addmm.candidate.rival = "cuBLAS product"
    kernel.speeds.clear()
    relate(problem.measured, problem.against)
    assert kernel.speeds["cuBLAS product"][0] == product.candidate.name  # the fake device's candidates grow slower
    assert list(kernel.speeds) == ["cuBLAS product"]


def test_speeds_are_also_given_to_a_kernel_that_is_asked_for() -> None:
    class Other(CpuPlan):
        name = "other"

    rows = [Row({"m": 40, "n": 24, "k": 16})]
    subjects = [(plan_subject(plan, Path(plan.name)), rows) for plan in (CpuPlan(), Other())]
    settings = Settings(rounds=6, slice_seconds=0.01, baselines=("torch.mm",), against="plain", suite="small")
    report = measure(subjects, (), FakeDevice(), {"gpu": None}, settings)
    result = parse_result(report.to_json("again"))
    assert result.libraries() == ["cuBLAS", "plain"]
    assert {k: list(by) for k, by in result.summaries.items()} == {"plain": ["cuBLAS"], "other": ["cuBLAS", "plain"]}
    assert result.problems[0].candidates[1].speeds["plain"].median == pytest.approx(0.5, rel=0.02)


def test_nothing_that_fits_says_why() -> None:
    with pytest.raises(CutegenError, match="plain: operands are bf16, not e4m3") as caught:
        measured(CpuPlan(), rows=[Row({"m": 8, "n": 8, "k": 8}, dtype="e4m3")])
    assert caught.value.exit_code == 2


def test_a_device_that_fails_ends_the_suite_and_keeps_what_was_measured() -> None:
    class Failing(FakeDevice):
        def sample(self, prepared: int, seconds: float) -> Any:
            if prepared >= 2:
                raise RuntimeError("CUDA error: an illegal memory access was encountered\nCUDA kernel errors might be")
            return super().sample(prepared, seconds)

        def synchronize(self) -> None:
            if len(self.prepared) > 2:
                raise RuntimeError("CUDA error")

    rows = [Row({"m": m, "n": 24, "k": 16}) for m in (8, 16, 24)]
    subject = plan_subject(CpuPlan(), Path("plain"))
    settings = Settings(rounds=5, slice_seconds=0.01, baselines=("torch.mm",), suite="small")
    so_far: list[int] = []
    report = measure([(subject, rows)], (), Failing(), {"gpu": None}, settings,
                     on_problem=lambda report: so_far.append(len(report.problems)))  # fmt: skip
    assert [p.shape["m"] for p in report.problems] == [8]
    assert so_far == [1]
    (lost,) = report.left_out
    assert (lost.row, lost.reasons) == (
        rows[1], {"plain": "RuntimeError: CUDA error: an illegal memory access was encountered"},
    )  # fmt: skip
    assert report.notes == ("the device failed at m=16 n=24 k=16: what comes after was not measured",)
    assert not report.complete


def test_a_kernel_that_cannot_be_launched_leaves_the_others() -> None:
    class Unlaunchable(CpuPlan):
        name = "unlaunchable"

        def compile(self, key: str) -> Any:
            raise RuntimeError("the compiler gave up\nand this is why")

    rows = [Row({"m": 40, "n": 24, "k": 16})]
    settings = Settings(rounds=5, slice_seconds=0.01, baselines=("torch.mm",))

    def run(*plans: CpuPlan) -> Any:
        return measure(
            [(plan_subject(p, Path(p.name)), rows) for p in plans], (), FakeDevice(), {"gpu": None}, settings
        )

    (problem,) = run(Unlaunchable(), CpuPlan()).problems
    assert [m.candidate.name for m in problem.measured] == ["plain", "torch.mm"]
    assert all(m.right for m in problem.measured)
    assert problem.skipped["unlaunchable"] == "RuntimeError: the compiler gave up"
    with pytest.raises(CutegenError, match="unlaunchable: RuntimeError: the compiler gave up"):
        run(Unlaunchable())


def test_one_problem_that_fails_leaves_the_others() -> None:
    class Full(FakeDevice):
        def free_bytes(self) -> int:
            if self.prepared and len(self.prepared) == 2:
                self.prepared.append(0)
                self.launches.append([])
                raise RuntimeError("CUDA out of memory. Tried to allocate")
            return super().free_bytes()

    rows = [Row({"m": m, "n": 24, "k": 16}) for m in (8, 16, 24)]
    settings = Settings(rounds=5, slice_seconds=0.01, baselines=("torch.mm",), suite="small")
    report = measure([(plan_subject(CpuPlan(), Path("plain")), rows)], (), Full(), {"gpu": None}, settings)
    assert [p.shape["m"] for p in report.problems] == [8, 24]
    assert report.complete


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (CutegenError("no kernel for it", "write another"), "no kernel for it"),
        (RuntimeError("CUDA error: misaligned address\nsearch for it"), "RuntimeError: CUDA error: misaligned address"),
        (AssertionError(), "AssertionError"),
    ],
)
def test_why_a_kernel_is_left_out_is_a_line(error: Exception, reason: str) -> None:
    class Failing(CpuPlan):
        name = "failing"

        def allocate_outputs(self, *inputs: Any) -> tuple[Any, ...]:
            raise error

    row = Row({"m": 8, "n": 24, "k": 16})
    settings = Settings(rounds=5, slice_seconds=0.01, baselines=("none",))
    subjects = [(plan_subject(plan, Path(plan.name)), [row]) for plan in (CpuPlan(), Failing())]
    (problem,) = measure(subjects, (), FakeDevice(), {"gpu": None}, settings).problems
    assert problem.skipped == {"failing": reason}


def test_scales_that_factor_out_are_an_epilogue() -> None:
    subject = load_subject(ROOT / "generated" / "gemm_e4m3_rowcol_sm90a")
    reasons = {row.name: refuse(subject, row) for row in load_suite("llm_gemm", SUITES).rows()}
    assert [name for name, reason in reasons.items() if not reason] == ["Llama-3-70B down, prefill 16k"]
    blocks = "the product is `a @ b`, not `(a * sa) @ (b * sb)`"
    assert reasons["DeepSeek-V3 o, decode 128"] == blocks


def test_a_product_has_no_ragged_lengths(tmp_path: Path) -> None:
    suite = write(tmp_path, "problems: [{name: x, lengths: ragged, shape: {m: 8, n: 24, k: 16}}]")
    subject = plan_subject(CpuPlan(), Path("plain"))
    assert [refuse(subject, row) for row in suite.rows()] == ["it has no requests, whose lengths could differ"]
