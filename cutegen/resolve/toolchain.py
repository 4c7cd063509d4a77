"""What winners were measured with, in words, and whether that is what is installed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path

from cutegen import __version__
from cutegen.resolve.binding import KERNELS, read_tools
from cutegen.resolve.winners import DEFAULT, REASONS_SHOWN, Winner
from cutegen.runtime.sources import distribution_versions

# Of a toolchain what a machine without a GPU has as well: the CUDA flavour goes by the driver, which is told beside it.
_KNOWN = ("dsl", "cutegen")


def describe_toolchain(software: str) -> str:
    """Versions that times depend on, in a line: dsl 4.8.1 cu13, driver 580.65.06, torch 2.11.0+cu130, cutegen 0.1."""
    found = distribution_versions()
    flavours = sorted(name.rpartition("_")[2] for name in found if name.startswith("nvidia_cutlass_dsl_libs_cu"))
    dsl = " ".join(["dsl", found.get("nvidia_cutlass_dsl", "none"), *flavours])
    return ", ".join(filter(None, (dsl, software, f"cutegen {__version__}", f"kernels {KERNELS}")))


def report_other_toolchains(winners: Iterable[Winner], spec: Path) -> Iterator[str]:
    """Notes about winners that were measured with another DSL or cutegen than those installed; none where no DSL is."""
    if "nvidia_cutlass_dsl" not in distribution_versions():
        return
    now = _versions(describe_toolchain(""))
    others: dict[str, list[Winner]] = {}
    for winner in winners:
        then = _versions(winner.toolchain)
        if any(now[name] != version for name, version in then.items()):
            others.setdefault(_say(then), []).append(winner)
    for then_said, found in islice(others.items(), REASONS_SHOWN):
        only_defaults = all(w.tiling == DEFAULT for w in found)
        again = f"`cutegen tune {spec}{'' if only_defaults else ' --confirm'}` measures them again"
        many = "s were" if len(found) > 1 else " was"
        yield f"{len(found)} winner{many} measured with {then_said}, installed: {_say(now)}; they hold, and {again}"
    if left := [*others.values()][REASONS_SHOWN:]:
        yield f"{sum(map(len, left))} more winners were measured with other versions; they hold"


def _versions(toolchain: str) -> dict[str, str]:
    """Of what is in _KNOWN, as far as the text tells."""
    return {name: version for name, version in read_tools(toolchain).items() if name in _KNOWN}


def _say(versions: dict[str, str]) -> str:
    return ", ".join(f"{name} {version}" for name, version in versions.items())
