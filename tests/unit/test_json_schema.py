"""The JSON schema and the generated pages: they accept what the tool accepts, and the committed copies are current."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from cutegen.cli.reference import all_rules, pages
from cutegen.cli.start import SERVER, shipped_specs
from cutegen.families.registry import FAMILIES, load_spec_model
from cutegen.spec import load_document
from cutegen.spec.schema import json_schema

ROOT = Path(__file__).parent.parent.parent
STARTERS = [ROOT / "cutegen" / "families" / family / "starter.yaml" for family in FAMILIES]


def schema(family: str = "gemm") -> dict[str, Any]:
    return json_schema(load_spec_model(family))


def errors(data: Any) -> list[str]:
    return [e.json_path for e in jsonschema.Draft7Validator(schema(data["kernel"])).iter_errors(data)]


@pytest.mark.parametrize("family", FAMILIES)
def test_schema_is_valid(family: str) -> None:
    jsonschema.Draft7Validator.check_schema(schema(family))


@pytest.mark.parametrize("path", [*shipped_specs(), *STARTERS], ids=lambda p: p.stem)
def test_shipped_specs_are_accepted(path: Path) -> None:
    assert errors(load_document(path).data) == []


@pytest.mark.parametrize("path", [*shipped_specs(), *STARTERS], ids=lambda p: p.stem)
def test_shipped_specs_name_their_schema(path: Path) -> None:
    """By a path that holds in a clone."""
    named = path.read_text(encoding="utf-8").partition("\n")[0].removeprefix(SERVER)
    schema = json.loads((path.parent / named).read_text(encoding="utf-8"))
    assert schema["$id"] == f"urn:cutegen:spec:1:{load_document(path).data['kernel']}"


def test_everything_that_can_be_written_is_accepted() -> None:
    """What the spec reference shows of tensors, and one value for each kind of knob."""
    data = load_document(STARTERS[0]).data
    tensors = {"a": "bf16[m, ceil(k/128)]@m", "b": "e4m3[ l , n/2, 8 ]?", "s": "f32", "p": "f32[]", "d": "bf16[m, n]"}
    knobs = {"tiling": {"tile": "auto", "cluster": [2, 1], "swap_ab": False}, "tma": {"a": {"swizzle": 32}}}
    assert errors({**data, **knobs, "tensors": tensors, "dims": {"n": 4, "m": [1, 2]}, "device": "h200"}) == []


@pytest.mark.parametrize(
    ("change", "place"),
    [
        ({"colour": 1}, "$"), ({"pipeline": {"stages": 0}}, "$.pipeline.stages"), ({"cutegen": 2}, "$.cutegen"),
        ({"tiling": {"tile": [128, 256]}}, "$.tiling.tile"), ({"tma": {"a": {"swizle": 1}}}, "$.tma.a"),
        ({"scheduler": "fast"}, "$.scheduler"), ({"tensors": {}}, "$.tensors"),
        ({"dims": {"n": [1, 2, 3]}}, "$.dims.n"),
        ({"tensors": {"a": "bf16(m)"}}, "$.tensors.a"), ({"dims": {"a-b": 4}}, "$.dims"),
        ({"device": "h9"}, "$.device"), ({"m": [0]}, "$.m[0]"), ({"pdl": {"wait": 1}}, "$.pdl.wait"),
    ],
)  # fmt: skip
def test_schema_finds_what_the_tool_finds(change: dict[str, object], place: str) -> None:
    data = load_document(STARTERS[0]).data
    assert errors({**data, **change}) == [place]


@pytest.mark.parametrize(
    ("change", "place"),
    [
        ({"split_kv": 1}, None), ({"split_kv": "auto"}, None), ({"split_kv": {"max": 8}}, None),
        ({"split_kv": {"max": "any"}}, None), ({"lse": {"base": 2}}, None), ({"heads": 1}, None),
        ({"split_kv": 2}, "$.split_kv"), ({"split_kv": {"least": 2}}, "$.split_kv"), ({"heads": 0}, "$.heads"),
        ({"lse": {"base": 10}}, "$.lse.base"), ({"dtype": "e4m3"}, "$.dtype"),
        ({"scheduler": {"overhead": -1}}, "$.scheduler.overhead"),
    ],
)  # fmt: skip
def test_schema_of_mla_decode(change: dict[str, object], place: str | None) -> None:
    data = load_document(STARTERS[1]).data
    assert errors({**data, **change}) == ([place] if place else [])


@pytest.mark.parametrize("family", FAMILIES)
def test_every_key_is_described(family: str) -> None:
    root = schema(family)
    for section in (root, *root["$defs"].values()):
        for key, field in section["properties"].items():
            target = root["$defs"].get(field.get("$ref", "").rpartition("/")[2], {})
            assert field.get("description") or target.get("description"), key


def test_committed_pages_are_current() -> None:
    for name, text in pages().items():
        assert (ROOT / "docs" / name).read_text(encoding="utf-8") == text, f"{name}: run `cutegen docs`"


def test_rules_of_every_package_are_collected() -> None:
    rules = all_rules()
    assert {"yaml-tab", "unknown-key", "unknown-op", "smem-capacity", "not-yet-supported"} <= set(rules)
    for rule in rules.values():
        assert rule.summary, rule.id
        assert rule.explanation, rule.id
        assert not rule.summary.endswith("."), rule.id


def test_schema_is_json() -> None:
    assert json.loads((ROOT / "docs" / "schema" / "gemm.json").read_text(encoding="utf-8")) == schema()
