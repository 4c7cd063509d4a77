"""What installed distributions add to cutegen by entry points: epilogue ops and kernel families.

Metadata is read when somebody asks for a name that is not built in; looking imports no package. Only what an installer
has put into a folder for packages counts, and nothing else on sys.path: not the working directory, and not the checkout
that a spec lies in.
"""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from cutegen.diagnostics import describe_error

NO_OPS = "CUTEGEN_NO_OPS"
OFF = f"--no-ops or {NO_OPS}"  # what switches all of it off


@dataclass(frozen=True, slots=True)
class Offer:
    """An entry point: its name, `module:object`, and the distribution, such as `acme-ops 1.2`. folders: where its
    modules lie."""

    name: str
    target: str
    distribution: str
    folders: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.target} of {self.distribution}"

    @property
    def module(self) -> str:
        return self.target.partition(":")[0].strip()


@dataclass(frozen=True, slots=True)
class Installed:
    """offers: by name, in the order of sys.path. unreadable: distributions whose entry points cannot be read."""

    offers: Mapping[str, tuple[Offer, ...]]
    unreadable: tuple[str, ...]


def refuses_packages() -> bool:
    """Whether nothing of another package may be imported."""
    return os.environ.get(NO_OPS, "") not in ("", "0")


def package_folders() -> tuple[str, ...]:
    """The folders that installers put packages into."""
    import site
    import sysconfig

    folders = [sysconfig.get_path("purelib"), sysconfig.get_path("platlib"), *site.getsitepackages()]
    folders += [site.getusersitepackages()] if site.ENABLE_USER_SITE else []
    return tuple(dict.fromkeys(map(os.path.realpath, folders)))


def find_offers(group: str) -> Installed:
    """What the installed distributions offer in an entry point group, by their metadata; no package is imported."""
    return Installed(MappingProxyType({}), ()) if refuses_packages() else _find_offers(group)


@functools.cache
def _find_offers(group: str) -> Installed:
    from importlib import metadata

    offers: dict[str, list[Offer]] = {}
    unreadable: list[str] = []
    seen: set[str] = set()
    here = package_folders()
    for distribution in metadata.distributions(path=list(here)):
        try:
            points = [point for point in distribution.entry_points if point.group == group]
        except Exception as error:
            unreadable.append(f"{_title(distribution)} ({describe_error(error)})")
            continue
        title = _title(distribution) if points else ""
        if not points or title.partition(" ")[0] in seen:  # of two on sys.path, Python imports the first
            continue
        seen.add(title.partition(" ")[0])
        for point in points:
            folders = (*here, *_source_folders(distribution))
            offers.setdefault(point.name, []).append(Offer(point.name, point.value, title, folders))
    listed = {name: tuple(found) for name, found in sorted(offers.items())}
    return Installed(MappingProxyType(listed), tuple(unreadable))


def _source_folders(distribution: object) -> tuple[str, ...]:
    """Where somebody has installed a distribution from, to work on it: pip notes it in direct_url.json."""
    from urllib.parse import urlparse
    from urllib.request import url2pathname

    try:
        data = json.loads(distribution.read_text("direct_url.json") or "{}")  # type: ignore[attr-defined]
        url = urlparse(data["url"] if data["dir_info"]["editable"] is True else "")
    except Exception:
        return ()
    return (os.path.realpath(url2pathname(url.path)),) if url.scheme == "file" else ()


def _title(distribution: object) -> str:
    """Name and version; metadata may lack both."""
    try:
        name, version = (getattr(distribution, key, None) for key in ("name", "version"))
    except Exception:
        name = version = None
    return f"{name or 'a distribution without a name'} {version or ''}".strip()


def several(offers: tuple[Offer, ...]) -> str:
    """What is said of a name that more than one distribution offers."""
    return f"`{offers[0].name}` is offered by {' and by '.join(o.distribution for o in offers)}"


class Unloadable(Exception):
    """Why what an entry point names cannot be had, in words."""


def load_offer(offer: Offer, group: str) -> Any:
    """What an entry point names, its package imported. Unloadable: that fails, or Python would import another package
    of that name."""
    from importlib.metadata import EntryPoint

    if elsewhere := find_elsewhere(offer.target, offer.folders):
        raise Unloadable(elsewhere)
    try:
        return EntryPoint(offer.name, offer.target, group).load()
    except (Exception, SystemExit) as error:
        raise Unloadable(describe_error(error)) from error


def find_elsewhere(module: str, folders: tuple[str, ...]) -> str:
    """Why a module, or `module:Class`, is not what an installer put into these folders, "" where it is: another one of
    the name may come first on sys.path, such as one of the working directory. Looking imports nothing."""
    from importlib.util import find_spec

    top = module.partition(":")[0].partition(".")[0].strip()
    try:
        spec = find_spec(top)
    except (ImportError, ValueError) as error:
        return describe_error(error)
    places = [*([spec.origin] if spec and spec.has_location and spec.origin else []),
              *((spec.submodule_search_locations or ()) if spec else ())]  # fmt: skip
    for place in map(os.path.realpath, places):
        if not any(place.startswith(folder + os.sep) for folder in folders):
            return f"Python would import `{top}` from {place}, where it is not installed"
    return ""
