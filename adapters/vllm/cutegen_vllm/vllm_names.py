"""Names of vLLM by which an adapter is made."""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Mapping
from typing import Any


def import_names(names: Mapping[str, Iterable[str]]) -> dict[str, Any]:
    """names: by module. ImportError: this vLLM lacks a module or a name."""
    found: dict[str, Any] = {}
    for module, wanted in names.items():
        loaded = importlib.import_module(module)
        for name in wanted:
            if not hasattr(loaded, name):
                raise ImportError(f"{module} has no {name}")
            found[name] = getattr(loaded, name)
    return found
