"""What the formula of `runtime/gemm/cost_model.py` reads of a problem, a candidate and a device.

Generated plans pick kernels by the same formula at run time, so it lies there, and everything it reads is plain data.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from operator import attrgetter
from typing import NamedTuple

from cutegen.arch import Device
from cutegen.epilogue import cost
from cutegen.families.gemm.candidate import NEVER, Candidate, Core
from cutegen.families.gemm.problem import GemmProblem, once_each
from cutegen.runtime.device_rates import Rates
from cutegen.runtime.gemm import cost_model as model
from cutegen.runtime.gemm.cost_model import SPENT, Form, Instance


class Shape(NamedTuple):
    m: int
    n: int
    k: int
    batch: int = 1

    def name(self, problem: GemmProblem) -> str:
        """`m=4096, n=4096, k=4096`, dims called what the spec calls them."""
        dims = (problem.m, problem.n, problem.k, *([problem.batch] if problem.batch else []))
        return ", ".join(f"{dim.name}={extent}" for dim, extent in zip(dims, self))


@dataclass(frozen=True, slots=True)
class Estimate:
    """See `Spent` in runtime/gemm/cost_model.py. spent: clocks by what they go to, in the words of SPENT; bound:
    what most of them go to."""

    tiles: int
    slots: int
    waves: int
    last: int
    busy: int
    from_l2: int
    clocks: int
    bound: str
    spent: Mapping[str, int]


class Work(NamedTuple):
    """One problem on one device. shape: with groups, of one matrix, see `spread_rows`."""

    shape: Shape
    form: Form
    rates: Rates
    counted: model.Work

    @property
    def memory(self) -> int:
        """Clocks that moving every tensor once takes: no candidate is faster."""
        return self.counted.memory


def traffic(problem: GemmProblem, shape: Shape) -> tuple[int, int]:
    """(FLOPs, bytes of device memory when every tensor moves once, of the matrices of groups those that have rows)."""
    products = 1 if problem.groups and problem.groups.flat else shape.batch
    flops = 2 * shape.k * shape.m * shape.n * products
    flops += cost(problem.epilogue).total_flops(shape.m, shape.n, products)
    return flops, model.count_bytes(form_of(problem), *shape)


@once_each
def form_of(problem: GemmProblem) -> Form:
    """What the formula reads of a problem, whatever its extents."""
    program, extra = problem.kernel_epilogue, cost(problem.epilogue)
    groups = problem.groups
    return Form(
        width=max(problem.a.dtype.bits // 8, 1),  # no rates are known of an architecture that multiplies 4 bits
        stored=sum(o.dtype.bytes for o in program.outputs),
        loaded=sum(o.dtype.bytes for o in program.tiles),
        flops=extra.flops,
        paired=2 if extra.paired else 1,
        mma_k=problem.target.mma_k(problem.a.dtype),
        moved=tuple(moved for _, moved in list_moved(problem)),
        row_scaled=problem.row_scale is not None,
        reduces=bool(program.reductions),
        gathered=problem.gather is not None,
        in_pieces=problem.ragged is not None,
        groups="" if groups is None else "rows" if groups.flat else "each",
        expected_rows=(groups.expected_rows or 0) if groups else 0,
    )


def list_moved(problem: GemmProblem) -> Iterator[tuple[str, tuple[int, int, int, int, str]]]:
    """The name of each tensor that moves, and `Form.moved` of it."""
    for operand, along_m in ((problem.a, 1), (problem.b, 0)):
        size, each = operand.dtype.size(operand.dtype.packing), "matrix" if operand.batched else ""
        yield operand.name, (size, along_m, 1 - along_m, operand.dtype.packing, each)
    for scale, along_m in ((problem.a_scale, 1), (problem.b_scale, 0)):
        if scale:
            each = "matrix" if scale.batched else ""
            yield scale.name, (scale.dtype.bytes, scale.rows * along_m, scale.rows * (1 - along_m), scale.depth, each)
    for packed, along_m in ((problem.a_packed, 1), (problem.b_packed, 0)):
        if packed:
            each = "matrix" if packed.batched else ""
            yield packed.name, (packed.dtype.bytes, along_m, 1 - along_m, packed.block, each)
    extra = cost(problem.epilogue)
    for t in (*extra.reads, *extra.writes):
        rows, columns = t.rows * ("m" in t.dims), t.divisor * (2 if t.half else 1) * ("n" in t.dims)
        yield t.name, (t.element_bytes, rows, columns, 0, "batch" if "batch" in t.dims else "")


def describe_work(problem: GemmProblem, shape: Shape, device: Device) -> Work:
    form = form_of(problem)
    counted = model.describe_work(form, device.known_rates, *shape)
    return Work(Shape(counted.m, counted.n, counted.k, counted.batch), form, device.known_rates, counted)


# The fields of candidates that the formula reads, in its order; it has other words for a few.
_READ = {"raster_along_m": "raster_order", "pingpong": "schedule"}
_read = attrgetter(*(_READ.get(name, name) for name in Instance._fields))
_ALONG_M, _PINGPONG, _PROMOTE = map(Instance._fields.index, ("raster_along_m", "pingpong", "promote_every"))
_OF_CORE = [name for name in Core._fields if name in Instance._fields and name != "gather"]


def instance_of(c: Candidate | Core) -> Instance:
    """What the formula reads of a candidate; of a core, with neutral other knobs."""
    pingpong = c.schedule == "pingpong"
    if isinstance(c, Core):
        alike = {name: getattr(c, name) for name in _OF_CORE}
        return Instance(stages=1, pingpong=pingpong, **alike)
    values = [*_read(c)]
    values[_ALONG_M], values[_PINGPONG] = c.raster_order == "along_m", pingpong
    values[_PROMOTE] = 0 if c.promote_every == NEVER else int(c.promote_every)
    return Instance._make(values)


def estimate(c: Candidate, work: Work, device: Device) -> Estimate:
    """The formula for one candidate: schedule, tile, cluster, stages, raster, swap_ab and those of features; every
    other knob is taken to be well chosen."""
    s = model.spend(instance_of(c), work.form, work.counted, device.known_rates)
    spent: dict[str, int] = {}
    for index, clocks in s.parts:
        if clocks:
            spent[SPENT[index]] = spent.get(SPENT[index], 0) + clocks
    bound = max(spent, key=lambda key: spent[key])
    return Estimate(s.tiles, s.slots, s.waves, s.last, s.busy, s.from_l2, s.clocks, bound, spent)


def count_tiles(c: Candidate | Core, work: Work, device: Device) -> tuple[int, int]:
    """(all tiles, how many CTAs run at the same time), see `Estimate`."""
    return model.count_tiles(instance_of(c), work.counted, device.known_rates)[2:]
