"""From a parsed spec to a GemmProblem, collecting every finding on the way."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from cutegen.arch import ARCHS, Mma
from cutegen.diagnostics import Diagnostic, SpecError
from cutegen.epilogue import (
    BlockOutput,
    EpilogueProgram,
    Operand,
    Output,
    check_blocks,
    check_columns,
    drop_added,
    find_pairing,
    find_scaled,
    name_roles,
    old_name,
    omit,
    split_pairs,
)
from cutegen.epilogue.rules import OPTIONAL
from cutegen.epilogue.tree import Span
from cutegen.families.aliasing import IN_PLACE, refuse_alias
from cutegen.families.gemm import problem_rules as rules
from cutegen.families.gemm.features.block_scales.placing import check_halves, place_block_scales
from cutegen.families.gemm.features.gather.operand import see_gathered
from cutegen.families.gemm.features.groups.section import Grouping
from cutegen.families.gemm.features.packed_scales.operand_scales import check_packed_halves, place_packed, refuse_packed
from cutegen.families.gemm.features.packed_scales.output_scales import check_read_again, check_scale_output
from cutegen.families.gemm.mainloop import Mainloop, parse_mainloop, refuse_scale, suggest_product
from cutegen.families.gemm.name_clashes import check_call_names, check_made_names
from cutegen.families.gemm.output_stores import let_tma_add, stores_directly
from cutegen.families.gemm.placement import Placement
from cutegen.families.gemm.problem import GemmProblem, MatrixOperand, ProblemDim, RowGather
from cutegen.families.gemm.roles import Roles, find_roles
from cutegen.families.gemm.spec_epilogue import Written, read_epilogue
from cutegen.families.optional_operands import list_omissions, refuse_many

if TYPE_CHECKING:
    from cutegen.families.gemm.spec import GemmSpec
    from cutegen.spec import KeyPath, SpecDocument, TensorDecl


def bind(spec: GemmSpec, doc: SpecDocument) -> GemmProblem:
    """The problem of a spec; SpecError with every finding about dims, tensors and expressions."""
    binder = Binder(spec, doc)
    problem = binder.bind()
    if problem is None:
        raise SpecError(binder.findings)
    return problem


class Binder:
    """One binding; `findings` grows as it goes."""

    def __init__(self, spec: GemmSpec, doc: SpecDocument) -> None:
        self.spec = spec
        self.doc = doc
        self.findings: list[Diagnostic] = []
        self.tensors: Mapping[str, TensorDecl] = spec.tensors  # as the product sees them
        self.gathered_rows = ""  # the dim of the left operand's rows, where an index names those of the product

    def report(
        self, rule: str, path: KeyPath, message: str, remedy: str = "", *, key: bool = False, span: Span | None = None
    ) -> None:
        self.findings.append(self.doc.diagnostic(rule, path, message, remedy, key=key, span=span))

    def bind(self) -> GemmProblem | None:
        """The problem, or None with findings."""
        check_made_names(self.spec, self.doc, self.report)
        mainloop = self.mainloop()
        operands: tuple[str, ...] = mainloop.operands if mainloop else ()
        grouping = Grouping(self.spec, self.report)
        claimed = grouping.claim(mainloop.reads if mainloop else ())
        if grouping.faults:
            return None  # everything else would follow from it
        if mainloop:
            seen = see_gathered(mainloop, self.tensors, self.spec.epilogue, self.report, self.refuse_mainloop)
            if seen is None:
                return None
            self.tensors, self.gathered_rows = seen
        placement = Placement(self.tensors, self.doc, ARCHS[self.spec.arch], self.report)
        written = read_epilogue(self.spec, mainloop, claimed, placement, self.report)
        roles = self.roles(mainloop, written, placement)
        if roles is None or mainloop is None:
            return None
        groups = grouping.bind(operands, written.outputs, roles)
        if grouping.faults:
            return None
        roles = replace(roles, flat=groups is not None and groups.flat)
        refused = self.check_scales(mainloop, roles)
        m, n, k = (self.problem_dim(role, dim) for role, dim in (("m", roles.m), ("n", roles.n), ("k", roles.k)))
        batch = self.problem_dim("batch", roles.batch) if roles.batch else None
        if batch and groups:
            batch = grouping.bound_count(batch)
        a, b = placement.matrix(operands[0], "m", roles), placement.matrix(operands[1], "n", roles)
        packed = tuple(s for s in mainloop.scales if s.packed and s.name not in refused)
        a_packed, b_packed = place_packed(packed, self.tensors, roles, k, self.refuse_mainloop)
        mma = ARCHS[self.spec.arch].find_mma(a.dtype, b.dtype, a_packed.kind if a_packed else None)
        if mma or not any(s.packed for s in mainloop.scales):  # what is wrong with scales is said of them
            placement.check_mma(a, b, mma, ARCHS[self.spec.arch])
        self.check_accumulator(a, b, mma)
        extents = {"m": m, "n": n, "k": k}
        fitting = replace(written, inputs=tuple(name for name in written.inputs if name not in refused))
        program = self.program(fitting, placement, roles, extents, (a, b))
        self.check_program(program, written, placement, extents, (a, b), batch is not None and not roles.flat)
        check_call_names(self.spec, written.outputs, written.updated, self.report)
        aliases = self.aliases(program)
        optional = self.optional(program, set(written.inputs).difference(mainloop.reads))
        if groups:
            grouping.check_outputs(program.outputs, groups)
            self.check_group_epilogue(program, roles)
        along_k = tuple(s for s in mainloop.scales if s.blocked and not s.packed and s.name not in refused)
        a_scale, b_scale = place_block_scales(along_k, self.tensors, roles, extents, self.refuse_mainloop)
        if b_scale and program.pairing == "concatenated":
            span = next(s.span for s in along_k if s.name == b_scale.name)
            check_halves(b_scale, n, span, self.refuse_mainloop)
        if b_packed and program.pairing == "concatenated":
            check_packed_halves(b_packed, n, self.refuse_mainloop, mainloop)
        by_tma = [o for o in program.outputs if not o.direct and o.name not in written.updated]
        tensors: tuple[MatrixOperand | Operand | Output, ...] = (a, b, *program.operands, *by_tma)
        for tensor in tensors:
            placement.check_alignment(tensor, program.pairing, extents)
        gather = self.gather(mainloop, roles, m)
        if self.findings:
            return None
        program = name_roles(program, roles.role_of)
        return GemmProblem(
            self.spec.arch, m, n, k, batch, a, b, program, split_pairs(drop_added(program)),
            tuple(name for name in self.spec.tensors if name not in written.outputs or name in written.updated),
            written.outputs,
            batch_invariant=self.spec.invariance == "batch", groups=groups,
            scales=tuple(s.name for s in mainloop.scales),
            a_scale=a_scale, b_scale=b_scale, aliases=aliases,
            optional=optional, gather=gather,
            ready=tuple(t.name for t in (a, b) if t.name in self.spec.pdl.ready),
            a_packed=a_packed, b_packed=b_packed,
        )  # fmt: skip

    def program(
        self,
        written: Written,
        placement: Placement,
        roles: Roles,
        extents: Mapping[str, ProblemDim],
        operands: tuple[MatrixOperand, MatrixOperand],
    ) -> EpilogueProgram:
        """The epilogue of the tensors that fit; the others are reported. extents: of m, n and k. operands: of the
        product."""
        statements = written.statements or ()
        pairing = find_pairing(statements)
        stored = [o for name in written.whole if (o := placement.output(name, roles))]
        program = EpilogueProgram(
            statements,
            tuple(self.operands(placement, written, roles)),
            tuple(
                replace(o, direct=stores_directly(self.spec, o, pairing, extents))
                for o in stored
                if isinstance(o, Output)
            ),
            pairing,
            tuple(filter(None, (placement.reduction(name, expr, roles) for name, expr in written.sums.items()))),
            block_outputs=tuple(o for o in stored if isinstance(o, BlockOutput)),
        )
        program = placement.let_pad(let_tma_add(self.spec, program, self.report), *operands, written.updated)
        return replace(program, scaled=find_scaled(program.statements, program.operands))

    def check_program(
        self,
        program: EpilogueProgram,
        written: Written,
        placement: Placement,
        extents: Mapping[str, ProblemDim],
        operands: tuple[MatrixOperand, MatrixOperand],
        batched: bool,
    ) -> None:
        """What its tensors and statements ask of one another."""
        m, n, (a, b) = extents["m"], extents["n"], operands
        stored = len(program.outputs) + len(program.block_outputs) + len(program.reductions)
        read = len(written.inputs) + len(written.updated)
        if written.statements and (len(program.operands), stored) == (read, len(written.outputs)):
            self.check_statements(program, placement, n, batched, a.dtype.name != "i8")
        for operand in program.operands:
            if operand.kind == "block_input":
                placement.check_block_input(operand, program, m, n)
        placement.check_pairs(b, program, n)

    def check_statements(
        self,
        program: EpilogueProgram,
        placement: Placement,
        n: ProblemDim,
        batched: bool,
        floating: bool,
    ) -> None:
        """Columns and blocks of an epilogue all of whose tensors are bound. floating: what the product sums in."""
        before = len(self.findings)
        check_columns(program, n.name, batched, self.report)
        if len(self.findings) > before:
            return
        check_blocks(program, split_pairs(program), floating, self.report)
        check_read_again(program, self.report)
        for o in program.block_outputs:
            expr = next(s.expr for s in program.statements if s.name == o.name)
            placement.check_block(o, program, n, expr.span)
            if o.chunks:
                check_scale_output(o, self.tensors[o.name], program, n.name, placement.arch, self.report)

    def operands(self, placement: Placement, written: Written, roles: Roles) -> Iterator[Operand]:
        """What the epilogue reads: inputs, then outputs that it updates. What does not fit is reported."""
        for name in (*written.inputs, *written.updated):
            if operand := placement.operand(name, roles):
                yield replace(operand, name=old_name(name), updates=name) if name in written.updated else operand

    def gather(self, mainloop: Mainloop, roles: Roles, m: ProblemDim) -> RowGather | None:
        if mainloop.gather is None:
            return None
        own = self.gathered_rows
        extent = m if own == roles.m else self.problem_dim(f"{mainloop.gather.name}_rows", own)
        return RowGather(mainloop.gather.index, "m", extent, mainloop.gathered)

    def aliases(self, program: EpilogueProgram) -> tuple[tuple[str, str], ...]:
        """(output, input) of each pair that a call may pass one storage for; what does not fit is reported."""
        given = self.spec.alias
        for name, other in given.items():
            if refused := refuse_alias(name, other, self.spec.tensors, program, given):
                said, remedy = refused
                self.report(IN_PLACE, ("alias", name), said, remedy, key=name not in self.spec.epilogue)
        return tuple(given.items())

    def optional(self, program: EpilogueProgram, own: Collection[str]) -> tuple[str, ...]:
        """Inputs that may be None; those without which an expression has no meaning are reported. own: inputs of the
        epilogue alone."""
        names = tuple(name for name, tensor in self.spec.tensors.items() if tensor.optional)
        for name in names:
            if name not in own:
                remedy = "drop the `?`; a spec of its own does without it"
                self.report(OPTIONAL, ("tensors", name), f"`{name}` is not an input of the epilogue alone", remedy)
        if (refused := refuse_many(names)) and refused[0] in own:
            name, said, remedy = refused
            self.report(OPTIONAL, ("tensors", name), said, remedy)
        if self.findings:
            return names
        for omitted in list_omissions(names):
            omit(program, omitted, self.report)
        return names

    def check_group_epilogue(self, program: EpilogueProgram, roles: Roles) -> None:
        """What the epilogue of a grouped product does not support yet."""
        for r in program.reductions:
            if r.kept != "m":
                said = (
                    f"a reduction over {roles.m} of a grouped product is not supported yet: its rows are of all groups"
                )
                remedy = f"reduce {roles.n}, or reduce in the next kernel"
                self.report(rules.NOT_YET_SUPPORTED, ("epilogue", r.name), said, remedy, key=True)

    def check_accumulator(self, a: MatrixOperand, b: MatrixOperand, mma: Mma | None) -> None:
        written = self.spec.accumulate.dtype
        if mma and written not in ("auto", mma.accumulator.name):
            said = f"{a.dtype} @ {b.dtype} is summed in {mma.accumulator}, not in {written}"
            self.report(rules.ACCUMULATOR, ("accumulate", "dtype"), said, f"write {mma.accumulator}, or leave it out")

    def mainloop(self) -> Mainloop | None:
        """Operands and scales of the product; None after a finding."""
        text, tensors = self.spec.mainloop, self.spec.tensors
        absent = [f"`{name}`" for name in text.split(" @ ") if name not in tensors]
        if absent and "mainloop" not in self.doc.data:
            said = f"no `mainloop` is written, so it is `{text}`, and there is no tensor {' or '.join(absent)}"
            product = suggest_product(tensors)
            remedy = f"write `mainloop: {product}`" if product else f"declare them, {rules.WRITE_PRODUCT}"
            self.report(rules.UNDEFINED_NAME, ("tensors",), said, remedy, key=True)
            return None
        return parse_mainloop(text, tensors, self.refuse_mainloop)

    def refuse_mainloop(self, rule: str, span: Span, message: str, remedy: str) -> None:
        """A finding in `mainloop`, which need not be written."""
        if "mainloop" in self.doc.data:
            self.report(rule, ("mainloop",), message, remedy, span=span)
        else:
            self.report(rule, ("tensors",), message, remedy, key=True)

    def check_scales(self, mainloop: Mainloop, roles: Roles) -> set[str]:
        """Names of the scales with a finding."""
        refused, arch = set(), ARCHS[self.spec.arch]
        for scale in mainloop.scales:
            operand = mainloop.operands[scale.side]
            decl, own = self.tensors[scale.name], self.gathered_rows
            found = (
                refuse_packed(scale, mainloop, self.tensors, roles, arch)
                if scale.packed
                else refuse_scale(scale, decl, self.tensors[operand], operand, roles, own, arch.mma_k_bytes)
            )
            if found:
                self.refuse_mainloop(rules.SCALE, scale.span, *found)
                refused.add(scale.name)
        return refused

    def roles(self, mainloop: Mainloop | None, written: Written, placement: Placement) -> Roles | None:
        """What dims are to the product, by its operands and the first output that has a value for each of its elements;
        None after a finding."""
        operands: tuple[str, ...] = mainloop.operands if mainloop else ()
        blocked = {name for name in written.whole if placement.has_blocks(name)}
        outputs = [name for name in written.whole if name not in blocked]
        blocked |= {name for name in written.inputs if placement.has_blocks(name)}
        blocked |= {*(mainloop.blocked if mainloop else ())}
        dims = {
            name: placement.dims(name, divided=name not in operands, blocks=name in blocked)
            for name in self.spec.tensors
        }
        if written.outputs and not outputs and written.statements is not None:
            said = "no output has rows and columns of the product: reductions alone are not supported yet"
            remedy = "store the product, too: bf16[m, n], or bf16[m, n/2] of pairs of columns"
            self.report(rules.NOT_YET_SUPPORTED, ("epilogue",), said, remedy, key=True)
        if not operands or not outputs:
            return None
        names = (*operands, outputs[0])
        a, b, output = (dims[name] for name in names)
        if a is None or b is None or output is None:
            return None
        found = find_roles(a, b, output, names)
        if isinstance(found, Roles):
            return found
        self.report(rules.CONTRACTION, ("tensors", operands[0]), found, rules.WRITE_PRODUCT)
        return None

    def problem_dim(self, role: str, dim: str) -> ProblemDim:
        """The dim that plays `role`: an integer takes the role's name."""
        if dim.isdigit():
            if role in (*self.spec.tensors, *self.spec.dim_names(), *self.spec.epilogue):
                said = f"the dim {dim} would be called `{role}`, which names something else"
                remedy = "give the integer a name, and its value under `dims`"
                self.report(rules.NAME_COLLISION, ("tensors",), said, remedy, key=True)
            return ProblemDim(role, int(dim), int(dim), int(dim))
        match self.spec.dims.get(dim):
            case int(value):
                return ProblemDim(dim, value, value, value)
            case (lo, hi):
                return ProblemDim(dim, None, lo, hi)
        return ProblemDim(dim, None, 1, None)
