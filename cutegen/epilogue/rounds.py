"""Statements of a row in the order in which a group of threads computes them, reductions being values.

The level of a reduction is one more than the highest level of a reduction that its value depends on. Reductions of one
level make a round: each thread joins what its elements contribute, one exchange joins what the threads have, and what
has one value for the row is computed from the results. Elements are not kept from round to round but computed again
from the inputs, which are.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from cutegen.epilogue.program import Assign, EpilogueProgram, needed_for
from cutegen.epilogue.tree import (
    Binary,
    Call,
    Compare,
    Expr,
    Index,
    Name,
    Number,
    Reduce,
    ReduceOp,
    Slice,
    Stored,
    Where,
    children,
    is_constant,
    map_children,
    reads,
    walk,
)

ELEMENTS = ("tile", "row_vector", "index")  # kinds of operands with a value for each element of a row


@dataclass(frozen=True, slots=True)
class RowReduction:
    """name: in `each` of its round what an element contributes, from then on the result. place: name of the row's value
    that is the place of the one element that contributes, or "": all may. op: exp_sum for the sum of
    exp(x - top), top being the maximum of x, which is joined in the same round and stands before it; an element
    contributes x."""

    name: str
    op: ReduceOp | Literal["exp_sum"]
    place: str = ""


@dataclass(frozen=True, slots=True)
class Round:
    """reduced: in one exchange. each: statements for one element, those of `reduced` last. once: statements of what has
    one value for the row, the results being known; gives: those of their values that are read later, or stored."""

    reduced: tuple[RowReduction, ...]
    each: tuple[Assign, ...]
    once: tuple[Assign, ...]
    gives: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RowProgram:
    """rounds: the first one reduces nothing, and is there where something is computed once before all others. blocks:
    the reductions of blocks, which are joined by the threads that have one when all rounds are done; once: for each
    block. after: statements of the outputs that have a value for each element, and of what elements contribute to
    reductions over rows, under the names of these."""

    rounds: tuple[Round, ...]
    after: tuple[Assign, ...]
    blocks: Round | None = None


def name_index(statements: Iterable[Assign], taken: Collection[str]) -> tuple[tuple[Assign, ...], str]:
    """Statements with a name in place of the index of a row's elements, and that name; "" where none reads it."""
    indices = [node.dim for s in statements for node in walk(s.expr) if isinstance(node, Index)]
    if not indices:
        return tuple(statements), ""
    name = f"index_{indices[0]}"
    while name in taken:
        name += "_"

    def convert(node: Expr) -> Expr:
        return Name(name, node.span) if isinstance(node, Index) else map_children(node, convert)

    return tuple(replace(s, expr=convert(s.expr)) for s in statements), name


def find_element_names(program: EpilogueProgram) -> set[str]:
    """Names of what has a value for each element of a row."""
    found = {o.name for o in program.operands if o.kind in ELEMENTS}
    for s in program.statements:
        if has_elements(s.expr, found):
            found.add(s.name)
    return found


def find_block_names(program: EpilogueProgram) -> set[str]:
    """Names of what has a value for each block of elements, and not for each element."""
    elements, found = find_element_names(program), set[str]()
    for s in program.statements:
        if s.name not in elements and has_blocks(s.expr, found):
            found.add(s.name)
    return found


def has_blocks(expr: Expr, blocks: Collection[str]) -> bool:
    """Whether an expression depends on values of blocks, outside of reductions of rows. blocks: names of such."""
    if isinstance(expr, Reduce):
        return bool(expr.block)
    if isinstance(expr, Name | Stored):
        return expr.name in blocks
    return any(has_blocks(part, blocks) for part in children(expr))


def has_elements(expr: Expr, elements: Collection[str]) -> bool:
    """Whether an expression has a value for each element of a row. elements: names that have."""
    if isinstance(expr, Name | Stored | Slice):
        return expr.name in elements
    return not isinstance(expr, Reduce) and any(has_elements(part, elements) for part in children(expr))


def contribution(node: Reduce) -> Expr:
    """What an element contributes to a reduction."""
    return Call("abs", (node.value,), node.span) if node.op == "max_abs" else node.value


def cut_rounds(program: EpilogueProgram, taken: Collection[str], online: bool = False) -> RowProgram:
    """The rounds of statements without slices. taken: names that no reduction may get. online: whether sums of
    exponentials are joined with the maximum that they are relative to, for rows that are loaded in each round."""
    return _Cutter(program, taken, online).cut()


class _Cutter:
    def __init__(self, program: EpilogueProgram, taken: Collection[str], online: bool) -> None:
        self.program, self.online = program, online
        self.exp_sums: dict[str, str] = {}  # by the maximum that they are joined with
        self.taken = {*taken, *(o.name for o in program.operands), *(s.name for s in program.statements)}
        self.elements = {o.name for o in program.operands if o.kind in ELEMENTS}
        self.reduced: dict[str, RowReduction] = {}
        self.known: dict[Reduce, str] = {}
        self.of_blocks: set[str] = set()  # names of reductions of blocks, and of what is computed of them once a block
        self.statements: list[Assign] = []  # with names in place of reductions, which are statements of their own
        self.level: dict[str, int] = {}
        self.constants: set[str] = set()
        self.over_rows = tuple(r.name for r in program.reductions)
        for s in program.statements:
            self.add(s)

    def add(self, s: Assign) -> None:
        if s.name in self.over_rows:
            assert isinstance(s.expr, Reduce)
            s = replace(s, expr=contribution(s.expr))
        lifted = replace(s, expr=self.lift(s.expr, s, whole=s.name not in self.over_rows))
        if s.name in self.reduced:
            return
        if is_constant(lifted.expr, self.constants):
            self.constants.add(s.name)
        elif has_elements(lifted.expr, self.elements):
            self.elements.add(s.name)
        elif self.of_blocks.intersection(reads(lifted.expr)):
            self.of_blocks.add(s.name)
        self.level[s.name] = self.level_of(lifted.expr)
        self.statements.append(lifted)

    def level_of(self, expr: Expr) -> int:
        return max((self.level.get(name, 0) for name in reads(expr)), default=0)

    def lift(self, node: Expr, owner: Assign, whole: bool = False) -> Expr:
        """The tree with names in place of its reductions; equal ones have one name."""
        if not isinstance(node, Reduce):
            return map_children(node, lambda part: self.lift(part, owner))
        inner = replace(node, value=self.lift(node.value, owner))
        if inner not in self.known:
            name = owner.name if whole else self.fresh(inner, owner)
            self.known[inner] = name
            if top := self.find_top(inner):
                self.exp_sums[top] = name
                self.reduced[name], self.level[name] = RowReduction(name, "exp_sum"), self.level[top]
                self.statements.append(Assign(name, Name(top, inner.span), "local", ""))
                return Name(name, node.span)
            self.reduced[name] = RowReduction(name, inner.op, self.find_place(inner))
            self.level[name] = (not inner.block) + self.level_of(inner.value)
            if inner.block:
                self.of_blocks.add(name)
            self.statements.append(Assign(name, contribution(inner), "local", ""))
        return Name(self.known[inner], node.span)

    def find_top(self, node: Reduce) -> str:
        """The maximum of x of a sum of exp(x - max(x, n)), with which it can be joined; "" of another reduction."""
        match self.resolve(node.value):
            case Call("exp", (Binary("-", x, Name(top)),)) if self.online and (node.op, node.block) == ("sum", 0):
                own = {s.name: s.expr for s in self.statements}.get(top)
                largest = top in self.reduced and self.reduced[top].op == "max" and top not in self.of_blocks
                alike = own is not None and self.resolve(own) == self.resolve(x)
                return top if largest and alike and top not in self.exp_sums else ""
        return ""

    def find_place(self, node: Reduce) -> str:
        """The place of the only element that contributes to a sum, if that has a name."""
        match node.op, node.value:
            case "sum", Where(Compare("==", Name(index), Name(place)), _, Number(0.0)) if not node.block:
                indices = [o.name for o in self.program.operands if o.kind == "index"]
                free = place not in self.elements | self.constants
                return place if index in indices and free else ""
        return ""

    def resolve(self, expr: Expr) -> Expr:
        """What a local stands for."""
        own = {s.name: s.expr for s in self.statements if s.name in self.elements}
        while isinstance(expr, Name) and expr.name in own:
            expr = own[expr.name]
        return expr

    def fresh(self, node: Reduce, owner: Assign) -> str:
        name = f"{node.op}_{node.value.name if isinstance(node.value, Name) else owner.name}"
        while name in self.taken:
            name += "_"
        self.taken.add(name)
        return name

    def cut(self) -> RowProgram:
        own = [s for s in self.statements if s.name not in self.reduced]
        each = {s.name for s in own if s.name in self.elements} | self.constants
        once = {s.name for s in own} - each - self.of_blocks
        joined = {name for name in self.reduced if name in self.of_blocks}
        outputs = [*(o.name for o in self.program.outputs), *self.over_rows]
        after = needed_for([name for name in outputs if name in self.elements], self.statements, each)
        bodies = {level: self.bodies(level, each) for level in range(1, 1 + max(self.level.values(), default=0))}
        stored = [*outputs, *(o.name for o in self.program.block_outputs)]
        of_block = needed_for(joined, self.statements, {*each, *joined})
        late = {r for s in after for r in reads(s.expr)} | {*stored}
        per_block = needed_for(late & self.of_blocks, self.statements, (self.of_blocks - joined) | self.constants)
        parts = (after, of_block, per_block, *bodies.values())
        used = {r for body in parts for s in body for r in reads(s.expr)} | {*outputs}
        rounds: list[Round] = []
        for level in range(max(self.level.values(), default=0), -1, -1):
            here = {name for name in once if self.level[name] == level}
            lines = needed_for(used & here, self.statements, here | self.constants)
            gives = tuple(s.name for s in lines if s.name in used and s.name in here)
            used |= {r for s in lines for r in reads(s.expr)}
            own_level = [r for r in self.reduced.values() if r.name not in joined and self.level[r.name] == level]
            first = (r for r in own_level if r.op != "exp_sum")
            behind = ((r, self.reduced[self.exp_sums[r.name]]) if r.name in self.exp_sums else (r,) for r in first)
            reduced = tuple(r for pair in behind for r in pair)
            if reduced or lines:
                rounds.insert(0, Round(reduced, bodies.get(level, ()), lines, gives))
        gives = tuple(s.name for s in per_block if s.name in late and s.name in self.of_blocks)
        results = tuple(r for r in self.reduced.values() if r.name in joined)
        return RowProgram(tuple(rounds), after, Round(results, of_block, per_block, gives) if joined else None)

    def bodies(self, level: int, each: Collection[str]) -> tuple[Assign, ...]:
        names = {name for name in self.reduced if self.level[name] == level and name not in self.of_blocks}
        return needed_for(names, self.statements, {*each, *names})


def read_by(statements: Sequence[Assign]) -> set[str]:
    """Names that statements read of what they do not assign."""
    return {r for s in statements for r in reads(s.expr)} - {s.name for s in statements}
