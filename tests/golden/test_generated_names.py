"""Names of a spec stand beside names of generated source; the spec language refuses those that would clash."""

from __future__ import annotations

import ast
import itertools
from collections.abc import Iterator

import pytest

from cutegen.diagnostics import SpecError
from cutegen.render import render_package
from cutegen.resolve import resolve_document
from cutegen.spec import load_text
from cutegen.spec.names import function_problem, reserved_problem

PROBE = """\
cutegen: 1
kernel: gemm
arch: sm_90a
tensors:
  zqt_a: bf16[{batch}zqd_m, zqd_k]@{major_a}
  zqt_b: bf16[{batch}zqd_n, zqd_k]@{major_b}
  zqt_row: f32[zqd_n]
  zqt_column: bf16[zqd_m]
  zqt_tile: bf16[{batch}zqd_m, zqd_n]
  zqt_host: f32
  zqt_device: f32[]
  zqt_d: bf16[{batch}zqd_m, zqd_n]
  zqt_e: f32[{batch}zqd_m, zqd_n]@{major_d}
mainloop: zqt_a @ zqt_b
epilogue:
  zql_x: max(gelu_tanh(acc + zqt_row), silu(zqt_host), 0)
  zqt_d: zql_x + zqt_tile * zqt_device
  zqt_e: stored(zqt_d) + zqt_column
warpgroups: {{schedule: {schedule}}}
tiling: {{swap_ab: {swap_ab}{split}}}
scheduler: {scheduler}
"""
VARIANTS = [
    PROBE.format(
        schedule=schedule,
        swap_ab=swap_ab,
        split=split,
        scheduler=scheduler,
        batch=batch,
        major_a=a,
        major_b=b,
        major_d=d,
    )
    for (schedule, split, scheduler), swap_ab, batch, (a, b, d) in itertools.product(
        (
            ("cooperative", "", "static_persistent"),
            ("pingpong", "", "dynamic_persistent"),
            ("cooperative", ", split_k: 4, split_k_sum: unordered_atomic", "dynamic_persistent"),
            ("pingpong", ", split_k: 2", "static_persistent"),
            ("cooperative", ", cluster: [1, 1], split_k: 2, split_k_sum: ordered_cluster", "static_persistent"),
        ),
        ("false", "true"),
        ("", "zqd_l, "),
        (("zqd_k", "zqd_k", "zqd_n"), ("zqd_m", "zqd_n", "zqd_m")),
    )
]

# What the probe has not got: pairs of columns and reductions.
GATED = """\
cutegen: 1
kernel: gemm
arch: sm_90a
tensors:
  zqt_a: bf16[zqd_m, zqd_k]
  zqt_b: bf16[zqd_n, zqd_k]
  zqt_row: f32[zqd_n]
  zqt_half: f32[zqd_n/2]
  zqt_e: bf16[zqd_m, zqd_n]
  zqt_r: f32[zqd_m]
  zqt_d: bf16[zqd_m, zqd_n/2]
mainloop: zqt_a @ zqt_b
epilogue:
  zqt_e: acc + zqt_row
  zqt_d: silu(zqt_e[:, 0::2]) * zqt_e[:, 1::2] + zqt_half
  zqt_r: sum(zqt_d2, zqd_n)
  zqt_d2: where(acc[:, 0::2] > 0, acc[:, 1::2], zqt_row[1::2])
warpgroups: {schedule: SCHEDULE}
"""
VARIANTS += [GATED.replace("SCHEDULE", schedule) for schedule in ("cooperative", "pingpong")]

# Neither of them has outputs that are read, inputs with blocks, and such that may be None.
UPDATED = """\
cutegen: 1
kernel: gemm
arch: sm_90a
tensors:
  zqt_a: bf16[zqd_m, zqd_k]
  zqt_b: bf16[zqd_n, zqd_k]
  zqt_s: f32[zqd_m, zqd_n/128]
  zqt_v: f32[ceil(zqd_n/16)]
  zqt_row: f32[zqd_n]?
  zqt_e: f32[zqd_m, zqd_n]
  zqt_d: bf16[zqd_m, zqd_n]
mainloop: zqt_a @ zqt_b
epilogue:
  zqt_e: acc + zqt_e
  zqt_d: (zqt_d + acc + zqt_row) * zqt_s - zqt_v
warpgroups: {schedule: SCHEDULE}
tma: {zqt_e: {store: reduce_add}}
"""
VARIANTS += [UPDATED.replace("SCHEDULE", schedule) for schedule in ("cooperative", "pingpong")]

# A last tile that is loaded and stored in stages of A.
BOXED = """\
cutegen: 1
kernel: gemm
arch: sm_90a
tensors:
  zqt_a: bf16[zqd_l, zqd_m, zqd_k]
  zqt_b: bf16[zqd_n, zqd_k]
  zqt_c: bf16[zqd_l, zqd_m, zqd_n]
  zqt_d: bf16[zqd_l, zqd_m, zqd_n]
mainloop: zqt_a @ zqt_b
epilogue:
  zqt_d: acc + zqt_c
warpgroups: {schedule: SCHEDULE}
"""
VARIANTS += [BOXED.replace("SCHEDULE", schedule) for schedule in ("cooperative", "pingpong")]


def render(text: str) -> dict[str, str]:
    return dict(render_package(resolve_document(load_text(text, "probe"), None).resolved).files)


def scopes(tree: ast.Module) -> Iterator[set[str]]:
    """The names bound or read in each scope, with those of scopes inside a function."""
    for scope in ast.walk(tree):
        if isinstance(scope, (ast.FunctionDef, ast.ClassDef, ast.Lambda)):
            yield set(names(scope, whole=not isinstance(scope, ast.ClassDef)))


def names(node: ast.AST, whole: bool) -> Iterator[str]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Name):
            yield child.id
        elif isinstance(child, ast.arg):
            yield child.arg
        elif isinstance(child, (ast.Import, ast.ImportFrom)):
            yield from ((alias.asname or alias.name).partition(".")[0] for alias in child.names)
        elif isinstance(child, (ast.FunctionDef, ast.ClassDef)):
            yield child.name
            if not whole:
                continue
        yield from names(child, whole)


def test_names_that_would_clash_are_refused() -> None:
    free: dict[str, set[str]] = {"dim": set(), "tensor": set()}
    for files in map(render, VARIANTS):
        for scope in (s for text in files.values() for s in scopes(ast.parse(text))):
            generated = {name for name in scope if "zq" not in name}
            for kind, prefixes in (("dim", ("zqd_",)), ("tensor", ("zqt_", "zql_"))):
                if any(name.startswith(prefixes) for name in scope):
                    free[kind] |= {name for name in generated if not reserved_problem(name, dim=kind == "dim")}
    # The two of a pair are refused in gated products alone: problems/gated_tensors.yaml; `out` where it is an operand.
    assert free == {"dim": set(), "tensor": {"acc_0", "acc_1", "out"}}


def test_functions_of_packages_hide_no_name_of_a_kernel_module() -> None:
    for files in map(render, VARIANTS):
        for node in ast.parse(files["kernel.py"]).body:
            if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
                found = {node.name}
            elif isinstance(node, (ast.Import, ast.ImportFrom)):
                found = {(alias.asname or alias.name).partition(".")[0] for alias in node.names}
            else:
                found = {name.id for name in ast.walk(node) if isinstance(name, ast.Name)}
            assert {name for name in found if not function_problem(name)} == set()


@pytest.mark.parametrize("extra", ["m_d", "s_d", "tma_d", "s_d_layout"])
def test_names_that_are_made_from_others_are_refused(extra: str) -> None:
    text = VARIANTS[0].replace("zqt_d", "d").replace("zqt_host", extra)
    with pytest.raises(SpecError) as caught:
        render(text)
    assert [d.rule for d in caught.value.diagnostics] == ["name-collision"]


@pytest.mark.parametrize("names", ["abcdefg", "ABCDEFG", "dcbaefg", "mnkldxy"])
def test_short_names_never_clash(names: str) -> None:
    """Operands may have each other's usual names; every file still compiles."""
    text = VARIANTS[15].replace("zqd_", "dim_")
    for tensor, name in zip(("a", "b", "row", "column", "tile", "host", "device"), names):
        text = text.replace(f"zqt_{tensor}", name)
    for file, source in render(text).items():
        compile(source, file, "exec")
