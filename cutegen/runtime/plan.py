"""KernelPlan: what every generated plan.py subclasses. Importing this module imports neither torch nor cutlass.

A generated plan gives, as class attributes:

    name, arch        "gemm_bf16_sm90a", "sm_90a"
    dims              {"m": (1, None), "n": 28672, "k": 4096}: every dim; a constant, or an inclusive range
    inputs, outputs   tuples of TensorArg / ScalarArg in declared order; a call passes the inputs, then the outputs
    reduced           the dim that is contracted ("k"); an extent of 0 is refused, other empty problems do nothing
    tilings           {"t128x256": GemmTiling(...)}: a tiling's key is also its compile key
    approximation     absolute error of the epilogue's approximated functions at unit scale (0.0 when it has none)
    epilogue          {"d": "gelu_tanh(acc + bias)"}: the statements as the spec writes them; `bench` chooses baselines
                      by it ("acc": the product itself)

and as methods:

    _reference(self, *inputs)                 the maths in plain torch, as a tuple of outputs: tensors arrive in f32 or
                                              f64 (or as they are, which makes it the unfused baseline of `bench`)
    _algorithmic_flops_bytes(self, **dims)    (floating-point operations, bytes that must move) of one problem
    compile(self, key)                        the compiled kernel of tiling `key`, called as
                                              compiled(*inputs, *outputs, sm_count)
    dispatch(self, **dims)                    the key for a problem; only when there are several tilings

and at module level:

    PLAN = Plan()
    plan, kernel_fn, reference_fn, launch_fn = PLAN.plan, PLAN.kernel_fn, PLAN.reference_fn, PLAN.launch_fn
    get_inputs = PLAN.prepare_inputs
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from cutegen.runtime.arguments import (
    Argument,
    Extent,
    ScalarArg,
    TensorArg,
    allocate,
    bind_dims,
    complete_dims,
    find_faults,
    normalise_strides,
    torch_dtype,
)


@dataclass(frozen=True, slots=True)
class CuteKernel:
    """One problem, ready to launch: `launch_fn(*input_tensors, *output_tensors)` allocates and compiles nothing.

    algorithmic_flops_bytes_fn() -> (FLOPs, bytes) of this problem. autotune_configs: tilings that could run it, by key.
    """

    kernel_fn: Callable[..., Any]
    launch_fn: Callable[..., None]
    input_tensors: tuple[Any, ...]
    output_tensors: tuple[Any, ...]
    tiling: Any
    autotune_configs: Mapping[str, Any]
    algorithmic_flops_bytes_fn: Callable[[], tuple[int, int]]


class _Table(dict[Any, Any]):
    """A dict that computes what is missing: the lookups of the hot path cost one C call."""

    def __init__(self, compute: Callable[[Any], Any]) -> None:
        super().__init__()
        self.compute, self.lock = compute, threading.Lock()

    def __missing__(self, key: Any) -> Any:
        with self.lock:
            if key not in self:
                self[key] = self.compute(key)
        return self[key]


class KernelPlan:
    """A kernel, its dispatch and its reference. The module docstring lists what a subclass gives.

    on_miss: what a launch does when its tiling is not compiled yet: "compile", "warn" (and compile), or "error".
    """

    name: ClassVar[str]
    arch: ClassVar[str]
    dims: ClassVar[Mapping[str, Extent]]
    inputs: ClassVar[tuple[Argument, ...]]
    outputs: ClassVar[tuple[TensorArg, ...]]
    reduced: ClassVar[str]
    tilings: ClassVar[Mapping[str, Any]]
    epilogue: ClassVar[Mapping[str, str]] = {}
    approximation: ClassVar[float] = 0.0
    device: ClassVar[str] = "cuda"

    def __init__(self, on_miss: Literal["compile", "warn", "error"] = "compile") -> None:
        self.on_miss = on_miss
        self._kernels = _Table(self._compile_late)
        self._sm_counts = _Table(self.sm_count)
        self.launch_fn = self.make_launch()

    # -- what a generated plan defines --

    def _reference(self, *inputs: Any) -> tuple[Any, ...]:
        raise NotImplementedError

    def _algorithmic_flops_bytes(self, **dims: int) -> tuple[int, int]:
        raise NotImplementedError

    def compile(self, key: str) -> Callable[..., None]:
        raise NotImplementedError

    def dispatch(self, **dims: int) -> str:
        (only,) = self.tilings
        return only

    def _autotune_configs(self) -> Mapping[str, Any]:
        return self.tilings

    # -- compile keys --

    def get_warmup_keys(self) -> tuple[str, ...]:
        """Every key that `dispatch` can return."""
        return tuple(self.tilings)

    def warm_up(self, keys: Sequence[str] | None = None) -> None:
        """Compiles (or loads from the cache) the kernels of `keys`, by default all, so that no launch has to."""
        for key in self.get_warmup_keys() if keys is None else keys:
            if key not in self._kernels:
                self._kernels[key] = self.compile(key)

    def _compile_late(self, key: str) -> Callable[..., None]:
        text = f"{self.name}: kernel {key!r} is not compiled; call warm_up() before serving"
        if self.on_miss == "error":
            raise RuntimeError(text)
        if self.on_miss == "warn":
            warnings.warn(text + "; compiling now", RuntimeWarning, stacklevel=4)
        return self.compile(key)

    def sm_count(self, index: int) -> int:
        """SMs of CUDA device `index`. ValueError: the device cannot run this kernel."""
        import torch

        facts = torch.cuda.get_device_properties(index)
        have, need = f"sm_{facts.major}{facts.minor}", self.arch.rstrip("af")
        if have != need:
            raise ValueError(
                f"{self.name}: device {index} ({facts.name}) is {have}; the kernel is built for {self.arch}"
            )
        return int(facts.multi_processor_count)

    # -- calls --

    def plan(self, *inputs: Any) -> CuteKernel:
        """Outputs allocated, tiling chosen and compiled for these inputs. TypeError, ValueError: they do not fit."""
        self._refuse(self.inputs, inputs)
        outputs = self.allocate_outputs(*inputs)
        dims = bind_dims(self.dims, self.inputs, inputs)
        key = self.dispatch(**dims)
        if all(dims.values()):
            self.warm_up([key])
        return CuteKernel(
            self.kernel_fn,
            self.launch_fn,
            inputs,
            outputs,
            self.tilings[key],
            self._autotune_configs(),
            lambda: self._algorithmic_flops_bytes(**dims),
        )

    def kernel_fn(self, *inputs: Any) -> Any:
        """The output (a tuple when there are several), newly allocated, computed on the current stream."""
        outputs = self.allocate_outputs(*inputs)
        self.launch_fn(*inputs, *outputs)
        return outputs if len(outputs) > 1 else outputs[0]

    def allocate_outputs(self, *inputs: Any) -> tuple[Any, ...]:
        """Uninitialised outputs in the declared layouts. TypeError, ValueError: the inputs do not fit."""
        try:
            dims = bind_dims(self.dims, self.inputs, inputs)
            device = next(v.device for a, v in zip(self.inputs, inputs) if isinstance(a, TensorArg))
            return tuple(allocate(o, dims, device) for o in self.outputs)
        except Exception as error:
            self._refuse(self.inputs, inputs, error)
            raise

    def reference_fn(self, *inputs: Any, precision: str = "float32") -> Any:
        """The same outputs by plain torch: arithmetic in `precision`, then rounded to the declared dtypes."""
        dtype = torch_dtype(precision)
        values = (v.to(dtype) if isinstance(a, TensorArg) else v for a, v in zip(self.inputs, inputs))
        outputs = tuple(o.to(torch_dtype(a.dtype)) for a, o in zip(self.outputs, self._reference(*values)))
        return outputs if len(outputs) > 1 else outputs[0]

    def prepare_inputs(self, **dims: int) -> tuple[Any, ...]:
        """Fresh random inputs: tensors N(0, 1), host scalars in [0.5, 1.5). The last tensor over the reduced dim is
        scaled by its extent ** -0.5, so that the product has unit variance and activations are met where they bend."""
        import torch

        extents = complete_dims(self.dims, dims)
        last = [a.name for a in self.inputs if isinstance(a, TensorArg) and self.reduced in a.dims][-1]
        values: list[Any] = []
        for arg in self.inputs:
            if isinstance(arg, ScalarArg):
                values.append(0.5 + float(torch.rand(())))
            else:
                scale = max(extents[self.reduced], 1) ** -0.5 if arg.name == last else 1.0
                values.append(allocate(arg, extents, self.device).normal_(0.0, scale))
        return tuple(values)

    def reduction_extent(self, inputs: Sequence[Any]) -> int:
        """The extent of the contracted dim in these inputs."""
        return bind_dims(self.dims, self.inputs, inputs)[self.reduced]

    def make_launch(self, key: str | None = None) -> Callable[..., None]:
        """`launch_fn(*inputs, *outputs)`, on the current stream; with `key`, always that tiling.

        Work per call: two emptiness tests, promised upper bounds, two dict lookups and the compiled call, which checks
        shapes, strides, dtypes, devices and alignment itself. Only when it refuses are the reasons looked for.
        """
        kernels, sm_counts, args = self._kernels, self._sm_counts, (*self.inputs, *self.outputs)
        probe = len(self.inputs)
        carriers = [i for i, a in enumerate(args) if isinstance(a, TensorArg) and self.reduced in a.dims]
        carrier = probe if isinstance(self.dims[self.reduced], int) else carriers[0]
        key = key or (next(iter(self.tilings)) if len(self.tilings) == 1 else None)
        slots = self._dim_slots(args)
        ranges = {d: extent for d, extent in self.dims.items() if not isinstance(extent, int)}
        bounded = [(i, axis, ranges[d][0], hi) for d, i, axis in slots if (hi := ranges[d][1]) is not None]

        def launch_fn(*values: Any) -> None:
            try:
                output = values[probe]
                if output.numel() and values[carrier].numel():
                    for i, axis, lo, hi in bounded:
                        if not lo <= values[i].shape[axis] <= hi:
                            raise ValueError(f"argument {i}, axis {axis}")  # named below
                    chosen = key or self.dispatch(**{d: values[i].shape[axis] for d, i, axis in slots}, **constants)
                    kernels[chosen](*values, sm_counts[output.get_device()])
                    return
            except Exception as error:
                self._refuse(args, values, error)
                fixed = normalise_strides(args, values)
                if fixed is None:
                    raise
                launch_fn(*fixed)
                return
            self._refuse(args, values)

        constants = {d: e for d, e in self.dims.items() if isinstance(e, int)}
        return launch_fn

    def _dim_slots(self, args: Sequence[Argument]) -> tuple[tuple[str, int, int], ...]:
        """(dim, argument, axis) where the extent of each dim that is not constant can be read."""
        found: dict[str, tuple[str, int, int]] = {}
        for i, arg in enumerate(args):
            for axis, dim in enumerate(arg.dims if isinstance(arg, TensorArg) else ()):
                if not isinstance(self.dims[dim], int):
                    found.setdefault(dim, (dim, i, axis))
        return tuple(found.values())

    def _refuse(self, args: Sequence[Argument], values: Sequence[Any], cause: Exception | None = None) -> None:
        """Raises what is wrong with a call, all of it; returns when nothing is."""
        if faults := find_faults(self.dims, args, values, self.device, self.reduced):
            error = TypeError if any(f.error is TypeError for f in faults) else ValueError
            raise error(f"{self.name}: " + "\n  ".join(f.text for f in faults)) from cause
