"""The function of a package: its signature, calls by name, results in given tensors, and what is refused."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import pytest
from cpu_plans import import_package, on_cpu
from gemm_specs import PLAIN, resolve_text
from mla_specs import MLA
from test_in_place import UpdatingPlan
from test_optional_operands import OptionalPlan

from cutegen.diagnostics import SpecError
from cutegen.render import render_package
from cutegen.resolve import meaning, resolve_document
from cutegen.spec import load_text

torch = pytest.importorskip("torch")

HEAD = "cutegen: 1\nkernel: gemm\narch: sm_90a\n"
SEVERAL = """\
tensors: {v: "f32[n]?", x: "bf16[m, k]", w: "bf16[n, k]", alpha: f32, u: "f32[n]?", d: "bf16[m, n]", h: "f32[m, n]"}
mainloop: x @ w
epilogue: {d: relu(alpha * acc + v) + u, h: acc}
"""


def test_the_function_has_the_operands_as_parameters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = import_package(HEAD + SEVERAL, "several", tmp_path, monkeypatch)
    assert str(inspect.signature(package.several)) == (
        "(x: 'torch.Tensor', w: 'torch.Tensor', alpha: 'float', u: 'torch.Tensor | None' = None, *, "
        "v: 'torch.Tensor | None' = None, out: 'tuple[torch.Tensor, torch.Tensor] | None' = None, "
        "sms: 'int | None' = None) -> 'tuple[torch.Tensor, torch.Tensor]'"
    )
    assert "several" in package.__all__
    told = inspect.getdoc(package.several) or ""
    for line in (
        "x: bf16[m, k], k contiguous and a multiple of 8, 16-byte aligned.",
        "v: f32[n], or None.",
        "alpha: a number.",
        "    h: f32[m, n], n contiguous and a multiple of 4, 16-byte aligned.",
    ):
        assert line in told.splitlines()
    plan = on_cpu(package.PLAN)
    monkeypatch.setattr(package, "PLAN", plan)
    v, x, w, alpha, u = plan.prepare_inputs(m=24, n=16, k=32)
    d, h = package.several(x, w, alpha, u, v=v)
    assert torch.equal(d, plan.reference_fn(v, x, w, alpha, u, precision="float64")[0])
    into = (torch.empty_like(d), torch.empty_like(h))
    again = package.several(alpha=alpha, x=x, w=w, out=into)
    assert again[0] is into[0]
    assert torch.equal(into[0], plan.reference_fn(None, x, w, alpha, None, precision="float64")[0])


def test_names_of_functions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = import_package(PLAIN + "function: product\n", "spelt", tmp_path, monkeypatch)
    assert callable(package.product)
    assert not hasattr(package, "spelt")
    plain, named = (load_text(PLAIN + more, "plain") for more in ("", "function: product\n"))
    assert meaning(plain) == meaning(named)  # a lock holds for both


@pytest.mark.parametrize(
    ("name", "more", "said"),
    [
        ("plain", "function: kernel_fn\n", r"5:11: error\[function-name\]: `kernel_fn` is the name of something else"),
        ("plain", "function: kernel_swap_ab\n", r"`kernel_swap_ab` may be the name of a kernel module"),
        ("plain", "function: class\n", r"error\[function-name\]: `class` is a Python keyword"),
        ("plain", "function: 'x(); import os'\n", r"error\[bad-value\]|error\[bad-name\]"),
        ("plan", "", r"the package's function would be named `plan`, which is[^~]*help: write `function: run_plan`"),
        ("kernel", "function: product\n", None),
    ],
)
def test_names_that_something_else_has(name: str, more: str, said: str | None) -> None:
    text = "cutegen: 1\nkernel: gemm\narch: sm_90a\n\n" + more + PLAIN.partition("arch: sm_90a\n")[2]
    if said is None:
        resolve_document(load_text(text, name), None)
        return
    with pytest.raises(SpecError, match=said):
        resolve_document(load_text(text, name), None)


def test_an_operand_cannot_be_named_as_the_parameter_of_results() -> None:
    text = PLAIN.replace("a: bf16", "out: bf16") + "mainloop: out @ b\n"
    with pytest.raises(SpecError, match=r"name-collision\]: `out` is the parameter of the package's function"):
        resolve_text(text)
    resolve_text(PLAIN.replace("d: bf16", "out: bf16"))
    package = render_package(
        resolve_text(PLAIN.replace("d: bf16", "out: f32") + "epilogue: {out: out + acc}\n").resolved
    )
    assert "def kernel(\n" not in package.files["__init__.py"]
    assert "a: torch.Tensor, b: torch.Tensor, out: torch.Tensor, *, sms" in package.files["__init__.py"]


def test_every_family_has_one() -> None:
    text = render_package(resolve_document(load_text(MLA, "decode"), None).resolved).files["__init__.py"]
    assert "def decode(\n    q: torch.Tensor,\n" in text
    assert "    softmax_scale: float,\n    *,\n    out: tuple[torch.Tensor, torch.Tensor] | None = None," in text


def refused(plan: Any, said: str, *values: Any, **named: Any) -> None:
    with pytest.raises(TypeError, match=said):
        plan(*values, **named)


def test_calls_that_name_no_operand() -> None:
    plan = OptionalPlan()
    bias, a, b, scale = plan.prepare_inputs(m=24, n=16, k=32)
    assert torch.equal(plan(a=a, b=b), plan.reference_fn(None, a, b, None, precision="float64"))
    assert torch.equal(plan(bias, a, b=b), plan.reference_fn(bias, a, b, None, precision="float64"))
    refused(plan, r"optional: no operand is named c; it takes bias, a, b, scale", bias, a, b, c=b)
    refused(plan, r"optional: a: passed by position and by name", bias, a, b, a=a)
    refused(plan, r"optional: missing a, b; it takes", bias)
    refused(plan, r"optional: takes 4 operands, got 5", bias, a, b, scale, a)
    refused(plan, r"optional: out: is 2 of them, needs the tensor d", bias, a, b, out=(a, b))
    refused(plan, r"optional: d: is a str, needs a torch tensor", bias, a, b, out="d")
    bias, a, b, _ = plan.prepare_inputs(m=24, n=32, k=32)
    with pytest.raises(ValueError, match=r"optional: d: shares storage with a"):
        plan(bias, a, b, out=a)


def test_what_is_updated_is_returned_and_never_given_as_out() -> None:
    plan = UpdatingPlan()
    a, b, d, c = plan.prepare_inputs(m=24, n=16, k=32)
    expected = plan.reference_fn(a, b, d, c, precision="float64")
    e = torch.empty_like(c)
    results = plan(a, b, d, c=c, out=e)
    assert results[0] is d
    assert results[1] is e
    assert torch.equal(d, expected[0])
    assert torch.equal(e, expected[1])
    with pytest.raises(TypeError, match=r"updating: out: is 2 of them, needs the tensor e"):
        plan(a, b, d, c, out=(d, e))
