"""The experts of a mixture on two plans: gate and up with their activation, quantised, then down. Adapters of vLLM and
SGLang (`adapters/`) are made of it.

Rows are laid out by expert as the plans take them (docs/grouped-gemm.md): each expert's begin at a multiple of `align`.
How many rows there are depends on the number of tokens alone, and nothing is read on the host: a CUDA graph may be
replayed with other routing. Importing this module imports neither torch nor cutlass.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from cutegen.compat.serving import PlanKernel
from cutegen.runtime.arguments import complete_dims, divided, step_of

BLOCK = 128  # values of k that share a scale, and rows of a weight that do


@dataclass(frozen=True, slots=True)
class ExpertLayer:
    """hidden, intermediate: of each expert's network. dtypes as torch names them. activation_scales, weight_scales:
    (rows, columns) that share one."""

    experts: int
    hidden: int
    intermediate: int
    operand_dtype: str
    output_dtype: str
    activation: str = "silu"
    activation_scales: tuple[int, int] = (1, BLOCK)
    weight_scales: tuple[int, int] = (BLOCK, BLOCK)


class ExpertRows(NamedTuple):
    """labels: the expert of each row, -1 for padding. sources: the token of each row, any for padding. places: the row
    of each token's choice, as many as there are rows for a choice of no expert here."""

    labels: Any
    sources: Any
    places: Any


def count_rows(choices: int, experts: int, align: int) -> int:
    """Rows that suffice for so many choices of experts, whichever they are."""
    used = min(choices, experts)
    return -(-(choices + used * (align - 1)) // align) * align


def lay_out_rows(ids: Any, experts: int, align: int, expert_map: Any = None) -> ExpertRows:
    """ids: (tokens, choices) of experts; negative: none. expert_map: the number here of each of all experts, -1 for
    those that are elsewhere. No value is read on the host."""
    import torch

    own = ids if expert_map is None else torch.where(ids < 0, -1, expert_map[ids.clamp(min=0).long()])
    bucket = torch.where((own < 0) | (own >= experts), experts, own).reshape(-1).long()
    count, rows = bucket.numel(), count_rows(bucket.numel(), experts, align)
    lengths = torch.zeros(experts + 1, dtype=torch.long, device=ids.device)
    lengths.scatter_add_(0, bucket, torch.ones_like(bucket))
    room = (lengths + align - 1) // align * align
    room[experts:] = 0
    ends, starts = room.cumsum(0), lengths.cumsum(0) - lengths
    order = bucket.argsort(stable=True)
    ordered = bucket[order]
    place = (ends - room)[ordered] + torch.arange(count, device=ids.device) - starts[ordered]
    place = torch.where(ordered < experts, place, rows)
    places = torch.empty_like(bucket).scatter_(0, order, place)
    sources = torch.zeros(rows + 1, dtype=torch.long, device=ids.device)
    sources.scatter_(0, place, order // max(1, ids.shape[1]))
    labels = torch.full((rows + 1,), -1, dtype=torch.int32, device=ids.device)
    labels.scatter_(0, place, ordered.int())
    return ExpertRows(labels[:rows], sources[:rows], places.view(ids.shape))


class ExpertPlans:
    """up, down: plans of grouped products with labels: (a, b, scale of a, scale of b, labels) to quantised values and
    their scales, and to values."""

    def __init__(self, up: Any, down: Any) -> None:
        self.up, self.down = up, down
        self.align: int = getattr(getattr(up, "row_groups", None), "align", BLOCK)
        self._run_up: Any = None
        self._run_down: Any = None

    def warm_up(self) -> None:
        """Compiles all kernels of both, and makes them operators of torch. A miss is an error from then on."""
        for plan in (self.up, self.down):
            PlanKernel(plan).warmup()
        self._run_up, self._run_down = self.up.register_torch_op(), self.down.register_torch_op()

    def refuse(self, layer: ExpertLayer) -> str:
        """Why the plans cannot run a layer; "" where they can."""
        for plan, outputs in ((self.up, 2), (self.down, 1)):
            rows = getattr(plan, "row_groups", None)
            if rows is None or rows.form != "labels" or (len(plan.inputs), len(plan.outputs)) != (5, outputs):
                shown = "quantised values and their scales" if outputs == 2 else "one tensor"
                return (
                    f"{plan.name} is not a grouped product with labels, scales of both operands, and {shown} as output"
                )
            for what, arg, asked in (
                ("activations", plan.inputs[2], layer.activation_scales),
                ("weights", plan.inputs[3], (1, *layer.weight_scales)),
            ):
                block = tuple(divided(dim)[1] for dim in arg.dims)
                if block != asked:
                    have, want = (" x ".join(map(str, shape[-2:])) for shape in (block, asked))
                    return f"{plan.name} has a scale for {have} {what}, and the layer one for {want}"
            if {arg.dtype for arg in plan.inputs[:2]} != {layer.operand_dtype}:
                return f"{plan.name} multiplies {plan.inputs[0].dtype}, and the layer has {layer.operand_dtype}"
        if f"{layer.activation}(" not in " ".join(self.up.epilogue.values()):
            return f"{self.up.name} has another activation than {layer.activation}"
        if self.up.outputs[0].dtype != layer.operand_dtype:
            return f"{self.up.name} stores {self.up.outputs[0].dtype}, and {self.down.name} takes {layer.operand_dtype}"
        if self.down.outputs[0].dtype != layer.output_dtype:
            return f"{self.down.name} stores {self.down.outputs[0].dtype}, and the layer wants {layer.output_dtype}"
        if self.up.row_groups.align != self.down.row_groups.align:
            return f"{self.up.name} and {self.down.name} differ in the alignment of an expert's rows"
        sizes = {"up": (2 * layer.intermediate, layer.hidden), "down": (layer.hidden, layer.intermediate)}
        reasons = (_refuse_size(getattr(self, name), layer.experts, *size) for name, size in sizes.items())
        return next(filter(None, reasons), "")

    def run(
        self,
        x: Any,
        x_scale: Any,
        w13: Any,
        w13_scale: Any,
        w2: Any,
        w2_scale: Any,
        weights: Any,
        ids: Any,
        expert_map: Any = None,
    ) -> Any:
        """(tokens, hidden): the sum of what a token's experts make of it, times their weights, in f32 and then rounded.

        x: (tokens, hidden) quantised; x_scale: (tokens, hidden/128), any strides. w13: (experts, 2 intermediate,
        hidden), gates first; w2: (experts, hidden, intermediate); their scales by blocks. weights: f32 (tokens,
        choices). ids, expert_map: as lay_out_rows has them. RuntimeError: `warm_up` was not called.
        """
        import torch

        if self._run_up is None:
            raise RuntimeError(f"{self.up.name}: call warm_up() before the first layer runs")
        layout = lay_out_rows(ids, w13.shape[0], self.align, expert_map)
        # Not every build of torch takes rows of 8-bit floats.
        rows = x.view(torch.uint8).index_select(0, layout.sources).view(x.dtype)
        scales = x_scale.t().index_select(1, layout.sources).t()  # rows contiguous, as the kernels take them
        hidden, hidden_scale = self._run_up(rows, w13, scales, w13_scale, layout.labels)
        made = self._run_down(hidden, w2, hidden_scale, w2_scale, layout.labels)
        here = layout.places < made.shape[0]
        of_choice = made[torch.where(here, layout.places, 0)].float()  # of no expert: any row, which may hold NaN
        of_choice = torch.where(here[..., None], of_choice * weights[..., None].float(), 0.0)
        return of_choice.sum(1).to(made.dtype)


def _refuse_size(plan: Any, experts: int, n: int, k: int) -> str:
    """n, k: rows and columns of an expert's weights."""
    a, b = plan.inputs[:2]
    sizes: Mapping[str, int] = dict(zip(b.dims, (experts, n, k)))
    for dim, extent in sizes.items():
        if extent % (step := step_of(dim, (*plan.inputs, *plan.outputs))):
            return f"{plan.name}: {dim} is a multiple of {step}, and the layer has {extent}"
    problem = {dim: size for dim, size in sizes.items() if not isinstance(plan.dims[dim], int)}
    try:
        complete_dims(plan.dims, {a.dims[0]: BLOCK, **sizes})
    except (TypeError, ValueError) as error:
        return f"{plan.name}: {error}"
    reason: str = plan.validate(plan.get_warmup_keys()[-1], **{a.dims[0]: BLOCK, **problem})
    return reason
