"""JSON schema of a spec model, and the same schema in words for diagnostics and the reference."""

from __future__ import annotations

import json
from typing import Any, TypeAlias

from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema

from cutegen.spec.base import RUN_SECTIONS
from cutegen.spec.dims import MAX_EXTENT
from cutegen.spec.document import KeyPath

Schema: TypeAlias = dict[str, Any]

# The dialect that every editor's YAML support knows; nothing newer is used.
DIALECT = "http://json-schema.org/draft-07/schema#"
# Of the schemas of families; a name and no address, since they are read from files. The number is that of `cutegen:`.
IDENTITY = "urn:cutegen:spec:1"
# Keys that come behind those that say what a kernel is.
LAST = ("device", *RUN_SECTIONS)
_KINDS = {bool: "boolean", int: "integer", float: "number", str: "string"}  # type of a listed value -> JSON type


class _Generator(GenerateJsonSchema):
    def field_title_should_be_set(self, schema: Any) -> bool:
        return False  # a title repeats the key


def json_schema(model: type[BaseModel]) -> Schema:
    """JSON schema (draft 7) of a spec model, or of another section."""
    body = model.model_json_schema(schema_generator=_Generator)
    own = {key: field for key, field in body["properties"].items() if key not in LAST}
    body["properties"] = own | {key: field for key, field in body["properties"].items() if key in LAST}
    kernel = body["properties"].get("kernel", {}).get("const")
    title = f"cutegen spec, kernel: {kernel}" if kernel else f"cutegen {model.__name__}"
    identity = {"$id": f"{IDENTITY}:{kernel}"} if kernel else {}
    return {"$schema": DIALECT, **identity, **body, "title": title}


def schema_text(model: type[BaseModel]) -> str:
    """The file that an editor reads."""
    return json.dumps(json_schema(model), indent=2) + "\n"


def options(schema: Schema, root: Schema) -> list[Schema]:
    """The alternatives of a schema, references followed."""
    if "$ref" in schema:
        return options(root["$defs"][schema["$ref"].rpartition("/")[2]], root)
    if "anyOf" in schema:
        return [o for part in schema["anyOf"] for o in options(part, root)]
    return [schema]


def find_schema(root: Schema, path: KeyPath) -> Schema | None:
    """The schema of the value at `path`, or None where no schema says anything."""
    schema: Schema | None = root
    for step in path:
        inner: Schema | None = None
        for option in options(schema or {}, root):
            if isinstance(step, int):
                inner = inner or option.get("items")
            else:
                inner = inner or option.get("properties", {}).get(step)
                more = option.get("additionalProperties")
                inner = inner or (more if isinstance(more, dict) else None)
        schema = inner
    return schema


def keys(schema: Schema, root: Schema) -> list[str]:
    """The keys that a map may have."""
    return [key for option in options(schema, root) for key in option.get("properties", {})]


def choices(schema: Schema, root: Schema) -> list[str]:
    """The words that a value may be."""
    found = [c for o in options(schema, root) for c in ([o["const"]] if "const" in o else o.get("enum", []))]
    return [c for c in found if isinstance(c, str)]


def kinds(schema: Schema, root: Schema) -> set[str]:
    """The JSON types that a value may have, the word `auto` left aside."""
    found = [o for o in options(schema, root) if o.get("const") != "auto"]
    listed = {_KINDS[type(value)] for o in found if "type" not in o for value in o.get("enum", ())}
    return listed | {o["type"] for o in found if "type" in o}


def words(schema: Schema, root: Schema, many: bool = False) -> str:
    """What a value must be, such as "a positive integer or `auto`"; `many`: as the items of a list. An absent value
    is not mentioned."""
    present = [option for option in options(schema, root) if option.get("type") != "null"]
    parts = [part for option in present for part in _option_words(option, root, many)]
    return " or ".join(filter(None, (", ".join(parts[:-1]), parts[-1])))


def _option_words(option: Schema, root: Schema, many: bool) -> list[str]:
    kind = option.get("type")
    if "const" in option:
        return [f"`{option['const']}`"]
    if "enum" in option:
        return [f"`{value}`" for value in option["enum"]]
    if kind == "integer":
        low, high = option["minimum"], option["maximum"]
        noun = "integers" if many else "an integer"
        if high < MAX_EXTENT:
            return [f"{noun} from {low} to {high}"]
        return ["positive integers" if many else "a positive integer"]
    if kind == "number":
        return [f"{'numbers' if many else 'a number'}{_bounds(option)}"]
    if kind == "array":
        count = f" {option['minItems']}" if "minItems" in option else ""
        return [f"{'lists' if many else 'a list'} of{count} {words(option['items'], root, many=True)}"]
    if kind == "string":
        what = option.get("$comment", "text")
        article = "an" if what[0] in "aeiou" else "a"
        longest = f" of at most {option['maxLength']} characters" if "maxLength" in option else ""
        example = f" such as `{option['examples'][0]}`" if "examples" in option else ""
        return [(f"{what}s" if many else f"{article} {what}") + longest + example]
    if kind == "boolean":
        return ["`true`", "`false`"]
    inner = option.get("additionalProperties")
    to = f" from names to {words(inner, root, many=True)}" if isinstance(inner, dict) else ""
    return [f"{'maps' if many else 'a map'}{to}"]


def _bounds(option: Schema) -> str:
    """The range of a number, in words; "" where there is none."""
    said = {"exclusiveMinimum": "above", "minimum": "from", "exclusiveMaximum": "below", "maximum": "up to"}
    return "".join(f" {word} {option[key]:g}" for key, word in said.items() if key in option)
