"""What an epilogue adds to the work and the memory traffic of a kernel."""

from __future__ import annotations

from dataclasses import dataclass

from cutegen.epilogue.expression import Binary, Call, Negate, walk
from cutegen.epilogue.ops import OPS
from cutegen.epilogue.program import EpilogueProgram


@dataclass(frozen=True, slots=True)
class Traffic:
    """Bytes of one operand or output: element_bytes for each index of `dims` (a subset of m, n, batch)."""

    name: str
    element_bytes: int
    dims: tuple[str, ...]

    def total(self, m: int, n: int, batch: int = 1) -> int:
        sizes = {"m": m, "n": n, "batch": batch}
        result = self.element_bytes
        for dim in self.dims:
            result *= sizes[dim]
        return result


@dataclass(frozen=True, slots=True)
class Cost:
    """flops: per element of the m x n (x batch) accumulator. reads, writes: each tensor once; host scalars are free.
    error: the largest `EpilogueOp.error` of the ops used."""

    flops: int
    reads: tuple[Traffic, ...]
    writes: tuple[Traffic, ...]
    error: float


def cost(program: EpilogueProgram) -> Cost:
    """FLOPs and bytes of one epilogue; the caller adds the product itself."""
    nodes = [node for statement in program.statements for node in walk(statement.expr)]
    calls = [node for node in nodes if isinstance(node, Call)]
    flops = sum(isinstance(node, Binary | Negate) for node in nodes)
    flops += sum(OPS[call.op].flops * max(1, len(call.args) - 1) for call in calls)
    dims = {"host_scalar": (), "device_scalar": (), "row_vector": ("n",), "column_vector": ("m",), "tile": ("m", "n")}
    return Cost(
        flops=flops,
        reads=tuple(
            Traffic(o.name, o.dtype.bytes, (*dims[o.kind], *(("batch",) if o.batched else ())))
            for o in program.operands
            if o.kind != "host_scalar"
        ),
        writes=tuple(
            Traffic(o.name, o.dtype.bytes, ("m", "n", "batch") if o.batched else ("m", "n")) for o in program.outputs
        ),
        error=max((OPS[call.op].error for call in calls), default=0.0),
    )
