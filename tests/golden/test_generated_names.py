"""Names of a spec stand beside names of generated source: the table of these is what modules bind, and what it has is
refused with its place."""

from __future__ import annotations

import ast
from collections.abc import Callable
from pathlib import Path

import generated_names
import pytest
from gemm_specs import BLOCKS, COUNTS, FUSED, LABELS, OFFSETS, PLAIN, gathered, group_scaled, resolve_text
from template_branches import all_branches, visited_branches

from cutegen.diagnostics import SpecError
from cutegen.families.generated_names import find_clashes, table_path
from cutegen.families.registry import FAMILIES
from cutegen.render import render_package
from cutegen.spec import load_text

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("family", FAMILIES)
def test_the_table_is_what_modules_bind(family: str, golden: Callable[[Path, str], None]) -> None:
    golden(table_path(family), generated_names.table_text(family))


# Of calls that a lock has winners for: extents alone.
NO_NAMES = {
    "gemm": set(),
    "mla_decode": {"mla_decode/plan.py.jinja:35", "mla_decode/plan.py.jinja:86"},
    "rowwise": {f"rowwise/plan.py.jinja:{line}" for line in (23, 57, 60)},
}


@pytest.mark.parametrize("family", FAMILIES)
def test_every_branch_of_a_template_is_among_what_the_table_is_collected_from(family: str) -> None:
    missed = all_branches(family) - visited_branches(generated_names.probes(family))
    assert missed == NO_NAMES[family]


REDUCED = (ROOT / "specs" / "gemm_bf16_rms_sm90a.yaml").read_text(encoding="utf-8")
COPIED = gathered(LABELS, "copy")
# A spec, one of its names, another name, and the line and column that the finding names.
COLLISIONS = {
    "layout_of_an_output": (FUSED, "bias", "d_layout", "7:3"),
    "counters_of_a_reduction": (REDUCED, "residual", "arrivals", "8:3"),
    "ctas_of_the_copy": (COPIED, "a", "ctas", "5:3"),
    "threads_of_the_copy": (COPIED, "a", "THREADS", "5:3"),
    "module_of_groups": (OFFSETS, "a", "row_groups", "5:3"),
    "members_tensor": (LABELS, "group", "members", "7:3"),
    "members_local": (LABELS + "epilogue: {x: acc + 1, d: x}\n", "x", "members", "10:12"),
    "function_of_the_reference_of_groups": (LABELS, "group", "multiply_members", "7:3"),
    "function_of_the_reference_of_blocks": (BLOCKS, "sa", "spread_blocks", "7:3"),
    "function_of_the_reference_of_gathered_rows": (COPIED, "rows", "take_rows", "6:3"),
    "function_of_the_reference_as_a_local": (BLOCKS + "epilogue: {x: acc + 1, d: x}\n", "x", "spread_blocks", "11:12"),
    "blocks_rounded_up": (BLOCKS, "m", "k_over_128_up", "5:11"),
    "blocks_of_columns": (BLOCKS.replace("ceil(n/128)", "n/128"), "m", "n_over_128", "5:11"),
    "blocks_of_pairs_of_columns": (
        PLAIN.replace("m, n]", "m, n/2]") + "epilogue: {d: 'acc[:, :n/2] * acc[:, n/2:]'}\n",
        "m",
        "n_over_2",
        "5:11",
    ),
    "tile_of_an_output": (FUSED, "bias", "tma_atom_D", "7:3"),
    "half_of_a_pair": (FUSED, "bias", "residual_0", "7:3"),
    "value_before": (FUSED.replace("+ residual", "+ residual + d"), "bias", "d_old", "7:3"),
    "copy_of_gathered_rows": (COPIED, "rows", "copied_a", "6:3"),
}


@pytest.mark.parametrize("case", COLLISIONS)
def test_collisions_are_refused_where_they_stand(case: str) -> None:
    text, old, new, place = COLLISIONS[case]
    generated = generated_names.with_names(text, {old: new})
    resolve_text(generated_names.with_names(text, {old: f"free_{old}"}))
    with pytest.raises(SpecError) as caught:
        resolve_text(generated)
    found = caught.value.diagnostics
    assert {d.rule for d in found} <= {"reserved-name", "name-collision"}
    assert new in found[0].message
    assert str(found[0].location) == f"product.yaml:{place}"


def test_a_name_that_two_others_make_together_is_refused() -> None:
    names = [("x", "input"), ("y", "input"), ("x_without_y", "input")]
    assert [clash.name for clash in find_clashes("gemm", names)] == ["x_without_y"]
    assert not list(find_clashes("gemm", names[:2]))


def test_what_is_common_in_specs_is_free() -> None:
    """The table refuses what clashes, not what merely occurs somewhere in generated source."""
    dims = ("m", "n", "k", "l", "b", "e", "batch", "groups", "rows", "columns", "tokens", "hidden", "experts", "heads")
    tensors = (
        "a b c d x y w q v r s bias scale residual weight group gate up index mask alpha beta out output input norm"
    )
    tensors = (*tensors.split(), "row", "column", "amax")
    names = [*((dim, "dim") for dim in dims if dim not in tensors), *((name, "updated") for name in tensors)]
    assert list(find_clashes("gemm", names)) == []


@pytest.mark.parametrize("form", [PLAIN, FUSED, LABELS, COUNTS, OFFSETS, BLOCKS, group_scaled(LABELS), COPIED])
@pytest.mark.parametrize("names", ["abcdefg", "ABCDEFG", "dcbaefg", "mnkldxy", "dDaAbBx"])
def test_short_names_never_clash(form: str, names: str) -> None:
    """Operands may have each other's usual names, and names that differ in case alone; every file still compiles."""
    kinds = generated_names.spec_kinds(load_text(form, "probe"))
    dims = {name: f"dim_{name}" for name, kind in kinds.items() if kind == "d"}
    tensors = dict(zip((name for name, kind in kinds.items() if kind != "d"), names))
    package = render_package(resolve_text(generated_names.with_names(form, dims | tensors)).resolved)
    for file, source in package.files.items():
        compile(ast.parse(source), file, "exec")
