"""The launch function of a GEMM plan: what a call does besides the compiled kernel, in as little host time as it takes.

Importing this module imports neither torch nor cutlass.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from operator import attrgetter, methodcaller
from typing import Any, NamedTuple

from cutegen.runtime.arguments import TensorArg, divided, normalise_strides
from cutegen.runtime.gemm.product_plan import ProductPlan
from cutegen.runtime.gemm.product_scratch import product_extents
from cutegen.runtime.slots import Places, find_bounds, find_dims, find_parts, make_storage_check

SHAPE, ELEMENTS = attrgetter("shape"), methodcaller("numel")
MOST_FORMS = 1024  # of calls that a plan remembers: then it starts over


class Call(NamedTuple):
    """What follows from the shapes of a call, scratch that it brings included, its device and its SM budget. kernel:
    None where nothing is to be computed. sms: that it runs on; budget: the same where the call has one. places: what
    make_storage_check remembers. sizes: elements of the scratch of the plan, () where the tiling takes none. extents,
    k: of the product, where rows are copied to scratch before."""

    kernel: Callable[..., None] | None
    sms: int = 0
    budget: int | None = None
    places: Places | None = None
    sizes: tuple[int, ...] = ()
    extents: tuple[int, ...] | None = None
    k: int = 0


def make_launch(plan: ProductPlan, key: str | None = None) -> Callable[..., None]:
    """`launch_fn(*inputs, *outputs, *scratch, sms=None)`, on the current stream; with `key`, always that tiling.

    Shapes, device and SM budget of a call are looked up among those of former calls. Work per call besides that: types
    of tensors, where they begin and which layouts outputs have, and the compiled call, which checks shapes, strides,
    dtypes, devices and alignment itself. Only when it refuses are the reasons looked for. Where a launch writes several
    tensors: a lookup of their addresses as well, and of the stream where the call brings no scratch."""
    args, scratch = (*plan.inputs, *plan.fresh_outputs), plan.scratch
    positions = {a.name: i for i, a in enumerate(args)}
    outputs = {o.name: positions[o.name] for o in plan.outputs}
    shaped = [i for i, a in enumerate(args) if isinstance(a, TensorArg)]
    may_be_none = [i for i, a in enumerate(args) if a.optional and not isinstance(a, TensorArg)]
    optional, tensors = bool(plan.optional_endings), len(shaped) == len(args)
    whole = len(args)
    check_storage = make_storage_check(args, list(outputs), plan.aliases, scratch)
    take = plan.scratch_of.own.take
    prepare = Preparation(plan, key, check_storage)
    probe, row_copy = prepare.probe, plan.row_copy
    check_copied = row_copy.make_check(args, scratch, plan._find_faults) if row_copy else None
    seen: dict[tuple[Any, ...], Call] = {}

    def launch_fn(*values: Any, sms: int | None = None) -> None:
        try:
            budget = plan.sms if sms is None else sms
            if tensors and not optional:
                form = (values[probe].get_device(), budget, *map(SHAPE, values[:whole]))
            else:
                shapes = [value.shape if (value := values[i]) is not None else None for i in shaped]
                # A value without a shape that is left out takes another kernel.
                form = (values[probe].get_device(), budget, *shapes, *(values[i] is None for i in may_be_none))
            if len(values) > whole:
                form = (*form, *map(ELEMENTS, values[whole:]))
            call = seen.get(form) if budget is None or type(budget) is int else None
            if call is None:
                call, kept = prepare(values, sms)  # checks storage before anything is compiled
                if kept:
                    if len(seen) >= MOST_FORMS:
                        seen.clear()
                    seen[form] = call
            elif call.kernel is not None:
                check_storage(values, call.places)
            kernel = call.kernel
            if kernel is not None:
                given: tuple[Any, ...] = values
                fitting: tuple[Any, ...] = ()
                if len(values) != whole:
                    given = values[:whole]
                    fitting = tuple([value for value, size in zip(values[whole:], call.sizes) if size])
                elif call.sizes:
                    fitting = take(values[probe], call.sizes)
                if call.extents is not None:
                    assert row_copy
                    assert check_copied
                    check_copied(values)
                    own = len(fitting) - len(row_copy.args)
                    copy = plan.copy_kernel  # compiled, if it has to be, before others wait
                    with row_copy.turn:
                        given = row_copy.run(copy, given, fitting[own:], call.extents[0], call.k, call.budget)
                        kernel(*(v for v in given if v is not None), *fitting[:own], call.sms)
                    return
                if optional:
                    given = tuple(v for v in given if v is not None)
                kernel(*given, *fitting, call.sms)
                return
        except Exception as error:
            plan._refuse(args if len(values) <= whole else (*args, *scratch), values, error)
            fixed = normalise_strides(args, values[:whole])
            if fixed is None:
                raise
            launch_fn(*fixed, *values[whole:], sms=sms)
            return
        plan._refuse(args if len(values) <= whole else (*args, *scratch), values)
        for i, value in prepare.empty:
            values[i].fill_(value)

    return launch_fn


class Preparation:
    """What a launch does when it sees shapes for the first time: `prepare(values, sms) -> (call, whether to keep it)`.

    ValueError, TypeError: the shapes do not fit, or the budget; RuntimeError: no kernel that fits is loaded, and none
    may be compiled."""

    def __init__(self, plan: ProductPlan, key: str | None, check_storage: Callable[[Sequence[Any]], None]) -> None:
        self.plan, self.check_storage = plan, check_storage
        args = (*plan.inputs, *plan.fresh_outputs)
        outputs = {o.name: next(i for i, a in enumerate(args) if a.name == o.name) for o in plan.outputs}
        self.probe = next(i for name, i in outputs.items() if name not in (*plan.reductions, *plan.block_values))
        self.empty = [(outputs[name], -math.inf if op == "max" else 0.0) for name, op in plan.reductions.items()]
        carriers = [i for i, a in enumerate(args) if isinstance(a, TensorArg) and plan.reduced in a.dims]
        self.carrier = plan._find_carrier(carriers, self.probe)
        of_k: TensorArg = args[carriers[0]]  # type: ignore[assignment]
        axis = of_k.dims.index(plan.reduced)
        self.k_at = carriers[0], axis, of_k.packing(axis)
        self.key = plan.full_key(key) if key else None
        whole = next(o for o in plan.outputs if outputs[o.name] == self.probe)
        self.axes, self.divisors = whole.axes, [divided(whole.dims[axis])[1] for axis in whole.axes]
        self.slots = find_dims(plan.dims, args)
        self.bounded = find_bounds(plan.dims, args)
        self.parts = find_parts(args, self.slots)
        self.constants = {d: e for d, e in plan.dims.items() if isinstance(e, int)}
        self.whole = len(args)

    def __call__(self, values: Sequence[Any], sms: int | None) -> tuple[Call, bool]:
        plan, output = self.plan, values[self.probe]
        if not (output.numel() and values[self.carrier].numel()):
            return Call(None), True
        given = values[self.whole :]
        if given and len(given) != len(plan.scratch):
            raise TypeError("scratch")  # named by who looks for faults
        for i, axis, lo, hi in self.bounded:
            if not lo <= values[i].shape[axis] <= hi:
                raise ValueError(f"argument {i}, axis {axis}")
        for i, axis, divisor, most, whole, whole_axis, each in self.parts:
            if values[i] is None:
                continue
            if not 0 <= values[i].shape[axis] * divisor - values[whole].shape[whole_axis] * each <= most:
                raise ValueError(f"argument {i}, axis {axis}")
        self.check_storage(values)
        dims = {d: values[i].shape[axis] * each for d, i, axis, each in self.slots} | self.constants
        device = output.get_device()
        ending = "".join(ending for i, ending in plan.optional_endings if values[i] is None)
        kept = True
        key = self.key
        if key is None:
            budget = plan.sms if sms is None else sms
            key, kept = plan.choose_ready(device, dims, ending, budget if type(budget) is int else None)
        key += ending
        limited = sms is not None or plan.sms is not None
        count = plan.limit_sms(sms, key, device) if limited else plan._sm_counts[device]
        kernel = plan._kernels[key]
        if key not in plan.scratch_of.takers:
            return Call(kernel, count, places=set()), kept
        extents = product_extents(self.divisors, [output.shape[axis] for axis in self.axes])
        at, axis, each = self.k_at
        k, copied = values[at].shape[axis] * each, bool(plan.row_copy) and key in plan.copied_tilings
        sizes = plan.scratch_of.fit(key, extents, k, given)
        budget = count if limited else None
        return Call(kernel, count, budget, set(), sizes, extents if copied else None, k), kept
