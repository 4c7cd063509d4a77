"""Parameters that a template states once: as they are declared, and what they are given."""

from __future__ import annotations

import pytest
from jinja2 import DictLoader

from cutegen.render.environment import TemplateEnvironment
from cutegen.render.params import declared, values

PARAMS = """\
mma: cute.TiledMma

mA_mk: cute.Tensor = a
atom: cute.CopyAtom | None  # None where a tile is always loaded whole

s_r: cute.Tensor = storage.s_r.get_tensor(cute.make_layout((1, t.consumers)))  # (bN, warps)
"""


def test_a_declaration_has_no_value() -> None:
    assert declared(PARAMS).split("\n") == [
        "mma: cute.TiledMma",
        "mA_mk: cute.Tensor",
        "atom: cute.CopyAtom | None  # None where a tile is always loaded whole",
        "s_r: cute.Tensor  # (bN, warps)",
    ]


def test_what_has_no_value_is_given_the_variable_of_its_name() -> None:
    layout = "storage.s_r.get_tensor(cute.make_layout((1, t.consumers)))"
    assert values(PARAMS) == ["mma", "a", "atom", layout]


@pytest.mark.parametrize("text", ["", "\n\n"])
def test_no_parameters(text: str) -> None:
    assert (declared(text), values(text)) == ("", [])


def test_a_macro_of_parameters_makes_a_class_and_a_call() -> None:
    environment = TemplateEnvironment()
    environment.loader = DictLoader(
        {
            "t": """\
{% macro load() %}
{% if split %}
split: KSplit
{% endif %}
k_tiles: Int32 = Int32(k)
{% endmacro %}
    {{ load() | declared | indent }}
Params({{ load() | values | join(", ") }})"""
        }
    )
    assert environment.get_template("t").render(split=True) == (
        "    split: KSplit\n    k_tiles: Int32\nParams(split, Int32(k))"
    )
    assert environment.get_template("t").render(split=False) == "    k_tiles: Int32\nParams(Int32(k))"
