"""A generated package on the machine: its own plan, launched on CPU tensors."""

from __future__ import annotations

import ctypes
import functools
import sys
import tempfile
from collections.abc import Callable, Container, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from cutegen.diagnostics import CutegenError
from cutegen.machine.assembler import Assembler
from cutegen.machine.forms import executed_forms
from cutegen.machine.host import HostFunction, link
from cutegen.machine.machine import Machine
from cutegen.machine.memory import WORDS, GlobalMemory, Region
from cutegen.machine.parser import PtxError, entry_names, parse
from cutegen.run.case_list import Case, Mode
from cutegen.run.cases import CaseResult, run_case
from cutegen.run.guard import bits
from cutegen.run.output_check import as_tuple
from cutegen.run.subject import Subject, load_subject, plan_subject
from cutegen.runtime.base import BasePlan, Table
from cutegen.runtime.cache import KernelCache, default_root
from cutegen.runtime.compile import OBJECT, PTX, compile_kernel, find_source, instance_key

if TYPE_CHECKING:
    from cutegen.resolve import Resolution


class Simulation:
    """How launches are run.

    sm_count: SMs that plans find, and how many CTAs are live at once. resident: how many are, if less, because other
    kernels hold SMs. seed: of the order of things. mutate: changes the PTX before it runs. races: look for accesses
    that nothing orders. ready: numbers of the arguments that were written before the kernel in front could start. late:
    of the arguments of a launch, the rows of ready ones that were not, as a mask by number. before: of the arguments of
    a launch, what those held that the kernel in front writes and this one may guess, as tensors by number; late rows
    are NaN then ahead of the wait, instead of an error. apart: every launch starts when the kernel in front has ended,
    whatever it allows. strict: what a warp reads of or writes to tensor memory is on its way until it waits for that.
    besides: tensors that kernels address and no argument has. deadline: of time.monotonic(), when a launch that has not
    ended is given up. machine: the last launch's, to look at afterwards.
    """

    def __init__(
        self,
        sm_count: int = 4,
        seed: int = 0,
        mutate: Callable[[str], str] | None = None,
        races: bool = True,
        ready: Container[int] = (),
        resident: int | None = None,
        late: Callable[..., Mapping[int, Any]] | None = None,
        before: Callable[..., Mapping[int, Any]] | None = None,
        apart: bool = False,
        strict: bool = False,
        besides: tuple[Any, ...] = (),
    ) -> None:
        self.strict, self.besides = strict, besides
        self.notes = False  # for a timeline
        self.deadline: float | None = None
        self.apart = apart
        self.resident, self.late, self.before = resident, late, before
        self.sm_count, self.seed, self.mutate, self.races, self.ready = sm_count, seed, mutate, races, ready
        self.machine: Machine | None = None
        self.assemblers: list[Assembler] = []  # of all kernels that were launched
        self.launches = 0
        self.lacking: list[str] = []  # instructions of the kernels that were loaded which are not simulated

    def load_kernel(self, module: str, tiling: Any, arch: str) -> Callable[..., None]:
        """In place of cutegen.runtime.compile.load_kernel: the kernel, compiled or from the cache, on the machine."""
        path = find_source(module)
        key = instance_key(path.read_text(encoding="utf-8"), module, path, tiling, arch)
        with compile_kernel(KernelCache(default_root()), key, module, tiling, arch) as compiled:
            assert compiled.entry is not None
            return self.bind(compiled.entry.files[PTX].decode(), compiled.entry.files[OBJECT])

    def bind(self, text: str, object_code: bytes) -> Callable[..., None]:
        """A compiled kernel, of its PTX and the object file of its host function, as what launches it here."""
        host = _host(object_code, text)
        if self.mutate:
            text = self.mutate(text)
        for name in entry_names(text):
            self.lacking += Assembler(read_program(text, name), 0).unknown
        assemble = functools.cache(lambda name, shared_bytes: _assembled(text, name, shared_bytes).fresh())

        def launch(*values: Any) -> None:
            tensors = [(i, v) for i, v in enumerate(values) if hasattr(v, "data_ptr") and v.numel()]
            late = self.late(*values) if self.late else {}
            before = self.before(*values) if self.before else {}
            regions = [_region(i, v, i in self.ready, late.get(i), before.get(i)) for i, v in tensors]
            regions += [_region(len(values) + i, v, True) for i, v in enumerate(self.besides)]
            for planned in host(values):
                if self.apart:
                    planned = replace(planned, programmatic=False)
                assembler = assemble(planned.entry, planned.shared_bytes)
                if assembler not in self.assemblers:
                    self.assemblers.append(assembler)
                for region in regions:
                    region.shadow = None  # of each launch its own
                self.machine = Machine(
                    assembler,
                    planned,
                    GlobalMemory(regions),
                    self.seed,
                    self.resident or self.sm_count,
                    self.races,
                    self.deadline,
                    self.strict,
                    self.notes,
                )
                self.launches += 1
                self.machine.run()

        return launch

    def unknown(self) -> list[str]:
        """Instructions of the loaded kernels that are not simulated, reached or not."""
        return self.lacking

    def forms(self) -> set[str]:
        """Forms of Blackwell's instructions that launches executed."""
        return set[str]().union(*map(executed_forms, self.assemblers))

    def unreached(self) -> list[str]:
        """Instructions of the launched kernels that no launch executed."""
        return [
            f"line {instruction.line}: {instruction.text}"
            for assembler in self.assemblers
            for instruction, reached in zip(assembler.program.instructions, assembler.reached)
            if not reached
        ]


class _SimulatedSms(Table):
    """SMs by device, as a plan looks them up: those of the simulation, at any time."""

    def __init__(self, simulation: Simulation) -> None:
        super().__init__(lambda index: simulation.sm_count)

    def __missing__(self, key: Any) -> Any:
        return self.compute(key)


# Tests load one kernel many times; reading an MLA kernel takes longer than running it.
read_program = functools.lru_cache(maxsize=8)(parse)


@functools.lru_cache(maxsize=8)
def _assembled(text: str, name: str, shared_bytes: int) -> Assembler:
    return Assembler(read_program(text, name), shared_bytes)


@functools.lru_cache(maxsize=8)
def _host(object_code: bytes, text: str) -> HostFunction:
    with tempfile.TemporaryDirectory() as folder:
        object_file = Path(folder, OBJECT)
        object_file.write_bytes(object_code)
        programs = {name: read_program(text, name) for name in entry_names(text)}
        return HostFunction(link(object_file, Path(folder)), programs)


def _region(index: int, tensor: Any, ready: bool, late: Any = None, before: Any = None) -> Region:
    """From the first to the last element, gaps between rows included. late: a mask of the rows, each contiguous.
    before: of the same shape and strides."""
    size = tensor.element_size()
    span = sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride())) + 1
    shape = ", ".join(map(str, tensor.shape))
    name = f"argument {index} ({str(tensor.dtype)[6:]}[{shape}])"
    region = Region(name, tensor.data_ptr(), span * size, size, ready)
    if before is not None:
        assert before.stride() == tensor.stride()
        held = region.bytes.copy()
        held[region.low - region.base :][: span * size] = np.frombuffer(
            (ctypes.c_uint8 * (span * size)).from_address(before.data_ptr()), np.uint8
        )
        region.before = {size: held.view(dtype) for size, dtype in WORDS.items()}
    if late is not None:
        region.late = np.zeros(len(region.bytes) // region.unit, bool)
        places = (np.argwhere(late.numpy()) * tensor.stride()[:-1]).sum(1) * size + region.low - region.base
        region.late[places[:, None] // region.unit + np.arange(tensor.shape[-1] * size // region.unit)] = True
    return region


def promise(simulation: Simulation, subject: Subject, ready: Container[str]) -> None:
    """Take the arguments of these names for ready: `pdl.ready` of the package's spec."""
    assert subject.plan is not None
    simulation.ready = [i for i, argument in enumerate(subject.plan.inputs) if argument.name in ready]


def simulate(plan: BasePlan, simulation: Simulation) -> BasePlan:
    """A plan of the same class that takes CPU tensors and launches on the machine, which refuses what a compiled call
    does: strides and addresses, too."""
    copy, module = type(plan)(), sys.modules[type(plan).__module__]
    original = module.load_kernel

    def for_machine(compile_one: Callable[..., Any]) -> Callable[..., Any]:
        def compiled(*key: str) -> Any:
            module.load_kernel = simulation.load_kernel  # type: ignore[attr-defined]
            try:
                return compile_one(*key)
            finally:
                module.load_kernel = original  # type: ignore[attr-defined]

        return compiled

    def refuse(args: Any, values: Any, cause: Exception | None = None, sms: int | None = None) -> None:
        if isinstance(cause, PtxError):  # the launch was accepted and failed: no other strides are tried
            raise cause
        type(plan)._refuse(copy, args, values, cause, sms)

    def make_launch(key: str | None = None) -> Callable[..., None]:
        launch, args = type(plan).make_launch(copy, key), (*copy.inputs, *copy.fresh_outputs)

        def launch_fn(*values: Any, sms: int | None = None) -> None:
            refuse(args, values[: len(args)], sms=sms)
            launch(*values, sms=sms)

        return launch_fn

    for name in dir(type(copy)):
        if name.startswith("compile"):  # `compile`, and what a family compiles besides
            setattr(copy, name, for_machine(getattr(copy, name)))
    copy._refuse = refuse  # type: ignore[method-assign]
    copy.device = "cpu"  # type: ignore[misc]
    copy._sm_counts = _SimulatedSms(simulation)
    copy.make_launch, copy.launch_fn = make_launch, make_launch()  # type: ignore[method-assign]
    return copy


def load(path: Path, simulation: Simulation | None = None) -> Subject:
    """A spec (rendered again, with the lock next to it) or a package directory, on the machine."""
    from cutegen.resolve import resolve_file

    return _load(resolve_file(path), simulation) if path.suffix == ".yaml" else _simulated(path, simulation)


def load_resolution(resolution: Resolution, simulation: Simulation | None = None) -> Subject:
    """What a spec resolved to, on the machine."""
    return _load(resolution, simulation)


def _load(resolution: Resolution, simulation: Simulation | None) -> Subject:
    from cutegen.render import render_package, write_package

    with tempfile.TemporaryDirectory(prefix="ptx-machine-") as folder:
        write_package(render_package(resolution.resolved), Path(folder))
        subject = _simulated(Path(folder) / resolution.resolved.name, simulation)
        assert subject.plan is not None
        subject.plan.warm_up()  # while the sources are there
        return subject


def _simulated(path: Path, simulation: Simulation | None) -> Subject:
    plan = load_subject(path).plan
    if plan is None:
        raise CutegenError(
            f"{path} is no generated package", "pass a spec, or a directory below generated/", exit_code=2
        )
    return plan_subject(simulate(plan, simulation or Simulation()), path)


def run(
    subject: Subject,
    shape: Mapping[str, int],
    *,
    mode: Mode = "numerics",
    tiling: str | None = None,
    draw: Any = None,
    seed: int = 0,
) -> CaseResult:
    """One case as `cutegen check` runs it: poisoned outputs between guard bands, compared with the reference."""
    return run_case(subject, Case("simulated", dict(shape), mode, tiling, draw), seed)


def assert_passes(subject: Subject, shape: Mapping[str, int], **options: Any) -> None:
    result = run(subject, shape, **options)
    assert result.status == "pass", "\n".join(result.detail)
    assert result.errors or options.get("mode") in ("empty", "alone"), "nothing was compared"


def assert_equal_bits(subject: Subject, simulation: Simulation, seeds: int = 3, **dims: int) -> None:
    """The same inputs give the same bits in the orders of events of the first seeds."""
    plan: Any = subject.plan
    inputs = plan.prepare_inputs(**dims)
    first: Any = None
    for simulation.seed in range(seeds):
        found = as_tuple(plan.kernel_fn(*inputs))
        first = first or found
        assert all(bool((bits(a) == bits(b)).all()) for a, b in zip(first, found)), f"seed {simulation.seed} differs"
    assert plan.is_repeatable(next(iter(plan.tilings)))
