"""From a parsed spec to a RowProblem, collecting every finding on the way."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from cutegen.arch.architecture import WARP_THREADS
from cutegen.diagnostics import SpecError
from cutegen.dtypes import DTYPES
from cutegen.epilogue import (
    Assign,
    BlockOutput,
    EpilogueProgram,
    Operand,
    Output,
    Reduction,
    check_columns,
    find_pairing,
    omit,
    parse_epilogue,
)
from cutegen.epilogue.rounds import find_block_names, find_element_names, has_blocks, has_elements, name_index
from cutegen.epilogue.rules import BLOCK, COLUMNS, NOT_YET_SUPPORTED, OPTIONAL, REDUCTION
from cutegen.epilogue.tree import Call, Expr, Name, Reduce, ReduceOp, Stored, reads, walk
from cutegen.families.aliasing import IN_PLACE, refuse_alias
from cutegen.families.generated_names import find_clashes
from cutegen.families.optional_operands import list_omissions, refuse_many
from cutegen.families.rowwise.problem import RowProblem
from cutegen.families.rowwise.rules import ROW_EXPONENT, ROW_OUTPUT, ROW_READY, ROW_SUM
from cutegen.families.rowwise.tensors import EXPONENT, INPUTS, RowTensors, extent, powers
from cutegen.runtime.arguments import TensorArg
from cutegen.spec.parse import NAME_COLLISION, RESERVED_NAME

if TYPE_CHECKING:
    from cutegen.families.rowwise.spec import RowSpec
    from cutegen.spec import KeyPath, SpecDocument

OVER_ROWS: tuple[ReduceOp, ...] = ("sum", "max", "max_abs")


def bind(spec: RowSpec, doc: SpecDocument) -> RowProblem:
    """The problem of a spec; SpecError with every finding about dims, tensors and expressions."""
    binder = _Binder(spec, doc)
    problem = binder.bind()
    if problem is None or binder.findings:
        raise SpecError(binder.findings)
    return problem


class _Binder(RowTensors):
    def __init__(self, spec: RowSpec, doc: SpecDocument) -> None:
        super().__init__(spec, doc)
        self.late: set[str] = set()  # names of what depends on values of blocks

    def bind(self) -> RowProblem | None:
        spec, assigned = self.spec, self.spec.rows
        self.check_names()
        outputs = [name for name in spec.tensors if name in assigned]
        inputs = [name for name in spec.tensors if name not in assigned]
        if not outputs:
            remedy = "declare the output under `tensors`, and assign it, such as y: 2 * x"
            self.report(ROW_OUTPUT, ("rows",), "no tensor is assigned", remedy, key=True)
            return None
        operands = {o.name: o for name in inputs if (o := self.operand(name))}
        over_rows = [name for name in outputs if self.of_columns(name)]
        stored = {out.name: out for name in outputs if name not in over_rows and (out := self.output(name))}
        rowwise = [name for name, o in operands.items() if o.kind in ("tile", "column_vector")]
        dims = spec.dim_names()
        if not self.check_in_place(outputs):
            return None
        found = parse_epilogue(assigned, inputs, outputs, self.report, [*dims], dims, self.context, rowwise)
        if found is None or self.findings:
            return None
        pairing = find_pairing(found)
        found, index = name_index(found, [*dims, *spec.tensors, *assigned])
        indices = (Operand(index, "index", DTYPES["f32"], False, (), None),) if index else ()
        program = EpilogueProgram(
            found,
            (*operands.values(), *indices),
            tuple(o for o in stored.values() if isinstance(o, Output)),
            pairing,
            block_outputs=tuple(o for o in stored.values() if isinstance(o, BlockOutput)),
            reductions=tuple(r for s in found if s.name in over_rows and (r := self.reduction(s))),
        )
        if not self.check_halves(program):
            return None
        vector = self.vector(program.pairing is not None)
        elements, blocks = find_element_names(program), find_block_names(program)
        for s in found:
            if has_blocks(s.expr, blocks | self.late):
                self.late.add(s.name)
        for s in found:
            self.check_statement(s, elements, blocks, stored, over_rows)
        self.check_blocks(program, elements, blocks, vector)
        self.check_used(inputs, found)
        self.check_ready(operands)
        self.check_optional(program)
        self.check_aliases(program)
        if self.findings:
            return None
        return RowProblem(
            dims={name: extent(promise) for name, promise in spec.shape_dims().items()},
            rows=self.rows,
            columns=self.columns,
            inputs=tuple(self.argument(name, vector, program) for name in inputs),
            outputs=tuple(cast(TensorArg, self.argument(name, vector, program)) for name in outputs),
            program=program,
            vector=vector,
            ready=tuple(spec.pdl.ready),
            aliases=tuple(spec.alias.items()),
        )

    def check_names(self) -> None:
        spec, assigned = self.spec, self.spec.rows
        names: list[tuple[str, str]] = [(dim, "dim") for dim in spec.dim_names()]
        names += [(name, "output" if name in assigned else "input") for name in spec.tensors]
        names += [(name, "local") for name in assigned if name not in spec.tensors]
        for clash in find_clashes(spec.kernel, names):
            rule = NAME_COLLISION if clash.other else RESERVED_NAME
            section, name = next(self.places(clash.name))
            self.report(rule.id, (section, name), clash.words(), "choose another name", key=name == clash.name)
        outputs = [name for name in spec.tensors if name in assigned]
        if outputs and "out" in spec.tensors and "out" not in outputs:
            said = f"`out` is the parameter of the package's function that takes `{outputs[0]}`"
            self.report(NAME_COLLISION.id, ("tensors", "out"), said, "choose another name", key=True)

    def places(self, name: str) -> Iterator[tuple[str, str]]:
        """(section, key) where a name of the spec stands first."""
        tensors = self.spec.tensors
        yield from (("tensors", t) for t in tensors if t == name)
        yield from (("rows", local) for local in self.spec.rows if local == name)
        yield from (("tensors", t) for t, decl in tensors.items() if name in [d.name for d in decl.shape])

    def check_halves(self, program: EpilogueProgram) -> bool:
        """Whether values that meet have the same columns, and nothing is asked of halves that the kernel has not."""
        halves = [name for name, decl in self.spec.tensors.items() if self.is_half(decl)]
        if not (program.pairing or halves):
            return True
        indices = [o.name for o in program.operands if o.kind == "index"]
        for s in program.statements:
            for node in walk(s.expr):
                said, remedy = "", f"compute it in a kernel without slices of {self.columns}"
                if isinstance(node, Reduce) and node.over != (self.columns,):
                    said = "reductions over rows next to slices"
                elif isinstance(node, Name) and node.name in indices:
                    said = "places of elements next to slices"
                if said:
                    said = f"{said} are not supported yet"
                    self.report(NOT_YET_SUPPORTED, ("rows", s.name), said, remedy, span=node.span)
        if self.findings:
            return False

        def report(rule: str, path: KeyPath, message: str, remedy: str = "", **where: Any) -> None:
            self.report(rule, path, self.context.say(message), self.context.say(remedy), **where)

        ranks = {name: len(decl.shape) for name, decl in self.spec.tensors.items()}
        check_columns(program, self.columns, False, report, ranks)
        return not self.findings

    def reduction(self, s: Assign) -> Reduction | None:
        """Of an output with a value for each column, which is a reduction over rows."""
        decl = self.spec.tensors[s.name]
        if self.kind(s.name, decl) is None or not self.check_dtype(s.name, decl, INPUTS[:3]):
            return None
        if isinstance(s.expr, Reduce) and {*s.expr.over} == {*self.rows}:
            return Reduction(s.name, s.expr.op, decl.dtype, False, (0,), "n")
        if isinstance(s.expr, Reduce) and s.expr.over != (self.columns,):
            return None  # which is found where reductions are looked at
        said = f"`{s.name}` is {decl}, and its value is not a reduction over {', '.join(self.rows)}"
        remedy = f"write {s.name}: sum(x, {', '.join(self.rows)}), or declare [{', '.join((*self.rows, self.columns))}]"
        self.report(ROW_SUM, ("rows", s.name), said, remedy, span=s.expr.span)
        return None

    def check_in_place(self, outputs: list[str]) -> bool:
        """Whether no output's own expression reads it."""
        for name in outputs:
            if place := re.search(rf"\b{name}\b", self.spec.rows[name]):
                said = f"`{name}` is assigned and read: outputs in the place of inputs are not supported yet"
                remedy = "declare another tensor for the result"
                self.report(NOT_YET_SUPPORTED, ("rows", name), said, remedy, span=place.span())
        return not self.findings

    def check_statement(
        self,
        s: Assign,
        elements: set[str],
        blocks: set[str],
        stored: Mapping[str, Output | BlockOutput],
        over_rows: Sequence[str],
    ) -> None:
        """What its reductions are of, and whether it has the values of its output."""
        path = ("rows", s.name)
        for node in walk(s.expr):
            if isinstance(node, Reduce):
                self.check_reduction(path, node, elements, blocks, node is s.expr and s.name in over_rows)
            if isinstance(node, Name | Stored) and node.name in over_rows:
                said = f"`{node.name}` is complete only when all rows are: nothing can be computed from it here"
                self.report(ROW_SUM, path, said, "compute that in the next kernel", span=node.span)
        power = isinstance(s.expr, Call) and s.expr.op == "ceil_pow2"
        if s.name in stored and stored[s.name].dtype.name == EXPONENT and not power:
            said, remedy = f"`{s.name}` is e8m0, and its value need not be a power of two", "write ceil_pow2(..)"
            self.report(ROW_EXPONENT, path, said, remedy, span=s.expr.span)
        if s.name in stored:
            have = "element" if has_elements(s.expr, elements) else "block" if has_blocks(s.expr, blocks) else "row"
            out = stored[s.name]
            if have != ("block" if isinstance(out, BlockOutput) else "element" if len(out.axes) == 2 else "row"):
                forms = {"element": [self.columns], "block": [f"ceil({self.columns}/128)"], "row": []}
                said = f"the value has one for each {have}, and `{s.name}` is {self.spec.tensors[s.name]}"
                need = ", ".join((*self.rows, *forms[have]))
                self.report(COLUMNS, path, said, f"declare it with [{need}]", span=s.expr.span)

    def check_blocks(self, program: EpilogueProgram, elements: set[str], blocks: set[str], vector: int) -> None:
        """That threads of one warp have a block between them, and that all blocks are alike."""
        found = [
            (s, node) for s in program.statements for node in walk(s.expr) if isinstance(node, Reduce) and node.block
        ]
        for s, node in found:
            lanes, path = node.block // vector, ("rows", s.name)
            if node.op == "mean":
                said = "the mean of a block, of which the last may be a part, is not supported yet"
                self.report(NOT_YET_SUPPORTED, path, said, "divide its sum", span=node.span)
            elif node.block != found[0][1].block:
                said = f"blocks of {node.block} elements together with blocks of {found[0][1].block}"
                self.report(BLOCK, path, said, f"use {found[0][1].block} for both", span=node.span)
            elif lanes not in powers(WARP_THREADS) or node.block % vector:
                said = (
                    f"a block of {node.block} elements in loads of {vector} is not that of 1, 2, 4, 8, 16 or 32 threads"
                )
                self.report(BLOCK, path, said, "use blocks of 128, and rows of whole 16-byte loads", span=node.span)
        size = found[0][1].block * (1 if program.pairing is None else 2) if found else 0
        for out in program.block_outputs:
            if found and out.divisor != size:
                said = f"`{out.name}` has one value for {out.divisor} elements of a row, its value one for {size}"
                self.report(COLUMNS, ("rows", out.name), said, f"declare it with ceil({self.columns}/{size})")

    def check_reduction(self, path: KeyPath, node: Reduce, elements: set[str], blocks: set[str], alone: bool) -> None:
        """alone: it is all of an output with a value for each column."""
        rows = ", ".join(self.rows)
        if node.over != (self.columns,) and {*node.over} != {*self.rows}:
            said = f"a reduction over {', '.join(node.over)}: that of a row is over {self.columns}, others over {rows}"
            self.report(REDUCTION, path, said, f"reduce {self.columns}, or {rows} into an output", span=node.span)
        elif node.over != (self.columns,) and not alone:
            said = f"a reduction over {rows} is part of a value, and complete only when all rows are"
            remedy = f"declare a tensor [{self.columns}] for it, and assign the reduction alone: r: sum(x, {rows})"
            self.report(ROW_SUM, path, said, remedy, span=node.span)
        elif node.over != (self.columns,) and node.op not in OVER_ROWS:
            said = f"{node.op} over {rows} is not supported yet"
            self.report(NOT_YET_SUPPORTED, path, said, f"use one of {', '.join(OVER_ROWS)}", span=node.span)
        elif not alone and self.of_blocks(node.value, blocks):
            said = "what is reduced depends on values of blocks, which are known when all reductions are"
            self.report(NOT_YET_SUPPORTED, path, said, "reduce that in the next kernel", span=node.span)
        elif not has_elements(node.value, elements):
            said = f"what is reduced has one value for a row, not one for each of {self.columns}"
            remedy = "multiply it by a value of elements" if alone else "drop the reduction"
            self.report(COLUMNS, path, said, remedy, span=node.span)

    def of_blocks(self, expr: Expr, blocks: set[str]) -> bool:
        """Whether a value depends on blocks, directly or through the values of elements that it reads."""
        return has_blocks(expr, blocks | self.late)

    def check_used(self, inputs: list[str], statements: tuple[Assign, ...]) -> None:
        read = {name for s in statements for name in reads(s.expr)}
        for name in inputs:
            if name not in read:
                self.report(ROW_OUTPUT, ("tensors", name), f"nothing reads or assigns `{name}`", "remove it", key=True)

    def check_optional(self, program: EpilogueProgram) -> None:
        """That expressions have a meaning without each choice of inputs that may be None."""
        names = [name for name, decl in self.spec.tensors.items() if decl.optional]
        if refused := refuse_many(names):
            name, said, remedy = refused
            self.report(OPTIONAL, ("tensors", name), said, remedy)
        sources = [o.name for o in program.operands if o.kind in ("tile", "column_vector")]
        whole = [o.name for o in program.operands if o.kind == "tile" and o.name not in names]
        if names and not whole:
            said = "every tensor with elements of rows is optional"
            self.report(OPTIONAL, ("tensors", names[0]), said, "drop the `?` of one of them")
        if self.findings:
            return

        def report(rule: str, path: KeyPath, message: str, remedy: str = "", **where: Any) -> None:
            self.report(rule, path, self.context.say(message), self.context.say(remedy), **where)

        for omitted in list_omissions(names):
            omit(program, omitted, report, sources, "rows")

    def check_aliases(self, program: EpilogueProgram) -> None:
        given, elements = self.spec.alias, find_element_names(program)
        for name, other in given.items():
            if name in [o.name for o in program.outputs if o.name not in elements]:
                said = f"`{name}` has one value for a row, which one thread stores while others may read `{other}`"
                self.report(IN_PLACE, ("alias", name), said, "drop the alias")
            elif refused := refuse_alias(name, other, self.spec.tensors, program, given):
                said, remedy = map(self.context.say, refused)
                self.report(IN_PLACE, ("alias", name), said, remedy, key=name not in self.spec.rows)

    def check_ready(self, operands: Mapping[str, Operand]) -> None:
        names = [name for name, o in operands.items() if o.kind == "row_vector"]
        for index, name in enumerate(self.spec.pdl.ready):
            at = ("pdl", "ready", index)
            if name in self.spec.pdl.ready[:index]:
                self.report(ROW_READY, at, f"`{name}` is named twice", "drop one of them")
            elif name not in names:
                remedy = f"such are {', '.join(names)}" if names else "drop it"
                self.report(ROW_READY, at, f"`{name}` is not an input with a value for each column", remedy)
