"""Plans that follow from the declarations of their tensors. Importing this module imports neither torch nor cutlass.

TensorOperands is what every such plan shares, products included; TensorPlan is a whole plan, called as
compiled(*inputs, *outputs, *scratch, sm_count). Its subclass gives `_reference` and `count_flops`, and `fit_scratch`
where there is any.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from itertools import combinations
from typing import Any, ClassVar

from cutegen.runtime.accuracy import Tolerance, tolerance
from cutegen.runtime.arguments import (
    Argument,
    ScalarArg,
    allocate,
    bind_dims,
    draw,
    normalise_strides,
    tensor_bytes,
    to_dtype,
    torch_dtype,
)
from cutegen.runtime.base import BasePlan
from cutegen.runtime.call_faults import Fault, find_faults
from cutegen.runtime.overlap import find_overlaps
from cutegen.runtime.slots import find_bounds, make_storage_check


class TensorOperands(BasePlan):
    """Outputs, reference and dims by the declarations of inputs and outputs. aliases: outputs that may lie where an
    input of the same layout does; other outputs may not."""

    aliases: ClassVar[Mapping[str, str]] = {}

    @cached_property
    def optional_endings(self) -> tuple[tuple[int, str], ...]:
        """(position, what keys end in without it) of each optional input."""
        return tuple((i, f"_without_{a.name}") for i, a in enumerate(self.inputs) if a.optional)

    @cached_property
    def _shorter(self) -> dict[str, tuple[str, frozenset[int]]]:
        """Of each kernel that does without some operands: the key of that with all, and their positions."""
        found: dict[str, tuple[str, frozenset[int]]] = {}
        for key in self.tilings:
            for count in range(1, len(self.optional_endings) + 1):
                for gone in combinations(self.optional_endings, count) if key not in found else ():
                    found[key + "".join(ending for _, ending in gone)] = key, frozenset(i for i, _ in gone)
        return found

    def full_key(self, key: str) -> str:
        """The key of the kernel that takes all operands, next to one that does without some."""
        return self._shorter[key][0] if key in self._shorter else key

    @cached_property
    def whole_keys(self) -> tuple[str, ...]:
        """Of the kernels that take all operands."""
        return tuple(key for key in self.tilings if self.full_key(key) == key)

    def end_key(self, inputs: Sequence[Any]) -> str:
        """What the key of the kernel ends in that takes these inputs."""
        return "".join(ending for i, ending in self.optional_endings if inputs[i] is None)

    def omit(self, key: str, inputs: Sequence[Any]) -> tuple[Any, ...]:
        gone = self._shorter[key][1] if key in self._shorter else frozenset()
        return tuple(None if i in gone else value for i, value in enumerate(inputs))

    def problem_dims(self, *inputs: Any) -> dict[str, int]:
        return bind_dims(self.dims, self.inputs, inputs)

    def allocate_outputs(self, *inputs: Any) -> tuple[Any, ...]:
        """Uninitialised fresh_outputs in the declared layouts. TypeError, ValueError: the inputs do not fit."""
        try:
            dims = bind_dims(self.dims, self.inputs, inputs)
            device = next(v.device for v in inputs if hasattr(v, "device"))
            if device.type != self.device:
                raise ValueError(f"inputs are on {device}")  # named below
            return tuple(allocate(o, dims, device) for o in self.fresh_outputs)
        except Exception as error:
            self._refuse(self.inputs, inputs, error)
            raise

    def share_aliases(self, values: Sequence[Any]) -> tuple[Any, ...]:
        held = {a.name: v for a, v in zip((*self.inputs, *self.fresh_outputs), values)}
        shared = {name: held[output] for output, name in self.aliases.items()}
        return tuple(value if value is None else shared.get(name, value) for name, value in held.items())

    def _reference(self, *inputs: Any) -> tuple[Any, ...]:
        """The maths in plain torch: tensors arrive in f32 or f64."""
        raise NotImplementedError

    def _indices(self) -> tuple[str, ...]:
        """Arguments that name rows or groups, and are not part of the maths."""
        return ()

    def reference_fn(self, *inputs: Any, precision: str = "float32") -> Any:
        """The same outputs by plain torch: arithmetic in `precision`, then rounded to the declared dtypes."""
        dtype = torch_dtype(precision)
        indices = self._indices()
        values = (v if a.name in indices else to_dtype(a, v, dtype) for a, v in zip(self.inputs, inputs))
        outputs = tuple(o.to(torch_dtype(a.dtype)) for a, o in zip(self.outputs, self._reference(*values)))
        return outputs if len(outputs) > 1 else outputs[0]

    def kernel_fn(self, *inputs: Any, sms: int | None = None) -> Any:
        outputs = self.allocate_outputs(*inputs)
        self.launch_fn(*inputs, *outputs, sms=sms)
        if self.in_place:
            outputs = self.order_results(inputs, outputs)
        return outputs if len(outputs) > 1 else outputs[0]


class TensorPlan(TensorOperands):
    """roles: what the family calls a tensor or a dim -> its name in the spec. reduced: the role of the dim that an
    output element is a sum over; "": of none, an element is made of those at its place. numbers: constants of the spec
    by name, such as eps."""

    reduced: ClassVar[str] = ""
    roles: ClassVar[Mapping[str, str]] = {}
    numbers: ClassVar[Mapping[str, float]] = {}

    @property
    def probe(self) -> str:
        """The output without elements of which nothing is launched."""
        return self.outputs[0].name

    def count_flops(self, **extents: int) -> int:
        """Floating-point operations of one problem; extents by role of the dim."""
        raise NotImplementedError

    def _algorithmic_flops_bytes(self, **dims: int) -> tuple[int, int]:
        by_role = {role: dims[name] for role, name in self.roles.items() if name in self.dims}
        return self.count_flops(**by_role), tensor_bytes((*self.inputs, *self.outputs), dims)

    def signature(self) -> tuple[Any, ...]:
        return *super().signature(), *self.numbers.items()

    def least_sms(self, key: str) -> int:
        return 1

    def prepare_inputs(self, **dims: int) -> tuple[Any, ...]:
        """Fresh random inputs: tensors N(0, 1), integers uniform, host scalars in [0.5, 1.5)."""
        import torch

        extents = self.extents_on_device(dims)
        return tuple(
            0.5 + float(torch.rand(()))
            if isinstance(arg, ScalarArg)
            else draw(allocate(arg, extents, self.device), 1.0)
            for arg in self.inputs
        )

    def draw_inputs(self, draw: Any, **dims: int) -> tuple[Any, ...]:
        return self.prepare_inputs(**dims)

    def output_tolerance(self, output: int, inputs: Sequence[Any], reference: str) -> Tolerance:
        summed = self.problem_dims(*inputs)[self.roles[self.reduced]] if self.reduced else 1
        return tolerance(self.outputs[output].dtype, summed, reference=reference)

    def _find_faults(self, args: Sequence[Argument], values: Sequence[Any], sms: int | None = None) -> list[Fault]:
        written = [a.name for a in (*self.outputs, *self.scratch)]
        extents = {**self.dims, **{s.dims[0]: (0, None) for s in self.scratch}}
        faults = find_faults(extents, args, values, self.device, "", written)
        return faults or list(find_overlaps(args, values, written, self.aliases))

    def chooser(self, key: str | None) -> Callable[[Sequence[Any]], str]:
        """From the arguments of a launch to the key that runs it; key: of all launches, where it is given."""
        chosen = key or next(iter(self.tilings))
        return lambda values: chosen

    def count_sms(self, key: str, device: int) -> int:
        """What a launch without a budget is passed as the number of SMs."""
        return int(self._sm_counts[device])

    def fit_scratch(self, key: str, values: Sequence[Any], given: Sequence[Any], count: int) -> tuple[Any, ...]:
        """The scratch that a launch of tiling `key` with these inputs and outputs takes on so many SMs: what is given,
        or the plan's own. ValueError: it is too small."""
        return ()

    def make_launch(self, key: str | None = None) -> Callable[..., None]:
        """Work per call: types and storage of tensors, promised ranges, and the compiled call, which checks shapes,
        strides, dtypes, devices and alignment itself. Only when something fails are the reasons looked for."""
        args, scratch, optional = (*self.inputs, *self.fresh_outputs), self.scratch, bool(self.optional_endings)
        check_storage, bounds = (
            make_storage_check(args, [o.name for o in self.outputs], self.aliases),
            find_bounds(self.dims, args),
        )
        probe = next(i for i, a in enumerate(args) if a.name == self.probe)
        choose, count_sms = self.chooser(key), self.count_sms

        def launch_fn(*values: Any, sms: int | None = None) -> None:
            try:
                given: tuple[Any, ...] = ()
                if scratch and len(values) == len(args) + len(scratch):
                    values, given = values[: len(args)], values[len(args) :]
                if len(values) != len(args):
                    raise TypeError("arguments")  # named below
                if values[probe].numel():
                    check_storage(values)
                    for i, axis, low, high in bounds:
                        if not low <= values[i].shape[axis] <= high:
                            raise ValueError(f"argument {i}, axis {axis}")
                    chosen = choose(values)
                    device, limited = values[probe].get_device(), sms is not None or self.sms is not None
                    count = self.limit_sms(sms, chosen, device) if limited else count_sms(chosen, device)
                    own = self.fit_scratch(chosen, values, given, count) if scratch else ()
                    passed = (v for v in values if v is not None) if optional else values
                    self._kernels[chosen](*passed, *own, count)
                    return
            except Exception as error:
                self._refuse((*args, *scratch) if given else args, (*values, *given), error, sms)
                fixed = normalise_strides(args, values)
                if fixed is None:
                    raise
                launch_fn(*fixed, *given, sms=sms)
                return
            self._refuse(args, values, sms=sms)

        return launch_fn
