"""What row kernels are measured against: the function that a plan computes is found, and libraries that have it are
called as they want to be. They are imitated on the CPU, with the signatures of their releases."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, get_args, get_type_hints

import pytest

torch = pytest.importorskip("torch")

from torch.nn import functional as F  # noqa: E402

import cutegen  # noqa: E402
from cutegen.families.rowwise.proving import PROVING  # noqa: E402
from cutegen.families.rowwise.spec import RowBench  # noqa: E402
from cutegen.run.row import refuse  # noqa: E402
from cutegen.run.subject import load_subject, plan_subject  # noqa: E402
from cutegen.run.suite import load_suite  # noqa: E402
from cutegen.runtime.rowwise import row_functions as functions  # noqa: E402
from cutegen.runtime.rowwise.row_functions import find_function  # noqa: E402
from cutegen.runtime.rowwise.row_libraries import FLASHINFER, LIGER, QUACK, SGL  # noqa: E402

ROOT = Path(__file__).parents[2]
HEAD = "cutegen: 1\nkernel: rowwise\narch: sm_90a\n"
SHIPPED = {
    "rmsnorm_bf16_sm90a": ("rms_norm", 1e-6, "x w", "y"),
    "gemma_rmsnorm_bf16_sm90a": ("gemma_norm", 1e-6, "x w", "y"),
    "layernorm_bf16_sm90a": ("layer_norm", 1e-5, "x w b", "y"),
    "softmax_bf16_sm90a": ("softmax", 1e-6, "x", "y"),
    "cross_entropy_bf16_sm90a": ("cross_entropy", 1e-6, "x label", "lse loss"),
    "rmsnorm_backward_bf16_sm90a": ("rms_norm_backward", 1e-6, "x w dy", "dx dw"),
    "layernorm_backward_bf16_sm90a": ("layer_norm_backward", 1e-5, "x w dy", "dx dw db"),
    "cross_entropy_backward_bf16_sm90a": ("cross_entropy_backward", 1e-6, "x label lse dloss", "dx"),
    "silu_mul_bf16_sm90a": ("silu_mul", 1e-6, "x g", "y"),
    "geglu_bf16_sm90a": ("gelu_mul", 1e-6, "x g", "y"),
    "add_rmsnorm_quant_block128_sm90a": ("add_norm_quantise_blocks", 1e-6, "x residual w", "h q scale"),
    "add_rmsnorm_quant_e4m3_sm90a": ("add_norm_quantise_rows", 1e-6, "x residual w", "h q scale"),
    "silu_mul_quant_block128_sm90a": ("silu_mul_quantise_blocks", 1e-6, "x g", "q scale"),
}
PLAIN = "dims: {n: [16, 4096]}\ntensors: {x: 'bf16[m, n]', "
QUANTISED = "q: 'e4m3[m, n]', scale: 'f32[m, ceil(n/128)]'}\nrows:\n  "
OTHERS = {
    "add_norm": PLAIN
    + "r: 'bf16[m, n]', w: 'f32[n]', h: 'bf16[m, n]', y: 'bf16[m, n]'}\nrows:\n"
    + "  h: x + r\n  y: w * h / sqrt(mean(h * h, n) + 1e-5)\n",
    "quantise_blocks": PLAIN + QUANTISED + "scale: max(max_abs(x, n, 128), 1e-4) / 448\n  q: x / scale\n",
    "quantise_rows": PLAIN
    + "q: 'e4m3[m, n]', scale: 'f32[m]'}\nrows:\n  scale: max(max_abs(x, n), 1e-4) / 448\n  q: x / scale\n",
    "norm_quantise_blocks": PLAIN
    + "w: 'bf16[n]', "
    + QUANTISED
    + "y: x * rsqrt(mean(square(x), n) + 1e-5) * w\n  scale: max(max_abs(y, n, 128), 1e-4) / 448\n  q: y / scale\n",
    "silu_mul": "tensors: {up: 'f16[m, n]', gate: 'f16[m, n]', y: 'f16[m, n]'}\nrows: {y: 'up * silu(gate)'}\n",
}


def plan_of(name: str) -> Any:
    if name in SHIPPED:
        return load_subject(ROOT / "generated" / name).plan
    return cutegen.Spec.from_text(HEAD + OTHERS[name], name).load()


@pytest.mark.parametrize("name", SHIPPED)
def test_functions_of_shipped_specs(name: str) -> None:
    function, epsilon, inputs, outputs = SHIPPED[name]
    found = find_function(plan_of(name))
    assert found
    assert (found.function, found.epsilon) == (function, epsilon)
    assert (found.inputs, found.outputs) == (tuple(inputs.split()), tuple(outputs.split()))


@pytest.mark.parametrize("name", OTHERS)
def test_a_function_is_found_whatever_it_is_written_like(name: str) -> None:
    found = find_function(plan_of(name))
    assert found
    assert found.function == name
    if name == "silu_mul":
        assert found.inputs == ("g", "x")
    if name == "add_norm":
        assert found.epsilon == 1e-5


def test_every_function_is_that_of_some_spec_here() -> None:
    assert {name for name, *_ in SHIPPED.values()} | set(OTHERS) == functions.FUNCTIONS.keys()


@pytest.mark.parametrize(
    "text",
    [
        "{x: 'bf16[m, n]', w: 'bf16[n]', y: 'bf16[m, n]'}\nrows: {y: 'x * rsqrt(mean(square(x), n) + 1e-3) * w'}\n",
        "{x: 'bf16[m, n]', g: 'bf16[m, n]', y: 'bf16[m, n]'}\nrows: {y: 'silu(x) + g'}\n",
        "{x: 'bf16[m, n]', g: 'bf16[m, n]', y: 'bf16[m, n]'}\nrows: {y: 'sigmoid(1.702 * x) * x * g'}\n",
        "{x: 'bf16[m, n]', w: 'bf16[m]', y: 'bf16[m, n]'}\nrows: {y: 'x * rsqrt(mean(square(x), n) + 1e-6) * w'}\n",
        "{x: 'bf16[t, h, n]', w: 'bf16[n]', y: 'bf16[t, h, n]'}\n"
        "rows: {y: 'x * rsqrt(mean(square(x), n) + 1e-6) * w'}\n",
        "{x: 'bf16[m, n]', s: f32, y: 'bf16[m, n]'}\nrows: {y: 'x * s'}\n",
    ],
)
def test_what_no_library_has(text: str) -> None:
    plan = cutegen.Spec.from_text(HEAD + "tensors: " + text, "other").load()
    assert find_function(plan) is None
    assert [b.name for b in PROVING.list_baselines(plan)] == ["torch.compile", "torch eager"]


# -- the libraries, as they are called --


class Written(dict[str, Any]):
    """What an imitation wrote: the plan's outputs, by the function's names."""


def quantise(y: Any, q: Any, scale: Any, least: float = 1e-10) -> None:
    rows = y.float().view(y.shape[0], scale.shape[1], -1)
    scale.copy_(rows.abs().amax(-1).clamp(min=least) / 448)
    q.copy_((rows / scale[..., None]).view(y.shape))


def norm(x: Any, weight: Any, eps: float) -> Any:
    return x.float() * torch.rsqrt(x.float().square().mean(-1, keepdim=True) + eps) * weight


def imitate(wrote: Written) -> dict[str, dict[str, Callable[..., Any]]]:
    def _rmsnorm_fwd(
        x: Any, weight: Any, out: Any, bias: Any = None, rstd: Any = None, mean: Any = None, residual: Any = None,
        residual_out: Any = None, eps: float = 1e-6, is_layernorm: bool = False, weight_offset: float = 0.0,
    ) -> None:  # fmt: skip
        if is_layernorm:
            assert weight.dtype == bias.dtype == torch.float32
            out.copy_(F.layer_norm(x.float(), x.shape[-1:], weight, bias, eps))
        else:
            h = x if residual is None else residual_out.copy_(x + residual)
            out.copy_(norm(h, weight + weight_offset, eps))
            wrote.update(h=h)
        wrote.update(y=out)

    def _softmax_fwd(x: Any, out: Any) -> None:
        wrote.update(y=out.copy_(x.float().softmax(-1)))

    def cross_entropy_fwd_out(
        x: Any, target: Any, target_logit: Any, loss: Any, lse: Any, dx: Any, weight: Any, ignore_index: int = -100
    ) -> None:
        assert target_logit is None
        assert dx is None
        loss.copy_(F.cross_entropy(x.float(), target.long(), weight, reduction="none", ignore_index=ignore_index))
        wrote.update(loss=loss, lse=lse.copy_(x.float().logsumexp(-1)))

    def rmsnorm_bwd(
        x: Any, weight: Any, dout: Any, rstd: Any, dresidual_out: Any = None, has_bias: bool = False,
        has_residual: bool = False, weight_offset: float = 0.0,
    ) -> Any:  # fmt: skip
        z, g = x.float() * rstd[:, None], dout.float() * weight
        dx = rstd[:, None] * (g - z * (g * z).mean(-1, keepdim=True))
        wrote.update(dx=dx, dw=(dout.float() * z).sum(0))
        return dx, wrote["dw"], None, None

    def layernorm_bwd(x: Any, weight: Any, dout: Any, rstd: Any, mean: Any, has_bias: bool = True) -> Any:
        centred = x.float() - mean[:, None]
        rmsnorm_bwd(centred, weight, dout, rstd)
        g = dout.float() * weight
        wrote.update(dx=wrote["dx"] - rstd[:, None] * g.mean(-1, keepdim=True), db=dout.float().sum(0))
        return wrote["dx"], wrote["dw"], wrote["db"]

    def cross_entropy_bwd_out(
        x: Any, target: Any, dloss: Any, lse: Any, dx: Any, weight: Any = None, ignore_index: int = -100
    ) -> None:
        hit = torch.arange(x.shape[1]) == target[:, None]
        gradient = ((x.float() - lse[:, None]).exp() - hit.float()) * dloss[:, None]
        wrote.update(dx=dx.copy_(gradient.where(target[:, None] != ignore_index, 0)))

    def rms_norm_backward(
        dY: Any, X: Any, W: Any, RSTD: Any, offset: float, casting_mode: int, BLOCK_SIZE: int, num_warps: int,
        in_place: bool, row_mode: Any, needs_dw: Any = None,
    ) -> Any:  # fmt: skip
        assert (offset, casting_mode, BLOCK_SIZE, num_warps, in_place) == (0.0, 0, 1024, 4, False)
        return rmsnorm_bwd(X, W, dY, RSTD)[:2]

    def layer_norm_backward(
        dY: Any, X: Any, W: Any, B: Any, Mean: Any, RSTD: Any, needs_dw: Any = None, needs_db: Any = None
    ) -> Any:
        return layernorm_bwd(X, W, dY, RSTD, Mean)

    def rmsnorm(input: Any, weight: Any, eps: float = 1e-6, out: Any = None, enable_pdl: Any = None) -> Any:
        wrote.update(y=out.copy_(norm(input, weight, eps)))
        return out

    def gemma_rmsnorm(input: Any, weight: Any, eps: float = 1e-6, out: Any = None, enable_pdl: Any = None) -> Any:
        return rmsnorm(input, weight + 1, eps, out)

    def layernorm(input: Any, gemma: Any, beta: Any, eps: float = 1e-6) -> Any:
        assert gemma.dtype == beta.dtype == torch.float32
        wrote.update(y=F.layer_norm(input.float(), input.shape[-1:], gemma, beta, eps))
        return wrote["y"]

    def fused_add_rmsnorm(input: Any, residual: Any, weight: Any, eps: float = 1e-6, enable_pdl: Any = None) -> None:
        residual += input
        wrote.update(h=residual, y=input.copy_(norm(residual, weight, eps)))

    def fused_add_rmsnorm_fp8_block_quant(
        out: Any, block_scale: Any, normed_out: Any, input: Any, residual: Any, weight: Any, eps: float = 1e-6,
        enable_pdl: Any = None,
    ) -> None:  # fmt: skip
        rows = input.shape[0]
        assert block_scale.shape == (input.shape[1] // 128, (rows + 3) // 4 * 4)
        residual += input
        scale = block_scale.t()[:rows]
        quantise(normed_out.copy_(norm(residual, weight, eps)), out, scale)
        wrote.update(h=residual, q=out, scale=scale)

    def gated(activation: Callable[[Any], Any]) -> Callable[..., Any]:
        def and_mul(input: Any, out: Any = None, enable_pdl: Any = None) -> Any:
            x, g = input.float().chunk(2, -1)
            wrote.update(y=out.copy_(activation(x) * g))
            return out

        return and_mul

    def gelu_tanh(x: Any) -> Any:
        return F.gelu(x, approximate="tanh")

    def rms_norm_forward(X: Any, W: Any, eps: float, offset: float, casting_mode: str, row_mode: Any) -> Any:
        assert (offset, casting_mode) in ((0.0, "llama"), (1.0, "gemma"))
        wrote.update(y=norm(X, W + offset, eps).to(X.dtype))
        return wrote["y"], X, torch.rsqrt(X.float().square().mean(-1) + eps), 1024, 4, 0

    def layer_norm_forward(X: Any, W: Any, B: Any, eps: float) -> Any:
        wrote.update(y=F.layer_norm(X.float(), X.shape[-1:], W.float(), B.float(), eps))
        return wrote["y"], X, None, None, 1024, 4

    def fused_add_rms_norm_forward(X: Any, R: Any, W: Any, eps: float, offset: float, casting_mode: str) -> Any:
        assert (offset, casting_mode) == (0.0, "llama")
        wrote.update(h=X + R, y=norm(X + R, W, eps))
        return wrote["y"], wrote["h"], None, 1024, 4, 2, 0

    def _softmax_forward(x: Any) -> Any:
        wrote.update(y=x.float().softmax(-1))
        return wrote["y"], 1024, 4, False

    def swiglu_forward(a: Any, b: Any, gate_multiplier: float = 1.0) -> Any:
        wrote.update(y=F.silu(a.float()) * b)
        return a, b, wrote["y"]

    def geglu_forward(a: Any, b: Any) -> Any:
        wrote.update(y=gelu_tanh(a.float()) * b)
        return a, b, wrote["y"]

    def sgl_per_token_group_quant_8bit(
        input: Any, output_q: Any, output_s: Any, group_size: int, eps: float, fp8_min: float, fp8_max: float,
        scale_ue8m0: bool = False, fuse_silu_and_mul: bool = False, masked_m: Any = None, enable_v2: Any = None,
    ) -> None:  # fmt: skip
        assert (group_size, fp8_min, fp8_max) == (128, -448, 448)
        quantise(input, output_q, output_s, eps)
        wrote.update(q=output_q, scale=output_s)

    def sgl_per_token_quant_fp8(input: Any, output_q: Any, output_s: Any) -> None:
        assert output_s.shape == (input.shape[0], 1)
        quantise(input, output_q, output_s)
        wrote.update(q=output_q, scale=output_s[:, 0])

    gates = {"silu_and_mul": gated(F.silu), "gelu_tanh_and_mul": gated(gelu_tanh)}
    norms = {f.__name__: f for f in (rmsnorm, gemma_rmsnorm, fused_add_rmsnorm)}
    quantisers = (sgl_per_token_group_quant_8bit, sgl_per_token_quant_fp8)
    return {
        "quack.rmsnorm": {f.__name__: f for f in (_rmsnorm_fwd, rmsnorm_bwd, layernorm_bwd)},
        "quack.softmax": {"_softmax_fwd": _softmax_fwd},
        "quack.cross_entropy": {f.__name__: f for f in (cross_entropy_fwd_out, cross_entropy_bwd_out)},
        "flashinfer.norm": {
            **norms,
            **{f.__name__: f for f in (layernorm, fused_add_rmsnorm_fp8_block_quant)},
        },
        "flashinfer.activation": gates,
        "liger_kernel.ops.rms_norm": {f.__name__: f for f in (rms_norm_forward, rms_norm_backward)},
        "liger_kernel.ops.layer_norm": {f.__name__: f for f in (layer_norm_forward, layer_norm_backward)},
        "liger_kernel.ops.fused_add_rms_norm": {"fused_add_rms_norm_forward": fused_add_rms_norm_forward},
        "liger_kernel.ops.softmax": {"_softmax_forward": _softmax_forward},
        "liger_kernel.ops.swiglu": {"swiglu_forward": swiglu_forward},
        "liger_kernel.ops.geglu": {"geglu_forward": geglu_forward},
        "sgl_kernel": {**norms, **gates, **{f.__name__: f for f in quantisers}},
    }


@pytest.fixture
def wrote(monkeypatch: pytest.MonkeyPatch) -> Written:
    """Imitations in the place of the libraries, and what they write."""
    written = Written()
    for name, members in imitate(written).items():
        for parent in (name.partition(".")[0], ".".join(name.split(".")[:2]), name):
            if parent not in sys.modules or parent == name:
                monkeypatch.setitem(sys.modules, parent, ModuleType(parent))
        vars(sys.modules[name]).update(members)
    return written


LIBRARIES: Mapping[str, Any] = {"quack": QUACK, "flashinfer": FLASHINFER, "liger": LIGER, "sgl_kernel": SGL}
SPECS = {**{function: name for name, (function, *_) in SHIPPED.items()}, **{name: name for name in OTHERS}}
SPECS["silu_mul"] = "silu_mul_bf16_sm90a"


@pytest.mark.parametrize(("library", "function"), [(lib, f) for lib, calls in LIBRARIES.items() for f in calls])
def test_libraries_compute_what_the_plan_does(library: str, function: str, wrote: Written) -> None:
    plan = plan_of(SPECS[function])
    baseline = next(b for b in PROVING.list_baselines(plan) if b.name == library)
    inputs = tuple(functions._draw(plan))
    if "label" in [a.name for a in plan.inputs]:
        inputs[1][1:3] = torch.tensor([-1, functions.COLUMNS])  # before a row and behind it
    held = [v.clone() for v in inputs]
    reference = plan.reference_fn(*inputs)
    expected = reference if isinstance(reference, tuple) else (reference,)
    outputs = tuple(torch.full_like(v, 7) for v in expected)
    launch = baseline.bind(inputs, outputs)
    wrote.clear()  # of a forward pass, for one backward
    launch()
    computed = find_function(plan)
    assert computed
    for i, (name, arg) in enumerate(zip(computed.outputs, plan.outputs)):
        found, wanted = wrote[name].float(), expected[i].float()
        if name == "loss":
            found, wanted = (torch.cat((v[:1], v[3:])) for v in (found, wanted))
        rounding = {"float8_e4m3fn": 2**-3, "bfloat16": 2**-6}.get(arg.dtype, 2**-7)
        torch.testing.assert_close(found, wanted, rtol=rounding, atol=rounding)
        # What is judged is written; what is not leaves the kernel's outputs alone.
        assert torch.equal(outputs[i].float(), found) == baseline.complete
        assert baseline.complete or (outputs[i].float() == 7).all()
    assert all(map(torch.equal, inputs, held))


def test_specs_can_name_every_baseline() -> None:
    (names,) = get_args(get_type_hints(RowBench)["baselines"])
    assert set(get_args(names)) == {*LIBRARIES, "torch"}
    assert PROVING.baselines_for.keys() == LIBRARIES.keys()
    with pytest.raises(cutegen.SpecError, match="quak"):
        cutegen.Spec.from_text(f"{HEAD}{OTHERS['quantise_rows']}bench: {{baselines: [quak]}}\n", "named")


def test_a_library_that_is_missing_is_the_reason() -> None:
    plan = plan_of("rmsnorm_bf16_sm90a")
    baselines = list(PROVING.list_baselines(plan))
    assert [b.name for b in baselines] == ["torch.compile", "torch eager", *LIBRARIES]
    assert [b.rival for b in baselines[2:]] == ["quack", "FlashInfer", "Liger", "sgl-kernel"]
    for baseline in baselines[2:]:
        with pytest.raises(ImportError, match=r"No module named"):
            baseline.bind((), ())


@pytest.mark.parametrize(("name", "count", "longest"), [("rows_quack", 42, 262144), ("rows_quack_large", 11, 262144)])
def test_suites_of_rows(name: str, count: int, longest: int) -> None:
    suite, plan = load_suite(name, ROOT / "specs" / "suites"), plan_of("cross_entropy_bf16_sm90a")
    suite.check_dims(plan.dims, plan.name)
    rows = suite.rows()
    assert len(rows) == count
    assert max(row.shape["n"] for row in rows) == longest
    refused = [row for row in rows if refuse(plan_subject(plan, ROOT), row)]
    assert refused == []
    norm = plan_subject(plan_of("rmsnorm_bf16_sm90a"), ROOT)
    assert {row.shape["n"] > 8192 for row in rows if refuse(norm, row)} == {True}
