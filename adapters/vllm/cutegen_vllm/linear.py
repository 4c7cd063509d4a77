"""An fp8 linear layer of vLLM with scales of blocks, on a plan of cutegen."""

from __future__ import annotations

import os
import warnings
from typing import Any, Protocol

from cutegen.compat.serving import BlockScaledLayer, PlanKernel, find_plan, refuse_layer
from cutegen_vllm.vllm_names import import_names

VARIABLE = "CUTEGEN_VLLM_FP8_BLOCK"  # MODULE:NAME of the plan
LINEAR = "vllm.model_executor.kernels.linear"
# What is used of vLLM, by module: it moves these between releases, and `register` says which one is gone.
USED = {
    LINEAR: ("_POSSIBLE_FP8_BLOCK_KERNELS",),
    f"{LINEAR}.scaled_mm.BlockScaledMMLinearKernel": ("Fp8BlockScaledMMLinearKernel",),
    "vllm.model_executor.layers.quantization.input_quant_fp8": ("QuantFP8",),
    "vllm.platforms": ("current_platform",),
    "vllm.platforms.interface": ("PlatformEnum",),
}


class LayerConfig(Protocol):
    """vLLM's FP8ScaledMMLinearLayerConfig, as far as it is read. weight_shape: (n, k)."""

    weight_quant_key: Any
    activation_quant_key: Any
    weight_shape: tuple[int, int]
    out_dtype: Any


def describe_layer(config: LayerConfig) -> BlockScaledLayer:
    weight, activation = config.weight_quant_key, config.activation_quant_key
    return BlockScaledLayer(
        weight_shape=(int(config.weight_shape[0]), int(config.weight_shape[1])),
        operand_dtype=str(weight.dtype).removeprefix("torch."),
        output_dtype=str(config.out_dtype).removeprefix("torch."),
        activation_group=scale_block(activation),
        weight_group=scale_block(weight),
    )


def scale_block(key: Any) -> tuple[int, int]:
    """(rows, columns) that share a scale; vLLM's -1 is a whole row or column, which no block is."""
    row, col = key.scale.group_shape
    return int(row), int(col)


def make_kernel(plan: Any) -> type[Any]:
    """The class of a plan for vLLM's list of kernels. ImportError: this vLLM has not what is used of it. ValueError:
    another plan has its name as a torch op."""
    used = import_names(USED)
    base, quant, platform = used["Fp8BlockScaledMMLinearKernel"], used["QuantFP8"], used["current_platform"]
    capability = int("".join(c for c in plan.arch if c.isdigit()))
    kernel = PlanKernel(plan)
    run = plan.register_torch_op()  # one node for torch.compile, whichever tiling a call takes

    class CutegenFp8BlockScaledMMKernel(base):  # type: ignore[misc, valid-type]
        contract = kernel

        def __init__(self, config: LayerConfig) -> None:
            super().__init__(config)
            # Scales of activations with m contiguous, padded to 16 bytes: what the kernel's loads take.
            self.quant_fp8 = quant(
                static=False,
                group_shape=config.activation_quant_key.scale.group_shape,
                use_ue8m0=False,
                tma_aligned_scales=True,
                column_major_scales=True,
            )
            kernel.warmup()

        @classmethod
        def is_supported(cls, compute_capability: int | None = None) -> tuple[bool, str | None]:
            if not platform.is_cuda():
                return False, "cutegen's kernels are for CUDA"
            if compute_capability is None:
                found = platform.get_device_capability()
                compute_capability = found.to_int() if found is not None else None
            if compute_capability != capability:
                return False, f"{plan.name} is built for {plan.arch}, and this GPU is sm_{compute_capability}"
            return True, None

        @classmethod
        def can_implement(cls, config: LayerConfig) -> tuple[bool, str | None]:
            can, reason = super().can_implement(config)
            if not can:
                return can, reason
            reason = refuse_layer(plan, describe_layer(config))
            return (False, reason) if reason else (True, None)

        def apply_block_scaled_mm(self, A: Any, B: Any, As: Any, Bs: Any, **_: Any) -> Any:
            return run(A, B, As, Bs)

    return CutegenFp8BlockScaledMMKernel


def register() -> None:
    """Puts the kernel first in vLLM's list of its kind, once. Without the variable, or where this vLLM has not what is
    used of it, nothing is registered; the second is a warning."""
    named = os.environ.get(VARIABLE)
    if not named:
        return
    try:
        made = make_kernel(find_plan(named))
        used = import_names(USED)
    except (ImportError, ValueError) as error:
        warnings.warn(f"cutegen-vllm registers nothing: {error}", RuntimeWarning, stacklevel=2)
        return
    kernels = used["_POSSIBLE_FP8_BLOCK_KERNELS"][used["PlatformEnum"].CUDA]
    if not any(getattr(kernel, "contract", None) for kernel in kernels):
        kernels.insert(0, made)
