"""Runs device functions of one warp in plain Python, from their own source, so that a test cannot drift from them.

Every lane is a generator that stops at each operation of the whole warp; all lanes must reach the same one.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Generator, Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

LANES = range(32)
REDUCTIONS: dict[str, Callable[[Iterable[int]], int]] = {"add": sum, "max": max, "min": min}
# Reply to each lane, of the arguments of all lanes.
WARP: dict[str, Callable[[list[Any]], Iterable[Any]]] = {
    "lane_idx": lambda args: LANES,
    "sync_warp": lambda args: [None for _ in args],
    "sync_threads": lambda args: [None for _ in args],  # of a CTA of one warp
    "thread_idx": lambda args: [(lane, 0, 0) for lane in LANES],
    "vote_ballot_sync": lambda args: [sum(bool(x) << i for i, (x,) in enumerate(args))] * len(LANES),
    "shuffle_sync": lambda args: [args[source][0] for _, source in args],
    "shuffle_sync_up": lambda args: [args[i - by if i >= by else i][0] for i, (_, by) in enumerate(args)],
    "warp_redux_sync": lambda args: [REDUCTIONS[args[0][1]](x for x, _ in args)] * len(LANES),
}
DSL = {
    "cutlass": SimpleNamespace(range=lambda *ends, unroll: range(*ends), range_constexpr=range, max=max, min=min),
    "const_expr": lambda x: x,
    "Int32": int,
    "Uint32": int,
    "Boolean": bool,
}


class _Lane(ast.NodeTransformer):
    """Makes generators of functions: calls of each other delegate, warp-wide operations stop."""

    def __init__(self, functions: set[str]) -> None:
        self.functions = functions

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        self.generic_visit(node)
        node.body += ast.parse("if False: yield").body
        return node

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        match node.func:
            case ast.Name(id=name) if name in self.functions:
                return ast.YieldFrom(node)
            case ast.Attribute(value=ast.Attribute(attr="arch"), attr=name) if name in WARP:
                return ast.Yield(ast.Tuple([ast.Constant(name), ast.Tuple(node.args, ast.Load())], ast.Load()))
        return node


def device_functions(path: Path, names: Iterable[str] = (), *, warp: bool, **given: Any) -> dict[str, Any]:
    """Functions (of any class; `names`, or all) and module constants of a device source, with Python's numbers. warp:
    the functions are written for `run_warp`, as those of `given` may be; else for one thread. given: what else they
    name."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    found = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    functions = [node for node in found if not names or node.name in names]
    for node in functions:
        node.decorator_list, node.returns = [], None
        for argument in (*node.args.args, *node.args.kwonlyargs):
            argument.annotation = None
    constants = [
        node for node in tree.body if isinstance(node, ast.Assign) and not any(map(_is_dsl, ast.walk(node.value)))
    ]
    module = ast.Module([*constants, *functions], [])
    if warp:
        warps = {name for name, value in given.items() if inspect.isgeneratorfunction(value)}
        module = _Lane({node.name for node in functions} | warps).visit(module)
    namespace: dict[str, Any] = {**DSL, **given}
    exec(compile(ast.fix_missing_locations(module), str(path), "exec"), namespace)
    return namespace


def _is_dsl(node: ast.AST) -> bool:
    return isinstance(node, ast.Name)


def run_warp(function: Callable[..., Generator[Any, Any, None]], *args: Any) -> None:
    """Calls a warp function in all lanes, side by side, with the same arguments."""
    lanes = [function(*args) for _ in LANES]
    replies: list[Any] = [None for _ in LANES]
    while True:
        stops = [_resume(lane, reply) for lane, reply in zip(lanes, replies)]
        kinds = {stop[0] for stop in stops}
        assert len(kinds) == 1, f"lanes of a warp at different operations: {kinds}"
        (kind,) = kinds
        if kind == "end":
            return
        replies = list(WARP[kind]([stop[1] for stop in stops]))


def _resume(lane: Generator[Any, Any, None], reply: Any) -> tuple[str, Any]:
    try:
        return lane.send(reply)  # type: ignore[no-any-return]
    except StopIteration:
        return "end", None
