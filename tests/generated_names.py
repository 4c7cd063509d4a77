"""The tables of names of the built-in families: render/names_table.py collects them from the specs of this module.

Every form of every template is among these. The tables are written to families/FAMILY/generated_names.json.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import gemm_specs
import name_probes
import pytest
from bound_winners import TILINGS, bound, winner

from cutegen.families.gemm import portfolio
from cutegen.render import names_table
from cutegen.resolve import Lock, Resolution, split_document
from cutegen.spec import SpecDocument, load_text, parse_spec

SPECS = Path(__file__).parent.parent / "specs"
# Most probes are about the forms of a module, for which the default tiling will do.
ONE_TILING = "portfolio: 1\n"


@functools.cache
def probes(family: str) -> tuple[tuple[Resolution, ...], ...]:
    """Specs of the family in every form, with names that nothing else can have; one of them with winners."""
    shipped = [path.read_text(encoding="utf-8") for path in sorted(SPECS.glob("*.yaml")) if ".lock" not in path.name]
    others = {"gemm": [*gemm_specs.EDGES.values(), *gemm_specs.CONSTANTS.values(), *name_probes.GEMM],
              "mla_decode": name_probes.MLA_DECODE, "rowwise": name_probes.ROWWISE}[family]  # fmt: skip
    texts = (*(text for text in shipped if f"kernel: {family}\n" in text), *others)
    if family != "gemm":
        return tuple(_resolve(rename(text)) for text in dict.fromkeys(texts))
    alone = [_resolve(rename(text) + ONE_TILING) for text in dict.fromkeys(texts) if "\nportfolio:" not in text]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(portfolio, "MOST_PROBLEMS", 12)  # of fewer problems, which takes less and makes the same names
        whole = [_resolve(rename(text)) for text in name_probes.PORTFOLIOS]
    return (*alone, *whole, _with_winners(_resolve(rename(gemm_specs.PLAIN) + ONE_TILING)))


def _resolve(text: str, lock: Lock | None = None) -> tuple[Resolution, ...]:
    return names_table.resolve_probe(text, lock)


def _with_winners(probe: tuple[Resolution, ...]) -> tuple[Resolution, ...]:
    (plain,) = probe
    dims = (dim.name for dim in plain.resolved.problem.dims)
    won = winner(1, 16, "turns")
    won = replace(won, calls=dict(zip(dims, won.calls.values())))
    winners = bound([won], text=plain.document.text)
    return _resolve(plain.document.text, plain.lock.with_winners({"turns": TILINGS["turns"]}, winners))


def rename(text: str) -> str:
    """The spec with each of its names made into one that tells its kind."""
    kinds = spec_kinds(split_document(load_text(text, "probe"))[0])
    return with_names(text, {name: names_table.probe_name(kind, name) for name, kind in kinds.items()})


def with_names(text: str, names: Mapping[str, str]) -> str:
    """The spec with other names, by old one; without comments and what has no effect on names."""
    if not names:
        return text
    pattern = re.compile(rf"(?<![\w.-])(?!^m:)({'|'.join(sorted(names, key=len, reverse=True))})\b", re.MULTILINE)
    kept = "\n".join(line.partition(" #")[0] for line in _lines_with_names(text))
    implied = "kernel: gemm" in text and "\nmainloop:" not in text
    product = f"mainloop: {names.get('a', 'a')} @ {names.get('b', 'b')}\n" if implied else ""
    return pattern.sub(lambda match: names[match[1]], kept) + "\n" + product


def _lines_with_names(text: str) -> Iterator[str]:
    """Less comments, and the sections that have no effect on names."""
    kept = False
    for line in text.splitlines():
        if line[:1].strip():
            kept = not line.startswith(("bench:", "check:", "tune:", "#"))
        if kept:
            yield line


def spec_kinds(document: SpecDocument) -> dict[str, str]:
    """The names of a spec, each with the letter of its kind."""
    spec = parse_spec(document)
    if not hasattr(spec, "tensors"):
        return {}
    of_rows = hasattr(spec, "rows")
    epilogue = spec.rows if of_rows else spec.epilogue or {}
    rest = [] if of_rows else [name for name in spec.tensors if not re.search(rf"\b{name}\b", spec.mainloop)]
    assigned = set(epilogue) or set(rest[-1:])
    kinds = dict.fromkeys(spec.dim_names(), "d")
    for name in spec.tensors:
        updated = name in epilogue and re.search(rf"\b{name}\b", epilogue[name])
        kinds[name] = "u" if updated else "o" if name in assigned else "i"
    return kinds | {name: "l" for name in epilogue if name not in spec.tensors}


def table_text(family: str) -> str:
    return names_table.table_text(names_table.collect(probes(family)))
