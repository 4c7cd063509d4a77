"""What the house costs its readers falls, or stays: the figures of tests/measures.py and their definitions."""

from __future__ import annotations

from measures import HELD, figure, find_fragments, measure

from cutegen.render.tracing import Field, Part, Source


def test_no_figure_has_risen() -> None:
    """A figure that has fallen may be lowered in HELD, where a change that raises one has to say why."""
    found = {name: figure(value) for name, value in measure().items()}
    assert found.keys() == HELD.keys()
    assert {name: (value, HELD[name]) for name, value in found.items() if value > HELD[name]} == {}


def fragments(*lines: str) -> set[str]:
    """Names of fields that hold fragments; ⟦NAME:value⟧ is a value of the field NAME."""
    parsed = []
    for line in lines:
        parts = []
        for piece in line.replace("⟦", "\0⟦").replace("⟧", "\0").split("\0"):
            name, _, value = piece[1:].partition(":")
            source = Source("t", 1, name, (Field("m", "T", name),))
            parts.append(Part(value, source) if piece[:1] == "⟦" else Part(piece, Source("t", 1)))
        parsed.append(parts)
    return {field.name for field in find_fragments(parsed)}


def test_what_a_fragment_is() -> None:
    assert fragments("x = ⟦name:sA⟧[⟦number:-1.5e3⟧]  # ⟦note:(bM, bK)⟧", "y = ⟦text:'a b'⟧") == set()
    assert fragments("x = ⟦source:o.mA⟧ + f(⟦index:n * t.tile[1]⟧)") == {"source", "index"}
    assert fragments('def f(⟦argument:acc: Float32⟧, s="⟦said:a b⟧"):', "    ⟦line:d = acc⟧") == {"argument", "line"}
    assert fragments('"""⟦title:a x b⟧', "⟦more:and b x c⟧", '"""', "⟦statement:import a⟧") == {"statement"}
    assert fragments('x = """⟦inside:a b⟧""" + ⟦behind:a.b⟧') == {"behind"}
