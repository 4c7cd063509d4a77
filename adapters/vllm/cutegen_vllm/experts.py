"""The experts of a mixture in fp8 with scales of blocks, in vLLM, on two plans of cutegen."""

from __future__ import annotations

import functools
import importlib
import os
import warnings
from collections.abc import Callable
from typing import Any, Protocol

from cutegen.compat.experts import ExpertLayer, ExpertPlans
from cutegen.compat.serving import find_plan
from cutegen_vllm.linear import scale_block
from cutegen_vllm.vllm_names import import_names

VARIABLE = "CUTEGEN_VLLM_FP8_MOE"  # MODULE:NAME,MODULE:NAME of the plans for gate and up, and for down
ORACLE = "vllm.model_executor.layers.fused_moe.oracle.fp8"
MOE = "vllm.model_executor.layers.fused_moe"
# What is used of vLLM, by module: it moves these between releases, and `register` says which one is gone.
USED = {
    ORACLE: ("Fp8MoeBackend", "backend_to_kernel_cls"),
    f"{MOE}.modular_kernel": ("FusedMoEExpertsModular", "FusedMoEActivationFormat"),
    f"{MOE}.topk_weight_and_reduce": ("TopKWeightAndReduceNoOP",),
    "vllm.platforms": ("current_platform",),
}


class MoeConfig(Protocol):
    """vLLM's FusedMoEConfig, as far as it is read."""

    num_local_experts: int
    hidden_dim: int
    intermediate_size_per_partition: int
    activation: Any
    in_dtype: Any


def describe_layer(config: MoeConfig, weight_key: Any, activation_key: Any) -> ExpertLayer:
    return ExpertLayer(
        experts=config.num_local_experts,
        hidden=config.hidden_dim,
        intermediate=config.intermediate_size_per_partition,
        operand_dtype=str(weight_key.dtype).removeprefix("torch."),
        output_dtype=str(config.in_dtype).removeprefix("torch."),
        activation=str(getattr(config.activation, "value", config.activation)),
        activation_scales=scale_block(activation_key),
        weight_scales=scale_block(weight_key),
    )


def make_experts(up: Any, down: Any) -> type[Any]:
    """The class of two plans for vLLM's oracle. ImportError: this vLLM has not what is used of it."""
    used = import_names(USED)
    base, formats, platform = (
        used[name] for name in ("FusedMoEExpertsModular", "FusedMoEActivationFormat", "current_platform")
    )
    plans = ExpertPlans(up, down)
    capability = int("".join(c for c in up.arch if c.isdigit()))

    class CutegenExperts(base):  # type: ignore[misc, valid-type]
        contract = plans

        def __init__(self, moe_config: Any, quant_config: Any) -> None:
            super().__init__(moe_config=moe_config, quant_config=quant_config)
            plans.warm_up()

        @staticmethod
        def is_supported_config(
            cls: Any, moe_config: Any, weight_key: Any, activation_key: Any, activation_format: Any
        ) -> tuple[bool, str | None]:
            can, reason = base.is_supported_config(cls, moe_config, weight_key, activation_key, activation_format)
            if can:
                reason = plans.refuse(describe_layer(moe_config, weight_key, activation_key)) or None
            return reason is None, reason

        @staticmethod
        def activation_format() -> Any:
            return formats.Standard

        @staticmethod
        def _supports_current_device() -> bool:
            found = platform.get_device_capability() if platform.is_cuda() else None
            return found is not None and found.to_int() == capability

        @staticmethod
        def _supports_no_act_and_mul() -> bool:
            return False

        @staticmethod
        def _supports_quant_scheme(weight_key: Any, activation_key: Any) -> bool:
            return weight_key is not None and activation_key is not None  # `refuse` has a reason for the rest

        @staticmethod
        def _supports_activation(activation: Any) -> bool:
            return True

        @staticmethod
        def _supports_parallel_config(moe_parallel_config: Any) -> bool:
            return True

        def finalize_weight_and_reduce_impl(self) -> Any:
            return used["TopKWeightAndReduceNoOP"]()

        def workspace_shapes(self, M: int, N: int, K: int, *_: Any, **__: Any) -> tuple[tuple[int, ...], ...]:
            return (M, K), (1, 1), (M, K)  # its own buffers come from torch

        def apply(
            self,
            output: Any,
            hidden_states: Any,
            w1: Any,
            w2: Any,
            topk_weights: Any,
            topk_ids: Any,
            activation: Any,
            global_num_experts: int,
            expert_map: Any,
            a1q_scale: Any,
            a2_scale: Any,
            workspace13: Any,
            workspace2: Any,
            expert_tokens_meta: Any,
            apply_router_weight_on_input: bool,
        ) -> None:
            import torch

            weights = torch.ones_like(topk_weights) if apply_router_weight_on_input else topk_weights
            scales = self.w1_scale, self.w2_scale
            output.copy_(
                plans.run(hidden_states, a1q_scale, w1, scales[0], w2, scales[1], weights, topk_ids, expert_map)
            )

    return CutegenExperts


def register() -> None:
    """Lets vLLM try the experts before its own of the backend `triton`, whose weights are as a checkpoint has them.
    Without the variable, or where this vLLM has not what is used of it, nothing is registered; the second is a
    warning."""
    named = os.environ.get(VARIABLE)
    if not named:
        return
    try:
        names = named.split(",")
        if len(names) != 2:
            raise ValueError(f"{VARIABLE} names two plans, for gate and up and for down: MODULE:NAME,MODULE:NAME")
        made = make_experts(*map(find_plan, names))
        oracle = importlib.import_module(ORACLE)
    except (ImportError, ValueError) as error:
        warnings.warn(f"cutegen-vllm registers no experts: {error}", RuntimeWarning, stacklevel=2)
        return
    choose: Callable[[Any], list[Any]] = oracle.backend_to_kernel_cls
    if hasattr(choose, "__wrapped__"):
        return

    @functools.wraps(choose)
    def choose_cutegen(backend: Any) -> list[Any]:
        return [made] * (backend == oracle.Fp8MoeBackend.TRITON) + choose(backend)

    oracle.backend_to_kernel_cls = choose_cutegen
