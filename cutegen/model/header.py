"""A kernel's model in the docstring of its module."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from cutegen.model.kernel import NamedBarrier, Role
from cutegen.render.layout import wrapped


def list_roles(roles: Sequence[Role], whose: str = "") -> Iterable[str]:
    """A line for each role, or several with the text in its column. whose: the tiling whose numbers these are, where
    the module has others."""
    width = max((len(role.name) for role in roles), default=0)
    yield f"Roles (warps of one CTA{f'; all numbers here are of {whose}' if whose else ''}):"
    for role in roles:
        start = f"  {role.name:<{width}}  {role.warps.span:<6}  "
        yield from wrapped(start + role.does, " " * len(start))


def list_barriers(barriers: Sequence[NamedBarrier]) -> Iterable[str]:
    yield "Named barriers:"
    for barrier in barriers:
        yield f"  {barrier.id} {barrier.name}, {barrier.threads} threads: {barrier.says}"
