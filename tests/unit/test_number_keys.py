"""Keys of a spec model whose values are numbers: accepted, refused in words, and described in schema and reference."""

from __future__ import annotations

from typing import Annotated

import jsonschema
import pytest
from pydantic import Field

from cutegen.diagnostics import SpecError
from cutegen.spec import Kind, load_text
from cutegen.spec.base import Number, Section
from cutegen.spec.keys import key_sections
from cutegen.spec.parse import parse_section
from cutegen.spec.schema import json_schema


class Norm(Section):
    """A map."""

    eps: Annotated[Number, Field(gt=0)] = Field(default=1e-6, description="Added to the mean.")
    share: Annotated[Number, Field(ge=0, le=1)] | None = Field(default=None, description="A share.")
    scales: list[Number] = Field(default=[], description="Some.")


NORM = Kind("norm", ("eps", "share", "scales"), "")


@pytest.mark.parametrize(("text", "value"), [("1e-6", 1e-6), ("2", 2.0), ("0.5", 0.5), ("1.", 1.0), ("3.4e+3", 3400.0)])
def test_a_number_is_accepted(text: str, value: float) -> None:
    assert parse_section(load_text(f"eps: {text}\n", "norm"), Norm, NORM).eps == value
    jsonschema.validate({"eps": value}, json_schema(Norm))


@pytest.mark.parametrize(
    ("text", "rule", "message", "remedy"),
    [
        ("eps: tiny", "wrong-type", "`eps` must be a number above 0, not the text `tiny`", ""),
        (
            "eps: '1e-6'",
            "wrong-type",
            "`eps` must be a number above 0, not the text `1e-6`",
            "write 1e-6 without quotes",
        ),
        ("eps: true", "wrong-type", "`eps` must be a number above 0, not `true`", ""),
        ("eps: 0", "bad-value", "`eps` must be a number above 0, not 0", ""),
        ("eps: -0.5", "bad-value", "`eps` must be a number above 0, not -0.5", ""),
        ("share: 1.5", "bad-value", "`share` must be a number from 0 up to 1, not 1.5", ""),
        ("scales: [1, b]", "wrong-type", "`scales[1]` must be a number, not the text `b`", ""),
    ],
)
def test_what_is_no_number_is_refused(text: str, rule: str, message: str, remedy: str) -> None:
    with pytest.raises(SpecError) as caught:
        parse_section(load_text(text + "\n", "norm"), Norm, NORM)
    (found,) = caught.value.diagnostics
    assert (found.rule, found.message, found.remedy) == (rule, message, remedy)


def test_the_reference_has_words_for_numbers() -> None:
    (section,) = key_sections(Norm)
    assert [(key.value, key.default) for key in section.keys] == [
        ("a number above 0", "`1e-06`"),
        ("a number from 0 up to 1", ""),
        ("a list of numbers", ""),
    ]
