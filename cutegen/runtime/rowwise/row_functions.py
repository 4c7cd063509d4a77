"""Functions of rows that other libraries have, and which of them a plan computes. That is found by computing both on a
few rows: whatever a spec calls its tensors and locals, and in whatever form it writes the function. Importing this
module imports neither torch nor cutlass."""

from __future__ import annotations

import importlib.util
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cutegen.runtime.arguments import Argument, ScalarArg, TensorArg
from cutegen.runtime.rowwise.plan import RowPlan

Tensors = Mapping[str, Any]  # of a function, by its own names
BLOCK, LARGEST, LEAST = 128, 448.0, 1e-4
IGNORED = -100  # the label of a row without a loss
ROWS, COLUMNS = 5, 256  # of the trial
MAGNITUDES = (0.01, 0.3, 1.0, 3.0, 10.0)  # of its rows: an epsilon shows in the first, an activation in the others
EPSILONS = (1e-6, 1e-5)
# The most that an output may be off in the trial, relative to the largest of its row: libraries round once more or less
# to bf16 on the way, and to 8 bits.
ROUNDING, ROUNDING_8BIT = 2.0**-7, 2.0**-3


@dataclass(frozen=True, slots=True)
class Function:
    """inputs, outputs: what each has a value for, by name: "element", "column", "row" or "block" of 128 elements.
    compute: (inputs, epsilon) -> outputs, in torch."""

    inputs: Mapping[str, str]
    outputs: Mapping[str, str]
    compute: Callable[[Tensors, float], Tensors]


@dataclass(frozen=True, slots=True)
class Computed:
    """A function that a plan computes. inputs, outputs: the function's names in the plan's order. epsilon: the spec's;
    one of EPSILONS where the function has none."""

    function: str
    epsilon: float
    inputs: Sequence[str]
    outputs: Sequence[str]

    def tensors(self, inputs: Sequence[Any], outputs: Sequence[Any]) -> Tensors:
        return dict(zip((*self.inputs, *self.outputs), (*inputs, *outputs)))


def find_function(plan: RowPlan) -> Computed | None:
    """What a plan with one dim of rows computes, of FUNCTIONS; None: none of them, or torch is missing."""
    if len(plan.dims) != 2 or importlib.util.find_spec("torch") is None:
        return None
    kinds = [[_kind(plan, a) for a in args] for args in (plan.inputs, plan.outputs)]
    fitting = {
        name: f
        for name, f in FUNCTIONS.items()
        if all(sorted(own) == sorted(wanted.values()) for own, wanted in zip(kinds, (f.inputs, f.outputs)))
    }
    if not fitting:
        return None
    given = _draw(plan)
    held = plan.reference_fn(*given, precision="float64")
    expected = held if isinstance(held, tuple) else (held,)
    for name, function in fitting.items():
        for epsilon, order in itertools.product(EPSILONS, _orders(function.inputs, kinds[0])):
            found = function.compute(dict(zip(order, (v.double() for v in given))), epsilon)
            for names in _orders(function.outputs, kinds[1]):
                if all(map(_agree, plan.outputs, expected, (found[n] for n in names))):
                    return Computed(name, epsilon, order, names)
    return None


def _kind(plan: RowPlan, arg: Argument) -> str:
    """What an argument has a value for; "" where no function has such."""
    if isinstance(arg, ScalarArg) or arg.optional:
        return ""
    rows = tuple(dim for dim in plan.dims if dim != plan.columns)
    forms = {
        (*rows, plan.columns): "element",
        (plan.columns,): "column",
        rows: "row",
        (*rows, f"ceil({plan.columns}/{BLOCK})"): "block",
        (*rows, f"{plan.columns}/{BLOCK}"): "block",
    }
    return forms.get(arg.dims, "")


def _orders(names: Mapping[str, str], kinds: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """Every order of a function's names in which they are of these kinds."""
    for order in itertools.permutations(names):
        if [names[n] for n in order] == list(kinds):
            yield order


def _draw(plan: RowPlan) -> list[Any]:
    """Inputs of the trial, of the declared dtypes; what integers name is an element of the row, or nothing."""
    import torch

    source = torch.Generator().manual_seed(1)
    shapes = {"element": (ROWS, COLUMNS), "column": (COLUMNS,), "row": (ROWS,)}
    drawn = []
    for arg in plan.inputs:
        assert isinstance(arg, TensorArg)
        kind = _kind(plan, arg)
        if arg.dtype.startswith("int"):
            value = torch.randint(COLUMNS, shapes[kind], generator=source)
            value[0] = IGNORED
        else:
            value = torch.randn(shapes[kind], generator=source, dtype=torch.float64)
        if kind == "element":
            value = value * torch.tensor(MAGNITUDES, dtype=torch.float64)[:, None]
        drawn.append(value.to(getattr(torch, arg.dtype)))
    return drawn


def _agree(arg: TensorArg, expected: Any, found: Any) -> bool:
    if expected.shape != found.shape:
        return False
    expected = expected.double()
    largest = expected.abs() if expected.dim() == 1 else expected.abs().amax(-1, keepdim=True)
    most = ROUNDING_8BIT if arg.dtype.startswith("float8") else ROUNDING
    return bool(((expected - found).abs() <= most * largest).all())


def _rms_norm(x: Any, w: Any, epsilon: float) -> Any:
    import torch

    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + epsilon) * w


def _layer_norm(t: Tensors, epsilon: float) -> Tensors:
    import torch

    x = t["x"]
    return {"y": torch.nn.functional.layer_norm(x, x.shape[-1:], t["w"], t["b"], epsilon)}


def _softmax(t: Tensors, epsilon: float) -> Tensors:
    return {"y": t["x"].softmax(-1)}


def _cross_entropy(t: Tensors, epsilon: float) -> Tensors:
    label, lse = t["label"].long(), t["x"].logsumexp(-1)
    own = t["x"].take_along_dim(label.clamp(min=0)[:, None], -1)[:, 0]
    return {"loss": (lse - own).where(label != IGNORED, 0), "lse": lse}


def _silu_mul(t: Tensors, epsilon: float) -> Tensors:
    import torch

    return {"y": torch.nn.functional.silu(t["x"]) * t["g"]}


def _gelu_mul(t: Tensors, epsilon: float) -> Tensors:
    import torch

    return {"y": torch.nn.functional.gelu(t["x"], approximate="tanh") * t["g"]}


def _add_norm(t: Tensors, epsilon: float) -> Tensors:
    h = t["x"] + t["residual"]
    return {"h": h, "y": _rms_norm(h, t["w"], epsilon)}


def _rms_norm_backward(t: Tensors, epsilon: float) -> Tensors:
    import torch

    x, inverse = t["x"], torch.rsqrt(t["x"].square().mean(-1, keepdim=True) + epsilon)
    z, g = x * inverse, t["dy"] * t["w"]
    return {"dx": inverse * (g - z * (g * z).mean(-1, keepdim=True)), "dw": (t["dy"] * z).sum(0)}


def _layer_norm_backward(t: Tensors, epsilon: float) -> Tensors:
    import torch

    centred = t["x"] - t["x"].mean(-1, keepdim=True)
    inverse = torch.rsqrt(centred.square().mean(-1, keepdim=True) + epsilon)
    z, g = centred * inverse, t["dy"] * t["w"]
    dx = inverse * (g - g.mean(-1, keepdim=True) - z * (g * z).mean(-1, keepdim=True))
    return {"dx": dx, "dw": (t["dy"] * z).sum(0), "db": t["dy"].sum(0)}


def _cross_entropy_backward(t: Tensors, epsilon: float) -> Tensors:
    import torch

    label = t["label"].long()[:, None]
    hit = torch.arange(t["x"].shape[-1]) == label
    gradient = ((t["x"] - t["lse"][:, None]).exp() - hit.double()) * t["dloss"][:, None]
    return {"dx": gradient.where(label != IGNORED, 0)}


def _quantise_blocks(y: Any) -> Tensors:
    blocks = y.unflatten(-1, (-1, BLOCK))
    scale = blocks.abs().amax(-1).clamp(min=LEAST) / LARGEST
    return {"q": (blocks / scale[..., None]).flatten(-2), "scale": scale}


def _quantise_rows(y: Any) -> Tensors:
    scale = y.abs().amax(-1).clamp(min=LEAST) / LARGEST
    return {"q": y / scale[:, None], "scale": scale}


_NORM = {"x": "element", "w": "column"}
_ADD_NORM = {**_NORM, "residual": "element"}
_GATED = {"x": "element", "g": "element"}
_ELEMENTS, _BY_BLOCK, _BY_ROW = {"y": "element"}, {"q": "element", "scale": "block"}, {"q": "element", "scale": "row"}
FUNCTIONS: Mapping[str, Function] = {
    "rms_norm": Function(_NORM, _ELEMENTS, lambda t, e: {"y": _rms_norm(t["x"], t["w"], e)}),
    "gemma_norm": Function(_NORM, _ELEMENTS, lambda t, e: {"y": _rms_norm(t["x"], 1 + t["w"], e)}),
    "layer_norm": Function({**_NORM, "b": "column"}, _ELEMENTS, _layer_norm),
    "softmax": Function({"x": "element"}, _ELEMENTS, _softmax),
    "cross_entropy": Function({"x": "element", "label": "row"}, {"loss": "row", "lse": "row"}, _cross_entropy),
    "rms_norm_backward": Function({**_NORM, "dy": "element"}, {"dx": "element", "dw": "column"}, _rms_norm_backward),
    "layer_norm_backward": Function(
        {**_NORM, "dy": "element"}, {"dx": "element", "dw": "column", "db": "column"}, _layer_norm_backward
    ),
    "cross_entropy_backward": Function(
        {"x": "element", "label": "row", "lse": "row", "dloss": "row"}, {"dx": "element"}, _cross_entropy_backward
    ),
    "silu_mul": Function(_GATED, _ELEMENTS, _silu_mul),
    "gelu_mul": Function(_GATED, _ELEMENTS, _gelu_mul),
    "add_norm": Function(_ADD_NORM, {"h": "element", "y": "element"}, _add_norm),
    "quantise_blocks": Function({"x": "element"}, _BY_BLOCK, lambda t, e: _quantise_blocks(t["x"])),
    "quantise_rows": Function({"x": "element"}, _BY_ROW, lambda t, e: _quantise_rows(t["x"])),
    "norm_quantise_blocks": Function(_NORM, _BY_BLOCK, lambda t, e: _quantise_blocks(_rms_norm(t["x"], t["w"], e))),
    "add_norm_quantise_blocks": Function(
        _ADD_NORM,
        {"h": "element", **_BY_BLOCK},
        lambda t, e: {"h": (a := _add_norm(t, e))["h"], **_quantise_blocks(a["y"])},
    ),
    "add_norm_quantise_rows": Function(
        _ADD_NORM,
        {"h": "element", **_BY_ROW},
        lambda t, e: {"h": (a := _add_norm(t, e))["h"], **_quantise_rows(a["y"])},
    ),
    "silu_mul_quantise_blocks": Function(_GATED, _BY_BLOCK, lambda t, e: _quantise_blocks(_silu_mul(t, e)["y"])),
}
