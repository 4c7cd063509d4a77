"""Outputs that are read where they are written: in the program, in a call, in `check` and in `bench`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import pytest
from gemm_specs import bind_text

from cutegen.epilogue import cost, device_lines, torch_lines, torch_operand_lines
from cutegen.run.case_list import Case
from cutegen.run.cases import run_case
from cutegen.run.subject import plan_subject
from cutegen.runtime.arguments import TensorArg
from cutegen.runtime.command import benchmark_kernel_argparse
from cutegen.runtime.gemm.plan import KernelPlan
from cutegen.runtime.overlap import find_overlaps

torch = pytest.importorskip("torch")

HEAD = "cutegen: 1\nkernel: gemm\narch: sm_90a\n"
UPDATED = """\
tensors: {a: "bf16[m, k]", b: "bf16[n, k]", beta: f32, h: "bf16[m, n]", grad: "f32[n, m]"}
epilogue:
  x: acc * 2
  grad: beta * grad + x
  h: beta * grad + h
"""


def test_a_name_is_the_value_before_in_its_own_expression_alone() -> None:
    problem = bind_text(HEAD + UPDATED)
    assert problem.inputs == ("a", "b", "beta", "h", "grad")
    assert problem.outputs == ("h", "grad")
    assert problem.arguments == ("a", "b", "beta", "h", "grad")
    assert device_lines(problem.kernel_epilogue) == (
        "x = acc * 2.0",
        "grad = where(beta != 0.0, beta * grad_old, 0.0) + x",
        "h = beta * grad + h_old",
    )
    assert torch_operand_lines(problem.epilogue)[1:] == (
        "h_old = h.float()",
        "grad_old = grad.float().permute(1, 0)",
    )
    assert torch_lines(problem.epilogue)[2:] == (
        "h = beta * grad + h_old",
        "h = h.to(torch.bfloat16)",
        "grad = grad.to(torch.float32).permute(1, 0)",
    )
    work = cost(problem.epilogue)
    assert sum(t.total(8, 8) for t in (*work.reads, *work.writes)) == 2 * 64 * (2 + 4)


ADDED = """\
tensors: {a: "bf16[m, k]", b: "bf16[n, k]", bias: "f32[n]", h: "bf16[m, n]", grad: "f32[m, n]"}
epilogue:
  x: acc * 2
  grad: x + (bias + (grad - acc)) - 1
  h: h - x
tma: {h: {store: reduce_add}, grad: {store: reduce_add}}
"""


def test_what_tma_adds_is_the_sum_without_the_value_before() -> None:
    problem = bind_text(HEAD + ADDED)
    program = problem.kernel_epilogue
    assert device_lines(program) == ("x = acc * 2.0", "h = -x", "grad = x + (bias + -acc) - 1.0")
    assert [o.name for o in program.operands] == ["bias"]
    assert torch_lines(problem.epilogue)[3:] == (
        "h = (h_old + h.to(torch.bfloat16).to(h.dtype)).to(torch.bfloat16)",
        "grad = (grad_old + grad.to(torch.float32).to(grad.dtype)).to(torch.float32)",
    )
    assert cost(problem.epilogue).flops == 1 + 1 + 4 + 2
    assert cost(problem.epilogue).errors == {"grad": 0.0, "h": 6 * 2.0**-7}


class UpdatingPlan(KernelPlan):
    """d += a @ b; e = a @ b + c, which may lie where c does."""

    name, arch, device, reduced = "updating", "sm_90a", "cpu", "k"
    dims: ClassVar = {"m": (1, None), "n": (1, None), "k": (1, None)}
    inputs = (
        TensorArg("a", "bfloat16", ("m", "k"), contiguous=1, multiple=8, axes=(0, 1)),
        TensorArg("b", "bfloat16", ("n", "k"), contiguous=1, multiple=8, axes=(0, 1)),
        TensorArg("d", "bfloat16", ("m", "n"), contiguous=1, multiple=8, axes=(0, 1)),
        TensorArg("c", "bfloat16", ("m", "n"), contiguous=1, multiple=8, axes=(0, 1)),
    )
    outputs = (inputs[2], TensorArg("e", "bfloat16", ("m", "n"), contiguous=1, multiple=8, axes=(0, 1)))
    in_place = ("d",)
    aliases: ClassVar = {"e": "c"}
    epilogue: ClassVar = {"d": "d + acc", "e": "acc + c"}
    tilings: ClassVar = {"t16": type("Tiling", (), {"tile": (16, 16, 16), "stages": 4})()}

    def sm_count(self, index: int) -> int:
        return 1

    def compile(self, key: str) -> Callable[..., None]:
        return self.run

    def run(self, a: Any, b: Any, d: Any, c: Any, e: Any, sms: int) -> None:
        results = self._reference(a.double(), b.double(), d.double(), c.double())
        d.copy_(results[0])
        e.copy_(results[1])

    def _reference(self, a: Any, b: Any, d: Any, c: Any) -> tuple[Any, ...]:
        return d + a @ b.mT, a @ b.mT + c

    def _algorithmic_flops_bytes(self, m: int, n: int, k: int) -> tuple[int, int]:
        return 2 * m * n * k, 2 * (m * k + n * k + 4 * m * n)


SHAPE = {"m": 24, "n": 16, "k": 32}


def test_a_call_passes_an_updated_tensor_once() -> None:
    plan = UpdatingPlan()
    a, b, d, c = plan.prepare_inputs(**SHAPE)
    expected = plan.reference_fn(a, b, d, c, precision="float64")
    held = d.data_ptr()
    first, second = plan.kernel_fn(a, b, d, c)
    assert first.data_ptr() == held
    assert torch.equal(first, expected[0])
    assert torch.equal(second, expected[1])
    (out,) = plan.allocate_outputs(a, b, d, c)
    kernel = plan.plan(a, b, d, c)
    assert [len(kernel.input_tensors), len(kernel.output_tensors)] == [4, 1]
    again = plan.reference_fn(a, b, d, c, precision="float64")[0]
    kernel.launch_fn(*kernel.input_tensors, out)
    assert torch.equal(d, again)


def test_storage_is_shared_where_the_spec_says_so() -> None:
    plan = UpdatingPlan()
    a, b, d, c = plan.prepare_inputs(m=16, n=16, k=16)
    expected = plan.reference_fn(a, b, d, c, precision="float64")
    plan.launch_fn(a, b, d, c, c)
    assert torch.equal(c, expected[1])
    for values, said in (
        ((a, b, c, c, torch.empty_like(c)), "d: shares storage with c, which may be read after that is written"),
        ((a, b, c[:], c, torch.empty_like(c)), "d: shares storage with c, which may be read after that is written"),
        ((a, b, a, c, torch.empty_like(c)), "d: shares storage with a"),
        ((a, b, d, c, b), "e: shares storage with b"),
        ((a, b, d, c, d), "d: shares storage with e"),
        ((a, b, d, c.as_strided((16, 16), (8, 1)), c), "e: shares storage with c, not element by element"),
    ):
        with pytest.raises(ValueError, match=f"updating: {said}"):
            plan.launch_fn(*values)


def test_overlaps_are_told_from_bands_of_one_buffer() -> None:
    args = (TensorArg("c", "float32", ("m", "n"), contiguous=1), TensorArg("d", "float32", ("m", "n"), contiguous=1))
    buffer = torch.empty(9, 64)

    def overlap(c: Any, d: Any) -> bool:
        return bool(list(find_overlaps(args, (c, d), ["d"], {})))

    assert not overlap(buffer[:8, :32], buffer[:8, 32:])
    assert not overlap(buffer[:8, 32:], buffer[1:, :32])
    assert not overlap(buffer[:4], buffer[4:])
    assert not overlap(buffer[:4].mT, buffer[4:].mT)
    assert overlap(buffer[:8, :32], buffer[:8, 28:60])
    assert overlap(buffer[:8, :32], buffer.as_strided((8, 32), (32, 1), 32))
    assert overlap(buffer[:5], buffer[4:])
    assert overlap(buffer[:8, :32], buffer[:8, :32].mT)


def result_of(plan: KernelPlan, mode: str) -> Any:
    return run_case(plan_subject(plan, Path(__file__)), Case("probe", SHAPE, mode, None), 0)  # type: ignore[arg-type]


class ForgettingPlan(UpdatingPlan):
    def run(self, a: Any, b: Any, d: Any, c: Any, e: Any, sms: int) -> None:
        super().run(a, b, torch.zeros_like(d), c, e, sms)
        d.copy_(a.double() @ b.double().mT)


class LatePlan(UpdatingPlan):
    """Reads c after e was written."""

    def run(self, a: Any, b: Any, d: Any, c: Any, e: Any, sms: int) -> None:
        e.zero_()
        super().run(a, b, d, c, e, sms)


@pytest.mark.parametrize("mode", ["numerics", "strides", "alias", "repeat"])
def test_check_restores_what_is_updated(mode: str) -> None:
    assert result_of(UpdatingPlan(), mode).status == "pass"
    assert result_of(ForgettingPlan(), mode).status == "wrong"
    assert result_of(LatePlan(), mode).status == ("wrong" if mode == "alias" else "pass")


def test_the_command_line_checks_against_the_values_before(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--m", "24", "--n", "16", "--k", "32", "--check"]
    assert benchmark_kernel_argparse(UpdatingPlan(), arguments) == 0
    assert benchmark_kernel_argparse(ForgettingPlan(), arguments) == 1
    assert "d: wrong" in capsys.readouterr().out
