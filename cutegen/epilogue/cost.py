"""What an epilogue adds to the work and the memory traffic of a kernel."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from cutegen.epilogue.columns import split_pairs
from cutegen.epilogue.installed import find_op
from cutegen.epilogue.program import EpilogueProgram
from cutegen.epilogue.tree import Binary, Call, Compare, Logic, Name, Negate, Reduce, Stored, Where, walk

# A value close to a rounding boundary goes one way in the kernel and the other in the reference: one ulp of a value up
# to 6 times the root mean square.
_ROUNDING_FLIP = {
    "bf16": 6 * 2.0**-7, "f16": 6 * 2.0**-10, "f32": 0.0, "e4m3": 6 * 2.0**-3, "e5m2": 6 * 2.0**-2, "i8": 6 * 2.0**-7,
    "e2m1": 6 * 2.0**-1, "e8m0": 0.0,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Traffic:
    """Bytes of one operand or output: element_bytes for each index of `dims` (a subset of m, n, batch); `half` of the
    columns of n; one for each `divisor` of them, and for `rows` of m."""

    name: str
    element_bytes: int
    dims: tuple[str, ...]
    half: bool = False
    divisor: int = 1
    rows: int = 1

    def total(self, m: int, n: int, batch: int = 1) -> int:
        sizes = {"m": -(-m // self.rows), "n": -(-n // self.divisor), "batch": batch}
        result = self.element_bytes
        for dim in self.dims:
            result *= sizes[dim]
        return result // 2 if self.half else result


@dataclass(frozen=True, slots=True)
class Cost:
    """flops: per element of the m x n (x batch) accumulator, or per pair of them (`paired`). reads, writes: each tensor
    once; host scalars are free. errors: of each output, the sum of the `EpilogueOp.error` of all calls that it comes
    from, and of what `stored` and sums of rounded values may add."""

    flops: int
    reads: tuple[Traffic, ...]
    writes: tuple[Traffic, ...]
    errors: Mapping[str, float]
    paired: bool = False

    def total_flops(self, m: int, n: int, batch: int = 1) -> int:
        return self.flops * m * n * batch // (2 if self.paired else 1)


def cost(program: EpilogueProgram) -> Cost:
    """FLOPs and bytes of one epilogue; the caller adds the product itself."""
    computed = split_pairs(program)
    nodes = [node for statement in computed.statements for node in walk(statement.expr)]
    calls = [node for node in nodes if isinstance(node, Call)]
    flops = sum(isinstance(node, Binary | Negate | Compare | Logic | Where | Reduce) for node in nodes)
    flops += sum(find_op(c.op).flops * (len(c.args) - 1 if find_op(c.op).arguments is None else 1) for c in calls)
    dims = {"host_scalar": (), "device_scalar": (), "row_vector": ("n",), "column_vector": ("m",)}
    dims |= dict.fromkeys(("tile", "block_input"), ("m", "n"))
    return Cost(
        flops=flops + sum(o.adds for o in computed.outputs),
        reads=tuple(
            Traffic(
                o.name,
                o.dtype.bytes,
                (*(d for d in dims[o.kind] if d != o.missing), *(("batch",) if o.batched else ())),
                o.half,
                divisor=o.block[1],
                rows=o.block[0],
            )
            for o in program.operands
            if o.kind not in ("host_scalar", "index")
        ),
        writes=tuple(
            Traffic(
                r.name, r.dtype.bytes, (*([r.kept] if r.kept else []), *(["batch"] if r.batched else [])), half=r.half
            )
            for r in program.reductions
        )
        + tuple(
            Traffic(
                o.name,
                o.dtype.size(o.dtype.packing),
                ("m", "n", "batch") if o.batched else ("m", "n"),
                o.half,
                divisor=o.dtype.packing,
            )
            for o in program.outputs
        )
        + tuple(
            Traffic(o.name, o.dtype.bytes, ("m", "n", "batch") if o.batched else ("m", "n"), divisor=o.divisor)
            for o in program.block_outputs
        ),
        errors=_errors(computed),
        paired=program.pairing is not None,
    )


def _errors(computed: EpilogueProgram) -> dict[str, float]:
    """Of each output of a spec whose statements may be computed in pairs; of the pair it is the larger one."""
    flips = {output.name: _ROUNDING_FLIP[output.dtype.name] for output in computed.outputs}
    flips |= dict.fromkeys((o.name for o in computed.block_outputs), 0.0)  # a quotient goes to a neighbour at most
    own: dict[str, float] = {}
    behind: dict[str, frozenset[str]] = {}  # of a statement: those that it comes from, and itself
    for statement in computed.statements:
        nodes, name = list(walk(statement.expr)), statement.name
        reads = [behind.get(node.name, frozenset()) for node in nodes if isinstance(node, Name | Stored)]
        behind[name] = frozenset([name]).union(*reads)
        own[name] = sum((find_op(node.op).error for node in nodes if isinstance(node, Call)), 0.0)
        own[name] += sum(flips[node.name] for node in nodes if isinstance(node, Stored))
    own |= {o.name: own[o.name] + flips[o.name] for o in computed.outputs if o.adds}
    errors: dict[str, float] = {}
    parts = {o.name: o.part_of.name for o in computed.outputs if o.part_of}
    for stored in (o.name for kind in (computed.outputs, computed.reductions, computed.block_outputs) for o in kind):
        name = parts.get(stored, stored)
        errors[name] = max(errors.get(name, 0.0), sum(own[s] for s in sorted(behind[stored])))
    return errors
