"""The adapters of vLLM and SGLang against stand-ins of what they use of both: names, signatures and layouts as they are
in the sources of November 2026. With the packages installed, their own classes are held to the same."""

from __future__ import annotations

import importlib.util
import inspect
import sys
import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from stand_ins import BLOCK, E4M3, CpuPlan, GroupShape, module, quantise  # noqa: E402

from cutegen.compat.serving import PlanKernel, find_plan, refuse_layer  # noqa: E402

ROOT = Path(__file__).parents[2]


class QuantFP8:
    def __init__(self, static: bool, group_shape: GroupShape, **layout: Any) -> None:
        assert not static
        assert not layout.pop("use_ue8m0")
        self.group, self.layout = group_shape, layout

    def __call__(self, x: Any) -> tuple[Any, Any]:
        assert self.layout == {"tma_aligned_scales": True, "column_major_scales": True}
        return quantise(x, self.group.col, **self.layout)


class Fp8BlockScaledMMLinearKernel:
    """vLLM's, as far as it is used."""

    def __init__(self, config: Any) -> None:
        self.config = config

    @classmethod
    def can_implement(cls, config: Any) -> tuple[bool, str | None]:
        static = config.activation_quant_key.scale.static
        return (not static, "Only dynamic per token group activation quantization is supported." if static else None)

    def apply_weights(self, layer: Any, x: Any, bias: Any = None) -> Any:
        q, scales = self.quant_fp8(x.view(-1, x.shape[-1]))  # type: ignore[attr-defined]
        output = self.apply_block_scaled_mm(A=q, B=layer.weight, As=scales, Bs=layer.weight_scale_inv)  # type: ignore[attr-defined]
        return (output if bias is None else output + bias).view(*x.shape[:-1], -1)


@pytest.fixture
def vllm(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Stand-ins; the adapter's module; and the list that kernels are chosen from."""
    monkeypatch.syspath_prepend(str(ROOT / "adapters" / "vllm"))
    linear = "vllm.model_executor.kernels.linear"
    kernels = {"cuda": [object]}
    module(monkeypatch, "vllm", __path__=[])
    module(monkeypatch, linear, _POSSIBLE_FP8_BLOCK_KERNELS=kernels)
    module(
        monkeypatch,
        f"{linear}.scaled_mm.BlockScaledMMLinearKernel",
        Fp8BlockScaledMMLinearKernel=Fp8BlockScaledMMLinearKernel,
    )
    module(monkeypatch, "vllm.model_executor.layers.quantization.input_quant_fp8", QuantFP8=QuantFP8)
    capability = SimpleNamespace(to_int=lambda: 90)
    platform = SimpleNamespace(is_cuda=lambda: True, get_device_capability=lambda: capability)
    module(monkeypatch, "vllm.platforms", current_platform=platform)
    module(monkeypatch, "vllm.platforms.interface", PlatformEnum=SimpleNamespace(CUDA="cuda"))
    from cutegen_vllm import linear as adapter

    return SimpleNamespace(adapter=adapter, kernels=kernels["cuda"])


def config(**changes: Any) -> Any:
    values = {"shape": (264, 400), "out": torch.bfloat16, "dtype": E4M3, "rows": (1, 128), "block": (128, 128)}
    values |= {"static": False, **changes}

    def key(group: tuple[int, int]) -> Any:
        scale = SimpleNamespace(group_shape=GroupShape(*group), static=values["static"])
        return SimpleNamespace(dtype=values["dtype"], scale=scale)

    return SimpleNamespace(
        weight_quant_key=key(values["block"]),
        activation_quant_key=key(values["rows"]),
        weight_shape=values["shape"],
        input_dtype=torch.bfloat16,
        out_dtype=values["out"],
    )


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({}, None),
        ({"static": True}, "Only dynamic"),
        ({"shape": (260, 400)}, "n is a multiple of 8, and the layer has 260"),
        ({"shape": (264, 392)}, "k is a multiple of 16, and the layer has 392"),
        ({"out": torch.float16}, "stores bfloat16, and the layer wants float16"),
        ({"dtype": torch.int8}, "multiplies float8_e4m3fn, and the layer has int8"),
        ({"block": (1, 128)}, "a scale for 128 x 128 weights, and the layer one for 1 x 128"),
        ({"rows": (1, -1)}, "a scale for 1 x 128 activations, and the layer one for 1 x -1"),
    ],
)
def test_vllm_is_given_the_reason(vllm: Any, changes: dict[str, Any], reason: str | None) -> None:
    can, said = vllm.adapter.make_kernel(CpuPlan()).can_implement(config(**changes))
    assert (can, bool(said)) == (reason is None, reason is not None)
    assert (reason or "") in (said or "")


def test_a_layer_of_vllm(vllm: Any) -> None:
    plan = CpuPlan()
    made = vllm.adapter.make_kernel(plan)
    assert made.is_supported() == made.is_supported(90) == (True, None)
    assert "built for sm_90a, and this GPU is sm_100" in made.is_supported(100)[1]
    kernel = made(config())
    assert set(plan.warm) == set(plan.get_warmup_keys())
    assert plan.on_miss == "error"
    x, w = torch.randn(2, 3, 400, dtype=torch.bfloat16), torch.randn(264, 400)
    layer = SimpleNamespace(weight=w.to(E4M3), weight_scale_inv=torch.rand(3, 4) + 0.5)
    scales = layer.weight_scale_inv.repeat_interleave(128, 0).repeat_interleave(128, 1)[:264, :400]
    expected = x.float() @ (layer.weight.float() * scales).T
    found = kernel.apply_weights(layer, x, bias=torch.ones(264, dtype=torch.bfloat16)) - 1
    assert found.shape == (2, 3, 264)
    assert float((found.float() - expected).norm() / expected.norm()) < 0.05


def test_the_plugin_registers_once_and_says_what_is_gone(vllm: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUTEGEN_VLLM_FP8_BLOCK", raising=False)
    vllm.adapter.register()
    assert vllm.kernels == [object]
    monkeypatch.setattr(vllm.adapter, "find_plan", lambda text: CpuPlan())
    monkeypatch.setenv("CUTEGEN_VLLM_FP8_BLOCK", "any:PLAN")
    vllm.adapter.register()
    vllm.adapter.register()
    assert [kernel.__name__ for kernel in vllm.kernels] == ["CutegenFp8BlockScaledMMKernel", "object"]
    monkeypatch.delattr(sys.modules["vllm.model_executor.kernels.linear"], "_POSSIBLE_FP8_BLOCK_KERNELS")
    with pytest.warns(RuntimeWarning, match="kernels.linear has no _POSSIBLE_FP8_BLOCK_KERNELS"):
        vllm.adapter.register()


def test_a_layer_of_sglang(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "adapters" / "sglang"))
    others: list[Any] = []

    def triton(input: Any, weight: Any, block_size: Any, weight_scale: Any, input_scale: Any, bias: Any) -> Any:
        others.append(tuple(weight.shape))
        return None

    module(monkeypatch, "sglang", __path__=[])
    utils = module(
        monkeypatch,
        "sglang.srt.layers.quantization.fp8_utils",
        dispatch_w8a8_block_fp8_linear=lambda: triton,
        sglang_per_token_group_quant_fp8=lambda x, group, **layout: quantise(x, group, **layout),
    )
    layers = module(
        monkeypatch,
        "sglang.srt.layers.quantization.fp8",
        dispatch_w8a8_block_fp8_linear=utils.dispatch_w8a8_block_fp8_linear,
    )
    from cutegen_sglang import install

    plan = CpuPlan()
    install(plan)
    assert layers.dispatch_w8a8_block_fp8_linear is utils.dispatch_w8a8_block_fp8_linear  # imported by name before
    assert set(plan.warm) == set(plan.get_warmup_keys())
    linear: Any = utils.dispatch_w8a8_block_fp8_linear()
    x, w, scale = torch.randn(5, 400, dtype=torch.bfloat16), torch.randn(264, 400).to(E4M3), torch.rand(3, 4) + 0.5
    found = linear(input=x, weight=w, block_size=[128, 128], weight_scale=scale, input_scale=None, bias=None)
    scales = scale.repeat_interleave(128, 0).repeat_interleave(128, 1)[:264, :400]
    expected = x.float() @ (w.float() * scales).T
    assert float((found.float() - expected).norm() / expected.norm()) < 0.05
    linear(x, w[:260], [128, 128], scale)
    linear(x.to(E4M3), w, [128, 128], scale, torch.ones(5, 4))
    assert others == [(260, 400), (264, 400)]
    (reason,) = linear.refused.values()
    assert "n is a multiple of 8" in reason
    monkeypatch.delattr(utils, "sglang_per_token_group_quant_fp8")
    with pytest.raises(ImportError, match="has no sglang_per_token_group_quant_fp8"):
        install(plan)


def test_the_compile_contract() -> None:
    plan = CpuPlan()
    kernel = PlanKernel(plan)
    keys = kernel.get_warmup_keys()
    assert kernel.dispatch(m=5, n=4096, k=7168) in keys
    kernel.compile(keys[0])
    assert plan.warm == [keys[0].tiling]
    with pytest.raises(ValueError, match=f"is not a key of {BLOCK}"):
        kernel.compile(PlanKernel.CompileKey(BLOCK, "t1x1x1"))
    with pytest.raises((TypeError, ValueError)):
        kernel.dispatch(m=5, n=4096)
    assert set(kernel.workspace_shapes(m=5, n=4096, k=7168)) == {a.name for a in plan.scratch}
    attention = PlanKernel(CpuPlan("mla_decode_bf16_sm90a"))
    assert attention.dispatch(batch=2, query_len=1, heads=16, kv_len=100) in attention.get_warmup_keys()
    assert PlanKernel(CpuPlan("rmsnorm_bf16_sm90a")).workspace_shapes() == {}


def test_other_plans_are_refused_and_plans_are_found_by_name() -> None:
    from cutegen.compat.serving import BlockScaledLayer

    layer = BlockScaledLayer((264, 400), "bfloat16", "bfloat16", (1, 128), (128, 128))
    assert "is not a product of two operands and their scales" in refuse_layer(CpuPlan("gemm_bf16_sm90a"), layer)
    assert find_plan(f"generated.{BLOCK}:PLAN").name == BLOCK
    for text in ("nowhere:PLAN", f"generated.{BLOCK}:NO", ""):
        with pytest.raises(ValueError, match="names no plan"):
            find_plan(text)


@pytest.mark.skipif(importlib.util.find_spec("vllm") is None, reason="vllm is not installed")
def test_vllm_itself_has_what_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "adapters" / "vllm"))
    from cutegen_vllm.linear import USED
    from cutegen_vllm.vllm_names import import_names

    base = import_names(USED)["Fp8BlockScaledMMLinearKernel"]
    assert {"A", "B", "As", "Bs"} <= set(inspect.signature(base.apply_block_scaled_mm).parameters)
    assert {"is_supported", "can_implement"} <= set(dir(base))


@pytest.mark.skipif(importlib.util.find_spec("sglang") is None, reason="sglang is not installed")
def test_sglang_itself_has_what_is_used() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        utils = importlib.import_module("sglang.srt.layers.quantization.fp8_utils")
    parameters = inspect.signature(utils.sglang_per_token_group_quant_fp8).parameters
    assert {"column_major_scales", "scale_tma_aligned"} <= set(parameters)
    assert hasattr(utils, "dispatch_w8a8_block_fp8_linear")
