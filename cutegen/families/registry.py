"""The kernel families. One line each; nothing below this module names one."""

from __future__ import annotations

import importlib
from typing import Any

# name in `kernel:` -> module:object of the family
FAMILIES = {"gemm": "cutegen.families.gemm:FAMILY"}


def load_family(name: str) -> Any:
    """The Family object; KeyError for a name that is not in FAMILIES."""
    module, _, attribute = FAMILIES[name].partition(":")
    return getattr(importlib.import_module(module), attribute)


def load_spec_model(name: str) -> Any:
    """The pydantic model of a family's spec; KeyError for a name that is not in FAMILIES."""
    return load_family(name).spec_model
