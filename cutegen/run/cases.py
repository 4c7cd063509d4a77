"""One case of a check: a problem, and a way of being adversarial about it.

modes: numerics  poisoned outputs and scratch between guard bands, compared with the reference; inputs must come back
                 unchanged, and zero in the scratch that has to be
       strides   the same with outer strides longer than packed, NaN in the gaps of the inputs
       alias     outputs that may lie where an input does lie there
       zeroed    0 for the scalars of tiles that count for nothing then, and NaN in those tiles
       stream    a busy side stream on which the inputs become valid only late
       graph     captured in a CUDA graph, replayed with changed inputs
       repeat    fresh inputs in between, then the first again: bitwise equal results, which stay as they were
       alone     single members of the batch by themselves: the bits that they have in it. Where a plan promises that
                 they depend on nothing else, with every tiling, and in a reversed batch on the fewest SMs as well
       rows      some rows by themselves, with every tiling: the bits that they have among all, with any
       empty     extents of 0: nothing happens, except that an empty contraction is refused
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from cutegen.build.messages import explain
from cutegen.families.registry import load_shrinking
from cutegen.run.case_list import Case
from cutegen.run.guard import Guarded, bits, guarded_like, invalid_copy, poisoned_allocations
from cutegen.run.locate import describe
from cutegen.run.output_check import OutputError, judge, output_name, reference_outputs
from cutegen.run.row_slices import narrowed, row_slices
from cutegen.run.subject import Subject, as_tuple
from cutegen.runtime.arguments import Argument, TensorArg
from cutegen.runtime.four_bits import spread_pairs

Status = Literal["pass", "wrong", "raised", "refused", "hang", "crashed", "skipped"]

# GPU clock cycles that the side stream is kept busy, some 20 ms.
BUSY_CYCLES = 40_000_000


@dataclass(frozen=True, slots=True)
class CaseResult:
    case: Case
    status: Status
    detail: tuple[str, ...] = ()
    errors: tuple[OutputError, ...] = ()
    seconds: float = 0.0


def run_case(subject: Subject, case: Case, seed: int) -> CaseResult:
    """Runs one case here and now; whatever the kernel raises becomes the result."""
    import torch

    start = time.perf_counter()
    torch.manual_seed(seed)
    run = _Run(subject, case)
    try:
        status: Status = getattr(run, case.mode)() or ("wrong" if run.faults else "pass")
    except Exception as error:
        # A plain file may say that it does not take such strides; a plan has promised to.
        refusal = isinstance(error, (TypeError, ValueError, AssertionError, NotImplementedError))
        status = "refused" if refusal and subject.plan is None and case.mode == "strides" else "raised"
        said = f"{type(error).__name__}: {error}"
        run.faults.append(explain(said) or said)
    return CaseResult(case, status, tuple(run.faults), tuple(run.errors), time.perf_counter() - start)


@dataclass
class _Call:
    """A launch: run() returns the results. outputs, scratch: the guarded tensors it writes (none where it allocates
    itself). zeroed: names of the scratch that every launch has to leave zero."""

    run: Callable[[], tuple[Any, ...]]
    outputs: list[Guarded] = field(default_factory=list)
    scratch: dict[str, Guarded] = field(default_factory=dict)
    zeroed: frozenset[str] = frozenset()

    def poison(self) -> None:
        """All but the scratch that every launch has to leave as it was."""
        for buffer in (*self.outputs, *(b for name, b in self.scratch.items() if name not in self.zeroed)):
            buffer.poison()


@dataclass
class _Run:
    subject: Subject
    case: Case
    faults: list[str] = field(default_factory=list)
    errors: list[OutputError] = field(default_factory=list)

    # -- the modes; a returned status replaces the judgement by faults --

    def numerics(self) -> Status | None:
        self._launch_and_judge(self._inputs(), padded=False)
        return None

    def strides(self) -> Status | None:
        inputs = []
        for value in self._inputs():
            if getattr(value, "ndim", 0) >= 2:
                copy = guarded_like(value, padded=True).tensor
                value = copy.copy_(value)
            inputs.append(value)
        self._launch_and_judge(tuple(inputs), padded=True)
        return None

    def alias(self) -> Status | None:
        self._launch_and_judge(self._inputs(), padded=True, shared=True)
        return None

    def zeroed(self) -> Status | None:
        plan, inputs = self.subject.plan, self._inputs()
        assert plan  # its `scaled_tiles` list the case
        scalars = set(plan.scaled_tiles.values())
        values = dict(zip((a.name for a in plan.inputs), inputs))
        for name, value in values.items():
            if hasattr(value, "fill_") and name in scalars | set(plan.scaled_tiles):
                value.fill_(0.0 if name in scalars else float("nan"))
            elif name in scalars:
                values[name] = 0.0
        self._launch_and_judge(tuple(values.values()), padded=False)
        return None

    def stream(self) -> Status | None:
        import torch

        inputs = self._inputs()
        if (reason := _needs_cuda(inputs)) is not None:
            return self._skip(reason)
        late = tuple(invalid_copy(v) for v in inputs)
        call = self._prepare(late, padded=False)
        call.run()  # compiled, caches filled
        torch.cuda.synchronize()
        call.poison()
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            torch.cuda._sleep(BUSY_CYCLES)
            for old, new in zip(late, inputs):
                if isinstance(new, torch.Tensor):
                    old.copy_(new)
            results = call.run()
        stream.synchronize()
        self._judge(inputs, results, call, "on a side stream")
        return None

    def graph(self) -> Status | None:
        import torch

        static = self._inputs()
        if (reason := _needs_cuda(static)) is not None:
            return self._skip(reason)
        call = self._prepare(static, padded=False)
        call.run()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            results = call.run()
        for replay in (1, 2):
            for old, new in zip(static, self._inputs()):
                if isinstance(new, torch.Tensor):
                    old.copy_(new)  # host scalars are part of the graph
            call.poison()
            graph.replay()
            torch.cuda.synchronize()
            self._judge(static, results, call, f"in replay {replay} of the graph")
        return None

    def repeat(self) -> Status | None:
        first, second = self._inputs(), self._inputs()
        once = self._prepare(first, padded=False).run()
        _synchronize(once)
        free = [self._free(i, first) for i in range(len(once))]
        kept = [_promised(r, f) for r, f in zip(once, free)]
        self._launch_and_judge(second, padded=False)
        names = [output_name(self.subject, i) for i in range(len(once))]
        for name, result, before, mask in zip(names, once, kept, free):
            if not bool((_promised(result, mask) == before).all()):
                self.faults.append(f"{name}: a later call changed the result of an earlier one")
        call = self._prepare(first, padded=False)
        again = call.run()
        _synchronize(again)
        self._judge(first, again, call, "in the second run")
        for name, result, before, mask in zip(names, again, kept, free):
            if (n := int((_promised(result, mask) != before).sum())) and self._repeatable():
                self.faults.append(f"{name}: not repeatable: {n} words differ in a second run on the same inputs")
        return None

    def alone(self) -> Status | None:
        plan = self.subject.plan
        assert plan is not None
        inputs = self._inputs()
        call = self._prepare(inputs, padded=False)
        together = call.run()
        _synchronize(together)
        self._judge(inputs, together, call, "")
        members = together[0].shape[plan.outputs[0].dims.index("batch")]
        singles = [(i,) for i in sorted({0, members // 2, members - 1})]
        invariant = getattr(plan, "batch_invariant", False)
        companies: list[tuple[str | None, int | None, tuple[int, ...], str]] = []
        for key in self.subject.tilings if invariant else (self.case.tiling,):
            which = f" with tiling {key}" if invariant else ""
            companies += [(key, None, own, f"it is alone{which}") for own in singles]
            if invariant:
                few, backwards = plan.fewest_sms(str(key), self.case.shape), tuple(reversed(range(members)))
                companies.append((key, few, backwards, f"the batch is in reverse, on {few} SMs{which}"))
        for key, sms, own, when in companies:
            run = replace(self, case=replace(self.case, tiling=key))
            part = tuple(_members(a, v, own) for a, v in zip(plan.inputs, inputs))
            results = run._prepare(part, padded=False, sms=sms).run()
            _synchronize(results)
            for arg, whole, found in zip(plan.outputs, together, results):
                for at, member in enumerate(own):
                    before, now = _members(arg, whole, (member,)), _members(arg, found, (at,))
                    if n := int((bits(before) != bits(now)).sum()):
                        self.faults.append(f"{arg.name}: {n} words of batch member {member} differ when {when}")
        return None

    def rows(self) -> Status | None:
        plan, rows = self.subject.plan, self.subject.roles.m
        assert plan is not None
        inputs, extent = self._inputs(), self.case.shape[rows]
        expected: tuple[Any, ...] = ()
        for key in self.subject.tilings:
            run = replace(self, case=replace(self.case, tiling=key))
            for start, count in row_slices(self.subject, extent):
                part = tuple(narrowed(a, v, rows, start, count) for a, v in zip(plan.inputs, inputs))
                call = run._prepare(part, padded=False)
                results = call.run()
                _synchronize(results)
                if not expected:
                    self._judge(inputs, results, call, "")
                    expected = tuple(r.clone() for r in results)
                for arg, result, whole in zip(plan.outputs, results, expected):
                    same = bits(narrowed(arg, whole, rows, start, count))
                    if rows in arg.dims and (n := int((bits(result) != same).sum())):
                        where = f"rows {start} to {start + count - 1} alone" if count < extent else "all rows"
                        self.faults.append(f"{arg.name}: {n} words differ with tiling {key}, {where}")
        return None

    def empty(self) -> Status | None:
        plan, shape = self.subject.plan, self.case.shape
        assert plan is not None
        inputs = plan.prepare_inputs(**shape)
        reduced = self.subject.roles.k
        to_refuse = bool(reduced) and shape[reduced] == 0
        try:
            plan.launch_fn(*inputs, *plan.allocate_outputs(*inputs), *plan.allocate_scratch(*inputs))
            if to_refuse:
                self.faults.append(f"an empty {reduced} was not refused")
        except ValueError as error:
            if not to_refuse or reduced not in str(error):
                self.faults.append(f"refused: {error}")
        return None

    # -- running and judging --

    def _inputs(self) -> tuple[Any, ...]:
        inputs, plan = self.subject.inputs(self.case.shape, self.case.draw), self.subject.plan
        if plan and self.case.kept_steps is not None:
            inputs = load_shrinking(plan.family).keep_steps(plan, inputs, self._key(), self.case.kept_steps)
        return plan.omit(self.case.tiling, inputs) if plan and self.case.tiling else inputs

    def _launch_and_judge(self, inputs: tuple[Any, ...], *, padded: bool, shared: bool = False) -> None:
        before = [bits(v).clone() if hasattr(v, "stride") else None for v in inputs]
        call = self._prepare(inputs, padded=padded, shared=shared)
        results = call.run()
        _synchronize(results)
        for i, (value, old) in enumerate(zip(inputs, before)):
            if old is not None and not bool((bits(value) == old).all()):
                self.faults.append(f"input {i} was changed")
        self._judge(inputs, results, call, "")

    def _prepare(self, inputs: tuple[Any, ...], *, padded: bool, shared: bool = False, sms: int | None = None) -> _Call:
        launch = self.subject.launcher(self.case.tiling)
        if launch is None:

            def allocating() -> tuple[Any, ...]:
                with poisoned_allocations():
                    return as_tuple(self.subject.kernel_fn(*inputs))

            return _Call(allocating)
        plan = self.subject.plan
        if plan:
            models = plan.order_results(inputs, plan.allocate_outputs(*inputs))
        else:
            models = as_tuple(self.subject.kernel_fn(*inputs))
        outputs = [guarded_like(m, padded=padded) for m in models]
        views = tuple(o.tensor for o in outputs)
        scratch, zeroed = {}, frozenset[str]()
        if plan:
            models = plan.allocate_scratch(*inputs, key=self.case.tiling)
            scratch = {a.name: guarded_like(t, padded=False) for a, t in zip(plan.scratch, models)}
            zeroed = frozenset(a.name for a in plan.scratch if a.zeroed)
        for name in zeroed:
            scratch[name].tensor.zero_()

        values = plan.place_results(inputs, views) if plan else (*inputs, *views)
        if shared:
            assert plan
            values = plan.share_aliases(values)
        updated = [(v, old) for v, old in zip(values, inputs) if v is not old]

        def launching() -> tuple[Any, ...]:
            for value, old in updated:  # what was there before is what an update starts from
                value.copy_(old)
            options = {} if sms is None else {"sms": sms}
            launch(*values, *(b.tensor for b in scratch.values()), **options)
            return views

        return _Call(launching, outputs, scratch, zeroed)

    def _judge(self, inputs: tuple[Any, ...], results: tuple[Any, ...], call: _Call, when: str) -> None:
        expected = reference_outputs(self.subject, inputs)
        suffix = f" {when}" if when else ""
        if len(expected) != len(results):
            self.faults.append(f"returns {len(results)} outputs, the reference {len(expected)}{suffix}")
            return
        for i, (result, reference) in enumerate(zip(results, expected)):
            name = output_name(self.subject, i)
            if result.shape != reference.shape:
                self.faults.append(f"{name}: has shape {tuple(result.shape)}, the reference {tuple(reference.shape)}")
                continue
            error, found = judge(i, result, reference, inputs, self.subject, self.case.shape)
            self.errors.append(error)
            if i < len(call.outputs) and (damage := call.outputs[i].damage()):
                self.faults.append(f"{name}: {damage}{suffix}")
            if i < len(call.outputs) and (count := call.outputs[i].unwritten(self._free(i, inputs))):
                self.faults.append(f"{name}: {count} elements were never written{suffix}")
            if found.mismatches:
                text = describe(self.subject, i, name, found, tuple(spread_pairs(result).shape), self._tiling())
                self.faults.append(f"{text}{suffix}")
        for name, buffer in call.scratch.items():
            if damage := buffer.damage():
                self.faults.append(f"{name}: {damage}{suffix}")
            if name in call.zeroed and (count := int(buffer.tensor.count_nonzero())):
                self.faults.append(f"{name}: {count} elements are not zero after the launch{suffix}")

    def _key(self) -> Any:
        plan = self.subject.plan
        return plan.dispatch(**self.case.shape) if plan and self.case.tiling is None else self.case.tiling

    def _free(self, output: int, inputs: tuple[Any, ...]) -> Any:
        return self.subject.plan.free_elements(output, inputs) if self.subject.plan else None

    def _tiling(self) -> Any:
        return self.subject.tilings[self._key()]

    def _repeatable(self) -> bool:
        plan = self.subject.plan
        return self.subject.deterministic and (plan is None or plan.is_repeatable(self._key()))

    def _skip(self, reason: str) -> Status:
        self.faults.append(reason)
        return "skipped"


def _promised(result: Any, free: Any) -> Any:
    """A copy of the result's bits, those of free elements as zeros."""
    words = bits(result).clone()
    if free is not None:
        words.view(result.numel(), -1)[free.flatten()] = 0
    return words


def _members(arg: Argument, value: Any, chosen: Sequence[int]) -> Any:
    """An argument for these members of the batch, in that order."""
    if not isinstance(arg, TensorArg) or "batch" not in arg.dims or value is None:
        return value
    axis = arg.dims.index("batch")
    if len(chosen) == 1:
        return value.narrow(axis, chosen[0], 1)
    import torch

    return value.index_select(axis, torch.tensor(chosen, device=value.device))


def _needs_cuda(inputs: Sequence[Any]) -> str | None:
    return None if any(getattr(v, "is_cuda", False) for v in inputs) else "the inputs are not on a CUDA device"


def _synchronize(results: Sequence[Any]) -> None:
    import torch

    if any(getattr(r, "is_cuda", False) for r in results):
        torch.cuda.synchronize()
