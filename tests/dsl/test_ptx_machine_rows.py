"""Row kernels in every form of their templates, compiled and executed on the PTX machine."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

pytest.importorskip("numpy")
pytest.importorskip("torch")

from gemm_specs import resolve_text
from row_specs import FORMS, HEAD, NORM

from cutegen.build.facts import find_nvdisasm
from cutegen.build.kernels import build_kernels
from cutegen.machine import Simulation, assert_equal_bits, assert_passes, load_resolution
from cutegen.machine.host import missing_tool
from cutegen.machine.package import promise
from cutegen.resolve import resolve_file

pytestmark = [
    pytest.mark.dsl,
    pytest.mark.skipif(importlib.util.find_spec("cutlass") is None, reason="nvidia-cutlass-dsl is not installed"),
    pytest.mark.skipif(missing_tool() is not None, reason=str(missing_tool())),
]
ROOT = Path(__file__).parents[2]
SHAPES = {
    "all_kinds": {"t": 3, "h": 2},
    "moments": {"m": 25},
    "one_warp": {"m": 5},
    "rounds": {"m": 3},
    "blocks": {"m": 3, "n": 912},
    "exponents": {"t": 3, "h": 2, "n": 720},
    "block_values": {"m": 2, "n": 4672},
    "labels": {"m": 9, "n": 520},
    "integers": {"m": 5, "n": 528},
    "streamed": {"m": 3, "n": 2056},
    "over_rows": {"t": 23, "h": 41},
    "only_over_rows": {"m": 41, "n": 520},
    "streamed_over_rows": {"m": 40, "n": 2056},
    "clusters": {"m": 3, "n": 9992},
    "clusters_once": {"m": 3, "n": 17000},
    "halves": {"t": 5, "d": 176},
    "pairs": {"t": 5, "h": 3, "d": 112},
    "gated_blocks": {"m": 3, "n": 5920},
    "streamed_halves": {"m": 3, "n": 4128},
    "optional": {"m": 3, "n": 520},
    "parts": {"m": 3, "n": 9200},
}
READY = {"all_kinds": ["w"], "clusters": ["w"]}


@pytest.mark.parametrize("form", FORMS)
def test_every_form_is_right(form: str) -> None:
    simulation = Simulation(sm_count=1)
    subject = load_resolution(resolve_text(FORMS[form]), simulation)
    promise(simulation, subject, READY.get(form, ()))
    assert_passes(subject, SHAPES[form])


@pytest.mark.thorough
@pytest.mark.skipif(find_nvdisasm() is None, reason="nvidia-cuda-nvdisasm is not installed")
@pytest.mark.parametrize(
    "name",
    [
        "rmsnorm_bf16_sm90a",
        "layernorm_bf16_sm90a",
        "log_softmax_bf16_sm90a",
        "layernorm_backward_bf16_sm90a",
        "add_rmsnorm_quant_e4m3_sm90a",
    ],
)
def test_every_tiling_has_the_registers_that_its_ctas_leave_it(name: str) -> None:
    """And so no local memory, and every load and store of 16 bytes."""
    reports = build_kernels([resolve_file(ROOT / "specs" / f"{name}.yaml").resolved], workers=2)
    assert {r.tiling for r in reports if not r.ok} == set()
    assert len(reports) > 5


@pytest.mark.parametrize(("columns", "cluster"), [(3000, 2), (6000, 4), (12000, 8)])
def test_clusters_of_every_size(columns: int, cluster: int) -> None:
    """Of rows that are held and read once."""
    subject = load_resolution(resolve_text(FORMS["clusters_once"]), Simulation(sm_count=1))
    assert subject.plan
    assert subject.plan.tilings[subject.plan.dispatch(m=2, n=columns)].cluster == cluster
    assert_passes(subject, {"m": 2, "n": columns})


def test_a_cluster_takes_rows_in_turn() -> None:
    """The slots of its exchanges are used again, by CTAs of which some are a row behind; equal bits in any order."""
    simulation = Simulation(sm_count=3)
    subject = load_resolution(resolve_text(FORMS["clusters"] + "prefetch: true\n"), simulation)
    promise(simulation, subject, READY["clusters"])
    assert_passes(subject, {"m": 5, "n": 1544})
    assert_equal_bits(subject, simulation, m=5, n=1544)


def test_a_maximum_and_picked_elements_of_a_cluster() -> None:
    """Labels in the first and the last CTA, behind the row and before it, and -inf in all of a CTA's part of a row."""
    import torch

    plan = load_resolution(resolve_text(FORMS["clusters_once"]), Simulation(sm_count=1)).plan
    assert plan
    n = 4104
    x, w = torch.randn(5, n).bfloat16(), torch.randn(n)
    x[1, : n // 2] = -torch.inf
    x[2] = -torch.inf
    label = torch.tensor([0, n - 1, n, -1, 2056], dtype=torch.int32)
    lse, own, other = plan.kernel_fn(x, w, label, 4100.0)
    expected = torch.logsumexp(x.double(), 1)
    expected[2] = torch.nan
    torch.testing.assert_close(lse.double(), expected, rtol=1e-6, atol=1e-5, equal_nan=True)
    inside = (label >= 0) & (label < n)
    picked = x.gather(1, label.clamp(0, n - 1).long()[:, None])[:, 0].float()
    assert torch.equal(own, torch.where(inside, picked, 0.0))
    torch.testing.assert_close(other, x[:, 4100].float() * w[4100] + 4100)


def test_a_row_does_not_depend_on_the_others() -> None:
    """Alone, and among others, at any place: equal bits, as is NaN in one row and none in the next."""
    import torch

    subject = load_resolution(resolve_text(NORM), Simulation(sm_count=1))
    plan = subject.plan
    assert plan
    x, w = plan.prepare_inputs(m=7, n=264)
    x[2, 5] = torch.nan
    y = plan.kernel_fn(x, w)
    assert y.isnan().all(-1).tolist() == [i == 2 for i in range(7)]
    for i in (0, 1, 3, 6):
        assert torch.equal(plan.kernel_fn(x[i : i + 1], w)[0], y[i])


@pytest.mark.parametrize("how", ["", "prefetch: true\n", "bounds: []\nthreads: 32\n"])
def test_a_result_may_lie_on_its_row(how: str) -> None:
    """Held, with the next row on its way, and streamed in three parts."""
    import torch

    subject = load_resolution(resolve_text(NORM + "alias: {y: x}\n" + how), Simulation(sm_count=1))
    plan = subject.plan
    assert plan
    x, w = plan.prepare_inputs(m=13, n=1288)
    expected = plan.kernel_fn(x.clone(), w)
    plan.launch_fn(x, w, x)
    assert torch.equal(x, expected)


def test_equal_bits_in_any_order_of_events() -> None:
    simulation = Simulation(sm_count=1)
    assert_equal_bits(load_resolution(resolve_text(NORM), simulation), simulation, m=5, n=4400)


def test_reductions_over_rows_have_equal_bits_in_any_order_of_events() -> None:
    """Where one CTA has all rows, where all CTAs join a share of the columns, and where the last one joins all, as most
    have left before others start; the next launch relies on their counters. And what reductions begin with where there
    are no rows."""
    import torch

    simulation = Simulation(sm_count=5)
    subject = load_resolution(resolve_text(FORMS["only_over_rows"]), simulation)
    plan = subject.plan
    assert plan
    ctas = {m: plan.workspace_shapes(5, m=m, n=520)["partials"][0] // 520 for m in (4, 5, 200)}
    assert (ctas[4], ctas[5]) == (1, 5)
    assert ctas[200] > 5
    for m in ctas:
        assert_equal_bits(subject, simulation, m=m, n=520)
    dy, db = torch.zeros(0, 520, dtype=torch.bfloat16), torch.full((520,), torch.nan)
    plan.launch_fn(dy, db)
    assert not db.any()


@pytest.mark.parametrize("threads", [32, 128, 1024])
def test_sums_of_exponentials_are_joined_with_their_maximum(threads: int) -> None:
    """Of rows that are streamed: maxima late and early, -inf in parts of a row and in all of it, and NaN."""
    import torch

    text = (
        HEAD + f"bounds: []\nthreads: {threads}\ntensors: {{x: 'f32[m, n]', y: 'f32[m, n]', lse: 'f32[m]'}}\n"
        "rows:\n  e: exp(x - max(x, n))\n  y: e / sum(e, n)\n  lse: log(sum(e, n)) + max(x, n)\n"
    )
    plan = load_resolution(resolve_text(text), Simulation(sm_count=1)).plan
    assert plan
    x = 3 * torch.randn(7, 2 * 4 * threads + 264)
    x[1] += torch.linspace(-300, 300, x.shape[1])
    x[2] = x[1].flip(0)
    x[3, :-1] = -torch.inf
    x[4, : x.shape[1] // 2] = -torch.inf
    x[5] = -torch.inf
    x[6, 9] = torch.nan
    y, lse = plan.kernel_fn(x)
    torch.testing.assert_close(y[:5], x[:5].softmax(-1), rtol=2e-5, atol=1e-7)
    torch.testing.assert_close(lse[:5], x[:5].logsumexp(-1), rtol=1e-5, atol=1e-5)
    assert y[5:].isnan().all()
    assert lse[5:].isnan().all()


@pytest.mark.parametrize(("residual", "b"), [(False, True), (True, False), (False, False)])
def test_operands_may_be_left_out(residual: bool, b: bool) -> None:
    import torch

    plan = load_resolution(resolve_text(FORMS["optional"]), Simulation(sm_count=1)).plan
    assert plan
    x, added, of_columns, c = plan.prepare_inputs(m=3, n=520)
    inputs = (x, added if residual else None, of_columns if b else None, c)
    for found, expected in zip(plan.kernel_fn(*inputs), plan.reference_fn(*inputs)):
        torch.testing.assert_close(found, expected)
    zero = (x, added if residual else torch.zeros_like(x), of_columns if b else torch.zeros(520), c)
    for found, expected in zip(plan.reference_fn(*inputs), plan.reference_fn(*zero)):
        assert torch.equal(found, expected)
