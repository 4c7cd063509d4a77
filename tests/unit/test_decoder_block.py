"""The decoder layer of examples/decoder_block without a GPU: its specs, what it computes with references in the place
of kernels, its operators under torch.compile and fake tensors, and its script with a device that only pretends."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

pytest.importorskip("torch")

import decoder_block
import measure
import torch
from cpu_plans import on_cpu, own_operators
from layer import (
    SPECS,
    Attention,
    Cache,
    GeneratedLayer,
    Sizes,
    TorchLayer,
    error,
    load_plans,
    make_weights,
    record_steps,
    widen,
)
from measure import MOST_ERROR, Problem, is_right, table
from picture import draw
from torch._subclasses import FakeTensorMode

from cutegen.resolve import resolve_file
from cutegen.runtime.gpu import GpuStatus

ROOT = Path(__file__).parents[2]
SMALL = Sizes(hidden=256, heads=4, kv_heads=2, head_dim=64, feed_forward=512)
PROBLEMS = ((1, 40), (6, 40), (7, 0))  # tokens, context


@cache
def plans(form: Any) -> dict[str, Any]:
    return load_plans(form)


def references(form: Any) -> dict[str, Callable[..., Any]]:
    return {role: plan.reference_fn for role, plan in plans(form).items()}


def make(form: Any, tokens: int, context: int) -> tuple[Any, Any, Any, Any]:
    """Weights, attention, a cache and x."""
    torch.manual_seed(0)
    held = Problem(form, tokens, context).make_cache(SMALL, "cpu")
    x = torch.randn(tokens, SMALL.hidden).bfloat16()
    return make_weights(SMALL, form, "cpu"), Attention(SMALL, held.keys.shape[2], "cpu"), held, x


def wide_result(weights: Any, attention: Any, held: Cache, x: Any) -> Any:
    wide = Cache(held.keys.float(), held.values.float(), held.start)
    return TorchLayer(widen(weights), attention)(x.float(), wide)


def test_every_spec_is_locked_and_used() -> None:
    paths = [p for p in decoder_block.FOLDER.glob("*.yaml") if not p.name.endswith(".lock.yaml")]
    assert {p.stem for p in paths} == {name for specs in SPECS.values() for name in specs.values()}
    for path in paths:
        assert resolve_file(path, locked=True).notes == ()


@pytest.mark.parametrize("form", SPECS)
@pytest.mark.parametrize(("tokens", "context"), PROBLEMS)
def test_both_layers_compute_the_reference(form: Any, tokens: int, context: int) -> None:
    weights, attention, held, x = make(form, tokens, context)
    reference = wide_result(weights, attention, held, x)
    for layer in (GeneratedLayer(weights, attention, references(form)), TorchLayer(weights, attention)):
        assert 0 < error(layer(x, held), reference, x) <= MOST_ERROR[form]


@pytest.mark.parametrize("form", SPECS)
@pytest.mark.parametrize("fault", ["no residual", "weights of the other norm", "halves exchanged"])
def test_what_is_wired_wrong_is_found(form: Any, fault: str) -> None:
    weights, attention, held, x = make(form, 6, 40)
    reference, kernels = wide_result(weights, attention, held, x), references(form)
    if fault == "no residual":
        project = kernels["project"]
        kernels["project"] = lambda *values: project(*values[:-1], torch.zeros_like(values[-1]))
    elif fault == "weights of the other norm":
        weights["norm_out"] = weights["norm_in"]
    else:
        for name in [name for name in weights if name.startswith("gate_up")]:
            weights[name] = torch.cat(weights[name].view(torch.uint8).chunk(2)[::-1]).view(weights[name].dtype)
    assert error(GeneratedLayer(weights, attention, kernels)(x, held), reference, x) > MOST_ERROR[form]


def test_a_token_sees_those_in_the_cache() -> None:
    """The last of 8 tokens, behind the other 7 in the cache, as all of them at once."""
    weights, attention, _, x = make("bf16", 8, 0)
    layer = TorchLayer(widen(weights), attention)
    x = x.float()
    whole, parts = (Cache(*torch.zeros(2, 1, SMALL.kv_heads, 8, SMALL.head_dim), 0) for _ in range(2))
    expected = layer(x, whole)
    layer(x[:7], parts)
    torch.testing.assert_close(layer(x[7:], parts._replace(start=7)), expected[7:])
    torch.testing.assert_close(parts.keys, whole.keys)
    with pytest.raises(ValueError, match="2 new tokens of a sequence that has 3"):
        layer(x[:2], parts._replace(start=3))


@pytest.fixture
def operators() -> Iterator[None]:
    with own_operators():
        yield


@pytest.mark.usefixtures("operators")
@pytest.mark.parametrize("form", SPECS)
@pytest.mark.parametrize("tokens", [1, 6])
def test_operators_compile_into_one_graph(form: Any, tokens: int) -> None:
    """With plans that launch on the CPU, and refuse what kernels do; what they allocate for fake tensors is what they
    compute."""
    torch.compiler.reset()
    weights, attention, held, x = make(form, tokens, 40)
    on_cpus = {role: on_cpu(plan) for role, plan in plans(form).items()}
    layer = GeneratedLayer(weights, attention, {r: p.register_torch_op(f"decoder_{r}") for r, p in on_cpus.items()})
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    with torch.no_grad():
        found = compiled(x, held)
    assert error(found, wide_result(weights, attention, held, x), x) <= MOST_ERROR[form]
    launched = {role: len(plan.launched) for role, plan in on_cpus.items()}
    assert launched == {role: 2 if role in ("norm", "project") else 1 for role in on_cpus}


@pytest.mark.usefixtures("operators")
@pytest.mark.parametrize("form", SPECS)
def test_operators_fit_each_other_at_full_size(form: Any) -> None:
    """Llama-3-8B with fake tensors: shapes, dtypes and strides of every step."""
    kernels = {role: on_cpu(plan).register_torch_op() for role, plan in plans(form).items()}
    problem = Problem(form, 64, 128)
    with FakeTensorMode(), torch.no_grad():
        sizes = Sizes()
        held = problem.make_cache(sizes, "cpu")
        layer = GeneratedLayer(make_weights(sizes, form, "cpu"), Attention(sizes, 129, "cpu"), kernels)
        with record_steps(layer) as steps:
            y = layer(torch.empty(64, sizes.hidden, dtype=torch.bfloat16), held)
    assert (y.shape, y.dtype) == ((64, sizes.hidden), torch.bfloat16)
    down = steps[-1].values
    assert down[0].shape == (64, sizes.feed_forward)
    if form == "e4m3":
        assert (down[1].shape, down[1].stride()) == ((64, sizes.feed_forward // 128), (1, 64))


class PretendedDevice:
    """Launches run once, on the CPU; the clock says what the caller wants."""

    l2_bytes = 1 << 18

    def __init__(self) -> None:
        self.prepared: list[int] = []

    def free_bytes(self) -> int:
        return 1 << 30

    def prepare(self, launches: Sequence[Callable[[], Any]]) -> int:
        for launch in launches:
            launch()
        self.prepared.append(len(launches))
        return len(self.prepared)

    def sample(self, prepared: int, seconds: float) -> tuple[float, None]:
        return 1e-6 * prepared, None


@pytest.mark.parametrize("form", SPECS)
def test_the_script_measures_and_draws(form: Any) -> None:
    device, compiled = PretendedDevice(), []

    def compile_it(function: Any) -> Any:
        compiled.append(type(function).__name__)
        return function

    with torch.no_grad():
        problem = Problem(form, 2, 30)
        result = measure.measure(
            problem, SMALL, references(form), device, "cpu", 7, 0.01, compile_it, lambda text: None
        )  # type: ignore[arg-type]
    count = 8 if form == "e4m3" else 4  # layers: twice L2 of the weights of `out`, of 64 Ki elements
    assert result["layers"] == count
    names = ["norm_in", "qkv", "attention", "quantise", "out", "norm_out", "gate_up", "down"]
    expected = [n for n in names if form == "e4m3" or n != "quantise"]
    assert list(result["sides"]["cutegen"]["steps"]) == expected
    assert set(result["sides"]["torch.compile"]["steps"]) - set(expected) == {"gate", "add"}
    assert set(device.prepared) == {count}
    assert sorted(set(compiled)) == [
        "Attention",
        "GeneratedLayer",
        "TorchLayer",
        "builtin_function_or_method",
        "function",
    ]
    assert result["speed"]["median"] == 2  # the second to be prepared takes twice as long as the first
    # Steps are prepared from the third on: attention of cutegen is number 5.
    steps = range(3, 3 + len(expected))
    assert result["sides"]["cutegen"]["shares"]["attention"] == pytest.approx(5 / sum(steps))
    assert is_right(result)
    text = table([result])
    assert "2.000 [2.000, 2.000] times as fast as torch.compile" in text
    assert "WRONG" not in text
    wrong = {**result, "most_error": 1e-9}
    assert not is_right(wrong)
    assert table([wrong]).count("WRONG") == 2
    picture = ElementTree.fromstring(draw({"problems": [result], "environment": {"gpu": {"name": "<GPU>"}}}))
    widths = [float(bar.attrib["width"]) for bar in picture.iter("{http://www.w3.org/2000/svg}rect")][3:]
    assert len(widths) == 6
    assert sum(widths[:3]) == pytest.approx(sum(widths[3:]) / 2, abs=0.5)


def test_without_a_gpu_the_script_says_why(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(measure, "probe_gpu", lambda arch: GpuStatus((f"no {arch} here",)))
    monkeypatch.setattr("sys.argv", ["measure.py"])
    assert measure.main() == 2
    assert capsys.readouterr() == ("", "not measured: no sm_90a here\n")


def test_the_page_shows_what_is_stored() -> None:
    page = (ROOT / "docs" / "performance" / "decoder-layer.md").read_text(encoding="utf-8")
    shown = re.findall(r"<!-- layer: (\S+) -->\n\n```text\n(.*?)\n```\n\n<!-- /layer -->", page, re.DOTALL)
    stored = sorted(path.relative_to(ROOT).as_posix() for path in ROOT.glob("docs/measurements/decoder_block/*.json"))
    assert sorted(path for path, _ in shown) == stored
    for path, text in shown:
        result = json.loads((ROOT / path).read_text(encoding="utf-8"))
        assert text == table(result["problems"])
        assert (ROOT / path).with_suffix(".svg").read_text(encoding="utf-8") == draw(result)
        assert all(map(is_right, result["problems"]))


@pytest.mark.parametrize("form", SPECS)
def test_kernels_of_a_problem_are_those_that_the_layer_calls(form: Any) -> None:
    weights, attention, held, x = make(form, 6, 40)
    kernels, called = references(form), []
    for role, plan in plans(form).items():

        def kernel(*values: Any, role: str = role, plan: Any = plan) -> Any:
            called.append((role, plan.problem_dims(*values)))
            return kernels[role](*values)

        kernels_called = {**kernels, role: kernel}
        GeneratedLayer(weights, attention, kernels_called)(x, held)
    listed = Problem(form, 6, 40).list_kernels(SMALL)
    assert {(r, tuple(sorted(d.items()))) for r, d in called} == {(r, tuple(sorted(d.items()))) for r, d in listed}
