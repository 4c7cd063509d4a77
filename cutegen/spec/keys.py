"""Every key of a family's specs with its documentation, from the JSON schema of its model."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from pydantic import BaseModel

from cutegen.spec.schema import Schema, json_schema, options, words


class Key(NamedTuple):
    """name: within its section. value: what it may be, in words. default: "" where it is just absent, or "required"."""

    name: str
    value: str
    default: str
    meaning: str


class KeySection(NamedTuple):
    """A map with known keys. name: its dotted path, "" for the spec itself, `tma.<name>` for each value of a map."""

    name: str
    meaning: str
    keys: tuple[Key, ...]


def key_sections(model: type[BaseModel]) -> list[KeySection]:
    """The spec itself, then each map in it, in the order of the model's fields."""
    root = json_schema(model)
    return list(_sections(root, root, "", str(root["description"])))


def key_places(root: Schema) -> dict[str, list[str]]:
    """Of each key, the sections of a spec that have it, "" being the spec itself. `tune` does not count: it has all
    knobs."""
    places: dict[str, list[str]] = {}
    for section in _sections(root, root, "", ""):
        for key in section.keys if section.name != "tune" else ():
            places.setdefault(key.name, []).append(section.name)
    return places


def _sections(schema: Schema, root: Schema, name: str, meaning: str) -> Iterator[KeySection]:
    fields: dict[str, Schema] = schema["properties"]
    required = schema.get("required", [])
    keys = (
        Key(key, words(field, root), "required" if key in required else _default(field), _meaning(field, root))
        for key, field in fields.items()
    )
    yield KeySection(name, meaning, tuple(keys))
    for key, field in fields.items():
        for option in options(field, root):
            inner = option.get("additionalProperties")
            path = f"{name}.{key}" if name else key
            if isinstance(inner, dict) and "$ref" in inner:
                path, option = f"{path}.<name>", options(inner, root)[0]
            if "properties" in option:
                yield from _sections(option, root, path, str(option["description"]))


def _default(field: Schema) -> str:
    default: Any = field.get("default")
    return "" if default in (None, [], {}) or isinstance(default, dict) else f"`{_yaml(default)}`"


def _yaml(value: Any) -> str:
    return f"[{', '.join(map(_yaml, value))}]" if isinstance(value, list) else str(value)


def _meaning(field: Schema, root: Schema) -> str:
    text = str(field.get("description") or options(field, root)[0].get("description", ""))
    return " ".join(text.split())  # docstrings have lines, cells of a table have one
