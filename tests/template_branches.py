"""Which branches of the templates specs take."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

import jinja2

from cutegen.families.registry import load_family
from cutegen.render import environment
from cutegen.render.params import declared, values
from cutegen.resolve import Resolution

_TAG = re.compile(r"\{%-?\s*(?:if|elif|else)\b.*?%\}", re.DOTALL)
_MARK = re.compile("\u27e6(.*?)\u27e7")
_MARKS = re.compile("\u27e6.*?\u27e7")


def _marked(name: str, source: str) -> str:
    """The source with a mark behind each tag that begins a branch: the template, and the line of the tag."""
    return _TAG.sub(lambda tag: f"{tag[0]}\u27e6{name}:{source.count(chr(10), 0, tag.start()) + 1}\u27e7", source)


def _declared(text: str) -> str:
    """The filter, which has to find lines without marks; so has `values`."""
    return "".join(_MARKS.findall(text)) + declared(_MARKS.sub("", text))


def _values(text: str) -> list[str]:
    first, *others = values(_MARKS.sub("", text))
    return ["".join(_MARKS.findall(text)) + first, *others]


class _Marking(jinja2.FileSystemLoader):
    def get_source(self, env: jinja2.Environment, template: str):  # type: ignore[no-untyped-def]
        source, path, fresh = super().get_source(env, template)
        return _marked(template, source), path, fresh


def all_branches(family: str) -> set[str]:
    folder = environment.data_folder("templates")
    paths = sorted((folder / family).rglob("*.jinja"))
    return {mark for path in paths for mark in _MARK.findall(_marked(str(path.relative_to(folder)), path.read_text()))}


def visited_branches(probes: Iterable[Sequence[Resolution]]) -> set[str]:
    """Those that a rendering of one of the specs takes."""
    made = environment.TemplateEnvironment()
    made.loader = _Marking(environment.data_folder("templates"))
    made.filters |= {"declared": _declared, "values": _values}
    found: set[str] = set()
    token = environment.OTHER_ENVIRONMENT.set(lambda _: made)
    try:
        for probe in probes:
            kernels = [resolution.resolved for resolution in probe]
            for source in load_family(kernels[0].family).render(*kernels).values():
                found.update(_MARK.findall(source))
    finally:
        environment.OTHER_ENVIRONMENT.reset(token)
    return found
