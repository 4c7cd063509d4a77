"""The experts of a mixture in fp8 with scales of blocks, in SGLang, on two plans of cutegen."""

from __future__ import annotations

import functools
import importlib
from typing import Any, Protocol

from cutegen.compat.experts import ExpertLayer, ExpertPlans
from cutegen_sglang.linear import QUANTISE, UTILS

BASE = "sglang.srt.layers.moe.moe_runner.base"
DISPATCHER = "sglang.srt.layers.moe.token_dispatcher"
PLACE = ("none", "triton")  # of SGLang's fused functions: experts of all ranks here, weights as a checkpoint has them


class QuantInfo(Protocol):
    """SGLang's TritonMoeQuantInfo, as far as it is read."""

    w13_weight: Any
    w2_weight: Any
    w13_scale: Any
    w2_scale: Any
    use_fp8_w8a8: bool
    block_shape: Any
    b13: Any
    b2: Any


class RunnerConfig(Protocol):
    """SGLang's MoeRunnerConfig, as far as it is read."""

    activation: str
    is_gated: bool
    apply_router_weight_on_input: bool
    no_combine: bool
    routed_scaling_factor: float | None
    gemm1_alpha: float | None


class CutegenExperts:
    """Layers that the plans can run; others go to `otherwise`, and `refused` has the reason of each.

    quantise: of activations, as SGLang's `sglang_per_token_group_quant_fp8`. combine: makes what is returned.
    """

    def __init__(self, plans: ExpertPlans, quantise: Any, combine: Any, otherwise: Any) -> None:
        self.plans, self.quantise, self.combine, self.otherwise = plans, quantise, combine, otherwise
        self.refused: dict[ExpertLayer, str] = {}
        self._reason = functools.cache(self._find_reason)

    def _find_reason(self, layer: ExpertLayer) -> str:
        if reason := self.plans.refuse(layer):
            self.refused[layer] = reason
        return reason

    def __call__(self, dispatch_output: Any, quant_info: QuantInfo, runner_config: RunnerConfig) -> Any:
        if not self._is_for_us(dispatch_output, quant_info, runner_config):
            return self.otherwise(dispatch_output, quant_info, runner_config)
        x, chosen = dispatch_output.hidden_states, dispatch_output.topk_output
        quantised, scales = self.quantise(
            x, quant_info.block_shape[1], column_major_scales=True, scale_tma_aligned=True
        )
        weights = chosen.topk_weights
        if runner_config.routed_scaling_factor is not None:
            weights = weights * runner_config.routed_scaling_factor
        output = self.plans.run(
            quantised, scales, quant_info.w13_weight, quant_info.w13_scale, quant_info.w2_weight,
            quant_info.w2_scale, weights, chosen.topk_ids,
        )  # fmt: skip
        return self.combine(hidden_states=output)

    def _is_for_us(self, dispatch_output: Any, info: QuantInfo, config: RunnerConfig) -> bool:
        ours = info.use_fp8_w8a8 and info.block_shape and info.b13 is None and info.b2 is None and config.is_gated
        theirs = config.apply_router_weight_on_input or config.no_combine or config.gemm1_alpha is not None
        if not ours or theirs or not hasattr(dispatch_output.topk_output, "topk_ids"):
            return False
        rows, columns = info.block_shape
        layer = ExpertLayer(
            experts=info.w2_weight.shape[0],
            hidden=info.w2_weight.shape[1],
            intermediate=info.w2_weight.shape[2],
            operand_dtype=str(info.w2_weight.dtype).removeprefix("torch."),
            output_dtype=str(dispatch_output.hidden_states.dtype).removeprefix("torch."),
            activation=config.activation,
            activation_scales=(1, columns),
            weight_scales=(rows, columns),
        )
        return not self._reason(layer)


def install_experts(up: Any, down: Any) -> None:
    """Compiles all kernels of the plans, and puts them before SGLang's own experts. ImportError: this SGLang has not
    what is used of it. ValueError: another plan has the name of one as a torch op."""
    utils, base, dispatcher = map(importlib.import_module, (UTILS, BASE, DISPATCHER))
    for module, name in ((utils, QUANTISE), (base, "FusedOpPool"), (dispatcher, "StandardCombineInput")):
        if not hasattr(module, name):
            raise ImportError(f"{module.__name__} has no {name}")
    functions = getattr(base.FusedOpPool, "_fused_funcs", {})
    if PLACE not in functions:
        raise ImportError(f"{BASE}.FusedOpPool has no function for {PLACE}: import SGLang's runner before")
    plans = ExpertPlans(up, down)
    plans.warm_up()
    functions[PLACE] = CutegenExperts(
        plans, getattr(utils, QUANTISE), dispatcher.StandardCombineInput, functions[PLACE]
    )
