"""Products by other libraries: cuBLASLt through nvmath-python, quack, and CUTLASS's operators. All are optional, and
imported when a baseline is bound or first runs; what is missing or refused becomes the reason for leaving it out.

Written against nvmath-python 1.0, quack-kernels 0.6 and nvidia-cutlass-operators 0.3.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Iterator
from typing import Any

from cutegen.runtime.baselines import Bind, Ways
from cutegen.runtime.epilogue_form import PLAIN
from cutegen.runtime.gemm.operand_kinds import epilogue_form, find_operand
from cutegen.runtime.gemm.product import Product

# How many of cuBLASLt's candidates are measured; its heuristics list fewer for most problems.
CUBLASLT_CANDIDATES = 64
HOPPER = "90a"
# CUTLASS's operators as compiled, by name, which says dtypes, layouts, tile and cluster: they take any extents.
_OPERATORS: dict[str, Any] = {}
Views = tuple[Any, Any, Any]
_LtValues = tuple[Any, Any, Any, dict[str, Any]]


# Epilogue forms, and cuBLASLt's name for them; its GELU is the tanh form.
_CUBLASLT_EPILOGUES = {
    f"relu({PLAIN})": "RELU",
    f"gelu_tanh({PLAIN})": "GELU",
    f"{PLAIN} + row": "BIAS",
    f"relu({PLAIN} + row)": "RELU_BIAS",
    f"gelu_tanh({PLAIN} + row)": "GELU_BIAS",
}


def cublaslt_epilogue(product: Product) -> str | None:
    """cuBLASLt's name for the plan's epilogue; None: it has none."""
    return _CUBLASLT_EPILOGUES.get(epilogue_form(product.plan))


def nvmath_values(product: Product) -> Bind:
    """Of each set what cuBLASLt takes: operands, output and bias.

    Its bias goes along the rows of a column-major output, so the transposed product is asked for: the same storage. It
    wants the bias in the output's dtype.
    """
    epilogue, row = cublaslt_epilogue(product), find_operand(product.plan, "row")

    def bind(inputs: tuple[Any, ...], outputs: tuple[Any, ...]) -> Any:
        a, b, d = product.views(inputs, outputs)
        bias = {"bias": product.like_output(row, inputs).to(d.dtype)} if row and epilogue else {}
        if epilogue or d.stride(-1) == 1:
            a, b, d = b.mT, a.mT, d.mT
        return a, b, d, bias

    return bind


def nvmath_ways(product: Product) -> Ways:
    """cuBLASLt's candidates: written into the given outputs, as C with a factor of 0."""
    epilogue = cublaslt_epilogue(product)

    def ways(values: _LtValues) -> Iterator[Callable[[_LtValues], Any]]:
        import torch

        advanced = importlib.import_module("nvmath.linalg.advanced")
        a, b, d, inputs = values
        matmul = advanced.Matmul(a, b, d, alpha=1.0, beta=0.0, options={"inplace": True})
        fused = {"epilog": getattr(advanced.MatmulEpilog, epilogue)} if epilogue else {}
        fused |= {"epilog_inputs": inputs} if inputs else {}
        for algorithm in matmul.plan(preferences={"limit": CUBLASLT_CANDIDATES}, **fused):

            def run(values: _LtValues, algorithm: Any = algorithm) -> Any:
                a, b, d, inputs = values
                stream = torch.cuda.current_stream()
                matmul.reset_operands(a=a, b=b, c=d, stream=stream, **({"epilog_inputs": inputs} if inputs else {}))
                return matmul.execute(algorithm=algorithm, stream=stream)

            yield run

    return ways


def operator_ways() -> Ways:
    """CUTLASS's own operators in CuTe DSL for Hopper, for the views of a product."""
    arguments: dict[int, Any] = {}

    def ways(views: Views) -> Iterator[Callable[[Views], Any]]:
        import torch

        operators = importlib.import_module("cutlass.operators")

        def describe(views: Views) -> Any:  # once per set: its checks are not what is measured
            if id(views) not in arguments:
                a, b, d = views
                arguments[id(views)] = operators.GemmArguments(a, b, d, accumulator_type=torch.float32)
            return arguments[id(views)]

        for operator in operators.get_operators(describe(views), target_sm=HOPPER):

            def run(views: Views, operator: Any = operator, name: str = operator.metadata.operator_name) -> Any:
                if name not in _OPERATORS:
                    _OPERATORS[name] = operator.compile(describe(views), target_sm=HOPPER)
                stream = torch.cuda.current_stream()
                return operator.run(describe(views), _OPERATORS[name], stream=stream, assume_supported_args=True)

            yield run

    return ways


# Epilogue forms, and the activation's name in quack.
_QUACK_ACTIVATIONS = {"gelu_tanh": "gelu_tanh_approx", "relu": "relu", "silu": "silu", "tanh": "tanh"}


def quack_epilogue(product: Product) -> str | None:
    """How quack fuses the plan's epilogue: "plain", "bias", "residual" or one of its activations; None: not at all."""
    form = epilogue_form(product.plan)
    known = {PLAIN: "plain", f"{PLAIN} + row": "bias", f"{PLAIN} + tile": "residual"}
    for op, activation in _QUACK_ACTIVATIONS.items():
        known |= {f"{op}({PLAIN})": activation, f"{op}({PLAIN} + row)": activation}
    return known.get(form)


def bind_quack(product: Product) -> Bind:
    """quack's own search over its configurations, split-K among them where it has that."""
    plan, how = product.plan, quack_epilogue(product)
    row, tile = find_operand(plan, "row"), find_operand(plan, "tile")

    def bind(inputs: tuple[Any, ...], outputs: tuple[Any, ...]) -> Callable[[], Any]:
        module = importlib.import_module("quack.gemm_interface")
        a, b, d = product.views(inputs, outputs)
        bias = {"bias": product.like_output(row, inputs)} if row else {}
        if how == "residual" and tile:
            return _with_split(module.gemm_add, a, b, product.like_output(tile, inputs), out=d)
        if how in ("plain", "bias"):
            return _with_split(module.gemm, a, b, out=d, **bias)
        return lambda: module.gemm_act(a, b, activation=how, postact_out=d, store_preact=False, tuned=True, **bias)

    return bind


def _with_split(function: Callable[..., Any], *operands: Any, **options: Any) -> Callable[[], Any]:
    split = {"split_k": None} if "split_k" in inspect.signature(function).parameters else {}
    return lambda: function(*operands, tuned=True, **split, **options)
