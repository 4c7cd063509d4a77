"""Names that generated source has besides those of a spec, by family, and where names of a spec would clash with them.

generated_names.json lists them by scope of the generated modules: `made`, what stands there of a spec, with the kind of
name in braces (`p_{output}`; `s{Output}` of its `tensor_stem`), and `fixed`, the names that could be one of these. A
test collects it from rendered modules of every form; nothing is entered by hand.
"""

from __future__ import annotations

import functools
import json
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from cutegen.families.registry import family_folder

_NUMBER = "{number}"
_KIND = re.compile(r"\{(input|output|updated|local|dim|op|spec|Input|Output|Updated|Local)\}")
# An output that its own expression reads is an argument before it is a result.
_ROLES = {"updated": ("updated", "output", "input")}


def tensor_stem(name: str) -> str:
    """What a kernel calls a tensor of a spec behind a prefix that says where it lies: `d` is D in sD and tRS_rD.

    Two tensors have two stems. A and B are the MMA's operands, so `a`, `a_..`, `b` and `b_..` are not capitalised where
    they are something else, nor is what has a capital: they follow an underscore.
    """
    plain = name[0].islower() and name.partition("_")[0] not in ("a", "b")
    return name[0].upper() + name[1:] if plain else f"_{name}"


def _find_name(stem: str) -> str | None:
    """The name with that stem, or None."""
    names = (stem[1:], stem[:1].lower() + stem[1:])
    return next((name for name in names if name and tensor_stem(name) == stem), None)


def _make(form: str, name: str) -> str:
    """What is made of a name by a form with one."""
    return _KIND.sub(lambda kind: tensor_stem(name) if kind[1][0].isupper() else name, form)


@dataclass(frozen=True, slots=True)
class Clash:
    """A name of a spec that cannot stand: generated source makes `made` of it, and of `other`, a name of the spec; ""
    where `made` is a name of generated source itself."""

    name: str
    made: str
    other: str

    def words(self) -> str:
        """What is said of it."""
        if self.other:
            if self.made == self.name:
                return f"`{self.name}` is what generated source makes of `{self.other}`"
            return f"generated source makes `{self.made}` of both `{self.name}` and `{self.other}`"
        if self.made == self.name:
            return f"`{self.name}` is a name of generated source"
        return f"generated source makes `{self.made}` of `{self.name}`, and has that name already"


@dataclass(frozen=True, slots=True)
class Table:
    """scopes: where each form such as `s_{output}_layout` stands, by kind. fixed: names that a name of a kind cannot
    be, with what would be made of it. open: forms with a number of the spec, or with several names, as expressions,
    with the kinds of their groups."""

    scopes: Mapping[str, Mapping[str, frozenset[int]]]
    fixed: Mapping[str, Mapping[str, str]]
    open: Mapping[tuple[re.Pattern[str], tuple[str, ...]], frozenset[int]]


def table_path(family: str) -> Path:
    """Where the table of a family lies."""
    return family_folder(family) / "generated_names.json"


@functools.cache
def read_table(family: str) -> Table:
    """The names of generated source of a family; none where it has no table yet."""
    scopes: dict[str, dict[str, set[int]]] = defaultdict(lambda: defaultdict(set))
    opened: dict[tuple[re.Pattern[str], tuple[str, ...]], set[int]] = defaultdict(set)
    fixed: dict[str, dict[str, str]] = defaultdict(dict)
    path = table_path(family)
    listed = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    for number, scope in enumerate(listed.values()):
        for form in scope["made"]:
            kinds, pattern = tuple(_KIND.findall(form)), _pattern(form)
            if len(kinds) > 1 or _NUMBER in form:
                opened[pattern, kinds].add(number)
            else:
                kind = kinds[0].lower()
                scopes[kind][form].add(number)
                for name in scope["fixed"]:
                    if match := pattern.fullmatch(name):
                        given = match[1] if kind == kinds[0] else _find_name(match[1])
                        fixed[kind] |= {given: name} if given else {}
    plain = {
        kind: {form: frozenset(forms[form]) for form in sorted(forms, key=len)}  # first what the spec itself calls it
        for kind, forms in scopes.items()
    }
    return Table(plain, fixed, {key: frozenset(places) for key, places in opened.items()})


def _pattern(form: str) -> re.Pattern[str]:
    """What is made by a form; its groups are the names."""
    return re.compile(_KIND.sub("(.+)", form).replace(_NUMBER, "[0-9]+"))


def function_problem(family: str, name: str) -> str | None:
    """Why the function of a package, which its front module defines, cannot have that name, or None. Modules of
    tilings stand next to it, as many as there are tilings."""
    if name in read_table(family).fixed.get("spec", {}):
        return "is the name of something else in the generated package"
    if kind := re.match("(kernel)_[A-Za-z]|(plan)_sm_", name):
        said = kind[1] or kind[2]
        return f"may be the name of a {said} module ({said}_...) of the generated package"
    return None


def find_clashes(family: str, names: Iterable[tuple[str, str]]) -> Iterator[Clash]:
    """names: (name, kind), each once. Names with a clash, in their order."""
    table = read_table(family)
    given = [(name, role) for name, kind in names for role in _ROLES.get(kind, (kind,))]
    known: dict[str, set[str]] = defaultdict(set)  # of a kind
    made: dict[str, list[tuple[str, frozenset[int]]]] = defaultdict(list)
    for name, kind in given:
        known[kind].add(name)
        for form, scopes in table.scopes.get(kind, {}).items():
            made[_make(form, name)].append((name, scopes))
    told: set[str] = set()
    for name, kind in given:
        if name not in told and (clash := _clash(table, name, kind, made, known)):
            told.add(name)
            yield clash


def _clash(
    table: Table,
    name: str,
    kind: str,
    made: Mapping[str, list[tuple[str, frozenset[int]]]],
    known: Mapping[str, set[str]],
) -> Clash | None:
    """made: what is made of the names, each with (name, scopes). known: the names of each kind."""
    if name in table.fixed.get(kind, {}):
        return Clash(name, table.fixed[kind][name], "")
    for form, scopes in table.scopes.get(kind, {}).items():
        text = _make(form, name)
        for other, places in made[text]:
            # Of two names that make the same one, the longer is to blame: it is, or ends in, what is made of the other.
            if other != name and (len(other), other) < (len(name), name) and scopes & places:
                return Clash(name, text, other)
        for (pattern, kinds), places in table.open.items():
            match = pattern.fullmatch(text)
            if match and scopes & places and all(n in known[k] for n, k in zip(match.groups(), kinds)):
                return Clash(name, text, match[1])
    return None
