"""Functions of rows by other libraries: quack, FlashInfer, Liger and sgl-kernel. All are optional, and imported when a
baseline is bound; what is missing or refused becomes the reason for leaving it out.

Written against quack-kernels 0.6.5, flashinfer-python 0.7.2, liger-kernel 0.8.5 and sglang-kernel 0.4.10.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from cutegen.runtime.baselines import Bind, Launch
from cutegen.runtime.rowwise.row_functions import BLOCK, IGNORED, LARGEST, LEAST, Computed, Tensors


@dataclass(frozen=True, slots=True)
class Call:
    """How a library computes a function of row_functions.py. does: in words. launch: (tensors, epsilon) -> a launch.
    complete: it writes the outputs, rounded as the function's; else it gets others to write, and is not judged."""

    does: str
    launch: Callable[[Tensors, float], Launch]
    complete: bool = False

    def bind(self, computed: Computed) -> Bind:
        def bind(inputs: tuple[Any, ...], outputs: tuple[Any, ...]) -> Launch:
            own = outputs if self.complete else tuple(map(_alike, outputs))
            return self.launch(computed.tensors(inputs, own), computed.epsilon)

        return bind


def _alike(tensor: Any) -> Any:
    """Another one with its strides, which `empty_like` leaves where there are gaps."""
    return tensor.new_empty_strided(tensor.shape, tensor.stride())


def _quack(module: str, name: str) -> Any:
    return getattr(importlib.import_module(f"quack.{module}"), name)


def _quack_norm(offset: float) -> Callable[[Tensors, float], Launch]:
    def launch(t: Tensors, epsilon: float) -> Launch:
        norm = _quack("rmsnorm", "_rmsnorm_fwd")
        return lambda: norm(t["x"], t["w"], t["y"], eps=epsilon, weight_offset=offset)

    return launch


def _quack_layer_norm(t: Tensors, epsilon: float) -> Launch:
    norm, w, b = _quack("rmsnorm", "_rmsnorm_fwd"), t["w"].float(), t["b"].float()  # it takes no others
    return lambda: norm(t["x"], w, t["y"], b, eps=epsilon, is_layernorm=True)


def _quack_add_norm(t: Tensors, epsilon: float) -> Launch:
    norm = _quack("rmsnorm", "_rmsnorm_fwd")
    return lambda: norm(t["x"], t["w"], t["y"], residual=t["residual"], residual_out=t["h"], eps=epsilon)


def _quack_softmax(t: Tensors, epsilon: float) -> Launch:
    softmax = _quack("softmax", "_softmax_fwd")
    return lambda: softmax(t["x"], t["y"])


def _quack_cross_entropy(t: Tensors, epsilon: float) -> Launch:
    entropy, label = _quack("cross_entropy", "cross_entropy_fwd_out"), t["label"]
    last = t["x"].shape[-1] - 1
    inside = label.where(label == IGNORED, label.clamp(0, last))  # for others it reads what lies next to x
    return lambda: entropy(t["x"], inside, None, t["loss"], t["lse"], None, None, IGNORED)


def _moments(t: Tensors, epsilon: float, *, centred: bool) -> tuple[Any, Any]:
    """Means of rows and the reciprocals of their deviations, or of their norms, as the forward pass keeps them."""
    import torch

    x = t["x"].float()
    mean = x.mean(-1)
    square = (x - mean[:, None]).square() if centred else x.square()
    return mean, torch.rsqrt(square.mean(-1) + epsilon)


def _quack_norm_backward(t: Tensors, epsilon: float) -> Launch:
    backward, (_, inverse) = _quack("rmsnorm", "rmsnorm_bwd"), _moments(t, epsilon, centred=False)
    return lambda: backward(t["x"], t["w"], t["dy"], inverse)


def _quack_layer_norm_backward(t: Tensors, epsilon: float) -> Launch:
    backward, (mean, inverse) = _quack("rmsnorm", "layernorm_bwd"), _moments(t, epsilon, centred=True)
    return lambda: backward(t["x"], t["w"], t["dy"], inverse, mean)


def _quack_cross_entropy_backward(t: Tensors, epsilon: float) -> Launch:
    backward = _quack("cross_entropy", "cross_entropy_bwd_out")
    return lambda: backward(t["x"], t["label"], t["dloss"], t["lse"], t["dx"], None, IGNORED)


_GIVEN_MOMENTS = "which is given what the forward pass kept of rows"
QUACK: Mapping[str, Call] = {
    "rms_norm_backward": Call(f"quack, {_GIVEN_MOMENTS}", _quack_norm_backward),
    "layer_norm_backward": Call(f"quack, {_GIVEN_MOMENTS}", _quack_layer_norm_backward),
    "cross_entropy_backward": Call("quack, out=", _quack_cross_entropy_backward, complete=True),
    "rms_norm": Call("quack, its default configuration, out=", _quack_norm(0.0), complete=True),
    "gemma_norm": Call("quack, its default configuration, out=", _quack_norm(1.0), complete=True),
    "layer_norm": Call("quack with weights in f32, out=", _quack_layer_norm, complete=True),
    "add_norm": Call("quack, which does not round h before the norm, out=", _quack_add_norm),
    "softmax": Call("quack, out=", _quack_softmax, complete=True),
    "cross_entropy": Call("quack with labels within the row, out=", _quack_cross_entropy),
}


def _flashinfer(name: str) -> Any:
    """From the module of gates, or that of norms."""
    return getattr(importlib.import_module(f"flashinfer.{'activation' if '_and_mul' in name else 'norm'}"), name)


def _norm_of(library: Callable[[str], Any], name: str) -> Callable[[Tensors, float], Launch]:
    def launch(t: Tensors, epsilon: float) -> Launch:
        norm = library(name)
        return lambda: norm(t["x"], t["w"], epsilon, out=t["y"])

    return launch


def _flashinfer_layer_norm(t: Tensors, epsilon: float) -> Launch:
    norm, w, b = _flashinfer("layernorm"), t["w"].float(), t["b"].float()
    return lambda: norm(t["x"], w, b, epsilon)


def _add_norm_of(library: Callable[[str], Any]) -> Callable[[Tensors, float], Launch]:
    def launch(t: Tensors, epsilon: float) -> Launch:
        norm, x, residual = library("fused_add_rmsnorm"), t["x"].clone(), t["residual"].clone()
        return lambda: norm(x, residual, t["w"], epsilon)

    return launch


def _gated_of(library: Callable[[str], Any], name: str) -> Callable[[Tensors, float], Launch]:
    def launch(t: Tensors, epsilon: float) -> Launch:
        import torch

        gated, joined = library(name), torch.cat((t["x"], t["g"]), dim=-1)
        return lambda: gated(joined, out=t["y"])

    return launch


def _flashinfer_add_norm_quantise(t: Tensors, epsilon: float) -> Launch:
    import torch

    rows, columns = t["x"].shape
    run, residual, normed = _flashinfer("fused_add_rmsnorm_fp8_block_quant"), t["residual"].clone(), _alike(t["x"])
    scale = torch.empty(columns // BLOCK, -(-rows // 4) * 4, dtype=torch.float32, device=normed.device)
    return lambda: run(t["q"], scale, normed, t["x"], residual, t["w"], epsilon)


_FLASHINFER_GATED = "FlashInfer, of halves of one tensor, out="
FLASHINFER: Mapping[str, Call] = {
    "rms_norm": Call("FlashInfer, out=", _norm_of(_flashinfer, "rmsnorm"), complete=True),
    "gemma_norm": Call("FlashInfer, out=", _norm_of(_flashinfer, "gemma_rmsnorm"), complete=True),
    "layer_norm": Call("FlashInfer with weights in f32", _flashinfer_layer_norm),
    "add_norm": Call("FlashInfer, in place", _add_norm_of(_flashinfer)),
    "silu_mul": Call(_FLASHINFER_GATED, _gated_of(_flashinfer, "silu_and_mul"), complete=True),
    "gelu_mul": Call(_FLASHINFER_GATED, _gated_of(_flashinfer, "gelu_tanh_and_mul"), complete=True),
    "add_norm_quantise_blocks": Call("FlashInfer, which stores the norm in bf16 too", _flashinfer_add_norm_quantise),
}


def _liger(module: str, name: str) -> Any:
    return getattr(importlib.import_module(f"liger_kernel.ops.{module}"), name)


def _liger_norm(offset: float, casting: str) -> Callable[[Tensors, float], Launch]:
    def launch(t: Tensors, epsilon: float) -> Launch:
        norm = _liger("rms_norm", "rms_norm_forward")
        return lambda: norm(t["x"], t["w"], epsilon, offset, casting, None)

    return launch


def _liger_layer_norm(t: Tensors, epsilon: float) -> Launch:
    norm = _liger("layer_norm", "layer_norm_forward")
    return lambda: norm(t["x"], t["w"], t["b"], epsilon)


def _liger_add_norm(t: Tensors, epsilon: float) -> Launch:
    norm = _liger("fused_add_rms_norm", "fused_add_rms_norm_forward")
    return lambda: norm(t["x"], t["residual"], t["w"], epsilon, 0.0, "llama")


def _liger_softmax(t: Tensors, epsilon: float) -> Launch:
    softmax = _liger("softmax", "_softmax_forward")
    return lambda: softmax(t["x"])


def _liger_gated(module: str, name: str) -> Callable[[Tensors, float], Launch]:
    def launch(t: Tensors, epsilon: float) -> Launch:
        gated = _liger(module, name)
        return lambda: gated(t["x"], t["g"])

    return launch


def _liger_norm_backward(t: Tensors, epsilon: float) -> Launch:
    _, x, inverse, block, warps, casting = _liger_norm(0.0, "llama")(t, epsilon)()
    backward = _liger("rms_norm", "rms_norm_backward")
    return lambda: backward(t["dy"], x, t["w"], inverse, 0.0, casting, block, warps, False, None)


def _liger_layer_norm_backward(t: Tensors, epsilon: float) -> Launch:
    backward, (mean, inverse) = _liger("layer_norm", "layer_norm_backward"), _moments(t, epsilon, centred=True)
    return lambda: backward(t["dy"], t["x"], t["w"], t["w"], mean, inverse)  # of the bias it reads the dtype alone


# Without its cross-entropy, which waits for the device in each call, as a CUDA graph cannot.
LIGER: Mapping[str, Call] = {
    "rms_norm_backward": Call(f"Liger, {_GIVEN_MOMENTS}", _liger_norm_backward),
    "layer_norm_backward": Call(f"Liger, {_GIVEN_MOMENTS}", _liger_layer_norm_backward),
    "rms_norm": Call("Liger, which rounds before the weight", _liger_norm(0.0, "llama")),
    "gemma_norm": Call("Liger", _liger_norm(1.0, "gemma")),
    "layer_norm": Call("Liger", _liger_layer_norm),
    "add_norm": Call("Liger, which rounds before the weight", _liger_add_norm),
    "softmax": Call("Liger", _liger_softmax),
    "silu_mul": Call("Liger", _liger_gated("swiglu", "swiglu_forward")),
    "gelu_mul": Call("Liger", _liger_gated("geglu", "geglu_forward")),
}


def _sgl(name: str) -> Any:
    return getattr(importlib.import_module("sgl_kernel"), name)


def _sgl_quantise(t: Tensors, epsilon: float) -> Launch:
    """Of x, in blocks where scales have two dims."""
    if t["scale"].dim() == 1:
        by_row, scale = _sgl("sgl_per_token_quant_fp8"), t["scale"].unsqueeze(-1)
        return lambda: by_row(t["x"], t["q"], scale)
    by_block = _sgl("sgl_per_token_group_quant_8bit")
    return lambda: by_block(t["x"], t["q"], t["scale"], BLOCK, LEAST, -LARGEST, LARGEST)


def _sgl_then_quantise(first: Callable[[Tensors, float], Launch], result: str) -> Callable[[Tensors, float], Launch]:
    """Two launches, with rows of 16 bits in between. result: where `first` leaves them."""

    def launch(t: Tensors, epsilon: float) -> Launch:
        own = {**t, "x": t["x"].clone(), "y": _alike(t["x"])}
        compute = first(own, epsilon)
        quantise = _sgl_quantise({**t, "x": own[result]}, epsilon)

        def both() -> None:
            compute()
            quantise()

        return both

    return launch


def _sgl_add_norm(t: Tensors, epsilon: float) -> Launch:
    """In the place of x, which is the caller's copy."""
    norm, residual = _sgl("fused_add_rmsnorm"), t["residual"].clone()
    return lambda: norm(t["x"], residual, t["w"], epsilon)


_SGL_SILU, _SGL_NORM = _gated_of(_sgl, "silu_and_mul"), _norm_of(_sgl, "rmsnorm")
_SGL_GATED = "sgl-kernel, of halves of one tensor, out="
SGL: Mapping[str, Call] = {
    "rms_norm": Call("sgl-kernel, out=", _SGL_NORM, complete=True),
    "gemma_norm": Call("sgl-kernel, out=", _norm_of(_sgl, "gemma_rmsnorm"), complete=True),
    "add_norm": Call("sgl-kernel, in place", _add_norm_of(_sgl)),
    "silu_mul": Call(_SGL_GATED, _SGL_SILU, complete=True),
    "gelu_mul": Call(_SGL_GATED, _gated_of(_sgl, "gelu_tanh_and_mul"), complete=True),
    "quantise_blocks": Call("sgl-kernel, out=", _sgl_quantise),
    "quantise_rows": Call("sgl-kernel, out=", _sgl_quantise),
    "norm_quantise_blocks": Call("sgl-kernel, two launches", _sgl_then_quantise(_SGL_NORM, "y")),
    "add_norm_quantise_blocks": Call("sgl-kernel, two launches", _sgl_then_quantise(_sgl_add_norm, "x")),
    "add_norm_quantise_rows": Call("sgl-kernel, two launches", _sgl_then_quantise(_sgl_add_norm, "x")),
    "silu_mul_quantise_blocks": Call("sgl-kernel, two launches", _sgl_then_quantise(_SGL_SILU, "y")),
}
