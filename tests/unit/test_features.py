"""Features of a GEMM: each is a folder that feature_list.py has, and nothing else of the family knows it by name."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from test_imports import MODULES, imports, prefixed

from cutegen.families.declared_knobs import DeclaredKnob, extend_section, insert_knobs, insert_structural
from cutegen.families.gemm.candidate import FEATURE_KNOBS, KNOBS, STRUCTURAL, Candidate
from cutegen.families.gemm.features.feature_list import FEATURES
from cutegen.families.gemm.spec import GemmSpec, Tma
from cutegen.families.knobs import Knob, integer
from cutegen.spec.base import Positive, Section, knob

PACKAGE = "cutegen.families.gemm.features"
FOLDERS = sorted(path.parent.name for path in Path(__file__).parents[2].glob("cutegen/families/gemm/features/*/*.py"))
TEXT = "cutegen.families.gemm.text"  # facts of features for the templates
# What lists features, what has the fields of their knobs, what reads the sections of a spec, and what an architecture
# adds to the rules of one.
KNOWING = (
    f"{PACKAGE}.feature_list",
    *(f"cutegen.families.gemm.{name}" for name in ("candidate", "binding", "lowering.sm120.rules")),
)


def test_every_folder_is_registered() -> None:
    assert {type(feature).__module__.split(".")[-2] for feature in FEATURES} == set(FOLDERS)


@pytest.mark.parametrize("folder", dict.fromkeys(FOLDERS))
def test_no_other_module_imports_a_feature(folder: str) -> None:
    own = f"{PACKAGE}.{folder}"
    found = {n for n, path in MODULES.items() for i in imports(path) if prefixed(i, own) and not prefixed(n, own)}
    assert {n for n in found if not prefixed(n, TEXT)} <= set(KNOWING)


def test_a_declared_knob_is_one_of_the_family() -> None:
    for one in FEATURE_KNOBS:
        field, fields = one.knob.field, [k.field for k in KNOBS]
        assert fields.index(field) == fields.index(one.after) + 1
        assert (field in STRUCTURAL) == bool(one.text_after)
        assert field in {f.name for f in dataclasses.fields(Candidate)}
        keys = _keys(one.knob.path[0])
        assert keys.index(one.knob.path[-1]) == keys.index(one.follows) + 1
        assert not one.exchanged or one.exchanged in fields


def _keys(section: str) -> list[str]:
    """Of a section, or of those by tensor."""
    return list((Tma if section == "tma" else type(GemmSpec.model_fields[section].default)).model_fields)


class Shape(Section):
    """How it is cut."""

    width: Positive = knob("How wide.")
    depth: Positive = knob("How deep.")


def declare(after: str, text_after: str = "") -> DeclaredKnob:
    read = Knob("height", "shape.height", integer())
    return DeclaredKnob(read, Positive, "How high.", follows=after, after=after, text_after=text_after)


def test_a_knob_stands_where_it_is_declared() -> None:
    table = [Knob("width", "shape.width", integer()), Knob("depth", "shape.depth", integer())]
    assert [k.field for k in insert_knobs(table, [declare("width")])] == ["width", "height", "depth"]
    assert insert_structural(["a", "b"], [declare("width", "a")]) == ("a", "height", "b")
    assert insert_structural(["a", "b"], [declare("width")]) == ("a", "b")
    made = extend_section("shape", [declare("width")])(Shape)
    assert list(made.model_fields) == ["width", "height", "depth"]
    assert (made.__name__, made.__doc__) == ("Shape", Shape.__doc__)
    assert made.model_fields["height"].description == "How high."
    assert made.model_validate({"height": 3}).height == 3  # type: ignore[attr-defined]
    assert list(extend_section("other", [declare("width")])(Shape).model_fields) == ["width", "depth"]


def test_a_knob_behind_none_is_refused() -> None:
    for insert in (
        lambda one: insert_knobs([], [one]),
        lambda one: insert_structural([], [one]),
        lambda one: extend_section("shape", [one])(Shape),
    ):
        with pytest.raises(KeyError, match="absent"):
            insert(declare("absent", "absent"))
