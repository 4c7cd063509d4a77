"""What the plans of all families share. Importing this module imports neither torch nor cutlass."""

from __future__ import annotations

import sys
import threading
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Literal

from cutegen.runtime.accuracy import Tolerance
from cutegen.runtime.arguments import Argument, Extent, TensorArg, complete_dims
from cutegen.runtime.autotune import LAUNCHES, ROUNDS, Autotuned, autotune
from cutegen.runtime.call_faults import Fault
from cutegen.runtime.callable_plan import CallablePlan
from cutegen.runtime.calls import call_plan
from cutegen.runtime.header import check_package
from cutegen.runtime.torch_op import register_plan

# Metadata of a field that digests leave out where it has its default: kernels without a feature keep theirs.
SILENT = {"silent": True}


def read_tilings(
    kind: type[Any], shared: Mapping[str, Any], columns: Sequence[str], rows: Mapping[str, Mapping[str, Sequence[Any]]]
) -> tuple[dict[str, Any], dict[str, str]]:
    """The tilings of a plan's table, and their modules, both by key.

    kind: the dataclass of a tiling's numbers, such as GemmTiling. shared: fields that all tilings have alike, with
    their values; columns: all others that have no default, and some that have. rows: by module and key, values in the
    order of `columns`; what a row is too short for is as `kind` has it by default. ValueError: a row is longer than
    `columns`, or `kind` has no such field.
    """
    numbers = {**{f.name: f.default for f in fields(kind)}, **shared}
    names = list(numbers)
    places = [names.index(name) for name in columns]
    tilings, modules = {}, {}
    for module, own in rows.items():
        for key, row in own.items():
            if len(row) > len(places):
                raise ValueError(f"tiling {key} has {len(row)} numbers, and there are {len(places)} columns")
            values = list(numbers.values())
            for place, value in zip(places, row):
                values[place] = value
            tilings[key], modules[key] = kind(*values), module
    return tilings, modules


@dataclass(frozen=True, slots=True)
class CuteKernel:
    """One problem, ready to launch: `launch_fn(*input_tensors, *output_tensors, *scratch_tensors)` allocates and
    compiles nothing, and keeps to the SM budget that the plan was asked for.

    algorithmic_flops_bytes_fn() -> (FLOPs, bytes) of this problem. autotune_configs: tilings that could run it, by key.
    plan, sms: what it was made by, and for which budget. key: of the tiling.
    """

    kernel_fn: Callable[..., Any]
    launch_fn: Callable[..., None]
    input_tensors: tuple[Any, ...]
    output_tensors: tuple[Any, ...]
    tiling: Any
    autotune_configs: Mapping[str, Any]
    algorithmic_flops_bytes_fn: Callable[[], tuple[int, int]]
    scratch_tensors: tuple[Any, ...] = ()
    plan: Any = None
    sms: int | None = None
    key: str = ""

    def compile(self, directory: str | Path) -> dict[str, Path]:
        """Compiles its kernel, or finds it in the cache, and writes what the compiler made to `directory`: PTX, cubin,
        object file, and remarks where the DSL has them; the paths by name. RuntimeError: its plan has compiled kernels
        and nothing else, as in a bundle. OSError: it cannot be written. ImportError: no DSL."""
        folder = Path(directory)
        loader = sys.modules[sys.modules[type(self.plan).__module__].load_kernel.__module__]  # type: ignore[attr-defined]
        if not hasattr(loader, "keep_artefacts"):
            raise RuntimeError(
                f"{self.plan.name}: a bundle has no artefacts; `cutegen build SPEC --keep DIR` writes them"
            )
        with loader.keep_artefacts(folder) as written:
            self.plan.compile(self.key)
        return dict(written)

    def autotune(self, *, rounds: int = ROUNDS, launches: int = LAUNCHES) -> Autotuned:
        """Times its configurations on its inputs, and says which failed; see runtime/autotune.py."""
        return autotune(self, rounds, launches)


class Table(dict[Any, Any]):
    """A dict that computes what is missing: the lookups of the hot path cost one C call. It begins again when it has
    `most` entries."""

    def __init__(self, compute: Callable[[Any], Any], most: int | None = None) -> None:
        super().__init__()
        self.compute, self.most, self.lock = compute, most, threading.Lock()

    def __missing__(self, key: Any) -> Any:
        with self.lock:
            if key in self:  # another thread was first
                return self[key]
            value = self.compute(key)
            if len(self) == self.most:
                self.clear()
            self[key] = value
        return value


class BasePlan(CallablePlan):
    """A kernel, its dispatch and its reference.

    dims: what a problem is made of, and what `prepare_inputs` takes: a constant or an inclusive range each. scratch:
    what a launch passes behind inputs and outputs. scaled_tiles: tensors that count for nothing where the scalar
    named beside them is 0. Scratch needs no contents, but what is declared `zeroed` is zero before the first launch,
    and every launch leaves it zero.

    on_miss: what a launch does when its tiling is not compiled yet: "compile", "warn" (and compile), or "error".
    sms: launches run on at most that many SMs, None for all of the device; a call's own `sms` comes first. It may be
    set at any time; a captured graph keeps the value it was captured with.
    """

    arch: ClassVar[str]
    family: ClassVar[str]
    tilings: ClassVar[Mapping[str, Any]]
    device: ClassVar[str] = "cuda"
    proving: ClassVar[str] = "proving"  # the module of the family that proves and measures such plans
    dims: Mapping[str, Extent]
    scratch: tuple[TensorArg, ...] = ()
    scaled_tiles: ClassVar[Mapping[str, str]] = {}
    short_options: ClassVar[Mapping[str, str]] = {}  # of the command line, by dim

    def __init_subclass__(cls) -> None:
        """Raise for a package of two renders, on import: a kernel could be called by another's numbers."""
        file = getattr(sys.modules.get(cls.__module__), "__file__", None)
        if "name" in vars(cls) and file:
            check_package(Path(file))

    def __init__(self, on_miss: Literal["compile", "warn", "error"] = "compile", sms: int | None = None) -> None:
        self.on_miss, self.sms = on_miss, sms
        self._kernels = Table(self._compile_late)
        self._sm_counts = Table(self.sm_count)
        self.launch_fn = self.make_launch()

    def __copy__(self) -> BasePlan:
        return self

    def __deepcopy__(self, memo: object) -> BasePlan:
        """Itself, as of a function: a copied model calls the same compiled kernels."""
        return self

    def __reduce__(self) -> tuple[Callable[..., BasePlan], tuple[Any, ...]]:
        """What another process gets is a plan with the same settings, whose kernels are not compiled there yet."""
        return _remake, (type(self), self.on_miss, self.sms)

    # -- what a family or a generated plan defines --

    def compile(self, key: str) -> Callable[..., None]:
        raise NotImplementedError

    def make_launch(self, key: str | None = None) -> Callable[..., None]:
        """`launch_fn(*inputs, *outputs, *scratch, sms=None)`, on the current stream; with `key`, always that tiling."""
        raise NotImplementedError

    def prepare_inputs(self, **dims: int) -> tuple[Any, ...]:
        """Fresh random inputs of one problem."""
        raise NotImplementedError

    def draw_inputs(self, draw: Any, **dims: int) -> tuple[Any, ...]:
        """prepare_inputs, made harder in a way that the family knows."""
        raise NotImplementedError

    def omit(self, key: str, inputs: Sequence[Any]) -> tuple[Any, ...]:
        """The inputs with None for those that tiling `key` does without."""
        return tuple(inputs)

    def share_aliases(self, values: Sequence[Any]) -> tuple[Any, ...]:
        """What a launch passes, with each output that may lie on an input in place of that one."""
        return tuple(values)

    def allocate_scratch(self, *inputs: Any, key: str | None = None) -> tuple[Any, ...]:
        """Scratch tensors that are large enough for these inputs, for tiling `key` or for any. ValueError: a kernel
        can't count as many elements."""
        return ()

    def reference_fn(self, *inputs: Any, precision: str = "float32") -> Any:
        """The outputs by plain torch: arithmetic in `precision`, then rounded to the declared dtypes."""
        raise NotImplementedError

    def free_elements(self, output: int, inputs: tuple[Any, ...]) -> Any:
        """Mask, of the shape of output number `output`, of elements that nothing is promised about; None: no element
        is such."""
        return None

    def count_work(self, dims: Mapping[str, int], inputs: tuple[Any, ...]) -> tuple[int, int]:
        """(floating-point operations, bytes that must move) for these inputs, whose dims are given."""
        return self._algorithmic_flops_bytes(**dims)

    def output_tolerance(self, output: int, inputs: Sequence[Any], reference: str) -> Tolerance:
        """How far output number `output` may be from its reference, whose dtype has the torch name `reference`."""
        raise NotImplementedError

    def is_repeatable(self, key: str) -> bool:
        """Whether tiling `key` gives equal bits for equal inputs."""
        return True

    def problem_dims(self, *inputs: Any) -> dict[str, int]:
        """The dims that these inputs make up. It may read tensors, which waits for the device."""
        raise NotImplementedError

    def _algorithmic_flops_bytes(self, **dims: int) -> tuple[int, int]:
        raise NotImplementedError

    def _find_faults(self, args: Sequence[Argument], values: Sequence[Any], sms: int | None = None) -> list[Fault]:
        """Every reason why `values` cannot be passed as `args`."""
        raise NotImplementedError

    def signature(self) -> tuple[Any, ...]:
        """What is computed: plans with equal signatures have equal baselines."""
        return self.family, self.inputs, self.outputs

    def form_of(self, key: str) -> str:
        """What tilings of one kernel module have alike whose code differs in numbers alone."""
        return ""

    def dispatch(self, **dims: int) -> str:
        """The key of the tiling for a problem."""
        (only,) = self.tilings
        return only

    def choose_instance(self, inputs: Sequence[Any], dims: Mapping[str, int], sms: int | None = None) -> str:
        """The key of the kernel that runs these inputs, whose dims are given, on at most so many SMs; None: as many as
        the plan may use."""
        return self.dispatch(**dims)

    def full_key(self, key: str) -> str:
        """The key that dispatch chooses where this one can run instead of it."""
        return key

    def validate(self, key: str, sms: int | None = None, /, **dims: int) -> str:
        """Why tiling `key` cannot run a problem, on at most so many SMs of the current CUDA device; "" where it can.
        Constants need no extent. Without a device, what has no need of one is looked at."""
        if key not in self.tilings:
            return f"{self.name} has no tiling {key}: it has {', '.join(self.tilings)}"
        try:
            extents, index = complete_dims(self.dims, dims), current_device() if self.device == "cuda" else -1
            have = self._sm_counts[index] if index >= 0 else None
            self._refuse_tiling(key, extents, have if sms is None else min(sms, have or sms))
        except (TypeError, ValueError) as error:
            return str(error)
        return ""

    def _refuse_tiling(self, key: str, extents: Mapping[str, int], sms: int | None) -> None:
        """ValueError: the tiling cannot run the problem on so many SMs; None: nobody knows on how many."""
        if sms is not None and sms < (least := self.least_sms(key)):
            raise ValueError(f"{self.name}: a cluster of {key} takes {least} SMs at once, and there are {sms}")

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

        find_arch(self.name, index, (self.arch,))
        return int(torch.cuda.get_device_properties(index).multi_processor_count)

    def extents_on_device(self, dims: Mapping[str, int]) -> dict[str, int]:
        """The extents of every dim of a problem whose inputs are to be made. TypeError, ValueError: dims name no such
        problem; RuntimeError: torch has no device to make them on."""
        import torch

        extents = complete_dims(self.dims, dims)
        if self.device == "cuda" and not torch.cuda.is_available():
            build = "" if torch.version.cuda else f": torch {torch.__version__} is built without CUDA"
            raise RuntimeError(f"{self.name}: inputs are made on a CUDA device, and torch finds none{build}")
        return extents

    def least_sms(self, key: str) -> int:
        """SMs without which tiling `key` cannot run: those of one cluster."""
        raise NotImplementedError

    def fewest_sms(self, key: str, dims: Mapping[str, int]) -> int:
        """Those without which it cannot run a call of these extents."""
        return self.least_sms(key)

    def limit_sms(self, sms: int | None, key: str, index: int) -> int:
        """SMs that a launch of tiling `key` on CUDA device `index` uses, given the call's budget. TypeError,
        ValueError: it is no budget, or too small."""
        budget, count, least = (self.sms if sms is None else sms), self._sm_counts[index], self.least_sms(key)
        if budget is None:
            return int(count)
        if isinstance(budget, bool) or not isinstance(budget, int):
            raise TypeError(f"{self.name}: sms is {budget!r}, needs a number of SMs, or None for all")
        if budget < least:
            cluster = f"a cluster of {least} CTAs runs" if least > 1 else "a CTA runs"
            raise ValueError(f"{self.name}: sms is {budget}; {cluster} on {least} at once: pass at least {least}")
        return min(budget, int(count))

    # -- calls --

    def plan(self, *inputs: Any, sms: int | None = None) -> CuteKernel:
        """Outputs and scratch allocated, tiling chosen and compiled for these inputs. TypeError, ValueError: they do
        not fit. sms: of every launch of the result."""
        self._refuse(self.inputs, inputs)
        outputs = self.allocate_outputs(*inputs)
        dims = self.problem_dims(*inputs)
        key = self.choose_instance(inputs, dims, sms)
        if all(o.numel() for o in outputs) and all(dims.values()):
            self.warm_up([key])
        return CuteKernel(
            self.kernel_fn,
            self.launch_fn if sms is None else partial(self.launch_fn, sms=sms),
            inputs,
            outputs,
            self.tilings[key],
            self._autotune_configs(),
            lambda: self.count_work(dims, inputs),
            self.allocate_scratch(*inputs, key=key),
            self,
            sms,
            key,
        )

    def benchmark_kernel_argparse(self, arguments: Sequence[str] | None = None) -> int:
        """What `python -m` of the package does with these arguments, by default those of the process; its exit code."""
        from cutegen.runtime.command import benchmark_kernel_argparse

        return benchmark_kernel_argparse(self, arguments)

    def __call__(self, *inputs: Any, out: Any = None, sms: int | None = None, **named: Any) -> Any:
        """kernel_fn with operands by position or by name, and results in `out` where that is given: see calls.py."""
        return call_plan(self, inputs, named, out, sms)

    def register_torch_op(self, name: str | None = None) -> Any:
        """torch.ops.cutegen.NAME, by default named as the plan: what torch.compile and torch.export take as one node;
        see torch_op.py. ValueError: the name or the plan is taken."""
        return register_plan(self, name or self.name)

    def _refuse(
        self, args: Sequence[Argument], values: Sequence[Any], cause: Exception | None = None, sms: int | None = None
    ) -> None:
        """Raises what is wrong with a call, all of it; returns when nothing is. sms: the call's budget."""
        if faults := self._find_faults(args, values, sms):
            error = TypeError if any(f.error is TypeError for f in faults) else ValueError
            raise error(f"{self.name}: " + "\n  ".join(f.text for f in faults)) from cause


def find_arch(name: str, index: int, archs: Sequence[str]) -> str:
    """Of the architectures that kernels are built for, that of CUDA device `index`. ValueError: it is another one.
    name: of the plan."""
    import torch

    facts = torch.cuda.get_device_properties(index)
    have = f"sm_{facts.major}{facts.minor}"
    if fitting := [arch for arch in archs if arch.rstrip("af") == have]:
        return fitting[0]
    built = f"{'kernel is' if len(archs) == 1 else 'kernels are'} built for {' and '.join(archs)}"
    raise ValueError(f"{name}: device {index} ({facts.name}) is {have}; the {built}")


def current_device() -> int:
    """The index of torch's current CUDA device; -1 without one."""
    try:
        import torch
    except ImportError:
        return -1
    return torch.cuda.current_device() if torch.cuda.is_available() else -1


def _remake(kind: type[BasePlan], on_miss: Literal["compile", "warn", "error"], sms: int | None) -> BasePlan:
    return kind(on_miss=on_miss, sms=sms)
