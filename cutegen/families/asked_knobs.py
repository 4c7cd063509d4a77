"""`explain --why-not`: why other values of some knobs are rejected, or what they would give."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

from cutegen.arch import Device
from cutegen.diagnostics import CutegenError, suggest
from cutegen.families.decide import Choice, Choose
from cutegen.families.knobs import Knob, show
from cutegen.families.section import Section

# Rows (what, now, then) of derived numbers of two candidates.
Compare: TypeAlias = Callable[[Any, Any], Sequence[tuple[str, str, str]]]
Complete: TypeAlias = Callable[[str, list[int]], list[int]]

_LIST = re.compile(r"\[\s*([0-9]+(?:\s*,\s*[0-9]+)*)\s*\]")


def answer_wish(
    wish: str, now: Any, knobs: Sequence[Knob], device: Device, choose: Choose,
    written: Mapping[str, Any], compare: Compare, complete: Complete,
) -> Section:  # fmt: skip
    """What the wished knobs give beside the kernel's core; if that is illegal, why, and what they give with only the
    written knobs fixed. complete: fills up a short list of numbers. CutegenError (exit 2): unreadable."""
    wished = read_wish(knobs, wish, complete)
    kept = {knob.field: getattr(now, knob.field) for knob in knobs if knob.part == "core"}
    lines: dict[str, None] = {}  # each once: knobs may be refused with the core, and for the same reason without it
    for fixed, said in (
        ({**written, **kept, **wished}, "legal"),
        ({**written, **wished}, "legal, with other choices changed as well"),
    ):
        result = choose(fixed, device)
        if isinstance(result, Choice):
            then = result.candidate
            changes = [(k.key, show(getattr(now, k.field)), show(getattr(then, k.field))) for k in knobs]
            rows = tuple(row for row in (*changes, *compare(now, then)) if row[1] != row[2])
            same = "nothing to change: the kernel already uses these values"
            lines[f"{said}; what it would change:" if rows else same] = None
            return _show(wish, lines, rows)
        lines |= dict.fromkeys(f"refused[{r.rule}]: {r.reason}\n  = help: {r.remedy}" for r in result)
    return _show(wish, lines, ())


def _show(wish: str, texts: Iterable[str], rows: tuple[tuple[str, str, str], ...]) -> Section:
    lines = tuple(line for text in texts for line in text.split("\n"))
    return Section(f"Why not {wish}?", lines, ("", "now", "then") if rows else (), rows)


def read_wish(knobs: Sequence[Knob], wish: str, complete: Complete) -> dict[str, Any]:
    """`tile=256x256 stages=3` as values by candidate field. Knobs go by path, last step or field name; numbers may be a
    list as in a spec, `tile=[256, 256]`."""
    names = _names(knobs)
    values: dict[str, Any] = {}
    joined = _LIST.sub(lambda listed: re.sub(r"\s*,\s*", "x", listed[1]), wish)
    for part in joined.replace(",", " ").split():
        name, _, text = part.partition("=")
        knob = names.get(name)
        if knob is None or not text:
            said = f"there is no knob `{name}`" if knob is None else f"`{part}` gives `{name}` no value"
            known = ", ".join(sorted({knob.key for knob in knobs}))
            listed = f'write "KNOB=VALUE KNOB=VALUE", such as "tile=128x256 stages=3"; knobs: {known}'
            raise CutegenError(said, (suggest(name, names) if knob is None else "") or listed, exit_code=2)
        if knob.field in values:
            raise CutegenError(f"`{name}` is given twice", "keep one of them", exit_code=2)
        values[knob.field] = _read(knob, text, complete)
    if not values:
        raise CutegenError("`--why-not` names no knob", 'write "KNOB=VALUE KNOB=VALUE"', exit_code=2)
    return values


def _read(knob: Knob, text: str, complete: Complete) -> Any:
    value: object = text
    if text in ("true", "false"):
        value = text == "true"
    elif all(part.isascii() and part.isdigit() and len(part) < 10 for part in text.split("x")):
        numbers = complete(knob.field, [int(part) for part in text.split("x")])
        value = numbers if len(numbers) > 1 else numbers[0]
    try:
        return knob.read(value)
    except ValueError as error:
        hint = "join the numbers with x, such as 2x1" if "integers" in str(error) else ""
        raise CutegenError(f"`{text}` is not a value of `{knob.field}`: it takes {error}", hint, exit_code=2) from None


def _names(knobs: Sequence[Knob]) -> dict[str, Knob]:
    names: dict[str, Knob] = {}
    for knob in knobs:
        names |= dict.fromkeys((knob.key, knob.field, knob.short), knob)
    return names
