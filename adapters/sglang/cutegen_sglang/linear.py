"""An fp8 linear layer of SGLang with scales of blocks, on a plan of cutegen."""

from __future__ import annotations

import functools
import importlib
import sys
from collections.abc import Sequence
from typing import Any, Protocol

from cutegen.compat.serving import BlockScaledLayer, PlanKernel, refuse_layer

UTILS = "sglang.srt.layers.quantization.fp8_utils"
CHOOSE, QUANTISE = "dispatch_w8a8_block_fp8_linear", "sglang_per_token_group_quant_fp8"


class BlockLinear(Protocol):
    """SGLang's linear function of fp8 weights with scales of blocks. block_size: (n, k) of a weight's block."""

    def __call__(
        self,
        input: Any,
        weight: Any,
        block_size: Sequence[int],
        weight_scale: Any,
        input_scale: Any = None,
        bias: Any = None,
    ) -> Any: ...


class CutegenBlockLinear:
    """Layers that the plan can run; others go to `otherwise`, and `refused` has the reason of each.

    run: the plan's torch op. quantise: of activations, as SGLang's `sglang_per_token_group_quant_fp8`.
    """

    def __init__(self, plan: Any, run: Any, quantise: Any, otherwise: BlockLinear) -> None:
        self.plan, self.run, self.quantise, self.otherwise = plan, run, quantise, otherwise
        self.refused: dict[BlockScaledLayer, str] = {}
        self._reason = functools.cache(self._find_reason)

    def _find_reason(self, layer: BlockScaledLayer) -> str:
        if reason := refuse_layer(self.plan, layer):
            self.refused[layer] = reason
        return reason

    def __call__(
        self,
        input: Any,
        weight: Any,
        block_size: Sequence[int],
        weight_scale: Any,
        input_scale: Any = None,
        bias: Any = None,
    ) -> Any:
        layer = BlockScaledLayer(
            (weight.shape[0], weight.shape[1]),
            str(weight.dtype).removeprefix("torch."),
            str(input.dtype).removeprefix("torch."),
            (1, block_size[1]),
            (block_size[0], block_size[1]),
        )
        # Activations that are quantised already say nothing of the output's dtype, and hold padded rows.
        if input_scale is not None or self._reason(layer):
            return self.otherwise(input, weight, block_size, weight_scale, input_scale, bias)
        rows = input.view(-1, input.shape[-1])
        quantised, scales = self.quantise(rows, block_size[1], column_major_scales=True, scale_tma_aligned=True)
        output = self.run(quantised, weight, scales, weight_scale)
        if bias is not None:
            output += bias
        return output.view(*input.shape[:-1], weight.shape[0])


def install(plan: Any) -> None:
    """Compiles all kernels of the plan, and puts them before what SGLang chooses. ImportError: this SGLang has not
    what is used of it. ValueError: another plan has its name as a torch op."""
    utils = importlib.import_module(UTILS)
    if missing := [name for name in (CHOOSE, QUANTISE) if not hasattr(utils, name)]:
        raise ImportError(f"{UTILS} has no {' and no '.join(missing)}")
    choose, quantise = getattr(utils, CHOOSE), getattr(utils, QUANTISE)
    PlanKernel(plan).warmup()
    run = plan.register_torch_op()

    @functools.wraps(choose)
    def choose_cutegen(*arguments: Any, **named: Any) -> BlockLinear:
        return CutegenBlockLinear(plan, run, quantise, choose(*arguments, **named))

    # Modules that import the function by name have it under that name, as that of fp8 layers does.
    for name, held in list(sys.modules.items()):
        if name.partition(".")[0] == "sglang" and getattr(held, CHOOSE, None) is choose:
            setattr(held, CHOOSE, choose_cutegen)
