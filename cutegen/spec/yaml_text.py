"""Plain data as the text of a spec, so that findings about it have a line and a column."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping

from cutegen.diagnostics import CutegenError
from cutegen.spec.names import IDENTIFIER
from cutegen.spec.text_rules import MAX_DEPTH

_WORDS = frozenset(("null", "true", "false"))


def write_yaml(data: Mapping[str, object]) -> str:
    """YAML of nested maps and lists of text, numbers, truth values and None: a map a block, a list in brackets.
    CutegenError: something else is in it."""
    if not isinstance(data, Mapping):
        raise CutegenError(f"a spec is a dict, not a {type(data).__name__}", "pass {'cutegen': 1, 'kernel': ..., ...}")
    return "".join(f"{line}\n" for line in _block(data, 0, ()))


def _block(data: Mapping[str, object], depth: int, path: tuple[str, ...]) -> Iterator[str]:
    for key, value in data.items():
        here = (*path, str(key))
        if isinstance(value, Mapping) and value and depth < MAX_DEPTH:
            yield f"{'  ' * depth}{_key(key, here)}:"
            yield from _block(value, depth + 1, here)
        else:
            yield f"{'  ' * depth}{_key(key, here)}: {_flow(value, depth, here)}"


def _flow(value: object, depth: int, path: tuple[str, ...]) -> str:
    if depth > MAX_DEPTH + 1:  # one more than the reader takes, which says so itself
        raise CutegenError(f"{'.'.join(path[:3])}: is nested deeper than {MAX_DEPTH}", "a spec is a few maps deep")
    match value:
        case None | bool():
            return json.dumps(value)
        case str():
            return json.dumps(value, ensure_ascii=False)
        case int() | float():
            return repr(value)
        case list() | tuple():
            return f"[{', '.join(_flow(item, depth + 1, path) for item in value)}]"
        case Mapping():
            pairs = (f"{_key(key, path)}: {_flow(item, depth + 1, (*path, str(key)))}" for key, item in value.items())
            return f"{{{', '.join(pairs)}}}"
    said = f"{'.'.join(path)}: a value of type {type(value).__name__} cannot stand in a spec"
    raise CutegenError(said, "use str, int, float, bool, None, lists and dicts of them")


def _key(key: object, path: tuple[str, ...]) -> str:
    if not isinstance(key, str):
        raise CutegenError(f"{'.'.join(path)}: a key of type {type(key).__name__}", "keys of a spec are text")
    return key if IDENTIFIER.fullmatch(key) and key.lower() not in _WORDS else json.dumps(key, ensure_ascii=False)
