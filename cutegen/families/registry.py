"""The kernel families: the built-in ones, one line each, and those of installed distributions, through the entry point
group `cutegen.families`. Nothing below this module names one.

A spec of a built-in family costs nothing here. That of another one makes cutegen read metadata, and import the package
that offers it; cutegen.distributions tells which packages count. None can change what a built-in name means.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

from cutegen.diagnostics import CutegenError, describe_error
from cutegen.distributions import OFF, Offer, Unloadable, find_offers, load_offer, refuses_packages, several

# name in `kernel:` -> module:object of the family
FAMILIES = {
    "gemm": "cutegen.families.gemm:FAMILY",
    "mla_decode": "cutegen.families.mla_decode:FAMILY",
    "rowwise": "cutegen.families.rowwise:FAMILY",
}
GROUP = "cutegen.families"
_NAME = re.compile(r"[a-z][a-z0-9_]*")
_PROTOCOL = "cutegen.families.family"  # by name: the module knows the layers above this one


def find_families() -> dict[str, Offer]:
    """Families of installed distributions by name, but for built-in names; no package is imported."""
    return {name: offers[0] for name, offers in find_offers(GROUP).offers.items() if name not in FAMILIES}


def family_names() -> tuple[str, ...]:
    """Every name that `kernel:` may have, the built-in ones first; no package is imported."""
    return (*FAMILIES, *find_families())


def has_family(name: object) -> bool:
    """Whether there is a family of that name, usable or not; metadata is not read for a built-in one."""
    return isinstance(name, str) and (name in FAMILIES or name in find_families())


def unused_families() -> Iterator[str]:
    """Entry points that no spec can name, and why."""
    found = find_offers(GROUP)
    for name, offers in found.offers.items():
        if name in FAMILIES:
            yield from (f"family `{name}`, {offer}, is never used: the name is built in" for offer in offers)
        elif len(offers) > 1:
            yield f"family {several(offers)}, and so cannot be used"
    yield from (f"entry points cannot be read: {text}" for text in found.unreadable)


def list_families() -> str:
    """The names, for a remedy, and whether some may be missing because packages are off."""
    off = f"; those of packages are off: {OFF}" if refuses_packages() else ""
    return f"kernel families: {', '.join(family_names())}{off}"


def load_family(name: str) -> Any:
    """The Family (families/family.py). CutegenError: there is none of that name, or it cannot be used."""
    if name in FAMILIES:
        module, _, attribute = FAMILIES[name].partition(":")
        return getattr(importlib.import_module(module), attribute)
    if name not in find_families():
        remedy = f"install the package that it is part of; {list_families()}"
        raise CutegenError(f"there is no kernel family `{name}` on this machine", remedy, exit_code=2)
    return _load_installed(name)


@functools.cache
def _load_installed(name: str) -> Any:
    offers = find_offers(GROUP).offers[name]
    if len(offers) > 1:
        raise CutegenError(f"kernel family {several(offers)}", "uninstall all of them but one", exit_code=2)
    (offer,) = offers
    try:
        family = load_offer(offer, GROUP)
        fault = next(_faults(family, name), "")
    except Unloadable as error:
        fault = str(error)
    except Exception as error:
        fault = describe_error(error)
    if fault:
        said = f"kernel family `{name}`, {offer}, cannot be used: {fault}"
        raise CutegenError(said, f"fix or uninstall {offer.distribution}", exit_code=2)
    return family


def _faults(family: Any, name: str) -> Iterator[str]:
    """What is wrong with an installed family."""
    protocol = importlib.import_module(_PROTOCOL)
    if not _NAME.fullmatch(name):
        yield "its name is not one identifier in lower case"
    if isinstance(family, type):
        yield "the entry point names a class, and has to name an object of it"
    # dir() asks for no member: some of them import what they need.
    yield from (f"it has no `{m}`" for m in vars(protocol.Family) if not m.startswith("_") and m not in dir(family))
    model: Any = family.spec_model
    if not _is_model(model, protocol.KernelSpec):
        yield "its `spec_model` is not a class derived from cutegen.spec.KernelSpec"
    elif get_args(model.model_fields["kernel"].annotation) != (name,):
        yield f'its `spec_model` does not have `kernel: Literal["{name}"]`'


def _is_model(model: object, base: type) -> bool:
    return isinstance(model, type) and issubclass(model, base)


def load_spec_model(name: str) -> Any:
    """The pydantic model of a family's spec. CutegenError: as load_family."""
    return load_family(name).spec_model


def load_proving(name: str, module: str) -> Any:
    """How kernels of a family are proved and measured (families/proving.py), from a module of the family; None: there
    is no such module, and they are checked and measured on what the user gives. CutegenError: as load_family."""
    return _load_part(name, module, "PROVING")


def load_shrinking(name: str) -> Any:
    """How wrong kernels of a family are made plainer (families/shrinking.py); None: the family does not say.
    CutegenError: as load_family."""
    return _load_part(name, "shrinking", "SHRINKING")


def _load_part(name: str, module: str, member: str) -> Any:
    module = f"{_package(name)}.{module}"
    return getattr(importlib.import_module(module), member) if importlib.util.find_spec(module) else None


def family_folder(name: str) -> Path:
    """Where files of a family lie besides its modules: its starter, its table of names. CutegenError: as
    load_family."""
    spec = importlib.util.find_spec(_package(name))
    assert spec
    return Path(next(iter(spec.submodule_search_locations or ())))


def _package(name: str) -> str:
    """The package that a family is, or the package of its module."""
    load_family(name)  # an installed package may be found elsewhere: that is refused there
    module = FAMILIES[name].partition(":")[0] if name in FAMILIES else find_families()[name].module
    spec = importlib.util.find_spec(module)
    return module if spec is None or spec.submodule_search_locations else module.rpartition(".")[0]
