"""`check --shrink`: what a failing case is made to, which step of the sum is blamed, and which knobs."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from test_check import mutate

from cutegen.cli import main
from cutegen.diagnostics import CutegenError
from cutegen.families.gemm.shrinking import find_part
from cutegen.families.registry import load_shrinking
from cutegen.families.shrinking import apply_changes
from cutegen.resolve import resolve_file
from cutegen.run.attempts import Fault
from cutegen.run.case_list import Case
from cutegen.run.shrink import MOST_TRIES, bisect_knobs, shrink
from cutegen.run.subject import Subject, load_subject
from cutegen.run.targets import render_spec
from cutegen.runtime.mla_decode.inputs import Draw

ROOT = Path(__file__).parents[2]
DIMS = {"heads": 128, "query_len": 1}
BAD = Fault("wrong", ("d[0, 0] is 1, reference 0",))
Attempt = Callable[[Case], "Fault | None"]


def subject_of(name: str) -> Subject:
    pytest.importorskip("torch")
    subject = load_subject(ROOT / "generated" / name)
    assert subject.plan
    subject.plan.device = "cpu"  # type: ignore[misc]
    return subject


def failing(condition: Callable[[Mapping[str, int]], bool], block: int | None = None, depth: int = 64) -> Attempt:
    """A kernel that is wrong on such shapes, as soon as a k block counts."""

    def attempt(case: Case) -> Fault | None:
        counted = case.kept_steps is None or block is None or case.kept_steps > block
        return BAD if condition(case.shape) and counted else None

    return attempt


@pytest.mark.parametrize(
    ("condition", "least"),
    [
        (lambda s: True, {"m": 1, "n": 8, "k": 8}),
        (lambda s: s["k"] > 192, {"m": 1, "n": 8, "k": 200}),
        (lambda s: s["m"] % 64 and s["n"] > 100, {"m": 1, "n": 104, "k": 8}),
        (lambda s: s["m"] * s["n"] >= 4096, {"m": 16, "n": 256, "k": 8}),
    ],
)
def test_extents_get_as_small_as_they_fail(condition: Callable[..., bool], least: dict[str, int]) -> None:
    case = Case("ragged", {"m": 300, "n": 264, "k": 328}, "strides", "t128x256x64")
    found = shrink(subject_of("gemm_bf16_sm90a"), case, BAD, failing(condition))
    assert (found.smallest.shape, found.smallest.mode) == (least, "numerics")
    assert found.tries <= MOST_TRIES


def test_another_fault_is_not_followed() -> None:
    """A small shape that is refused is not the kernel that was wrong on a large one."""

    def attempt(case: Case) -> Fault | None:
        return Fault("raised", ("no",)) if case.shape["m"] < 100 else BAD

    case = Case("ragged", {"m": 300, "n": 264, "k": 72}, "numerics", None)
    assert shrink(subject_of("gemm_bf16_sm90a"), case, BAD, attempt).smallest.shape["m"] == 100


@pytest.mark.parametrize("block", range(6))
def test_the_first_wrong_k_block(block: int) -> None:
    case = Case("ragged", {"m": 300, "n": 264, "k": 328}, "numerics", "t128x256x64")
    found = shrink(subject_of("gemm_bf16_sm90a"), case, BAD, failing(lambda s: s["k"] > 320, block))
    assert f"k block {block} of 6 (k {64 * block} to " in found.step
    assert f"slot {block % 4} of the ring of 4" in found.step


def test_zeros_that_fail_are_said() -> None:
    case = Case("ragged", {"m": 300, "n": 264, "k": 328}, "numerics", "t128x256x64")
    found = shrink(subject_of("gemm_bf16_sm90a"), case, BAD, failing(lambda s: s["k"] > 128))
    assert "k block 2 of 3" in found.step
    assert "zeros fail as well" in found.step


def test_parts_of_k() -> None:
    """Those of cutegen/device/gemm/k_split.py: the first ones have a block more."""
    assert [find_part(step, 7, 3) for step in range(7)] == [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (2, 0), (2, 1)]
    assert [find_part(step, 2, 4) for step in range(2)] == [(0, 0), (1, 0)]


@pytest.mark.parametrize(
    ("name", "dims"),
    [
        ("gemm_bf16_sm90a", {"m": 3, "n": 8, "k": 200}),
        ("gemm_e4m3_block128_sm90a", {"m": 3, "n": 16, "k": 272}),
        ("grouped_gemm_bf16_sm90a", {"m": 5, "n": 8, "k": 200, "groups": 2}),
    ],
)
def test_steps_that_are_kept(name: str, dims: dict[str, int]) -> None:
    """Of what is summed, those elements count that no later step reads: the others are zero, and nothing else is."""
    subject = subject_of(name)
    plan: Any = subject.plan
    dims = {d: e if isinstance(e, int) else dims.get(d, e[0]) for d, e in plan.dims.items()}
    key, shrinking = plan.dispatch(**dims), load_shrinking(plan.family)
    inputs = plan.prepare_inputs(**dims)
    count = shrinking.count_steps(plan, dims, key)
    whole = shrinking.keep_steps(plan, inputs, key, count)
    assert all(bool((a == b).all()) for a, b in zip(inputs, whole) if hasattr(a, "shape"))
    for kept in range(count):
        changed = [
            (a.float(), b.float())
            for a, b in zip(inputs, shrinking.keep_steps(plan, inputs, key, kept))
            if hasattr(a, "shape") and not bool((a == b).all())
        ]
        assert len(changed) == 2 or not kept
        for before, after in changed:
            axis = [not bool((b == a).all()) for a, b in zip(before.movedim(-1, 0), after.movedim(-1, 0))]
            assert axis == sorted(axis)  # columns up to one stay, those behind it do not
            assert not after[..., axis.index(True) :].any()
        assert f" {kept} of " in shrinking.describe_step(plan, dims, key, kept)


def test_the_load_of_a_row() -> None:
    """Of rows the least extent that fails tells it."""
    case = Case("one row", {"m": 3, "n": 7168}, "numerics", None)
    found = shrink(subject_of("rmsnorm_bf16_sm90a"), case, BAD, failing(lambda s: s["n"] > 3000))
    assert found.smallest.shape == {"m": 1, "n": 3008}
    assert found.step.startswith("load 1 of each thread (n 1536 to 3007)"), found.step


def test_keys_that_are_kept() -> None:
    subject = subject_of("mla_decode_bf16_sm90a")
    plan: Any = subject.plan
    dims, shrinking = {"batch": 2, "query_len": 1, "heads": 4, "kv_len": 150}, load_shrinking(plan.family)
    key = next(iter(plan.tilings))
    inputs = plan.draw_inputs(Draw("edges"), **dims)
    assert shrinking.count_steps(plan, dims, key) == 3
    for kept in range(3):
        names = [argument.name for argument in plan.inputs]
        found = dict(zip(names, shrinking.keep_steps(plan, inputs, key, kept)))
        before = dict(zip(names, inputs))
        lengths = before.pop("seq_lens").tolist()
        assert found.pop("seq_lens").tolist() == [min(length, 64 * kept) for length in lengths]
        assert all(found[name] is value for name, value in before.items())
    assert shrinking.describe_step(plan, dims, key, 2).startswith("key block 2 of 3 (keys 128 to 149)")


@pytest.mark.parametrize(
    ("name", "legal"),
    [
        ("gemm_bf16_bias_residual_sm90a", 5),
        ("gemm_bf16_swiglu_sm90a", 4),
        ("gemm_e4m3_block128_sm90a", 3),
        ("grouped_gemm_bf16_gather_sm90a", 3),
        ("gemm_bf16_2cta_sm100a", 3),
        ("mla_decode_bf16_sm90a", 5),
        ("mla_sparse_v32_sm90a", 3),
        ("rmsnorm_bf16_sm90a", 3),
    ],
)
def test_plainer_kernels_resolve(name: str, legal: int, tmp_path: Path) -> None:
    """One tiling, and most of what is plainer than it; what a spec refuses is reported."""
    resolution = resolve_file(ROOT / "specs" / f"{name}.yaml")
    shrinking = load_shrinking(resolution.spec.kernel)
    tilings = getattr(resolution.resolved, "instances", resolution.resolved.tilings)
    data, found = resolution.document.data, 0
    for tiling in tilings[-1:]:
        pinned = shrinking.pin(resolution.spec, resolution.resolved, tiling.name, DIMS)
        render_spec(resolution.document, apply_changes(data, pinned), tmp_path / "pinned")
        for number, plainer in enumerate(shrinking.list_plainer(resolution.spec, resolution.resolved)):
            with contextlib.suppress(CutegenError):
                changed = apply_changes(data, {**pinned, **plainer.changes})
                render_spec(resolution.document, changed, tmp_path / str(number))
                found += 1
    assert found >= legal


def test_knobs_are_tried_on_top_of_each_other() -> None:
    """A fault that needs a cluster and the epilogue: every plainer kernel has what failed before it."""
    resolution = resolve_file(ROOT / "specs" / "gemm_bf16_bias_gelu_sm90a.yaml")
    tried: list[Mapping[str, Any]] = []

    @contextlib.contextmanager
    def open_spec(data: Mapping[str, Any]) -> Iterator[Attempt]:
        tried.append(data)
        wrong = data["tiling"]["cluster"] != [1, 1] and "bias" in data["tensors"]
        yield lambda case: BAD if wrong else None

    subject = subject_of("gemm_bf16_bias_gelu_sm90a")
    key = next(t.name for t in resolution.resolved.instances if t.candidate.cluster != (1, 1))
    case = Case("ragged", {"m": 65, "n": 72, "k": 72}, "numerics", key)
    shrunk = replace(shrink(subject, case, BAD, failing(lambda s: True)), step="")
    found = bisect_knobs(shrunk, subject, resolution, open_spec)
    outcome = {result.name: result.outcome for result in found.knobs}
    assert outcome["cluster 1x1"] == outcome["no epilogue"] == "passes"
    assert outcome["fewest stages"] == outcome["no programmatic dependent launch"] == "still fails"
    assert tried[-1]["pipeline"]["stages"] == 2  # with what still failed before
    assert "the fault is gone with: cluster 1x1, no epilogue" in [line.strip() for line in found.lines()]


def test_a_file_is_shrunk_without_knobs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """From the command line, in processes of their own: a tail of k that is dropped."""
    pytest.importorskip("torch")
    path = mutate(tmp_path, ("math.ceil(a.shape[1] / tk)", "a.shape[1] // tk"))
    assert main(["check", str(path), "--shrink", "--json"]) == 1
    shrunk = json.loads(capsys.readouterr().out)["checks"][0]["shrunk"]
    assert shrunk["smallest"]["shape"] == {"m": 1, "n": 8, "k": 8}
    assert "this is not one" in shrunk["without"]
    assert main(["check", str(path), "--shrink", "--sanitize", "all"]) == 2
