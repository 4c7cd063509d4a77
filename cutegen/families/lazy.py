"""A family whose members are imported when they are asked for: listing families and showing help load nothing of it."""

from __future__ import annotations

import importlib
from collections.abc import Iterable
from operator import attrgetter
from typing import Any

# Members of families that have no cost model and nothing to tune, and one tiling over their tensors.
_PLAIN = {
    "describe_problem": "cutegen.families.plain:describe_problem",
    "tuning_space": "cutegen.families.plain:tuning_space",
    "estimate": "cutegen.families.plain:estimate",
    "c_entry": "cutegen.families.c_entry:c_entry",
}


class LazyFamily:
    """See `families/family.py`. package: the family's own, `__name__` there. members: `module:object` of each by name,
    `.module:object` in the package; what tunes and estimates may be left out."""

    def __init__(self, package: str, **members: str) -> None:
        self._package, self._members = package, {**_PLAIN, **members}

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name not in self._members:
            raise AttributeError(f"{self._package} names no `{name}`")
        module, _, attribute = self._members[name].partition(":")
        value = attrgetter(attribute)(importlib.import_module(module, self._package))
        setattr(self, name, value)
        return value

    def __dir__(self) -> Iterable[str]:
        return (*super().__dir__(), *self._members)
