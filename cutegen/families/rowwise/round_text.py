"""What the templates of row kernels read of rounds and of the functions that compute them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from cutegen.epilogue import Assign
from cutegen.epilogue.program import needed_for
from cutegen.epilogue.rounds import Round, RowProgram, read_by
from cutegen.epilogue.row_source import element_lines, row_value_lines
from cutegen.epilogue.tree import Binary, Name, walk
from cutegen.families.rowwise.problem import RowProblem
from cutegen.render.layout import statement


@dataclass(frozen=True, slots=True)
class RowFunctionText:
    """A function of f32 values in the kernel module. reads: its parameters; elements: those with a value for each
    element; scalars: those that a call passes by value. gives: what it returns."""

    name: str
    summary: str
    reads: tuple[str, ...]
    elements: tuple[str, ...]
    scalars: tuple[str, ...]
    lines: tuple[str, ...]
    gives: tuple[str, ...]

    @property
    def statements(self) -> tuple[str, ...]:
        return tuple(statement(line, indent=4) for line in self.lines)

    def targets(self, form: str) -> str:
        """What its results are assigned to; form: with a place for the name."""
        return ", ".join(form % name for name in self.gives)

    def arguments(self, index: str) -> str:
        """Of a call for element `index` of what a thread has."""
        places = {**{name: f"v_{name}" for name in self.reads}, **{name: name for name in self.scalars}}
        places |= {name: f"{name}_values[{index}]" for name in self.elements}
        return ", ".join(places[name] for name in self.reads)


@dataclass(frozen=True, slots=True)
class PickText:
    """A sum to which one element contributes, that at `place`."""

    name: str
    place: str
    each: RowFunctionText

    def more(self, read: Iterable[str]) -> tuple[str, ...]:
        """Elements that it reads, without these."""
        return tuple(name for name in self.each.elements if name not in {*read})


@dataclass(frozen=True, slots=True)
class RoundText:
    """number: of the round, or `block`. each: None where nothing is reduced. ops: of the reductions; picks: the last
    of these, which `each` does not have; once: None where nothing is computed of them."""

    number: str
    each: RowFunctionText | None
    ops: tuple[str, ...]
    once: RowFunctionText | None
    picks: tuple[PickText, ...] = ()

    @property
    def elements(self) -> tuple[str, ...]:
        """What it reads."""
        own = self.each.elements if self.each else ()
        return tuple(dict.fromkeys((*own, *(name for pick in self.picks for name in pick.each.elements))))


def find_inverses(p: RowProblem, cut: RowProgram) -> dict[str, str]:
    """By stored value of a row or block that outputs are divided by, the name of its inverse: such quotients are exact,
    so that they are those of whoever multiplies by the value again."""
    stored = {o.name for o in p.computed.outputs if o.name not in p.elements}
    stored |= {o.name for o in p.computed.block_outputs}
    nodes = [node for s in cut.after for node in walk(s.expr)]
    by = [n.right.name for n in nodes if isinstance(n, Binary) and n.op == "/" and isinstance(n.right, Name)]
    taken = {*p.names}
    return {
        name: next(n for i in range(64) if (n := f"inverse_{name}{'_' * i}") not in taken)
        for name in by
        if name in stored
    }


def round_text(p: RowProblem, number: str, r: Round, inverses: Mapping[str, str]) -> RoundText:
    picked = [x for x in r.reduced if x.place] if any(not x.place for x in r.reduced) else []
    reduced = [*(x for x in r.reduced if x not in picked), *picked]
    names = tuple(x.name for x in reduced)
    named = names[: len(names) - len(picked)]
    contributes = f"What one element contributes to {', '.join(named)}."
    each = _elements(p, f"reduce_{number}", contributes, needed_for(named, r.each), named)
    scalars = {o.name for o in p.operands("host_scalar")}
    picks = tuple(
        PickText(
            x.name,
            x.place if x.place in scalars else f"v_{x.place}",
            _elements(p, f"pick_{number}_{i}", f"{x.name}, of one element.", needed_for([x.name], r.each), (x.name,)),
        )
        for i, x in enumerate(picked)
    )
    own = {name: inverse for name, inverse in inverses.items() if name in (*r.gives, *names)}
    lines = (*row_value_lines(p.computed, r.once), *(f"{i} = exact_inverse({name})" for name, i in own.items()))
    summary = f"What has one value for the {'block' if number == 'block' else 'row'}."
    gives = (*r.gives, *own.values())
    once = function_text(p, f"compute_{number}", summary, lines, r.once, gives, also=[n for n in own if n in names])
    ops = tuple(x.op for x in reduced)
    return RoundText(number, each if names else None, ops, once if gives else None, picks)


def _elements(
    p: RowProblem, name: str, summary: str, statements: tuple[Assign, ...], gives: tuple[str, ...]
) -> RowFunctionText:
    return function_text(p, name, summary, element_lines(p.computed, statements), statements, gives)


def function_text(
    p: RowProblem,
    name: str,
    summary: str,
    lines: tuple[str, ...],
    statements: tuple[Assign, ...],
    gives: Iterable[str],
    inverses: Mapping[str, str] | None = None,
    also: Iterable[str] = (),
) -> RowFunctionText:
    """also: what its lines read and its statements may not."""
    read = read_by(statements) | {*also}
    read |= {inverse for name, inverse in (inverses or {}).items() if name in read}
    order = [o.name for o in p.computed.operands]
    reads = (*(name for name in order if name in read), *sorted(read.difference(order)))
    scalars = tuple(o.name for o in p.operands("host_scalar") if o.name in read)
    return RowFunctionText(
        name, summary, reads, tuple(n for n in reads if n in p.elements), scalars, lines, tuple(gives)
    )
