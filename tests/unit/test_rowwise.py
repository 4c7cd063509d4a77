"""Row kernels without a GPU: references, what calls are refused, what decides threads and vectors, and explain."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from gemm_specs import resolve_text as resolve
from row_specs import FORMS, HEAD, NORM

from cutegen.build.c_translation import Translation
from cutegen.diagnostics import SpecError
from cutegen.families.registry import load_family
from cutegen.render import render_package, write_package
from cutegen.resolve import resolve_file
from cutegen.run.subject import load_subject
from cutegen.runtime.rowwise.plan import UNLIMITED
from cutegen.spec import parse_spec

torch = pytest.importorskip("torch")
ROOT = Path(__file__).parents[2]


def reference(name: str) -> Any:
    return load_subject(ROOT / "generated" / name).plan


@pytest.fixture
def x() -> Any:
    torch.manual_seed(0)
    return torch.randn(5, 264).to(torch.bfloat16)


def test_references_are_what_torch_computes(x: Any) -> None:
    w, b = torch.randn(264).to(torch.bfloat16), torch.randn(264).to(torch.bfloat16)
    f = torch.nn.functional
    wide, of_columns = x.double(), (w.double(), b.double())
    expected = {
        "rmsnorm_bf16_sm90a": ((x, w), f.rms_norm(wide, (264,), of_columns[0], eps=1e-6)),
        "layernorm_bf16_sm90a": ((x, w, b), f.layer_norm(wide, (264,), *of_columns, eps=1e-5)),
        "softmax_bf16_sm90a": ((x,), wide.softmax(-1)),
        "silu_mul_bf16_sm90a": ((x, x + 1), f.silu(wide) * (x + 1).double()),
        "geglu_bf16_sm90a": ((x, x + 1), f.gelu(wide, approximate="tanh") * (x + 1).double()),
        "log_softmax_bf16_sm90a": ((x,), wide.log_softmax(-1)),
        "gemma_rmsnorm_bf16_sm90a": ((x, w), f.rms_norm(wide, (264,), 1 + of_columns[0], eps=1e-6)),
    }
    for name, (inputs, result) in expected.items():
        found = reference(name).reference_fn(*inputs, precision="float64")
        torch.testing.assert_close(found, result.to(torch.bfloat16))


def test_losses_are_those_of_torch_and_a_label_that_is_no_place_picks_nothing(x: Any) -> None:
    plan = reference("cross_entropy_bf16_sm90a")
    label = torch.tensor([0, 263, -100, 17, 264], dtype=torch.int32)
    lse, loss = plan.reference_fn(x, label, precision="float64")
    torch.testing.assert_close(lse.double(), x.double().logsumexp(-1))
    inside = label < 264
    expected = torch.nn.functional.cross_entropy(x.double()[inside], label[inside].long(), reduction="none")
    torch.testing.assert_close(loss[inside].double(), expected)
    assert loss[4] == lse[4]


def test_gradients_are_those_of_torch(x: Any) -> None:
    """Of rows, and of what has a value for each column as sums over rows."""
    f, wide = torch.nn.functional, x.double().requires_grad_()
    w, b, dy = (torch.randn(shape).to(torch.bfloat16) for shape in ((264,), (264,), (5, 264)))
    parameters = [v.double().requires_grad_() for v in (w, b)]
    label = torch.tensor([0, 263, -100, 17, 3], dtype=torch.int32)
    loss = f.cross_entropy(wide, label.long(), reduction="none")
    cases = {
        "rmsnorm_backward_bf16_sm90a": (
            f.rms_norm(wide, (264,), parameters[0], eps=1e-6), dy, (x, w, dy), (wide, parameters[0])
        ),
        "layernorm_backward_bf16_sm90a": (
            f.layer_norm(wide, (264,), *parameters, eps=1e-5), dy, (x, w, dy), (wide, *parameters)
        ),
        "cross_entropy_backward_bf16_sm90a": (
            loss, dy[:, 0], (x, label, wide.detach().logsumexp(-1), dy[:, 0]), (wide,)
        ),
    }  # fmt: skip
    for name, (output, gradient, inputs, of) in cases.items():
        found = reference(name).reference_fn(*inputs, precision="float64")
        expected = torch.autograd.grad(output, of, gradient.double())
        for ours, theirs in zip(found if len(of) > 1 else (found,), expected):
            torch.testing.assert_close(ours, theirs.to(torch.bfloat16))


def test_heads_are_normed_and_turned_as_llama_does() -> None:
    """By torch's norm and the usual rotation of halves; angles of a token are those of all its heads."""
    x, w = torch.randn(5, 3, 64).to(torch.bfloat16), torch.randn(64).to(torch.bfloat16)
    angles = torch.rand(5, 32) * 6
    normed = torch.nn.functional.rms_norm(x.double(), (64,), w.double(), eps=1e-6)
    turned = torch.cat((-normed[..., 32:], normed[..., :32]), dim=-1)
    cos, sin = (torch.cat((v, v), dim=-1)[:, None].double() for v in (angles.cos(), angles.sin()))
    plan = reference("qk_norm_rope_bf16_sm90a")
    found = plan.reference_fn(x, w, angles.cos(), angles.sin(), precision="float64")
    torch.testing.assert_close(found, (normed * cos + turned * sin).to(torch.bfloat16))
    assert [a.dims for a in plan.inputs] == [("t", "h", "d"), ("d",), ("t", "d/2"), ("t", "d/2")]


def test_a_row_with_halves_has_whole_vectors_of_each() -> None:
    problem = resolve(FORMS["gated_blocks"]).resolved.problem
    assert (problem.vector, problem.step, problem.inputs[0].multiple, problem.outputs[0].multiple) == (8, 16, 16, 8)
    fixed = resolve(
        f"{HEAD}dims: {{n: 24}}\ntensors: {{x: 'bf16[m, n]', y: 'bf16[m, n/2]'}}\nrows: {{y: 'x[:, n/2:]'}}\n"
    )
    assert fixed.resolved.problem.vector == 4


def test_scratch_has_a_line_for_each_cta() -> None:
    """Rows of one warp share a line; as many CTAs as rows, or as the SMs have room for, and one for few."""
    plan = reference("layernorm_backward_bf16_sm90a")
    narrow, wide = (plan.tilings[plan.dispatch(m=1, n=n)] for n in (128, 4096))
    assert (narrow.threads, narrow.rows, wide.threads, wide.rows) == (8, 16, 256, 1)
    assert plan.workspace_shapes(132, m=20, n=4096) == {"partials": (2 * 4096 * 20,), "arrivals": (3,)}
    assert plan.workspace_shapes(132, m=80, n=128) == {"partials": (2 * 128 * 5 * 4,), "arrivals": (3,)}
    assert plan.workspace_shapes(132, m=4 * 16, n=128)["partials"] == (2 * 128 * 4,)
    assert plan.workspace_shapes(132, m=4, n=4096)["partials"] == (2 * 4096,)
    most = 132 * wide.ctas_per_sm
    assert plan.workspace_shapes(132, m=1 << 20, n=4096)["partials"] == (2 * 4096 * most,)


def test_scratch_that_is_too_small_is_refused() -> None:
    plan = reference("rmsnorm_backward_bf16_sm90a")
    x, w = torch.zeros(80, 64, dtype=torch.bfloat16), torch.zeros(64, dtype=torch.bfloat16)
    small = torch.zeros(64), torch.zeros(2, dtype=torch.int32)
    with pytest.raises(ValueError, match="partials has 64 elements, tiling n128 needs 1280: size it"):
        plan.fit_scratch("n128", (x, w, x, x, w), small, 4)


def test_labels_are_drawn_from_the_places_of_a_row_and_around_them(tmp_path: Path) -> None:
    resolved = resolve(FORMS["labels"]).resolved
    write_package(render_package(resolved), tmp_path)
    plan: Any = load_subject(tmp_path / resolved.name).plan
    plan.device = "cpu"
    _, label, ignored = plan.prepare_inputs(m=4096, n=8)
    assert label.unique().tolist() == list(range(-1, 9))
    assert -1 <= int(ignored) <= 8


def test_values_of_rows_and_numbers_have_their_places() -> None:
    resolved = resolve(FORMS["all_kinds"]).resolved
    assert resolved.problem.rows == ("t", "h")
    assert {o.name: o.kind for o in resolved.problem.program.operands} == {
        "x": "tile", "s": "column_vector", "w": "row_vector", "c": "host_scalar", "d": "device_scalar",
    }  # fmt: skip
    assert [len(r.reduced) for r in resolved.problem.cut.rounds] == [0, 1, 1]


@pytest.mark.parametrize(
    ("dims", "dtypes", "vector"),
    [
        ("n: 4096", ("bf16", "bf16"), 8),
        ("n: 4096", ("f32", "f32"), 4),
        ("n: 4096", ("bf16", "e4m3"), 8),
        ("n: 4096", ("e5m2", "e4m3"), 16),
        ("n: 4100", ("bf16", "bf16"), 4),
        ("n: 1001", ("bf16", "bf16"), 1),
        ("n: [1, 4096]", ("bf16", "f32"), 4),
    ],
)
def test_vectors_are_16_bytes_of_the_widest_tensor_where_rows_have_whole_ones(
    dims: str, dtypes: tuple[str, str], vector: int
) -> None:
    tensors = f"tensors: {{x: '{dtypes[0]}[m, n]', y: '{dtypes[1]}[m, n]'}}\n"
    resolved = resolve(f"{HEAD}dims: {{{dims}}}\n{tensors}rows: {{y: 2 * x}}\n").resolved
    assert resolved.tiling.numbers.vector == vector


@pytest.mark.parametrize(
    ("n", "threads", "rows", "vectors"),
    [("64", 8, 16, 1), ("256", 16, 8, 2), ("4096", 256, 1, 2), ("7168", 224, 1, 4), ("16384", 1024, 1, 2)],
)
def test_threads_have_two_loads_of_a_row_each_up_to_256_and_more_where_an_sm_has_no_two_rows(
    n: str, threads: int, rows: int, vectors: int
) -> None:
    numbers = resolve(NORM.replace("[8, 8192]", n)).resolved.tiling.numbers
    assert (numbers.threads, numbers.rows, numbers.vectors) == (threads, rows, vectors)


def test_shorter_rows_have_fewer_threads_and_an_sm_more_of_them() -> None:
    resolved = resolve(NORM).resolved
    numbers = {t.name: t.numbers for t in resolved.tilings}
    assert {name: (t.most, t.threads, t.rows) for name, t in numbers.items()} == {
        "n128": (128, 8, 16), "n256": (256, 16, 8), "n512": (512, 32, 4), "n1024": (1024, 64, 1),
        "n1536": (1536, 96, 1), "n2048": (2048, 128, 1), "n3072": (3072, 192, 1), "n4096": (4096, 256, 1),
        "n6144": (6144, 256, 1), "default": (8192, 256, 1),
    }  # fmt: skip
    assert [row.tiling for row in resolved.dispatch] == [*numbers]
    at_once = [t.rows * t.ctas_per_sm for t in numbers.values()]
    assert at_once == sorted(at_once, reverse=True)
    assert [numbers[name].vectors for name in ("n3072", "n4096", "n6144", "default")] == [2, 2, 3, 4]


def test_parts_of_an_sm_have_whole_warps_and_the_registers_for_them() -> None:
    numbers = {t.name: t.numbers for t in resolve(NORM).resolved.tilings}
    # 48 registers a thread: 65536 / (192 * 48) is 7, but of 42 warps one of the four parts has 11, with 46 registers.
    assert (numbers["n3072"].ctas_per_sm, numbers["n4096"].ctas_per_sm, numbers["default"].ctas_per_sm) == (6, 5, 4)


LONG = (8192, 12288, 16384, 24576, 32768, 49152, 65536)


@pytest.mark.parametrize(
    ("dims", "bounds", "modules"),
    [
        ("", (128, 256, 512, 1024, 1536, 2048, 3072, 4096, 6144, *LONG), {"kernel", "streamed"}),
        ("dims: {n: [4096, 262144]}\n", (4096, 6144, *LONG), {"kernel", "streamed"}),
        ("dims: {n: 262144}\n", (), {"kernel"}),
        ("dims: {n: [1000, 3000]}\nbounds: [2000]\n", (2000,), {"kernel", "streamed"}),
        ("dims: {n: [8, 8192]}\nbounds: [8192]\n", (8192,), {"kernel"}),
    ],
)
def test_rows_that_registers_do_not_hold_are_streamed(
    dims: str, bounds: tuple[int, ...], modules: set[str], tmp_path: Path
) -> None:
    resolved = resolve(NORM.replace("dims: {n: [8, 8192]}\n", dims)).resolved
    assert resolved.candidate.bounds == bounds
    assert {t.module for t in resolved.tilings} == modules
    write_package(render_package(resolved), tmp_path)
    plan = load_subject(tmp_path / resolved.name).plan
    assert plan
    streamed = [key for key, t in plan.tilings.items() if not t.most]
    assert streamed == ["default"] * (bounds[-1:] != (resolved.problem.most_columns,))
    for bound, key in zip(bounds, plan.tilings):
        assert plan.dispatch(m=1, n=bound) == key


def test_long_rows_have_a_cluster_of_ctas_of_which_an_sm_has_several() -> None:
    """Of rows that are read once each CTA of a cluster has less, and so are those that are not held."""
    once = (ROOT / "specs" / "cross_entropy_bf16_sm90a.yaml").read_text()
    for text, clusters, streamed in (
        (NORM.replace("dims: {n: [8, 8192]}\n", ""), {16384: 1, 24576: 4, 32768: 4, 65536: 8}, (1024, 1)),
        (once, {8192: 1, 16384: 2, 32768: 4, 65536: 8, 131072: 8}, (512, 8)),
    ):
        numbers = {t.numbers.most: t.numbers for t in resolve(text).resolved.tilings}
        assert {most: numbers[most].cluster for most in clusters} == clusters
        assert (numbers[0].threads, numbers[0].cluster) == streamed
        for most, t in numbers.items():
            assert t.cluster == 1 or t.ctas_per_sm > 1
            assert not most or t.row_threads * t.vectors * t.vector >= most


@pytest.mark.parametrize(
    ("text", "threads", "said"),
    [
        (NORM, 1040, "8 CTAs that share a row cannot have 1040 threads"),
        (NORM, 16384, "8 CTAs that share a row cannot have 16384 threads"),
        (NORM + "bounds: []\n", 2048, "are in a cluster of CTAs, and no row is held"),
        (FORMS["only_over_rows"], 2048, "are in a cluster of CTAs, and what a CTA joins of all rows has all columns"),
    ],
)
def test_threads_that_no_cluster_has_are_refused(text: str, threads: int, said: str) -> None:
    with pytest.raises(SpecError) as refused:
        resolve(f"{text}threads: {threads}\n")
    (found,) = refused.value.diagnostics
    assert said in found.message
    assert found.rule == "row-threads"


def test_a_call_runs_the_tiling_of_its_rows_whatever_their_number(tmp_path: Path) -> None:
    """By columns where rows are reduced, by elements elsewhere; explain says the same."""
    for text, name, chosen in (
        (NORM, "norm", {(1, 8): "n128", (4096, 8): "n128", (1, 136): "n256", (9, 4096): "n4096", (9, 4104): "n6144"}),
        (FORMS["parts"], "parts", {(1, 16): "few", (132, 8192): "few", (133, 8192): "default"}),
    ):
        resolved = resolve(text).resolved
        write_package(render_package(resolved), tmp_path / name)
        plan = load_subject(tmp_path / name / resolved.name).plan
        for (m, n), tiling in chosen.items():
            assert plan
            assert plan.dispatch(m=m, n=n) == tiling
            said = load_family("rowwise").explain(resolved, {"m": m, "n": n})
            assert ("runs", tiling) in next(s for s in said if s.title.startswith("m=")).rows


def test_a_launch_that_prefetches_knows_the_sms_and_others_have_a_cta_for_each_row(tmp_path: Path) -> None:
    for text, count in ((NORM + "prefetch: true\n", UNLIMITED + 7), (NORM, UNLIMITED), (FORMS["parts"], UNLIMITED)):
        resolved = resolve(text).resolved
        write_package(render_package(resolved), tmp_path / resolved.digest)
        plan: Any = load_subject(tmp_path / resolved.digest / resolved.name).plan
        plan._sm_counts = {0: 7}
        assert plan.count_sms("default", 0) == count


def test_a_row_that_is_not_reduced_has_any_length() -> None:
    numbers = resolve(FORMS["parts"]).resolved.tiling.numbers
    assert (numbers.vectors, numbers.smem_bytes, numbers.most) == (2, 0, 0)


def test_expressions_and_not_their_blanks_are_the_meaning() -> None:
    spaced = NORM.replace("x * rsqrt", "x  *  rsqrt")
    assert resolve(spaced).resolved.digest == resolve(NORM).resolved.digest
    assert resolve(NORM.replace("1e-6", "1e-5")).resolved.digest != resolve(NORM).resolved.digest


def test_explain_lists_rounds_and_bytes() -> None:
    resolved = resolve_file(ROOT / "specs" / "layernorm_bf16_sm90a.yaml").resolved
    sections = {s.title: s for s in load_family("rowwise").explain(resolved, {"m": 4096, "n": 4096})}
    assert [row[1] for row in sections["Rounds of a row of n"].rows] == ["mu (mean)", "variance (mean)"]
    roofline = next(s for title, s in sections.items() if title.startswith("m=4096"))
    assert dict(roofline.rows)["work"] == "67.13 MB"


def test_explain_tells_what_is_joined_where_rows_are_streamed() -> None:
    resolved = resolve_file(ROOT / "specs" / "cross_entropy_bf16_sm90a.yaml").resolved
    rounds = next(s for s in load_family("rowwise").explain(resolved, None) if s.title.startswith("Rounds"))
    assert rounds.lines[1] == "of rows that are streamed sum_lse is joined in the round of its maximum"
    assert [row[1] for row in rounds.rows] == ["top (max), own (sum)", "sum_lse (sum)"]


def test_tilings_without_operands_run_what_leaves_them_out(tmp_path: Path) -> None:
    resolved = resolve(FORMS["optional"]).resolved
    assert [row.tiling for row in resolved.dispatch] == ["default"]
    write_package(render_package(resolved), tmp_path)
    plan: Any = load_subject(tmp_path / resolved.name).plan
    endings = ("_without_residual", "_without_b", "_without_residual_without_b", "")
    assert tuple(plan.tilings) == tuple(f"default{end}" for end in endings)
    x, b = torch.zeros(2, 64).to(torch.bfloat16), torch.zeros(64)
    for inputs, end in zip([(x, None, b), (x, x, None), (x, None, None), (x, x, b)], endings):
        assert plan.chooser(None)((*inputs, 1.0, x, x)) == f"default{end}"
        assert plan.choose_instance((*inputs, 1.0), {"m": 2, "n": 64}) == f"default{end}"
    entry = load_family("rowwise").c_entry(plan, Translation())
    assert (entry.keys, entry.endings) == (("default",), ((1, "_without_residual"), (2, "_without_b")))
    assert plan.dispatch(m=2, n=64) == "default"


def test_why_not_answers_for_threads() -> None:
    resolution = resolve(NORM)
    family = load_family("rowwise")
    said = family.why_not(parse_spec(resolution.document), resolution.resolved, "threads=100", None)
    assert "a row cannot have 100 threads" in str(said)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"x": (4, 100)}, "shape\\[1\\] \\(n\\) is 100, needs a multiple of 8"),
        ({"x": (4, 16384)}, "promised 8 <= n <= 8192"),
        ({"w": (72,)}, "shape\\[0\\] is 72, but n is 64"),
    ],
)
def test_calls_that_do_not_fit_are_refused(change: dict[str, tuple[int, ...]], said: str, tmp_path: Path) -> None:
    resolved = resolve(NORM).resolved
    write_package(render_package(resolved), tmp_path)
    plan = load_subject(tmp_path / resolved.name).plan
    assert plan
    shapes = {"x": (4, 64), "w": (64,)} | change
    values = [torch.zeros(shape, dtype=torch.bfloat16) for shape in shapes.values()]
    with pytest.raises((ValueError, TypeError), match=said):
        plan.kernel_fn(*values)


def test_an_unknown_reduction_of_epilogues_is_known_in_rows() -> None:
    text = HEAD.replace("rowwise", "gemm") + "tensors: {a: 'bf16[m, k]', b: 'bf16[n, k]', d: 'bf16[m, n]'}\n"
    with pytest.raises(SpecError, match="there is no op `mean`"):
        resolve(text + "epilogue: {d: 'acc - mean(acc, n)'}\n")
