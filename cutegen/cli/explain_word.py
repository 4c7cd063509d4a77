"""What `explain` says of a word: a rule, an epilogue op, a family, or a key of its specs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, NoReturn

import click
from click.shell_completion import CompletionItem

from cutegen.diagnostics import RULES, CutegenError, suggest

if TYPE_CHECKING:
    from cutegen.diagnostics import Rule
    from cutegen.families.section import Section
    from cutegen.spec.keys import Key, KeySection


# Names of rules, of what an expression may call, and of keys; `cutegen docs` writes it. Only names: whatever is said of
# them is where they are declared.
INDEX = Path(__file__).with_name("words.json")


class Words(NamedTuple):
    """Names by kind. keys: of each family, itself and its maps of keys among them."""

    rules: list[str]
    ops: list[str]
    keys: dict[str, list[str]]


@cache
def listed_words() -> Words:
    """Every name, without an import of what it names."""
    return Words(**json.loads(INDEX.read_text(encoding="utf-8")))


def complete_words(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Names that begin so, and files."""
    words = listed_words()
    kinds = {"rule": words.rules, "op": words.ops, **{f"key of {family}": keys for family, keys in words.keys.items()}}
    found = {name: kind for kind, names in kinds.items() for name in names if name.startswith(incomplete)}
    near = [CompletionItem(name, help=kind) for name, kind in found.items()] if incomplete else []
    return [*near, CompletionItem(incomplete, type="file")]


def explain_word(word: str) -> list[Section]:
    """All that has this name; [] where nothing has. CutegenError: an op of that name cannot be used."""
    words = listed_words()
    found = [*(_explain_rule(word) if word in words.rules else ()), *(_explain_op(word) if word.isidentifier() else ())]
    for family, keys in words.keys.items():
        if any(_fits(word, key) for key in keys):
            found += _explain_key(word, family)
    return found or _explain_installed(word)


def _explain_installed(word: str) -> list[Section]:
    """What families of other packages call so, if one has the name or nothing built in has. CutegenError: one of that
    name cannot be used."""
    from cutegen.families.registry import find_families, load_family

    families = find_families()
    if word in families:
        return list(_explain_key(word, word))
    found: list[Section] = []
    for family in families:
        with suppress(Exception):  # what is wrong with it is said where a spec names it
            _ = load_family(family).resolve  # its rules are declared by what decides
            found += _explain_key(word, family)
    return [*(_show_rule(RULES[word]) if word in RULES else ()), *found]


def _explain_rule(word: str) -> Iterator[Section]:
    from cutegen.cli.reference import all_rules

    if rule := all_rules().get(word):
        yield from _show_rule(rule)


def _show_rule(rule: Rule) -> Iterator[Section]:
    from cutegen.families.section import Section

    example = ("", "For example:", *(f"  {line}" for line in rule.example.splitlines())) if rule.example else ()
    yield Section(f"rule {rule.id}: {rule.summary}", (rule.explanation, *example))


def _explain_op(word: str) -> list[Section]:
    """An op, and what else is written like a call."""
    from cutegen.epilogue import CALLS, OPS, EpilogueOp, Unusable, find_installed, load_op
    from cutegen.families.section import Section

    form = CALLS.get(word)
    calls = [Section(form.example, (form.doc,), ("", ""), (("takes", form.takes),))] if form else []
    if calls and word not in OPS:
        return calls
    op = load_op(word)
    if isinstance(op, Unusable):
        raise CutegenError(op.reason, op.remedy)
    if not isinstance(op, EpilogueOp):
        return []
    arguments = [f"x{i}" for i in range(op.arguments or 2)]
    rows: tuple[tuple[str, str], ...] = (
        ("takes", op.arity_text()),
        ("on the device", f"{op.module}.{op.device}"),
        ("reference", op.torch_text(arguments, [False] * len(arguments))),
        ("FLOPs an element", str(op.flops)),
    )
    if offers := find_installed().offers.get(word) if word not in OPS else None:
        rows += (("installed by", offers[0].distribution),)
    return [Section(f"op {op.name}", (op.doc,), ("", ""), rows), *calls]


def _explain_key(word: str, family: str) -> Iterator[Section]:
    """A family and a map of keys as a table; a key, by its path or the last step of it, by itself."""
    from cutegen.families.registry import load_spec_model
    from cutegen.families.section import Section
    from cutegen.spec.keys import key_sections

    sections = key_sections(load_spec_model(family))
    for section in sections:
        name = section.name or family
        if _fits(word, name) or name == f"{word}.<name>" or name.rpartition(".")[2] == word:
            title = f"{name} of kernel: {family}" if section.name else f"kernel: {family}"
            start = () if section.name else (f"`cutegen new {family} NAME` starts a spec.",)
            yield Section(title, (section.meaning, *start), ("key", "value", "default", "meaning"), section.keys)
        for key in section.keys:
            path = _path(section, key)
            if (word == key.name or _fits(word, path)) and path not in (s.name for s in sections):
                rows = (("value", key.value), ("default", key.default or "absent"))
                yield Section(f"{path} of kernel: {family}", (key.meaning,), ("", ""), rows)


def _path(section: KeySection, key: Key) -> str:
    return f"{section.name}.{key.name}" if section.name else key.name


def _fits(word: str, path: str) -> bool:
    """Whether a dotted path names a key; `tma.a.swizzle` is one of `tma.<name>.swizzle`."""
    steps, given = path.split("."), word.split(".")
    return len(steps) == len(given) and all(s in (g, "<name>") for s, g in zip(steps, given))


def refuse_word(word: str) -> NoReturn:
    """CutegenError (exit 2) with the nearest word, or what others call so."""
    from cutegen.cli.reference import all_rules
    from cutegen.elsewhere import say_instead
    from cutegen.epilogue import CALLS, OPS, find_installed
    from cutegen.families.registry import FAMILIES, find_families, load_spec_model
    from cutegen.spec.keys import key_sections

    sections = [section for family in FAMILIES for section in key_sections(load_spec_model(family))]
    keys = [name for section in sections for key in section.keys for name in (key.name, _path(section, key))]
    words = dict.fromkeys([*all_rules(), *OPS, *CALLS, *find_installed().offers, *FAMILIES, *find_families(), *keys])
    near = say_instead(word) or suggest(word, words, len(words))
    hint = near or "`cutegen list` shows specs and ops, docs/rules.md the rules, docs/spec-reference.md the keys"
    raise CutegenError(f"`{word}` is not a spec, rule, op or key", hint, exit_code=2)
