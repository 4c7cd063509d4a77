"""Epilogues that read values of blocks of columns, in the order in which a kernel computes them.

`s: max_abs(x, n, 128)` is one value for each row and block, so that what reads it waits for all columns of the block. A
kernel goes through a block twice: `before` computes what is reduced, `once` runs for each row of the block with the
joined values, `after` computes the outputs. In between, a value may take the place of the accumulator that it was
computed from; what finds no room is computed again.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace

from cutegen.epilogue.ops import FUNCTIONS
from cutegen.epilogue.program import ACCUMULATORS, Assign, EpilogueProgram, Operand, Report, needed_for
from cutegen.epilogue.rules import BLOCK, MAX_PAIRS, NOT_YET_SUPPORTED
from cutegen.epilogue.tree import (
    Binary,
    Call,
    Expr,
    Name,
    Reduce,
    ReduceOp,
    Slice,
    Stored,
    children,
    map_children,
    reads,
    walk,
)


@dataclass(frozen=True, slots=True)
class BlockReduction:
    """name: in `before` what an element contributes, in `once` the result."""

    name: str
    op: ReduceOp


@dataclass(frozen=True, slots=True)
class Passes:
    """before, once, after: statements. kept: (accumulator, the value that takes its place), of those that `after`
    reads. given: values of `once` that `after` reads or that are stored. inverses: (value, name of its inverse), of
    those that `after` divides by. tiles_before: whether tiles are read in `before` and not in `after`. repeated: values
    of an element that `after` computes again beside kept ones that it needs as well, or rounds again: compilers keep
    those, too."""

    reduced: tuple[BlockReduction, ...]
    before: tuple[Assign, ...]
    once: tuple[Assign, ...]
    after: tuple[Assign, ...]
    kept: tuple[tuple[str, str], ...]
    given: tuple[str, ...]
    inverses: tuple[tuple[str, str], ...]
    tiles_before: bool
    repeated: int

    @property
    def held(self) -> tuple[str, ...]:
        """What is computed once and read by `after`, or stored."""
        return (*self.given, *(inverse for _, inverse in self.inverses))


def find_block_values(statements: Sequence[Assign], operands: Sequence[Operand]) -> set[str]:
    """Names of what has one value for a row and block."""
    elements, found = find_elements(statements, operands), set[str]()
    for s in statements:
        if s.name not in elements and is_of_blocks(s.expr, found, elements):
            found.add(s.name)
    return found


def is_of_blocks(expr: Expr, values: Collection[str], elements: Collection[str]) -> bool:
    """Whether an expression has one value for a row and block. values: names that have; elements: names of values of
    columns."""
    nodes = list(_outside(expr))
    names = [node.name for node in nodes if isinstance(node, Name | Stored)]
    if any(isinstance(node, Slice) for node in nodes) or any(name in elements for name in names):
        return False
    return any(isinstance(node, Reduce) for node in nodes) or any(name in values for name in names)


def find_elements(statements: Sequence[Assign], operands: Sequence[Operand]) -> set[str]:
    """Names of what has a value for each column."""
    found = {*ACCUMULATORS, *(o.name for o in operands if o.kind in ("row_vector", "tile"))}
    for s in statements:
        nodes = list(_outside(s.expr))
        if any(isinstance(node, Slice) or (isinstance(node, Name | Stored) and node.name in found) for node in nodes):
            found.add(s.name)
    return found


def _outside(expr: Expr) -> Iterator[Expr]:
    """All nodes but those inside of reductions of blocks."""
    yield expr
    if not (isinstance(expr, Reduce) and expr.block):
        for part in children(expr):
            yield from _outside(part)


def check_blocks(program: EpilogueProgram, split: EpilogueProgram, keep: bool, report: Report) -> None:
    """Reports blocks that one kernel cannot have. split: the program of a pair, or the same. keep: as of
    `find_passes`."""
    values: set[str] = set()
    first: Reduce | None = None
    ok = True
    for s in program.statements:
        for node in _reductions(s.expr):
            path, said, remedy = ("epilogue", s.name), "", ""
            if any(name in values for name in reads(node.value)) or any(True for _ in _reductions(node.value)):
                said, remedy = "what is reduced depends on another value of blocks", "reduce that in the next kernel"
            elif first and node.block != first.block:
                said = f"blocks of {node.block} columns together with blocks of {first.block}"
                remedy = f"use {first.block} for both"
            elif program.pairing and node.block > MAX_PAIRS:
                said = f"blocks of {node.block} pairs take {2 * node.block} columns, a tile has at most {2 * MAX_PAIRS}"
                remedy = f"use blocks of {MAX_PAIRS}"
            first = first or node
            if said:
                ok = False
                report(BLOCK, path, said, remedy, span=node.span)
        if any(True for _ in _reductions(s.expr)) or values.intersection(reads(s.expr)):
            values.add(s.name)
    if ok and first is not None and isinstance(found := find_passes(split, keep), str):
        owner = next(s for s in program.statements if any(node is first for node in _reductions(s.expr)))
        report(NOT_YET_SUPPORTED, ("epilogue", owner.name), found, "add the tile in the next kernel", span=first.span)


def _reductions(expr: Expr) -> Iterator[Reduce]:
    """Reductions of blocks that are not inside of others."""
    return (node for node in _outside(expr) if isinstance(node, Reduce) and node.block)


@functools.lru_cache(maxsize=64)
def find_passes(program: EpilogueProgram, keep: bool = True) -> Passes | str:
    """The passes of a program without slices (`split_pairs`), in the frame of the spec, or why there are none. keep:
    whether accumulators are f32, so that other values can take their place."""
    return _Planner(program).plan(keep)


class _Planner:
    """One program on its way to passes."""

    def __init__(self, program: EpilogueProgram) -> None:
        self.program = program
        self.taken = {*FUNCTIONS, *ACCUMULATORS, *(o.name for o in program.operands)}
        self.taken |= {s.name for s in program.statements}
        self.reduced: dict[str, Reduce] = {}
        self.statements: list[Assign] = []
        for s in self.tell_scaled_apart():
            expr = self.lift(s.expr, s)
            if s.name not in self.reduced:
                self.statements.append(replace(s, expr=expr))
        self.elements = find_elements(self.statements, program.operands)
        self.accumulators = [name for name in ACCUMULATORS if (name == "acc") == (program.pairing is None)]

    def tell_scaled_apart(self) -> Iterator[Assign]:
        """The statements, with the scaled accumulators of a mainloop under names of their own."""
        names: dict[str, str] = {}

        def rename(node: Expr) -> Expr:
            if isinstance(node, Name) and node.name in names:
                return replace(node, name=names[node.name])
            return map_children(node, rename)

        for s in self.program.statements:
            expr = rename(s.expr)
            if s.name in ACCUMULATORS:
                names[s.name] = self.fresh(f"scaled_{s.name}")
            yield replace(s, name=names.get(s.name, s.name), expr=expr)

    def fresh(self, name: str) -> str:
        while name in self.taken:
            name += "_"
        self.taken.add(name)
        return name

    def lift(self, node: Expr, owner: Assign) -> Expr:
        """The tree with names in place of its reductions of blocks."""
        if not (isinstance(node, Reduce) and node.block):
            return map_children(node, lambda part: self.lift(part, owner))
        what = node.value.name if isinstance(node.value, Name) else owner.name
        name = owner.name if node is owner.expr else self.fresh(f"{node.op}_{what}")
        self.reduced[name] = node
        return Name(name, node.span)

    def plan(self, keep: bool) -> Passes | str:
        late = set(self.reduced)  # what a block's values are needed for
        for s in self.statements:
            if late.intersection(reads(s.expr)):
                late.add(s.name)
        self.split_divisors(late)
        names = [s.name for s in self.statements]
        free = {name for name in names if name not in self.elements and name not in late}
        once = late - self.elements
        before = needed_for(
            [r for node in self.reduced.values() for r in reads(node.value)], self.statements, {*names} - late
        )
        tiles = {o.name for o in self.program.tiles}
        tiles_before = any(tiles.intersection(reads(e)) for e in self.contributions(before))
        gone = {*self.accumulators, *(tiles if tiles_before else ())}
        known = [*self.accumulators, *sorted(gone & tiles), *(s.name for s in before if s.name in self.elements)]
        wanted = [*(o.name for o in self.program.outputs), *(r.name for r in self.program.reductions)]
        chosen = self.choose(wanted, known if keep else self.accumulators, gone, {*names} - once, {*known})
        if chosen is None:
            read = self.frontier(needed_for(wanted, self.statements, {*names} - once - {*known}), wanted, known)
            listed = ", ".join(f"`{name}`" for name in read)
            room = f"{len(self.accumulators)} accumulator{'s' * (len(self.accumulators) > 1)}"
            few = f"only {room} can keep a value" if keep else "an i32 accumulator can keep none of them"
            return f"{listed} would be read again after the block is reduced, and {few}"
        kept, after = chosen
        again = {s.name for s in after if s in before}
        needed = self.frontier([s for s in after if s.name not in again], wanted, {*again, *kept})
        given = {r for s in after for r in reads(s.expr) if r in once} | {o.name for o in self.program.block_outputs}
        inverses = tuple((name, self.fresh(f"inverse_{name}")) for name in self.divisors(after, once))
        contributions = tuple(
            Assign(name, Call("abs", (node.value,), node.span) if node.op == "max_abs" else node.value, "local", "")
            for name, node in self.reduced.items()
        )
        return Passes(
            reduced=tuple(BlockReduction(name, node.op) for name, node in self.reduced.items()),
            before=(*before, *contributions),
            once=needed_for(given, self.statements, once | free),
            after=after,
            kept=self.place(kept),
            given=tuple(name for name in (*self.reduced, *names) if name in given),
            inverses=inverses,
            tiles_before=tiles_before,
            repeated=max(0, len(needed) - len(kept)) + len(self.rounded(self.contributions(before), after)),
        )

    def choose(
        self, wanted: Sequence[str], known: Sequence[str], gone: set[str], among: set[str], before: set[str]
    ) -> tuple[list[str], tuple[Assign, ...]] | None:
        """What to keep, of the values known, so that the least is computed again; and the statements of `after`, which
        read nothing that is gone. None: there is no room for it."""
        best: tuple[int, list[str], tuple[Assign, ...]] | None = None
        for size in range(len(self.accumulators) + 1):
            for values in itertools.combinations(known, size):
                after = needed_for(wanted, self.statements, among.difference(values))
                if gone.difference(values).intersection(self.frontier(after, wanted, gone)):
                    continue
                work = sum(len(list(walk(s.expr))) for s in after if s.name in before)
                if best is None or work < best[0]:
                    best = work, self.frontier(after, wanted, values), after
        return best and best[1:]

    def rounded(self, first: Sequence[Expr], after: Sequence[Assign]) -> set[str]:
        """Outputs that are rounded to what they store in both passes."""
        narrow = {o.name for o in self.program.outputs if o.dtype.name != "f32"}
        passes = (first, [s.expr for s in after])
        read = [{node.name for e in exprs for node in walk(e) if isinstance(node, Stored)} for exprs in passes]
        return narrow & read[0] & read[1]

    def contributions(self, before: Sequence[Assign]) -> list[Expr]:
        return [*(s.expr for s in before), *(node.value for node in self.reduced.values())]

    def frontier(self, after: Sequence[Assign], wanted: Collection[str], known: Collection[str]) -> list[str]:
        """Values that `after` reads, or that are outputs, of those known before it."""
        read = [*(r for s in after for r in reads(s.expr)), *wanted]
        return [name for name in dict.fromkeys(read) if name in known]

    def place(self, kept: Sequence[str]) -> tuple[tuple[str, str], ...]:
        """An accumulator for each; one that is kept stays where it is."""
        free = [a for a in self.accumulators if a not in kept]
        return tuple((name if name in self.accumulators else free.pop(0), name) for name in kept)

    def split_divisors(self, late: set[str]) -> None:
        """Names what values of columns are divided by, where it is a value of blocks."""
        made: list[Assign] = []

        def convert(node: Expr, owner: Assign) -> Expr:
            if isinstance(node, Binary) and node.op == "/" and not isinstance(node.right, Name):
                names = set(reads(node.right))
                if names & late and not names & self.elements:
                    name = self.fresh(f"divisor_of_{owner.name}")
                    made.append(Assign(name, node.right, "local", ""))
                    late.add(name)
                    return replace(node, left=convert(node.left, owner), right=Name(name, node.right.span))
            return map_children(node, lambda part: convert(part, owner))

        statements: list[Assign] = []
        for s in self.statements:
            new = replace(s, expr=convert(s.expr, s)) if s.name in self.elements else s
            statements += [*made, new]
            made.clear()
        self.statements = statements

    def divisors(self, after: Sequence[Assign], once: Collection[str]) -> list[str]:
        """Values of blocks that `after` divides by."""
        found = [n for s in after for n in _divided_by(s.expr)]
        return [name for name in dict.fromkeys(found) if name in once]


def _divided_by(expr: Expr) -> Iterator[str]:
    if isinstance(expr, Binary) and expr.op == "/" and isinstance(expr.right, Name):
        yield expr.right.name
    for part in children(expr):
        yield from _divided_by(part)
