"""The k blocks of a GEMM, and plainer kernels of a spec: what `check --shrink` goes by."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from cutegen.families.gemm.candidate import FEATURE_KNOBS, NEVER, Candidate, idle_knobs, knobs_of
from cutegen.families.gemm.form_rules import MIN_STAGES
from cutegen.families.gemm.resolved import ResolvedGemm
from cutegen.families.knobs import plain
from cutegen.families.shrinking import NO_OVERLAP, Plainer, Shrinking, keep_first
from cutegen.runtime.arguments import TensorArg, divided
from cutegen.runtime.gemm.plan import KernelPlan

if TYPE_CHECKING:
    from cutegen.families.gemm.spec import GemmSpec

# Knobs around a core that are made plain by themselves, by field; the others are decided once more first.
APART_FROM_CORE = ("scheduler", "promote_every")
# Sections of a spec that say nothing of a kernel, and would of other problems or tilings.
APART = dict.fromkeys(("bench", "check", "tune", "instances", "m"))


class GemmShrinking:
    keeps = True

    def count_steps(self, plan: KernelPlan, dims: Mapping[str, int], key: str) -> int:
        return -(-dims[plan.reduced] // _depth(plan, key))

    def keep_steps(self, plan: KernelPlan, inputs: Sequence[Any], key: str, count: int) -> tuple[Any, ...]:
        """Zeros in both operands, as a kernel may take a block of one for another; scales stay."""
        depth, axes = _depth(plan, key), _contracted(plan)
        return tuple(
            keep_first(v, axes[i][0], count * depth // axes[i][1]) if i in axes else v for i, v in enumerate(inputs)
        )

    def describe_step(self, plan: KernelPlan, dims: Mapping[str, int], key: str, step: int) -> str:
        tiling, depth = plan.tilings[plan.full_key(key)], _depth(plan, key)
        count, last = self.count_steps(plan, dims, key), min(dims[plan.reduced], (step + 1) * depth) - 1
        text = f"k block {step} of {count} ({plan.reduced} {step * depth} to {last})"
        if tiling.split_k == 1:
            return f"{text}, slot {step % tiling.stages} of the ring of {tiling.stages} in the first tile of a CTA"
        part, own = find_part(step, count, tiling.split_k)
        return f"{text}, block {own} of part {part}, of {tiling.split_k}: slot {own % tiling.stages} of the ring"

    def pin(self, spec: GemmSpec, resolved: ResolvedGemm, key: str, dims: Mapping[str, int]) -> Mapping[str, object]:
        candidate = _candidate(resolved, key)
        idle = idle_knobs(resolved.problem, candidate)
        knobs = {k.key: plain(getattr(candidate, k.field)) for k in knobs_of(resolved.problem) if k.field not in idle}
        return {**APART, "portfolio": 1, **knobs}

    def list_plainer(self, spec: GemmSpec, resolved: ResolvedGemm) -> Iterator[Plainer]:
        knobs = knobs_of(resolved.problem)
        keys = {k.field: k.key for k in knobs}
        opened: dict[str, object] = {
            k.key: None for k in knobs if k.part == "around" and k.field not in APART_FROM_CORE
        }
        yield Plainer("other knobs as decided for these", opened)
        yield Plainer("cluster 1x1", {keys["cluster"]: [1, 1], keys["multicast_a"]: None, keys["multicast_b"]: None})
        for one in FEATURE_KNOBS:
            if one.without:
                name, value = one.without
                yield Plainer(name, {keys[one.knob.field]: value})
        yield Plainer("static scheduler", {keys["scheduler"]: "static_persistent"})
        yield Plainer("operands not swapped", {keys["swap_ab"]: False, keys["tile"]: None})
        if resolved.problem.promotable:
            yield Plainer("sums not promoted", {keys["promote_every"]: NEVER})
        yield Plainer("no epilogue", {**_plain_epilogue(spec, resolved), **opened})
        yield Plainer("fewest stages", {keys["stages"]: MIN_STAGES})
        held = {k.key: None for k in knobs if k.part == "apart"}  # what goes with that launch
        yield Plainer(NO_OVERLAP.name, {**held, **NO_OVERLAP.changes})


def find_part(step: int, count: int, parts: int) -> tuple[int, int]:
    """The part that a k block is of, and its number in it: the first parts have one more, where they differ."""
    parts = min(count, parts)
    each, longer = divmod(count, parts)
    first = longer * (each + 1)
    if step < first:
        return divmod(step, each + 1)
    part, own = divmod(step - first, each)
    return longer + part, own


def _depth(plan: KernelPlan, key: str) -> int:
    """Extent of a k block."""
    depth: int = plan.tilings[plan.full_key(key)].tile[2]
    return depth


def _contracted(plan: KernelPlan) -> dict[int, tuple[int, int]]:
    """Of each operand of the product, by its number among the inputs: the axis of k, and the values of k that an
    element holds."""
    found = {}
    for number, argument in enumerate(plan.inputs):
        for axis, dim in enumerate(argument.dims if isinstance(argument, TensorArg) else ()):
            name, part = divided(dim)
            if name == plan.reduced and part <= 2:  # scales of blocks have fewer
                found[number] = axis, part
    return found


def _candidate(resolved: ResolvedGemm, key: str) -> Candidate:
    return next(t.candidate for t in resolved.instances if t.name == key)


def _plain_epilogue(spec: GemmSpec, resolved: ResolvedGemm) -> dict[str, object]:
    """Changes after which the first output is the product, and nothing is read but what the product is of."""
    p = resolved.problem
    output, *others = p.outputs
    read = [o.name for o in p.epilogue.operands if o.name not in (*p.scales, output)]
    gone: dict[str, object] = {f"tensors.{name}": None for name in (*read, *others)}
    left, rows, columns = (p.b, p.n, p.m) if p.transposed else (p.a, p.m, p.n)
    lead = [d.name for d in (spec.tensors[left.name].dims or ())[:-2]]
    declared = f"{spec.tensors[output].dtype}[{', '.join(map(str, [*lead, rows.name, columns.name]))}]"
    return {**gone, f"tensors.{output}": declared, "epilogue": {output: "acc"}, "alias": None}


SHRINKING: Shrinking = GemmShrinking()
