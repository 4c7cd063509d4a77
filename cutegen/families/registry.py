"""The kernel families. One line each; nothing below this module names one."""

from __future__ import annotations

import importlib
import importlib.util
from typing import Any

# name in `kernel:` -> module:object of the family
FAMILIES = {"gemm": "cutegen.families.gemm:FAMILY", "mla_decode": "cutegen.families.mla_decode:FAMILY"}


def load_family(name: str) -> Any:
    """The Family (families/family.py); KeyError for a name that is not in FAMILIES."""
    module, _, attribute = FAMILIES[name].partition(":")
    return getattr(importlib.import_module(module), attribute)


def load_spec_model(name: str) -> Any:
    """The pydantic model of a family's spec; KeyError for a name that is not in FAMILIES."""
    return load_family(name).spec_model


def load_proving(name: str, module: str) -> Any:
    """How kernels of a family are proved and measured (families/proving.py), from a module of the family; None: there
    is no such module, they compute products with rows, columns and a contraction, as plain Python files are taken to
    do."""
    module = f"{FAMILIES[name].partition(':')[0]}.{module}"
    return importlib.import_module(module).PROVING if importlib.util.find_spec(module) else None
