"""Knobs that parts of a family declare: each with all that the family's table and the model of its spec ask of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar, cast

from pydantic import create_model

from cutegen.families.knobs import Knob
from cutegen.spec.base import Auto, Section
from cutegen.spec.base import knob as key

Extended = TypeVar("Extended", bound=Section)


@dataclass(frozen=True, slots=True)
class DeclaredKnob:
    """A knob, and all that is asked of it elsewhere."""

    knob: Knob
    annotation: Any  # of its value in a spec, but for `auto`
    description: str  # of its key in a spec
    follows: str  # the key of its section that it comes behind
    after: str  # the field that it comes behind in the family's table
    text_after: str = ""  # the same among knobs that decide which text a kernel has; "" for a number of the kernel
    words: Mapping[str, str] = field(default_factory=dict)  # in names of modules, for values that say too little
    exchanged: str = ""  # the field that it trades values with where operands trade places
    is_idle: Callable[[Any, Any], bool] = lambda problem, c: False  # whether it says nothing of a candidate
    without: tuple[str, object] | None = None  # what a kernel does without, and the value that says so; for shrinking
    held_by: Callable[[Any], tuple[str, ...]] | None = None  # the tensors that have it; None: all of its section


def insert_knobs(table: Sequence[Knob], declared: Iterable[DeclaredKnob]) -> tuple[Knob, ...]:
    """The family's table with those that its parts declare."""
    found = {knob.field: knob for knob in table}
    for one in declared:
        found = _insert(found, one.after, one.knob.field, one.knob)
    return tuple(found.values())


def insert_structural(names: Sequence[str], declared: Iterable[DeclaredKnob]) -> tuple[str, ...]:
    """The fields that decide which text a kernel has, with those that are declared."""
    found = dict.fromkeys(names)
    for one in declared:
        if one.text_after:
            found = _insert(found, one.text_after, one.knob.field, None)
    return tuple(found)


def extend_section(path: str, declared: Iterable[DeclaredKnob]) -> Callable[[type[Extended]], type[Extended]]:
    """Give the section of a spec that lies at a dotted path the keys that are declared for it. With `defer_build` the
    section is not made twice."""

    def extend(section: type[Extended]) -> type[Extended]:
        fields: dict[str, Any] = {name: (f.rebuild_annotation(), f) for name, f in section.model_fields.items()}
        for one in declared:
            *where, name = one.knob.path
            if ".".join(where) == path:
                fields = _insert(fields, one.follows, name, (one.annotation | Auto, key(one.description)))
        made = create_model(section.__name__, __base__=Section, __module__=section.__module__, **fields)
        made.__doc__ = section.__doc__
        return cast("type[Extended]", made)

    return extend


def _insert(found: dict[str, Any], after: str, name: str, value: object) -> dict[str, Any]:
    """The items with one more behind that of a name. KeyError: there is none of that name."""
    if after not in found:
        raise KeyError(after)
    inserted: dict[str, Any] = {}
    for other, item in found.items():
        inserted[other] = item
        if other == after:
            inserted[name] = value
    return inserted
