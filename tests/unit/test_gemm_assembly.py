"""Several instances of one spec: their modules, names, dispatch, and the package that holds them."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pytest
from gemm_specs import PLAIN, bind_text, candidate, resolve_text

from cutegen.families.gemm.assembly import assemble
from cutegen.families.gemm.resolve import resolve
from cutegen.families.resolved import When, dispatch
from cutegen.render import render_package, write_package
from cutegen.spec import load_text, parse_spec

PINGPONG = {"schedule": "pingpong", "tile": (128, 128, 64), "stages": 5}
FLAT = {"tile": (64, 256, 64), "consumers": 1, "cluster": (1, 1), "multicast_b": 1}
SMALL: When = (("m", "<=", 64),)
MEDIUM: When = (("n", "==", 4096), ("k", "==", 1024), ("m", ">", 64), ("m", "<=", 512))


def test_instances_that_share_structure_share_a_module() -> None:
    problem = bind_text(PLAIN)
    default, flat, pingpong = (candidate(problem, **knobs) for knobs in ({}, FLAT, PINGPONG))
    kernels, rows = assemble(problem, default, [(SMALL, flat), (MEDIUM, pingpong)])
    assert {k.module: [t.name for t in k.tilings] for k in kernels} == {
        "kernel": ["t128x256x64", "t64x256x64"],
        "kernel_pingpong": ["t128x128x64_pingpong"],
    }
    assert [t.module for k in kernels for t in k.tilings] == ["kernel", "kernel", "kernel_pingpong"]
    assert [row.tiling for row in rows] == ["t64x256x64", "t128x128x64_pingpong", "t128x256x64"]
    for m, n, k, name in (
        (64, 8, 8, "t64x256x64"),
        (65, 4096, 1024, "t128x128x64_pingpong"),
        (65, 4096, 1032, "t128x256x64"),
        (513, 4096, 1024, "t128x256x64"),
    ):
        assert dispatch(rows, {"m": m, "n": n, "k": k}) == name


def test_equal_candidates_are_one_instance_and_near_ones_are_told_apart() -> None:
    problem = bind_text(PLAIN)
    default = candidate(problem)
    others = [candidate(problem, stages=3), candidate(problem, stages=3, raster_group=4)]
    kernels, rows = assemble(problem, default, [(SMALL, default), *((SMALL, c) for c in others)])
    assert [t.name for k in kernels for t in k.tilings] == [
        "t128x256x64",
        "t128x256x64_stages_3",
        "t128x256x64_stages_3_raster_group_4",
    ]
    assert rows[0].tiling == rows[-1].tiling == "t128x256x64"


def test_a_name_that_is_taken_by_one_that_differs_more_is_told_apart_by_what_the_default_has() -> None:
    problem = bind_text(PLAIN)
    default = candidate(problem)
    alone = {"cluster": (1, 1), "multicast_b": 1}
    others = [candidate(problem, tile=(128, 128, 64), **knobs) for knobs in (alone, {}, {"stages": 3})]
    kernels, _ = assemble(problem, default, [(SMALL, c) for c in others])
    assert [t.name for k in kernels for t in k.tilings][1:] == [
        "t128x128x64",
        "t128x128x64_cluster_2x1",
        "t128x128x64_stages_3",
    ]


NO_PDL = {"pdl_wait": False, "pdl_trigger": "none"}


@pytest.mark.parametrize(
    ("default", "other", "word"),
    [
        ({}, NO_PDL, "no_pdl"),
        (NO_PDL, {}, "pdl"),
        ({}, {"pdl_wait": False}, "no_pdl_wait"),
        ({}, {"pdl_trigger": "none"}, "trigger_none"),
        ({"pdl_trigger": "none"}, {"pdl_wait": False}, "no_pdl_wait_trigger_last_tile"),
        ({"pdl_trigger": "none"}, NO_PDL, "no_pdl_wait"),
    ],
)
def test_programmatic_launch_is_named_where_it_is_not_the_defaults(
    default: dict[str, Any], other: dict[str, Any], word: str
) -> None:
    problem = bind_text(PLAIN)
    kernels, _ = assemble(problem, candidate(problem, **default), [(SMALL, candidate(problem, **other))])
    assert [(k.module, k.tilings[0].name) for k in kernels] == [
        ("kernel", "t128x256x64"),
        (f"kernel_{word}", f"t128x256x64_{word}"),
    ]


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    document = load_text(PLAIN + "portfolio: 1\n", "two_schedules", "two_schedules.yaml")
    spec, problem = parse_spec(document), bind_text(PLAIN)
    rows = [(SMALL, candidate(problem, **FLAT)), (MEDIUM, candidate(problem, **PINGPONG))]
    rendered = render_package(resolve(spec, document, problem, {}, rows=rows).resolved)  # type: ignore[arg-type]
    write_package(rendered, tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    return rendered, importlib.import_module("two_schedules")


def test_a_package_has_a_module_for_each_structure(package: Any) -> None:
    rendered, _ = package
    assert {"kernel.py", "kernel_pingpong.py"} <= set(rendered.files)
    assert "TURN" in rendered.files["kernel_pingpong.py"]
    assert "TURN" not in rendered.files["kernel.py"]


def test_each_instance_is_compiled_from_its_module(package: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    _, module = package
    plan = importlib.import_module("two_schedules.plan")
    asked: list[tuple[str, tuple[int, ...]]] = []
    monkeypatch.setattr(plan, "load_kernel", lambda name, tiling, arch: asked.append((name, tiling.tile)))
    for key in module.PLAN.tilings:
        module.PLAN.compile(key)
    assert asked == [
        ("two_schedules.kernel", (128, 256, 64)),
        ("two_schedules.kernel", (64, 256, 64)),
        ("two_schedules.kernel_pingpong", (128, 128, 64)),
    ]


def test_comments_of_a_module_say_what_its_spec_made_of_it() -> None:
    """Modes of a gated output and of scratch, the only consumer's rows, and what a module does without."""
    gated = PLAIN.replace("d: bf16[m, n]", "d: bf16[m, n/2]") + "epilogue: {d: 'acc[:, 0::2] * acc[:, 1::2]'}\n"
    split = PLAIN + "tiling: {tile: [64, 64, 64], split_k: 4}\nwarpgroups: {consumer: {count: 1}}\n"
    optional = PLAIN + "  bias: f32[n]?\nepilogue: {d: acc + bias}\n"
    texts = [render_package(resolve_text(spec).resolved).files for spec in (gated, split, optional)]
    assert "mD_mn: cute.Tensor  # (m, n/2)" in texts[0]["kernel.py"]
    assert "workspace: cute.Tensor  # flat: (4, threads, vectors, parts - 1, tiles)" in texts[1]["kernel.py"]
    assert "all rows of the tile: MMA" in texts[1]["kernel.py"]
    assert "For calls without bias." in texts[2]["kernel_without_bias.py"]
    assert "For calls without" not in texts[2]["kernel.py"]


def test_the_compiler_is_told_constants_but_not_extents_of_1() -> None:
    """It would drop a mode of extent 1 from a TMA instruction, whose tensor map has it."""
    text = render_package(resolve_text(PLAIN + "dims: {m: 1, n: 512}\n").resolved).files["kernel.py"]
    assert 'm = cute.sym_int(symbol="m")' in text
    assert "(m, 512)" in text
