"""The experts of a mixture by vLLM's and SGLang's interfaces, against stand-ins of what the adapters use of both: names
and signatures as in their sources of November 2026. Kernels run as their references do."""

from __future__ import annotations

import enum
import importlib
import importlib.util
import inspect
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from stand_ins import E4M3, CpuPlan, GroupShape, module, quantise  # noqa: E402

from cutegen.compat.experts import ExpertLayer, ExpertPlans, count_rows, lay_out_rows  # noqa: E402

ROOT = Path(__file__).parents[2]
UP, DOWN = "grouped_gemm_e4m3_block128_swiglu_quant_sm90a", "grouped_gemm_e4m3_block128_sm90a"
LAYER = ExpertLayer(4, 256, 128, "float8_e4m3fn", "bfloat16")


def plans() -> ExpertPlans:
    return ExpertPlans(CpuPlan(UP), CpuPlan(DOWN))


def test_rows_are_laid_out_by_expert() -> None:
    ids = torch.tensor([[3, 0], [3, -1], [1, 3], [0, 7]])  # no choice, and an expert that is not here
    layout = lay_out_rows(ids, 4, 4)
    assert count_rows(8, 4, 4) == len(layout.labels) == len(layout.sources) == 20
    assert layout.labels.tolist() == [0, 0, -1, -1, 1, -1, -1, -1, 3, 3, 3, -1, *[-1] * 8]
    rows = len(layout.labels)
    assert layout.places.tolist() == [[8, 0], [9, rows], [4, 10], [1, rows]]
    kept = layout.places[layout.places < rows]
    assert layout.sources[kept].tolist() == [0, 0, 1, 2, 2, 3]
    mapped = lay_out_rows(torch.tensor([[9, 2], [2, -1]]), 1, 4, torch.tensor([-1, -1, 0, *[-1] * 7]))
    assert mapped.labels.tolist()[:4] == [0, 0, -1, -1]
    assert mapped.places.tolist() == [[8, 0], [1, 8]]
    assert count_rows(8, 256, 128) == 8 * 128  # and not a block for each of 256 experts
    assert lay_out_rows(torch.empty(0, 2, dtype=torch.long), 4, 4).places.shape == (0, 2)


@pytest.mark.parametrize("seed", range(3))
def test_layouts_are_permutations(seed: int) -> None:
    torch.manual_seed(seed)
    experts, tokens, align = 6, 37, 8
    ids = torch.rand(tokens, experts + 2).argsort(1)[:, :3] - 1  # -1: none; 6: elsewhere
    layout = lay_out_rows(ids, experts, align)
    here = (ids >= 0) & (ids < experts)
    places = layout.places[here]
    assert len(set(places.tolist())) == len(places)
    assert torch.equal(layout.labels[places].long(), ids[here])
    assert torch.equal(layout.sources[places], torch.arange(tokens)[:, None].expand_as(ids)[here])
    assert int((layout.labels >= 0).sum()) == len(places)
    for block in layout.labels.view(-1, align):
        assert len(set(block.tolist()) - {-1}) <= 1
        assert block[0] >= 0 or not (block >= 0).any()  # a tile takes its expert from its first row


def problem(tokens: int = 5, choices: int = 2) -> SimpleNamespace:
    torch.manual_seed(0)
    p = SimpleNamespace(x=torch.randn(tokens, LAYER.hidden, dtype=torch.bfloat16))
    p.w13 = torch.randn(LAYER.experts, 2 * LAYER.intermediate, LAYER.hidden).to(E4M3)
    p.w2 = torch.randn(LAYER.experts, LAYER.hidden, LAYER.intermediate).to(E4M3)
    p.s13, p.s2 = torch.rand(LAYER.experts, 2, 2) + 0.5, torch.rand(LAYER.experts, 2, 1) + 0.5
    p.ids = torch.rand(tokens, LAYER.experts).argsort(1)[:, :choices].int()
    p.weights = torch.rand(tokens, choices)
    return p


def expected(p: Any, absent: int | None = None) -> Any:
    """In f32, of unquantised activations."""

    def spread(weight: Any, scales: Any) -> Any:
        return weight.float() * scales.repeat_interleave(128, 1).repeat_interleave(128, 2)

    w13, w2, total = spread(p.w13, p.s13), spread(p.w2, p.s2), torch.zeros(*p.x.shape)
    for token, (ids, weights) in enumerate(zip(p.ids.tolist(), p.weights.tolist())):
        for expert, weight in zip(ids, weights):
            if expert != absent:
                gate, up = (p.x[token].float() @ w13[expert].T).chunk(2)
                total[token] += weight * ((torch.nn.functional.silu(gate) * up) @ w2[expert].T)
    return total


def close(found: Any, wanted: Any) -> bool:
    return float((found.float() - wanted).norm() / wanted.norm()) < 0.06


def test_two_plans_are_a_layer() -> None:
    p, experts = problem(), plans()
    quantised, scale = quantise(p.x, 128, column_major_scales=True)
    with pytest.raises(RuntimeError, match="call warm_up"):
        experts.run(quantised, scale, p.w13, p.s13, p.w2, p.s2, p.weights, p.ids)
    experts.warm_up()
    for plan in (experts.up, experts.down):
        assert (set(plan.warm), plan.on_miss) == (set(plan.get_warmup_keys()), "error")
    found = experts.run(quantised, scale, p.w13, p.s13, p.w2, p.s2, p.weights, p.ids)
    assert (found.dtype, found.shape) == (torch.bfloat16, (5, 256))
    assert close(found, expected(p))
    # Experts of two ranks: what is elsewhere adds nothing here, and rows of no expert may hold NaN.
    expert_map = torch.tensor([0, 1, -1, 2])
    own = [p.w13[[0, 1, 3]], p.s13[[0, 1, 3]], p.w2[[0, 1, 3]], p.s2[[0, 1, 3]]]
    found = experts.run(quantised, scale.contiguous(), *own, p.weights, p.ids, expert_map)
    assert close(found, expected(p, absent=2))


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({}, ""),
        ({"intermediate": 192}, "n is a multiple of 256, and the layer has 384"),
        ({"hidden": 200}, "k is a multiple of 16, and the layer has 200"),
        ({"experts": 2000}, "g"),
        ({"activation": "gelu"}, "has another activation than gelu"),
        ({"output_dtype": "float16"}, "stores bfloat16, and the layer wants float16"),
        ({"operand_dtype": "bfloat16"}, "multiplies float8_e4m3fn, and the layer has bfloat16"),
        ({"weight_scales": (64, 128)}, "a scale for 128 x 128 weights, and the layer one for 64 x 128"),
        ({"activation_scales": (1, -1)}, "a scale for 1 x 128 activations, and the layer one for 1 x -1"),
    ],
)
def test_layers_are_refused_with_a_reason(changes: dict[str, Any], reason: str) -> None:
    from dataclasses import replace

    said = plans().refuse(replace(LAYER, **changes))
    assert bool(said) == bool(reason)
    assert reason in said


def test_other_plans_are_refused() -> None:
    assert "with labels, scales of both operands" in ExpertPlans(CpuPlan(DOWN), CpuPlan(DOWN)).refuse(LAYER)
    dense = ExpertPlans(CpuPlan(UP), CpuPlan("gemm_e4m3_block128_sm90a"))
    assert "gemm_e4m3_block128_sm90a is not a grouped product with labels" in dense.refuse(LAYER)
    counts = ExpertPlans(CpuPlan(UP), CpuPlan("grouped_gemm_e4m3_block128_counts_sm90a"))
    assert "is not a grouped product with labels" in counts.refuse(LAYER)


class Backend(enum.Enum):
    TRITON = "TRITON"
    DEEPGEMM = "DEEPGEMM"


class FusedMoEExpertsModular:
    """vLLM's, as far as it is used."""

    def __init__(self, moe_config: Any, quant_config: Any) -> None:
        self.w1_scale, self.w2_scale = quant_config.w1_scale, quant_config.w2_scale

    @staticmethod
    def is_supported_config(cls: Any, config: Any, weight: Any, activation: Any, form: Any) -> tuple[bool, str | None]:
        if not cls._supports_current_device():
            return False, "kernel does not support current device"
        if not (config.is_act_and_mul or cls._supports_no_act_and_mul()):
            return False, "kernel does not support no act_and_mul MLP layer"
        asked = (cls._supports_activation(config.activation), cls._supports_quant_scheme(weight, activation))
        if not (all(asked) and cls._supports_parallel_config(None)):
            return False, "kernel does not support it"
        return (True, None) if form == cls.activation_format() else (False, f"kernel does not support {form}")


@pytest.fixture
def vllm(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(ROOT / "adapters" / "vllm"))
    moe = "vllm.model_executor.layers.fused_moe"
    module(monkeypatch, "vllm", __path__=[])
    oracle = module(
        monkeypatch, f"{moe}.oracle.fp8", Fp8MoeBackend=Backend, backend_to_kernel_cls=lambda backend: [backend]
    )
    formats = SimpleNamespace(Standard="standard")
    module(
        monkeypatch,
        f"{moe}.modular_kernel",
        FusedMoEExpertsModular=FusedMoEExpertsModular,
        FusedMoEActivationFormat=formats,
    )
    module(monkeypatch, f"{moe}.topk_weight_and_reduce", TopKWeightAndReduceNoOP=type("NoOP", (), {}))
    capability = SimpleNamespace(to_int=lambda: 90)
    platform = SimpleNamespace(is_cuda=lambda: True, get_device_capability=lambda: capability)
    module(monkeypatch, "vllm.platforms", current_platform=platform)
    from cutegen_vllm import experts as adapter

    return SimpleNamespace(adapter=adapter, oracle=oracle, capability=capability)


def vllm_config(**changes: Any) -> SimpleNamespace:
    values = {
        "num_local_experts": LAYER.experts, "hidden_dim": LAYER.hidden, "is_act_and_mul": True,
        "intermediate_size_per_partition": LAYER.intermediate, "activation": SimpleNamespace(value="silu"),
        "in_dtype": torch.bfloat16,
    }  # fmt: skip
    return SimpleNamespace(**values | changes)


def key(*shape: int) -> Any:
    return SimpleNamespace(dtype=E4M3, scale=SimpleNamespace(group_shape=GroupShape(*shape), static=False))


def test_experts_of_vllm(vllm: Any) -> None:
    made = vllm.adapter.make_experts(CpuPlan(UP), CpuPlan(DOWN))
    asked = (made, vllm_config(), key(128, 128), key(1, 128), "standard")
    assert made.is_supported_config(*asked) == (True, None)
    for config, said in (
        (vllm_config(intermediate_size_per_partition=192), "n is a multiple of 256"),
        (vllm_config(activation="gelu"), "another activation than gelu"),
        (vllm_config(is_act_and_mul=False), "no act_and_mul"),
    ):
        can, reason = made.is_supported_config(made, config, *asked[2:])
        assert (can, said in reason) == (False, True)
    assert made.is_supported_config(*asked[:4], "batched")[0] is False
    vllm.capability.to_int = lambda: 100
    assert "current device" in made.is_supported_config(*asked)[1]
    p = problem()
    experts = made(vllm_config(), SimpleNamespace(w1_scale=p.s13, w2_scale=p.s2))
    assert set(made.contract.up.warm) == set(made.contract.up.get_warmup_keys())
    assert type(experts.finalize_weight_and_reduce_impl()).__name__ == "NoOP"
    *_, shape = experts.workspace_shapes(5, 256, 256, 2, 4, 4, None, "silu")
    quantised, scale = quantise(p.x, 128, column_major_scales=True)
    for weighted in (False, True):
        output = torch.empty(shape, dtype=torch.bfloat16)
        experts.apply(
            output=output, hidden_states=quantised, w1=p.w13, w2=p.w2, topk_weights=p.weights, topk_ids=p.ids,
            activation="silu", global_num_experts=-1, expert_map=None, a1q_scale=scale, a2_scale=None,
            workspace13=None, workspace2=None, expert_tokens_meta=None, apply_router_weight_on_input=weighted,
        )  # fmt: skip
        ones = SimpleNamespace(**vars(p) | {"weights": torch.ones_like(p.weights)})
        assert close(output, expected(ones if weighted else p))


def test_vllm_tries_them_first_where_weights_are_plain(vllm: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    choose = vllm.oracle.backend_to_kernel_cls
    vllm.adapter.register()
    assert vllm.oracle.backend_to_kernel_cls is choose  # the variable is not set
    monkeypatch.setenv("CUTEGEN_VLLM_FP8_MOE", "one:PLAN")
    with pytest.warns(RuntimeWarning, match="names two plans, for gate and up and for down"):
        vllm.adapter.register()
    monkeypatch.setenv("CUTEGEN_VLLM_FP8_MOE", f"{UP},{DOWN}")
    monkeypatch.setattr(vllm.adapter, "find_plan", CpuPlan)
    vllm.adapter.register()
    vllm.adapter.register()
    first, *others = vllm.oracle.backend_to_kernel_cls(Backend.TRITON)
    assert (first.__name__, others) == ("CutegenExperts", [Backend.TRITON])
    assert vllm.oracle.backend_to_kernel_cls(Backend.DEEPGEMM) == [Backend.DEEPGEMM]
    monkeypatch.delattr(vllm.oracle, "Fp8MoeBackend")
    with pytest.warns(RuntimeWarning, match=r"oracle\.fp8 has no Fp8MoeBackend"):
        vllm.adapter.register()


@pytest.fixture
def sglang(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(ROOT / "adapters" / "sglang"))
    module(monkeypatch, "sglang", __path__=[])
    name = "sglang.srt.layers.quantization.fp8_utils"
    utils = module(monkeypatch, name, sglang_per_token_group_quant_fp8=quantise)
    pool = type("FusedOpPool", (), {"_fused_funcs": {("none", "triton"): lambda *arguments: arguments}})
    base = module(monkeypatch, "sglang.srt.layers.moe.moe_runner.base", FusedOpPool=pool)
    module(monkeypatch, "sglang.srt.layers.moe.token_dispatcher", StandardCombineInput=SimpleNamespace)
    from cutegen_sglang import experts as adapter

    return SimpleNamespace(adapter=adapter, pool=pool._fused_funcs, base=base, utils=utils)


def test_experts_of_sglang(sglang: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    sglang.adapter.install_experts(CpuPlan(UP), CpuPlan(DOWN))
    run, p = sglang.pool["none", "triton"], problem()
    chosen = SimpleNamespace(topk_weights=p.weights, topk_ids=p.ids)
    dispatched = SimpleNamespace(hidden_states=p.x, topk_output=chosen)
    info = SimpleNamespace(
        w13_weight=p.w13, w2_weight=p.w2, w13_scale=p.s13, w2_scale=p.s2, use_fp8_w8a8=True, block_shape=[128, 128],
        b13=None, b2=None,
    )  # fmt: skip
    config = SimpleNamespace(
        activation="silu", is_gated=True, apply_router_weight_on_input=False, no_combine=False,
        routed_scaling_factor=2.5, gemm1_alpha=None,
    )  # fmt: skip
    assert close(run(dispatched, info, config).hidden_states, 2.5 * expected(p))
    config.routed_scaling_factor = None
    assert close(run(dispatched, info, config).hidden_states, expected(p))
    assert run.refused == {}
    for changed, to in (("activation", "gelu"), ("no_combine", True), ("apply_router_weight_on_input", True)):
        other = SimpleNamespace(**vars(config) | {changed: to})
        assert run(dispatched, info, other) == (dispatched, info, other)
    (reason,) = run.refused.values()
    assert "another activation than gelu" in reason
    plain = SimpleNamespace(**vars(info) | {"use_fp8_w8a8": False})
    assert run(dispatched, plain, config) == (dispatched, plain, config)
    sglang.pool.clear()
    with pytest.raises(ImportError, match="has no function for"):
        sglang.adapter.install_experts(CpuPlan(UP), CpuPlan(DOWN))
    monkeypatch.delattr(sglang.base, "FusedOpPool")
    with pytest.raises(ImportError, match="has no FusedOpPool"):
        sglang.adapter.install_experts(CpuPlan(UP), CpuPlan(DOWN))


@pytest.mark.skipif(importlib.util.find_spec("vllm") is None, reason="vllm is not installed")
def test_vllm_itself_has_what_experts_use(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "adapters" / "vllm"))
    from cutegen_vllm.experts import USED
    from cutegen_vllm.vllm_names import import_names

    base = import_names(USED)["FusedMoEExpertsModular"]
    assert {"output", "hidden_states", "topk_ids", "expert_map", "a1q_scale"} <= set(
        inspect.signature(base.apply).parameters
    )
    assert {"cls", "weight_key", "activation_key"} <= set(inspect.signature(base.is_supported_config).parameters)


@pytest.mark.skipif(importlib.util.find_spec("sglang") is None, reason="sglang is not installed")
def test_sglang_itself_has_what_experts_use() -> None:
    from cutegen_sglang.experts import BASE, PLACE  # type: ignore[import-not-found]

    importlib.import_module("sglang.srt.layers.moe.moe_runner.runner")
    assert PLACE in importlib.import_module(BASE).FusedOpPool._fused_funcs
