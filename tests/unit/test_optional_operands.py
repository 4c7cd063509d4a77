"""Operands that a call may leave out: what is left of the maths, the kernels beside each other, and the calls."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import pytest
from gemm_specs import bind_text, resolve_text

from cutegen.diagnostics import SpecError
from cutegen.epilogue import device_lines
from cutegen.families.gemm.code_plan import plan_code
from cutegen.families.gemm.without_operands import without
from cutegen.render import render_package
from cutegen.run.case_list import list_cases
from cutegen.run.cases import run_case
from cutegen.run.subject import plan_subject
from cutegen.runtime.arguments import ScalarArg, TensorArg
from cutegen.runtime.gemm.plan import KernelPlan

torch = pytest.importorskip("torch")

HEAD = "cutegen: 1\nkernel: gemm\narch: sm_90a\n"
TENSORS = """\
tensors:
  a: bf16[m, k]
  b: bf16[n, k]
  v: f32[n]?
  w: f32[m]?
  e: f32[m, n]
  alpha: f32
  d: bf16[m, n]
epilogue:
"""


def bound(expressions: str) -> Any:
    return bind_text(HEAD + TENSORS + "".join(f"  {line}\n" for line in expressions.split("; ")))


@pytest.mark.parametrize(
    ("expressions", "without_v", "without_both"),
    [
        ("d: acc + v * w + e * alpha", None, None),
        ("d: relu(acc + v) * w + alpha - e", "relu(acc) * w + alpha - e", "relu(acc) + alpha - e"),
        ("d: v + acc / w - e / alpha", "divide(acc, w) - divide(e, alpha)", "acc - divide(e, alpha)"),
        ("d: v - acc * w + e - alpha", "-(acc * w) + e - alpha", "-acc + e - alpha"),
        ("d: alpha * v * acc - w + e", "alpha * acc - w + e", "alpha * acc + e"),
        ("d: acc - (2 * v * alpha + e) + w", "acc - e + w", "acc - e"),
        ("d: acc * sigmoid(v) + tanh(-w) * alpha + e", "acc + tanh(-w) * alpha + e", "acc + e"),
        ("d: acc + (v + e) / alpha + w", "acc + divide(e, alpha) + w", "acc + divide(e, alpha)"),
        (
            "d: where(acc > 0, acc + v, e - alpha) + w",
            "where(acc > 0.0, acc, e - alpha) + w",
            "where(acc > 0.0, acc, e - alpha)",
        ),
    ],
)
def test_what_is_left(expressions: str, without_v: str | None, without_both: str | None) -> None:
    if without_v is None:
        with pytest.raises(SpecError):
            bound(expressions)
        return
    problem = bound(expressions)
    assert device_lines(without(problem, ("v",)).kernel_epilogue) == (f"d = {without_v}",)
    if without_both:
        assert device_lines(without(problem, ("v", "w")).kernel_epilogue) == (f"d = {without_both}",)


@pytest.mark.parametrize(
    ("tensors", "mainloop", "epilogue", "name"),
    [
        (
            "x: e4m3[m, k]; weight: e4m3[n, k]; x_scale: f32[m]; weight_scale: f32[n]; scale: f32[n]?",
            "(x * x_scale) @ (weight * weight_scale)",
            "acc * scale",
            "scale",
        ),
        ("a: bf16[t, k]; b: bf16[n, k]; rows: i32[m]; w: f32[m]?", "a[rows] @ b", "acc * w", "w"),
    ],
)
def test_a_name_may_be_part_of_one_in_the_mainloop(tensors: str, mainloop: str, epilogue: str, name: str) -> None:
    declared = "".join(f"  {line}\n" for line in (*tensors.split("; "), "d: bf16[m, n]"))
    problem = bind_text(f"{HEAD}tensors:\n{declared}mainloop: {mainloop}\nepilogue: {{d: {epilogue}}}\n")
    assert problem.optional == (name,)


def test_locals_go_with_what_they_are_computed_from() -> None:
    problem = bound("x: alpha * v; y: x + 1; u: e * 2; d: acc * y + u + w")
    assert device_lines(problem.kernel_epilogue)[:2] == ("x = alpha * v", "y = x + 1.0")
    assert device_lines(without(problem, ("v",)).kernel_epilogue) == (
        "y = 1.0",
        "u = e * 2.0",
        "d = acc * y + u + w",
    )
    assert without(problem, ("v", "w")).inputs == ("a", "b", "e", "alpha")


def test_a_module_stands_beside_each_other_one() -> None:
    text = HEAD + TENSORS.replace("e: f32[m, n]", "e: f32[m, n]?").replace("w: f32[m]?", "w: f32[m]")
    resolution = resolve_text(text + "  d: acc * w + v + alpha * e\ntiling: {tile: [128, 128, 64]}\nm: [64, 4096]\n")
    resolved = resolution.resolved
    ends = ("", "_without_v", "_without_e", "_without_v_without_e")
    assert [k.module for k in resolved.kernels] == [f"kernel{end}" for end in ends]
    assert [t.name for t in resolved.instances] == [f"t128x128x64{end}" for end in ends]
    assert [t.name for t in resolved.tilings] == ["t128x128x64"]
    assert [t.numbers.load_stages > 0 for t in resolved.instances] == [True, True, False, False]
    assert [plan_code(resolved, t).tma_loads for t in resolved.instances] == [3, 3, 2, 2]
    files = render_package(resolved).files
    assert "def epilogue(acc: Float32, w: Float32, alpha: Float32):" in files["kernel_without_v_without_e.py"]
    assert "TileLoadParams" not in files["kernel_without_e.py"]
    plan = files["plan.py"]
    assert plan.index("if v is None and e is None:") < plan.index("if e is None:") < plan.index("if v is None:")


class OptionalPlan(KernelPlan):
    """d = (a @ b + bias) * scale"""

    name, arch, device, reduced = "optional", "sm_90a", "cpu", "k"
    dims: ClassVar = {"m": (1, None), "n": (1, None), "k": (1, None)}
    inputs = (
        TensorArg("bias", "float32", ("n",), contiguous=0, align=4, optional=True),
        TensorArg("a", "bfloat16", ("m", "k"), contiguous=1, multiple=8, axes=(0, 1)),
        TensorArg("b", "bfloat16", ("n", "k"), contiguous=1, multiple=8, axes=(0, 1)),
        ScalarArg("scale", optional=True),
    )
    outputs = (TensorArg("d", "bfloat16", ("m", "n"), contiguous=1, multiple=8, axes=(0, 1)),)
    epilogue: ClassVar = {"d": "(acc + bias) * scale"}
    tilings: ClassVar = {
        f"t16{end}": type("Tiling", (), {"tile": (16, 16, 16), "stages": 4})()
        for end in ("", "_without_bias", "_without_scale", "_without_bias_without_scale")
    }

    def __init__(self) -> None:
        super().__init__()
        self.launched: list[str] = []

    def sm_count(self, index: int) -> int:
        return 1

    def dispatch(self, device: int | None = None, /, **dims: int) -> str:
        return "t16"

    def compile(self, key: str) -> Callable[..., None]:
        def kernel(*values: Any) -> None:
            *given, d, _ = values
            if "_without_bias" in key:
                given.insert(0, None)
            if "_without_scale" in key:
                given.append(None)
            assert len(given) == 4
            self.launched.append(key)
            d.copy_(self._reference(*(v.double() if hasattr(v, "double") else v for v in given))[0])

        return kernel

    def _reference(self, bias: Any, a: Any, b: Any, scale: Any) -> tuple[Any, ...]:
        acc = a @ b.mT if bias is None else a @ b.mT + bias
        return (acc if scale is None else acc * scale,)

    def _algorithmic_flops_bytes(self, m: int, n: int, k: int) -> tuple[int, int]:
        return 2 * m * n * k, 2 * (m * k + n * k + m * n)


def test_a_call_runs_the_kernel_of_what_it_passes() -> None:
    plan = OptionalPlan()
    bias, a, b, scale = plan.prepare_inputs(m=24, n=16, k=32)
    for values in ((bias, a, b, scale), (None, a, b, scale), (bias, a, b, None), (None, a, b, None)):
        found = plan.kernel_fn(*values)
        assert torch.equal(found, plan.reference_fn(*values, precision="float64"))
        assert plan.plan(*values).tiling is plan.tilings[plan.launched[-1]]
    assert plan.launched == list(plan.tilings)
    plan.make_launch("t16_without_bias")(bias, a, b, scale, found)
    assert plan.launched[-1] == "t16"
    with pytest.raises(TypeError, match=r"a: is None, needs a torch tensor"):
        plan.kernel_fn(bias, None, b, scale)
    with pytest.raises(ValueError, match=r"n is 8 \(from bias\)"):
        plan._refuse(plan.inputs, (bias[:8], a, b, None))


def test_check_runs_every_kernel() -> None:
    class Wrong(OptionalPlan):
        def compile(self, key: str) -> Callable[..., None]:
            kernel = super().compile(key)
            if key != "t16_without_bias":
                return kernel
            return lambda *values: (kernel(*values), values[-2].add_(1))[0]

    for plan in (OptionalPlan(), Wrong()):
        subject = plan_subject(plan, Path(__file__))
        cases = [case for case in list_cases(subject) if case.name == "ragged" and case.mode in ("numerics", "strides")]
        verdicts = {(case.tiling, run_case(subject, case, 0).status) for case in cases}
        broken = type(plan) is Wrong
        expected = {(key, "wrong" if broken and key == "t16_without_bias" else "pass") for key in plan.tilings}
        assert verdicts == expected
        assert set(plan.launched) == set(plan.tilings)
