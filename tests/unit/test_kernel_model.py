"""A kernel's model states each fact once: what the generated module has of roles, barriers, pipelines and shared memory
is what the model says, and its words and numbers agree."""

from __future__ import annotations

import ast
import functools
import operator
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from gemm_specs import EDGES, resolve_text

from cutegen.families.registry import load_family
from cutegen.model.kernel import Event, KernelModel, NamedBarrier, Pipeline, Role, Warps, list_waits
from cutegen.model.timeline import draw_timeline, list_steps
from cutegen.resolve import resolve_file

ROOT = Path(__file__).parents[2]
SPECS = sorted((ROOT / "specs").glob("*.yaml"))
# All warps of a row kernel do the same: it has no roles.
SPECS = [p for p in SPECS if not p.name.endswith(".lock.yaml") and "kernel: rowwise" not in p.read_text("utf-8")]
OPERATORS = {ast.Add: operator.add, ast.Mult: operator.mul, ast.FloorDiv: operator.floordiv}
BARRIER = re.compile(r"barrier_id=(\w+)(?: \+ [^,]+)?, number_of_threads=([\w. *]+)\)")


def evaluate(source: str, names: dict[str, Any]) -> int | None:
    """The value of an expression of the kernel; None where it calls a function."""

    def value(node: ast.expr) -> Any:
        if isinstance(node, ast.Constant):
            return node.value
        if isinstance(node, ast.Name):
            return names[node.id]
        if isinstance(node, ast.Attribute):
            return getattr(value(node.value), node.attr)
        if isinstance(node, ast.Subscript):
            return value(node.value)[value(node.slice)]  # type: ignore[arg-type]
        assert isinstance(node, ast.BinOp), ast.dump(node)
        return OPERATORS[type(node.op)](value(node.left), value(node.right))

    tree = ast.parse(source, mode="eval").body
    outside = any(
        isinstance(n, ast.Call) or (isinstance(n, ast.Attribute) and not names_of(n) <= names.keys())
        for n in ast.walk(tree)
    )
    return None if outside else int(value(tree))


def names_of(node: ast.AST) -> set[str]:
    return {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}


def resolved_specs() -> Iterator[Any]:
    for path in SPECS:
        yield pytest.param(path, id=path.stem)
    for name in EDGES:
        yield pytest.param(name, id=name)


@functools.cache
def prepare(given: Path | str) -> tuple[Any, dict[str, str]]:
    """The resolved kernel, and the modules of its package."""
    resolved = (resolve_file(given) if isinstance(given, Path) else resolve_text(EDGES[given])).resolved
    return resolved, load_family(resolved.family).render(resolved)


@pytest.fixture(params=resolved_specs())
def prepared(request: pytest.FixtureRequest) -> tuple[Any, dict[str, str]]:
    return prepare(request.param)


def test_sources_have_the_value_of_their_numbers(prepared: tuple[Any, dict[str, str]]) -> None:
    resolved, _ = prepared
    computed = 0
    for tiling in resolved.tilings:
        model, names = tiling.model, constants(resolved, tiling)
        pairs = [(r.field.elements, r.field.source) for r in model.smem]
        pairs += [(a.count, a.source) for p in model.pipelines if p.made for a in (p.made.full, p.made.empty)]
        pairs += [(p.stages, p.made.stages) for p in model.pipelines if p.made]
        pairs += [(p.stage_bytes, p.made.tx) for p in model.pipelines if p.made]
        for number, source in pairs:
            found = evaluate(source, names)
            computed += found is not None
            assert found in (None, number), (tiling.name, source)
    assert computed >= 2 * len(resolved.tilings)


def constants(resolved: Any, tiling: Any) -> dict[str, Any]:
    from cutegen.families.mla_decode.derived import query_rows
    from cutegen.runtime.mla_decode.tiling import KEY_BLOCK, ROW_BLOCK

    names: dict[str, Any] = {"t": tiling.numbers, "KEY_BLOCK": KEY_BLOCK, "ROW_BLOCK": ROW_BLOCK}
    if resolved.family == "mla_decode":
        rows = query_rows(resolved.problem, tiling.candidate)
        return {**names, "TILES": resolved.problem.head_dim // 64, "ROWS": rows}
    groups = next((r.field for r in tiling.model.smem if r.name == "group_table"), None)
    return {**names, "GROUPS": groups and groups.elements // int(groups.source.split(" * ")[1])}


def test_modules_have_what_their_models_say(prepared: tuple[Any, dict[str, str]]) -> None:
    """Numbers of warps and barriers, threads that meet, fields of SharedStorage: of each module, by the model of its
    first tiling."""
    resolved, texts = prepared
    first: dict[str, Any] = {}
    for tiling in resolved.tilings:
        first.setdefault(f"{tiling.module}.py", tiling)
    for module, tiling in first.items():
        text, model, t = texts[module], tiling.model, tiling.numbers
        storage = re.findall(r"^            (\w+): cute\.struct\.(?:MemRange|Align)", text, re.MULTILINE)
        assert storage == [r.name for r in model.smem]
        barriers = {b.family or b.name: b for b in reversed(model.barriers)}  # of a family the first
        for name, barrier in barriers.items():
            assert re.search(rf"^{name} = {barrier.id}\b", text, re.MULTILINE)
        used, own = BARRIER.findall(text), module_constants(text)
        for name, threads in used:
            if name in barriers:
                assert evaluate(threads, {"t": t, **own}) == barriers[name].threads, name
        assert {name for name, _ in used} <= barriers.keys() | {"CHECKED", "FREED"}
        assert text.count("PipelineTmaAsync.create(") == sum(p.made is not None for p in model.pipelines)
        assert_roles_are_taken(text, model, t.threads)


def module_constants(text: str) -> dict[str, int]:
    """Numbers that a module names at its top."""
    found: dict[str, int] = {}
    for node in ast.parse(text).body:
        if isinstance(node, ast.Assign):
            names = [n.id for n in ast.walk(node.targets[0]) if isinstance(n, ast.Name)]
            values = [n.value for n in ast.walk(node.value) if isinstance(n, ast.Constant)]
            found |= {name: value for name, value in zip(names, values) if isinstance(value, int)}
    return found


def assert_roles_are_taken(text: str, model: KernelModel, threads: int) -> None:
    """Every warp has one role, and the warps that the kernel compares with are the first ones of roles."""
    warps = [w for role in model.roles for w in range(role.warps.first, role.warps.last + 1)]
    assert sorted(warps) == list(range(threads // 32))
    own = module_constants(text)
    compared = {evaluate(n, own) for n in re.findall(r"if warp (?:==|>=|<) (\w+):", text)}
    assert compared
    assert compared <= {role.warps.first for role in model.roles}


def test_every_role_and_pipeline_is_in_the_header(prepared: tuple[Any, dict[str, str]]) -> None:
    resolved, texts = prepared
    text = texts[f"{resolved.tilings[0].module}.py"]
    header = " ".join((ast.get_docstring(ast.parse(text)) or "").split())
    model = resolved.tilings[0].model
    for role in model.roles:
        assert f"{role.name} {role.warps.span} {role.does}" in header
    for pipe in model.pipelines:
        assert f"full: {pipe.full} empty: {pipe.empty}" in header


def test_what_one_waits_for_another_signals(prepared: tuple[Any, dict[str, str]]) -> None:
    resolved, _ = prepared
    for tiling in resolved.tilings:
        waited, signalled = set(), set()
        for _, waits, signals in list_waits(tiling.model):
            waited |= set(waits)
            signalled |= set(signals)
        alone = {b.name for b in tiling.model.barriers if not b.arrive}  # all who come wait
        alone |= {f"{p.name} {side}" for p in tiling.model.pipelines if not p.drains for side in ("empty", "full")}
        assert waited ^ signalled <= alone


def test_the_timeline_has_what_roles_wait_for_and_signal(prepared: tuple[Any, dict[str, str]]) -> None:
    """All of it; what one role waits for another one signals to it."""
    resolved, texts = prepared
    for tiling in resolved.tilings:
        model = tiling.model
        steps = {role.name: tuple(list_steps(model, role)) for role in model.roles}
        for role, waits, signals in list_waits(model):
            assert {s.waits for s in steps[role.name]} - {""} == set(waits), role.name
            assert {s.signals for s in steps[role.name]} - {""} == set(signals), role.name
        waited = {(s.waits, who) for who, own in steps.items() for s in own if s.waits}
        for signal, whom in {(s.signals, s.signals_to) for own in steps.values() for s in own if s.signals}:
            listed = {re.sub(r"^(?:consumers )?(?=\d)", "consumer ", name) for name in whom.split(", ")}
            assert {(signal, name) for name in listed & steps.keys()} <= waited, (signal, whom)
    header = ast.get_docstring(ast.parse(texts[f"{resolved.tilings[0].module}.py"])) or ""
    _, *drawn = draw_timeline(resolved.tilings[0].model)
    assert "\n".join(drawn) in header


def test_a_timeline_is_drawn() -> None:
    """Time goes down, a loop is named once, and warps that do the same refer to those before."""
    load, *groups = Warps("load warp", 0), Warps("consumer 0", 4, 4), Warps("consumer 1", 8, 4)
    words = ("", "", 2, 64, "", "")
    ring = Pipeline("ab", "TmaAsync", *words, (load,), tuple(groups), each="each k tile")
    out = Pipeline("out", "TmaStore", "", "TMA", *words[2:], tuple(groups), (), each="each subtile")
    staged = NamedBarrier(1, "STAGED", (), tuple(groups), "", within="out")
    roles = tuple(Role(warps, 40, "") for warps in (load, Warps("idle warps", 1, 3), *groups))
    assert list(draw_timeline(KernelModel(roles, (ring, out), (), barriers=(staged,)))) == [
        "Timeline of a tile (<- waits for, -> signals):",
        "  load warp   each k tile   ab empty  <- consumers 0, 1  ab full  -> consumers 0, 1",
        "  consumer 0  each k tile   ab full   <- load warp       ab empty -> load warp",
        "              each subtile  out empty <- TMA",
        "                            STAGED    <- consumers 0, 1  out full -> TMA",
        "  consumer 1  as consumer 0",
    ]
    told = (Event("", True, "STAGED"), Event("each tile", True, "ab full"), Event("each tile", False, "ab empty"))
    ordered = (roles[0], Role(groups[0], 40, "", told), roles[3])
    assert list(draw_timeline(KernelModel(ordered, (ring,), (), barriers=(staged,)), "a launch"))[2:4] == [
        "  consumer 0               STAGED   <- consumer 1",
        "              each tile    ab full  <- load warp       ab empty -> load warp",
    ]
    silent = Role(groups[1], 40, "", (Event("", True, "STAGED"),))  # it never waits for the ring
    filling = Role(load, 40, "", (Event("", False, "ab full"),))
    (fill,) = list_steps(KernelModel((filling, ordered[1], silent), (ring,), (), barriers=(staged,)), filling)
    assert fill.signals_to == "consumer 0"
    turns = tuple(NamedBarrier(2 + w, f"TURN_{w}", (groups[1 - w],), (groups[w],), "", around=("ab",)) for w in (0, 1))
    first = list_steps(KernelModel(roles, (ring, out), (), barriers=turns), roles[2])
    assert [(step.waits, step.signals) for step in first] == [
        ("TURN_0", ""), ("ab full", "ab empty"), ("", "TURN_1"), ("out empty", "out full")
    ]  # fmt: skip
