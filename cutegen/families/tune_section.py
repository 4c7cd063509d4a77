"""The section `tune` of a spec: a list of candidates for each knob, of the type that the knob itself has."""

from __future__ import annotations

from collections.abc import Iterable
from math import prod
from typing import Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel, Field, create_model, model_validator

from cutegen.diagnostics import Rule, register
from cutegen.families.knobs import Knob
from cutegen.spec.base import Auto, Section
from cutegen.spec.finding import FieldError, Finding

MAX_COMBINATIONS = 1000  # each takes up to some 0.2 s to complete and judge, for every problem
TUNE_SIZE = register(Rule(
    "tune-size", f"the lists under `tune` make at most {MAX_COMBINATIONS} combinations",
    "The lengths of the lists multiply, and every combination is completed and judged by the rules before the first "
    "one is measured. Without lists the cost model proposes, from all that is legal.",
    "tune: {stages: [2, 3, 4, ...], raster_group: [1, 2, 3, ...], consumer_registers: [200, 208, ...]}",
))  # fmt: skip


class TuneSection(Section):
    """Lists of candidates by knob."""

    @model_validator(mode="after")
    def check_size(self) -> TuneSection:
        """There are not too many combinations."""
        lengths = {key: len(values) for key, values in self if values}
        if (count := prod(lengths.values())) > MAX_COMBINATIONS:
            sizes = ", ".join(f"{key} {n}" for key, n in sorted(lengths.items(), key=lambda item: -item[1]) if n > 1)
            message = f"the lists make {count} combinations; at most {MAX_COMBINATIONS} are allowed"
            raise FieldError([Finding(TUNE_SIZE.id, message, f"list fewer values; there are: {sizes}")])
        return self


def tune_section(model: type[BaseModel], knobs: Iterable[Knob]) -> type[TuneSection]:
    """The model of the section for specs of `model`. In keys of knobs, names in braces stand for some tensor."""
    fields: dict[str, Any] = {}
    for knob in knobs:
        where = knob.key.replace("{", "").replace("}", "")
        values: Any = list.__class_getitem__(_without_auto(_annotation(model, knob.path)))
        fields[knob.short] = (values, Field(default=[], description=f"Candidates for `{where}`."))
    made = create_model("Tune", __base__=TuneSection, **fields)
    made.__doc__ = (
        "Candidates of `cutegen tune`: every combination of the listed values. Knobs that are not listed are what the "
        "spec writes, else chosen for each combination. Nothing listed: the cost model proposes."
    )
    return made


class TilingSection(Section):
    """Values of some knobs, by the same names as under `tune`."""

    def fixed(self, knobs: Iterable[Knob]) -> dict[str, Any]:
        """The values that are written, by candidate field."""
        return {k.field: value for k in knobs if (value := getattr(self, k.short, None)) is not None}


def tiling_section(model: type[BaseModel], knobs: Iterable[Knob]) -> type[TilingSection]:
    """The model of one tiling of the section `portfolio`."""
    fields: dict[str, Any] = {}
    for knob in knobs:
        where = knob.key.replace("{", "").replace("}", "")
        values: Any = _without_auto(_annotation(model, knob.path)) | None
        fields[knob.short] = (values, Field(default=None, description=f"As `{where}`."))
    made = create_model("PortfolioTiling", __base__=TilingSection, **fields)
    made.__doc__ = "Knobs of one tiling of the portfolio; the others are what the spec writes, else chosen for it."
    return made


def _annotation(model: Any, path: tuple[str, ...]) -> Any:
    """The type of the value at a path of keys."""
    for step in path:
        model = get_args(model)[1] if get_origin(model) is dict else model.model_fields[step].rebuild_annotation()
    return model


def _without_auto(annotation: Any) -> Any:
    """The type less `auto`."""
    parts = [part for part in get_args(annotation) if part != Auto]
    words = [word for part in parts if get_origin(part) is Literal for word in get_args(part)]
    if words and len(parts) == 1:
        return Literal[tuple(w for w in words if w != "auto")]
    return Union[tuple(parts)]  # noqa: UP007 (made of a list)
