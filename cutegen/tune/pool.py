"""The candidates of one problem: what is tried, what is not and why, and the package that holds the kernels."""

from __future__ import annotations

import ast
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from cutegen.families.tuned import TunedRow
from cutegen.families.tuning import Proposal, TuningSpace
from cutegen.render import RenderedPackage, render_package
from cutegen.resolve import Resolution, resolve_tuned
from cutegen.run.shapes import Shape
from cutegen.runtime.compile import instance_key


@dataclass(frozen=True, slots=True)
class Pruned:
    """Proposals that one rule refuses. reason: of the first of them."""

    rule: str
    count: int
    reason: str


@dataclass(frozen=True, slots=True)
class Pool:
    """tried: best first. left_out: how many legal ones rank behind them."""

    tried: tuple[Proposal, ...]
    pruned: tuple[Pruned, ...]
    left_out: int


def gather(
    space: TuningSpace,
    problem: Shape,
    known: Sequence[Any],
    default: Any,
    limit: int,
    unordered: bool = False,
    also: Collection[Any] = (),
) -> Pool:
    """The first `limit` legal candidates of a problem, and before them the `known` ones (winners of other days and of
    other problems); the default is not among them. unordered: also such whose bits may differ from run to run. also:
    those that are compiled in any case, which are candidates whatever their rank."""
    tried = {c: Proposal(c, space.describe(c), "a winner of the lock", ()) for c in known if c != default}
    counts: dict[str, int] = {}
    reasons: dict[str, str] = {}
    rank = left_out = 0
    for proposal in space.propose(problem, unordered):
        if proposal.refusals:
            first = proposal.refusals[0]
            counts[first.rule] = counts.get(first.rule, 0) + 1
            reasons.setdefault(first.rule, first.reason)
        elif proposal.candidate != default:
            rank += 1  # of known ones as well: a second tune, which knows the winner of the first, tries no others
            if proposal.candidate not in tried:
                if rank <= limit or proposal.candidate in also:
                    tried[proposal.candidate] = proposal
                else:
                    left_out += 1
    pruned = tuple(Pruned(rule, count, reasons[rule]) for rule, count in counts.items())
    return Pool(tuple(tried.values()), pruned, left_out)


def gather_known(space: TuningSpace, winners: Sequence[Any], renewed: Sequence[Any], default: Any) -> Pool:
    """Winners of the lock to measure again, and `renewed`, what `TuningSpace.renew` makes of them; no others."""
    whys = dict.fromkeys(renewed, "a winner of the lock, with what the default has by now")
    whys |= dict.fromkeys(winners, "a winner of the lock")
    order = dict.fromkeys((*winners, *renewed))
    return Pool(tuple(Proposal(c, space.describe(c), whys[c], ()) for c in order if c != default), (), 0)


@dataclass(frozen=True, slots=True)
class TuningPackage:
    """A package with an instance for each candidate. names: of the instances, by candidate, defaults included; keys:
    what the timing store knows instances by, by name."""

    resolved: Any
    rendered: RenderedPackage
    names: Mapping[Any, str]
    keys: Mapping[str, str]


def compose(resolution: Resolution, proposals: Sequence[Proposal], defaults: Sequence[Any]) -> TuningPackage:
    """The kernel of a spec with a tiling for each proposal, that no call runs by itself. defaults: the candidates, of
    the spec itself, beside which others are timed."""
    rows = [TunedRow("", {}, f"candidate {i}", p.knobs) for i, p in enumerate(proposals)]
    outcome = resolve_tuned(resolution, rows)
    resolved = outcome.resolved
    rendered = render_package(resolved)
    names = {p.candidate: outcome.instances[row.name] for p, row in zip(proposals, rows)}
    names |= {c: next(t.name for t in resolved.tilings if t.candidate == c) for c in defaults}
    modules = {module: _code(rendered.files[f"{module}.py"]) for module in {t.module for t in resolved.tilings}}
    root = Path("generated") / resolved.name
    keys = {
        t.name: instance_key(
            modules[t.module],
            f"generated.{resolved.name}.{t.module}",
            root / f"{t.module}.py",
            t.numbers,
            resolved.arch,
        )
        for t in resolved.tilings
    }
    return TuningPackage(resolved, rendered, names, keys)


@lru_cache(maxsize=64)  # candidates of all problems come from a few modules
def _code(source: str) -> str:
    """A module without comments and docstrings: these tell of the instances that share it, and change no kernel."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if (
            isinstance(body, list)
            and body
            and isinstance(body[0], ast.Expr)
            and isinstance(body[0].value, ast.Constant)
        ):
            body[0] = ast.Pass()
    return ast.unparse(tree)
