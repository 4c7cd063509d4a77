"""Which thread has an element of a row: what reports of wrong results and `check --shrink` name."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from gemm_specs import resolve_text as resolve
from row_specs import FORMS

from cutegen.diagnostics import SpecError
from cutegen.families.registry import load_proving, load_shrinking
from cutegen.render import render_package, write_package
from cutegen.run.subject import load_subject

pytest.importorskip("torch")
# Form of rows, extent of a row, and by output the columns of a place of it.
WHOLE = {"halves": ("y", 176), "pairs": ("y", 96), "blocks": ("y", 3000)}


@pytest.fixture(scope="module", params=["halves", "pairs", "blocks", "gated_blocks"])
def form(request: Any, tmp_path_factory: Any) -> tuple[str, Any]:
    folder: Path = tmp_path_factory.mktemp(request.param)
    resolved = resolve(FORMS[request.param]).resolved
    write_package(render_package(resolved), folder)
    return request.param, load_subject(folder / resolved.name).plan


def loads(form: str, threads: int, vector: int, columns: int) -> dict[int, tuple[int, int, int]]:
    """(element, load, thread) by column, as fetch and fetch_pairs of device/rowwise/row_values.py read them: vector i
    of a thread is number thread + i * threads."""
    found = {}
    for column in range(columns):
        if form == "pairs":
            element = column // (2 * vector) * vector + column % (2 * vector) // 2
        else:
            element = column if form == "blocks" else column % (columns // 2)
        number, lane = divmod(element, vector)
        found[column] = (lane, number // threads, number % threads)
    return found


def test_a_wrong_result_is_in_the_thread_that_stores_it(form: tuple[str, Any]) -> None:
    name, plan = form
    proving = load_proving(plan.family, "proving")
    for output, arg in enumerate(plan.outputs):
        for key, t in plan.tilings.items():
            columns = WHOLE.get(name, ("", 4096))[1]
            held = loads(name, t.threads, t.vector, columns)
            *rows, last = arg.dims
            places: dict[int, int] = {}  # by place of the output its column, or its first
            if last == plan.columns:
                places = {c: c for c in range(columns)}
            elif last == f"{plan.columns}/2":
                places = {c: 2 * c if name == "pairs" else c for c in range(columns // 2)}
            elif "/" in last:
                size = int(re.sub(r"\D", "", last.partition("/")[2]))
                places = {i: i * size // (1 + (name == "gated_blocks")) for i in range(columns // size)}
            shape = (*(3 for _ in rows), len(places))
            for place, column in places.items():
                lane, load, thread = held[column]
                said = proving.locate(plan, output, shape, (*(0 for _ in rows), place), t)
                assert said == f"element {lane} of load {load % t.vectors} of thread {thread}", (arg, key, place)
            if not places:
                assert proving.locate(plan, output, (3,) * len(arg.dims), (0,) * len(arg.dims), t) == "thread 0"


def test_steps_have_the_columns_of_their_loads_and_each_column_one(form: tuple[str, Any]) -> None:
    name, plan = form
    shrinking = load_shrinking(plan.family)
    if name == "gated_blocks":  # no row is reduced
        assert shrinking.count_steps(plan, {"m": 1, "n": 4096}, "default") == 0
        return
    columns = WHOLE[name][1]
    for key, t in plan.tilings.items():
        dims = {plan.columns: columns}
        held, seen = loads(name, t.threads, t.vector, columns), []
        for step in range(shrinking.count_steps(plan, dims, key)):
            said = shrinking.describe_step(plan, dims, key, step)
            for first, last in re.findall(r"(\d+) to (\d+)", said):
                seen += range(int(first), int(last) + 1)
                assert {held[c][1] for c in range(int(first), int(last) + 1)} == {step}
            assert said.startswith(f"load {step % t.vectors} of each thread (")
        assert sorted(seen) == [*range(columns)]


def test_an_optional_output_of_blocks_is_refused_as_other_outputs_are() -> None:
    with pytest.raises(SpecError) as refused:
        resolve(FORMS["block_values"].replace("f32[m, n/64]'}", "f32[m, n/64]?'}"))
    assert [(f.rule, f.location.line) for f in refused.value.diagnostics] == [("not-yet-supported", 4)]
